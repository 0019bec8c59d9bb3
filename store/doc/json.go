package doc

import (
	"encoding/json"
	"fmt"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"

	"agentenv/fault"
)

// MaxDepth is how deeply values may be nested in text that Parse reads.
const MaxDepth = 1000

// Options change what Parse accepts.
type Options struct {
	Strict bool // refuse duplicate keys, NaN, Infinity, and numbers beyond a float64: for files that people write
}

// Parse reads one JSON value from text (a UTF-8 byte order mark is skipped). The error is of kind Invalid and gives line
// and column. Without Strict the last of duplicate keys wins, and NaN, Infinity and -Infinity are numbers.
func Parse(text []byte, opts Options) (any, error) {
	if len(text) >= 3 && text[0] == 0xEF && text[1] == 0xBB && text[2] == 0xBF {
		text = text[3:]
	}
	p := &parser{in: text, opts: opts}
	v, err := p.value(0)
	if err != nil {
		return nil, err
	}
	p.space()
	if p.pos < len(p.in) {
		return nil, p.fail("text after the value")
	}
	return v, nil
}

// ParseObject is Parse for text that must hold an object.
func ParseObject(text []byte, opts Options) (*Object, error) {
	v, err := Parse(text, opts)
	if err != nil {
		return nil, err
	}
	o, ok := v.(*Object)
	if !ok {
		return nil, fault.New(fault.Invalid, "a JSON object is needed, not %s", TypeName(v))
	}
	return o, nil
}

// TypeName names v's JSON type for messages: null, boolean, number, string, array or object.
func TypeName(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case bool:
		return "boolean"
	case Number:
		return "number"
	case string:
		return "string"
	case []any:
		return "array"
	case *Object:
		return "object"
	}
	return fmt.Sprintf("%T", v)
}

type parser struct {
	in   []byte
	pos  int
	opts Options
}

func (p *parser) fail(what string) error {
	line, col := 1, 1
	for _, c := range p.in[:min(p.pos, len(p.in))] {
		if c == '\n' {
			line, col = line+1, 1
		} else {
			col++
		}
	}
	return fault.New(fault.Invalid, "malformed JSON at line %d column %d: %s", line, col, what)
}

func (p *parser) space() {
	for p.pos < len(p.in) {
		switch p.in[p.pos] {
		case ' ', '\t', '\r', '\n':
			p.pos++
		default:
			return
		}
	}
}

func (p *parser) word(w string) bool {
	if len(p.in)-p.pos >= len(w) && string(p.in[p.pos:p.pos+len(w)]) == w {
		p.pos += len(w)
		return true
	}
	return false
}

func (p *parser) value(depth int) (any, error) {
	if depth > MaxDepth {
		return nil, p.fail("nested too deeply")
	}
	p.space()
	if p.pos >= len(p.in) {
		return nil, p.fail("unexpected end")
	}
	switch c := p.in[p.pos]; {
	case c == '{':
		return p.object(depth)
	case c == '[':
		return p.array(depth)
	case c == '"':
		return p.str()
	case c == '-' || c >= '0' && c <= '9':
		return p.number()
	}
	switch {
	case p.word("true"):
		return true, nil
	case p.word("false"):
		return false, nil
	case p.word("null"):
		return nil, nil
	case !p.opts.Strict && p.word("NaN"):
		return Number("NaN"), nil
	case !p.opts.Strict && p.word("Infinity"):
		return Number("Infinity"), nil
	}
	return nil, p.fail("unexpected character")
}

func (p *parser) object(depth int) (any, error) {
	o := &Object{}
	p.pos++
	p.space()
	if p.pos < len(p.in) && p.in[p.pos] == '}' {
		p.pos++
		return o, nil
	}
	for {
		p.space()
		if p.pos >= len(p.in) || p.in[p.pos] != '"' {
			return nil, p.fail("a key in double quotes is needed")
		}
		k, err := p.str()
		if err != nil {
			return nil, err
		}
		if _, dup := o.Get(k); dup && p.opts.Strict {
			return nil, p.fail("duplicate key " + strconv.Quote(k))
		}
		p.space()
		if p.pos >= len(p.in) || p.in[p.pos] != ':' {
			return nil, p.fail("':' is needed after a key")
		}
		p.pos++
		v, err := p.value(depth + 1)
		if err != nil {
			return nil, err
		}
		o.Set(k, v)
		p.space()
		if p.pos < len(p.in) && p.in[p.pos] == ',' {
			p.pos++
			continue
		}
		if p.pos < len(p.in) && p.in[p.pos] == '}' {
			p.pos++
			return o, nil
		}
		return nil, p.fail("',' or '}' is needed")
	}
}

func (p *parser) array(depth int) (any, error) {
	a := []any{}
	p.pos++
	p.space()
	if p.pos < len(p.in) && p.in[p.pos] == ']' {
		p.pos++
		return a, nil
	}
	for {
		v, err := p.value(depth + 1)
		if err != nil {
			return nil, err
		}
		a = append(a, v)
		p.space()
		if p.pos < len(p.in) && p.in[p.pos] == ',' {
			p.pos++
			continue
		}
		if p.pos < len(p.in) && p.in[p.pos] == ']' {
			p.pos++
			return a, nil
		}
		return nil, p.fail("',' or ']' is needed")
	}
}

func (p *parser) number() (any, error) {
	start := p.pos
	if p.in[p.pos] == '-' {
		p.pos++
		if !p.opts.Strict && p.word("Infinity") {
			return Number("-Infinity"), nil
		}
	}
	digits := func() int {
		n := 0
		for p.pos < len(p.in) && p.in[p.pos] >= '0' && p.in[p.pos] <= '9' {
			p.pos++
			n++
		}
		return n
	}
	first := p.pos
	if digits() == 0 || (p.in[first] == '0' && p.pos-first > 1) {
		return nil, p.fail("malformed number")
	}
	if p.pos < len(p.in) && p.in[p.pos] == '.' {
		p.pos++
		if digits() == 0 {
			return nil, p.fail("malformed number")
		}
	}
	if p.pos < len(p.in) && (p.in[p.pos] == 'e' || p.in[p.pos] == 'E') {
		p.pos++
		if p.pos < len(p.in) && (p.in[p.pos] == '+' || p.in[p.pos] == '-') {
			p.pos++
		}
		if digits() == 0 {
			return nil, p.fail("malformed number")
		}
	}
	n := Number(p.in[start:p.pos])
	if p.opts.Strict && !n.IsInt() && !n.Finite() {
		return nil, p.fail("a number beyond the range of a double")
	}
	return n, nil
}

func (p *parser) str() (string, error) {
	p.pos++
	start := p.pos
	for p.pos < len(p.in) {
		c := p.in[p.pos]
		if c == '"' {
			s := p.in[start:p.pos]
			if !utf8.Valid(s) {
				return "", p.fail("text that is not UTF-8")
			}
			p.pos++
			return string(s), nil
		}
		if c == '\\' || c < 0x20 {
			break
		}
		p.pos++
	}
	if !utf8.Valid(p.in[start:p.pos]) {
		return "", p.fail("text that is not UTF-8")
	}
	buf := append([]byte(nil), p.in[start:p.pos]...)
	for p.pos < len(p.in) {
		c := p.in[p.pos]
		switch {
		case c == '"':
			p.pos++
			return string(buf), nil
		case c < 0x20:
			return "", p.fail("a control character in a string")
		case c != '\\':
			r, n := utf8.DecodeRune(p.in[p.pos:])
			if r == utf8.RuneError && n == 1 {
				return "", p.fail("text that is not UTF-8")
			}
			buf = append(buf, p.in[p.pos:p.pos+n]...)
			p.pos += n
		default:
			var err error
			if buf, err = p.escape(buf); err != nil {
				return "", err
			}
		}
	}
	return "", p.fail("a string without an end")
}

func (p *parser) hex4(at int) (rune, bool) {
	if at+4 > len(p.in) {
		return 0, false
	}
	n, err := strconv.ParseUint(string(p.in[at:at+4]), 16, 16)
	return rune(n), err == nil
}

func (p *parser) escape(buf []byte) ([]byte, error) {
	if p.pos+1 >= len(p.in) {
		return nil, p.fail("a string without an end")
	}
	c := p.in[p.pos+1]
	if i := indexByte(`"\/bfnrt`, c); i >= 0 {
		p.pos += 2
		return append(buf, "\"\\/\b\f\n\r\t"[i]), nil
	}
	if c != 'u' {
		return nil, p.fail("unknown escape")
	}
	r, ok := p.hex4(p.pos + 2)
	if !ok {
		return nil, p.fail("malformed \\u escape")
	}
	p.pos += 6
	if utf16.IsSurrogate(r) {
		if p.pos+1 < len(p.in) && p.in[p.pos] == '\\' && p.in[p.pos+1] == 'u' {
			if lo, ok := p.hex4(p.pos + 2); ok {
				if full := utf16.DecodeRune(r, lo); full != utf8.RuneError {
					p.pos += 6
					return utf8.AppendRune(buf, full), nil
				}
			}
		}
		return append(buf, 0xE0|byte(r>>12), 0x80|byte(r>>6)&0xBF, 0x80|byte(r)&0xBF), nil
	}
	return utf8.AppendRune(buf, r), nil
}

func indexByte(s string, c byte) int {
	for i := 0; i < len(s); i++ {
		if s[i] == c {
			return i
		}
	}
	return -1
}

// Marshal returns v as JSON text in the stored form: separators ", " and ": ", everything outside ASCII escaped, keys in
// their order. A NaN or an infinity is an error of kind Invalid, as is a value of a type that is no document.
func Marshal(v any) ([]byte, error) { return appendValue(nil, v, true) }

// MarshalIndent returns v as JSON text with two spaces of indentation a level, non-ASCII characters as they are.
func MarshalIndent(v any) ([]byte, error) { return appendIndent(nil, v, "") }

// Compact returns v as JSON text without white space, everything outside ASCII escaped, keys in their order.
func Compact(v any) ([]byte, error) { return appendValue(nil, v, false) }

func appendValue(dst []byte, v any, spaced bool) ([]byte, error) {
	comma, colon := ",", ":"
	if spaced {
		comma, colon = ", ", ": "
	}
	var err error
	switch v := v.(type) {
	case nil:
		return append(dst, "null"...), nil
	case bool:
		return strconv.AppendBool(dst, v), nil
	case string:
		return appendString(dst, v), nil
	case Raw:
		return append(dst, v...), nil
	case Number:
		if !v.IsInt() && (v == "NaN" || v == "Infinity" || v == "-Infinity" || v == "") {
			return nil, fault.New(fault.Invalid, "%q is no JSON number and cannot be stored", string(v))
		}
		return append(dst, v...), nil
	case []any:
		dst = append(dst, '[')
		for i, x := range v {
			if i > 0 {
				dst = append(dst, comma...)
			}
			if dst, err = appendValue(dst, x, spaced); err != nil {
				return nil, err
			}
		}
		return append(dst, ']'), nil
	case *Object:
		dst = append(dst, '{')
		for i, k := range v.Keys() {
			if i > 0 {
				dst = append(dst, comma...)
			}
			dst = append(appendString(dst, k), colon...)
			if dst, err = appendValue(dst, v.vals[i], spaced); err != nil {
				return nil, err
			}
		}
		return append(dst, '}'), nil
	}
	return nil, fault.New(fault.Invalid, "a value of Go type %T is no document value", v)
}

func appendIndent(dst []byte, v any, indent string) ([]byte, error) {
	inner := indent + "  "
	var err error
	switch v := v.(type) {
	case string:
		return appendQuoted(dst, v, false), nil
	case []any:
		if len(v) == 0 {
			return append(dst, "[]"...), nil
		}
		dst = append(dst, '[')
		for i, x := range v {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(append(dst, '\n'), inner...)
			if dst, err = appendIndent(dst, x, inner); err != nil {
				return nil, err
			}
		}
		return append(append(append(dst, '\n'), indent...), ']'), nil
	case *Object:
		if v.Len() == 0 {
			return append(dst, "{}"...), nil
		}
		dst = append(dst, '{')
		for i, k := range v.Keys() {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(append(dst, '\n'), inner...)
			dst = append(appendQuoted(dst, k, false), ": "...)
			if dst, err = appendIndent(dst, v.vals[i], inner); err != nil {
				return nil, err
			}
		}
		return append(append(append(dst, '\n'), indent...), '}'), nil
	}
	return appendValue(dst, v, true)
}

func appendString(dst []byte, s string) []byte { return appendQuoted(dst, s, true) }

// plain returns how many bytes at the start of s stand for themselves in a JSON string.
func plain(s string) int {
	for i := 0; i < len(s); i++ {
		if c := s[i]; c < 0x20 || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			return i
		}
	}
	return len(s)
}

func appendQuoted(dst []byte, s string, ascii bool) []byte {
	const hex = "0123456789abcdef"
	u := func(r rune) {
		dst = append(dst, '\\', 'u', hex[r>>12&15], hex[r>>8&15], hex[r>>4&15], hex[r&15])
	}
	dst = append(dst, '"')
	for i := 0; i < len(s); {
		if n := plain(s[i:]); n > 0 {
			dst = append(dst, s[i:i+n]...)
			i += n
			continue
		}
		c := s[i]
		switch {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
			i++
		case c == '\n':
			dst = append(dst, '\\', 'n')
			i++
		case c == '\r':
			dst = append(dst, '\\', 'r')
			i++
		case c == '\t':
			dst = append(dst, '\\', 't')
			i++
		case c == '\b':
			dst = append(dst, '\\', 'b')
			i++
		case c == '\f':
			dst = append(dst, '\\', 'f')
			i++
		case c < 0x20:
			u(rune(c))
			i++
		default:
			r, n := utf8.DecodeRuneInString(s[i:])
			if r == utf8.RuneError && n == 1 {
				if i+2 < len(s) && c == 0xED && s[i+1]&0xE0 == 0xA0 && s[i+2]&0xC0 == 0x80 {
					u(rune(c&15)<<12 | rune(s[i+1]&63)<<6 | rune(s[i+2]&63))
					i += 3
					continue
				}
				u(utf8.RuneError)
				i++
				continue
			}
			switch {
			case !ascii:
				dst = append(dst, s[i:i+n]...)
			case r >= 0x10000:
				hi, lo := utf16.EncodeRune(r)
				u(hi)
				u(lo)
			default:
				u(r)
			}
			i += n
		}
	}
	return append(dst, '"')
}

// From converts a Go value (anything encoding/json can write, and document values inside maps, slices and `any` fields)
// to a document value. Struct fields keep their order, map keys are sorted, float64 values become Floats.
func From(v any) (any, error) {
	switch v := v.(type) {
	case nil, bool, string, Number, *Object, []any:
		return v, nil
	case int:
		return Int(v), nil
	case int64:
		return Int(v), nil
	case float64:
		return Float(v), nil
	case []string:
		out := make([]any, len(v))
		for i, s := range v {
			out[i] = s
		}
		return out, nil
	}
	text, err := json.Marshal(v)
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "%T is no document value", v)
	}
	return Parse(text, Options{})
}

// MustFrom is From for values that are known to convert; it panics otherwise.
func MustFrom(v any) any {
	out, err := From(v)
	if err != nil {
		panic(err)
	}
	return out
}

// Into decodes a document value into a Go value by encoding/json's rules.
func Into(v any, dst any) error {
	text, err := Compact(v)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, dst); err != nil {
		return fault.Wrap(fault.Invalid, err, "unexpected shape")
	}
	return nil
}

// MarshalJSON lets an Object stand inside Go values that encoding/json writes.
func (o *Object) MarshalJSON() ([]byte, error) { return Compact(o) }

// UnmarshalJSON lets an Object stand inside Go values that encoding/json reads.
func (o *Object) UnmarshalJSON(text []byte) error {
	p, err := ParseObject(text, Options{})
	if err == nil {
		*o = *p
	}
	return err
}

// MarshalJSON writes the number's text.
func (n Number) MarshalJSON() ([]byte, error) { return appendValue(nil, n, false) }
