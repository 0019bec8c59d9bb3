//go:build integration

package e2e_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// kit is one user of the program: a home, a state folder, a folder of local sandboxes and a folder for temporary files.
type kit struct {
	t         testing.TB
	dir       string // above all of the others
	home      string
	state     string
	sandboxes string
	tmp       string
	env       []string // added last
}

func newKit(t testing.TB) *kit {
	t.Helper()
	dir := t.TempDir()
	k := &kit{t: t, dir: dir, home: filepath.Join(dir, "home"), state: filepath.Join(dir, "state", "agent-env"),
		sandboxes: filepath.Join(dir, "sandboxes"), tmp: filepath.Join(dir, "tmp")}
	for _, d := range []string{k.home, k.tmp} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return k
}

// environ is the environment of the kit's processes: nothing of the machine's user but the path and the engine.
func (k *kit) environ() []string {
	env := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + k.home, "XDG_STATE_HOME=" + filepath.Dir(k.state), "AGENT_ENV_LOCAL_SANDBOX_DIR=" + k.sandboxes,
		"TMPDIR=" + k.tmp, "LANG=C.UTF-8", "TZ=UTC"}
	for _, name := range []string{"DOCKER_HOST", "DOCKER_CERT_PATH", "DOCKER_TLS_VERIFY"} {
		if v := os.Getenv(name); v != "" {
			env = append(env, name+"="+v)
		}
	}
	return append(env, k.env...)
}

func (k *kit) command(args ...string) *exec.Cmd {
	cmd := exec.CommandContext(k.t.Context(), program, args...)
	cmd.Dir, cmd.Env = k.home, k.environ()
	return cmd
}

// result is how a process ended.
type result struct {
	code           int
	stdout, stderr string
}

func (r result) String() string {
	return fmt.Sprintf("exit code %d\n--- stdout\n%s--- stderr\n%s", r.code, r.stdout, r.stderr)
}

// run runs the program to its end.
func (k *kit) run(args ...string) result {
	k.t.Helper()
	return finish(k.t, k.command(args...))
}

func finish(t testing.TB, cmd *exec.Cmd) result {
	t.Helper()
	var out, errs bytes.Buffer
	if cmd.Stdout == nil {
		cmd.Stdout = &out
	}
	cmd.Stderr = &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return result{cmd.ProcessState.ExitCode(), out.String(), errs.String()}
}

// ok runs the program, which must succeed, and returns its standard output.
func (k *kit) ok(args ...string) string {
	k.t.Helper()
	r := k.run(args...)
	if r.code != 0 {
		k.t.Fatalf("agent-env %s: %s", strings.Join(args, " "), r)
	}
	return r.stdout
}

// summary is the document that `run --json` prints.
type summary struct {
	ExitCode int `json:"exit_code"`
	Tasks    []struct {
		Task, Outcome, Class, Instance string
		Scores                         []struct {
			Step  string
			Value float64
		}
		Failures []struct {
			Step, Type, Error string
			Class             string `json:"error_class"`
			Fatal             bool
		}
		Started bool
	}
	TornDown []struct{ ID string } `json:"torn_down"`
	StillUp  []struct{ ID string } `json:"still_up"`
	Signal   string
}

// summed runs a bundle with --json.
func (k *kit) summed(args ...string) (*summary, result) {
	k.t.Helper()
	r := k.run(append([]string{"run", "--json"}, args...)...)
	var s summary
	if err := json.Unmarshal([]byte(r.stdout), &s); err != nil {
		k.t.Fatalf("standard output is no JSON document: %v\n%s", err, r)
	}
	return &s, r
}

// passes runs a bundle of one task, which must pass with score 1, and returns the run's record.
func (k *kit) passes(args ...string) doc {
	k.t.Helper()
	s, r := k.summed(args...)
	if r.code != 0 || len(s.Tasks) != 1 || s.Tasks[0].Outcome != "passed" || len(s.StillUp) != 0 {
		d := ""
		if len(s.Tasks) == 1 && s.Tasks[0].Instance != "" {
			d = k.ok("task", "get-instance", "--json", "--id", s.Tasks[0].Instance)
		}
		k.t.Fatalf("%s\n%s", r, d)
	}
	return k.instance(s.Tasks[0].Instance)
}

// instance reads the record of a run.
func (k *kit) instance(id string) doc {
	k.t.Helper()
	return parse(k.t, k.ok("task", "get-instance", "--json", "--id", id))
}

// doc is a JSON document or a part of one.
type doc struct{ v any }

func parse(t testing.TB, text string) doc {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("no JSON document: %v\n%s", err, text)
	}
	return doc{v}
}

// at follows keys (string) and positions (int); what is not there is null.
func (d doc) at(path ...any) doc {
	for _, p := range path {
		switch p := p.(type) {
		case string:
			m, _ := d.v.(map[string]any)
			d = doc{m[p]}
		case int:
			l, _ := d.v.([]any)
			if p < 0 || p >= len(l) {
				return doc{}
			}
			d = doc{l[p]}
		}
	}
	return d
}

func (d doc) str(path ...any) string { s, _ := d.at(path...).v.(string); return s }

func (d doc) num(path ...any) float64 { f, _ := d.at(path...).v.(float64); return f }

func (d doc) len() int { l, _ := d.v.([]any); return len(l) }

// keys returns an object's keys, sorted.
func (d doc) keys() []string {
	m, _ := d.v.(map[string]any)
	var out []string
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

func (d doc) String() string {
	b, _ := json.MarshalIndent(d.v, "", " ")
	return string(b)
}

// steps is a task file.
type steps []map[string]any

// with returns the steps followed by others.
func (s steps) with(more ...map[string]any) steps { return append(slices.Clone(s), more...) }

// files maps a slash path to content; "+x" in front makes it executable, "->" a link.
type files map[string]string

// bundle writes a bundle with one task into the home and returns its folder.
func (k *kit) bundle(name string, task steps, more files) string {
	k.t.Helper()
	b, err := json.MarshalIndent(task, "", "  ")
	if err != nil {
		k.t.Fatal(err)
	}
	dir := filepath.Join(k.home, name)
	write(k.t, dir, files{"tasks/t.json": string(b)})
	write(k.t, dir, more)
	return dir
}

func write(t testing.TB, dir string, all files) {
	t.Helper()
	for name, text := range all {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		switch {
		case strings.HasPrefix(text, "->"):
			err = os.Symlink(text[2:], p)
		case strings.HasPrefix(text, "+x"):
			err = os.WriteFile(p, []byte(text[2:]), 0o755)
		default:
			err = os.WriteFile(p, []byte(text), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// collected downloads a collected artifact and returns its files.
func (k *kit) collected(id string) files {
	k.t.Helper()
	into := filepath.Join(k.t.TempDir(), "out")
	k.ok("artifact", "file-artifact-universe", "get", "--id", id, "--output-dir", into)
	return read(k.t, into)
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

// same compares what was collected with what is wanted.
func same(t testing.TB, got, want files) {
	t.Helper()
	for name, text := range want {
		text = strings.TrimPrefix(text, "+x")
		if have, there := got[name]; !there {
			t.Errorf("%q was not collected", name)
		} else if have != text {
			t.Errorf("%q holds %d bytes (%.60q), not %d (%.60q)", name, len(have), have, len(text), text)
		}
	}
	for name := range got {
		if _, there := want[name]; !there {
			t.Errorf("%q was collected too", name)
		}
	}
}

// prints describes a folder for a comparison before and after: names, kinds, modes, sizes, digests of files.
func prints(t testing.TB, dir string) string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		line := fmt.Sprintf("%s %s", p, info.Mode())
		if info.Mode().IsRegular() {
			b, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			sum := sha256.Sum256(b)
			line += fmt.Sprintf(" %d %x", len(b), sum[:6])
		}
		out = append(out, line)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(out, "\n")
}

// mark is what the kit's sandboxes carry in their labels.
func (k *kit) mark() string {
	state := k.state
	if real, err := filepath.EvalSymlinks(state); err == nil {
		state = real
	}
	sum := sha256.Sum256([]byte(state))
	return hex.EncodeToString(sum[:8])
}

// eventually waits until what returns "".
func eventually(t testing.TB, what func() string) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for {
		why := what()
		if why == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(why)
		}
		time.Sleep(50 * time.Millisecond)
	}
}
