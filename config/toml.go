package config

import (
	"bytes"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"

	"agentenv/fault"
	"agentenv/store/doc"
)

const maxDepth = 200

// moment is a TOML date or time as ISO text. It stays apart from strings inside this package, so that a date where a string
// belongs is refused; what leaves the package holds a string.
type moment string

func readFile(path string) (*doc.Object, error) {
	text, err := readBytes(path)
	if err != nil {
		return nil, err
	}
	return parse(text)
}

// parse reads TOML text into a document that keeps the order of the file's keys. A leading byte order mark is dropped.
func parse(text []byte) (*doc.Object, error) {
	text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))
	if !utf8.Valid(text) {
		line, col := position(text, invalidAt(text))
		return nil, fault.New(fault.Invalid, "not UTF-8 text (at line %d, column %d); save it as UTF-8", line, col)
	}
	if at := tooDeep(text); at >= 0 {
		line, col := position(text, at)
		return nil, fault.New(fault.Invalid, "malformed TOML: nested more than %d deep (at line %d, column %d)", maxDepth, line, col)
	}
	var m map[string]any
	if err := toml.Unmarshal(text, &m); err != nil {
		msg := strings.TrimPrefix(err.Error(), "toml: ")
		var d *toml.DecodeError
		if errors.As(err, &d) {
			row, col := d.Position()
			return nil, fault.New(fault.Invalid, "malformed TOML: %s (at line %d, column %d)", oneLine(msg), row, col)
		}
		return nil, fault.New(fault.Invalid, "malformed TOML: %s", oneLine(msg))
	}
	o := order{at: map[string]int{}, tables: map[string]int{}}
	o.read(text)
	v, err := o.value(m, "", 0)
	if err != nil {
		return nil, err
	}
	return v.(*doc.Object), nil
}

func invalidAt(text []byte) int {
	for i := 0; i < len(text); {
		r, n := utf8.DecodeRune(text[i:])
		if r == utf8.RuneError && n < 2 {
			return i
		}
		i += n
	}
	return len(text)
}

func position(text []byte, at int) (line, col int) {
	before := text[:at]
	return bytes.Count(before, []byte("\n")) + 1, at - bytes.LastIndexByte(before, '\n')
}

// tooDeep returns where brackets nest beyond the limit, before a recursive parser follows them; -1 when they do not.
func tooDeep(text []byte) int {
	depth := 0
	var quote byte
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case quote != 0:
			if c == '\\' && quote == '"' {
				i++
			} else if c == quote || c == '\n' {
				quote = 0
			}
		case c == '"' || c == '\'':
			quote = c
		case c == '#':
			for i < len(text) && text[i] != '\n' {
				i++
			}
		case c == '[' || c == '{':
			if depth++; depth > maxDepth {
				return i
			}
		case (c == ']' || c == '}') && depth > 0:
			depth--
		}
	}
	return -1
}

// order remembers where in the file each key first stands, since the parser's maps forget it. Paths are joined by NUL, which
// no key can hold; elements of arrays are numbered components.
type order struct {
	at     map[string]int
	tables map[string]int // arrays of tables: how many elements so far
}

const sep = "\x00"

func (o *order) note(path string) {
	if _, ok := o.at[path]; !ok {
		o.at[path] = len(o.at)
	}
}

func (o *order) read(text []byte) {
	var p unstable.Parser
	p.Reset(text)
	prefix := ""
	for p.NextExpression() {
		e := p.Expression()
		switch e.Kind {
		case unstable.Table, unstable.ArrayTable:
			prefix = o.header(e)
		case unstable.KeyValue:
			o.pair(prefix, e, 0)
		}
	}
}

func (o *order) header(e *unstable.Node) string {
	path := ""
	for it := e.Key(); it.Next(); {
		path += sep + string(it.Node().Data)
		o.note(path)
		if it.IsLast() && e.Kind == unstable.ArrayTable {
			o.tables[path]++
		}
		if n := o.tables[path]; n > 0 {
			path += sep + strconv.Itoa(n-1)
		}
	}
	return path
}

func (o *order) pair(prefix string, e *unstable.Node, depth int) {
	for it := e.Key(); it.Next(); {
		prefix += sep + string(it.Node().Data)
		o.note(prefix)
	}
	o.inside(prefix, e.Value(), depth)
}

func (o *order) inside(prefix string, v *unstable.Node, depth int) {
	if depth > maxDepth {
		return
	}
	i := 0
	for it := v.Children(); it.Next(); i++ {
		switch v.Kind {
		case unstable.InlineTable:
			o.pair(prefix, it.Node(), depth+1)
		case unstable.Array:
			o.inside(prefix+sep+strconv.Itoa(i), it.Node(), depth+1)
		}
	}
}

func (o *order) value(v any, path string, depth int) (any, error) {
	if depth > maxDepth {
		return nil, fault.New(fault.Invalid, "nested more than %d deep", maxDepth)
	}
	switch v := v.(type) {
	case map[string]any:
		keys := make([]string, 0, len(v))
		for k := range v {
			keys = append(keys, k)
		}
		slices.SortFunc(keys, func(a, b string) int { return o.at[path+sep+a] - o.at[path+sep+b] })
		out := &doc.Object{}
		for _, k := range keys {
			x, err := o.value(v[k], path+sep+k, depth+1)
			if err != nil {
				return nil, err
			}
			out.Set(k, x)
		}
		return out, nil
	case []any:
		out := make([]any, len(v))
		for i := range v {
			x, err := o.value(v[i], path+sep+strconv.Itoa(i), depth+1)
			if err != nil {
				return nil, err
			}
			out[i] = x
		}
		return out, nil
	case string, bool:
		return v, nil
	case int64:
		return doc.Int(v), nil
	case float64:
		n := doc.Float(v)
		if !n.Finite() {
			return nil, fault.New(fault.Invalid, "%s is %s, which is no number a document can hold", strings.ReplaceAll(strings.TrimPrefix(path, sep), sep, "."), n)
		}
		return n, nil
	case time.Time:
		return moment(v.Format("2006-01-02T15:04:05") + fraction(v.Nanosecond()) + v.Format("-07:00")), nil
	case toml.LocalDate:
		return moment(v.String()), nil
	case toml.LocalTime:
		return clock(v), nil
	case toml.LocalDateTime:
		return moment(v.LocalDate.String()+"T") + clock(v.LocalTime), nil
	}
	return nil, fault.New(fault.Invalid, "%s is of an unknown kind (%T)", strings.ReplaceAll(strings.TrimPrefix(path, sep), sep, "."), v)
}

func clock(t toml.LocalTime) moment {
	return moment(time.Date(0, 1, 1, t.Hour, t.Minute, t.Second, 0, time.UTC).Format("15:04:05") + fraction(t.Nanosecond))
}

// fraction writes microseconds as six digits, or nothing when there are none.
func fraction(ns int) string {
	if ns/1000 == 0 {
		return ""
	}
	return "." + strconv.Itoa(1_000_000 + ns/1000)[1:]
}

// oneLine keeps a message on one line: control characters become spaces.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, s)
}
