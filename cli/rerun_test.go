package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"agentenv/runner"
	"agentenv/store/doc"
)

// makeFile makes a file of the bench that a step needs.
func (b *bench) makeFile(name string) {
	b.t.Helper()
	if err := os.WriteFile(filepath.Join(b.dir, name), nil, 0o600); err != nil {
		b.t.Fatal(err)
	}
}

// groupOf is the run group of a command that printed JSON.
func groupOf(t *testing.T, out string) string {
	t.Helper()
	d, err := doc.ParseObject([]byte(out), doc.Options{})
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return d.Str("run_group_id")
}

// TestRerunOfTheSameTask runs again what ended in a class, as often as it did.
func TestRerunOfTheSameTask(t *testing.T) {
	t.Parallel()
	b, _, _ := newRunBench(t, nil)
	b.store("t", `[{"id":"a","type":"needs","file":"`+b.dir+`/ready"}]`)
	if code, _, errs := b.run("task", "run", "--id", "t", "--rerun", "failed"); code != 1 || !strings.Contains(errs, "no earlier run of it is on record") {
		t.Errorf("without a run: exit code %d %s", code, errs)
	}
	code, out, errs := b.run("task", "run", "--id", "t", "--k", "2", "--json")
	if code != 1 {
		t.Fatalf("exit code %d %s", code, errs)
	}
	group := groupOf(t, out)
	for _, want := range []struct {
		args string
		code int
		text string
	}{
		{"--rerun failed", 0, "Nothing to rerun: of 2 runs in group " + group + ", none ended as failed."},
		{"--rerun failed,timed_out", 0, "none ended as failed or timed_out."},
		{"--rerun failed --group none", 1, "--group none: no run in that group"},
		{"--rerun bad", 2, `--rerun "bad": no such class`},
		{"--group " + group, 2, "--group goes with --rerun"},
		{"--rerun failed --k 2", 2, "it does not go with --k"},
		{"--max-parallel-steps 0", 2, "--max-parallel-steps must be at least 1, not 0"},
		{"--rerun failed --json --group " + group, 0, `"runs": []`},
		{"--rerun infrastructure --detach", 0, "Rerunning 2 of 2 runs in group " + group + ", which ended as infrastructure:\n  t-"},
	} {
		code, out, errs := b.run(append([]string{"task", "run", "--id", "t"}, strings.Fields(want.args)...)...)
		if code != want.code || !strings.Contains(out+errs, want.text) {
			t.Errorf("%s: exit code %d, want %d and %q\n%s%s", want.args, code, want.code, want.text, out, errs)
		}
	}
	b.makeFile("ready")
	code, out, errs = b.run("task", "run", "--id", "t", "--rerun", "infrastructure", "--group", group)
	if code != 0 || !strings.Contains(out, "[run 2] Run COMPLETED") || !strings.HasSuffix(out, "All 2 runs completed!\n") {
		t.Errorf("exit code %d %s\n%s", code, errs, out)
	}
	// The newest group is the one of the runs that passed by now.
	if code, out, errs = b.run("task", "run", "--id", "t", "--rerun", "infrastructure"); code != 0 || !strings.Contains(out, "Nothing to rerun: of 2 runs in group") {
		t.Errorf("exit code %d %s\n%s", code, errs, out)
	}
}

// TestRerunOfABatchAndAnEval runs again the rows and the tasks that did not end well, and no others.
func TestRerunOfABatchAndAnEval(t *testing.T) {
	t.Parallel()
	b, _, _ := newRunBench(t, map[string]string{"s.csv": "name\nready\nlate\nlate\n", "e.json": `[{"task_id":"good"},{"task_id":"bad"}]`})
	b.makeFile("ready")
	b.store("t", `[{"id":"a","type":"needs","file":"`+b.dir+`/<name>"}]`)
	b.store("good", `[{"id":"a","type":"needs","file":"`+b.dir+`/ready"}]`)
	b.store("bad", `[{"id":"a","type":"needs","file":"`+b.dir+`/late"}]`)
	if code, _, errs := b.run("eval", "create", "@/e.json", "--id", "e"); code != 0 {
		t.Fatal(errs)
	}
	batch, eval := []string{"task", "run-batch", "--id", "t", "--seeds", "@/s.csv"}, []string{"eval", "run", "--id", "e"}
	if code, _, errs := b.run(append(batch, "--max-parallel-steps", "3", "--fail-fast")...); code != 1 ||
		!strings.Contains(errs, "repeat what did not complete: agent-env task run-batch --id t --version 1 --fail-fast=true --max-parallel-steps 3 --seeds @/s.csv --group ") || !strings.Contains(errs, " --rerun infrastructure\n") {
		t.Fatalf("exit code %d %s", code, errs)
	}
	if code, _, errs := b.run(append(eval, "--k", "2")...); code != 1 {
		t.Fatalf("exit code %d %s", code, errs)
	}
	if code, _, errs := b.run("task", "run", "--id", "bad"); code != 1 { // no run of the eval
		t.Fatalf("exit code %d %s", code, errs)
	}
	b.makeFile("late")
	code, out, errs := b.run(append(batch, "--rerun", "infrastructure")...)
	if code != 0 || !strings.Contains(out, "Rerunning 2 of 3 runs") || strings.Contains(out, "[seed 1:") || !strings.Contains(out, "[seed 3: late] Run COMPLETED") || !strings.HasSuffix(out, "All 2 seeds completed!\n") {
		t.Errorf("batch: exit code %d %s\n%s", code, errs, out)
	}
	code, out, errs = b.run(append(eval, "--rerun", "infrastructure")...)
	if code != 0 || !strings.Contains(out, "Rerunning 2 of 4 runs") || strings.Contains(out, "[good") || !strings.Contains(out, "[bad run 2] Run COMPLETED") {
		t.Errorf("eval: exit code %d %s\n%s", code, errs, out)
	}
	runs, err := b.opened().Records.List(t.Context(), runner.Query{TaskID: "t"})
	if err != nil || len(runs) != 5 {
		t.Fatalf("%v, %d runs", err, len(runs))
	}
	for i, r := range runs { // the newest first
		want := "null"
		if i >= 2 {
			want = `{"fail_fast":true,"max_parallel_steps":3}`
		}
		in, err := b.opened().Instances.Get(t.Context(), r.Instance)
		if err != nil || doc.Canonical(r.Document.Value("limits")) != want || doc.Canonical(in.Document.Value("limits")) != want {
			t.Errorf("run %d: %v, the record has %v, the instance %v", i, err, r.Document.Value("limits"), in.Document.Value("limits"))
		}
	}
}

// TestLimitsWaitInTheQueue submits with limits, and another process runs with them.
func TestLimitsWaitInTheQueue(t *testing.T) {
	t.Parallel()
	b, _, _ := newRunBench(t, nil)
	b.store("t", `[{"id":"a","type":"says","text":"x"}]`)
	code, out, errs := b.run("task", "run", "--id", "t", "--detach", "--json", "--max-parallel-steps", "2", "--fail-fast=false")
	if code != 0 {
		t.Fatalf("exit code %d %s", code, errs)
	}
	if code, _, errs := b.run("runs", "work", "--once"); code != 0 {
		t.Fatalf("exit code %d %s", code, errs)
	}
	runs, err := b.opened().Records.List(t.Context(), runner.Query{Group: groupOf(t, out)})
	if err != nil || len(runs) != 1 || runs[0].Status != runner.Completed {
		t.Fatalf("%v, %v", err, runs)
	}
	in, err := b.opened().Instances.Get(t.Context(), runs[0].Instance)
	if want := `{"fail_fast":false,"max_parallel_steps":2}`; err != nil || doc.Canonical(in.Document.Value("limits")) != want {
		t.Errorf("%v, ran with %v", err, in.Document.Value("limits"))
	}
}
