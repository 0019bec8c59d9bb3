package task

import (
	"slices"

	"agentenv/fault"
	"agentenv/store/doc"
)

// The context of a run is an immutable document tree: whoever changes it copies the maps on the path and shares the rest,
// so that two states can be compared by identity in the size of what changed.

var typedLists = []string{"deployed_envs", "deployed_agents", "deployed_sandboxes", "prompt_responses"}

var contextScalars = []string{"agent_model", "default_agent_model", "agent_artifact_id", "agent_harness", "instance_id"}

// NewContext returns an empty context: every field of the stored form, lists and metadata empty, the rest null.
func NewContext() *doc.Object {
	c := &doc.Object{}
	for _, k := range typedLists {
		c.Set(k, []any{})
	}
	c.Set("metadata", &doc.Object{})
	for _, k := range contextScalars {
		c.Set(k, nil)
	}
	return c
}

// initialContext returns the context that a run begins with, of which the caller may change the metadata; Invalid when the one that was given is no
// context.
func initialContext(o Options) (*doc.Object, error) {
	c := NewContext()
	for _, k := range o.Context.Keys() {
		v := o.Context.Value(k)
		switch {
		case v == nil:
			continue
		case k == "metadata":
			if _, ok := v.(*doc.Object); !ok {
				return nil, fault.New(fault.Invalid, "the context to begin with: metadata must be an object, not %s", doc.TypeName(v))
			}
		case slices.Contains(typedLists, k):
			if err := listOfObjects(v); err != nil {
				return nil, fault.At(err, "the context to begin with: %s", k)
			}
		}
		c.Set(k, v)
	}
	meta := c.Obj("metadata").Clone()
	for _, k := range o.Metadata.Keys() {
		meta.Set(k, o.Metadata.Value(k))
	}
	return c.Set("metadata", meta), nil
}

func listOfObjects(v any) error {
	list, ok := v.([]any)
	if !ok {
		return fault.New(fault.Invalid, "a list is needed, not %s", doc.TypeName(v))
	}
	for i, el := range list {
		if _, ok := el.(*doc.Object); !ok {
			return fault.New(fault.Invalid, "entry %d must be an object, not %s", i, doc.TypeName(el))
		}
	}
	return nil
}

// lookup returns the value at a path of keys.
func lookup(root *doc.Object, path []string) (any, bool) {
	var v any = root
	for _, k := range path {
		o, ok := v.(*doc.Object)
		if !ok {
			return nil, false
		}
		if v, ok = o.Get(k); !ok {
			return nil, false
		}
	}
	return v, true
}

// editor makes one new state out of another. A map is copied when it is first touched and changed in place afterwards, so
// that many changes in one map cost one copy. The result must not be edited again by the same editor once it is shared.
type editor struct {
	root  *doc.Object
	owned map[*doc.Object]bool
}

func edit(root *doc.Object) *editor { return &editor{root: root, owned: map[*doc.Object]bool{}} }

// own returns the map that holds the last key of the path, copied. With create, missing maps are made and a value that is
// no map gives way to one; without, it returns nil when the path does not lead there.
func (e *editor) own(path []string, create bool) *doc.Object {
	if !create {
		if v, _ := lookup(e.root, path[:len(path)-1]); !isKind(v, ObjectKind) {
			return nil
		}
	}
	e.root = e.mine(e.root)
	at := e.root
	for _, k := range path[:len(path)-1] {
		child, _ := at.Value(k).(*doc.Object)
		child = e.mine(child)
		at.Set(k, child)
		at = child
	}
	return at
}

func (e *editor) mine(o *doc.Object) *doc.Object {
	if o != nil && e.owned[o] {
		return o
	}
	c := o.Clone()
	e.owned[c] = true
	return c
}

func (e *editor) set(path []string, v any) { e.own(path, true).Set(path[len(path)-1], v) }

func (e *editor) unset(path []string) {
	if _, there := lookup(e.root, path); !there {
		return
	}
	if at := e.own(path, false); at != nil {
		at.Delete(path[len(path)-1])
	}
}
