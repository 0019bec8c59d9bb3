package config

import (
	"math"
	"slices"

	"agentenv/fault"
	"agentenv/store/doc"
)

// ArtifactsSection is `[artifacts]`.
type ArtifactsSection struct {
	Impls   []string          // classes of further types; Python, so whoever reads them decides what to say
	Aliases map[string]string // another name of an artifact type -> the type; no chains, no self alias
}

// Artifacts returns `[artifacts]`. That an alias leads to a type that exists is checked by whoever knows the types. Errors are
// of kind Invalid and class ConfigError.
func (c *Config) Artifacts() (ArtifactsSection, error) {
	out := ArtifactsSection{Aliases: map[string]string{}}
	var err error
	if out.Impls, err = c.Impls("artifacts"); err != nil {
		return out, err
	}
	t, err := c.table("artifacts", "type_aliases")
	if err != nil {
		return out, err
	}
	for _, k := range t.Keys() {
		to, ok := t.Value(k).(string)
		at := c.found.path + ": [artifacts.type_aliases] " + label([]string{k})
		switch _, chain := t.Get(to); {
		case !ok:
			return out, invalid("%s must be a string, got %s", at, typeName(t.Value(k)))
		case to == k:
			return out, invalid("%s is an alias of itself; name the type it stands for", at)
		case chain:
			return out, invalid("%s leads to %q, which is an alias too; name the type itself", at, oneLine(to))
		}
		out.Aliases[k] = to
	}
	return out, nil
}

// Impls returns the list of classes under `[envs]`, `[task_steps]`, `[artifacts]` or `[explorer.plugins]` (the path), empty
// when absent. Errors are of kind Invalid and class ConfigError.
func (c *Config) Impls(path ...string) ([]string, error) {
	t, err := c.table(path...)
	if err != nil {
		return nil, err
	}
	return c.strings(t, path, "impls")
}

func (c *Config) strings(t *doc.Object, path []string, key string) ([]string, error) {
	v, ok := t.Get(key)
	if !ok {
		return nil, nil
	}
	list, ok := v.([]any)
	if !ok {
		return nil, invalid("%s: [%s] %s must be a list of strings, got %s", c.found.path, label(path), key, typeName(v))
	}
	out := []string{}
	for i, x := range list {
		s, ok := x.(string)
		if !ok {
			return nil, invalid("%s: [%s] %s[%d] must be a string, got %s", c.found.path, label(path), key, i, typeName(x))
		}
		out = append(out, s)
	}
	return out, nil
}

// StateProviders returns `[state.providers]`: the class named for each provider's name. local_postgres is
// built in and may not be replaced. Errors are of kind Invalid and class ConfigError.
func (c *Config) StateProviders() (map[string]*doc.Object, error) {
	t, err := c.table("state", "providers")
	if err != nil {
		return nil, err
	}
	out := map[string]*doc.Object{}
	for _, name := range t.Keys() {
		where := "[" + label([]string{"state", "providers", name}) + "]"
		if name == "local_postgres" {
			return nil, invalid("%s: %s collides with the built-in provider of that name; use another name", c.found.path, where)
		}
		switch v := t.Value(name).(type) {
		case string:
			out[name] = doc.Of("impl", v)
		case *doc.Object:
			if _, err := c.pointer(v, where); err != nil {
				return nil, err
			}
			out[name] = plain(v).(*doc.Object)
		default:
			return nil, invalid("%s: %s must be a string or a table, got %s", c.found.path, where, typeName(v))
		}
	}
	return out, nil
}

// ExplorerSection is `[explorer]`.
type ExplorerSection struct {
	Port         int // 8234 unless set
	CORSOrigins  []string
	AllowedHosts []string
	StaticDir    string // "" for the built-in pages
}

// Explorer returns `[explorer]`. Errors are of kind Invalid and class ConfigError.
func (c *Config) Explorer() (ExplorerSection, error) {
	out := ExplorerSection{Port: 8234}
	path := []string{"explorer"}
	t, err := c.table(path...)
	if err != nil {
		return out, err
	}
	if v, ok := t.Get("port"); ok {
		n, isInt := integer(v)
		if !isInt || n < 0 || n > 65535 {
			return out, invalid("%s: [explorer] port must be a whole number from 0 to 65535", c.found.path)
		}
		out.Port = int(n)
	}
	if out.CORSOrigins, err = c.strings(t, path, "cors_origins"); err != nil {
		return out, err
	}
	if out.AllowedHosts, err = c.strings(t, path, "allowed_hosts"); err != nil {
		return out, err
	}
	if v, ok := t.Get("static_dir"); ok {
		if out.StaticDir, ok = v.(string); !ok {
			return out, invalid("%s: [explorer] static_dir must be a string, got %s", c.found.path, typeName(v))
		}
	}
	return out, nil
}

func integer(v any) (int64, bool) {
	n, ok := v.(doc.Number)
	if !ok || !n.IsInt() {
		return 0, false
	}
	return n.Int64()
}

// Plugin returns `[plugins.<name>]` with references resolved, an empty object when it is absent. Names match by their
// canonical form (lower case, runs of "-", "_" and "." as one "-"); two tables of one canonical name are an error that names
// both. Errors are of kind Invalid and class ConfigError.
func (c *Config) Plugin(name string) (*doc.Object, error) {
	t, err := c.table("plugins")
	if err != nil {
		return nil, err
	}
	var keys []string
	for _, k := range t.Keys() {
		if canonical(k) == canonical(name) {
			keys = append(keys, k)
		}
	}
	if len(keys) == 0 {
		return &doc.Object{}, nil
	}
	if len(keys) > 1 {
		return nil, c.twice(keys)
	}
	own, err := c.table("plugins", keys[0])
	if err != nil {
		return nil, err
	}
	v, err := c.resolve(own, envSecrets)
	if err != nil {
		return nil, fault.At(err, "%s: [%s]", c.found.path, label([]string{"plugins", keys[0]}))
	}
	return v.(*doc.Object), nil
}

func (c *Config) twice(keys []string) error {
	names := make([]string, len(keys))
	for i, k := range keys {
		names[i] = "[" + label([]string{"plugins", k}) + "]"
	}
	slices.Sort(names)
	return invalid("%s: %s are one plugin, written differently; keep one of them", c.found.path, quoted(names))
}

// Limits is `[plugins.agent-env]`: this program's own settings.
type Limits struct {
	MaxSandboxes int // the most runs that hold sandboxes at once; 0 when not set
}

const ownPlugin = "agent-env"

func ownKeys() []string { return []string{"max_sandboxes"} }

// Limits returns this program's own settings. Errors are of kind Invalid and class ConfigError.
func (c *Config) Limits() (Limits, error) {
	t, err := c.Plugin(ownPlugin)
	if err != nil {
		return Limits{}, err
	}
	where := "[plugins." + ownPlugin + "]"
	if err := c.only(t, "plugins."+ownPlugin, ownKeys()...); err != nil {
		return Limits{}, err
	}
	v, ok := t.Get("max_sandboxes")
	if !ok {
		return Limits{}, nil
	}
	n, isInt := integer(v)
	if !isInt || n < 1 || n > math.MaxInt32 {
		return Limits{}, invalid("%s: %s max_sandboxes must be a whole number of at least 1", c.found.path, where)
	}
	return Limits{MaxSandboxes: int(n)}, nil
}
