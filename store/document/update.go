package document

import (
	"math/big"
	"slices"
	"sort"
	"strings"

	"agentenv/fault"
	"agentenv/store/doc"
)

// Paths returns every path the update touches, in the order its operators are applied.
func (u Update) Paths() []string {
	paths := slices.Clone(u.Set.Keys())
	paths = append(paths, u.Unset...)
	paths = append(paths, u.Inc.Keys()...)
	paths = append(paths, u.AddToSet.Keys()...)
	return append(paths, u.Push.Keys()...)
}

// Check returns an Invalid error when a path is empty, stands under two operators, or is an ancestor of another one, or
// when an operator's value has the wrong type.
func (u Update) Check() error {
	paths := u.Paths()
	sort.Slice(paths, func(i, j int) bool { return paths[i]+"." < paths[j]+"." })
	for i, p := range paths {
		if p == "" || strings.HasPrefix(p, ".") || strings.HasSuffix(p, ".") || strings.Contains(p, "..") {
			return fault.New(fault.Invalid, "update path %q has an empty segment", p)
		}
		if i == 0 {
			continue
		}
		switch prev := paths[i-1]; {
		case prev == p:
			return fault.New(fault.Invalid, "update path %q is given twice", p)
		case strings.HasPrefix(p, prev+"."):
			return fault.New(fault.Invalid, "update paths %q and %q overlap", prev, p)
		}
	}
	for _, k := range u.Inc.Keys() {
		if _, ok := u.Inc.Value(k).(doc.Number); !ok {
			return fault.New(fault.Invalid, "update of %q: inc takes a number, not %s", k, doc.TypeName(u.Inc.Value(k)))
		}
	}
	for _, o := range []*doc.Object{u.AddToSet, u.Push} {
		for _, k := range o.Keys() {
			if _, ok := o.Value(k).([]any); !ok {
				return fault.New(fault.Invalid, "update of %q: a list of items is needed, not %s", k, doc.TypeName(o.Value(k)))
			}
		}
	}
	return nil
}

// Apply returns d with the update applied; d itself and what it shares are not changed. The update must have passed Check.
// The error is Invalid: a path that leads into an array by a name or beyond its end, inc on what is no number.
func (u Update) Apply(d *doc.Object) (*doc.Object, error) {
	var v any = d
	change := func(path string, create bool, fn func(old any, there bool) (any, bool, error)) error {
		out, err := edit(v, strings.Split(path, "."), create, fn)
		if err != nil {
			return fault.At(err, "update of %q", path)
		}
		v = out
		return nil
	}
	for _, k := range u.Set.Keys() {
		if err := change(k, true, func(any, bool) (any, bool, error) { return u.Set.Value(k), true, nil }); err != nil {
			return nil, err
		}
	}
	for _, k := range u.Unset {
		if err := change(k, false, func(any, bool) (any, bool, error) { return nil, false, nil }); err != nil {
			return nil, err
		}
	}
	for _, k := range u.Inc.Keys() {
		delta, _ := u.Inc.Value(k).(doc.Number)
		if err := change(k, true, func(old any, _ bool) (any, bool, error) {
			n, err := add(old, delta)
			return n, true, err
		}); err != nil {
			return nil, err
		}
	}
	for _, k := range u.AddToSet.Keys() {
		if err := change(k, true, func(old any, _ bool) (any, bool, error) {
			list, _ := old.([]any)
			list = slices.Clone(list)
			for _, item := range u.AddToSet.Arr(k) {
				if !slices.ContainsFunc(list, func(x any) bool { return equal(x, item) }) {
					list = append(list, item)
				}
			}
			return orEmpty(list), true, nil
		}); err != nil {
			return nil, err
		}
	}
	for _, k := range u.Push.Keys() {
		if err := change(k, true, func(old any, _ bool) (any, bool, error) {
			list, _ := old.([]any)
			return orEmpty(append(slices.Clone(list), u.Push.Arr(k)...)), true, nil
		}); err != nil {
			return nil, err
		}
	}
	return v.(*doc.Object), nil
}

func orEmpty(list []any) []any {
	if list == nil {
		return []any{}
	}
	return list
}

// edit returns v with fn's result at the path, copying what lies on it. With create, missing and scalar steps become
// objects; without it a missing step changes nothing. keep false from fn removes (an array element becomes null).
func edit(v any, segs []string, create bool, fn func(old any, there bool) (nv any, keep bool, err error)) (any, error) {
	key, rest := segs[0], segs[1:]
	if list, ok := v.([]any); ok {
		i, ok := index(key, len(list))
		if !ok {
			if !create {
				return v, nil
			}
			return nil, fault.New(fault.Invalid, "%q is no position in an array of %d", key, len(list))
		}
		nv, keep, err := editChild(list[i], true, rest, create, fn)
		if err != nil {
			return nil, err
		}
		if !keep {
			nv = nil
		}
		list = slices.Clone(list)
		list[i] = nv
		return list, nil
	}
	obj, ok := v.(*doc.Object)
	if !ok || obj == nil {
		if !create {
			return v, nil
		}
		obj = &doc.Object{}
	}
	child, there := obj.Get(key)
	if !there && !create {
		return v, nil
	}
	nv, keep, err := editChild(child, there, rest, create, fn)
	if err != nil {
		return nil, err
	}
	obj = obj.Clone()
	if keep {
		obj.Set(key, nv)
	} else {
		obj.Delete(key)
	}
	return obj, nil
}

func editChild(child any, there bool, rest []string, create bool, fn func(any, bool) (any, bool, error)) (any, bool, error) {
	if len(rest) == 0 {
		return fn(child, there)
	}
	nv, err := edit(child, rest, create, fn)
	return nv, true, err
}

func add(old any, delta doc.Number) (doc.Number, error) {
	if old == nil {
		old = doc.Number("0")
	}
	n, ok := number(old)
	if !ok {
		return "", fault.New(fault.Invalid, "inc needs a number, there is %s", doc.TypeName(old))
	}
	if n.IsInt() && delta.IsInt() {
		x, ok1 := new(big.Int).SetString(string(n), 10)
		y, ok2 := new(big.Int).SetString(string(delta), 10)
		if ok1 && ok2 {
			return doc.Number(x.Add(x, y).String()), nil
		}
	}
	sum := doc.Float(n.Float64() + delta.Float64())
	if !sum.Finite() {
		return "", fault.New(fault.Invalid, "inc of %s by %s leaves the range of a double", n, delta)
	}
	return sum, nil
}

// Synthesize returns the document an upsert starts from when nothing matched: the filter's equalities, dotted paths nested.
func (f Filter) Synthesize() (*doc.Object, error) {
	set := &doc.Object{}
	for _, p := range f {
		if p.Op == Eq {
			set.Set(p.Path, p.Value)
		}
	}
	return Update{Set: set}.Apply(&doc.Object{})
}
