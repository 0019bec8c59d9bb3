// Package config reads the one TOML file and the environment variables of agent-env into one value that is loaded once and
// passed down. It builds no store and imports none: backends are described by tables that main hands in.
package config

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"agentenv/fault"
	"agentenv/store/doc"
)

// Env looks an environment variable up, like os.LookupEnv.
type Env func(name string) (value string, set bool)

// File is where the configuration comes from.
type File struct {
	Path   string // "" when there is none
	Source string // "env", "walk-up", "none", or "error" when discovery failed
}

// Config is the configuration of one process. It is immutable and safe for concurrent use; a broken file breaks only the
// calls that need it.
type Config struct {
	env      Env
	cwd      string // resolved
	file     File
	doc      *doc.Object // empty when there is no file
	where    *outline
	fileErr  error // an unreadable or malformed file
	findErr  error // a failed discovery
	backends []Backend
}

// maxFile bounds the configuration file.
const maxFile = 8 << 20

// Load finds and reads the configuration for a process in cwd. backends are the table of what `impl` pointers may name
// (see Backends). It never fails: what is wrong with the file is an error of the calls that read from it, of Err, and a
// line in the reports.
func Load(env Env, cwd string, backends []Backend) *Config {
	c := &Config{env: env, cwd: cwd, doc: &doc.Object{}, where: &outline{}, backends: backends}
	if abs, err := filepath.Abs(cwd); err == nil {
		c.cwd = abs
	}
	if r, err := filepath.EvalSymlinks(c.cwd); err == nil {
		c.cwd = r
	}
	c.file, c.findErr = c.discover()
	if c.findErr == nil && c.file.Path != "" {
		c.doc, c.where, c.fileErr = read(c.file.Path)
	}
	return c
}

// envVar is the value of a variable; a set but empty one counts as unset.
func (c *Config) envVar(name string) string {
	v, _ := c.env(name)
	return v
}

const configVar = "AGENT_ENV_CONFIG"

func (c *Config) discover() (File, error) {
	if p := c.envVar(configVar); p != "" {
		if !filepath.IsAbs(p) {
			p = filepath.Join(c.cwd, p)
		}
		if info, err := os.Stat(p); err != nil || !info.Mode().IsRegular() {
			return File{Source: "error"}, configError(nil, "%s=%q is no existing file; correct the path or unset the variable", configVar, c.envVar(configVar))
		}
		return File{Path: c.envVar(configVar), Source: "env"}, nil
	}
	for _, p := range c.candidates() {
		if info, err := os.Stat(p); err == nil && !info.IsDir() {
			return File{Path: p, Source: "walk-up"}, nil
		}
	}
	return File{Source: "none"}, nil
}

// candidates are the files that the walk up from the working directory considers.
func (c *Config) candidates() []string {
	var out []string
	for dir := c.cwd; ; dir = filepath.Dir(dir) {
		out = append(out, filepath.Join(dir, ".agentenv", "config.toml"))
		if dir == filepath.Dir(dir) {
			return out
		}
	}
}

// configError is an error of the class that records and messages know for a wrong configuration.
func configError(err error, format string, args ...any) error {
	if err != nil {
		return fault.Wrap(fault.Invalid, err, format, args...).WithClass("ConfigError")
	}
	return fault.New(fault.Invalid, format, args...).WithClass("ConfigError")
}

func read(path string) (*doc.Object, *outline, error) {
	none, nowhere := &doc.Object{}, &outline{}
	f, err := os.Open(path)
	if err != nil {
		what := "cannot be read"
		if errors.Is(err, fs.ErrNotExist) {
			what = "has gone since it was found"
		}
		return none, nowhere, configError(err, "config file %s %s", path, what)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	switch {
	case err != nil:
		return none, nowhere, configError(err, "config file %s cannot be read", path)
	case len(text) > maxFile:
		return none, nowhere, configError(nil, "config file %s is larger than %d MiB", path, maxFile>>20)
	}
	text = []byte(strings.TrimPrefix(string(text), "\ufeff"))
	if !utf8.Valid(text) {
		return none, nowhere, configError(nil, "config file %s is not UTF-8 text", path)
	}
	d, where, err := parse(text)
	if err != nil {
		return none, nowhere, configError(err, "Malformed config file %s", path)
	}
	return d, where, nil
}

// File returns where the configuration comes from.
func (c *Config) File() File { return c.file }

// Err returns what is wrong with the file as a whole, nil when it was found and parsed, or when there is none.
func (c *Config) Err() error {
	if c.findErr != nil {
		return c.findErr
	}
	return c.fileErr
}

// Section returns the table at a dotted path ("sandbox", "stores.document"), empty when there is none. References in it are
// as written. The error is of class ConfigError: a broken file, or a component that is no table.
func (c *Config) Section(path string) (*doc.Object, error) {
	if err := c.Err(); err != nil {
		return nil, err
	}
	t := c.doc
	var at []string
	for _, k := range strings.Split(path, ".") {
		at = append(at, k)
		v, there := t.Get(k)
		if !there {
			return &doc.Object{}, nil
		}
		next, ok := v.(*doc.Object)
		if !ok {
			return nil, configError(nil, "%s must be a table, got %s", label(at...), typeName(v))
		}
		t = next
	}
	return t, nil
}

// StateRoot returns the folder for everything agent-env remembers on this machine, which it does not create:
// $XDG_STATE_HOME/agent-env when that variable is an absolute path, else ~/.local/state/agent-env. The error is of class
// ConfigError: no home folder is known.
func StateRoot(env Env) (string, error) {
	if x, _ := env("XDG_STATE_HOME"); filepath.IsAbs(x) {
		return filepath.Join(x, "agent-env"), nil
	}
	home, _ := env("HOME")
	if !filepath.IsAbs(home) {
		var err error
		if home, err = os.UserHomeDir(); err != nil {
			return "", configError(err, "the state folder is unknown: set HOME, or XDG_STATE_HOME to an absolute path")
		}
	}
	return filepath.Join(home, ".local", "state", "agent-env"), nil
}

// StateRoot is the function StateRoot under this configuration's environment.
func (c *Config) StateRoot() (string, error) { return StateRoot(c.env) }
