//go:build integration

package e2e_test

import (
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

	"agentenv/test/kit"
)

// user is a user of the program under test.
type user struct{ *kit.User }

func newUser(t testing.TB) *user {
	t.Helper()
	return &user{kit.NewUser(t)}
}

func (k *user) command(args ...string) *exec.Cmd { return k.Command(program, args...) }

// run runs the program to its end.
func (k *user) run(args ...string) kit.Result {
	k.T.Helper()
	return k.Run(program, args...)
}

// ok runs the program, which must succeed, and returns its standard output.
func (k *user) ok(args ...string) string {
	k.T.Helper()
	return k.OK(program, args...)
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
func (k *user) summed(args ...string) (*summary, kit.Result) {
	k.T.Helper()
	r := k.run(append([]string{"run", "--json"}, args...)...)
	var s summary
	if err := json.Unmarshal([]byte(r.Stdout), &s); err != nil {
		k.T.Fatalf("standard output is no JSON document: %v\n%s", err, r)
	}
	return &s, r
}

// passes runs a bundle of one task, which must pass with score 1, and returns the run's record.
func (k *user) passes(args ...string) doc {
	k.T.Helper()
	s, r := k.summed(args...)
	if r.Code != 0 || len(s.Tasks) != 1 || s.Tasks[0].Outcome != "passed" || len(s.StillUp) != 0 {
		d := ""
		if len(s.Tasks) == 1 && s.Tasks[0].Instance != "" {
			d = k.ok("task", "get-instance", "--json", "--id", s.Tasks[0].Instance)
		}
		k.T.Fatalf("%s\n%s", r, d)
	}
	return k.instance(s.Tasks[0].Instance)
}

// instance reads the record of a run.
func (k *user) instance(id string) doc {
	k.T.Helper()
	return parse(k.T, k.ok("task", "get-instance", "--json", "--id", id))
}

// doc is a JSON document or a part of one.
type doc struct{ v any }

func parse(t testing.TB, text string) doc {
	t.Helper()
	return doc{kit.Parse(t, text)}
}

// at follows keys (string) and positions (int); what is not there is null.
func (d doc) at(path ...any) doc { return doc{kit.At(d.v, path...)} }

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

// bundle writes a bundle with one task into the home and returns its folder.
func (k *user) bundle(name string, task steps, more kit.Files) string {
	k.T.Helper()
	b, err := json.MarshalIndent(task, "", "  ")
	if err != nil {
		k.T.Fatal(err)
	}
	dir := filepath.Join(k.Home, name)
	kit.Write(k.T, dir, kit.Files{"tasks/t.json": string(b)})
	kit.Write(k.T, dir, more)
	return dir
}

// collected downloads a collected artifact and returns its files.
func (k *user) collected(id string) kit.Files {
	k.T.Helper()
	into := filepath.Join(k.T.TempDir(), "out")
	k.ok("artifact", "file-artifact-universe", "get", "--id", id, "--output-dir", into)
	return kit.Read(k.T, into)
}

// same compares what was collected with what is wanted.
func same(t testing.TB, got, want kit.Files) {
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

// mark is what the user's sandboxes carry in their labels.
func (k *user) mark() string {
	state := k.State
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
