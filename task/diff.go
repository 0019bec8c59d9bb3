package task

import (
	"slices"

	"agentenv/store/doc"
)

type changeKind int

const (
	changeSet    changeKind = iota // the value at a path, whole
	changeUnset                    // a path gone
	changeAdd                      // items at the end of a list
	changeList                     // a list reordered, edited or cut
	changePut                      // a record of a typed list edited in place
	changeRemove                   // a record of a typed list gone
	changeSecret                   // a hidden value set, or gone
)

// change is one difference between the snapshot a step started from and the state it left, before it is known what others
// committed meanwhile. Values and items are free of secrets; those are in hidden.
type change struct {
	kind   changeKind
	path   []string // below the context
	value  any
	items  []any // changeAdd; changeList: the list after
	before []any // changeList
	id     string
	hidden *secrets
	gone   bool // changeSecret
}

// differ collects changes. Parts that both states share are passed over by identity.
type differ struct{ changes []change }

// diff returns what turns pre into post; its cost is that of what changed, not of the context.
func diff(pre, post *doc.Object) []change {
	var d differ
	for _, k := range contextScalars {
		a, b := pre.Value(k), post.Value(k)
		switch {
		case doc.Same(a, b):
		case b == nil:
			d.add(change{kind: changeUnset, path: []string{k}})
		default:
			d.add(change{kind: changeSet, path: []string{k}, value: b})
		}
	}
	for _, k := range typedLists {
		d.typed(k, pre.Arr(k), post.Arr(k))
	}
	d.maps([]string{"metadata"}, pre.Obj("metadata"), post.Obj("metadata"))
	return d.changes
}

func (d *differ) add(c change) { d.changes = append(d.changes, c) }

func below(path []string, key string) []string {
	return append(path[:len(path):len(path)], key)
}

func (d *differ) maps(path []string, pre, post *doc.Object) {
	if pre == post {
		return
	}
	for _, k := range pre.Keys() {
		if _, stays := post.Get(k); stays {
			continue
		}
		if hides(k, pre.Value(k)) {
			d.add(change{kind: changeSecret, path: below(path, k), gone: true})
		} else {
			d.add(change{kind: changeUnset, path: below(path, k)})
		}
	}
	for _, k := range post.Keys() {
		a, had := pre.Get(k)
		if b := post.Value(k); !had || !doc.Same(a, b) {
			d.key(below(path, k), a, b, had)
		}
	}
}

// key compares the values under one key of two maps.
func (d *differ) key(path []string, a, b any, had bool) {
	k := path[len(path)-1]
	wasHidden := had && hides(k, a)
	if hides(k, b) {
		if had && !wasHidden {
			d.add(change{kind: changeUnset, path: path})
		}
		d.add(change{kind: changeSecret, path: path, value: b})
		return
	}
	if wasHidden {
		d.add(change{kind: changeSecret, path: path, gone: true})
		had = false
	}
	if !had {
		d.fresh(path, b)
		return
	}
	am, aMap := a.(*doc.Object)
	bm, bMap := b.(*doc.Object)
	if aMap && bMap {
		d.maps(path, am, bm)
		return
	}
	al, aList := a.([]any)
	bl, bList := b.([]any)
	if aList && bList {
		d.lists(path, al, bl)
		return
	}
	clean, hidden := split(b)
	d.add(change{kind: changeSet, path: path, value: clean, hidden: hidden})
}

// fresh records a value where there was none. Maps are recorded key by key, so that two steps may fill one map at a time.
func (d *differ) fresh(path []string, v any) {
	switch v := v.(type) {
	case *doc.Object:
		shows := func(k string) bool { return !hides(k, v.Value(k)) }
		if !slices.ContainsFunc(v.Keys(), shows) {
			d.add(change{kind: changeSet, path: path, value: &doc.Object{}})
		}
		for _, k := range v.Keys() {
			if shows(k) {
				d.fresh(below(path, k), v.Value(k))
			} else {
				d.add(change{kind: changeSecret, path: below(path, k), value: v.Value(k)})
			}
		}
	case []any:
		if len(v) == 0 {
			d.add(change{kind: changeSet, path: path, value: v})
			return
		}
		items, hidden := splitList(v)
		kind := changeAdd
		if len(missing("", nil, items)) < len(items) {
			// A union would keep the first of equal elements only, and a result of [0, 0] is not [0].
			kind = changeList
		}
		d.add(change{kind: kind, path: path, items: items, hidden: hidden})
	default:
		d.add(change{kind: changeSet, path: path, value: v})
	}
}

func (d *differ) lists(path []string, a, b []any) {
	i := 0
	for i < len(a) && i < len(b) && identical(a[i], b[i]) {
		i++
	}
	if i == len(a) {
		if i < len(b) {
			items, hidden := splitList(b[i:])
			d.add(change{kind: changeAdd, path: path, items: items, hidden: hidden})
		}
		return
	}
	before, _ := splitList(a)
	after, hidden := splitList(b)
	d.add(change{kind: changeList, path: path, before: before, items: after, hidden: hidden})
}

// identical is equality that keeps the text of numbers apart, so that 1 becoming 1.0 is a change.
func identical(a, b any) bool {
	if doc.Same(a, b) {
		return true
	}
	switch x := a.(type) {
	case *doc.Object:
		y, ok := b.(*doc.Object)
		if !ok || x.Len() != y.Len() {
			return false
		}
		for _, k := range x.Keys() {
			if v, ok := y.Get(k); !ok || !identical(x.Value(k), v) {
				return false
			}
		}
		return true
	case []any:
		y, ok := b.([]any)
		if !ok || len(x) != len(y) {
			return false
		}
		for i := range x {
			if !identical(x[i], y[i]) {
				return false
			}
		}
		return true
	}
	return false
}

// typed compares one of the lists of records, whose elements have an identity of their own.
func (d *differ) typed(key string, a, b []any) {
	for len(a) > 0 && len(b) > 0 && doc.Same(a[0], b[0]) {
		a, b = a[1:], b[1:]
	}
	was := map[string]any{}
	for _, v := range a {
		was[recordID(key, v)] = v
	}
	path := []string{key}
	kept := map[string]bool{}
	var added []any
	for _, v := range b {
		id := recordID(key, v)
		old, there := was[id]
		kept[id] = true
		switch {
		case !there:
			added = append(added, v)
		case !identical(old, v):
			d.add(change{kind: changePut, path: path, id: id, value: v})
		}
	}
	for _, v := range a {
		if id := recordID(key, v); !kept[id] {
			d.add(change{kind: changeRemove, path: path, id: id})
		}
	}
	if len(added) > 0 {
		d.add(change{kind: changeAdd, path: path, items: added})
	}
}
