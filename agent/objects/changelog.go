package objects

import (
	"context"
	"strings"
	"time"

	"agentenv/agent"
	"agentenv/fault"
	"agentenv/protocol/card"
	"agentenv/protocol/transfer"
	"agentenv/store/doc"
	"agentenv/store/object"
)

// Changelog is where an agent writes what it changes.
type Changelog struct {
	Roots     []string // the folders it watches
	ObjectURL string   // of the folder below which the increments are kept; no slash at its end
	// StagingURL is where they lie until Drain brings them into the store, "" where the agent writes into the store itself. It is a secret: who
	// knows it may read and write there. StagingMaxBytes is how large one may be.
	StagingURL      string
	StagingMaxBytes int64
}

// EnableChangelog has an agent write what changes in its folders (roots; nil = its own choice) below an object URL, for so long. Unavailable
// when the store's grants do not last that long.
func (m *Mover) EnableChangelog(ctx context.Context, e agent.Endpoint, objectURL string, roots []string, lifetime time.Duration) (Changelog, error) {
	f := form{uri: card.Snapshot, op: "enable-changelog", objects: []string{"write_namespace"}}
	out := Changelog{ObjectURL: strings.TrimRight(objectURL, "/")}
	body := doc.Of()
	if roots != nil {
		f.objects = append(f.objects, "roots")
		body.Set("roots", doc.MustFrom(roots))
	}
	x, err := m.exchange(e, f, out.ObjectURL)
	if err != nil {
		return out, err
	}
	root, err := m.o.Store.Key(out.ObjectURL)
	if err != nil {
		return out, err
	}
	n := transfer.NamespaceGrant{RootPath: root, MaxObjects: maxIncrements, MaxObjectBytes: maxIncrementBytes, MaxTotal: maxChangelogBytes}
	if s := x.staging; s != nil {
		if s.max > 0 {
			n.MaxObjectBytes = min(n.MaxObjectBytes, s.max)
		}
		out.StagingURL, out.StagingMaxBytes = s.folder, n.MaxObjectBytes
		n.ExpiresAt = m.o.Now().Add(lifetime).UTC().Truncate(time.Second)
		n.Write = transfer.Policy{URL: s.granted, Fields: map[string]string{}, PathField: "key", FileField: "file", Headers: map[string]string{transfer.StagingPath: s.path}}
	} else {
		x.grants = object.GrantsFor(m.o.Grants, out.ObjectURL)
		if most := x.grants.MaxSingleUpload(); most > 0 {
			n.MaxObjectBytes = min(n.MaxObjectBytes, most)
		}
		if n.Write, n.ExpiresAt, err = x.grants.Policy(ctx, out.ObjectURL+"/", n.MaxObjectBytes, lifetime); err != nil {
			return out, fault.At(err, "%s", f)
		}
	}
	answer, err := x.call(ctx, body.Set("write_namespace", wire(n)))
	if err != nil {
		return out, err
	}
	for _, v := range answer.Arr("roots") {
		s, ok := v.(string)
		if !ok {
			return out, fault.New(fault.Unavailable, "%s: the answer of %s holds roots that are no texts", f, e)
		}
		out.Roots = append(out.Roots, s)
	}
	if _, ok := answer.Value("roots").([]any); !ok {
		return out, fault.New(fault.Unavailable, "%s: the answer of %s has no roots", f, e)
	}
	return out, nil
}
