//go:build integration

package e2e_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"agentenv/test/kit"
)

// several is a bundle of three tasks and two evals.
func (k *user) several() string {
	k.T.Helper()
	one := func(pass string) string {
		b, err := json.Marshal(steps{host("box"), verify("v", "box", "/", sh(pass))})
		if err != nil {
			k.T.Fatal(err)
		}
		return string(b)
	}
	dir := filepath.Join(k.Home, "several")
	kit.Write(k.T, dir, kit.Files{"tasks/good.json": one("true"), "tasks/bad.json": one("false"), "tasks/other.json": one("true"),
		"evals/all.toml": "tasks = [\"good\", \"bad\"]\n", "evals/one.toml": "tasks = [\"good\"]\n"})
	return dir
}

func TestSelection(t *testing.T) {
	t.Parallel()
	k := newUser(t)
	dir := k.several()
	for args, want := range map[string]string{
		"":                         "tasks/bad.json scored below 1, tasks/good.json passed",
		"--task other":             "tasks/other.json passed",
		"--task other --task good": "tasks/good.json passed, tasks/other.json passed",
		"--eval one":               "tasks/good.json passed",
		"--eval one --task other":  "tasks/good.json passed, tasks/other.json passed",
	} {
		s, r := k.summed(append([]string{dir}, strings.Fields(args)...)...)
		var got []string
		for _, task := range s.Tasks {
			got = append(got, task.Task+" "+task.Outcome)
		}
		if strings.Join(got, ", ") != want || r.Code != 0 {
			t.Errorf("%q ran %v, want %s\n%s", args, got, want, r)
		}
	}
	out := k.ok("run", dir)
	for _, line := range []string{"evals/all.toml v1: 1 of 2 passed", "evals/one.toml v1: 1 of 1 passed", "tasks/other.json isn't named by any eval", "scored below 1 (v: 0)", "Tore down 2 sandboxes."} {
		if !strings.Contains(out, line) {
			t.Errorf("%q is not in\n%s", line, out)
		}
	}
}

// TestDryRun writes nothing at all: not on a fresh machine, not where there is something.
func TestDryRun(t *testing.T) {
	pythonSlim(t)
	t.Parallel()
	k := newUser(t)
	dir := k.several()
	// This one has an image to build.
	image := k.bundle("dry", steps{box("busybox")}, kit.Files{"artifacts/busybox/Dockerfile": "FROM scratch\n"})
	for _, bundle := range []string{dir, image, "hello", "container-files"} {
		for _, first := range []string{"before anything ran", "after a run"} {
			before, engine := k.everything(), k.engineState("dry")
			out := k.ok("run", bundle, "--dry-run")
			if !strings.Contains(out, "Dry run: nothing is written or run.") || !strings.Contains(out, "Would run:") || strings.Contains(out, "step 1/") {
				t.Errorf("%s: %s", bundle, out)
			}
			if after := k.everything(); after != before {
				t.Errorf("%s, %s: something was written: %s\n---\n%s", bundle, first, before, after)
			}
			if after := k.engineState("dry"); after != engine {
				t.Errorf("%s, %s: the engine changed", bundle, first)
			}
			if bundle == dir {
				k.ok("run", bundle, "--task", "good")
			}
		}
	}
}

// TestKeep holds what a run deployed until a signal comes.
func TestKeep(t *testing.T) {
	image := busybox(t)
	for target, b := range map[string]map[string]any{"vm": host("box"), "local": box(image), "docker": box(image)} {
		t.Run(target, func(t *testing.T) {
			t.Parallel()
			k := newUser(t)
			b["sandbox_type"] = strings.Replace(target, "vm", "local", 1)
			p := k.start("run", k.bundle("keep", steps{b}, nil), "--keep")
			defer p.kill()
			p.waitFor("Holding 1 sandbox up")
			if ids := k.listed(); len(ids) != 1 || !strings.Contains(p.text(), ids[0]) {
				t.Errorf("listed: %v\n%s", ids, p.text())
			}
			if r := k.run("sandbox", "prune", "--yes"); r.Code != 0 || len(k.listed()) != 1 {
				t.Errorf("prune removed what a living process holds: %s", r)
			}
			p.signal(syscall.SIGTERM)
			if code := p.wait(); code != 0 && code != 143 {
				t.Errorf("exit code %d\n%s", code, p.text())
			}
			if left := k.leftovers(); left != "" {
				t.Errorf("left behind: %s", left)
			}
		})
	}
}

// TestJSON has one document on standard output and everything else on standard error, and it outlives a reader that goes away.
func TestJSON(t *testing.T) {
	t.Parallel()
	k := newUser(t)
	s, r := k.summed(k.several())
	if !strings.Contains(r.Stderr, "step 1/2 box (deploy_sandbox)") || s.ExitCode != r.Code || len(s.Tasks) != 2 || len(s.TornDown) != 2 {
		t.Error(r)
	}
	for _, args := range [][]string{{"run", "hello"}, {"run", "hello", "--json"}} {
		read, write, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		read.Close()
		cmd := k.command(args...)
		cmd.Stdout = write
		r := kit.Finish(t, cmd)
		write.Close()
		if r.Code != 0 && r.Code != 1 || strings.Contains(r.Stderr, "panic") {
			t.Errorf("%v with a closed standard output: %s", args, r)
		}
		if left := k.leftovers(); left != "" {
			t.Errorf("left behind: %s", left)
		}
	}
	db := k.statuses()
	if len(db) != 4 || strings.Join(db, " ") != "completed completed completed completed" {
		t.Errorf("the runs ended as %v", db)
	}
}

// TestQueue runs 500 tasks where few sandboxes may be up: they wait for one another.
func TestQueue(t *testing.T) {
	k := newUser(t)
	dir := filepath.Join(k.Home, "many")
	text, err := json.Marshal(steps{host("box"), verify("v", "box", "/", sh("true"))})
	if err != nil {
		t.Fatal(err)
	}
	all := kit.Files{}
	for i := range 500 {
		all[fmt.Sprintf("tasks/t%03d.json", i)] = string(text)
	}
	kit.Write(t, dir, all)
	config := filepath.Join(k.Dir, "config.toml")
	if err := os.WriteFile(config, []byte("[plugins.agent-env]\nmax_sandboxes = 5\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	k.Env = []string{"AGENT_ENV_CONFIG=" + config}
	p := k.start("run", dir, "-j", "500")
	defer p.kill()
	most := 0
	for running := true; running; {
		select {
		case <-p.done:
			running = false
		case <-time.After(5 * time.Millisecond):
			entries, _ := os.ReadDir(k.Sandboxes)
			most = max(most, len(entries))
		}
	}
	if code := p.wait(); code != 0 || strings.Count(p.text(), ": passed (v: 1)") != 500 || !strings.Contains(p.text(), "Tore down 500 sandboxes.") {
		t.Errorf("exit code %d, %d passed\n%.2000s", code, strings.Count(p.text(), ": passed (v: 1)"), p.text())
	}
	if most == 0 || most > 5 {
		t.Errorf("%d sandboxes were up at once; 5 may be", most)
	}
	if left := k.leftovers(); left != "" {
		t.Errorf("left behind: %.500s", left)
	}
}

// TestParallel honours -j.
func TestParallel(t *testing.T) {
	t.Parallel()
	k := newUser(t)
	text, err := json.Marshal(steps{host("box"), verify("v", "box", "/app", sh("sleep 0.5"))})
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(k.Home, "four")
	kit.Write(t, dir, kit.Files{"tasks/a.json": string(text), "tasks/b.json": string(text), "tasks/c.json": string(text), "tasks/d.json": string(text)})
	took := func(args ...string) time.Duration {
		begin := time.Now()
		k.ok(append([]string{"run", dir}, args...)...)
		return time.Since(begin)
	}
	one := took("-j", "1")
	if four := took("-j", "4"); one < 2*time.Second || four > one-700*time.Millisecond {
		t.Errorf("one at a time took %s, four at once %s", one, four)
	}
}

// TestLogNamedOnFailure prints where the log of a failed run is, and its log says what failed.
func TestLogNamedOnFailure(t *testing.T) {
	t.Parallel()
	k := newUser(t)
	dir := k.bundle("fails", steps{host("box"), collect("out", "box", "/app", "zz")}, nil)
	r := k.run("run", dir)
	_, rest, found := strings.Cut(r.Stderr, "log of tasks/t.json: ")
	if !found || r.Code != 1 {
		t.Fatal(r)
	}
	file, rest, _ := strings.Cut(rest, "\n")
	if !strings.Contains(rest, "agent-env run --resume ") {
		t.Errorf("it does not say how to go on: %s", rest)
	}
	text, err := os.ReadFile(file)
	if err != nil || !strings.Contains(string(text), "zz") {
		t.Errorf("%v\n%s", err, text)
	}
	if !strings.Contains(r.Stdout, "tasks/t.json v1: failed at step 'out': RuntimeError: ") {
		t.Errorf("the summary: %s", r.Stdout)
	}
	if r := k.run("run", "hello"); strings.Contains(r.Stderr, "log of") {
		t.Errorf("a run that passed names its log: %s", r)
	}
}

// TestNoColour has no escape sequences where standard output is no terminal, nor with NO_COLOR.
func TestNoColour(t *testing.T) {
	t.Parallel()
	k := newUser(t)
	k.Env = []string{"NO_COLOR=1", "TERM=xterm-256color"}
	for _, args := range [][]string{{"run", "hello"}, {"doctor"}, {"steps", "list"}, {"sandbox", "list"}, {"run"}} {
		if r := k.run(args...); strings.Contains(r.Stdout+r.Stderr, "\x1b") {
			t.Errorf("%v: %q", args, r.Stdout+r.Stderr)
		}
	}
}
