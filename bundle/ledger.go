package bundle

import (
	"context"
	"fmt"
	"sort"
	"strings"
	"time"

	"agentenv/artifact"
	"agentenv/fault"
	"agentenv/store/doc"
	"agentenv/store/document"
)

const (
	ledgerCollection = "bundle_ledger"
	ledgerScheme     = 2
	listedFiles      = 5
)

// collections of the stores that a bundle writes to.
var collections = map[string]string{StoreArtifact: artifact.Documents, StoreAgent: "a2a_agents", StoreTask: "tasks", StoreEval: "evals"}

// inputs is what a version of an entity is made of: an entity with equal inputs is not written again.
type inputs struct {
	typ       string
	config    string      // digest of the canonical config
	files     *doc.Object // name → digest
	needs     *doc.Object // "artifact <id>" → version
	storeRefs *doc.Object // "artifact <id>" → version
}

func (in inputs) object() *doc.Object {
	return doc.Of("type", in.typ, "config", in.config, "files", in.files, "needs", in.needs, "store_refs", in.storeRefs)
}

// digest identifies an entity made of these inputs.
func digest(store, id string, in *doc.Object) string {
	return digestOf(doc.Of("scheme", doc.Int(ledgerScheme), "store", store, "id", id, "inputs", in))
}

// ledger remembers what the stored versions of bundles' entities were made of.
type ledger struct {
	docs document.Store
	now  func() time.Time
}

// newLedger opens the ledger, which lies with the @local documents.
func newLedger(ctx context.Context, d Deps) *ledger {
	return &ledger{docs: document.Placed(ctx, d.Documents, "@local/"), now: d.Now}
}

func rowFilter(store, id, status string) document.Filter {
	return document.By("store", store, "id", id, "status", status)
}

// last returns the newest row of an entity of each status, nil where there is none.
func (l *ledger) last(ctx context.Context, store, id string) (pending, done *doc.Object, err error) {
	rows, err := l.docs.Query(ctx, ledgerCollection, document.Query{Filter: document.By("store", store, "id", id), Sort: []document.Sort{{Path: "at", Desc: true}}})
	for _, row := range rows {
		switch status := row.Str("status"); {
		case status == "pending" && pending == nil:
			pending = row
		case status == "done" && done == nil:
			done = row
		}
	}
	return pending, done, err
}

// begin records that an entity is about to be written.
func (l *ledger) begin(ctx context.Context, bundle string, e *Entity, in *doc.Object) error {
	row := doc.Of("store", e.Store, "id", e.ID, "bundle", bundle, "status", "pending", "scheme", doc.Int(ledgerScheme),
		"digest", digest(e.Store, e.ID, in), "inputs", in, "at", artifact.Timestamp(l.now()))
	if err := l.docs.EnsureIndex(ctx, ledgerCollection, document.Index{Fields: []string{"store", "id", "status"}}); err != nil {
		return err
	}
	return l.docs.Transact(ctx, func(tx document.Store) error {
		if err := l.clear(ctx, tx, e); err != nil {
			return err
		}
		return tx.Insert(ctx, ledgerCollection, row)
	})
}

func (l *ledger) clear(ctx context.Context, tx document.Store, e *Entity) error {
	for {
		n, err := tx.Delete(ctx, ledgerCollection, rowFilter(e.Store, e.ID, "pending"))
		if err != nil || n == 0 {
			return err
		}
	}
}

// wrote notes the version of a write that is done but not yet verified.
func (l *ledger) wrote(ctx context.Context, e *Entity, version int64) error {
	_, err := l.docs.Update(ctx, ledgerCollection, rowFilter(e.Store, e.ID, "pending"), document.Update{Set: doc.Of("version", doc.Int(version))}, false)
	return err
}

// finish replaces the pending row by the final one. in is nil when the inputs changed while they were written.
func (l *ledger) finish(ctx context.Context, bundle string, e *Entity, in *doc.Object, version int64) error {
	row := doc.Of("store", e.Store, "id", e.ID, "bundle", bundle, "status", "done", "scheme", doc.Int(ledgerScheme),
		"digest", nil, "inputs", nil, "at", artifact.Timestamp(l.now()), "version", doc.Int(version))
	if in != nil {
		row.Set("digest", digest(e.Store, e.ID, in)).Set("inputs", in)
	}
	return l.docs.Transact(ctx, func(tx document.Store) error {
		if err := l.clear(ctx, tx, e); err != nil {
			return err
		}
		return tx.Insert(ctx, ledgerCollection, row)
	})
}

// decide says whether an entity with these inputs is stored already, and why not otherwise. It sets the entry's version,
// reused, adopted and reasons.
func (p *Plan) decide(ctx context.Context, l *ledger, en *entry, in inputs) error {
	e := en.e
	latest, err := p.p.Documents.LatestVersion(ctx, collections[e.Store], e.ID)
	if err != nil {
		return fault.At(err, "read %s", e.Path)
	}
	want := digest(e.Store, e.ID, in.object())
	en.reused, en.adopted, en.reasons = false, false, nil
	en.version = latest + 1
	pending, row, err := l.last(ctx, e.Store, e.ID)
	if err != nil {
		return fault.At(err, "read the ledger of bundles")
	}
	if v, ok := pending.Int("version"); ok && v == latest && pending.Str("bundle") == e.b.Root && pending.Str("digest") == want {
		en.version, en.reused, en.adopted = v, true, true
		return nil
	}
	if row == nil {
		en.reasons = []string{"new"}
		return nil
	}
	version, _ := row.Int("version")
	scheme, _ := row.Int("scheme")
	switch {
	case row.Str("bundle") != e.b.Root:
		en.reasons = []string{"last written by the bundle " + printable(row.Str("bundle"))}
		return nil
	case version > latest:
		en.reasons = append(en.reasons, fmt.Sprintf("its v%d is not in the store", version))
	case version < latest:
		en.reasons = append(en.reasons, fmt.Sprintf("the store's latest, v%d, was not written by a bundle", latest))
	}
	switch {
	case scheme != ledgerScheme:
		en.reasons = append(en.reasons, "the ledger's scheme changed")
	case row.Value("digest") == nil || row.Obj("inputs") == nil:
		en.reasons = append(en.reasons, "what it was made of is not known")
	case row.Str("digest") != want:
		changed := differences(row.Obj("inputs"), in)
		if len(changed) == 0 {
			changed = []string{"its inputs changed"}
		}
		en.reasons = append(en.reasons, changed...)
	}
	if len(en.reasons) == 0 {
		en.version, en.reused = version, true
	}
	return nil
}

// differences says in words how the inputs of a stored version differ from those of now.
func differences(old *doc.Object, in inputs) []string {
	var out []string
	if t := old.Str("type"); t != in.typ {
		out = append(out, "type changed: "+printable(t)+" → "+in.typ)
	}
	if old.Str("config") != in.config {
		out = append(out, "config changed")
	}
	files := old.Obj("files")
	var added, removed, changed []string
	for _, n := range in.files.Keys() {
		was, ok := files.Get(n)
		switch {
		case !ok:
			added = append(added, n)
		case was != in.files.Value(n):
			changed = append(changed, n)
		}
	}
	for _, n := range files.Keys() {
		if _, ok := in.files.Get(n); !ok {
			removed = append(removed, n)
		}
	}
	for _, g := range []struct {
		what  string
		names []string
	}{{"added", added}, {"removed", removed}, {"changed", changed}} {
		if len(g.names) > 0 {
			out = append(out, "files "+g.what+": "+someOf(g.names))
		}
	}
	out = append(out, versionsChanged(old.Obj("needs"), in.needs, "is written anew")...)
	return append(out, versionsChanged(old.Obj("store_refs"), in.storeRefs, "has a new version in the store")...)
}

// versionsChanged compares what an entity records of others.
func versionsChanged(old, now *doc.Object, how string) []string {
	var out []string
	for _, k := range now.Keys() {
		was, ok := old.Get(k)
		switch {
		case !ok:
			out = append(out, printable(k)+" is new in it")
		case was != now.Value(k):
			out = append(out, fmt.Sprintf("%s %s (v%v → v%v)", printable(k), how, was, now.Value(k)))
		}
	}
	for _, k := range old.Keys() {
		if _, ok := now.Get(k); !ok {
			out = append(out, printable(k)+" is no longer in it")
		}
	}
	return out
}

func someOf(names []string) string {
	sort.Strings(names)
	more := ""
	if len(names) > listedFiles {
		more = fmt.Sprintf(" and %d more", len(names)-listedFiles)
		names = names[:listedFiles]
	}
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = printable(n)
	}
	return strings.Join(out, ", ") + more
}
