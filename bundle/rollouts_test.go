package bundle_test

import (
	"bytes"
	"context"
	"encoding/xml"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"agentenv/bundle"
	"agentenv/fault"
	"agentenv/store/doc"
	"agentenv/store/document"
	"agentenv/task"
)

// scripted ends runs as told, in the order in which they begin, in place of the engine; what it is told nothing about the engine runs.
type scripted struct {
	task.Runs
	mu    sync.Mutex
	plans []func(ctx context.Context, t *task.Task, o task.Options) (*task.Result, error)
	tasks []*task.Task
	given []task.Options
}

func (s *scripted) Run(ctx context.Context, t *task.Task, o task.Options) (*task.Result, error) {
	s.mu.Lock()
	n := len(s.tasks)
	s.tasks, s.given = append(s.tasks, t), append(s.given, o)
	s.mu.Unlock()
	if n < len(s.plans) && s.plans[n] != nil {
		return s.plans[n](ctx, t, o)
	}
	return s.Runs.Run(ctx, t, o)
}

func TestSeveralRunsOfATask(t *testing.T) {
	k := newKit(t)
	dir := k.files(t, "p", map[string]string{"tasks/a.json": "[" + vm + "," + score("1") + "]", "tasks/b.json": "[" + score("0.5") + "]", "evals/e.toml": `tasks = ["a", "b"]`})
	p, _ := k.write(t, dir, bundle.Selection{})
	var out, notes bytes.Buffer
	repeat := func(name string) string { return "again " + name }
	sum := p.Run(t.Context(), k.options(bundle.RunOptions{Parallel: 1, Times: 2, Progress: bundle.NewLines(&out, &notes), Repeat: repeat}))
	want := `
Tasks:
  tasks/a.json run 1 v1: passed (v: 1), Ts, instance @local/~/p/a-X
  tasks/a.json run 2 v1: passed (v: 1), Ts, instance @local/~/p/a-X
  tasks/b.json run 1 v1: scored below 1 (v: 0.5), Ts, instance @local/~/p/b-X
  tasks/b.json run 2 v1: scored below 1 (v: 0.5), Ts, instance @local/~/p/b-X
Evals:
  evals/e.toml v1: 2 of 4 passed
Results:
  2 of 4 counted runs passed: pass rate 0.5 (95 % interval 0.15 to 0.85)
  runs: 4; counted: 4 completed
  mean score 0.75
  time: Ts in all, mean Ts, p50 Ts, p95 Ts
  over 2 tasks: pass rate 0.5 (95 % interval 0 to 1); mean score 0.75 (95 % interval 0 to 1)
  over 2 tasks: pass@1 0.5, pass@2 0.5
  tasks/a.json v1:
    2 of 2 counted runs passed: pass rate 1 (95 % interval 0.342 to 1)
    runs: 2; counted: 2 completed
    pass@1 1, pass@2 1
    mean score 1
    time: Ts in all, mean Ts, p50 Ts, p95 Ts
  tasks/b.json v1:
    0 of 2 counted runs passed: pass rate 0 (95 % interval 0 to 0.658)
    runs: 2; counted: 2 completed
    pass@1 0, pass@2 0
    mean score 0.5
    time: Ts in all, mean Ts, p50 Ts, p95 Ts
`
	if got := steady(sum.Text()); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	var begun []string // one round after the other
	for _, m := range regexp.MustCompile(`(?m)^\[(\S+ run \d)\] step 1/\d \S+ \(`).FindAllStringSubmatch(out.String(), -1) {
		begun = append(begun, m[1])
	}
	wantLines(t, begun, "tasks/a.json run 1", "tasks/b.json run 1", "tasks/a.json run 2", "tasks/b.json run 2")
	if !strings.Contains(out.String(), "[tasks/b.json run 2] scored below 1 in ") {
		t.Error(out.String())
	}
	d := sum.Document()
	second := d.Arr("tasks")[1].(*doc.Object)
	if n, _ := second.Int("run"); n != 2 || second.Str("task") != "tasks/a.json" || second.Str("repeat") != "again a" || second.Value("seconds") == nil {
		t.Errorf("%v", second)
	}
	if n, _ := d.Obj("tally").Obj("total").Int("counted"); n != 4 || len(d.Obj("tally").Arr("tasks")) != 2 {
		t.Errorf("%v", d.Obj("tally"))
	}
	if rows, err := k.docs.Query(t.Context(), "task_instances", document.Query{Filter: document.By("context.metadata.run_group_id", sum.RunGroup)}); err != nil || len(rows) != 4 {
		t.Errorf("%d instances in the group, %v", len(rows), err)
	}
}

func TestFailedRunsNameTheirRepeat(t *testing.T) {
	k := newKit(t)
	p, _ := k.write(t, k.files(t, "p", map[string]string{"tasks/bad.json": `[{"id":"l","type":"load_artifact","artifacts":[],"sandbox_name":"c"}]`}), bundle.Selection{})
	sum := p.Run(t.Context(), k.options(bundle.RunOptions{Repeat: func(name string) string { return "agent-env run --task " + name + " 'a b'" }}))
	if text := sum.Text(); !regexp.MustCompile(`(?m)^  tasks/bad.json v1: failed at .*\n    repeat: agent-env run --task bad 'a b'\n`).MatchString(text) || strings.Contains(text, "Results:") {
		t.Error(text)
	}
}

// TestLimitsReachTheEngine runs with limits that are not the task's: the engine gets them, and what is stored stays.
func TestLimitsReachTheEngine(t *testing.T) {
	k := newKit(t)
	dir := k.files(t, "p", map[string]string{"tasks/a.json": `{"steps":[` + score("1") + `],"max_parallel_steps":7,"fail_fast":true}`})
	no := false
	for _, c := range []struct {
		limits task.Limits
		want   string
	}{{task.Limits{}, "null"}, {task.Limits{MaxParallelSteps: 2}, `{"max_parallel_steps":2}`}, {task.Limits{FailFast: &no}, `{"fail_fast":false}`}} {
		p, _ := k.write(t, dir, bundle.Selection{})
		runs := &scripted{Runs: k.engine}
		o := k.options(bundle.RunOptions{Limits: c.limits})
		o.Runs = runs
		if sum := p.Run(t.Context(), o); sum.ExitCode() != 0 {
			t.Errorf("%+v: exit code %d", c.limits, sum.ExitCode())
		}
		if in, err := task.NewInstances(k.docs).Get(t.Context(), runs.given[0].Instance); err != nil || doc.Canonical(in.Document.Value("limits")) != c.want {
			t.Errorf("%+v: ran with %v (%v)", c.limits, in.Document.Value("limits"), err)
		}
		stored, err := document.Versioned{Store: k.docs, Collection: "tasks"}.Get(t.Context(), "@local/~/p/a", 0)
		if err != nil {
			t.Fatal(err)
		}
		if n, _ := stored.Int("max_parallel_steps"); n != 7 || !stored.Bool("fail_fast") {
			t.Errorf("%+v: the stored task has %v", c.limits, stored)
		}
	}
}

// junitReport is what a reader makes of the report.
type junitReport struct {
	Tests, Failures, Errors, Skipped int
	Suites                           []struct {
		Name       string `xml:"name,attr"`
		Tests      int    `xml:"tests,attr"`
		Failures   int    `xml:"failures,attr"`
		Errors     int    `xml:"errors,attr"`
		Skipped    int    `xml:"skipped,attr"`
		Properties []prop `xml:"properties>property"`
		Cases      []struct {
			Name       string   `xml:"name,attr"`
			Time       string   `xml:"time,attr"`
			Properties []prop   `xml:"properties>property"`
			Failure    *message `xml:"failure"`
			Error      *message `xml:"error"`
			Skipped    *message `xml:"skipped"`
		} `xml:"testcase"`
	} `xml:"testsuite"`
}

type prop struct {
	Name  string `xml:"name,attr"`
	Value string `xml:"value,attr"`
}

type message struct {
	Type    string `xml:"type,attr"`
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

func readJUnit(t testing.TB, text []byte) junitReport {
	t.Helper()
	var r junitReport
	d := xml.NewDecoder(bytes.NewReader(text))
	d.Strict = true
	if err := d.Decode(&r); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return r
}

func TestJUnit(t *testing.T) {
	evil := "]]></failure><x a=\"1\">&\x00\x1b[31m\ufffe\xff\nline"
	s := &bundle.Summary{RunGroup: "g", Evals: []bundle.Eval{{Path: "evals/e.toml", Tasks: []string{"tasks/a.json"}}}, Runs: []*bundle.Run{
		{Path: "tasks/a.json", TaskID: "@local/~/p/a", Version: 3, Number: 1, Started: true, Outcome: bundle.Passed, Class: task.Passed, Seconds: 1.25, Instance: "i-1", Scores: []bundle.Score{{Step: "v", Value: 1}}, Repeat: "agent-env run p"},
		{Path: "tasks/a.json", TaskID: "@local/~/p/a", Version: 3, Number: 2, Started: true, Outcome: bundle.ScoredBelow, Class: task.Passed, Seconds: 1, Scores: []bundle.Score{{Step: "v", Value: 0.5}}},
		{Path: "tasks/a.json", TaskID: "@local/~/p/a", Version: 3, Number: 3, Outcome: bundle.Cancelled, Class: task.Cancelled},
		{Path: evil, TaskID: evil, Version: 1, Started: true, Outcome: bundle.Failed, Class: task.TimedOut, Scores: []bundle.Score{{Step: evil, Value: 0}}, Failures: []bundle.Failure{{Step: evil, Error: evil, Class: "TimeoutError"}}},
		{Path: "tasks/c.json", Started: true, Outcome: bundle.Failed, Class: task.Infrastructure, Failures: []bundle.Failure{{Error: "the engine does not answer", Class: "RuntimeError"}}},
		{Path: "tasks/d.json", Started: true, Outcome: bundle.Unscored, Class: task.Passed},
		{Path: "tasks/e.json", Started: true, Outcome: bundle.Cancelled, Class: task.Cancelled},
		{Path: "tasks/f.json", Started: true, Outcome: bundle.Failed, Class: task.Failed}, // by whoever knows no more than that
	}}
	text, err := s.JUnit()
	if err != nil {
		t.Fatal(err)
	}
	if bytes.ContainsAny(text, "\x00\x1b") {
		t.Errorf("characters that XML does not allow:\n%q", text)
	}
	r := readJUnit(t, text)
	if len(r.Suites) != 6 || !bytes.Contains(text, []byte(`<testsuites name="agent-env" tests="8" failures="3" errors="1" skipped="2" time="2.250">`)) {
		t.Fatalf("%s", text)
	}
	a := r.Suites[0]
	if a.Name != "tasks/a.json" || a.Tests != 3 || a.Failures != 1 || a.Skipped != 1 || !slices.Contains(a.Properties, prop{"eval", "evals/e.toml"}) || !slices.Contains(a.Properties, prop{"run_group_id", "g"}) {
		t.Errorf("%+v", a)
	}
	first := a.Cases[0]
	for _, p := range []prop{{"instance_id", "i-1"}, {"outcome", "passed"}, {"class", "passed"}, {"seconds", "1.250"}, {"score.v", "1"}, {"repeat", "agent-env run p"}} {
		if !slices.Contains(first.Properties, p) {
			t.Errorf("no property %v in %v", p, first.Properties)
		}
	}
	if first.Name != "tasks/a.json run 1" || first.Time != "1.250" || first.Failure != nil || first.Error != nil || first.Skipped != nil {
		t.Errorf("%+v", first)
	}
	if f := a.Cases[1].Failure; f == nil || f.Type != "scored below 1" || f.Message != "scored below 1 (v: 0.5)" {
		t.Errorf("%+v", f)
	}
	if c := a.Cases[2].Skipped; c == nil || c.Message != "cancelled, didn't start" {
		t.Errorf("%+v", c)
	}
	want := "]]></failure><x a=\"1\">&\ufffd\ufffd[31m\ufffd\ufffd\nline"
	if f := r.Suites[1].Cases[0].Failure; r.Suites[1].Name != want || f == nil || f.Type != "timed_out" || f.Text != "TimeoutError: "+want {
		t.Errorf("%q, %+v", r.Suites[1].Name, f)
	}
	if e := r.Suites[2].Cases[0].Error; e == nil || e.Type != "infrastructure" || !strings.Contains(e.Message, "does not answer") {
		t.Errorf("%+v", e)
	}
	if d := r.Suites[3].Cases[0]; d.Failure != nil || d.Error != nil || d.Skipped != nil {
		t.Errorf("an unscored run is %+v", d)
	}
	if e := r.Suites[4].Cases[0].Skipped; e == nil || e.Message != "cancelled" {
		t.Errorf("%+v", e)
	}
	if e := r.Suites[5].Cases[0].Failure; e == nil || e.Message != "failed" {
		t.Errorf("%+v", e)
	}
}

func FuzzJUnit(f *testing.F) {
	f.Add("tasks/a.json", "boom")
	f.Add("\x00]]>&\xff", "\ufffe\r\n<")
	f.Fuzz(func(t *testing.T, path, why string) {
		s := &bundle.Summary{Runs: []*bundle.Run{{Path: path, TaskID: path, Started: true, Outcome: bundle.Failed, Class: task.Judge, Failures: []bundle.Failure{{Step: why, Error: why}}}}}
		text, err := s.JUnit()
		if err != nil {
			t.Fatal(err)
		}
		if r := readJUnit(t, text); len(r.Suites) != 1 || r.Suites[0].Errors != 1 || r.Suites[0].Cases[0].Error == nil {
			t.Errorf("%s", text)
		}
	})
}

func TestJUnitFile(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "x.xml")
	for range 2 { // the second one replaces the first
		j, err := bundle.OpenJUnit(file)
		if err == nil {
			err = j.Write(&bundle.Summary{})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if text, err := os.ReadFile(file); err != nil || !strings.HasPrefix(string(text), "<?xml ") {
		t.Errorf("%s, %v", text, err)
	}
	if err := os.Symlink(file, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	j, err := bundle.OpenJUnit(filepath.Join(dir, "link"))
	if err == nil {
		err = j.Write(&bundle.Summary{})
	}
	if info, lerr := os.Lstat(filepath.Join(dir, "link")); err != nil || lerr != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("a link was replaced: %v, %v", err, lerr)
	}
	for path, says := range map[string]string{dir: "no regular file", "/dev/null": "no regular file", filepath.Join(dir, "no", "x.xml"): "cannot be written"} {
		if _, err := bundle.OpenJUnit(path); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", path, err)
		}
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 2 {
		t.Errorf("%v, %v", left, err)
	}
}

func TestOutput(t *testing.T) {
	k := newKit(t)
	// Two ids that look alike as file names, and one that is longer than a name may be.
	dir := k.files(t, "p", map[string]string{"tasks/a b.json": "[" + vm + "," + score("1") + "]", "tasks/a-b.json": "[" + score("1") + "]", "tasks/" + strings.Repeat("n", 120) + ".json": "[" + score("1") + "]"})
	p, _ := k.write(t, dir, bundle.Selection{})
	at := filepath.Join(t.TempDir(), "new", "out")
	o, err := bundle.OpenOutput(at)
	if err != nil {
		t.Fatal(err)
	}
	if claim, err := os.ReadFile(filepath.Join(at, "summary.json")); err != nil || !strings.Contains(string(claim), `"ended": false`) {
		t.Errorf("the claim is %s, %v", claim, err)
	}
	if _, err := bundle.OpenOutput(at); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "not empty") {
		t.Errorf("a folder that is taken: %v", err)
	}
	runs := &scripted{Runs: k.engine, plans: []func(context.Context, *task.Task, task.Options) (*task.Result, error){
		func(ctx context.Context, t *task.Task, o task.Options) (*task.Result, error) {
			o.Metadata.Set("judge_litellm_api_key", "hush-hush")
			return k.engine.Run(ctx, t, o)
		}}}
	opts := k.options(bundle.RunOptions{Parallel: 1, Times: 2, Output: o})
	opts.Runs = runs
	sum := p.Run(t.Context(), opts)
	if err := o.Finish(sum); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(at, "summary.json"))
	if err != nil {
		t.Fatal(err)
	}
	d, err := doc.ParseObject(text, doc.Options{})
	if err != nil || !d.Bool("ended") || d.Str("run_group_id") != sum.RunGroup || d.Obj("tally") == nil {
		t.Fatalf("%v: %s", err, text)
	}
	seen := map[string]bool{}
	for _, one := range d.Arr("tasks") {
		file := one.(*doc.Object).Str("context_file")
		if !regexp.MustCompile(`^[a-z0-9-]+-run-[12]\.json$`).MatchString(file) || seen[file] {
			t.Errorf("the context is in %q", file)
		}
		seen[file] = true
		text, err := os.ReadFile(filepath.Join(at, file))
		if err != nil {
			t.Fatal(err)
		}
		c, err := doc.ParseObject(text, doc.Options{})
		if err != nil || c.Obj("metadata").Str("task_id") != one.(*doc.Object).Str("task_id") || strings.Contains(string(text), "hush-hush") {
			t.Errorf("%s, %v", text, err)
		}
	}
	if files, _ := os.ReadDir(at); len(seen) != 6 || len(files) != 7 {
		t.Errorf("%v", files)
	}

	foreign := t.TempDir()
	if err := os.WriteFile(filepath.Join(foreign, "mine"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := bundle.OpenOutput(foreign); !fault.Is(err, fault.Invalid) {
		t.Errorf("a folder with a file: %v", err)
	}
	if _, err := bundle.OpenOutput(filepath.Join(foreign, "mine")); err == nil {
		t.Error("a file is taken for a folder")
	}
	unused, err := bundle.OpenOutput(filepath.Join(foreign, "unused"))
	if err != nil {
		t.Fatal(err)
	}
	unused.Close()
	if files, _ := os.ReadDir(foreign); len(files) != 1 {
		t.Errorf("an unused folder stays: %v", files)
	}
	var none *bundle.Output
	none.Close()
	if err := none.Finish(sum); err != nil {
		t.Error(err)
	}
}

// TestOutputThatIsLost takes the folder away while the runs go on: they end as they would, and the loss is told.
func TestOutputThatIsLost(t *testing.T) {
	k := newKit(t)
	p, _ := k.write(t, k.files(t, "p", map[string]string{"tasks/a.json": "[" + score("1") + "]"}), bundle.Selection{})
	at := filepath.Join(t.TempDir(), "out")
	o, err := bundle.OpenOutput(at)
	if err == nil {
		err = os.RemoveAll(at)
	}
	if err != nil {
		t.Fatal(err)
	}
	sum := p.Run(t.Context(), k.options(bundle.RunOptions{Output: o}))
	if err := o.Finish(sum); err == nil || strings.Count(err.Error(), "could not be written") != 2 {
		t.Errorf("%v", err)
	}
	if sum.ExitCode() != 0 || sum.Runs[0].Outcome != bundle.Passed || sum.Runs[0].Context != "" {
		t.Errorf("%+v", sum.Runs[0])
	}
}
