package config

import (
	"regexp"
	"strings"

	"agentenv/store/doc"
)

var bareKey = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// label writes a path of keys as TOML would: a.b."c.d".
func label(path []string) string {
	out := make([]string, len(path))
	for i, k := range path {
		out[i] = k
		if !bareKey.MatchString(k) {
			out[i] = `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`, "\t", `\t`, "\r", `\r`).Replace(k) + `"`
		}
	}
	return strings.Join(out, ".")
}

// quoted lists names for a message: 'a', 'b' and 'c'.
func quoted(names []string) string {
	var b strings.Builder
	for i, n := range names {
		switch {
		case i > 0 && i == len(names)-1:
			b.WriteString(" and ")
		case i > 0:
			b.WriteString(", ")
		}
		b.WriteString("'" + oneLine(n) + "'")
	}
	return b.String()
}

// typeName names the type of a value of the file, in the words TOML users and the reference share.
func typeName(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
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
		return "table"
	case moment:
		return "datetime"
	}
	return "unknown"
}

var separators = regexp.MustCompile(`[-_.]+`)

// canonical is the form under which names of distributions are compared.
func canonical(name string) string { return separators.ReplaceAllString(strings.ToLower(name), "-") }

// plain returns a copy of a value of the file that holds document values only: dates become text.
func plain(v any) any {
	switch v := v.(type) {
	case moment:
		return string(v)
	case []any:
		out := make([]any, len(v))
		for i, x := range v {
			out[i] = plain(x)
		}
		return out
	case *doc.Object:
		out := &doc.Object{}
		for _, k := range v.Keys() {
			out.Set(k, plain(v.Value(k)))
		}
		return out
	}
	return v
}
