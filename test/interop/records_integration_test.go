//go:build integration

package interop_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"agentenv/test/kit"
)

// TestHello runs the shipped bundle: its lines, its record and its rows are the same.
func TestHello(t *testing.T) {
	t.Parallel()
	var said [2]string
	var records, rows [2]any
	for i, program := range []string{reference, ours} {
		u := newUser(t)
		out := regexp.MustCompile(`\d+\.\ds`).ReplaceAllString(u.OK(program, "run", "hello"), "Ts")
		said[i] = regexp.MustCompile(`hello-[a-z0-9]{8}`).ReplaceAllString(out, "hello-INSTANCE")
		in := u.inOrder("task_instances")
		if len(in) != 1 {
			t.Fatalf("%s: %d instances", name(program), len(in))
		}
		record := map[string]any{}
		for _, key := range []string{"task_id", "task_version", "total_steps", "status", "error", "rev", "run_generation", "attempt_epoch", "journal_seq", "current_step", "completed_steps", "rerecorded_steps"} {
			record[key] = kit.At(in[0], key)
		}
		var list []any
		for _, r := range u.documents("task_step_journal", "seq") {
			list = append(list, fmt.Sprintf("%v %v %v %v", kit.At(r, "seq"), kit.At(r, "step_id"), kit.At(r, "status"), kit.At(r, "generation")))
		}
		records[i], rows[i] = record, list
	}
	for what, d := range map[string]string{"the lines": cmp.Diff(said[0], said[1]), "the record": cmp.Diff(records[0], records[1]), "the rows": cmp.Diff(rows[0], rows[1])} {
		if d != "" {
			t.Errorf("%s of the reference and ours:\n%s", what, d)
		}
	}
	if r := records[1].(map[string]any); r["status"] != "completed" || r["current_step"] != 3.0 || r["rev"] != 3.0 || r["journal_seq"] != 4.0 || strings.Count(said[1], " done in Ts") != 3 ||
		!strings.Contains(said[1], "passed (hello: 1)") || !strings.HasSuffix(said[1], "\nTore down 1 sandbox.\n") {
		t.Errorf("%v\n%s", r, said[1])
	}
	if want := []any{"1 __seed__ seed 0", "2 box success 0", "3 load success 0", "4 hello success 0"}; !cmp.Equal(rows[1], any(want)) {
		t.Errorf("the rows are %v", rows[1])
	}
}

// TestTasksThatAreRefused cost nothing: neither program stores any of them.
func TestTasksThatAreRefused(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		steps string
		says  []string
	}{
		"a step that comes later": {`[{"id":"ask","type":"teardown_sandboxes","agent_names":["ghost"],"depends_on":["later"]},` + fmt.Sprintf(noop, "later") + `]`, []string{"'ask'", "'later'", "come before it", "forward ref"}},
		"two of one name":         {join(fmt.Sprintf(noop, "twin"), fmt.Sprintf(noop, "twin")), []string{"'twin'", "position 1", "unique"}},
		"a step of no task":       {join(fmt.Sprintf(noop, "a"), `{"id":"b","type":"teardown_sandboxes","agent_names":["ghost"],"depends_on":["aa"]}`), []string{"'b'", "'aa'", "names no step"}},
		"a retry from a stranger": {join(fmt.Sprintf(noop, "a"), `{"id":"b","type":"teardown_sandboxes","agent_names":["ghost"],"depends_on":[],"retry_config":{"retry_from_step_id":"a"}}`), []string{"'b'", "'a'"}},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			u := newUser(t)
			file := filepath.Join(kit.Write(t, u.Home, kit.Files{"steps.json": c.steps, "fine.json": join(fmt.Sprintf(noop, "a"), fmt.Sprintf(noop, "b"), fmt.Sprintf(noop, "ask"), fmt.Sprintf(noop, "later"), fmt.Sprintf(noop, "twin"))}), "steps.json")
			for _, program := range []string{reference, ours} {
				r := u.Run(program, "task", "create", "--id", storedJob, file)
				if r.Code != 1 {
					t.Errorf("%s: %s", name(program), r)
				}
				for _, want := range c.says {
					if text := strings.ReplaceAll(r.Stdout+r.Stderr, `"`, "'"); !strings.Contains(text, want) {
						t.Errorf("%s does not say %q: %s", name(program), want, r)
					}
				}
			}
			u.OK(ours, "task", "create", "--id", storedJob, filepath.Join(u.Home, "fine.json"))
			stored := u.inOrder("tasks")
			if len(stored) != 1 || kit.At(stored[0], "version") != 1.0 {
				t.Errorf("%d tasks are stored", len(stored))
			}
			for _, step := range kit.At(stored[0], "steps").([]any) {
				if kit.At(step, "version") != 1.0 {
					t.Errorf("a step was stored before: %v", step)
				}
			}
		})
	}
}

// waitsFor is a script that fails until a file is there.
func waitsFor(file string) kit.Files {
	return kit.Files{"codes/s.py": fmt.Sprintf("import os\ndef run(i):\n    if not os.path.exists(%q):\n        raise RuntimeError('not yet')\n    return {'n': 1}\n", file)}
}

// laterSteps is a task that fails at its second step until a file is there, and grades what it then finds.
const laterSteps = `[{"id":"box","type":"deploy_sandbox","sandbox_name":"box","sandbox_mode":"vm","sandbox_type":"local"},
 {"id":"code","type":"run_code","sandbox_name":"box","script_artifact_id":"codes","script_file":"s.py"},
 {"id":"v","type":"verify_sandbox","sandbox_name":"box","verifier_id":"v","criteria":[{"type":"bash_cmd_succeeds","bash_cmd":"true"}]}]`

// TestRunRecordsCross has both programs run stored tasks on one state folder: each reads what the other recorded, and goes on from it.
func TestRunRecordsCross(t *testing.T) {
	for _, writer := range []string{ours, reference} {
		reader := reference
		if writer == reference {
			reader = ours
		}
		t.Run(name(writer)+" writes", func(t *testing.T) {
			t.Parallel()
			u := newUser(t)
			there := filepath.Join(u.Dir, "there")
			dir := kit.Write(t, u.Home, waitsFor(there))
			kit.Write(t, dir, kit.Files{"steps.json": laterSteps})
			u.OK(writer, "artifact", "file-artifact-universe", "put-bundled", "--id", "codes", "--file-dir", filepath.Join(dir, "codes"))
			u.OK(writer, "task", "create", "--id", storedJob, filepath.Join(dir, "steps.json"))
			out := filepath.Join(u.Home, "out")
			run := func(program string, code int, more ...string) (run, instance string) {
				t.Helper()
				r := u.Run(program, append([]string{"task", "run", "--id", storedJob, "--output-dir", out}, more...)...)
				m := regexp.MustCompile(`Submitted run (local-[0-9a-f]{32}) \(instance (\S+)\)`).FindStringSubmatch(r.Stdout)
				if r.Code != code || m == nil {
					t.Fatalf("%s: %s", name(program), r)
				}
				return m[1], m[2]
			}
			failedRun, failed := run(writer, 1)
			kit.Write(t, u.Dir, kit.Files{"there": ""})
			passedRun, passed := run(writer, 0)
			_, again := run(reader, 0)

			// What both say of each run.
			for _, id := range []string{failed, passed, again} {
				r, o := u.OK(reference, "task", "get-instance", "--id", id), u.OK(ours, "task", "get-instance", "--id", id)
				if d := cmp.Diff(kit.Parse(t, r[strings.Index(r, "{"):]), kit.Parse(t, o[strings.Index(o, "{"):])); d != "" {
					t.Errorf("the context of %s as both print it:\n%s", id, d)
				}
				if a, b := fieldsOf(r), fieldsOf(o); !cmp.Equal(a, b) {
					t.Errorf("the record of %s as both print it:\n%s", id, cmp.Diff(a, b))
				}
			}
			listed := kit.Parse(t, u.OK(ours, "runs", "list", "--json"))
			var got []string
			for i := range len(kit.At(listed, "runs").([]any)) {
				r := kit.At(listed, "runs", i)
				got = append(got, fmt.Sprintf("%v %v %v %v %v", kit.At(r, "run_id"), kit.At(r, "instance_id"), kit.At(r, "status"), kit.At(r, "steps_done"), kit.At(r, "ended_at") != nil))
			}
			for run, want := range map[string]string{failedRun: failed + " failed 1 true", passedRun: passed + " completed 3 true"} {
				if !slices.Contains(got, run+" "+want) {
					t.Errorf("no %s %s among %v", run, want, got)
				}
				shown := kit.Parse(t, u.OK(ours, "runs", "show", run, "--json"))
				if kit.At(shown, "run_id") != run || kit.At(shown, "instance_id") == nil || len(kit.At(shown, "steps").([]any)) != 3 {
					t.Errorf("shown: %v", shown)
				}
			}
			shown := kit.Parse(t, u.OK(ours, "runs", "show", failed, "--json"))
			if kit.At(shown, "failures", 0, "step") != "code" || kit.At(shown, "failures", 0, "error_class") == nil || !strings.Contains(fmt.Sprint(kit.At(shown, "error")), "not yet") {
				t.Errorf("the failed run is shown as %v", shown)
			}
			u.OK(ours, "runs", "show", passedRun)
			u.OK(ours, "runs", "diff", passed, again)
			if out := u.OK(ours, "runs", "show", passed); !strings.Contains(out, "v: 1") {
				t.Errorf("the score is not shown:\n%s", out)
			}

			// The reader begins a run of its own with the context of one that failed, mended.
			const other = storedJob + "n"
			kit.Write(t, dir, kit.Files{"n.json": join(fmt.Sprintf(noop, "s0"), bad("b", ""))})
			u.OK(writer, "task", "create", "--id", other, filepath.Join(dir, "n.json"))
			if r := u.Run(writer, "task", "run", "--id", other, "--output-dir", filepath.Join(u.Home, "n")); r.Code != 1 {
				t.Fatalf("%s: %s", name(writer), r)
			}
			contexts, _ := exported(t, filepath.Join(u.Home, "n"))
			mended := contexts[0].(map[string]any)
			kit.At(mended, "metadata").(map[string]any)["verifications"] = map[string]any{"nope": map[string]any{"score": 1.0, "results": []any{map[string]any{"type": "x", "score": 1.0}}}}
			text, err := json.Marshal(mended)
			if err != nil {
				t.Fatal(err)
			}
			kit.Write(t, u.Home, kit.Files{"mended.json": string(text)})
			u.OK(reader, "task", "run", "--id", other, "--start-step", "1", "--context-json", filepath.Join(u.Home, "mended.json"), "--output-dir", filepath.Join(u.Home, "n"))
			all := u.inOrder("task_instances")
			if in := all[len(all)-1]; kit.At(in, "status") != "completed" || kit.At(in, "context", "metadata", "verifications", "b", "score") != 1.0 ||
				len(kit.At(in, "completed_steps").([]any)) != 2 || kit.At(in, "context", "metadata", "run_group_id") != kit.At(mended, "metadata", "run_group_id") {
				t.Errorf("begun with a context of the other: %v", in)
			}

			// Ours goes on with a run that failed, whoever recorded it, and verifies one that passed; the reference reads what came of it.
			u.OK(ours, "task", "resume", "--id", failed)
			in := instanceOf(t, u, failed)
			if kit.At(in, "status") != "completed" || kit.At(in, "error") != nil || len(kit.At(in, "completed_steps").([]any)) != 3 || kit.At(in, "attempt_epoch") != 1.0 {
				t.Errorf("gone on with: %v", in)
			}
			if text := u.OK(reference, "task", "get-instance", "--id", failed); !strings.Contains(text, "completed") || !strings.Contains(text, "3/3") {
				t.Errorf("the reference reads it as\n%s", text)
			}
			// And the reference works on where ours left.
			run(reference, 0)
			if left, _ := os.ReadDir(u.Sandboxes); len(left) != 0 {
				t.Errorf("%d work folders are left", len(left))
			}
		})
	}
}

// fieldsOf returns the lines `name: value` in front of the context.
func fieldsOf(out string) map[string]string {
	fields := map[string]string{}
	head, _, _ := strings.Cut(out, "{")
	for line := range strings.Lines(head) {
		if name, value, ok := strings.Cut(line, ":"); ok {
			fields[strings.ToLower(strings.TrimSpace(name))] = strings.TrimSpace(value)
		}
	}
	return fields
}

func instanceOf(t *testing.T, u *user, id string) any {
	t.Helper()
	for _, in := range u.inOrder("task_instances") {
		if kit.At(in, "instance_id") == id {
			return in
		}
	}
	t.Fatalf("%s is not recorded", id)
	return nil
}

// TestAKilledRunOfTheReference is marked by our worker as it is by the reference's own serving process, and by nothing else of ours.
func TestAKilledRunOfTheReference(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	began := filepath.Join(u.Dir, "began")
	steps := `[{"id":"box","type":"deploy_sandbox","sandbox_name":"box","sandbox_mode":"vm","sandbox_type":"local"},
 {"id":"v","type":"verify_sandbox","sandbox_name":"box","verifier_id":"v","criteria":[{"type":"bash_cmd_succeeds","bash_cmd":"touch ` + began + `; sleep 5"}]}]`
	u.OK(reference, "task", "create", "--id", storedJob, filepath.Join(kit.Write(t, u.Home, kit.Files{"steps.json": steps}), "steps.json"))
	p := u.Command(reference, "task", "run", "--id", storedJob)
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	defer p.Wait() //nolint:errcheck // it is killed
	for end := time.Now().Add(60 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if _, err := os.Stat(began); err == nil {
			break
		}
		if time.Now().After(end) {
			_ = p.Process.Kill()
			t.Fatal("it never began")
		}
	}
	u.OK(ours, "runs", "list")
	if out := u.OK(ours, "runs", "work", "--once"); !strings.Contains(out, "Ran nothing.") || kit.At(u.inOrder("runs")[0], "status") != "RUNNING" {
		t.Errorf("while it lives: %s\n%v", out, u.inOrder("runs"))
	}
	_ = p.Process.Kill()
	_ = p.Wait()
	u.OK(ours, "runs", "list")
	if got := kit.At(u.inOrder("runs")[0], "status"); got != "RUNNING" {
		t.Errorf("a list made it %v", got)
	}
	if out := u.OK(ours, "runs", "work", "--once"); !strings.Contains(out, "Ran nothing.") {
		t.Errorf("our worker:\n%s", out)
	}
	if r := u.inOrder("runs")[0]; kit.At(r, "status") != "FAILED" || kit.At(r, "error") != "interrupted by a hub restart" || kit.At(r, "finished_at_utc") == nil {
		t.Errorf("it is %v", r)
	}
	u.OK(ours, "sandbox", "prune", "--yes")
	time.Sleep(5 * time.Second) // its command ends by itself
}
