//go:build integration

package interop_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The two programs under test.
var ours, reference string

func TestMain(m *testing.M) { os.Exit(buildAndRun(m)) }

func buildAndRun(m *testing.M) int {
	if reference = os.Getenv("AGENT_ENV_REFERENCE"); reference == "" {
		fmt.Fprintln(os.Stderr, "AGENT_ENV_REFERENCE must name the reference's program; make test installs it")
		return 1
	}
	dir, err := os.MkdirTemp("", "agentenv-interop-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	ours = filepath.Join(dir, "agent-env")
	build := exec.Command("go", "build", "-o", ours, "agentenv/cmd/agent-env")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "go build: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// user is a home and a state folder, which either program may use.
type user struct {
	t               testing.TB
	dir, home, base string
}

func newUser(t testing.TB) *user {
	t.Helper()
	dir := t.TempDir()
	u := &user{t: t, dir: dir, home: filepath.Join(dir, "home"), base: filepath.Join(dir, "state")}
	if err := os.MkdirAll(u.home, 0o755); err != nil {
		t.Fatal(err)
	}
	return u
}

// state is the state folder.
func (u *user) state() string { return filepath.Join(u.base, "agent-env") }

// result is how a process ended.
type result struct {
	code           int
	stdout, stderr string
}

func (r result) String() string {
	return fmt.Sprintf("exit code %d\n--- stdout\n%s--- stderr\n%s", r.code, r.stdout, r.stderr)
}

func (u *user) command(program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(u.t.Context(), program, args...)
	cmd.Dir = u.home
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + u.home, "XDG_STATE_HOME=" + u.base, "NO_COLOR=1", "LANG=C.UTF-8",
		"AGENT_ENV_LOCAL_SANDBOX_DIR=" + filepath.Join(u.dir, "sandboxes")}
	if h := os.Getenv("DOCKER_HOST"); h != "" {
		cmd.Env = append(cmd.Env, "DOCKER_HOST="+h)
	}
	return cmd
}

func (u *user) run(program string, args ...string) result {
	u.t.Helper()
	cmd := u.command(program, args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		u.t.Fatal(err)
	}
	return result{cmd.ProcessState.ExitCode(), out.String(), errs.String()}
}

// ok runs a program, which must succeed, and returns its standard output.
func (u *user) ok(program string, args ...string) string {
	u.t.Helper()
	r := u.run(program, args...)
	if r.code != 0 {
		u.t.Fatalf("%s %s: %s", name(program), strings.Join(args, " "), r)
	}
	return r.stdout
}

func name(program string) string {
	if program == ours {
		return "ours"
	}
	return "the reference"
}

// files maps a slash path to content.
type files map[string]string

func write(t testing.TB, dir string, all files) string {
	t.Helper()
	for name, text := range all {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// read returns every file below a folder.
func read(t testing.TB, dir string) files {
	t.Helper()
	out := files{}
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, _ := filepath.Rel(dir, p)
		b, err := os.ReadFile(p)
		out[filepath.ToSlash(rel)] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func parse(t testing.TB, text string) any {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("no JSON: %v\n%s", err, text)
	}
	return v
}

// at follows keys and positions; what is not there is nil.
func at(v any, path ...any) any {
	for _, p := range path {
		switch p := p.(type) {
		case string:
			m, _ := v.(map[string]any)
			v = m[p]
		case int:
			l, _ := v.([]any)
			if p >= len(l) {
				return nil
			}
			v = l[p]
		}
	}
	return v
}
