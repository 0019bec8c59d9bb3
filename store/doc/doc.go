// Package doc holds JSON documents as agent-env stores them: objects keep the order of their keys, numbers keep their
// text (so 1 and 1.0, and integers of any size, survive a rewrite), and strings may hold lone surrogates.
//
// A value is one of: nil, bool, Number, string, []any, *Object. Strings with lone surrogates are kept in the WTF-8 form
// (the three-byte encoding of the surrogate) and are written as \udXXX again.
//
// Values are treated as immutable once they are shared: writers copy the path they change (Object.Clone, slices.Clone) and
// readers may then compare by identity first. Nothing here is safe for concurrent mutation; concurrent reads are safe.
package doc

import (
	"math"
	"math/big"
	"sort"
	"strconv"
	"strings"
)

// Number is the text of a JSON number, such as "1", "1.0" or "1e9". NaN, Infinity and -Infinity are accepted by Parse,
// since old documents hold them; Marshal refuses them.
type Number string

// Int returns n as a Number.
func Int[T ~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint8 | ~uint16 | ~uint32](n T) Number {
	return Number(strconv.FormatInt(int64(n), 10))
}

// Float returns f as a Number in the shortest text that reads back as f, always with a fraction or exponent
// (1 gives "1.0", 1e21 gives "1e+21").
func Float(f float64) Number {
	switch {
	case math.IsNaN(f):
		return "NaN"
	case math.IsInf(f, 1):
		return "Infinity"
	case math.IsInf(f, -1):
		return "-Infinity"
	}
	a := math.Abs(f)
	if a != 0 && (a < 1e-4 || a >= 1e16) {
		s := strconv.FormatFloat(f, 'e', -1, 64)
		return Number(s)
	}
	s := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.ContainsAny(s, ".") {
		s += ".0"
	}
	return Number(s)
}

// IsInt reports whether n is written as an integer.
func (n Number) IsInt() bool {
	return n != "" && !strings.ContainsAny(string(n), ".eEN") && n != "Infinity" && n != "-Infinity"
}

// Int64 returns n as an int64, and whether it is written as an integer that fits.
func (n Number) Int64() (int64, bool) {
	i, err := strconv.ParseInt(string(n), 10, 64)
	return i, err == nil
}

// Float64 returns n as the nearest float64 (infinite or NaN for those words).
func (n Number) Float64() float64 {
	switch n {
	case "NaN":
		return math.NaN()
	case "Infinity":
		return math.Inf(1)
	case "-Infinity":
		return math.Inf(-1)
	}
	f, _ := strconv.ParseFloat(string(n), 64)
	return f
}

// Finite reports whether n is neither NaN nor infinite, also after conversion to a float64.
func (n Number) Finite() bool {
	f := n.Float64()
	return !math.IsNaN(f) && !math.IsInf(f, 0)
}

// rat returns n exactly. A number whose exponent would take more memory than it is worth is left to float64.
func (n Number) rat() (*big.Rat, bool) {
	if len(n) > 400 || !n.Finite() {
		return nil, false
	}
	if i := strings.IndexAny(string(n), "eE"); i >= 0 {
		if e, err := strconv.Atoi(string(n[i+1:])); err != nil || e > 400 || e < -400 {
			return nil, false
		}
	}
	return new(big.Rat).SetString(string(n))
}

// Object is a JSON object that keeps the order in which its keys were first set. The zero value is an empty object.
type Object struct {
	keys []string
	vals []any          // of the key in the same place
	at   map[string]int // place of each key; nil while there are few
}

// few is up to how many keys an object looks through them: most objects have fewer, and a map of their own would cost more.
const few = 8

// place returns where a key is, -1 when it is absent.
func (o *Object) place(key string) int {
	if o.at != nil {
		if i, ok := o.at[key]; ok {
			return i
		}
		return -1
	}
	for i, k := range o.keys {
		if k == key {
			return i
		}
	}
	return -1
}

// index notes the places of many keys.
func (o *Object) index() {
	o.at = nil
	if len(o.keys) > few {
		o.at = make(map[string]int, len(o.keys)+1)
		for i, k := range o.keys {
			o.at[k] = i
		}
	}
}

// Of returns an object of alternating keys and values: Of("id", "x", "version", Int(1)). It panics on an odd count or a
// key that is no string, since that is a mistake in the program.
func Of(kv ...any) *Object {
	o := &Object{}
	for i := 0; i < len(kv); i += 2 {
		o.Set(kv[i].(string), kv[i+1])
	}
	return o
}

// Len returns the number of keys; 0 for a nil object.
func (o *Object) Len() int {
	if o == nil {
		return 0
	}
	return len(o.keys)
}

// Keys returns the keys in order. The caller must not change the slice.
func (o *Object) Keys() []string {
	if o == nil {
		return nil
	}
	return o.keys
}

// Get returns the value under key and whether it is there (a null is there).
func (o *Object) Get(key string) (any, bool) {
	if o == nil {
		return nil, false
	}
	i := o.place(key)
	if i < 0 {
		return nil, false
	}
	return o.vals[i], true
}

// Value returns the value under key, nil when it is absent.
func (o *Object) Value(key string) any { v, _ := o.Get(key); return v }

// Str returns the string under key, "" when it is absent or of another type.
func (o *Object) Str(key string) string { s, _ := o.Value(key).(string); return s }

// Int returns the integer under key, and whether there is one (1.0 counts as 1; booleans and strings do not count).
func (o *Object) Int(key string) (int64, bool) {
	n, ok := o.Value(key).(Number)
	if !ok {
		return 0, false
	}
	if i, ok := n.Int64(); ok {
		return i, true
	}
	f := n.Float64()
	if f == math.Trunc(f) && math.Abs(f) < 1<<53 {
		return int64(f), true
	}
	return 0, false
}

// Bool returns the boolean under key, false when it is absent or of another type.
func (o *Object) Bool(key string) bool { b, _ := o.Value(key).(bool); return b }

// Obj returns the object under key, nil when it is absent or of another type. A nil *Object may be read like an empty one.
func (o *Object) Obj(key string) *Object { v, _ := o.Value(key).(*Object); return v }

// Arr returns the array under key, nil when it is absent or of another type.
func (o *Object) Arr(key string) []any { v, _ := o.Value(key).([]any); return v }

// Set puts a value under key, at the end when the key is new. It returns o.
func (o *Object) Set(key string, v any) *Object {
	if i := o.place(key); i >= 0 {
		o.vals[i] = v
		return o
	}
	if o.keys == nil {
		o.keys, o.vals = make([]string, 0, few/2), make([]any, 0, few/2)
	}
	o.keys, o.vals = append(o.keys, key), append(o.vals, v)
	switch n := len(o.keys); {
	case o.at != nil:
		o.at[key] = n - 1
	case n > few:
		o.index()
	}
	return o
}

// Delete removes key; an absent key is a no-op.
func (o *Object) Delete(key string) {
	if o == nil {
		return
	}
	if i := o.place(key); i >= 0 {
		o.keys = append(o.keys[:i:i], o.keys[i+1:]...)
		o.vals = append(o.vals[:i:i], o.vals[i+1:]...)
		o.index()
	}
}

// Clone returns a copy whose keys can be changed without changing o; the values are shared.
func (o *Object) Clone() *Object {
	c := &Object{}
	if n := o.Len(); n > 0 {
		c.keys, c.vals = append(make([]string, 0, n+1), o.keys...), append(make([]any, 0, n+1), o.vals...)
		c.index()
	}
	return c
}

// DeepClone returns a copy of v that shares nothing mutable with it.
func DeepClone(v any) any {
	switch v := v.(type) {
	case *Object:
		if v == nil {
			return v
		}
		c := v.Clone()
		for i, x := range c.vals {
			c.vals[i] = DeepClone(x)
		}
		return c
	case []any:
		c := make([]any, len(v))
		for i, x := range v {
			c[i] = DeepClone(x)
		}
		return c
	}
	return v
}

// Same reports whether a and b are the identical value in memory (or equal scalars): a cheap test that is true for
// everything two snapshots share, and may be false for equal values.
func Same(a, b any) bool {
	switch x := a.(type) {
	case *Object:
		y, ok := b.(*Object)
		return ok && x == y
	case []any:
		y, ok := b.([]any)
		return ok && len(x) == len(y) && (len(x) == 0 || &x[0] == &y[0])
	case nil:
		return b == nil
	}
	switch b.(type) {
	case *Object, []any:
		return false
	}
	return a == b
}

// Equal reports whether a and b are the same JSON value. Objects ignore key order, arrays are ordered, numbers compare by
// value (1 equals 1.0), booleans equal only booleans.
func Equal(a, b any) bool {
	if Same(a, b) {
		return true
	}
	switch x := a.(type) {
	case *Object:
		y, ok := b.(*Object)
		if !ok || x.Len() != y.Len() {
			return false
		}
		for i, k := range x.Keys() {
			v, ok := y.Get(k)
			if !ok || !Equal(x.vals[i], v) {
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
			if !Equal(x[i], y[i]) {
				return false
			}
		}
		return true
	case Number:
		y, ok := b.(Number)
		return ok && numEqual(x, y)
	}
	return false
}

func numEqual(x, y Number) bool {
	if x == y {
		return x != "NaN"
	}
	p, ok1 := x.rat()
	q, ok2 := y.rat()
	if ok1 && ok2 {
		return p.Cmp(q) == 0
	}
	return x.Float64() == y.Float64()
}

// Compare orders two numbers by value: -1, 0 or 1.
func (n Number) Compare(m Number) int {
	p, ok1 := n.rat()
	q, ok2 := m.rat()
	if ok1 && ok2 {
		return p.Cmp(q)
	}
	f, g := n.Float64(), m.Float64()
	switch {
	case f < g:
		return -1
	case f > g:
		return 1
	}
	return 0
}

// Canonical returns a text that is the same for equal values and different for others: keys sorted, no white space,
// integers and floats of one value written alike. It is the key to hash or compare by.
func Canonical(v any) string {
	var b strings.Builder
	canonical(&b, v)
	return b.String()
}

func canonical(b *strings.Builder, v any) {
	switch v := v.(type) {
	case *Object:
		keys := append([]string(nil), v.Keys()...)
		sort.Strings(keys)
		b.WriteByte('{')
		for i, k := range keys {
			if i > 0 {
				b.WriteByte(',')
			}
			b.Write(appendString(nil, k))
			b.WriteByte(':')
			canonical(b, v.Value(k))
		}
		b.WriteByte('}')
	case []any:
		b.WriteByte('[')
		for i, x := range v {
			if i > 0 {
				b.WriteByte(',')
			}
			canonical(b, x)
		}
		b.WriteByte(']')
	case Number:
		if i, ok := v.Int64(); ok {
			b.WriteString(strconv.FormatInt(i, 10))
		} else if r, ok := v.rat(); ok {
			if r.IsInt() {
				b.WriteString(r.Num().String())
			} else {
				b.WriteString(string(Float(v.Float64())))
			}
		} else {
			b.WriteString(string(v))
		}
	default:
		out, _ := appendValue(nil, v, false)
		b.Write(out)
	}
}
