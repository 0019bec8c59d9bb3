package cli

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"agentenv/fault"
	"agentenv/runner"
	queue "agentenv/runner/local"
	"agentenv/sandbox"
	"agentenv/store/doc"
	"agentenv/task"
)

// acts is a step that runs a Go function of the test.
type acts func(ctx context.Context, r *task.Run) error

func (a acts) Execute(ctx context.Context, r *task.Run) error { return a(ctx, r) }

// kind makes a kind of step that has the field of that name; do gets its value.
func kind(name, field string, do func(ctx context.Context, r *task.Run, value string) error) *task.StepType {
	return &task.StepType{Name: name, FailsTask: true, IsVerifier: field == "verifier_id", Fields: []task.Field{{Name: field, Kind: task.String}, {Name: "universe_id_suffix", Kind: task.String}},
		Parse: func(_ string, f *doc.Object) (task.Action, *doc.Object, error) {
			return acts(func(ctx context.Context, r *task.Run) error { return do(ctx, r, f.Str(field)) }), nil, nil
		}}
}

// uptime is the teardown of the tests: each deploy step's sandbox is up until it is ended.
type uptime struct {
	noSandboxes
	mu sync.Mutex
	up map[string][]string // by instance
}

func (u *uptime) Teardown(_ context.Context, instance string, _ *doc.Object) (r task.TeardownReport) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, id := range u.up[instance] {
		r.Ended = append(r.Ended, task.SandboxReport{ID: id, Provider: "fake"})
	}
	delete(u.up, instance)
	return r
}

func (u *uptime) Describe(_ context.Context, instance string, _ *doc.Object) (all []task.KeptSandbox) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, id := range u.up[instance] {
		all = append(all, task.KeptSandbox{SandboxReport: task.SandboxReport{ID: id, Provider: "fake"}, Record: "sandbox box", Endpoints: [][2]string{{"folder", "/f"}}})
	}
	return all
}

// newRunBench is a bench whose tasks run: says (records its text as what it prompted), scores, fails, needs (a file), deploys, waits and stays (deaf to its cancel).
func newRunBench(t *testing.T, files map[string]string) (*bench, *uptime, chan string) {
	t.Helper()
	b := newBench(t, files)
	up := &uptime{up: map[string][]string{}}
	began := make(chan string, 100)
	reg, err := task.NewRegistry(
		kind("says", "text", func(_ context.Context, r *task.Run, text string) error {
			r.Set(text, "said", r.StepID)
			return nil
		}),
		kind("scores", "verifier_id", func(_ context.Context, r *task.Run, id string) error {
			score := doc.Float(1)
			if strings.HasPrefix(id, "low") {
				score = doc.Float(0.25)
			}
			r.Set(doc.Of("score", score, "command", "make\ncheck", "results", []any{doc.Of("type", "probe", "result", true)}), "verifications", id)
			return nil
		}),
		kind("fails", "why", func(_ context.Context, _ *task.Run, why string) error {
			return fault.New(fault.Internal, "%s", why).WithClass("RuntimeError")
		}),
		kind("needs", "file", func(_ context.Context, _ *task.Run, file string) error {
			if _, err := os.Stat(file); err != nil {
				return fault.New(fault.Unavailable, "there is no %s", filepath.Base(file))
			}
			return nil
		}),
		kind("deploys", "name", func(_ context.Context, r *task.Run, name string) error {
			up.mu.Lock()
			up.up[r.Instance] = append(up.up[r.Instance], "fake-"+name)
			up.mu.Unlock()
			return r.AddSandbox(task.Sandbox{Name: name, ID: "fake-" + name, Type: "fake", Mode: "vm"})
		}),
		kind("waits", "what", func(ctx context.Context, r *task.Run, _ string) error {
			began <- r.Instance
			<-ctx.Done()
			return context.Cause(ctx)
		}),
		kind("stays", "what", func(_ context.Context, r *task.Run, _ string) error {
			began <- r.Instance
			time.Sleep(3 * time.Second)
			return nil
		}),
		&task.StepType{Name: "later", Pending: true},
	)
	if err != nil {
		t.Fatal(err)
	}
	open := b.app.Open
	b.app.Open = func(ctx context.Context, log *slog.Logger) (*Services, error) {
		s, err := open(ctx, log)
		if err != nil {
			return nil, err
		}
		s.Registry, s.Tasks, s.Teardown = reg, task.NewTasks(reg, s.Documents, nil, nil), up
		engine := task.NewEngine(reg, s.Documents, nil, nil)
		engine.Owner.Alive = s.Records.RunsStill
		s.OwnerAlive = func(in *task.Instance) bool {
			lives, err := s.Records.RunsStill(context.Background(), in.ID, in.Owner)
			return lives || err != nil
		}
		s.Engine = engine
		s.Runner = func(c queue.Config) *queue.Runner {
			return queue.New(queue.Deps{Engine: engine, Tasks: s.Tasks, Instances: s.Instances, Records: s.Records, Teardown: up}, c)
		}
		if s.Sandboxes, err = sandbox.NewManager(sandbox.Config{Ledger: sandbox.OpenLedger(filepath.Join(b.dir, "sandboxes.db"))}); err == nil {
			s.Closers = append(s.Closers, s.Sandboxes.Close)
		}
		return s, err
	}
	return b, up, began
}

var (
	runIDs    = regexp.MustCompile(`local-[0-9a-f]{32}`)
	instances = regexp.MustCompile(`\b(\w+)-[a-z0-9]{8}\b`)
	fileNames = regexp.MustCompile(`_[0-9a-f]{8}\.json`)
	// firstInstance finds the instance of the first run.
	firstInstance = regexp.MustCompile(`\(instance (\S+)\)`)
	durations     = regexp.MustCompile(`time: .*`)
)

// even makes lines about runs the same each time.
func even(text string) string {
	text = fileNames.ReplaceAllString(runIDs.ReplaceAllString(text, "RUN"), "_HEX.json")
	return durations.ReplaceAllString(instances.ReplaceAllString(text, "$1-INSTANCE"), "time: T")
}

// store stores a task of the bench.
func (b *bench) store(id, steps string) {
	b.t.Helper()
	file := filepath.Join(b.dir, "task-"+id+".json")
	if err := os.WriteFile(file, []byte(steps), 0o600); err != nil {
		b.t.Fatal(err)
	}
	if code, _, errs := b.run("task", "create", file, "--id", id); code != 0 {
		b.t.Fatal(errs)
	}
}

// opened returns services of the bench to look things up in.
func (b *bench) opened() *Services {
	b.t.Helper()
	s, err := b.app.Open(b.t.Context(), nil)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { s.Close() })
	return s
}

// TestTaskRunLines holds the lines of one run and of several, which scripts read.
func TestTaskRunLines(t *testing.T) {
	t.Parallel()
	b, up, _ := newRunBench(t, nil)
	b.store("t", `[{"id":"box","type":"deploys","name":"box"},{"id":"a","type":"says","text":"hello"},{"id":"c","type":"scores","verifier_id":"low"}]`)
	code, out, errs := b.run("task", "run", "--id", "t", "--output-dir", "@/out")
	want := `Fetching task: id=t version=latest...
Found task: id=t version=1 steps=3
Submitted run RUN (instance t-INSTANCE)
Run RUNNING
Completed step [1/3]: deploys (id=box)
Completed step [2/3]: says (id=a)
Completed step [3/3]: scores (id=c)
verification (verifier_id=low):
command: |
    make
    check
verification-results: |
    [
      {
        "type": "probe",
        "result": true
      }
    ]
score (verifier_id=low): 0.25
Run COMPLETED

Task context written to: @/out/t_HEX.json

Tore down 1 sandbox.
Task completed!
`
	if code != 0 || even(out) != want {
		t.Errorf("exit code %d %s\n%s\nwant\n%s", code, errs, even(out), want)
	}
	code, out, errs = b.run("task", "run", "--id", "t", "--k", "2", "-j", "1", "--output-dir", "@/out", "--version", "1")
	want = `Fetching task: id=t version=1...
Found task: id=t version=1 steps=3
[run 1] Submitted run RUN (instance t-INSTANCE)
[run 2] Submitted run RUN (instance t-INSTANCE)
[run 1] Run RUNNING
[run 1] Completed step [1/3]: deploys (id=box)
[run 1] Completed step [2/3]: says (id=a)
[run 1] Completed step [3/3]: scores (id=c)
[run 1] score (verifier_id=low): 0.25
[run 1] Run COMPLETED
[run 2] Run RUNNING
[run 2] Completed step [1/3]: deploys (id=box)
[run 2] Completed step [2/3]: says (id=a)
[run 2] Completed step [3/3]: scores (id=c)
[run 2] score (verifier_id=low): 0.25
[run 2] Run COMPLETED

[run 1] Task context written to: @/out/t_HEX.json
[run 2] Task context written to: @/out/t_HEX.json
Results:
  0 of 2 counted runs passed: pass rate 0 (95 % interval 0 to 0.658)
  runs: 2; counted: 2 completed
  pass@1 0, pass@2 0
  mean score 0.25
  time: T

Tore down 2 sandboxes.
All 2 runs completed!
`
	if code != 0 || even(out) != want {
		t.Errorf("exit code %d %s\n%s\nwant\n%s", code, errs, even(out), want)
	}
	if files, _ := filepath.Glob(filepath.Join(b.dir, "out", "t_*.json")); len(files) != 3 || len(up.up) != 0 {
		t.Errorf("files %v, up %v", files, up.up)
	}
	b.store("f", `[{"id":"a","type":"says","text":"x"},{"id":"b","type":"fails","why":"it broke","fail_task_on_error":false},{"id":"c","type":"says","text":"y"}]`)
	code, out, errs = b.run("task", "run", "--id", "f", "--output-dir", "@/out", "--user-model", "m 1", "--junit", "@/j.xml")
	want = `Fetching task: id=f version=latest...
Found task: id=f version=1 steps=3
Submitted run RUN (instance f-INSTANCE)
Run RUNNING
Completed step [1/3]: says (id=a)
Failed step [2/3]: fails (id=b)
Completed step [3/3]: says (id=c)
Run FAILED: failed at step 'b': RuntimeError: it broke

Task context written to: @/out/f_HEX.json
`
	if code != 1 || even(out) != want || !strings.Contains(errs, "repeat it: agent-env task run --id f --version 1 --user-model 'm 1'\n") {
		t.Errorf("exit code %d %s\n%s\nwant\n%s", code, errs, even(out), want)
	}
	if text, err := os.ReadFile(filepath.Join(b.dir, "j.xml")); err != nil || !strings.Contains(string(text), `tests="1" failures="1"`) || !strings.Contains(string(text), "RuntimeError: it broke") {
		t.Errorf("%v\n%s", err, text)
	}
}

// TestRunsBeginAsAsked looks at what runs are recorded with.
func TestRunsBeginAsAsked(t *testing.T) {
	t.Parallel()
	b, _, _ := newRunBench(t, map[string]string{
		"ctx.json": `{"agent_model":"old","metadata":{"run_group_id":"g0","kept":1,"seed":{"who":"me"},"user_overrides":{"judge_model":"j0","env_sandbox":"e0"},"agent_env_hub":{"caller":"me"},"litellm_api_key":"sk-stored"}}`,
	})
	b.store("t", `[{"id":"a","type":"fails","why":"never run"},{"id":"b","type":"says","text":"hello <who>"}]`)
	code, out, errs := b.run("task", "run", "--id", "t", "--k", "2", "--start-step", "1", "--context-json", "@/ctx.json", "--output-dir", "@/out", "--json", "--agent-model", "am", "--user-model", "um",
		"--litellm-api-key", "sk-raw", "--judge-litellm-api-key", "secret:j", "--no-trajectory-filter", "--a2a-agent-id", "ag", "--env-state-type", "es", "--gateway-env-id", "gw")
	var got struct {
		Group string `json:"run_group_id"`
		Code  int    `json:"exit_code"`
		Runs  []struct {
			Run      string `json:"run_id"`
			Instance string `json:"instance_id"`
			Status   string
			Class    string `json:"outcome_class"`
			File     string `json:"context_file"`
			Error    *string
			Seconds  float64
		}
		Tally struct{ Total struct{ Runs, Unscored int } }
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil || code != 0 || len(got.Runs) != 2 || got.Group != "g0" || got.Tally.Total.Unscored != 2 {
		t.Fatalf("exit code %d, %v: %s\n%s", code, err, errs, out)
	}
	s := b.opened()
	for _, r := range got.Runs {
		in, err := s.Instances.Get(t.Context(), r.Instance)
		if err != nil || r.Status != "COMPLETED" || r.Class != "passed" || r.Error != nil {
			t.Fatalf("%v, %+v", err, r)
		}
		if len(in.Completed) != 2 || in.Completed[0].StepID != "a" || in.Completed[0].Status != "success" {
			t.Errorf("completed %v", in.Completed)
		}
		meta := in.Context.Obj("metadata")
		want := `{"run_group_id":"g0","kept":1,"seed":{"who":"me"},"user_overrides":{"judge_model":"j0","env_sandbox":"e0","judge_litellm_api_key":"secret:j","a2a_agent_id":"ag","user_model":"um",` +
			`"env_state_type":"es","gateway_env_id":"gw","apply_trajectory_filter":false},"agent_env_hub":{"caller":"me"},"keep":false,"task_id":"t","start_step":1,"said":{"b":"hello me"},` +
			`"workflow_id":"` + r.Run + `","instance_id":"` + r.Instance + `","runner":"` + meta.Str("runner") + `"}`
		parsed, err := doc.Parse([]byte(want), doc.Options{})
		if err != nil || !doc.Equal(meta, parsed) || in.Context.Str("agent_model") != "am" {
			t.Errorf("%v %s\nhas %s\nwant %s", err, in.Context.Str("agent_model"), doc.Canonical(meta), want)
		}
		file, err := os.ReadFile(strings.ReplaceAll(r.File, "@/", b.dir+"/"))
		exported, perr := doc.Parse(file, doc.Options{})
		if err != nil || perr != nil || !doc.Equal(exported, in.Context) || strings.Contains(string(file), "sk-") {
			t.Errorf("%v %v\n%s", err, perr, file)
		}
		rec, err := s.Records.Get(t.Context(), r.Run)
		if err != nil || rec == nil || strings.Contains(doc.Canonical(rec.Document), "sk-") || rec.Instance != r.Instance {
			t.Errorf("%v %+v", err, rec)
		}
	}
	if got.Runs[0].Instance == got.Runs[1].Instance {
		t.Error("two runs share an instance")
	}
}

// TestRunsAreRefused holds that what cannot run is refused before anything is recorded.
func TestRunsAreRefused(t *testing.T) {
	t.Parallel()
	b, _, _ := newRunBench(t, map[string]string{"list.json": "[1]", "meta.json": `{"metadata":[]}`, "inf.json": `{"metadata":{"n":1e999}}`, "s.csv": "name,n\nx,1\ny,2,3\n", "one.csv": "name\nx\n", "bad.csv": "n\n\"\"\n", "file": ""})
	b.store("t", `[{"id":"a","type":"says","text":"<n>"},{"id":"<n>","type":"says"}]`)
	b.store("p", `[{"id":"a","type":"later"}]`)
	b.prints("task validate --id p", "Task p version=1: 0 of 1 steps have preflight checks, none found a problem.\nLimits: none\n"+
		"This version of agent-env cannot run it:\n  step \"a\" (position 0, later): the step type later is not supported yet\n")
	for _, c := range []struct {
		args string
		code int
		why  string
	}{
		{"task run", 2, `required flag(s) "id"`},
		{"task run --id t --k 0", 2, "--k must be at least 1"},
		{"task run --id t -j 0", 2, "--jobs must be at least 1"},
		{"task run --id t --concurrency 0", 2, "at least 1"},
		{"task run --id t --context-json @/none.json", 2, "there is no file"},
		{"task run --id t --context-json @/list.json", 1, "one JSON object"},
		{"task run --id t --context-json @/meta.json", 1, "metadata must be an object"},
		{"task run --id t --context-json @/inf.json", 1, "context.metadata.n holds the number 1e999, which cannot be stored"},
		{"task run --id t --start-step 2", 1, "start_step=2 out of range [0, 2)"},
		{"task run --id t --start-step -1", 1, "start_step=-1 out of range"},
		{"task run --id ghost", 1, "Task ghost not found"},
		{"task run --id t --version 9", 1, "Task t version=9 not found"},
		{"task run --id p", 1, "later"},
		{"task run --id t --agent-sandbox nope", 1, "--agent-sandbox"},
		{"task run --id t --apply-trajectory-filter --no-trajectory-filter", 2, "exclude each other"},
		{"task run --id t --detach --keep", 2, "--detach only submits"},
		{"task run --id t --detach --litellm-api-key sk-raw", 1, "litellm_api_key"},
		{"task run --id t --output-dir @/file", 1, "--output-dir"},
		{"task run --id t --junit @/none/j.xml", 1, "--junit"},
		{"task run-batch --id t", 2, `required flag(s) "seeds"`},
		{"task run-batch --id t --seeds @/none.csv", 2, "there is no file"},
		{"task run-batch --id t --seeds @/s.csv", 1, "line 3: 3 values for 2 columns"},
		{"task run-batch --id t --seeds @/bad.csv", 1, "no rows of seeds"},
		{"task run-batch --id p --seeds @/one.csv", 1, "seed 1"},
		{"eval run --id ghost", 1, "Eval ghost not found"},
		{"eval run --id t --max-concurrency 0", 2, "at least 1"},
		{"eval run --id t --k 0", 2, "--k must be at least 1"},
	} {
		code, _, errs := b.run(strings.Fields(c.args)...)
		if code != c.code || !strings.Contains(errs, c.why) || strings.Contains(errs, "sk-raw") {
			t.Errorf("%s: exit code %d, want %d and %q: %s", c.args, code, c.code, c.why, errs)
		}
	}
	s := b.opened()
	if runs, err := s.Records.List(t.Context(), runner.Query{}); err != nil || len(runs) != 0 {
		t.Errorf("%v, %d runs are on record", err, len(runs))
	}
	if _, err := os.Stat(filepath.Join(b.dir, "out")); err == nil {
		t.Error("a folder was made")
	}
}

// TestRunBatch runs a row each, and records what it ran with.
func TestRunBatch(t *testing.T) {
	t.Parallel()
	b, _, _ := newRunBench(t, map[string]string{"s.csv": "\uFEFFname,id,v\nx,,\"a\nb\"\n,,\n" + strings.Repeat("n", 60) + ",I,w\n,,z\n"})
	b.store("t", `[{"id":"out-<name>","type":"says","text":"<v>"}]`)
	code, out, errs := b.run("task", "run-batch", "--id", "t", "--seeds", "@/s.csv", "--concurrency", "1", "--output-dir", "@/out")
	n := strings.Repeat("n", 50)
	want := `Loaded 3 seeds from @/s.csv
Fetching task: id=t version=latest...
Found task: id=t version=1 steps=1
Running 3 seeds with concurrency=1...
[seed 1: x] Submitted run RUN (instance t-INSTANCE)
[seed 2: ` + n + `] Submitted run RUN (instance t-INSTANCE)
[seed 3: seed-3] Submitted run RUN (instance t-INSTANCE)
[seed 1: x] Run RUNNING
[seed 1: x] Completed step [1/1]: says (id=out-x)
[seed 1: x] Run COMPLETED
`
	if code != 0 || !strings.HasPrefix(even(out), want) || !strings.HasSuffix(out, "\nAll 3 seeds completed!\n") {
		t.Errorf("exit code %d %s\n%s\nwant\n%s", code, errs, even(out), want)
	}
	for i, c := range [][3]string{{"out-x", "a\nb", "t__v1-x"}, {"out-" + n + strings.Repeat("n", 10), "w", "t__v1-I"}, {"out-", "z", ""}} {
		files, _ := filepath.Glob(filepath.Join(b.dir, "out", "t-seed"+string(rune('1'+i))+"_*.json"))
		if len(files) != 1 {
			t.Fatalf("seed %d: files %v", i+1, files)
		}
		text, err := os.ReadFile(files[0])
		d, perr := doc.ParseObject(text, doc.Options{})
		if meta := d.Obj("metadata"); err != nil || perr != nil || meta.Obj("said").Str(c[0]) != c[1] || meta.Str("universe_id") != c[2] || meta.Obj("seed").Len() != 3 {
			t.Errorf("seed %d: %v %v %s", i+1, err, perr, text)
		}
	}
	if strings.Contains(errs, "warning") {
		t.Errorf("a warning although columns are used: %s", errs)
	}
	b.store("same", `[{"id":"a","type":"says","text":"no column"}]`)
	if code, _, errs = b.run("task", "run-batch", "--id", "same", "--seeds", "@/s.csv"); code != 0 || !strings.Contains(errs, "warning: no step of same uses a column of @/s.csv (name, id, v); a text of a step uses one as `<name>`") {
		t.Errorf("exit code %d: %s", code, errs)
	}
	b.prints("task get --id t", "[\n  {\n    \"id\": \"out-<name>\",\n    \"type\": \"says\",\n    \"version\": 1,\n    \"fail_task_on_error\": true,\n    \"text\": \"<v>\",\n    \"universe_id_suffix\": null\n  }\n]\n")
}

// TestEvalCommands stores evals and runs one.
func TestEvalCommands(t *testing.T) {
	t.Parallel()
	b, _, _ := newRunBench(t, map[string]string{"e.json": `[{"task_id":"t"},{"task_id":"f","task_version":1}]`, "more.json": `[{"task_id":"f","task_version":1},{"task_id":"t","task_version":1}]`,
		"gone.json": `[{"task_id":"t"},{"task_id":"gone"}]`, "bad.json": `[{"task_id":"t"},{}]`})
	b.store("t", `[{"id":"c","type":"scores","verifier_id":"v"},{"id":"d","type":"scores","verifier_id":"low"}]`)
	b.store("f", `[{"id":"b","type":"fails","why":"it broke"}]`)
	b.prints("eval create @/e.json --id e", "Reading tasks from @/e.json...\n  Validated task 1/2: t v1 (2 steps)\n  Validated task 2/2: f v1 (1 steps)\nCreating eval 'e' with 2 tasks...\nCreated eval: id=e version=1 tasks=2\n")
	for file, why := range map[string]string{"gone": "entry 1: Task gone not found", "bad": "entry 1: task_id is missing"} {
		if code, _, errs := b.run("eval", "create", "@/"+file+".json", "--id", "e"); code != 1 || !strings.Contains(errs, why) {
			t.Errorf("%s: exit code %d: %s", file, code, errs)
		}
	}
	b.prints("eval add-tasks @/more.json --id e", "Fetching eval: id=e version=latest...\nFound eval: id=e version=1 tasks=2\nReading new tasks from @/more.json...\n"+
		"  Validated task 1/2: f v1 (1 steps)\n  Validated task 2/2: t v1 (2 steps)\nCreating new eval version with 3 tasks (2 added/updated)...\nCreated eval: id=e version=2 tasks=3\n")
	code, out, errs := b.run("eval", "run", "--id", "e", "--version", "1", "--max-concurrency", "1")
	want := `Fetching eval: id=e version=1...
Found eval: id=e version=1 tasks=2
  Loaded task: t v1 (2 steps) (resolved from latest)
  Loaded task: f v1 (1 steps)
Running 2 tasks x 1 run(s) = 2 total runs...

[t] Submitted run RUN (instance t-INSTANCE)
[f] Submitted run RUN (instance f-INSTANCE)
[t] Run RUNNING
[t] Completed step [1/2]: scores (id=c)
[t] score (verifier_id=v): 1.0
[t] Completed step [2/2]: scores (id=d)
[t] score (verifier_id=low): 0.25
[t] Run COMPLETED
[f] Run RUNNING
[f] Failed step [1/1]: fails (id=b)
[f] Run FAILED: RuntimeError: it broke

Results:
  [t] PASSED score=0.625
  [f] FAILED: RuntimeError: it broke
  0 of 2 counted runs passed: pass rate 0 (95 % interval 0 to 0.658)
  runs: 2; counted: 1 completed, 1 failed
  mean score 0.312
  time: T
  over 2 tasks: pass rate 0; mean score 0.312 (95 % interval `
	if code != 1 || !strings.HasPrefix(even(out), want) || !strings.HasSuffix(out, "\n\n1/2 runs completed, 1/2 failed.\n") {
		t.Errorf("exit code %d %s\n%s\nwant\n%s", code, errs, even(out), want)
	}
	code, out, errs = b.run("eval", "run", "--id", "e", "--k", "2", "--detach", "--json")
	d, err := doc.ParseObject([]byte(out), doc.Options{})
	if err != nil || code != 0 || len(d.Arr("runs")) != 6 {
		t.Fatalf("exit code %d, %v: %s\n%s", code, err, errs, out)
	}
	// Two entries are the same version of t by now.
	for _, tag := range []string{"[t run 1]", "[t run 4]", "[f run 1]", "[f run 2]"} {
		if !strings.Contains(errs, tag+" Submitted run") {
			t.Errorf("no %s in\n%s", tag, errs)
		}
	}
	runs, err := b.opened().Records.List(t.Context(), runner.Query{Group: d.Str("run_group_id")})
	if err != nil || len(runs) != 6 {
		t.Fatalf("%v, %d runs in the group", err, len(runs))
	}
	for _, r := range runs {
		if r.Status != runner.Queued || r.Owner != nil || r.Overrides.Obj("metadata").Str("task_id") != r.TaskID {
			t.Errorf("%+v", r)
		}
	}
}

// TestStepDetails shows what a step wrote.
func TestStepDetails(t *testing.T) {
	t.Parallel()
	out, err := doc.ParseObject([]byte(`{"deployed_envs":[{"env_id":"e","gateway_url":null,"sandbox_ids":{},"ports":[1]}],"deployed_agents":[{"agent_name":"a","sandbox_id":"s"}],
		"prompt_responses":[{"response":"one\ntwo\n","tool_call_count":3,"usage":{"input_tokens":1}}],
		"metadata":{"agent_loaded_snapshots":[{"id":"l"}],"agent_snapshots":[{"id":"n"}],"tool_access_changes":[{"tool":"t","on":true}],"server_config_changes":[{"k":"v"},"odd"],
		"verifications":{"v":{"score":null,"stdout":"`+strings.Repeat("x", 700)+`"},"w":{"score":1}}}}`), doc.Options{})
	if err != nil {
		t.Fatal(err)
	}
	want := `deployed-env:
    env_id: e
    ports: [1]
deployed-agent:
    agent_name: a
    sandbox_id: s
loaded-snapshot:
    id: l
prompt-response:
    response: |
        one
        two
    tool_call_count: 3
    usage: {"input_tokens":1}
agent-snapshot:
    id: n
tool-access-change:
    tool: t
    on: true
server-config-applied (2):
    k: v
    "odd"
verification (verifier_id=v):
stdout: ` + strings.Repeat("x", 600) + `…
verification (verifier_id=w):
score (verifier_id=w): 1`
	if got := strings.Join(outputLines(out, "", true), "\n"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got := strings.Join(outputLines(out, "", false), "\n"); got != "score (verifier_id=w): 1" {
		t.Errorf("without details:\n%s", got)
	}
}

// TestCallerName makes a part of an id of a person's name.
func TestCallerName(t *testing.T) {
	for name, want := range map[string]string{"Ada Lovelace\n": "ada-lovelace", "  --x__Y9 ": "x-y9", "Ünï": "n", "!!": "", "": ""} {
		if got := string(callerName([]byte(name))); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}
