package document

import (
	"strings"

	"agentenv/fault"
	"agentenv/store/doc"
)

// Resolve returns every value that a dotted path reaches in d; none means the path is absent. On an array a segment of
// digits indexes it, any other one fans out over the elements that are objects holding that key.
func Resolve(d *doc.Object, path string) []any {
	if !strings.Contains(path, ".") {
		if v, ok := d.Get(path); ok {
			return []any{v}
		}
		return nil
	}
	return resolve(nil, d, strings.Split(path, "."))
}

func resolve(out []any, v any, segs []string) []any {
	if len(segs) == 0 {
		return append(out, v)
	}
	switch v := v.(type) {
	case *doc.Object:
		if x, ok := v.Get(segs[0]); ok {
			return resolve(out, x, segs[1:])
		}
	case []any:
		if isIndex(segs[0]) {
			if i, ok := index(segs[0], len(v)); ok {
				return resolve(out, v[i], segs[1:])
			}
			return out
		}
		for _, el := range v {
			if o, ok := el.(*doc.Object); ok {
				if x, ok := o.Get(segs[0]); ok {
					out = resolve(out, x, segs[1:])
				}
			}
		}
	}
	return out
}

func isIndex(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}

// index reads digits as a position below n.
func index(s string, n int) (int, bool) {
	if !isIndex(s) {
		return 0, false
	}
	i := 0
	for j := 0; j < len(s); j++ {
		if i = i*10 + int(s[j]-'0'); i >= n {
			return 0, false
		}
	}
	return i, true
}

// Check returns an Invalid error when a predicate's value does not fit its operator.
func (f Filter) Check() error {
	for _, p := range f {
		switch p.Op {
		case In:
			if _, ok := p.Value.([]any); !ok {
				return fault.New(fault.Invalid, "filter on %q: In takes a list, not %s", p.Path, doc.TypeName(p.Value))
			}
		case Exists:
			if _, ok := p.Value.(bool); !ok {
				return fault.New(fault.Invalid, "filter on %q: Exists takes a boolean, not %s", p.Path, doc.TypeName(p.Value))
			}
		}
	}
	return nil
}

// Match reports whether every predicate holds for d. The filter must have passed Check.
func (f Filter) Match(d *doc.Object) bool {
	for _, p := range f {
		if !p.match(Resolve(d, p.Path)) {
			return false
		}
	}
	return true
}

func (p Pred) match(values []any) bool {
	present := len(values) > 0
	switch p.Op {
	case Eq:
		return !present && p.Value == nil || holds(values, p.Value)
	case Ne:
		return present && !holds(values, p.Value)
	case Gte:
		return ordered(values, p.Value, func(c int) bool { return c >= 0 })
	case Lte:
		return ordered(values, p.Value, func(c int) bool { return c <= 0 })
	case In:
		for _, want := range p.Value.([]any) {
			if holds(values, want) {
				return true
			}
		}
		return false
	case Exists:
		return present == p.Value.(bool)
	case LteOrAbsent:
		return !present || anyNull(values) || ordered(values, p.Value, func(c int) bool { return c <= 0 })
	case AbsentOrNull:
		return !present || anyNull(values)
	}
	return false
}

func anyNull(values []any) bool {
	for _, v := range values {
		if v == nil {
			return true
		}
	}
	return false
}

// holds reports whether some value equals want or is an array with an element that does.
func holds(values []any, want any) bool {
	for _, v := range values {
		if equal(v, want) {
			return true
		}
		if a, ok := v.([]any); ok {
			for _, el := range a {
				if equal(el, want) {
					return true
				}
			}
		}
	}
	return false
}

func ordered(values []any, than any, ok func(int) bool) bool {
	for _, v := range values {
		if c, comparable := compareLike(v, than); comparable && ok(c) {
			return true
		}
	}
	return false
}

// number reads numbers, and booleans as 0 and 1: stored filters treat them alike.
func number(v any) (doc.Number, bool) {
	switch v := v.(type) {
	case doc.Number:
		return v, true
	case bool:
		if v {
			return "1", true
		}
		return "0", true
	}
	return "", false
}

// equal is JSON equality in which booleans equal the numbers 0 and 1, at every depth.
func equal(a, b any) bool {
	if x, ok := number(a); ok {
		y, ok := number(b)
		return ok && doc.Equal(x, y)
	}
	switch x := a.(type) {
	case []any:
		y, ok := b.([]any)
		if !ok || len(x) != len(y) {
			return false
		}
		for i := range x {
			if !equal(x[i], y[i]) {
				return false
			}
		}
		return true
	case *doc.Object:
		y, ok := b.(*doc.Object)
		if !ok || x.Len() != y.Len() {
			return false
		}
		for _, k := range x.Keys() {
			v, there := y.Get(k)
			if !there || !equal(x.Value(k), v) {
				return false
			}
		}
		return true
	}
	return doc.Equal(a, b)
}

// compareLike orders two values of like type; ok is false for types that do not compare.
func compareLike(a, b any) (c int, ok bool) {
	if x, isNum := number(a); isNum {
		y, isNum := number(b)
		if !isNum || x == "NaN" || y == "NaN" {
			return 0, false
		}
		return x.Compare(y), true
	}
	switch x := a.(type) {
	case string:
		y, ok := b.(string)
		return strings.Compare(x, y), ok
	case []any:
		y, ok := b.([]any)
		if !ok {
			return 0, false
		}
		for i := range min(len(x), len(y)) {
			if equal(x[i], y[i]) {
				continue
			}
			return compareLike(x[i], y[i])
		}
		return len(x) - len(y), true
	}
	return 0, false
}
