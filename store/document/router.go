package document

import (
	"context"
	"slices"
	"strings"
	"sync"

	"agentenv/fault"
	"agentenv/store"
	"agentenv/store/doc"
)

// Router is a Store over two: the configured one and the private local one of the @local namespace. Entities live in the
// store of their id's namespace; records of runs live in the local one when the run, or an id they carry, is @local. Reads
// that may concern both merge them, the reader's own namespace first. A local run (store.WithRunScope) never writes to the
// configured store, and no entity there may refer to an @local id.
type Router struct {
	configured, local Store
	only              *side // every call goes to this one
	entities          *entitySet
}

// side is one of the two stores, or a transaction of it.
type side struct {
	Store
	local bool
}

type entitySet struct {
	mu    sync.RWMutex
	names map[string]bool
}

func (e *entitySet) add(coll string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.names[coll] = true
}

func (e *entitySet) has(coll string) bool {
	e.mu.RLock()
	defer e.mu.RUnlock()
	return e.names[coll]
}

var _ Store = (*Router)(nil)

// NewRouter returns a router over two different stores. The local store must create nothing on reads, and take @local ids
// only. The router closes both.
func NewRouter(configured, local Store) *Router {
	e := &entitySet{names: map[string]bool{}}
	for _, c := range entityCollections {
		e.add(c)
	}
	return &Router{configured: configured, local: local, entities: e}
}

// Placed returns the store in which the records of the entity ownerID live, under the run scope of ctx: a view of one side
// of a Router with its fences, s itself when s is none. Use it for calls that belong together, such as a Transact.
func Placed(ctx context.Context, s Store, ownerID string) Store {
	r, ok := s.(*Router)
	if !ok || r.only != nil {
		return s
	}
	if store.InLocalRun(ctx) || store.IsLocal(ownerID) {
		return r.on(side{r.local, true})
	}
	return r.on(side{r.configured, false})
}

func (r *Router) on(s side) *Router {
	c := *r
	c.only = &s
	return &c
}

// sides returns both stores, the reader's own namespace first.
func (r *Router) sides(ctx context.Context) []side {
	if r.only != nil {
		return []side{*r.only}
	}
	out := []side{{r.configured, false}, {r.local, true}}
	if store.InLocalRun(ctx) {
		slices.Reverse(out)
	}
	return out
}

func (r *Router) side(local bool) side {
	switch {
	case r.only != nil:
		return *r.only
	case local:
		return side{r.local, true}
	}
	return side{r.configured, false}
}

// readers returns the stores that can hold matches of f.
func (r *Router) readers(ctx context.Context, coll string, f Filter) []side {
	if r.only == nil && r.entities.has(coll) {
		if local, bare := pinnedIDs(f); local != bare {
			return []side{r.side(local)}
		}
	}
	return r.sides(ctx)
}

// pinnedIDs says which namespaces the ids that f pins are in; neither when it pins none.
func pinnedIDs(f Filter) (local, bare bool) {
	note := func(v any) {
		if s, ok := v.(string); ok {
			local, bare = local || store.IsLocal(s), bare || !store.IsLocal(s)
		} else {
			local, bare = true, true
		}
	}
	for _, p := range f {
		switch {
		case p.Path != "id":
		case p.Op == Eq:
			note(p.Value)
		case p.Op == In:
			list, _ := p.Value.([]any)
			for _, v := range list {
				note(v)
			}
		}
	}
	return local, bare
}

// ownerFields are the fields whose @local id makes a record local.
var ownerFields = []string{"id", "instance_id", "task_id", "task_instance_id", "env_id", "agent_id"}

func ownedLocally(d *doc.Object) bool {
	return slices.ContainsFunc(ownerFields, func(k string) bool { return store.IsLocal(d.Str(k)) })
}

// target returns the store for a new document, after the checks of a write to it.
func (r *Router) target(ctx context.Context, coll string, d *doc.Object) (side, error) {
	var local bool
	if r.entities.has(coll) {
		id := d.Str("id")
		if err := r.CheckID(id); err != nil {
			return side{}, err
		}
		local = store.IsLocal(id)
	} else {
		local = store.InLocalRun(ctx) || ownedLocally(d)
	}
	s := r.side(local)
	if s.local != local && r.entities.has(coll) {
		return side{}, fault.New(fault.Invalid, "%s: the id %q belongs to the other namespace than what is written with it", coll, d.Str("id"))
	}
	return s, r.mayWrite(ctx, coll, s, d)
}

// mayWrite checks the fence of a local run, and that no configured entity refers into the private namespace.
func (r *Router) mayWrite(ctx context.Context, coll string, s side, values ...any) error {
	if s.local {
		return nil
	}
	if store.InLocalRun(ctx) {
		return fenced(ctx, coll)
	}
	if !r.entities.has(coll) {
		return nil
	}
	for _, v := range values {
		if p := outward(v, "", store.IsLocal); p != "" {
			return fault.New(fault.Invalid, "%s: %s holds an id of the private @local namespace, which others who read this store cannot resolve; what refers to it must have an id under @local/ as well", coll, p)
		}
	}
	return nil
}

func fenced(ctx context.Context, coll string) error {
	return fault.New(fault.Denied, "%s: the run of %q is local and writes only to the local store", coll, store.RunScope(ctx))
}

// CheckID refuses ids that the store of their namespace cannot take, and bare ids that hold an @local one.
func (r *Router) CheckID(id string) error {
	switch {
	case store.IsLocal(id):
		return store.CheckLocalID(id)
	case strings.Contains(id, store.LocalPrefix):
		return fault.New(fault.Invalid, "id %q holds %q; an id of the local namespace starts with it", id, store.LocalPrefix)
	case r.only != nil:
		return r.only.CheckID(id)
	}
	return r.configured.CheckID(id)
}

// Insert stores a new document in the store of its namespace.
func (r *Router) Insert(ctx context.Context, coll string, d *doc.Object) error {
	s, err := r.target(ctx, coll, d)
	if err != nil {
		return err
	}
	return s.Insert(ctx, coll, d)
}

// Update changes the first match: in the store where it is, or, with upsert, in the store a new document would go to.
func (r *Router) Update(ctx context.Context, coll string, f Filter, u Update, upsert bool) (int, error) {
	n := 0
	err := r.change(ctx, coll, f, upsert, u.values(), func(s side) (bool, error) {
		var err error
		n, err = s.Update(ctx, coll, f, u, upsert)
		return n > 0, err
	})
	return n, err
}

// UpdateAndGet is Update that returns the document.
func (r *Router) UpdateAndGet(ctx context.Context, coll string, f Filter, u Update, upsert, before bool) (*doc.Object, error) {
	var d *doc.Object
	err := r.change(ctx, coll, f, upsert, u.values(), func(s side) (bool, error) {
		var err error
		d, err = s.UpdateAndGet(ctx, coll, f, u, upsert, before)
		return d != nil, err
	})
	return d, err
}

// Replace puts d in place of the first match.
func (r *Router) Replace(ctx context.Context, coll string, f Filter, d *doc.Object, upsert bool) (int, error) {
	n := 0
	err := r.change(ctx, coll, f, upsert, []any{d}, func(s side) (bool, error) {
		var err error
		n, err = s.Replace(ctx, coll, f, d, upsert)
		return n > 0, err
	})
	return n, err
}

// Delete removes the first match.
func (r *Router) Delete(ctx context.Context, coll string, f Filter) (int, error) {
	n := 0
	err := r.change(ctx, coll, f, false, nil, func(s side) (bool, error) {
		var err error
		n, err = s.Delete(ctx, coll, f)
		return n > 0, err
	})
	return n, err
}

// values returns what an update stores, for the check of outward references.
func (u Update) values() []any { return []any{u.Set, u.AddToSet, u.Push} }

// change tries a write on the stores that may hold the match, until one has it.
func (r *Router) change(ctx context.Context, coll string, f Filter, upsert bool, values []any, try func(side) (bool, error)) error {
	if upsert {
		start, err := f.Synthesize()
		if err != nil {
			return err
		}
		for _, v := range values {
			o, _ := v.(*doc.Object)
			for _, k := range o.Keys() {
				if _, there := start.Get(k); !there {
					start.Set(k, o.Value(k))
				}
			}
		}
		s, err := r.target(ctx, coll, start)
		if err != nil {
			return err
		}
		_, err = try(s)
		return err
	}
	sides := r.readers(ctx, coll, f)
	if len(sides) == 2 && !sides[0].local {
		if start, err := f.Synthesize(); err == nil && ownedLocally(start) {
			slices.Reverse(sides)
		}
	}
	for _, s := range sides {
		if !s.local && store.InLocalRun(ctx) {
			d, err := s.FindOne(ctx, coll, f)
			if err != nil {
				return err
			}
			if d != nil {
				return fenced(ctx, coll)
			}
			continue
		}
		if err := r.mayWrite(ctx, coll, s, values...); err != nil {
			return err
		}
		if done, err := try(s); done || err != nil {
			return err
		}
	}
	return nil
}

// EnsureIndex declares the index in both stores; in a local run only in the local one.
func (r *Router) EnsureIndex(ctx context.Context, coll string, ix Index) error {
	for _, s := range r.sides(ctx) {
		if !s.local && store.InLocalRun(ctx) {
			continue
		}
		if err := s.EnsureIndex(ctx, coll, ix); err != nil {
			return err
		}
	}
	return nil
}

// Close closes both stores; on a view of one side it is a no-op.
func (r *Router) Close() error {
	if r.only != nil {
		return nil
	}
	err := r.configured.Close()
	if lerr := r.local.Close(); err == nil {
		err = lerr
	}
	return err
}
