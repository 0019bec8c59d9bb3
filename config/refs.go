package config

import (
	"context"
	"strings"

	"agentenv/fault"
	"agentenv/store/doc"
)

// Secrets answers `secret:` references.
type Secrets interface {
	// Get returns a secret and whether there is one; an empty string is a value.
	Get(ctx context.Context, name string) (string, bool, error)
}

// Resolver replaces references in configuration values: `env:NAME` and `secret:KEY`, each with an optional `?default`.
type Resolver struct {
	Env Env
	// Secrets returns the secret store; it is called when the first secret: reference is met. nil: none may be used here.
	Secrets func() (Secrets, error)
}

// reference splits a string that is a reference.
func reference(s string) (kind, name, def string, hasDefault, ok bool) {
	for _, kind := range []string{"env", "secret"} {
		if rest, found := strings.CutPrefix(s, kind+":"); found {
			name, def, hasDefault = strings.Cut(rest, "?")
			return kind, name, def, hasDefault, true
		}
	}
	return "", "", "", false, false
}

// Resolve returns v with every reference in it replaced, at any depth; other values are returned as they are. The error is
// of class ConfigError and names the reference.
func (r Resolver) Resolve(ctx context.Context, v any) (any, error) {
	switch v := v.(type) {
	case string:
		return r.String(ctx, v)
	case []any:
		out := make([]any, len(v))
		for i, x := range v {
			var err error
			if out[i], err = r.Resolve(ctx, x); err != nil {
				return nil, err
			}
		}
		return out, nil
	case *doc.Object:
		return r.Table(ctx, v)
	}
	return v, nil
}

// Table is Resolve for a table.
func (r Resolver) Table(ctx context.Context, t *doc.Object) (*doc.Object, error) {
	out := &doc.Object{}
	for _, k := range t.Keys() {
		v, err := r.Resolve(ctx, t.Value(k))
		if err != nil {
			return nil, err
		}
		out.Set(k, v)
	}
	return out, nil
}

// String is Resolve for a string.
func (r Resolver) String(ctx context.Context, s string) (string, error) {
	kind, name, def, hasDefault, ok := reference(s)
	if !ok {
		return s, nil
	}
	ref := kind + ":" + name
	var val string
	var found bool
	if kind == "env" {
		val, found = r.Env(name)
	} else {
		if r.Secrets == nil {
			return "", configError(nil, "%s: a secret cannot be used here; use env: or a literal value", ref)
		}
		store, err := r.Secrets()
		if err == nil {
			val, found, err = store.Get(ctx, name)
		}
		if err != nil {
			return "", fault.At(err, "%s", ref)
		}
	}
	switch {
	case found:
		return val, nil
	case hasDefault:
		return def, nil
	case kind == "env":
		return "", configError(nil, "%s: the environment variable %s is not set and the reference has no default", ref, name)
	}
	return "", configError(nil, "%s: the secret store has no %q and the reference has no default", ref, name)
}
