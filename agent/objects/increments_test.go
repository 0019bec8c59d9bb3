package objects_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"agentenv/agent/objects"
	"agentenv/protocol/a2a"
	"agentenv/store/doc"
)

// TestEmptyIncrements has an increment without a byte be sent like any other. A grant is for one byte at least, so that of an empty one is for
// one more than its size.
func TestEmptyIncrements(t *testing.T) {
	t.Parallel()
	for _, w := range moving {
		for name, c := range map[string]struct {
			contents []string
			sent     string // sizes and limits
		}{
			"one":         {[]string{""}, "0/1"},
			"all":         {[]string{"", "", ""}, "0/1 0/1 0/1"},
			"among other": {[]string{"a", "", "ccc"}, "1/1 0/1 3/3"},
		} {
			t.Run(string(w)+", "+name, func(t *testing.T) {
				t.Parallel()
				r := newRig(t, w, a2a.Settings{})
				var want []string
				for i, content := range c.contents {
					r.put(fmt.Sprintf("log/%06d.tgz", i+1), content)
					want = append(want, fmt.Sprintf("%d:%s", i+1, content))
				}
				got, err := r.mover.ApplyChangelog(t.Context(), r.e, objects.Replay{ObjectURL: r.url("log")})
				if err != nil || got.Count != len(c.contents) || !slices.Equal(r.agent.made, want) {
					t.Errorf("%+v, %v, applied %q", got, err, r.agent.made)
				}
				const path = "PUT /ext/snapshot/changelog"
				body, err := doc.ParseObject([]byte(strings.TrimPrefix(r.asked(path)[0], path+" ")), doc.Options{})
				must(t, err)
				var sent []string
				for _, v := range body.Arr("increments") {
					o := v.(*doc.Object).Obj("object")
					sent = append(sent, fmt.Sprint(o.Value("size_bytes"), "/", o.Value("max_bytes")))
				}
				if got := strings.Join(sent, " "); got != c.sent {
					t.Errorf("sent %s", got)
				}
				if left := r.staged(); len(left) > 0 {
					t.Error("left on the agent:", left)
				}
			})
		}
	}
}
