package document

import (
	"context"
	"slices"
	"strconv"

	"agentenv/fault"
	"agentenv/store/doc"
)

// entityCollections are the collections of versioned entities known from the start: their documents live in the store of
// their id's namespace.
var entityCollections = []string{"a2a_agents", "artifacts", "envs", "evals", "task_steps", "tasks"}

// Versioned is a collection of versioned entities: documents with a string `id` and a positive integer `version` that
// counts from 1 without gaps for each id. The value is immutable and as safe for concurrent use as its Store.
type Versioned struct {
	Store      Store
	Collection string
	Indexes    []Index // beside the unique one on id and version
}

// Ensure declares the collection's indexes and, to a Router, that it holds entities. A second call is a no-op.
func (v Versioned) Ensure(ctx context.Context) error {
	if r, ok := v.Store.(*Router); ok {
		r.entities.add(v.Collection)
	}
	for _, ix := range append([]Index{{Fields: []string{"id", "version"}, Unique: true}}, v.Indexes...) {
		if err := v.Store.EnsureIndex(ctx, v.Collection, ix); err != nil {
			return err
		}
	}
	return nil
}

// Get returns the entity at a version, the newest for version 0, nil when there is none.
func (v Versioned) Get(ctx context.Context, id string, version int64) (*doc.Object, error) {
	f := By("id", id)
	if version != 0 {
		return v.Store.FindOne(ctx, v.Collection, f.And("version", Eq, doc.Int(version)))
	}
	return v.Store.FindOne(ctx, v.Collection, f, Sort{Path: "version", Desc: true})
}

// NextVersion returns the version that the next Put of id will have. The id is checked first (Invalid), so that nothing is
// uploaded for an id that the store would refuse later.
func (v Versioned) NextVersion(ctx context.Context, id string) (int64, error) {
	if err := v.Store.CheckID(id); err != nil {
		return 0, err
	}
	latest, err := v.Store.LatestVersion(ctx, v.Collection, id)
	return latest + 1, err
}

// putAttempts is how often Put without a version tries again after losing the race for one.
const putAttempts = 5

// Put stores an entity and returns it as stored. Without a version (absent, null or 0) it gets the next one; racing calls
// get different ones, and after five lost races the error is Exists. With a version it must be the next one: otherwise, and
// when the race for it is lost, the error is Conflict and nothing is written. d is not changed.
func (v Versioned) Put(ctx context.Context, d *doc.Object) (*doc.Object, error) {
	id, ok := d.Value("id").(string)
	if !ok {
		return nil, fault.New(fault.Invalid, "%s: an entity's id is text, not %s", v.Collection, doc.TypeName(d.Value("id")))
	}
	wanted, isInt := d.Int("version")
	if !isInt && d.Value("version") != nil || wanted < 0 {
		return nil, fault.New(fault.Invalid, "%s %q: a version is a positive integer", v.Collection, id)
	}
	if err := v.Ensure(ctx); err != nil {
		return nil, err
	}
	if wanted > 0 {
		next, err := v.NextVersion(ctx, id)
		if err != nil {
			return nil, err
		}
		if wanted == next {
			if err = v.Store.Insert(ctx, v.Collection, d); !fault.Is(err, fault.Exists) {
				return d, err
			}
			if next, err = v.NextVersion(ctx, id); err != nil {
				return nil, err
			}
		}
		return nil, fault.New(fault.Conflict, "%s %q is at version %d, so the next version is %d, not %d: somebody else wrote it meanwhile", v.Collection, id, next-1, next, wanted).WithClass("ConcurrentModificationError")
	}
	for range putAttempts {
		next, err := v.NextVersion(ctx, id)
		if err != nil {
			return nil, err
		}
		out := d.Clone().Set("version", doc.Int(next))
		if err = v.Store.Insert(ctx, v.Collection, out); !fault.Is(err, fault.Exists) {
			return out, err
		}
	}
	return nil, fault.New(fault.Exists, "%s %q: lost the race for the next version %d times; try again", v.Collection, id, putAttempts)
}

// swapAttempts is how often CompareAndSwap tries before it gives up.
const swapAttempts = 1000

// CompareAndSwap changes one document under a counter, so that no concurrent change is lost: it reads the document that key
// finds, asks mutate for an update (nil: stop), and applies it with the counter raised by one, guarded by the counter's
// value as read; on a lost race it starts again. It returns the document after the update, or nil when there is no document
// or mutate stopped. mutate may be called often. The error after 1000 lost races is Conflict.
func CompareAndSwap(ctx context.Context, s Store, coll string, key Filter, counter string, mutate func(*doc.Object) (*Update, error)) (*doc.Object, error) {
	for range swapAttempts {
		d, err := s.FindOne(ctx, coll, key)
		if d == nil || err != nil {
			return nil, err
		}
		u, err := mutate(d)
		if u == nil || err != nil {
			return nil, err
		}
		guarded, guard := *u, Pred{Path: counter, Op: Exists, Value: false}
		guarded.Inc = u.Inc.Clone().Set(counter, doc.Int(1))
		switch now, there := d.Get(counter); {
		case there && now == nil:
			guard = Pred{Path: counter, Op: Eq, Value: nil}
		case there:
			guard = Pred{Path: counter, Op: Eq, Value: now}
		}
		after, err := s.UpdateAndGet(ctx, coll, append(slices.Clone(key), guard), guarded, false, false)
		if after != nil || err != nil {
			return after, err
		}
	}
	return nil, fault.New(fault.Conflict, "%s: %d changes of one document in a row lost against others (%s); try again", coll, swapAttempts, key)
}

// String shows the filter for messages.
func (f Filter) String() string {
	out := ""
	for i, p := range f {
		if i > 0 {
			out += ", "
		}
		text, _ := doc.Compact(p.Value)
		out += p.Path + opNames[p.Op] + string(text)
	}
	return out
}

var opNames = map[Op]string{Eq: " = ", Ne: " ≠ ", Gte: " ≥ ", Lte: " ≤ ", In: " in ", Exists: " exists ", LteOrAbsent: " absent or ≤ ", AbsentOrNull: " absent "}

// outward returns the path of the first @local id that is a value or a key inside v, "" when there is none.
func outward(v any, at string, isLocal func(string) bool) string {
	switch v := v.(type) {
	case string:
		if isLocal(v) {
			return at
		}
	case []any:
		for i, el := range v {
			if p := outward(el, at+"["+strconv.Itoa(i)+"]", isLocal); p != "" {
				return p
			}
		}
	case *doc.Object:
		for _, k := range v.Keys() {
			p := k
			if at != "" {
				p = at + "." + k
			}
			if isLocal(k) {
				return p
			}
			if p := outward(v.Value(k), p, isLocal); p != "" {
				return p
			}
		}
	}
	return ""
}
