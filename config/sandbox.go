package config

import (
	"slices"
	"strings"

	"agentenv/fault"
	"agentenv/store/doc"
)

// SandboxSection is `[sandbox]`, checked and with references resolved.
type SandboxSection struct {
	Default      string              // the provider, or a comma list of them, for everything but agents; "local" unless set
	AgentDefault string              // the same for agents; "local" unless set
	Attribution  map[string]string   // cost tags that callers leave unset
	Providers    map[string]Provider // by name; empty without tables
}

// Provider is one `[sandbox.providers.<name>]` table.
type Provider struct {
	Name   string
	Config *doc.Object // references resolved; never nil
	Where  string      // the table, for error messages of whoever checks the keys
}

// Providers hands in the names of the sandbox providers that exist. A second call replaces the first.
func (c *Config) Providers(names []string) { c.known = slices.Clone(names) }

// referenceProviders are the built-in providers of the reference; those that main does not hand in are not supported yet.
func referenceProviders() []string {
	return []string{"modal", "modal_vm", "e2b", "sail_vm", "smol_vm", "tensorlake", "vercel", "tenki", "boxd", "daytona", "local"}
}

// Sandbox returns `[sandbox]`. A provider's table is checked by its form: a provider that exists takes a config table alone,
// any other entry names a Python class, which is refused, as is a stray key. Keys inside a config are the provider's to check.
// A table of a provider that only the reference has is accepted and left out. Whether the providers named in Default and
// AgentDefault exist is for CheckProviders. Errors are of kind Invalid and class ConfigError. A second call reads the same file again, with the environment as it is then.
func (c *Config) Sandbox() (SandboxSection, error) {
	out := SandboxSection{Default: "local", AgentDefault: "local", Attribution: map[string]string{}, Providers: map[string]Provider{}}
	t, err := c.table("sandbox")
	if err != nil {
		return out, err
	}
	if out.Default, err = c.spec(t, "default"); err != nil {
		return out, err
	}
	if out.AgentDefault, err = c.spec(t, "agent_default"); err != nil {
		return out, err
	}
	tags, err := c.table("sandbox", "attribution")
	if err != nil {
		return out, err
	}
	for _, k := range tags.Keys() {
		s, ok := tags.Value(k).(string)
		if !ok {
			return out, invalid("%s: [sandbox.attribution] %s must be a string, got %s", c.found.path, label([]string{k}), typeName(tags.Value(k)))
		}
		if out.Attribution[k], err = c.resolveString(s, envSecrets); err != nil {
			return out, fault.At(err, "%s: [sandbox.attribution] %s", c.found.path, label([]string{k}))
		}
	}
	providers, err := c.table("sandbox", "providers")
	if err != nil {
		return out, err
	}
	for _, name := range providers.Keys() {
		config, err := c.provider(name, providers.Value(name))
		if err != nil {
			return out, err
		}
		if !slices.Contains(c.known, name) {
			continue
		}
		where := "[" + label([]string{"sandbox", "providers", name, "config"}) + "]"
		v, err := c.resolve(config, envSecrets)
		if err != nil {
			return out, fault.At(err, "%s: %s", c.found.path, where)
		}
		out.Providers[name] = Provider{Name: name, Config: v.(*doc.Object), Where: c.found.path + ": " + where}
	}
	return out, nil
}

// spec reads a provider name or comma list; whether the names exist matters only once it is used.
func (c *Config) spec(t *doc.Object, key string) (string, error) {
	v, ok := t.Get(key)
	if !ok {
		return "local", nil
	}
	s, ok := v.(string)
	if !ok || strings.Trim(s, ", \t") == "" {
		return "", invalid("%s: [sandbox] %s must name a provider, such as \"local\"; got %s", c.found.path, key, describe(v))
	}
	return s, nil
}

// CheckProviders checks that every provider of a spec (one name, or several separated by commas) exists. where says who names
// them, for the error: kind Unsupported for a provider that only the reference has, Invalid otherwise, of class ConfigError.
func (c *Config) CheckProviders(spec, where string) error {
	for name := range strings.SplitSeq(spec, ",") {
		name = strings.TrimSpace(name)
		switch {
		case name == "" || slices.Contains(c.known, name):
		case slices.Contains(referenceProviders(), name):
			return fault.New(fault.Unsupported, "%s names the sandbox provider %q, which is not supported yet in this version; it has %s",
				where, name, quoted(c.known)).WithClass("ConfigError")
		default:
			return invalid("%s names the sandbox provider %q, which does not exist; it may be one of %s", where, oneLine(name), quoted(c.known))
		}
	}
	return nil
}

// provider checks the form of one entry and returns its config table.
func (c *Config) provider(name string, v any) (*doc.Object, error) {
	where := "[" + label([]string{"sandbox", "providers", name}) + "]"
	builtin := slices.Contains(c.known, name) || slices.Contains(referenceProviders(), name)
	t, isTable := v.(*doc.Object)
	impl, hasImpl := t.Get("impl")
	if s, ok := v.(string); ok {
		impl, hasImpl = s, true
	}
	switch {
	case !isTable && !hasImpl:
		return nil, invalid("%s: %s must be a table, got %s", c.found.path, where, typeName(v))
	case hasImpl && builtin:
		return nil, invalid("%s: %s names an impl, which collides with the built-in provider of that name; give only a config table, or use another name", c.found.path, where)
	case hasImpl:
		return nil, invalid("%s: %s names impl = %v: Python classes cannot be loaded by this program; remove the entry", c.found.path, where, describe(impl))
	}
	if config, ok := t.Get("config"); ok {
		if _, ok := config.(*doc.Object); !ok {
			return nil, invalid("%s: [%s] must be a table, got %s", c.found.path, label([]string{"sandbox", "providers", name, "config"}), typeName(config))
		}
	}
	if !builtin {
		return nil, invalid("%s: %s is missing an impl: no provider is called %q; those there are: %s", c.found.path, where, oneLine(name), quoted(c.known))
	}
	var extra []string
	for _, k := range t.Keys() {
		if k != "config" {
			extra = append(extra, k)
		}
	}
	if len(extra) > 0 {
		slices.Sort(extra)
		return nil, invalid("%s: %s accepts only a config table, not %s; put the provider's settings under [%s]", c.found.path, where, quoted(extra),
			label([]string{"sandbox", "providers", name, "config"}))
	}
	return t.Obj("config"), nil
}

// describe writes a value of the file in a message: text in quotes, anything else by its type.
func describe(v any) string {
	if s, ok := v.(string); ok {
		return `"` + oneLine(s) + `"`
	}
	return "a " + typeName(v)
}
