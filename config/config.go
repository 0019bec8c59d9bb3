// Package config reads the one TOML file and the environment variables of agent-env into one value that is loaded once and
// passed down. It builds no store and imports none: backends are described by tables that main hands in.
package config

import (
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"sync"

	"agentenv/fault"
	"agentenv/store/doc"
)

// Env looks up an environment variable and says whether it is set. A variable that is set to nothing is a value where an
// `env:` reference names it; everywhere else it counts as unset.
type Env func(name string) (value string, set bool)

// Config is one resolved configuration: the file as it was found and read once, and the environment as it is at each read.
// Everything it returns is a copy or must not be changed. It is safe for concurrent use once Backends and SetSecrets were called.
type Config struct {
	lookup Env
	dir    string // the working folder, without symlinks
	found  found
	root   *doc.Object // the file's document; empty without one
	broken error       // why the file could not be found or read; nil when there is none or it is fine

	backends []Backend
	known    []string // sandbox providers that exist
	secrets  func(name string) (string, bool, error)

	model   func() (*ModelSection, error)
	literal bool // references stay as they are written: for reports and checks
}

// Load finds and reads the configuration for a process that works in dir. It never fails and creates nothing: an error of
// discovery or of the file's text is kept and returned by every read that needs the file.
func Load(env Env, dir string) *Config {
	c := &Config{lookup: env, dir: resolved(dir), root: &doc.Object{}}
	c.found = discover(env, dir, c.dir)
	switch {
	case c.found.err != nil:
		c.broken = c.found.err
	case c.found.path != "":
		root, err := readFile(c.found.open)
		if err != nil {
			c.broken = invalid("config file %s: %s", c.found.path, err)
		} else {
			c.root = root
		}
	}
	c.model = sync.OnceValues(c.parseModel)
	return c
}

// env returns a variable's value, "" when it is not set.
func (c *Config) env(name string) string {
	v, _ := c.lookup(name)
	return v
}

// resolved returns dir without symlinks, or as an absolute path where that fails.
func resolved(dir string) string {
	if abs, err := filepath.Abs(dir); err == nil {
		dir = abs
	}
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		return real
	}
	return dir
}

// invalid returns an error about the configuration: kind Invalid, class ConfigError.
func invalid(format string, args ...any) error {
	return fault.New(fault.Invalid, format, args...).WithClass("ConfigError")
}

// Path returns the config file that was found, as it was named; "" when there is none or the search failed.
func (c *Config) Path() string { return c.found.path }

// Err returns why the config file could not be found or read, nil when it is fine or there is none. Reads that an
// environment variable answers work all the same.
func (c *Config) Err() error { return c.broken }

// StateRoot returns the folder under which agent-env keeps its state: $XDG_STATE_HOME/agent-env when that variable is an
// absolute path, %LOCALAPPDATA%\agent-env on Windows, else ~/.local/state/agent-env. It creates nothing.
func (c *Config) StateRoot() string {
	if p := c.env("XDG_STATE_HOME"); filepath.IsAbs(p) {
		return filepath.Join(p, "agent-env")
	}
	if p := c.env("LOCALAPPDATA"); runtime.GOOS == "windows" && filepath.IsAbs(p) {
		return filepath.Join(p, "agent-env")
	}
	home := c.env("HOME")
	if home == "" {
		if u, err := user.Current(); err == nil {
			home = u.HomeDir
		}
	}
	return filepath.Join(home, ".local", "state", "agent-env")
}

// ObjectPrefix returns AGENT_ENV_FIXTURE_PREFIX, which goes before every object key as "<prefix>/"; "" for none.
func (c *Config) ObjectPrefix() string { return c.env("AGENT_ENV_FIXTURE_PREFIX") }

// SetSecrets hands in what answers `secret:` references: the value and whether it exists. It is called at the first such
// reference only, so it may build its store then, and never twice at once. A second call replaces the first.
func (c *Config) SetSecrets(get func(name string) (string, bool, error)) {
	var one sync.Mutex
	c.secrets = func(name string) (string, bool, error) {
		one.Lock()
		defer one.Unlock()
		return get(name)
	}
}

// table returns the table of the file at a path, nil when it is absent. A component that is no table is an error that names
// it, as is a file that cannot be read.
func (c *Config) table(path ...string) (*doc.Object, error) {
	if c.broken != nil {
		return nil, c.broken
	}
	o := c.root
	for i, k := range path {
		v, ok := o.Get(k)
		if !ok {
			return nil, nil
		}
		if o, ok = v.(*doc.Object); !ok {
			return nil, invalid("%s: [%s] must be a table, got %s", c.found.path, label(path[:i+1]), typeName(v))
		}
	}
	return o, nil
}

// only refuses the keys of a table that are not among allowed.
func (c *Config) only(t *doc.Object, where string, allowed ...string) error {
	var unknown []string
	for _, k := range t.Keys() {
		if !slices.Contains(allowed, k) {
			unknown = append(unknown, k)
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	slices.Sort(unknown)
	return invalid("%s: [%s] has unknown keys %s; it takes %s", c.found.path, where, quoted(unknown), quoted(allowed))
}
