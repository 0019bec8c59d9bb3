package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"agentenv/config"
	"agentenv/fault"
	"agentenv/store/doc"
)

// world is a working folder with an environment of its own, in which nothing of the machine's is seen.
type world struct {
	t     testing.TB
	dir   string // without symlinks
	state string
	env   map[string]string
}

func newWorld(t testing.TB) *world {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, dir: dir, state: filepath.Join(t.TempDir(), "state"), env: map[string]string{}}
	w.env["XDG_STATE_HOME"] = w.state
	return w
}

// file writes the working folder's config file and returns its path.
func (w *world) file(text string) string { return w.fileIn(w.dir, text) }

func (w *world) fileIn(dir, text string) string {
	w.t.Helper()
	path := filepath.Join(dir, ".agentenv", "config.toml")
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
		w.t.Fatal(err)
	}
	return path
}

func (w *world) load() *config.Config {
	c := config.Load(func(name string) (string, bool) { v, set := w.env[name]; return v, set }, w.dir)
	c.Backends(backends(c))
	c.Providers([]string{"local", "docker"})
	return c
}

// backends are those a program with only the local stores has.
func backends(c *config.Config) []config.Backend {
	return []config.Backend{
		{Seam: "document", Name: "sqlite", Pointers: config.ReferencePointers("LocalSqliteDocumentStore"), Keys: []config.Key{{Name: "path", Required: true}}},
		{Seam: "object", Name: "localfs", Pointers: config.ReferencePointers("LocalFilesystemObjectStore"), Keys: []config.Key{
			{Name: "root", Default: filepath.Join(c.StateRoot(), "object_store")}, {Name: "grants", Default: "auto"}, {Name: "grant_lifetime_seconds", Default: doc.Int(43200)}}},
		{Seam: "image", Name: "localregistry", Pointers: config.ReferencePointers("LocalRegistryImageStore"), Keys: []config.Key{
			{Name: "registry_host", Default: "localhost:5000"}, {Name: "repository_prefix", Default: ""}, {Name: "credentials"}}},
		{Seam: "secret", Name: "envfile", Pointers: config.ReferencePointers("LocalSecretStore"), Keys: []config.Key{
			{Name: "values"}, {Name: "file_path"}, {Name: "use_env", Default: true}}},
		{Seam: "credentials", Name: "secret", Pointers: config.ReferencePointers("SecretStoreCredentials"), Keys: []config.Key{{Name: "secret_key", Default: "registry_auths"}}},
		{Seam: "runner", Name: "local", Pointers: config.ReferencePointers("LocalRunner")},
	}
}

// fails checks an error of the configuration: its kind and class, that it is one line, and what it says.
func fails(t *testing.T, err error, kind fault.Kind, says ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error; want one with %q", says)
	}
	if fault.KindOf(err) != kind || fault.ClassOf(err) != "ConfigError" {
		t.Errorf("error is %s of class %s, want %s of class ConfigError: %v", fault.KindOf(err), fault.ClassOf(err), kind, err)
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("error has several lines: %q", err)
	}
	for _, s := range says {
		if !strings.Contains(err.Error(), s) {
			t.Errorf("error %q does not say %q", err, s)
		}
	}
}

func equal(t *testing.T, got, want any) {
	t.Helper()
	if !doc.Equal(got, want) {
		g, _ := doc.MarshalIndent(got)
		w, _ := doc.MarshalIndent(want)
		t.Errorf("got %s\nwant %s", g, w)
	}
}

// section picks a section of a report's JSON form.
func section(t *testing.T, c *config.Config, name string) *doc.Object {
	t.Helper()
	for _, s := range c.Show().JSON().Arr("sections") {
		if s.(*doc.Object).Str("name") == name {
			return s.(*doc.Object)
		}
	}
	t.Fatalf("no section %s", name)
	return nil
}
