package cli

import (
	"context"
	"encoding/xml"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"

	"agentenv/bundle"
	"agentenv/fault"
	"agentenv/runner"
	queue "agentenv/runner/local"
	"agentenv/sandbox"
	"agentenv/store"
	"agentenv/store/doc"
	"agentenv/store/document"
	"agentenv/store/document/sqlite"
	"agentenv/task"
)

// act is a step's work as a function.
type act func(*task.Run) error

func (f act) Execute(_ context.Context, r *task.Run) error { return f(r) }

// newBundleBench is a bench that runs bundles of two kinds of steps: one gives a score of 1, one fails.
func newBundleBench(t *testing.T, files map[string]string) *bench {
	t.Helper()
	b := newBench(t, files)
	kind := func(name string, do act) *task.StepType {
		return &task.StepType{Name: name, FailsTask: true, Parse: func(string, *doc.Object) (task.Action, *doc.Object, error) { return do, nil, nil }}
	}
	reg, err := task.NewRegistry(kind("scores", func(r *task.Run) error { r.Set(doc.Of("score", doc.Int(1)), "verifications", "v"); return nil }),
		kind("breaks", func(*task.Run) error { return fault.New(fault.Unavailable, "nobody answers") }))
	if err != nil {
		t.Fatal(err)
	}
	catalog, err := bundle.NewCatalog("agentenv-framework", "1", fstest.MapFS{})
	if err != nil {
		t.Fatal(err)
	}
	open, state := b.app.Open, t.TempDir()
	b.app.Open = func(ctx context.Context, log *slog.Logger) (*Services, error) {
		s, err := open(ctx, log)
		if err == nil {
			err = s.takeBundles(reg, catalog, state)
		}
		return s, err
	}
	return b
}

// takeBundles gives the services what bundles need: a private namespace beside the documents, and what works on both.
func (s *Services) takeBundles(reg *task.Registry, catalog *bundle.Catalog, state string) error {
	private, err := sqlite.New(sqlite.Options{Path: filepath.Join(state, "local.db"), CheckID: store.CheckLocalID})
	if err != nil {
		return err
	}
	s.Closers = append(s.Closers, private.Close)
	s.Documents = document.NewRouter(s.Documents, private)
	s.Registry, s.Catalog, s.Engine = reg, catalog, task.NewEngine(reg, s.Documents, nil, nil)
	s.Instances, s.Records = task.NewInstances(s.Documents), runner.NewRecords(s.Documents, sandbox.ThisProcess(), nil)
	s.Tracker = queue.NewTracker(s.Records, nil)
	s.Bundles = bundle.NewRunner(bundle.Deps{Registry: reg, Documents: s.Documents, Artifacts: s.Artifacts, StateRoot: state})
	return nil
}

var twoTasks = map[string]string{"p q/tasks/good.json": `[{"type":"scores","id":"s"}]`, "p q/tasks/bad.json": `[{"type":"breaks","id":"b"}]`}

var changing = regexp.MustCompile(`\d+\.\ds|[0-9a-f]{32}|(@local@/p q/\w+)-[a-z0-9]{8}`)

// told is output without what differs from run to run.
func told(s string) string {
	return strings.ReplaceAll(changing.ReplaceAllString(s, "$1…"), "@local@/", "@local/~/")
}

func TestRunLines(t *testing.T) {
	t.Parallel()
	b := newBundleBench(t, twoTasks)
	code, out, errs := b.run("run", "@/p q", "--k", "2", "-j", "1", "--model", "it's", "--max-parallel-steps", "3", "--fail-fast=false")
	_, out, _ = strings.Cut(out, "\n\n")
	want := `Tasks:
  tasks/bad.json run 1 v1: failed at step 'b': RuntimeError: nobody answers, …, instance @local/~/p q/bad…
    repeat: agent-env run --task bad --model 'it'\''s' --max-parallel-steps 3 --fail-fast=false '@/p q'
  tasks/bad.json run 2 v1: failed at step 'b': RuntimeError: nobody answers, …, instance @local/~/p q/bad…
    repeat: agent-env run --task bad --model 'it'\''s' --max-parallel-steps 3 --fail-fast=false '@/p q'
  tasks/good.json run 1 v1: passed (v: 1), …, instance @local/~/p q/good…
  tasks/good.json run 2 v1: passed (v: 1), …, instance @local/~/p q/good…
Results:
  2 of 2 counted runs passed: pass rate 1 (95 % interval 0.342 to 1)
  runs: 4; counted: 2 completed; left out: 2 infrastructure
  mean score 1
  time: … in all, mean …, p50 …, p95 …
  tasks/bad.json v1:
    no run counts
    runs: 2; left out: 2 infrastructure
    time: … in all, mean …, p50 …, p95 …
  tasks/good.json v1:
    2 of 2 counted runs passed: pass rate 1 (95 % interval 0.342 to 1)
    runs: 2; counted: 2 completed
    pass@1 1, pass@2 1
    mean score 1
    time: … in all, mean …, p50 …, p95 …
`
	if got := told(out); code != 1 || got != want {
		t.Errorf("exit code %d\n%s\nwant\n%s\n%s", code, got, want, errs)
	}

	// The infrastructure again: the last invocation is looked at, with its group by name as well.
	code, out, _ = b.run("run", "@/p q", "--rerun", "infrastructure,judge")
	if head, _, _ := strings.Cut(told(out), "tasks/bad.json: v1, unchanged"); code != 1 || head != `Rerunning 2 of 4 runs in group …, which ended as one of infrastructure, judge:
  tasks/bad.json: infrastructure, instance @local/~/p q/bad…: nobody answers
  tasks/bad.json: infrastructure, instance @local/~/p q/bad…: nobody answers
` || strings.Contains(out, "good.json") {
		t.Errorf("exit code %d\n%s", code, told(out))
	}
	if code, out, errs := b.run("run", "@/p q", "--rerun", "judge"); code != 0 || told(out) != "Nothing to rerun: of 2 runs in group …, none ended as judge.\n" {
		t.Errorf("exit code %d\n%s\n%s", code, out, errs)
	}
	code, out, errs = b.run("run", "@/p q", "--rerun", "judge", "--json")
	if d, err := doc.ParseObject([]byte(out), doc.Options{}); err != nil || code != 0 || len(d.Arr("tasks")) != 0 || !strings.HasPrefix(errs, "Nothing to rerun") {
		t.Errorf("exit code %d, %v\n%s\n%s", code, err, out, errs)
	}
}

func TestRunReports(t *testing.T) {
	t.Parallel()
	b := newBundleBench(t, twoTasks)
	code, out, _ := b.run("run", "@/p q", "--max-concurrency", "1", "--junit", "@/x.xml", "--output-dir", "@/out", "--json")
	d, err := doc.ParseObject([]byte(out), doc.Options{})
	if err != nil || code != 1 || d.Obj("tally").Obj("total").Value("pass_rate") == nil {
		t.Fatalf("exit code %d, %v\n%s", code, err, out)
	}
	var report struct {
		Tests  int `xml:"tests,attr"`
		Errors int `xml:"errors,attr"`
	}
	text, err := os.ReadFile(filepath.Join(b.dir, "x.xml"))
	if err == nil {
		err = xml.Unmarshal(text, &report)
	}
	if err != nil || report.Tests != 2 || report.Errors != 1 {
		t.Errorf("%v, %v\n%s", report, err, text)
	}
	for _, one := range d.Arr("tasks") {
		if _, err := os.Stat(filepath.Join(b.dir, "out", one.(*doc.Object).Str("context_file"))); err != nil || one.(*doc.Object).Str("context_file") == "" {
			t.Error(err)
		}
	}
	summary, err := os.ReadFile(filepath.Join(b.dir, "out", "summary.json"))
	summary = []byte(strings.ReplaceAll(string(summary), b.dir+"/", "@/"))
	if s, perr := doc.ParseObject(summary, doc.Options{}); err != nil || perr != nil || !s.Bool("ended") || !doc.Equal(s.Value("tasks"), d.Value("tasks")) {
		t.Errorf("%v, %v\n%s", err, perr, summary)
	}
	// A bundle that cannot run leaves no folder behind, and one that is taken stops before anything runs.
	if code, _, _ := b.run("run", "@/nosuch", "--output-dir", "@/other"); code != 1 {
		t.Errorf("exit code %d", code)
	}
	if _, err := os.Stat(filepath.Join(b.dir, "other")); !os.IsNotExist(err) {
		t.Errorf("a folder stays: %v", err)
	}
	code, out, errs := b.run("run", "@/p q", "--output-dir", "@/out")
	if code != 1 || out != "" || !strings.HasPrefix(errs, "Error: --output-dir: the folder '@/out' is not empty") {
		t.Errorf("exit code %d\n%s\n%s", code, out, errs)
	}
}

func TestRunFlagsThatMeanNothing(t *testing.T) {
	t.Parallel()
	b := newBundleBench(t, twoTasks)
	for line, want := range map[string]string{
		"--k 0":                      "--k must be at least 1, not 0",
		"--k -1":                     "--k must be at least 1, not -1",
		"-j 0":                       "--jobs must be at least 1, not 0",
		"--concurrency 0":            "--jobs must be at least 1, not 0",
		"--max-concurrency -3":       "--jobs must be at least 1, not -3",
		"--max-parallel-steps 0":     "--max-parallel-steps must be at least 1, not 0",
		"--max-parallel-steps many":  `invalid argument "many" for "--max-parallel-steps" flag: strconv.ParseInt: parsing "many": invalid syntax`,
		"--fail-fast=perhaps":        `invalid argument "perhaps" for "--fail-fast" flag: strconv.ParseBool: parsing "perhaps": invalid syntax`,
		"--rerun flaky":              `--rerun "flaky": no such class; there are passed, failed, timed_out, infrastructure, configuration, judge, cancelled`,
		"--rerun=":                   "--rerun names no class; there are passed, failed, timed_out, infrastructure, configuration, judge, cancelled",
		"--group g":                  "--group goes with --rerun",
		"--rerun failed --group=":    "--group is empty",
		"--rerun failed --k 2":       "--rerun runs each run that it finds once more; it does not go with --k",
		"--junit=":                   "--junit is empty",
		"--output-dir=":              "--output-dir is empty",
		"--dry-run --junit @/x.xml":  "--dry-run runs nothing; it does not go with --junit or --output-dir",
		"--dry-run --output-dir @/d": "--dry-run runs nothing; it does not go with --junit or --output-dir",
	} {
		code, out, errs := b.run(append([]string{"run", "@/p q"}, strings.Fields(line)...)...)
		if code != exitUsage || out != "" || !strings.HasSuffix(errs, "\nError: "+want+"\n") {
			t.Errorf("%s: exit code %d\n%s%s", line, code, out, errs)
		}
	}
	for _, flag := range []string{"--k", "--rerun", "--group"} {
		if code, _, errs := b.run("run", "--resume", "i-1", flag, "1"); code != exitUsage || !strings.Contains(errs, "it does not go with "+flag) {
			t.Errorf("--resume with %s: exit code %d, %s", flag, code, errs)
		}
	}
	for line, want := range map[string]string{"--rerun failed --group nosuch": "no run of this bundle's tasks in that group", "--junit @/": "is there already and is no regular file",
		"--junit @/no/x.xml": "no such file or directory"} {
		code, out, errs := b.run(append([]string{"run", "@/p q"}, strings.Fields(line)...)...)
		if code != exitError || out != "" || !strings.Contains(errs, want) {
			t.Errorf("%s: exit code %d\n%s%s", line, code, out, errs)
		}
	}
	if entries, _ := os.ReadDir(b.dir); len(entries) != 1 {
		t.Errorf("something was written: %v", entries)
	}
}

// TestShellWord has a shell read back what was quoted for it.
func TestShellWord(t *testing.T) {
	t.Parallel()
	for _, word := range []string{"plain", "", "it's", "a b", "$HOME `id` \"x\" \\", "new\nline", "~/x", "-x", "*", "a=b;c&d|e", "''", "ü"} {
		got, err := exec.Command("sh", "-c", "printf %s "+shellWord(word)).Output()
		if err != nil || string(got) != word {
			t.Errorf("%q is quoted as %s, read as %q, %v", word, shellWord(word), got, err)
		}
	}
}
