package cli

import (
	"testing"

	"agentenv/fault"
	"agentenv/store/doc"
)

// TestMetadataOfAgents reads what is JSON as that, and refuses what its keys cannot hold.
func TestMetadataOfAgents(t *testing.T) {
	t.Parallel()
	o, err := parseMetadata([]string{"takes_credentials=false", "min_disk_size_gb=2.5", "owner=team a", "n=5"})
	if err != nil || doc.Canonical(o) != `{"min_disk_size_gb":2.5,"n":5,"owner":"team a","takes_credentials":false}` {
		t.Errorf("%s, %v", doc.Canonical(o), err)
	}
	for _, bad := range [][]string{{"takes_credentials=maybe"}, {"takes_credentials=1"}, {"min_disk_size_gb=-1"}, {"min_disk_size_gb=big"}, {"x"}, {"=x"}, {"a=1", "a=2"}} {
		if o, err := parseMetadata(bad); !fault.Is(err, fault.Invalid) {
			t.Errorf("%v: %v, %v", bad, o, err)
		}
	}
}
