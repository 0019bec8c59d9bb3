package bundle_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"agentenv/bundle"
	"agentenv/fault"
	"agentenv/store"
	"agentenv/store/doc"
	"agentenv/store/document"
	"agentenv/task"
)

func open(body string) func(context.Context) (io.ReadCloser, error) {
	return func(context.Context) (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(body)), nil }
}

func lock(t testing.TB, state, id string) func() {
	t.Helper()
	release, err := store.LockEntities(t.Context(), state, []string{id}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return release
}

var (
	seconds  = regexp.MustCompile(`\d+\.\ds`)
	instance = regexp.MustCompile(`instance (@local/\S+)-[a-z0-9]{8}`)
)

// steady replaces what differs from run to run.
func steady(s string) string {
	return instance.ReplaceAllString(seconds.ReplaceAllString(s, "Ts"), "instance $1-X")
}

func TestRun(t *testing.T) {
	k := newKit(t)
	dir := k.files(t, "p", map[string]string{
		"tasks/bad.json":   "[" + vm + `,{"id":"l","type":"load_artifact","artifacts":[],"sandbox_name":"c"},` + score("1") + "]",
		"tasks/below.json": "[" + vm + "," + score("0.5") + "]",
		"tasks/ok.json":    "[" + vm + "," + score("1") + "]",
		"tasks/uns.json":   "[" + vm + "]",
		"tasks/idle.json":  "[" + vm + "]",
		"evals/e.toml":     `tasks = ["ok", "below", "bad"]`, "evals/f.toml": `tasks = ["ok", "uns"]`,
	})
	p, _ := k.write(t, dir, bundle.Selection{})
	var out, notes bytes.Buffer
	sum := p.Run(t.Context(), k.options(bundle.RunOptions{Parallel: 1, Progress: bundle.NewLines(&out, &notes), Model: "m", UserModel: "u"}))
	want := `
Tasks:
  tasks/bad.json v1: failed at step 'l': RuntimeError: no sandbox named "c"; deployed before this step: b, Ts, instance @local/~/p/bad-X
  tasks/below.json v1: scored below 1 (v: 0.5), Ts, instance @local/~/p/below-X
  tasks/ok.json v1: passed (v: 1), Ts, instance @local/~/p/ok-X
  tasks/uns.json v1: unscored, Ts, instance @local/~/p/uns-X
Evals:
  evals/e.toml v1: 1 of 3 passed, 1 failed
  evals/f.toml v1: 1 of 2 passed
tasks/idle.json isn't named by any eval, so it didn't run; run it with --task idle
Results:
  1 of 2 counted runs passed: pass rate 0.5 (95 % interval 0.0945 to 0.905)
  runs: 4; counted: 2 completed; left out: 1 configuration, 1 completed unscored
  mean score 0.75
  time: Ts in all, mean Ts, p50 Ts, p95 Ts
  over 2 tasks: pass rate 0.5 (95 % interval 0 to 1); mean score 0.75 (95 % interval 0 to 1)
`
	got := steady(sum.Text())
	if got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	if sum.ExitCode() != 1 || sum.TeardownText() != "\nTore down 4 sandboxes.\n" || len(k.down.ended) != 4 {
		t.Errorf("exit %d, %q, ended %v", sum.ExitCode(), sum.TeardownText(), k.down.ended)
	}
	progress := steady(out.String())
	for _, line := range []string{"[tasks/ok.json] step 1/2 b (deploy_sandbox)\n", "[tasks/ok.json] step 1/2 b done in Ts\n", "[tasks/ok.json] step 2/2 v (score)\n",
		"[tasks/ok.json] passed in Ts\n", "[tasks/bad.json] failed in Ts\n", "[tasks/below.json] scored below 1 in Ts\n", "[tasks/uns.json] unscored in Ts\n"} {
		if !strings.Contains(progress, line) {
			t.Errorf("no line %q in\n%s", line, progress)
		}
	}
	if strings.Contains(progress, "step 2/3 l done") {
		t.Error("a failed step is said to be done")
	}
	d := sum.Document()
	text, err := doc.MarshalIndent(d)
	if err != nil || d.Obj("tally").Obj("total").Obj("pass_rate").Value("value") != doc.Float(0.5) || len(d.Arr("tasks")) != 4 || d.Arr("tasks")[2].(*doc.Object).Str("outcome") != "passed" || len(d.Arr("torn_down")) != 4 {
		t.Errorf("%v\n%s", err, text)
	}
	inst, err := k.docs.FindOne(t.Context(), "task_instances", document.By("task_id", "@local/~/p/ok"))
	if err != nil || inst == nil {
		t.Fatal(inst, err)
	}
	meta := inst.Obj("context").Obj("metadata")
	if meta.Str("run_group_id") != sum.RunGroup || len(sum.RunGroup) != 32 || meta.Str("task_id") != "@local/~/p/ok" || meta.Obj("user_overrides").Str("user_model") != "u" || inst.Obj("context").Str("agent_model") != "m" {
		t.Errorf("the instance's metadata is %v", meta)
	}
}

func TestRunSignals(t *testing.T) {
	k := newKit(t)
	dir := k.files(t, "p", map[string]string{"tasks/a.json": "[" + vm + `,{"id":"w","type":"wait"}]`, "tasks/b.json": "[" + vm + "]"})
	p, _ := k.write(t, dir, bundle.Selection{})
	signals := make(chan os.Signal, 2)
	var out, notes bytes.Buffer
	pr := &signalAt{Lines: bundle.NewLines(&out, &notes), at: "w", ch: signals}
	sum := p.Run(t.Context(), k.options(bundle.RunOptions{Parallel: 1, Progress: pr, Signals: signals}))
	if sum.ExitCode() != 143 {
		t.Errorf("exit code %d", sum.ExitCode())
	}
	text := steady(sum.Text())
	if !strings.Contains(text, "tasks/a.json v1: cancelled, Ts, instance @local/~/p/a-X\n") || !strings.Contains(text, "tasks/b.json v1: cancelled, didn't start\n") {
		t.Error(text)
	}
	if len(k.down.ended) != 1 || !strings.Contains(notes.String(), "Cancelling: tearing down 1 run (Ctrl-C again to stop now)") {
		t.Errorf("ended %v, notes %s", k.down.ended, notes.String())
	}
	inst, err := k.docs.FindOne(t.Context(), "task_instances", document.By("task_id", "@local/~/p/a"))
	if err != nil || inst.Str("status") != "cancelled" || inst.Str("error") != "cancelled by SIGTERM" {
		t.Errorf("the instance is %q, %q, %v", inst.Str("status"), inst.Str("error"), err)
	}
}

// signalAt sends SIGTERM when a step begins.
type signalAt struct {
	*bundle.Lines
	at string
	ch chan<- os.Signal
}

func (s *signalAt) StepStarted(path string, e task.Event) {
	s.Lines.StepStarted(path, e)
	if e.StepID == s.at {
		s.ch <- syscall.SIGTERM
	}
}

func TestKeep(t *testing.T) {
	k := newKit(t)
	dir := k.files(t, "p", map[string]string{"tasks/a.json": "[" + vm + "]"})
	p, _ := k.write(t, dir, bundle.Selection{})
	signals := make(chan os.Signal, 1)
	sum := p.Run(t.Context(), k.options(bundle.RunOptions{Keep: true, Signals: signals}))
	if len(k.down.ended) != 0 {
		t.Error("a kept sandbox was ended")
	}
	var said []string
	sum.Hold(func(l string) {
		if said = append(said, l); strings.HasPrefix(l, "Holding 1 sandbox up") {
			signals <- syscall.SIGINT
		}
	})
	text := strings.Join(said, "\n")
	if !regexp.MustCompile(`(?s)Kept up:\n  tasks/a.json\n    local-[0-9a-f]{8}  local  sandbox b\n      folder  /work/local-.*Holding 1 sandbox up; Ctrl-C tears them down.`).MatchString(text) {
		t.Error(text)
	}
	if len(k.down.ended) != 1 || sum.TeardownText() != "\nTore down 1 sandbox.\n" || sum.ExitCode() != 0 {
		t.Errorf("ended %v, %q, exit %d", k.down.ended, sum.TeardownText(), sum.ExitCode())
	}
}

func TestStillUp(t *testing.T) {
	k := newKit(t)
	k.down.stuck = true
	p, _ := k.write(t, k.files(t, "p", map[string]string{"tasks/a.json": "[" + vm + "]"}), bundle.Selection{})
	sum := p.Run(t.Context(), k.options(bundle.RunOptions{}))
	if got := sum.TeardownText(); !regexp.MustCompile(`^\nStill up, 1 sandbox:\n  (local-\w+)  local  /work/local-\w+  \(the engine does not answer\)\n$`).MatchString(got) {
		t.Errorf("%q", got)
	}
}

func TestDrawnVerifierIDStays(t *testing.T) {
	k := newKit(t)
	dir := k.files(t, "p", map[string]string{"tasks/a.json": `[{"id":"v","type":"score","value":1}]`})
	for range 2 {
		p, _ := k.write(t, dir, bundle.Selection{})
		if sum := p.Run(t.Context(), k.options(bundle.RunOptions{})); !strings.Contains(sum.Text(), "passed (v: 1)") {
			t.Error(sum.Text())
		}
	}
	rows, err := k.docs.Query(t.Context(), "task_instances", document.Query{Filter: document.By("task_id", "@local/~/p/a")})
	if err != nil || len(rows) != 2 {
		t.Fatal(len(rows), err)
	}
	one, two := rows[0].Obj("context").Obj("metadata").Obj("verifications"), rows[1].Obj("context").Obj("metadata").Obj("verifications")
	if one.Keys()[0] != two.Keys()[0] {
		t.Errorf("one stored task ran with the verifier ids %v and %v", one.Keys(), two.Keys())
	}
}

type brokenPipe struct{ left int }

func (b *brokenPipe) Write(p []byte) (int, error) {
	if b.left--; b.left < 0 {
		return 0, errors.New("broken pipe")
	}
	return len(p), nil
}

func TestBrokenOutput(t *testing.T) {
	k := newKit(t)
	p, _ := k.write(t, k.files(t, "p", map[string]string{"tasks/a.json": "[" + vm + "," + score("1") + "]"}), bundle.Selection{})
	var notes bytes.Buffer
	sum := p.Run(t.Context(), k.options(bundle.RunOptions{Progress: bundle.NewLines(&brokenPipe{1}, &notes)}))
	if sum.ExitCode() != 0 || strings.Count(notes.String(), "progress stopped") != 1 {
		t.Errorf("exit %d, notes %q", sum.ExitCode(), notes.String())
	}
}

// full is a store on a full disk.
type full struct{ document.Store }

func (full) Transact(context.Context, func(document.Store) error) error {
	return fault.New(fault.Unavailable, "no space left on device")
}

func TestNothingIsDeployedByARunThatCannotBeRecorded(t *testing.T) {
	k := newKit(t)
	p, _ := k.write(t, k.files(t, "p", map[string]string{"tasks/a.json": "[" + vm + "," + score("1") + "]"}), bundle.Selection{})
	o := k.options(bundle.RunOptions{Progress: bundle.NewLines(io.Discard, io.Discard)})
	o.Runs = task.NewEngine(k.registry, full{k.docs}, slog.New(slog.DiscardHandler), nil)
	sum := p.Run(t.Context(), o)
	if sum.ExitCode() != 1 || !strings.Contains(sum.Text(), "no space left") || strings.Contains(sum.Text(), "score") || len(k.down.ended) > 0 {
		t.Errorf("exit code %d, ended %v:\n%s", sum.ExitCode(), k.down.ended, sum.Text())
	}
}

func TestOldLayoutsAreSwept(t *testing.T) {
	k := newKit(t)
	t.Setenv("TMPDIR", t.TempDir())
	old, err := os.MkdirTemp("", "agentenv-bundle-*")
	if err != nil {
		t.Fatal(err)
	}
	young, err := os.MkdirTemp("", "agentenv-bundle-*")
	if err != nil {
		t.Fatal(err)
	}
	then := time.Now().Add(-25 * time.Hour)
	if err := os.Chtimes(old, then, then); err != nil {
		t.Fatal(err)
	}
	shipped := k.files(t, "shipped", map[string]string{"hello/tasks/hello.json": "[" + vm + "," + score("1") + "]"})
	c, err := bundle.NewCatalog("agentenv-framework", "1.2", os.DirFS(shipped))
	if err != nil {
		t.Fatal(err)
	}
	_, release, err := c.Open("hello", k.home)
	if err != nil {
		t.Fatal(err)
	}
	release()
	if _, err := os.Stat(old); !os.IsNotExist(err) {
		t.Errorf("the old one: %v", err)
	}
	if _, err := os.Stat(young); err != nil {
		t.Errorf("the young one: %v", err)
	}
}

func TestCatalog(t *testing.T) {
	k := newKit(t)
	shipped := k.files(t, "shipped", map[string]string{"hello/README.md": "# Says hello", "hello/tasks/hello.json": "[" + vm + "," + score("1") + "]", "hello/artifacts/.keep": "", "broken/tasks/t.json": "{"})
	c, err := bundle.NewCatalog("agentenv-framework", "1.2", os.DirFS(shipped))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"hello", "agentenv-framework/hello"} {
		b, release, err := c.Open(name, k.home)
		if err != nil {
			t.Fatal(err)
		}
		if b.Root != "@local/agentenv-framework/hello" || b.Entities[0].ID != "@local/agentenv-framework/hello/hello" {
			t.Errorf("%s has the root %s", name, b.Root)
		}
		release()
		if _, err := os.Stat(b.Dir); !os.IsNotExist(err) {
			t.Errorf("the folder of %s is still there", name)
		}
	}
	for text, says := range map[string]string{"nosuch": "'nosuch' is neither a folder nor an installed bundle (agent-env run lists the installed bundles)",
		"hell": "did you mean 'hello'?", "./hello": "no such folder", "": "no such folder"} {
		if _, _, err := c.Open(text, k.home); err == nil || !strings.Contains(err.Error(), says) && text != "" {
			t.Errorf("%q: %v", text, err)
		}
	}
	table := c.Table()
	if !regexp.MustCompile(`(?m)^NAME +PACKAGE +CONTENTS +DESCRIPTION$`).MatchString(table) || !regexp.MustCompile(`(?m)^hello +agentenv-framework 1.2 +1 task +Says hello$`).MatchString(table) ||
		!regexp.MustCompile(`(?m)^broken .* invalid `).MatchString(table) {
		t.Error(table)
	}
	t.Chdir(k.home)
	if err := os.MkdirAll(filepath.Join(k.home, "hello", "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.Open("hello", k.home); err == nil || !strings.Contains(err.Error(), "agentenv-framework/hello") {
		t.Errorf("a folder that hides the name: %v", err)
	}
	dir := filepath.Join(k.home, "mine")
	made, err := c.New(dir, "hello", k.home)
	if err != nil || len(made) == 0 {
		t.Fatal(made, err)
	}
	if b := k.parse(t, dir); b.Description != "mine" || b.Root != "@local/~/mine" {
		t.Errorf("the new bundle is %q, %s", b.Description, b.Root)
	}
	if _, err := c.New(dir, "hello", k.home); err == nil || !strings.Contains(err.Error(), "not empty") {
		t.Errorf("a second time: %v", err)
	}
	if _, err := c.New(filepath.Join(k.home, "no", "parent"), "hello", k.home); err == nil {
		t.Error("made a folder below one that is not there")
	}
	if _, err := c.New(filepath.Join(k.home, "a#b"), "hello", k.home); err == nil {
		t.Error("made a folder whose name gives no id")
	}
	if left, _ := filepath.Glob(filepath.Join(k.home, ".*.new-*")); len(left) > 0 {
		t.Errorf("left %v", left)
	}
}
