package verify

import (
	"fmt"
	"path"
	"strings"
	"unicode"

	"agentenv/fault"
	"agentenv/store/doc"
	"agentenv/task"
)

// mistyped returns what is wrong with the type of a field that the criterion's probe reads, "" when nothing is. Such a
// criterion never passes.
func mistyped(c *doc.Object) string {
	switch c.Str("type") {
	case "probe_file_exists", "probe_dir_exists":
		return badPaths(c)
	case "probe_file_contains":
		if why := badPaths(c); why != "" {
			return why
		}
		if why := notString(c, "expected"); why != "" {
			return why
		}
		if task.Truthy(c.Value("expected")) {
			return ""
		}
		return notString(c, "value")
	case "bash_cmd_succeeds":
		return notString(c, "bash_cmd")
	}
	return ""
}

// wrongType says why no row can pass that needs a field of the step, "" when the field is of the type it should be.
func wrongType(field, want string, v any) string {
	if got := doc.TypeName(v); got != want {
		return fmt.Sprintf("evaluator error: `%s` must be a %s, but is of the type %s", field, want, got)
	}
	return ""
}

func badPaths(c *doc.Object) string {
	switch v := c.Value("paths").(type) {
	case nil:
	case []any:
		for _, x := range v {
			if _, ok := x.(string); !ok {
				return "`paths` must be a list of strings, but one of them is of the type " + doc.TypeName(x)
			}
		}
	default:
		return "`paths` must be a list of strings, but is of the type " + doc.TypeName(v)
	}
	return ""
}

func notString(c *doc.Object, field string) string {
	v := c.Value(field)
	if _, ok := v.(string); ok || v == nil {
		return ""
	}
	return fmt.Sprintf("`%s` must be a string, but is of the type %s", field, doc.TypeName(v))
}

// paths returns the criterion's paths, nil when they are mistyped.
func paths(c *doc.Object) []string {
	var out []string
	for _, x := range c.Arr("paths") {
		s, ok := x.(string)
		if !ok {
			return nil
		}
		out = append(out, s)
	}
	return out
}

// patternOf returns the pattern of a content probe: `expected`, or when that is empty `value`.
func patternOf(c *doc.Object) string {
	if s := c.Str("expected"); s != "" {
		return s
	}
	return c.Str("value")
}

// handled says whether verify_sandbox knows the criterion's type.
func handled(c *doc.Object) bool {
	switch c.Str("type") {
	case "probe_file_exists", "probe_dir_exists", "probe_file_contains", "bash_cmd_succeeds":
		return true
	}
	return false
}

// app is the folder of a sandbox that is its own on every host.
const app = "/app"

// leaves says whether a relative path climbs out of the /app that base_dir is in. A host keeps /app in a folder of its own,
// beside which lie things that are no part of the sandbox.
func leaves(base, name string) bool {
	if path.IsAbs(name) || !within(path.Clean(base)) {
		return false
	}
	return !within(path.Join(base, name))
}

func within(p string) bool { return p == app || strings.HasPrefix(p, app+"/") }

// checkWeights refuses rows of which a weighted average cannot be made: a weight that is given and no number.
func checkWeights(how string, rows []*doc.Object) error {
	if how != WeightedAverage {
		return nil
	}
	for i, r := range rows {
		w, there := r.Get("weight")
		if !there {
			continue
		}
		if _, isNumber := w.(doc.Number); isNumber { // infinities count as 1
			continue
		}
		if _, ok := number(w); !ok {
			if n, ok := r.Value("criterion_index").(doc.Number); ok {
				i = int(n.Float64())
			}
			return fault.New(fault.Invalid, "criterion %d has the weight %s, which is no number; give a number, or leave `weight` out for 1", i, doc.Canonical(w))
		}
	}
	return nil
}

// repr writes a value as Python's repr does, which is how readers of records know values inside texts.
func repr(v any) string {
	switch v := v.(type) {
	case nil:
		return "None"
	case bool:
		if v {
			return "True"
		}
		return "False"
	case string:
		return reprString(v)
	}
	return doc.Canonical(v)
}

func reprString(s string) string {
	quote := '\''
	if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		quote = '"'
	}
	var b strings.Builder
	b.WriteRune(quote)
	for _, r := range s {
		switch {
		case r == quote || r == '\\':
			b.WriteString(`\` + string(r))
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		case r == '\t':
			b.WriteString(`\t`)
		case unicode.IsPrint(r):
			b.WriteRune(r)
		case r < 0x100:
			fmt.Fprintf(&b, `\x%02x`, r)
		case r < 0x10000:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			fmt.Fprintf(&b, `\U%08x`, r)
		}
	}
	b.WriteRune(quote)
	return b.String()
}
