package task

import (
	"slices"
	"strings"

	"agentenv/fault"
	"agentenv/store/doc"
)

// delta is a step's effect on the context at the moment of its commit: what a journal row holds. Paths are below the
// context. It is applied in the order of its fields.
type delta struct {
	sets       []pathValue
	unsets     [][]string
	adds       []pathItems
	edits      []listEdit
	overwrites [][]string // paths whose value another step had changed meanwhile; for people
}

type pathValue struct {
	path  []string
	value any
}

type pathItems struct {
	path  []string
	items []any
}

type listEdit struct {
	path   []string
	id     string
	remove bool
	value  any
}

// apply returns the context after the delta; c is not changed.
func (d *delta) apply(c *doc.Object) *doc.Object {
	e := edit(c)
	for _, s := range d.sets {
		e.set(s.path, s.value)
	}
	for _, p := range d.unsets {
		e.unset(p)
	}
	for _, a := range d.adds {
		v, _ := lookup(e.root, a.path)
		list, _ := v.([]any)
		e.set(a.path, union(listName(a.path), list, a.items))
	}
	for i := 0; i < len(d.edits); {
		path := d.edits[i].path
		n := i + 1
		for n < len(d.edits) && slices.Equal(d.edits[n].path, path) {
			n++
		}
		v, _ := lookup(e.root, path)
		list, _ := v.([]any)
		e.set(path, editList(listName(path), list, d.edits[i:n]))
		i = n
	}
	return e.root
}

// editList applies edits to one list: a put replaces the first element with its id, or is appended when there is none; a
// remove takes out all.
func editList(name string, list []any, edits []listEdit) []any {
	ids := make([]string, len(list))
	at := make(map[string]int, len(list))
	for i, v := range list {
		ids[i] = recordID(name, v)
		if _, dup := at[ids[i]]; !dup {
			at[ids[i]] = i
		}
	}
	out := slices.Clone(list)
	for _, e := range edits {
		switch i, there := at[e.id]; {
		case e.remove:
			for j := range ids {
				if ids[j] == e.id {
					out[j] = removed{}
				}
			}
		case there:
			if out[i] == (removed{}) {
				continue
			}
			out[i] = e.value
		default:
			at[e.id] = len(out)
			ids = append(ids, e.id)
			out = append(out, e.value)
		}
	}
	return slices.DeleteFunc(out, func(v any) bool { return v == removed{} })
}

// removed marks an element that an edit took out.
type removed struct{}

// storable reports whether a key can stand in a dotted path.
func storable(key string) bool {
	return key != "" && !strings.Contains(key, ".") && !strings.HasPrefix(key, "$")
}

// encode returns the stored form of the delta. A path with a key that no dotted path can hold is stored as the whole map
// above it, as it is in after, the context the delta led to.
func (d *delta) encode(after *doc.Object) *doc.Object {
	coarse := map[string][]string{}
	note := func(path []string) {
		for i, k := range path {
			if !storable(k) {
				coarse[dotted(path[:i])] = path[:i]
				return
			}
		}
	}
	for _, s := range d.sets {
		note(s.path)
	}
	for _, p := range d.unsets {
		note(p)
	}
	for _, a := range d.adds {
		note(a.path)
	}
	for _, e := range d.edits {
		note(e.path)
	}
	covered := func(path []string) bool {
		for i := 1; i <= len(path) && len(coarse) > 0; i++ {
			if _, ok := coarse[dotted(path[:i])]; ok {
				return true
			}
		}
		return false
	}
	return d.encodeRest(after, coarse, covered)
}

func (d *delta) encodeRest(after *doc.Object, coarse map[string][]string, covered func([]string) bool) *doc.Object {
	sets, unsets, adds := []any{}, []any{}, []any{}
	for _, s := range d.sets {
		if !covered(s.path) {
			sets = append(sets, doc.Of("path", dotted(s.path), "value", s.value))
		}
	}
	for _, k := range sortedKeys(coarse) {
		if n := len(coarse[k]); n > 1 && covered(coarse[k][:n-1]) {
			continue
		}
		v, _ := lookup(after, coarse[k])
		sets = append(sets, doc.Of("path", k, "value", v))
	}
	var gone []string
	for _, p := range d.unsets {
		if !covered(p) {
			gone = append(gone, dotted(p))
		}
	}
	slices.Sort(gone)
	for _, p := range gone {
		unsets = append(unsets, p)
	}
	for _, a := range d.adds {
		if !covered(a.path) {
			adds = append(adds, doc.Of("path", dotted(a.path), "items", a.items))
		}
	}
	ops := doc.Of("sets", sets, "unsets", unsets, "add_to_sets", adds)
	var edits []any
	for _, e := range d.edits {
		if covered(e.path) {
			continue
		}
		if e.remove {
			edits = append(edits, doc.Of("path", dotted(e.path), "id", e.id, "op", "remove"))
		} else {
			edits = append(edits, doc.Of("path", dotted(e.path), "id", e.id, "op", "put", "value", e.value))
		}
	}
	if len(edits) > 0 {
		ops.Set("edits", edits)
	}
	var over []any
	for _, p := range d.overwrites {
		over = append(over, dotted(p))
	}
	if len(over) > 0 {
		ops.Set("overwrites", over)
	}
	return ops
}

func dotted(path []string) string {
	return strings.Join(append([]string{"context"}, path...), ".")
}

// decodeDelta reads the stored form; other keys of it are passed over.
func decodeDelta(ops *doc.Object) (*delta, error) {
	d := &delta{}
	for _, v := range ops.Arr("sets") {
		o, _ := v.(*doc.Object)
		p, err := splitPath(o.Value("path"))
		if err != nil {
			return nil, err
		}
		d.sets = append(d.sets, pathValue{p, o.Value("value")})
	}
	for _, v := range ops.Arr("unsets") {
		p, err := splitPath(v)
		if err != nil {
			return nil, err
		}
		d.unsets = append(d.unsets, p)
	}
	for _, v := range ops.Arr("add_to_sets") {
		o, _ := v.(*doc.Object)
		p, err := splitPath(o.Value("path"))
		if err != nil {
			return nil, err
		}
		d.adds = append(d.adds, pathItems{p, o.Arr("items")})
	}
	for _, v := range ops.Arr("edits") {
		o, _ := v.(*doc.Object)
		p, err := splitPath(o.Value("path"))
		if err != nil {
			return nil, err
		}
		d.edits = append(d.edits, listEdit{path: p, id: o.Str("id"), remove: o.Str("op") == "remove", value: o.Value("value")})
	}
	return d, nil
}

func splitPath(v any) ([]string, error) {
	s, _ := v.(string)
	rest, ok := strings.CutPrefix(s, "context.")
	if !ok || rest == "" {
		return nil, fault.New(fault.Invalid, "a journal row holds the path %s, which is not below the context", Brief(v))
	}
	return strings.Split(rest, "."), nil
}
