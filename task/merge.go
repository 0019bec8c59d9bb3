package task

import (
	"fmt"

	"agentenv/fault"
	"agentenv/store/doc"
)

// rebase turns the changes a step made to the state it started from (start) into its effect on the current context (now),
// which other steps may have moved on. Records whose name was taken meanwhile are left out of it and returned.
func rebase(changes []change, start, now *doc.Object) (*delta, []taken) {
	m := merger{start: start, now: now}
	for _, c := range changes {
		m.change(c)
	}
	return &m.out, m.taken
}

// taken is a record that could not be committed, since another step committed one of its name.
type taken struct {
	list   string
	record any
}

type merger struct {
	start, now *doc.Object
	out        delta
	taken      []taken
}

func (m *merger) change(c change) {
	was, had := lookup(m.start, c.path)
	is, has := lookup(m.now, c.path)
	moved := false // by another step, since this one started; for lists that only grow it does not matter
	if c.kind == changeSet || c.kind == changeUnset || c.kind == changeList {
		moved = had != has || !identical(was, is)
	}
	switch c.kind {
	case changeSet:
		if emptyHolder(c.value) && !had && has {
			return
		}
		if moved && !identical(is, c.value) {
			m.overwrite(c.path)
		}
		m.out.sets = append(m.out.sets, pathValue{c.path, c.value})
	case changeUnset:
		m.unset(c.path, was, is, has, moved)
	case changeAdd:
		m.addItems(c, is, has)
	case changeList:
		m.list(c, is, has, moved)
	case changePut:
		m.out.edits = append(m.out.edits, listEdit{path: c.path, id: c.id, value: c.value})
	case changeRemove:
		m.out.edits = append(m.out.edits, listEdit{path: c.path, id: c.id, remove: true})
	}
}

func (m *merger) overwrite(path []string) { m.out.overwrites = append(m.out.overwrites, path) }

func emptyHolder(v any) bool {
	switch v := v.(type) {
	case *doc.Object:
		return v.Len() == 0
	case []any:
		return len(v) == 0
	}
	return false
}

// unset takes a value away; of a map into which others wrote meanwhile, only what the step knew of.
func (m *merger) unset(path []string, was, is any, has, moved bool) {
	if !has {
		return
	}
	wasMap, ok1 := was.(*doc.Object)
	isMap, ok2 := is.(*doc.Object)
	if !moved || !ok1 || !ok2 {
		if moved {
			m.overwrite(path)
		}
		m.out.unsets = append(m.out.unsets, path)
		return
	}
	for _, k := range wasMap.Keys() {
		v, there := isMap.Get(k)
		m.unset(below(path, k), wasMap.Value(k), v, there, !identical(wasMap.Value(k), v))
	}
}

func (m *merger) addItems(c change, is any, has bool) {
	list, isList := is.([]any)
	if has && is != nil && !isList {
		m.overwrite(c.path)
		m.out.sets = append(m.out.sets, pathValue{c.path, union("", nil, c.items)})
		return
	}
	name := listName(c.path)
	items := c.items
	if recordKeys[name] != "" && name != "deployed_envs" {
		items = m.freeNames(name, list, items)
	}
	if items = missing(name, list, items); len(items) > 0 {
		m.out.adds = append(m.out.adds, pathItems{c.path, items})
	}
}

// freeNames returns the records whose name no record of the list has.
func (m *merger) freeNames(name string, list, items []any) []any {
	names := make(map[string]any, len(list))
	for _, v := range list {
		names[recordID(name, v)] = v
	}
	var free []any
	for _, v := range items {
		if other, is := names[recordID(name, v)]; is && !identical(other, v) {
			m.taken = append(m.taken, taken{name, v})
			continue
		}
		free = append(free, v)
	}
	return free
}

func nameTaken(t taken) error {
	what, id := "a sandbox", recordID(t.list, t.record)
	if t.list == "deployed_agents" {
		what = "an agent"
	}
	return fault.New(fault.Exists, "%s named %q was deployed by another step while this one ran; give them different names or an order (depends_on)", what, id)
}

// list commits a list that was edited, reordered or cut: whole when nobody else touched it, else element by element.
func (m *merger) list(c change, is any, has, moved bool) {
	list, isList := is.([]any)
	if !moved || !has || !isList {
		if moved {
			m.overwrite(c.path)
		}
		m.out.sets = append(m.out.sets, pathValue{c.path, c.items})
		return
	}
	before, after := map[string]bool{}, map[string]bool{}
	for _, v := range c.before {
		before[recordID("", v)] = true
	}
	for _, v := range c.items {
		after[recordID("", v)] = true
	}
	there := map[string]bool{}
	for _, v := range list {
		there[recordID("", v)] = true
	}
	placed := map[string]bool{}
	edit := func(e listEdit) { e.path = c.path; m.out.edits = append(m.out.edits, e) }
	for i, v := range c.before {
		id := recordID("", v)
		if after[id] || placed["-"+id] {
			continue
		}
		placed["-"+id] = true
		if i < len(c.items) && there[id] {
			if next := recordID("", c.items[i]); !before[next] && !there[next] && !placed[next] {
				placed[next] = true
				edit(listEdit{id: id, value: c.items[i]})
				continue
			}
		}
		edit(listEdit{id: id, remove: true})
	}
	for _, v := range c.items {
		if id := recordID("", v); !before[id] && !there[id] && !placed[id] {
			placed[id] = true
			edit(listEdit{id: id, value: v})
		}
	}
}

// hide brings the hidden values of a step's changes into the run's own, which stay in memory.
func (s *secrets) hide(changes []change) {
	for _, c := range changes {
		last := len(c.path) - 1
		switch c.kind {
		case changeSecret:
			if c.gone {
				s.drop(c.path)
			} else {
				s.at(c.path[:last]).setLeaf(c.path[last], c.value)
			}
		case changeUnset:
			s.drop(c.path)
		case changeSet, changeList:
			s.drop(c.path)
			if !c.hidden.empty() {
				s.at(c.path[:last]).setSub(c.path[last], c.hidden)
			}
		case changeAdd:
			if !c.hidden.empty() {
				node := s.at(c.path)
				for k, item := range c.hidden.items {
					node.setItem(k, item)
				}
			}
		}
	}
}

// storableChanges returns the changes without those that hold what no document can; the error, of kind Invalid, names the
// first of them.
func storableChanges(changes []change) (kept []change, err error) {
	for _, c := range changes {
		bad := unstorable(c.value)
		if bad == "" {
			bad = unstorable(c.items)
		}
		if bad == "" || c.kind == changeSecret {
			kept = append(kept, c)
			continue
		}
		if err == nil {
			err = fault.New(fault.Invalid, "%s holds %s, which cannot be stored", dotted(c.path), bad)
		}
	}
	return kept, err
}

// Storable refuses, as Invalid, a context that holds what no document can, such as a number beyond every limit; it names the first of it.
func Storable(context *doc.Object) error {
	_, err := storableChanges(diff(NewContext(), context))
	return err
}

// unstorable names what in a value is no document, "" when nothing is.
func unstorable(v any) string {
	switch v := v.(type) {
	case nil, bool, string:
	case doc.Number:
		if !v.Finite() {
			return "the number " + string(v)
		}
	case []any:
		for _, x := range v {
			if bad := unstorable(x); bad != "" {
				return bad
			}
		}
	case *doc.Object:
		for _, k := range v.Keys() {
			if bad := unstorable(v.Value(k)); bad != "" {
				return bad
			}
		}
	default:
		return fmt.Sprintf("a value of type %T", v)
	}
	return ""
}
