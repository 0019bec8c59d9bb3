package deploy

import (
	"regexp"
	"slices"
	"strings"

	"agentenv/fault"
)

var (
	placeholder = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	unquoted    = regexp.MustCompile(`^[A-Za-z0-9@%+=:,./_-]+$`)
)

// fill puts values into a command's template, each quoted for a shell: {name} is a placeholder, {{ and }} are braces. used are the names of
// the placeholders, each once. A brace that stands alone, and a name that has no value, are Invalid.
func fill(template string, values map[string]string) (text string, used []string, err error) {
	var w strings.Builder
	for rest := template; rest != ""; {
		i := strings.IndexAny(rest, "{}")
		if i < 0 {
			w.WriteString(rest)
			break
		}
		w.WriteString(rest[:i])
		brace := rest[i]
		rest = rest[i+1:]
		if rest != "" && rest[0] == brace {
			w.WriteByte(brace)
			rest = rest[1:]
			continue
		}
		name, after, closed := strings.Cut(rest, "}")
		if brace == '}' || !closed {
			return "", nil, fault.New(fault.Invalid, "a %q stands alone; write it twice for the character itself", string(brace))
		}
		value, there := values[name]
		if !placeholder.MatchString(name) || !there {
			return "", nil, fault.New(fault.Invalid, "the placeholder {%s} is not among its required parameters", name)
		}
		if !slices.Contains(used, name) {
			used = append(used, name)
		}
		w.WriteString(shellQuote(value))
		rest = after
	}
	return w.String(), used, nil
}

// shellQuote writes a text as one word of a shell.
func shellQuote(s string) string {
	if unquoted.MatchString(s) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'"'"'`) + "'"
}
