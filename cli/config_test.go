package cli_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"agentenv/cli"
	"agentenv/config"
	"agentenv/store/doc"
)

func TestConfigCommands(t *testing.T) {
	const sound, warned, broken = "[model]\nbase_url = \"https://m\"\n", "[modle]\nbase_url = \"https://m\"\n", "[model\n"
	tests := []struct {
		name, file string
		args       []string
		code       int
		out, errs  string // what stdout and stderr hold
	}{
		{"show", sound, []string{"show"}, 0, "base_url=https://m", ""},
		{"show, broken", broken, []string{"show"}, 0, "malformed TOML", ""},
		{"explain", sound, []string{"explain", "model.base_url"}, 0, "from [model.base_url]", ""},
		{"explain nothing", sound, []string{"explain"}, 2, "", "Usage: agent-env config explain PATH"},
		{"sources", sound, []string{"sources"}, 0, "$AGENT_ENV_RUNNER -> [runner]", ""},
		{"debug", sound, []string{"debug"}, 0, "(walk-up, exists: yes)", ""},
		{"check", sound, []string{"check"}, 0, "ok: ", ""},
		{"check, warned", warned, []string{"check"}, 1, "warning: [modle]", ""},
		{"check, broken", broken, []string{"check"}, 1, "error: config file", ""},
		{"no command", sound, nil, 2, "", "Usage:"},
		{"unknown command", sound, []string{"nope"}, 2, "", "nope"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			code, out, errs := runConfig(t, test.file, test.args...)
			if code != test.code || !strings.Contains(out, test.out) || !strings.Contains(errs, test.errs) {
				t.Errorf("exit %d, want %d\nstdout: %s\nstderr: %s", code, test.code, out, errs)
			}
		})
	}
	for _, args := range [][]string{{"show"}, {"explain", "model"}, {"sources"}, {"debug"}, {"check"}} {
		for _, file := range []string{sound, warned, broken} {
			_, out, _ := runConfig(t, file, append(args, "--json")...)
			if _, err := doc.ParseObject([]byte(out), doc.Options{}); err != nil {
				t.Errorf("%v --json: %v\n%s", args, err, out)
			}
		}
	}
}

func runConfig(t *testing.T, file string, args ...string) (code int, out, errs string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, ".agentenv"), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, ".agentenv", "config.toml"), []byte(file), 0o666); err != nil {
		t.Fatal(err)
	}
	env := func(name string) string { return map[string]string{"HOME": dir}[name] }
	var stdout, stderr strings.Builder
	app := &cli.App{Version: "test", Env: env, Dir: dir, Stdin: strings.NewReader(""), Stdout: &stdout, Stderr: &stderr,
		Config: func() *config.Config {
			c := config.Load(func(name string) (string, bool) { v := env(name); return v, v != "" }, dir)
			c.Providers([]string{"local"})
			c.Backends(localBackends())
			return c
		}}
	code = app.Run(context.Background(), append([]string{"config"}, args...))
	return code, stdout.String(), stderr.String()
}

func localBackends() []config.Backend {
	var out []config.Backend
	for seam, class := range map[string]string{"document": "LocalSqliteDocumentStore", "object": "LocalFilesystemObjectStore", "image": "LocalRegistryImageStore",
		"secret": "LocalSecretStore", "runner": "LocalRunner"} {
		out = append(out, config.Backend{Seam: seam, Name: seam, Pointers: config.ReferencePointers(class),
			Keys: []config.Key{{Name: "path"}, {Name: "root"}, {Name: "registry_host"}}})
	}
	return out
}
