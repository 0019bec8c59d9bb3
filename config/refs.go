package config

import (
	"strings"

	"agentenv/store/doc"
)

// refs says which references a table may hold.
type refs int

const (
	envOnly    refs = iota // `secret:` is refused: the table belongs to the secret store itself
	envSecrets             // both kinds
)

// resolve returns a copy of v with every string that is a reference replaced by what it names; dates become text.
func (c *Config) resolve(v any, allowed refs) (any, error) {
	switch v := v.(type) {
	case string:
		return c.resolveString(v, allowed)
	case []any:
		out := make([]any, len(v))
		for i, x := range v {
			y, err := c.resolve(x, allowed)
			if err != nil {
				return nil, err
			}
			out[i] = y
		}
		return out, nil
	case *doc.Object:
		out := &doc.Object{}
		for _, k := range v.Keys() {
			y, err := c.resolve(v.Value(k), allowed)
			if err != nil {
				return nil, err
			}
			out.Set(k, y)
		}
		return out, nil
	}
	return plain(v), nil
}

// ResolveText returns what a text stands for that may be a reference (`env:NAME`, `secret:NAME`, each with an optional `?default`); any other text is
// returned as it is. A reference that cannot be resolved is an error of kind Invalid and class ConfigError; it never holds a value.
func (c *Config) ResolveText(text string) (string, error) { return c.resolveString(text, envSecrets) }

// cutRef splits a reference into its prefix ("env:" or "secret:"), the name, and the default after the first "?".
func cutRef(s string) (prefix, name, fallback string, hasDefault, is bool) {
	for _, p := range []string{"env:", "secret:"} {
		if rest, ok := strings.CutPrefix(s, p); ok {
			name, fallback, hasDefault = strings.Cut(rest, "?")
			return p, name, fallback, hasDefault, true
		}
	}
	return "", "", "", false, false
}

func (c *Config) resolveString(s string, allowed refs) (string, error) {
	prefix, name, fallback, hasDefault, is := cutRef(s)
	switch {
	case !is || c.literal:
		return s, nil
	case prefix == "env:":
		if v, set := c.lookup(name); set {
			return v, nil
		}
	case allowed == envOnly:
		return "", invalid("%s%s cannot be used here: the secret store's own settings may only refer to the environment (env:NAME)", prefix, oneLine(name))
	case c.secrets == nil:
		return "", invalid("%s%s cannot be resolved: no secret store is at hand", prefix, oneLine(name))
	default:
		v, ok, err := c.secrets(name)
		if err != nil {
			return "", invalid("%s%s cannot be resolved: %s", prefix, oneLine(name), err)
		}
		if ok {
			return v, nil
		}
	}
	if hasDefault {
		return fallback, nil
	}
	if prefix == "env:" {
		return "", invalid("%s%s cannot be resolved: the environment variable is not set; set it, or give a default (env:NAME?default)", prefix, oneLine(name))
	}
	return "", invalid("%s%s cannot be resolved: the secret store has no such secret; add it, or give a default (secret:NAME?default)", prefix, oneLine(name))
}
