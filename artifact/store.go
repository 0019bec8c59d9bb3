package artifact

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"log/slog"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"agentenv/fault"
	"agentenv/store"
	"agentenv/store/doc"
	"agentenv/store/document"
	"agentenv/store/image"
	"agentenv/store/object"
)

// Documents is the name of the document collection that holds artifacts.
const Documents = "artifacts"

// insertAttempts is how often a write whose version another writer took is tried in all.
const insertAttempts = 3

// Options say what a Store stands on.
type Options struct {
	Documents document.Store
	Objects   object.Store
	Images    image.Store                                           // where local images are pushed; nil = they are only saved
	Pin       func(ctx context.Context, ref string) (string, error) // resolves a tag to the digest its registry serves; nil = tags are refused
	Prefix    string                                                // put before every object key, with "/"; "" = none
	Aliases   map[string]string                                     // old type name → name it is read as
	Custom    []string                                              // further types, kept as documents
	Log       *slog.Logger                                          // nil = nothing is logged
	Now       func() time.Time                                      // nil = time.Now
}

// Store reads and writes artifacts. It holds no connection of its own and is safe for concurrent use.
type Store struct {
	docs    document.Store
	objects object.Store
	images  image.Store
	pin     func(ctx context.Context, ref string) (string, error)
	prefix  string
	aliases map[string]string
	custom  map[string]bool
	log     *slog.Logger
	now     func() time.Time

	mu      sync.Mutex
	indexed bool
}

var builtin = []string{TypeCLI, TypeFile, TypeUniverse, TypeDockerImage, TypeEnvironment, TypeEnvironmentUniverse, TypeSkill}

// New returns a store over the given stores. Errors are Invalid: a custom type that is built in or named twice, an alias that
// names itself, is a chain, has no registered target, or is itself a registered type.
func New(o Options) (*Store, error) {
	s := &Store{docs: o.Documents, objects: o.Objects, images: o.Images, pin: o.Pin, aliases: o.Aliases, custom: map[string]bool{}, log: o.Log, now: o.Now}
	if o.Prefix != "" {
		s.prefix = o.Prefix + "/"
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.now == nil {
		s.now = time.Now
	}
	for _, t := range o.Custom {
		if slices.Contains(builtin, t) || s.custom[t] {
			return nil, fault.New(fault.Invalid, "[artifacts] impls: the type %q is registered already", t)
		}
		s.custom[t] = true
	}
	for old, target := range o.Aliases {
		where := fmt.Sprintf("[artifacts] type_aliases.%s", old)
		_, chain := o.Aliases[target]
		switch {
		case old == target:
			return nil, fault.New(fault.Invalid, "%s names itself", where)
		case chain:
			return nil, fault.New(fault.Invalid, "%s: %q is itself an alias; name the type it stands for", where, target)
		case !slices.Contains(builtin, target) && !s.custom[target]:
			return nil, fault.New(fault.Invalid, "%s: no artifact type %q is registered", where, target)
		case slices.Contains(builtin, old) || s.custom[old]:
			return nil, fault.New(fault.Invalid, "%s: %q is a registered type, so it cannot be an alias", where, old)
		}
	}
	return s, nil
}

func (s *Store) canonical(typ string) string {
	if t, ok := s.aliases[typ]; ok {
		return t
	}
	return typ
}

// spellings returns every stored spelling of a type, the canonical one first.
func (s *Store) spellings(typ string) []any {
	typ = s.canonical(typ)
	out := []any{typ}
	var old []string
	for k, v := range s.aliases {
		if v == typ {
			old = append(old, k)
		}
	}
	sort.Strings(old)
	for _, k := range old {
		out = append(out, k)
	}
	return out
}

// Get returns one version of an artifact of any type, the latest when ref.Version is 0. It is NotFound when there is none and
// Unsupported when nothing registers its type.
func (s *Store) Get(ctx context.Context, ref Ref) (Artifact, error) {
	d, err := s.find(ctx, ref)
	if err != nil {
		return nil, err
	}
	return s.decode(d)
}

func (s *Store) find(ctx context.Context, ref Ref) (*doc.Object, error) {
	f := document.By("id", ref.ID)
	which := ref.ID
	var order []document.Sort
	if ref.Version > 0 {
		f = f.And("version", document.Eq, doc.Int(ref.Version))
		which += fmt.Sprintf(" version=%d", ref.Version)
	} else {
		order = []document.Sort{{Path: "version", Desc: true}}
	}
	d, err := s.docs.FindOne(ctx, Documents, f, order...)
	if err != nil {
		return nil, fault.At(err, "read artifact %s", which)
	}
	if d == nil {
		return nil, fault.New(fault.NotFound, "Artifact %s not found", which).WithClass("NotFoundError")
	}
	return d, nil
}

// GetAs is Get for one type: GetAs[*File](ctx, s, ref). Another type under the id is an Invalid error that names both.
func GetAs[T Artifact](ctx context.Context, s *Store, ref Ref) (T, error) {
	var want T
	a, err := s.Get(ctx, ref)
	if err != nil {
		return want, err
	}
	t, ok := a.(T)
	if !ok {
		return want, fault.New(fault.Invalid, "artifact %s v%d has the type %s, where a %s is needed", a.ID(), a.Version(), a.Type(), want.Type())
	}
	return t, nil
}

// Latest returns the highest stored version of id, 0 when there is none.
func (s *Store) Latest(ctx context.Context, id string) (int64, error) {
	return s.docs.LatestVersion(ctx, Documents, id)
}

// NextVersion refuses ids that the store cannot take (Invalid) and returns the version that a write would get now.
func (s *Store) NextVersion(ctx context.Context, id string) (int64, error) {
	if err := s.check(ctx, id); err != nil {
		return 0, err
	}
	v, err := s.Latest(ctx, id)
	return v + 1, err
}

func (s *Store) check(ctx context.Context, ids ...string) error {
	for _, id := range ids {
		if id == "" {
			return fault.New(fault.Invalid, "an artifact needs an id")
		}
		if err := s.docs.CheckID(id); err != nil {
			return err
		}
		if store.InLocalRun(ctx) && !store.IsLocal(id) {
			return fault.New(fault.Denied, "artifact %s: a run of an @local task writes only @local ids", id)
		}
	}
	return nil
}

// ListQuery selects artifacts; the zero value is everything, latest versions only, newest version first.
type ListQuery struct {
	IDs    []string
	Type   string // either spelling of an aliased type
	Limit  int    // 0 = all
	Offset int
}

// List returns the latest version of each artifact that matches, by version descending, then id. Documents of unknown types
// are left out with a warning.
func (s *Store) List(ctx context.Context, q ListQuery) ([]Artifact, error) {
	var f document.Filter
	if q.Type != "" {
		if sp := s.spellings(q.Type); len(sp) > 1 {
			f = f.And("type", document.In, sp)
		} else {
			f = f.And("type", document.Eq, sp[0])
		}
	}
	if q.IDs != nil {
		ids := make([]any, len(q.IDs))
		for i, id := range q.IDs {
			ids[i] = id
		}
		f = f.And("id", document.In, ids)
	}
	page, _, err := s.docs.LatestPerID(ctx, Documents, document.LatestQuery{Query: document.Query{Filter: f, Limit: q.Limit,
		Offset: q.Offset, Sort: []document.Sort{{Path: "version", Desc: true}, {Path: "id"}}}})
	if err != nil {
		return nil, fault.At(err, "list artifacts")
	}
	var out []Artifact
	for _, d := range page {
		a, err := s.decode(d)
		if fault.Is(err, fault.Unsupported) {
			s.log.Warn("artifact left out of the list", "error", err.Error())
			continue
		}
		if err != nil {
			return nil, err
		}
		out = append(out, a)
	}
	return out, nil
}

// SetField sets one side-channel field of a stored version, the one change a stored artifact can take. id, version and type
// identify the document and are refused (Invalid); a missing version is NotFound.
func (s *Store) SetField(ctx context.Context, typ string, ref Ref, field string, value any) error {
	if field == "id" || field == "version" || field == "type" {
		return fault.New(fault.Invalid, "artifact %s: the field %q identifies the document and cannot be set", ref.ID, field)
	}
	f := document.By("id", ref.ID, "version", doc.Int(ref.Version)).And("type", document.In, s.spellings(typ))
	n, err := s.docs.Update(ctx, Documents, f, document.Update{Set: doc.Of(field, value)}, false)
	if err == nil && n == 0 {
		err = fault.New(fault.NotFound, "Artifact %s version=%d not found", ref.ID, ref.Version)
	}
	return fault.At(err, "set %q", field)
}

// Put stores a document as it is under version 0 (the next free one) or exactly the next version; any other version is a
// Conflict and writes nothing. It returns what was stored. Objects that the document names must be there already.
func (s *Store) Put(ctx context.Context, d *doc.Object) (Artifact, error) {
	id := d.Str("id")
	if err := s.check(ctx, id); err != nil {
		return nil, err
	}
	given, _ := d.Int("version")
	if given < 0 {
		return nil, fault.New(fault.Invalid, "artifact %s: version %d is negative", id, given)
	}
	if given == 0 {
		return s.write(ctx, id, func(w *writer) (Artifact, error) {
			a, err := s.decode(d)
			if err != nil {
				return nil, err
			}
			return a, w.add(a)
		})
	}
	a, err := s.decode(d)
	if err != nil {
		return nil, err
	}
	if err := s.index(ctx); err != nil {
		return nil, err
	}
	current, err := s.Latest(ctx, id)
	if err == nil && given == current+1 {
		err = s.docs.Insert(ctx, Documents, s.stamped(a))
	}
	if err == nil && given != current+1 || fault.Is(err, fault.Exists) {
		return nil, fault.New(fault.Conflict, "artifact %s is at version %d, so the next is %d, not %d: somebody else wrote it meanwhile",
			id, current, current+1, given)
	}
	return a, err
}

func (s *Store) stamped(a Artifact) *doc.Object {
	return a.Document().Clone().Set("created_at_utc", Timestamp(s.now()))
}

// Timestamp writes t as stored documents hold it: ISO 8601 in UTC with microseconds.
func Timestamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000000") + "+00:00" }

func (s *Store) index(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.indexed {
		return nil
	}
	if err := s.docs.EnsureIndex(ctx, Documents, document.Index{Fields: []string{"id", "version"}, Unique: true}); err != nil {
		return err
	}
	if err := s.docs.EnsureIndex(ctx, Documents, document.Index{Fields: []string{"type"}}); err != nil {
		return err
	}
	s.indexed = true
	return nil
}

// writer gathers the documents of one write; they become visible together.
type writer struct {
	ctx  context.Context
	s    *Store
	tx   document.Store
	next map[string]int64 // known next versions
}

// add stores a under its next free version and sets that version in a.
func (w *writer) add(a Artifact) error {
	h := a.(interface{ core() *head }).core()
	v, known := w.next[h.id]
	if !known {
		latest, err := w.tx.LatestVersion(w.ctx, Documents, h.id)
		if err != nil {
			return err
		}
		v = latest + 1
	}
	h.version = v
	if c, ok := a.(*Custom); ok {
		c.body = c.body.Clone().Set("version", doc.Int(v))
	}
	if err := w.tx.Insert(w.ctx, Documents, w.s.stamped(a)); err != nil {
		return err
	}
	w.next[h.id] = v + 1
	return nil
}

// plan looks up the next versions of many ids with few questions.
func (w *writer) plan(ids []string) error {
	for chunk := range slices.Chunk(ids, 400) {
		in := make([]any, len(chunk))
		for i, id := range chunk {
			in[i] = id
			w.next[id] = 1
		}
		page, _, err := w.tx.LatestPerID(w.ctx, Documents, document.LatestQuery{Query: document.Query{
			Filter: document.Filter{{Path: "id", Op: document.In, Value: in}}}})
		if err != nil {
			return err
		}
		for _, d := range page {
			v, _ := d.Int("version")
			w.next[d.Str("id")] = v + 1
		}
	}
	return nil
}

// write runs fn in one transaction, again when another writer took a version meanwhile. owner places the transaction.
func (s *Store) write(ctx context.Context, owner string, fn func(w *writer) (Artifact, error)) (Artifact, error) {
	if err := s.index(ctx); err != nil {
		return nil, err
	}
	for attempt := 1; ; attempt++ {
		var out Artifact
		err := document.Placed(ctx, s.docs, owner).Transact(ctx, func(tx document.Store) (err error) {
			out, err = fn(&writer{ctx: ctx, s: s, tx: tx, next: map[string]int64{}})
			return err
		})
		if err == nil {
			return out, nil
		}
		if !fault.Is(err, fault.Exists) || attempt == insertAttempts {
			return nil, err
		}
		s.log.Warn("another writer took the version; trying the next", "artifact", owner, "attempt", attempt)
	}
}

// attempt returns a fresh key prefix for one write, ending in "/": a write that died never blocks the next.
func (s *Store) attempt(ctx context.Context, typ, id string) (string, error) {
	v, err := s.NextVersion(ctx, id)
	if err != nil {
		return "", err
	}
	return s.attemptAt(typ, id, v), nil
}

func (s *Store) attemptAt(typ, id string, v int64) string {
	return fmt.Sprintf("%sartifacts/%s/%s/%d-%s/", s.prefix, typ, store.KeySegment(id), v, RandomHex(4))
}

// RandomHex returns n random bytes as 2n hex digits, from the system's own generator.
func RandomHex(n int) string {
	b := make([]byte, n)
	rand.Read(b)
	return hex.EncodeToString(b)
}

// scoped returns a context in which objects of id go to the object store of its namespace.
func scoped(ctx context.Context, id string) context.Context {
	if store.IsLocal(id) {
		return store.WithRunScope(ctx, id)
	}
	return ctx
}

// owned checks that an existing object may be named by an artifact of this id.
func (s *Store) owned(id, url string) error {
	if p, err := object.Placed(context.Background(), s.objects, id); err == nil && p.Owns(url) {
		return nil
	}
	if !s.objects.Owns(url) {
		return fault.New(fault.Invalid, "artifact %s: %s is in no object store of ours", id, url)
	}
	return fault.New(fault.Invalid, "artifact %s: %s is in the object store of another namespace", id, url)
}

func cleanPrefix(url string) string {
	if strings.HasSuffix(url, "/") {
		return url
	}
	return url + "/"
}
