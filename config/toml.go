package config

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"

	"agentenv/store/doc"
)

// moment is a TOML date or time. Reports show it; nothing else takes one.
type moment struct {
	iso  string // for JSON
	text string // for people
}

// outline is the order and the place of the keys of a table, which the decoder does not keep.
type outline struct {
	keys []string
	kids map[string]*outline
	line int
}

func (o *outline) child(key string, line int) *outline {
	if k := o.kids[key]; k != nil {
		return k
	}
	if o.kids == nil {
		o.kids = map[string]*outline{}
	}
	k := &outline{line: line}
	o.kids[key] = k
	o.keys = append(o.keys, key)
	return k
}

// parse reads TOML text into document values (tables are objects in the order of the file, dates are moments).
func parse(text []byte) (*doc.Object, *outline, error) {
	var m map[string]any
	if err := toml.Unmarshal(text, &m); err != nil {
		var at *toml.DecodeError
		if errors.As(err, &at) {
			line, col := at.Position()
			return nil, nil, fmt.Errorf("%s (at line %d, column %d)", strings.TrimPrefix(at.Error(), "toml: "), line, col)
		}
		return nil, nil, err
	}
	o := outlineOf(text)
	return table(m, o), o, nil
}

func outlineOf(text []byte) *outline {
	root := &outline{}
	at := root
	p := unstable.Parser{}
	p.Reset(text)
	walk := func(from *outline, n *unstable.Node) *outline {
		for it := n.Key(); it.Next(); {
			k := it.Node()
			from = from.child(string(k.Data), p.Shape(k.Raw).Start.Line)
		}
		return from
	}
	var value func(o *outline, n *unstable.Node)
	value = func(o *outline, n *unstable.Node) {
		switch n.Kind {
		case unstable.InlineTable:
			for it := n.Children(); it.Next(); {
				value(walk(o, it.Node()), it.Node().Value())
			}
		case unstable.Array:
			for it := n.Children(); it.Next(); {
				value(o, it.Node())
			}
		}
	}
	for p.NextExpression() {
		n := p.Expression()
		switch n.Kind {
		case unstable.Table, unstable.ArrayTable:
			at = walk(root, n)
		case unstable.KeyValue:
			value(walk(at, n), n.Value())
		}
	}
	return root
}

func table(m map[string]any, o *outline) *doc.Object {
	out := &doc.Object{}
	add := func(k string) {
		kid := o.kids[k]
		if kid == nil {
			kid = &outline{}
		}
		out.Set(k, value(m[k], kid))
	}
	for _, k := range o.keys {
		if _, there := m[k]; there {
			add(k)
		}
	}
	var rest []string
	for k := range m {
		if !slices.Contains(o.keys, k) {
			rest = append(rest, k)
		}
	}
	sort.Strings(rest)
	for _, k := range rest {
		add(k)
	}
	return out
}

func value(v any, o *outline) any {
	switch v := v.(type) {
	case map[string]any:
		return table(v, o)
	case []any:
		out := make([]any, len(v))
		for i, x := range v {
			out[i] = value(x, o)
		}
		return out
	case int64:
		return doc.Int(v)
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return strings.ToLower(string(doc.Float(v)))
		}
		return doc.Float(v)
	case time.Time:
		s := v.Format("2006-01-02T15:04:05.999999-07:00")
		return moment{iso: s, text: strings.Replace(s, "T", " ", 1)}
	case toml.LocalDateTime:
		s := v.AsTime(time.UTC).Format("2006-01-02T15:04:05.999999")
		return moment{iso: s, text: strings.Replace(s, "T", " ", 1)}
	case toml.LocalDate:
		return moment{iso: v.String(), text: v.String()}
	case toml.LocalTime:
		return moment{iso: v.String(), text: v.String()}
	}
	return v // string or bool
}

// typeName names a value's type the way messages of stored configurations always have.
func typeName(v any) string {
	switch v := v.(type) {
	case string:
		return "str"
	case bool:
		return "bool"
	case doc.Number:
		if v.IsInt() {
			return "int"
		}
		return "float"
	case []any:
		return "list"
	case *doc.Object:
		return "dict"
	case moment:
		return "datetime"
	}
	return "null"
}

var bareKey = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// segment writes one key as TOML does.
func segment(k string) string {
	if bareKey.MatchString(k) {
		return k
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(k) + `"`
}

func dotted(path ...string) string {
	out := make([]string, len(path))
	for i, k := range path {
		out[i] = segment(k)
	}
	return strings.Join(out, ".")
}

// label writes a table's name as it stands in the file.
func label(path ...string) string { return "[" + dotted(path...) + "]" }

// Plain returns a table as the Go values that backend constructors take: map[string]any, []any, string, bool, int64, float64.
func Plain(t *doc.Object) map[string]any {
	out := make(map[string]any, t.Len())
	for _, k := range t.Keys() {
		out[k] = plain(t.Value(k))
	}
	return out
}

func plain(v any) any {
	switch v := v.(type) {
	case *doc.Object:
		return Plain(v)
	case []any:
		out := make([]any, len(v))
		for i, x := range v {
			out[i] = plain(x)
		}
		return out
	case doc.Number:
		if n, ok := v.Int64(); ok {
			return n
		}
		return v.Float64()
	case moment:
		return v.iso
	}
	return v
}
