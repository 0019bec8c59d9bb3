package main

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"agentenv/cli"
	"agentenv/config"
	"agentenv/fault"
	"agentenv/sandbox/engine"
	"agentenv/store/object"
)

// TestGrantsOfTheConfiguration reads the keys of the local object store; nothing listens before the first grant.
func TestGrantsOfTheConfiguration(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		toml   string
		issued bool
		says   string
	}{
		"default":     {issued: true},
		"off":         {toml: `grants = "off"`},
		"auto":        {toml: "grants = \"auto\"\ngrant_bind_host = \"127.0.0.1\"\ngrant_advertise_host = \"x.localhost\"\ngrant_lifetime_seconds = 900", issued: true},
		"neither":     {toml: `grants = "on"`, says: `must be "auto" or "off"`},
		"bind":        {toml: `grant_bind_host = "elsewhere"`, says: "grant_bind_host"},
		"advertise":   {toml: `grant_advertise_host = "example.com"`, says: "grant_advertise_host"},
		"short":       {toml: `grant_lifetime_seconds = 899`, says: "899"},
		"long":        {toml: `grant_lifetime_seconds = 99999999999`, says: "99999999999"},
		"no duration": {toml: `grant_lifetime_seconds = "x"`, says: "grant_lifetime_seconds is x"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			file := filepath.Join(dir, "config.toml")
			text := "[stores.object]\nimpl = \"agent_env.store.object_store:LocalFilesystemObjectStore\"\n[stores.object.config]\nroot = \"" + filepath.Join(dir, "objects") + "\"\n" + c.toml + "\n"
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			env := map[string]string{"AGENT_ENV_CONFIG": file, "XDG_STATE_HOME": dir, "HOME": dir}
			conf := config.Load(func(k string) (string, bool) { v, ok := env[k]; return v, ok }, dir)
			conf.Backends(backends())
			objects, parts, err := openObjects(conf)
			if err != nil {
				t.Fatal(err)
			}
			s := &cli.Services{Closers: []func() error{objects.Close}}
			g, err := openGrants(conf, s, parts, &engine.Lazy{}, slog.New(slog.DiscardHandler))
			defer func() {
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			}()
			if c.says != "" {
				if !fault.Is(err, fault.Invalid) || fault.ClassOf(err) != "ConfigError" || !strings.Contains(err.Error(), c.says) {
					t.Errorf("%v (%s), not %q", err, fault.ClassOf(err), c.says)
				}
				return
			}
			url, uerr := objects.URL("x")
			if err != nil || uerr != nil || len(g.stores) != 2 {
				t.Fatal(err, uerr, g.stores)
			}
			got := object.GrantsFor(g.stores, url)
			if (got != nil) != c.issued {
				t.Fatal(got)
			}
			if got != nil && name == "auto" {
				if grant, err := got.Read(t.Context(), url, 0); err != nil || !strings.HasPrefix(grant.URL, "https://x.localhost:") || got.Lifetime() != 15*time.Minute {
					t.Error(err)
				}
			}
		})
	}
}
