package config

import (
	"context"
	"log/slog"
	"path/filepath"

	"agentenv/fault"
	"agentenv/store/doc"
)

// seam is an aliased section: a variable, a table of the file, or a built-in default chooses a backend.
type seam struct {
	name string // of the section
	path []string
	env  string
}

var seams = []seam{
	{"document", []string{"stores", "document"}, "AGENT_ENV_DOCUMENT_STORE"},
	{"object", []string{"stores", "object"}, "AGENT_ENV_OBJECT_STORE"},
	{"image", []string{"stores", "image"}, "AGENT_ENV_IMAGE_STORE"},
	{"secret", []string{"stores", "secret"}, "AGENT_ENV_SECRET_STORE"},
	{"runner", []string{"runner"}, "AGENT_ENV_RUNNER"},
}

func seamOf(name string) *seam {
	for i := range seams {
		if seams[i].name == name {
			return &seams[i]
		}
	}
	return nil
}

// Choice is a backend that was chosen, and its checked and resolved config table.
type Choice struct {
	Backend Backend
	Config  *doc.Object
	Where   string // what chose it: "$VAR", "[table]", or "built-in default"
	Local   bool   // it is what the alias `local` means
	// Credentials is the choice of the image store's `credentials` table, nil when there is none.
	Credentials *Choice
}

// Plain returns the config table for a constructor.
func (c *Choice) Plain() map[string]any { return Plain(c.Config) }

// localTable is what the alias `local` means for a seam.
func (c *Config) localTable(s *seam) (*doc.Object, error) {
	pointer := map[string]string{
		"document": "agent_env.store.document_store:LocalSqliteDocumentStore",
		"object":   "agent_env.store.object_store:LocalFilesystemObjectStore",
		"image":    "agent_env.store.image_store:LocalRegistryImageStore",
		"secret":   "agent_env.store.secret_store:LocalSecretStore",
		"runner":   "agent_env.runner.local_runner:LocalRunner",
	}[s.name]
	table := &doc.Object{}
	switch s.name {
	case "document", "object":
		root, err := c.StateRoot()
		if err != nil {
			return nil, err
		}
		if s.name == "document" {
			table.Set("path", filepath.Join(root, "document_store", "documents.db"))
		} else {
			table.Set("root", filepath.Join(root, "object_store"))
		}
	case "image":
		table.Set("registry_host", "localhost:5000")
	}
	return doc.Of("impl", pointer, "config", table), nil
}

// alias expands a string that stands for a section.
func (c *Config) alias(s *seam, alias, where string) (*doc.Object, error) {
	switch {
	case alias == "local":
		return c.localTable(s)
	case alias == "mongo" && s.name == "document":
		return nil, configError(nil, "%s selects the document store \"mongo\", which has no built-in coordinates: write a %s table with impl and config instead (a set $%s replaces the table)", where, label(s.path...), s.env)
	}
	return nil, configError(nil, "%s=%q is no known %s: only \"local\" has a short name; a hosted backend needs a %s table with impl and config (a set $%s replaces the table)", where, alias, seamLabel(s.name), label(s.path...), s.env)
}

// fileLayer is what the file says about a seam: its table, or its alias expanded. there is false when it says nothing.
func (c *Config) fileLayer(s *seam) (v any, there bool, err error) {
	if err := c.Err(); err != nil {
		return nil, true, err
	}
	parent := c.doc
	for i, k := range s.path {
		x, found := parent.Get(k)
		if !found {
			return nil, false, nil
		}
		if i == len(s.path)-1 {
			switch x.(type) {
			case string, *doc.Object:
				return x, true, nil
			}
			return x, true, configError(nil, "%s must be a string or a table, got %s", label(s.path...), typeName(x))
		}
		if parent, _ = x.(*doc.Object); parent == nil {
			return x, true, configError(nil, "%s must be a table, got %s", label(s.path[:i+1]...), typeName(x))
		}
	}
	return nil, false, nil
}

// Choose resolves an aliased section ("document", "object", "image", "secret", "runner") to a backend and its config table,
// with references replaced (secrets may be nil where none can be used) and the keys checked. A set variable wins over the
// file, the file over the default; a broken layer hurts only when it is the one taken. Errors are of class ConfigError.
func (c *Config) Choose(ctx context.Context, section string, secrets func() (Secrets, error), log *slog.Logger) (*Choice, error) {
	s := seamOf(section)
	if s == nil {
		return nil, fault.New(fault.Invalid, "%q is no section with a backend", section)
	}
	if section == "secret" {
		secrets = nil
	}
	table, where, err := c.seamTable(s)
	if err != nil {
		return nil, err
	}
	pointer, ok := table.Value("impl").(string)
	if !ok {
		return nil, configError(nil, "%s needs impl, a text such as module.path:ClassName", label(s.path...))
	}
	if log != nil {
		for _, k := range table.Keys() {
			if k != "impl" && k != "config" {
				log.Warn("a key is ignored: only impl and config are read here", "table", label(s.path...), "key", k)
			}
		}
	}
	b, err := c.backend(s.name, pointer)
	if err != nil {
		return nil, err
	}
	conf := &doc.Object{}
	if v, there := table.Get("config"); there {
		if conf, ok = v.(*doc.Object); !ok {
			return nil, configError(nil, "%s must be a table, got %s", label(append(s.path, "config")...), typeName(v))
		}
	}
	if err := b.check(conf); err != nil {
		return nil, fault.At(err, "%s", label(append(s.path, "config")...))
	}
	if conf, err = (Resolver{c.env, secrets}).Table(ctx, conf); err != nil {
		return nil, fault.At(err, "%s", label(append(s.path, "config")...))
	}
	out := &Choice{Backend: b, Config: conf, Where: where}
	local, err := c.localTable(s)
	out.Local = err == nil && doc.Equal(doc.Of("impl", pointer, "config", conf), local)
	if v, there := conf.Get("credentials"); there && section == "image" {
		if out.Credentials, err = c.credentials(v); err != nil {
			return nil, err
		}
	}
	if b.Pending {
		return nil, fault.New(fault.Unsupported, "%s: %s is not supported yet", where, b.Name).WithClass("ConfigError")
	}
	return out, nil
}

func (c *Config) seamTable(s *seam) (*doc.Object, string, error) {
	if alias := c.envVar(s.env); alias != "" {
		t, err := c.alias(s, alias, "$"+s.env)
		return t, "$" + s.env, err
	}
	v, there, err := c.fileLayer(s)
	if err != nil {
		return nil, "", err
	}
	if there {
		if alias, ok := v.(string); ok {
			t, err := c.alias(s, alias, label(s.path...))
			return t, label(s.path...), err
		}
		return v.(*doc.Object), label(s.path...), nil
	}
	t, err := c.localTable(s)
	return t, "built-in default", err
}

func (c *Config) credentials(v any) (*Choice, error) {
	const where = "[stores.image.config.credentials]"
	t, ok := v.(*doc.Object)
	if !ok {
		return nil, configError(nil, "%s must be a table, got %s", where, typeName(v))
	}
	pointer, ok := t.Value("impl").(string)
	if !ok {
		return nil, configError(nil, "%s needs impl, a text such as module.path:ClassName", where)
	}
	b, err := c.backend("credentials", pointer)
	if err != nil {
		return nil, err
	}
	if err := b.check(t, "impl"); err != nil {
		return nil, fault.At(err, "%s", where)
	}
	conf := t.Clone()
	conf.Delete("impl")
	if b.Pending {
		return nil, fault.New(fault.Unsupported, "%s: %s is not supported yet", where, b.Name).WithClass("ConfigError")
	}
	return &Choice{Backend: b, Config: conf, Where: where}, nil
}
