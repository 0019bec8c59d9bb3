package config

import (
	"path/filepath"
	"slices"
	"strings"

	"agentenv/fault"
	"agentenv/store/doc"
)

// Choice is the backend that fills a seam.
type Choice struct {
	Backend string // the Name of the Backend main handed in
	Alias   string // "local" when the built-in backend was taken, else ""
	// Config is the checked config table with references resolved and defaults filled in.
	Config *doc.Object
	// Credentials is what Config's credentials table chose (image stores only); nil without one.
	Credentials *Choice
	Where       string // what decided: "$VARIABLE", "[stores.document]" or "built-in default"
}

// seam is a setting whose value is an alias or a table with impl and config.
type seam struct {
	name    string
	path    []string
	env     string
	builtin string // the pointer of the backend that the alias "local" means
}

func seams() []seam {
	return []seam{
		{"document", []string{"stores", "document"}, "AGENT_ENV_DOCUMENT_STORE", "agent_env.store.document_store:LocalSqliteDocumentStore"},
		{"object", []string{"stores", "object"}, "AGENT_ENV_OBJECT_STORE", "agent_env.store.object_store:LocalFilesystemObjectStore"},
		{"image", []string{"stores", "image"}, "AGENT_ENV_IMAGE_STORE", "agent_env.store.image_store:LocalRegistryImageStore"},
		{"secret", []string{"stores", "secret"}, "AGENT_ENV_SECRET_STORE", "agent_env.store.secret_store:LocalSecretStore"},
		{"runner", []string{"runner"}, "AGENT_ENV_RUNNER", "agent_env.runner.local_runner:LocalRunner"},
	}
}

const (
	kindEnv     = "env"
	kindFile    = "file"
	kindDefault = "default"
	builtinText = "built-in default"
)

// layer is one place a setting may come from.
type layer struct {
	kind, where string
	value       any
	err         error // why the place cannot be read; it counts only when the place wins
}

// layers returns where a seam may come from, the winner first; the built-in default is always the last.
func (c *Config) layers(s seam) []layer {
	var out []layer
	if v := c.env(s.env); v != "" {
		out = append(out, layer{kind: kindEnv, where: "$" + s.env, value: v})
	}
	parent, err := c.table(s.path[:len(s.path)-1]...)
	if v, ok := parent.Get(s.path[len(s.path)-1]); ok || err != nil {
		out = append(out, layer{kind: kindFile, where: "[" + label(s.path) + "]", value: v, err: err})
	}
	return append(out, layer{kind: kindDefault, where: builtinText, value: "local"})
}

// builtinConfig is the config table of the backend the alias "local" means.
func (c *Config) builtinConfig(s seam) *doc.Object {
	switch s.name {
	case "document":
		return doc.Of("path", filepath.Join(c.StateRoot(), "document_store", "documents.db"))
	case "object":
		return doc.Of("root", filepath.Join(c.StateRoot(), "object_store"))
	case "image":
		return doc.Of("registry_host", "localhost:5000")
	}
	return &doc.Object{}
}

// chosen reads a seam's value as pointer and config table, without looking at what the pointer names.
func (c *Config) chosen(s seam, l layer) (pointer string, config *doc.Object, err error) {
	where := "[" + label(s.path) + "]"
	switch v := l.value.(type) {
	case string:
		if v == "local" {
			return s.builtin, c.builtinConfig(s), nil
		}
		named := l.where
		if l.kind == kindFile {
			named = c.found.path + ": " + where
		}
		override := ""
		if l.kind == kindEnv {
			override = "; unset the variable then, since it overrides the table"
		}
		if s.name == "document" && v == "mongo" {
			return "", nil, invalid("%s is 'mongo', for which there are no built-in coordinates: describe the database in a %s table with impl and config (or set $%s to local)%s", named, where, s.env, override)
		}
		return "", nil, invalid("%s is %q, which is no backend this program knows by name: use 'local' (here or in $%s), or describe a hosted one in a %s table with impl and config%s", named, oneLine(maskText(v, false)), s.env, where, override)
	case *doc.Object:
		config = &doc.Object{}
		if x, ok := v.Get("config"); ok {
			if config, ok = x.(*doc.Object); !ok {
				return "", nil, invalid("%s: [%s.config] must be a table, got %s", c.found.path, label(s.path), typeName(x))
			}
		}
		pointer, err = c.pointer(v, where)
		return pointer, config, err
	}
	return "", nil, invalid("%s: %s must be a string or a table, got %s", c.found.path, where, typeName(l.value))
}

// pointer reads and checks the form of a table's impl.
func (c *Config) pointer(t *doc.Object, where string) (string, error) {
	v, ok := t.Get("impl")
	p, isStr := v.(string)
	switch {
	case !ok:
		return "", invalid("%s: %s has no impl; it names the backend, as in impl = \"module:Class\"", c.found.path, where)
	case !isStr:
		return "", invalid("%s: %s impl must be a string such as \"module:Class\", got %s", c.found.path, where, typeName(v))
	}
	module, class, ok := strings.Cut(p, ":")
	if !ok || module == "" || class == "" || strings.Contains(class, ":") {
		return "", invalid("%s: %s impl = %q is not of the form \"module:Class\"", c.found.path, where, oneLine(p))
	}
	return p, nil
}

// Seam returns which backend fills a seam ("document", "object", "image", "secret" or "runner") and its settings:
// environment before file before built-in default, where a broken file counts only when the file is what decides. References
// are resolved. Errors are of kind Invalid and class ConfigError, of kind Unsupported (same class) for a backend of the
// reference that this version lacks. It builds nothing and a second call resolves anew.
func (c *Config) Seam(name string) (Choice, error) {
	all := seams()
	i := slices.IndexFunc(all, func(s seam) bool { return s.name == name })
	if i < 0 {
		return Choice{}, fault.New(fault.Internal, "there is no seam called %q", name)
	}
	s := all[i]
	l := c.layers(s)[0]
	if l.err != nil {
		return Choice{}, l.err
	}
	pointer, config, err := c.chosen(s, l)
	if err != nil {
		return Choice{}, err
	}
	where := l.where
	if l.kind == kindFile {
		where = c.found.path + ": " + where
	}
	b, err := c.backend(s.name, pointer, where)
	if err != nil {
		return Choice{}, err
	}
	allowed := envSecrets
	if s.name == "secret" {
		allowed = envOnly
	}
	out := Choice{Backend: b.Name, Where: l.where}
	if l.value == any("local") {
		out.Alias = "local"
	}
	var credentials any
	if s.name == "image" {
		credentials = config.Value("credentials")
	}
	if out.Config, err = c.settings(b, pointer, config, allowed, where); err != nil {
		return Choice{}, err
	}
	if credentials != nil {
		if out.Credentials, err = c.credentials(credentials, where, s.path); err != nil {
			return Choice{}, err
		}
	}
	return out, nil
}

// credentials reads an image store's credentials table: the impl with its own keys beside it.
func (c *Config) credentials(v any, where string, path []string) (*Choice, error) {
	name := "[" + label(path) + ".config.credentials]"
	t, ok := v.(*doc.Object)
	if !ok {
		return nil, invalid("%s: %s must be a table, got %s", c.found.path, name, typeName(v))
	}
	pointer, err := c.pointer(t, name)
	if err != nil {
		return nil, err
	}
	b, err := c.backend("credentials", pointer, c.found.path+": "+name)
	if err != nil {
		return nil, err
	}
	own := t.Clone()
	own.Delete("impl")
	settings, err := c.settings(b, pointer, own, envSecrets, c.found.path+": "+name)
	if err != nil {
		return nil, err
	}
	return &Choice{Backend: b.Name, Config: settings, Where: where}, nil
}

// backend finds what a pointer names and checks that it fits the seam.
func (c *Config) backend(seam, pointer, where string) (Backend, error) {
	b, ok := find(c.backends, pointer)
	if ok && b.Seam == seam {
		return b, nil
	}
	if !ok {
		b, ok = find(referenceBackends(), pointer)
	}
	switch {
	case !ok:
		return Backend{}, invalid("%s names impl = %q, which this program does not have: Python classes cannot be loaded; use one of the built-in backends", where, oneLine(pointer))
	case b.Seam != seam:
		return Backend{}, invalid("%s names impl = %q, which is a backend for %s and not for %s", where, pointer, kindOfSeam(b.Seam), kindOfSeam(seam))
	}
	return Backend{}, fault.New(fault.Unsupported, "%s names impl = %q, which is not supported yet in this version; use the local backend, or another that is listed in the documentation", where, pointer).WithClass("ConfigError")
}

func kindOfSeam(name string) string {
	switch name {
	case "runner":
		return "the runner"
	case "credentials":
		return "registry credentials"
	}
	return name + " stores"
}

// settings checks a config table against the keys its backend takes, resolves references and fills defaults in.
func (c *Config) settings(b Backend, pointer string, config *doc.Object, allowed refs, where string) (*doc.Object, error) {
	var takes, unknown, missing []string
	for _, k := range b.Keys {
		takes = append(takes, k.Name)
		if _, ok := config.Get(k.Name); !ok && k.Required {
			missing = append(missing, k.Name)
		}
	}
	for _, k := range config.Keys() {
		if !slices.Contains(takes, k) {
			unknown = append(unknown, k)
		}
	}
	if len(unknown)+len(missing) > 0 {
		slices.Sort(unknown)
		slices.Sort(missing)
		return nil, invalid("%s: the config of %s %s", where, pointer, keyProblems(unknown, missing, takes))
	}
	v, err := c.resolve(config, allowed)
	if err != nil {
		return nil, fault.At(err, "%s config", where)
	}
	out := v.(*doc.Object)
	for _, k := range b.Keys {
		if _, ok := out.Get(k.Name); !ok && k.Default != nil {
			out.Set(k.Name, doc.DeepClone(k.Default))
		}
	}
	return out, nil
}

func keyProblems(unknown, missing, takes []string) string {
	var parts []string
	if len(unknown) > 0 {
		parts = append(parts, "has unknown keys "+quoted(unknown))
	}
	if len(missing) > 0 {
		parts = append(parts, "lacks "+quoted(missing))
	}
	out := strings.Join(parts, " and ")
	if len(takes) == 0 {
		return out + "; it takes no keys"
	}
	return out + "; it takes " + quoted(takes)
}
