package config

import (
	"net/url"
	"slices"
	"strings"

	"agentenv/fault"
	"agentenv/store/doc"
)

// ModelSection is `[model]`: which models are called, where, and with what.
type ModelSection struct {
	c       *Config
	base    string            // the file's base_url, references resolved
	Default string            // the model when a role names none; "" for none
	Roles   map[string]string // role -> model
	Params  *doc.Object       // sent with each call; never nil

	key     any         // the file's api_key, a reference still
	headers *doc.Object // the file's headers, references still
}

// ModelCall is what one model call is made with.
type ModelCall struct {
	APIKey  string // "" for none
	BaseURL string // "" when the model's name routes the call by itself
	// Params goes with the call as it is; extra_headers in it holds the configured headers.
	Params *doc.Object
}

// ModelOverride is where one model is called instead of the configured endpoint.
type ModelOverride struct {
	SecretKey string // the name of the secret that holds the key
	BaseURL   string
}

func reservedParams() []string {
	return []string{"model", "messages", "api_key", "api_base", "user", "metadata", "timeout", "response_format"}
}

// Model returns `[model]`, parsed once and kept; without the table it is empty. The key and the headers are resolved at each
// use only, so reading the rest needs no secret store. Errors are of kind Invalid and class ConfigError.
func (c *Config) Model() (*ModelSection, error) { return c.model() }

func (c *Config) parseModel() (*ModelSection, error) {
	t, err := c.table("model")
	if err != nil {
		return nil, err
	}
	if err := c.only(t, "model", "base_url", "api_key", "default", "roles", "params", "headers"); err != nil {
		return nil, err
	}
	m := &ModelSection{c: c, Roles: map[string]string{}, Params: &doc.Object{}, headers: &doc.Object{}}
	for _, k := range []string{"base_url", "api_key", "default"} {
		if v, ok := t.Get(k); ok {
			if _, ok := v.(string); !ok {
				return nil, invalid("%s: [model] %s must be a string, got %s", c.found.path, k, typeName(v))
			}
		}
	}
	m.key = t.Value("api_key")
	tables := map[string]*doc.Object{}
	for _, k := range []string{"roles", "params", "headers"} {
		if tables[k], err = c.table("model", k); err != nil {
			return nil, err
		}
	}
	if m.base, err = c.modelString(t.Str("base_url"), "base_url"); err != nil {
		return nil, err
	}
	if m.Default, err = c.modelString(t.Str("default"), "default"); err != nil {
		return nil, err
	}
	for _, role := range tables["roles"].Keys() {
		s, ok := tables["roles"].Value(role).(string)
		if !ok {
			return nil, invalid("%s: [model.roles] %s must be a string, got %s", c.found.path, label([]string{role}), typeName(tables["roles"].Value(role)))
		}
		if m.Roles[role], err = c.modelString(s, "roles."+label([]string{role})); err != nil {
			return nil, err
		}
	}
	if m.Params, err = c.modelParams(tables["params"]); err != nil {
		return nil, err
	}
	m.headers = tables["headers"]
	for _, name := range m.headers.Keys() {
		if err := c.header(name, m.headers.Value(name), false); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (c *Config) modelString(s, key string) (string, error) {
	v, err := c.resolveString(s, envSecrets)
	return v, fault.At(err, "%s: [model] %s", c.found.path, key)
}

func (c *Config) modelParams(t *doc.Object) (*doc.Object, error) {
	var taken []string
	for _, k := range t.Keys() {
		if slices.Contains(reservedParams(), k) {
			taken = append(taken, k)
		}
	}
	if len(taken) > 0 {
		return nil, invalid("%s: [model.params] may not hold %s, which each call sets by itself; reserved are %s", c.found.path, quoted(taken), quoted(reservedParams()))
	}
	v, err := c.resolve(t, envSecrets)
	if err != nil {
		return nil, fault.At(err, "%s: [model.params]", c.found.path)
	}
	return v.(*doc.Object), nil
}

// header checks a header's name and value. A value that is a reference is checked once it is resolved. The value is never
// part of the error.
func (c *Config) header(name string, v any, isResolved bool) error {
	const token = "!#$%&'*+.^_`|~-0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	if name == "" || strings.Trim(name, token) != "" || strings.ContainsFunc(name, func(r rune) bool { return !strings.ContainsRune(token, r) }) {
		return invalid("%s: [model.headers] %q is no header name; use letters, digits and !#$%%&'*+.^_`|~-", c.found.path, oneLine(name))
	}
	s, ok := v.(string)
	if !ok {
		return invalid("%s: [model.headers] %s must be a string, got %s", c.found.path, name, typeName(v))
	}
	if _, _, _, _, isRef := cutRef(s); isRef && !isResolved {
		return nil
	}
	if strings.ContainsFunc(s, func(r rune) bool { return r != '\t' && (r < ' ' || r > '~') }) {
		return invalid("%s: [model.headers] the value of %s may hold only visible ASCII characters, spaces and tabs", c.found.path, name)
	}
	return nil
}

// APIKey returns LITELLM_API_KEY, else the configured api_key with its reference resolved; neither is an error.
func (m *ModelSection) APIKey() (string, error) {
	key, err := m.configuredKey(true)
	if err == nil && key == "" {
		return "", invalid("no model API key: set LITELLM_API_KEY, or api_key under [model] in the config file")
	}
	return key, err
}

func (m *ModelSection) configuredKey(variable bool) (string, error) {
	if k := m.c.env("LITELLM_API_KEY"); k != "" && variable {
		return k, nil
	}
	s, _ := m.key.(string)
	return m.c.modelString(s, "api_key")
}

// BaseURL returns LITELLM_BASE_URL, else the configured base_url; neither is an error.
func (m *ModelSection) BaseURL() (string, error) {
	if b := m.endpoint(); b != "" {
		return b, nil
	}
	return "", invalid("no model endpoint: set LITELLM_BASE_URL, or base_url under [model] in the config file")
}

// ExtraHeaders returns the configured headers with their references resolved, empty without any. A header that is none is an error.
func (m *ModelSection) ExtraHeaders() (*doc.Object, error) { return m.resolvedHeaders() }

func (m *ModelSection) endpoint() string {
	if b := m.c.env("LITELLM_BASE_URL"); b != "" {
		return b
	}
	return m.base
}

// ForRole returns the model of a role, else the default model; "" for neither.
func (m *ModelSection) ForRole(role string) string {
	if s := m.Roles[role]; s != "" {
		return s
	}
	return m.Default
}

// Call returns what a call of model is made with. key is the caller's default key and base its endpoint ("" for none);
// overrides name models with an endpoint of their own. A foreign endpoint gets neither the configured key nor the configured
// headers. onHeadersLeftOut, if not nil, is told the host that gets no headers. Errors are of kind Invalid and class ConfigError.
func (m *ModelSection) Call(model, key, base string, overrides map[string]ModelOverride, onHeadersLeftOut func(host string)) (ModelCall, error) {
	if o, ok := overrides[model]; ok {
		if base == "" {
			base = o.BaseURL
		}
		secret, err := m.c.resolveString("secret:"+o.SecretKey, envSecrets)
		if err != nil {
			return ModelCall{}, fault.At(err, "the key of model %s", oneLine(model))
		}
		return ModelCall{APIKey: secret, BaseURL: base, Params: &doc.Object{}}, nil
	}
	out := ModelCall{APIKey: key, BaseURL: base}
	if out.APIKey == "" {
		out.APIKey = m.c.env("LITELLM_API_KEY")
	}
	if out.BaseURL == "" {
		out.BaseURL = m.endpoint()
	}
	if out.BaseURL == "" && !strings.Contains(model, "/") {
		_, err := m.BaseURL()
		return ModelCall{}, err
	}
	ours := m.isEndpoint(out.BaseURL)
	var err error
	if out.APIKey == "" && (out.BaseURL == "" || ours) {
		if out.APIKey, err = m.configuredKey(false); err != nil {
			return ModelCall{}, err
		}
	}
	out.Params = doc.DeepClone(m.Params).(*doc.Object)
	if m.headers.Len() == 0 {
		return out, nil
	}
	if !ours {
		if onHeadersLeftOut != nil {
			onHeadersLeftOut(host(out.BaseURL))
		}
		return out, nil
	}
	headers, err := m.resolvedHeaders()
	if err != nil {
		return ModelCall{}, err
	}
	out.Params.Set("extra_headers", overlay(headers, out.Params.Obj("extra_headers")))
	return out, nil
}

// isEndpoint reports whether base is the configured endpoint, but for trailing slashes.
func (m *ModelSection) isEndpoint(base string) bool {
	return base != "" && strings.TrimRight(base, "/") == strings.TrimRight(m.endpoint(), "/")
}

func host(base string) string {
	if u, err := url.Parse(base); err == nil {
		return u.Host
	}
	return ""
}

func (m *ModelSection) resolvedHeaders() (*doc.Object, error) {
	v, err := m.c.resolve(m.headers, envSecrets)
	if err != nil {
		return nil, fault.At(err, "%s: [model.headers]", m.c.found.path)
	}
	o := v.(*doc.Object)
	for _, k := range o.Keys() {
		if err := m.c.header(k, o.Value(k), true); err != nil {
			return nil, err
		}
	}
	return o, nil
}

// overlay lays explicit headers over base; names compare without case and the explicit one wins.
func overlay(base, explicit *doc.Object) *doc.Object {
	out := &doc.Object{}
	for _, k := range base.Keys() {
		if !slices.ContainsFunc(explicit.Keys(), func(e string) bool { return strings.EqualFold(e, k) }) {
			out.Set(k, base.Value(k))
		}
	}
	for _, k := range explicit.Keys() {
		out.Set(k, explicit.Value(k))
	}
	return out
}
