package bundle

import (
	"fmt"
	"strings"

	"agentenv/store/doc"
	"agentenv/task"
)

// position is one place in a step that holds the id of another entity.
type position struct {
	path    string // "artifacts[1].id"
	ref     task.Ref
	value   string
	version int64 // the pin beside it, 0 = none
	set     func(id string)
}

// references finds every place in a step document that the step type declares as a reference and that holds an id. The document must be
// the caller's own: set changes it in place.
func references(step *doc.Object, refs []task.Ref) []position {
	var out []position
	for _, r := range refs {
		if r.Walk != "" {
			walkObjects(step.Value(r.Walk), r.Walk, func(o *doc.Object, at string) { out = follow(out, o, r.Path, at+".", r) })
			continue
		}
		out = follow(out, step, r.Path, "", r)
	}
	return out
}

// follow descends along a dotted path from o and appends what it ends at.
func follow(out []position, o *doc.Object, path, at string, r task.Ref) []position {
	head, rest, more := strings.Cut(path, ".")
	name, list := strings.CutSuffix(head, "[]")
	v := o.Value(name)
	at += name
	if !list {
		switch {
		case more:
			if child, ok := v.(*doc.Object); ok {
				out = follow(out, child, rest, at+".", r)
			}
		case isText(v):
			var pin int64
			if r.VersionField != "" {
				pin, _ = o.Int(r.VersionField)
			}
			out = append(out, position{at, r, v.(string), pin, func(id string) { o.Set(name, id) }})
		}
		return out
	}
	items, _ := v.([]any)
	for i, x := range items {
		here := fmt.Sprintf("%s[%d]", at, i)
		switch {
		case more:
			if child, ok := x.(*doc.Object); ok {
				out = follow(out, child, rest, here+".", r)
			}
		case isText(x):
			out = append(out, position{here, r, x.(string), 0, func(id string) { items[i] = id }})
		}
	}
	return out
}

// walkObjects visits every object at any depth below v.
func walkObjects(v any, at string, visit func(o *doc.Object, at string)) {
	switch v := v.(type) {
	case *doc.Object:
		visit(v, at)
		for _, k := range v.Keys() {
			walkObjects(v.Value(k), at+"."+k, visit)
		}
	case []any:
		for i, x := range v {
			walkObjects(x, fmt.Sprintf("%s[%d]", at, i), visit)
		}
	}
}

// lineage answers which steps a step depends on, directly or not.
type lineage struct {
	deps [][]int
	memo map[int]map[int]bool
}

// edges reads depends_on of every step; absent means every earlier step. Names that are no step go to unknown.
func edges(steps []*doc.Object, unknown func(step int, name string)) *lineage {
	at := map[string]int{}
	for i, s := range steps {
		if _, dup := at[s.Str("id")]; !dup {
			at[s.Str("id")] = i
		}
	}
	l := &lineage{deps: make([][]int, len(steps)), memo: map[int]map[int]bool{}}
	for i, s := range steps {
		list, given := s.Value("depends_on").([]any)
		if !given {
			l.deps[i] = nil
			continue
		}
		l.deps[i] = []int{}
		for _, v := range list {
			name, ok := v.(string)
			if o, isObject := v.(*doc.Object); isObject {
				name, ok = o.Value("task_step_id").(string)
			}
			if !ok {
				continue // the step's own parsing says so
			}
			if j, known := at[name]; known {
				l.deps[i] = append(l.deps[i], j)
			} else {
				unknown(i, name)
			}
		}
	}
	return l
}

// after reports whether step i runs after step j because it depends on it.
func (l *lineage) after(i, j int) bool {
	known, ok := l.memo[i]
	if !ok {
		known = map[int]bool{}
		todo := []int{i}
		for len(todo) > 0 {
			k := todo[len(todo)-1]
			todo = todo[:len(todo)-1]
			next := l.deps[k]
			if next == nil {
				next = make([]int, k)
				for n := range next {
					next[n] = n
				}
			}
			for _, n := range next {
				if !known[n] {
					known[n] = true
					todo = append(todo, n)
				}
			}
		}
		l.memo[i] = known
	}
	return known[j]
}
