package config

import (
	"slices"
	"strings"

	"agentenv/store/doc"
)

// Source is one place settings come from: `config sources`.
type Source struct {
	Kind    string // "default", "file" or "env"
	Where   string // the path or "$VARIABLE"
	Present bool
	Detail  string // a remark, or the variable's masked value; "" for none
	Shadows string // the TOML path the variable stands above; "" for none
}

type variable struct{ name, shadows, note string }

func variables() []variable {
	var out []variable
	for _, s := range seams() {
		out = append(out, variable{s.env, label(s.path), ""})
	}
	for _, s := range settledKeys() {
		if s.env != "" {
			out = append(out, variable{s.env, label(s.path), ""})
		}
	}
	const alone, credential = "no file equivalent", "credential, no file equivalent"
	return append(out, variable{"AGENT_SANDBOX_MODE", "", alone}, variable{"AGENT_ENV_MODAL_REGION", "", alone}, variable{"AGENT_ENV_MODAL_APP_NAME", "", alone},
		variable{"AGENT_ENV_FIXTURE_PREFIX", "", alone}, variable{"MODAL_TOKEN_ID", "", credential}, variable{"MODAL_TOKEN_SECRET", "", credential})
}

// Sources lists every place settings come from, lowest precedence first: the defaults, the file, the variables that are
// known, and those the file refers to. Secrets are masked, as in Report.
func (c *Config) Sources() []Source {
	out := []Source{{Kind: kindDefault, Where: "built-in defaults", Present: true}, c.fileSource()}
	referenced := map[string][]string{}
	references(c.root, nil, func(name string, path []string) {
		at := "[" + label(path) + "]"
		if !slices.Contains(referenced[name], at) {
			referenced[name] = append(referenced[name], at)
		}
	})
	for _, at := range referenced {
		slices.Sort(at)
	}
	for _, v := range variables() {
		s := Source{Kind: kindEnv, Where: "$" + v.name, Shadows: v.shadows}
		value := c.env(v.name)
		switch {
		case value != "":
			s.Present, s.Detail = true, maskText(value, secretKey(v.name))
		default:
			s.Detail = v.note
		}
		if at := referenced[v.name]; len(at) > 0 {
			s.Detail = joined(s.Detail, "also referenced by "+strings.Join(at, ", "))
			delete(referenced, v.name)
		}
		out = append(out, s)
	}
	var names []string
	for n := range referenced {
		names = append(names, n)
	}
	slices.Sort(names)
	for _, n := range names {
		s := Source{Kind: kindEnv, Where: "$" + n, Present: c.env(n) != "", Detail: "referenced by " + strings.Join(referenced[n], ", ")}
		if !s.Present {
			s.Detail += ", unset"
		}
		out = append(out, s)
	}
	return out
}

func joined(a, b string) string {
	if a == "" {
		return b
	}
	return a + "; " + b
}

func (c *Config) fileSource() Source {
	s := Source{Kind: kindFile, Where: c.found.path, Present: c.broken == nil && c.found.path != ""}
	switch c.found.source {
	case "error":
		s.Where, s.Detail = "(discovery failed)", c.broken.Error()
	case "none":
		s.Where, s.Detail = "(no config file)", "no .agentenv/config.toml here or in any folder above"
	case "env":
		s.Detail = "via $" + fileVar
	case "walk-up":
		s.Detail = "discovered by walking up"
	}
	if c.broken != nil && c.found.err == nil {
		s.Detail += "; unreadable: " + c.broken.Error()
	}
	return s
}

// references calls fn for every `env:` reference in a value, with the path of keys to it; lists add none.
func references(v any, path []string, fn func(name string, path []string)) {
	switch v := v.(type) {
	case string:
		if prefix, name, _, _, is := cutRef(v); is && prefix == "env:" {
			fn(name, path)
		}
	case []any:
		for _, x := range v {
			references(x, path, fn)
		}
	case *doc.Object:
		for _, k := range v.Keys() {
			references(v.Value(k), append(slices.Clone(path), k), fn)
		}
	}
}

// Candidate is a place where the config file is looked for: `config debug`.
type Candidate struct {
	Path   string
	Why    string // "$AGENT_ENV_CONFIG" or "walk-up"
	Exists bool
}

// Debug lists where the config file is looked for, in order.
func (c *Config) Debug() []Candidate {
	var out []Candidate
	for _, x := range candidates(c.lookup, c.dir, c.dir) {
		out = append(out, Candidate{x.path, x.why, x.exists()})
	}
	return out
}
