package objects

import (
	"context"
	"net/url"
	"path"
	"strconv"
	"strings"
	"time"

	"agentenv/agent"
	"agentenv/fault"
	"agentenv/protocol/card"
	"agentenv/protocol/transfer"
	"agentenv/store/doc"
	"agentenv/store/object"
)

// Recording says what an agent is to write of what it changes.
type Recording struct {
	ObjectURL string        // of the folder below which the increments are kept
	Roots     []string      // the folders it watches; nil = its own choice
	Lifetime  time.Duration // how long it may write
	// StagingFolder is the name of the folder for what the agent stages, 22 characters at least that nobody guesses: who knows it may read and
	// write there. "" = one that is drawn.
	StagingFolder string
}

// Changelog is where an agent writes what it changes.
type Changelog struct {
	Roots     []string // the folders it watches
	ObjectURL string   // of the folder below which the increments are kept; no slash at its end
	// StagingURL is where they lie until Drain brings them into the store, "" where the agent writes into the store itself. It is a secret: who
	// knows it may read and write there. StagingMaxBytes is how large one may be; 0 = 1 GiB.
	StagingURL      string
	StagingMaxBytes int64
	// GrantPort is the port of this machine at which the agent writes, by a grant of a store that serves its own; 0 = another store's. A later
	// process takes it up by Resume.
	GrantPort int
}

// Resume lets an agent go on writing a changelog by the grant that an earlier process gave it. Conflict when its port is taken. A changelog that needs no such
// thing is a no-op, as is a second call.
func (m *Mover) Resume(ctx context.Context, c Changelog) error {
	g, own := object.GrantsFor(m.o.Grants, c.ObjectURL).(object.Resuming)
	if c.GrantPort == 0 || !own {
		return nil
	}
	return g.Resume(ctx, c.GrantPort)
}

// The most that an agent may say of the folders it watches.
const (
	maxRoots = 1000
	maxRoot  = 4096 // bytes of one
	// minPermission is from how many bytes on the end of a grant's URL is what it grants by.
	minPermission = 22
)

func recordingForm(roots []string) form {
	f := form{uri: card.Snapshot, op: "enable-changelog", objects: []string{"write_namespace"}}
	if roots != nil {
		f.objects = append(f.objects, "roots")
	}
	return f
}

// CanEnableChangelog says why EnableChangelog cannot be asked of an agent, nil when it can; nothing is sent.
func (m *Mover) CanEnableChangelog(e agent.Endpoint, r Recording) error {
	_, err := m.mode(e, recordingForm(r.Roots), strings.TrimRight(r.ObjectURL, "/"))
	return err
}

// EnableChangelog has an agent write what changes in its folders below an object URL. Unavailable when the store's grants do not last that
// long.
func (m *Mover) EnableChangelog(ctx context.Context, e agent.Endpoint, r Recording) (Changelog, error) {
	f := recordingForm(r.Roots)
	out := Changelog{ObjectURL: strings.TrimRight(r.ObjectURL, "/")}
	body := doc.Of()
	if r.Roots != nil {
		body.Set("roots", doc.MustFrom(r.Roots))
	}
	x, err := m.exchange(e, f, out.ObjectURL)
	if err != nil {
		return out, err
	}
	if x.staging != nil && r.StagingFolder != "" {
		x.staging = m.stagingAt(e, stagingRoot(e)+"/"+r.StagingFolder)
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
		n.ExpiresAt = m.o.Now().Add(r.Lifetime).UTC().Truncate(time.Second)
		n.Write = transfer.Policy{URL: s.granted, Fields: map[string]string{}, PathField: "key", FileField: "file", Headers: map[string]string{transfer.StagingPath: s.path}}
	} else {
		x.grants = object.GrantsFor(m.o.Grants, out.ObjectURL)
		if most := x.grants.MaxSingleUpload(); most > 0 {
			n.MaxObjectBytes = min(n.MaxObjectBytes, most)
		}
		if n.Write, n.ExpiresAt, err = x.grants.Policy(ctx, out.ObjectURL+"/", n.MaxObjectBytes, r.Lifetime); err != nil {
			return out, fault.At(err, "%s", f)
		}
		if _, own := x.grants.(object.Resuming); own {
			if u, err := url.Parse(n.Write.URL); err == nil {
				out.GrantPort, _ = strconv.Atoi(u.Port())
			}
		}
	}
	answer, err := x.call(ctx, body.Set("write_namespace", wire(n)))
	if err != nil {
		return out, err
	}
	for _, v := range answer.Arr("roots") {
		s, ok := v.(string)
		if !ok {
			return out, untrue("%s: the answer of %s holds roots that are no texts", f, e)
		}
		if len(s) > maxRoot || len(out.Roots) == maxRoots {
			return out, untrue("%s: %s says that it watches more than %d folders, or one with a name of more than %d bytes", f, e, maxRoots, maxRoot)
		}
		if permission := path.Base(n.Write.URL); len(permission) >= minPermission {
			s = strings.ReplaceAll(s, permission, "***")
		}
		out.Roots = append(out.Roots, s)
	}
	if _, ok := answer.Value("roots").([]any); !ok {
		return out, untrue("%s: the answer of %s has no roots", f, e)
	}
	return out, nil
}
