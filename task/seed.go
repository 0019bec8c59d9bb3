package task

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"agentenv/fault"
	"agentenv/store/doc"
)

// Substitute returns a copy of the task in which every <name> in a string value of a step (map keys excepted) is replaced by
// the text of seed[name]. It is one pass: a value put in is not searched again. The steps are parsed anew, so the result
// obeys every rule of a task (or has steps with a Problem, when t is a stored one); t is not changed, and is returned as it is when the seed is empty. Unknown <tokens> stay.
func (r *Registry) Substitute(t *Task, seed *doc.Object) (*Task, error) {
	if seed.Len() == 0 {
		return t, nil
	}
	var pairs []string
	for _, name := range seed.Keys() {
		pairs = append(pairs, "<"+name+">", plainText(seed.Value(name)))
	}
	replace := strings.NewReplacer(pairs...)
	d := t.Document()
	steps := make([]any, len(t.Steps))
	for i, s := range t.Steps {
		steps[i] = replaceStrings(s.Document(), replace)
	}
	seeded, err := r.ParseTask(d.Set("steps", steps), ParseOptions{Stored: t.stored})
	if err != nil {
		return nil, fault.At(err, "with the seed put in")
	}
	return seeded, nil
}

func replaceStrings(v any, replace *strings.Replacer) any {
	switch v := v.(type) {
	case string:
		return replace.Replace(v)
	case []any:
		out := make([]any, len(v))
		for i, x := range v {
			out[i] = replaceStrings(x, replace)
		}
		return out
	case *doc.Object:
		if v == nil {
			return v
		}
		out := &doc.Object{}
		for _, k := range v.Keys() {
			out.Set(k, replaceStrings(v.Value(k), replace))
		}
		return out
	}
	return v
}

// plainText is the text that stands for a value inside a string. The words and quotes are those that stored runs hold for
// values that are no strings: True, None, {'a': 1}.
func plainText(v any) string {
	if s, ok := v.(string); ok {
		return s
	}
	var b strings.Builder
	writeLiteral(&b, v)
	return b.String()
}

func writeLiteral(b *strings.Builder, v any) {
	switch v := v.(type) {
	case nil:
		b.WriteString("None")
	case bool:
		if v {
			b.WriteString("True")
		} else {
			b.WriteString("False")
		}
	case doc.Number:
		b.WriteString(numberLiteral(v))
	case string:
		writeQuoted(b, v)
	case []any:
		b.WriteByte('[')
		for i, x := range v {
			if i > 0 {
				b.WriteString(", ")
			}
			writeLiteral(b, x)
		}
		b.WriteByte(']')
	case *doc.Object:
		b.WriteByte('{')
		for i, k := range v.Keys() {
			if i > 0 {
				b.WriteString(", ")
			}
			writeQuoted(b, k)
			b.WriteString(": ")
			writeLiteral(b, v.Value(k))
		}
		b.WriteByte('}')
	}
}

func numberLiteral(n doc.Number) string {
	if n.IsInt() {
		return string(n)
	}
	switch n {
	case "NaN":
		return "nan"
	case "Infinity":
		return "inf"
	case "-Infinity":
		return "-inf"
	}
	return string(doc.Float(n.Float64()))
}

func writeQuoted(b *strings.Builder, s string) {
	quote := byte('\'')
	if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		quote = '"'
	}
	b.WriteByte(quote)
	for _, c := range s {
		switch {
		case c == '\\' || c == rune(quote):
			b.WriteByte('\\')
			b.WriteRune(c)
		case c == '\n':
			b.WriteString(`\n`)
		case c == '\r':
			b.WriteString(`\r`)
		case c == '\t':
			b.WriteString(`\t`)
		case c < ' ' || c == 0x7f:
			b.WriteString(`\x`)
			if c < 16 {
				b.WriteByte('0')
			}
			b.WriteString(strconv.FormatInt(int64(c), 16))
		default:
			b.WriteRune(c)
		}
	}
	b.WriteByte(quote)
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
