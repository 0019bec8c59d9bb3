//go:build integration

package interop_test

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentenv/test/kit"
)

const (
	noop      = `{"id":%q,"type":"teardown_sandboxes","agent_names":["ghost"]}`
	storedJob = "@local/~/x/tasks/t"
)

// bad is a step that always fails, with more fields.
func bad(id, more string) string {
	return fmt.Sprintf(`{"id":%q,"type":"aggregate_verifiers","verifier_ids":["nope"],"verifier_id":%q%s}`, id, id, more)
}

// eachStored gives both programs a user of their own with a task stored under storedJob, and fn the user.
func eachStored(t *testing.T, steps string, fn func(program string, u *user)) (ref, our *user) {
	t.Helper()
	users := map[string]*user{}
	for _, program := range []string{reference, ours} {
		u := newUser(t)
		users[program] = u
		u.OK(program, "task", "create", "--id", storedJob, filepath.Join(kit.Write(t, u.Home, kit.Files{"steps.json": steps}), "steps.json"))
		fn(program, u)
	}
	return users[reference], users[ours]
}

// inOrder returns the documents of a collection as they were made.
func (u *user) inOrder(coll string) []any {
	u.T.Helper()
	var out []any
	for _, text := range u.Select(fmt.Sprintf(`SELECT doc FROM "docs_%s" ORDER BY rowid`, coll)) {
		out = append(out, kit.Parse(u.T, text))
	}
	return out
}

// sameRuns compares what both programs recorded: instances, and of the run records what is not each program's own. Fields that say who ran
// it, and how an error is worded, may differ.
func sameRuns(t *testing.T, ref, our *user) {
	t.Helper()
	may := regexp.MustCompile(`^/\d+/(created_at_precise_utc|ended_at_precise_utc|step_outcomes|outcome_class|error|context/metadata/(runner|workflow_id))$|failed_steps/\d+/error$`)
	found := map[string]string{}
	differences("", normal(t, ref.inOrder("task_instances")), normal(t, our.inOrder("task_instances")), found)
	for at, what := range found {
		if !may.MatchString(at) {
			t.Errorf("instance %s: %s", at, what)
		}
	}
	runs := func(u *user) (out []any) {
		for _, r := range u.inOrder("runs") {
			out = append(out, map[string]any{"status": kit.At(r, "status"), "task": kit.At(r, "task_id"), "version": kit.At(r, "task_version"), "overrides": kit.At(r, "overrides")})
		}
		return out
	}
	compare(t, "runs", runs(ref), runs(our))
}

// exported returns the contexts that a command wrote into a folder, sorted by the names of the files.
func exported(t *testing.T, dir string) (contexts []any, names []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(files)
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		contexts = append(contexts, kit.Parse(t, string(text)))
		names = append(names, regexp.MustCompile(`_[0-9a-f]{8}\.json$`).ReplaceAllString(filepath.Base(f), "_HEX.json"))
	}
	return contexts, names
}

// storyOf keeps the lines of a run that scripts read, made the same each time; how an error is worded is each program's own.
func storyOf(out string) string {
	var kept []string
	lines := regexp.MustCompile(`^(\[[^]]*\] )?(Submitted run|Completed step|Failed step|Run COMPLETED|Run FAILED|score \(|Task completed!|All |\d+/\d+ )`)
	for line := range strings.Lines(out) {
		if lines.MatchString(line) {
			line = regexp.MustCompile(`local-[0-9a-f]{32}`).ReplaceAllString(line, "RUN")
			line = regexp.MustCompile(`-[a-z0-9]{8}\)`).ReplaceAllString(line, "-INSTANCE)")
			line, _, _ = strings.Cut(line, "Run FAILED: ")
			kept = append(kept, strings.TrimSuffix(line, "\n"))
		}
	}
	return strings.Join(kept, "\n")
}

// TestStoredRunOfToleratedFailure has a run go on after a failure: it is complete, and its record says that it failed.
func TestStoredRunOfToleratedFailure(t *testing.T) {
	t.Parallel()
	steps := join(fmt.Sprintf(noop, "a"), bad("b", `,"fail_task_on_error":false`), `{"id":"c","type":"teardown_sandboxes","agent_names":["ghost"],"depends_on":["b"]}`)
	stories := map[string]string{}
	ref, our := eachStored(t, steps, func(program string, u *user) {
		r := u.Run(program, "task", "run", "--id", storedJob, "--output-dir", filepath.Join(u.Home, "out"))
		if r.Code != 1 {
			t.Errorf("%s: %s", name(program), r)
		}
		stories[program] = storyOf(r.Stdout)
		contexts, _ := exported(t, filepath.Join(u.Home, "out"))
		if len(contexts) != 1 || cmp.Diff(contexts[0], kit.At(u.inOrder("task_instances")[0], "context")) != "" {
			t.Errorf("%s exported %v", name(program), contexts)
		}
	})
	if d := cmp.Diff(stories[reference], stories[ours]); d != "" {
		t.Errorf("the lines of the reference and ours:\n%s", d)
	}
	sameRuns(t, ref, our)
	in := our.inOrder("task_instances")[0]
	if kit.At(in, "status") != "completed" || kit.At(our.inOrder("runs")[0], "status") != "FAILED" || len(kit.At(in, "completed_steps").([]any)) != 3 {
		t.Errorf("%v", in)
	}
}

// TestStoredRunGoesOnFromItsContext has a run fail for good after its retries, and another begin with its context, mended, at the step that failed.
func TestStoredRunGoesOnFromItsContext(t *testing.T) {
	t.Parallel()
	steps := join(fmt.Sprintf(noop, "s0"), bad("b", `,"retry_config":{"go_to_step_id":"s0","max_retries":2}`), fmt.Sprintf(noop, "n"))
	ref, our := eachStored(t, steps, func(program string, u *user) {
		if r := u.Run(program, "task", "run", "--id", storedJob, "--output-dir", filepath.Join(u.Home, "out")); r.Code != 1 {
			t.Errorf("%s: %s", name(program), r)
		}
		if got := kit.At(kit.Parse(t, u.OK(program, "task", "get", "--id", storedJob)), 1, "retry_config"); cmp.Diff(got, map[string]any{"retry_from_step_id": "s0", "max_retries": 2.0}) != "" {
			t.Errorf("%s stored %v", name(program), got)
		}
		contexts, _ := exported(t, filepath.Join(u.Home, "out"))
		mended := contexts[0].(map[string]any)
		kit.At(mended, "metadata").(map[string]any)["verifications"] = map[string]any{"nope": map[string]any{"score": 1.0, "results": []any{map[string]any{"type": "x", "score": 1.0}}}}
		text, err := json.Marshal(mended)
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(kit.Write(t, filepath.Join(u.Home, "mended"), kit.Files{"ctx.json": string(text)}), "ctx.json")
		r := u.Run(program, "task", "run", "--id", storedJob, "--start-step", "1", "--context-json", file, "--output-dir", filepath.Join(u.Home, "again"))
		if r.Code != 0 || !strings.Contains(r.Stdout, "Run COMPLETED\n") || !strings.HasSuffix(strings.TrimSpace(r.Stdout), "Task completed!") {
			t.Errorf("%s: %s", name(program), r)
		}
	})
	all := our.inOrder("task_instances")
	failed, again := all[0], all[1]
	for path, want := range map[string]any{"attempt_epoch": 2.0, "rev": 6.0, "journal_seq": 6.0, "current_step": 1.0, "status": "failed"} {
		if got := kit.At(failed, path); got != want || kit.At(ref.inOrder("task_instances")[0], path) != want {
			t.Errorf("%s of the failed run is %v, want %v", path, got, want)
		}
	}
	resets := kit.At(failed, "context", "metadata", "retry_resets")
	if kit.At(resets, 0, "attempt") != 2.0 || kit.At(resets, 1, "attempt") != 3.0 || cmp.Diff(kit.At(resets, 1, "replayed"), []any{"s0", "b", "n"}) != "" {
		t.Errorf("retry resets %v", resets)
	}
	want := []any{map[string]any{"step_id": "s0", "status": "success"}, map[string]any{"step_id": "b", "status": "success"}, map[string]any{"step_id": "n", "status": "success"}}
	for _, u := range []*user{ref, our} {
		if d := cmp.Diff(want, kit.At(u.inOrder("task_instances")[1], "completed_steps")); d != "" {
			t.Error(d)
		}
	}
	for _, f := range kit.At(again, "context", "metadata", "failed_steps").([]any) {
		if kit.At(f, "step_id") == "b" {
			t.Errorf("the run that went on still holds %v", f)
		}
	}
	if a, b := kit.At(failed, "context", "metadata", "run_group_id"), kit.At(again, "context", "metadata", "run_group_id"); a != b {
		t.Errorf("the group of the context is lost: %v, %v", a, b)
	}
}

// TestKeysAreNotStored gives a run a key itself and a reference to another.
func TestKeysAreNotStored(t *testing.T) {
	t.Parallel()
	ref, our := eachStored(t, join(fmt.Sprintf(noop, "a")), func(program string, u *user) {
		u.OK(program, "task", "run", "--id", storedJob, "--litellm-api-key", "sk-raw-key", "--judge-litellm-api-key", "secret:j", "--output-dir", filepath.Join(u.Home, "out"))
		for _, dir := range []string{filepath.Dir(u.State), filepath.Join(u.Home, "out"), u.Tmp} {
			err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
				if err != nil || !d.Type().IsRegular() {
					return err
				}
				text, err := os.ReadFile(path)
				if strings.Contains(string(text), "sk-raw-key") {
					t.Errorf("%s: the key is in %s", name(program), path)
				}
				return err
			})
			if err != nil && !os.IsNotExist(err) {
				t.Error(err)
			}
		}
		if d := cmp.Diff(map[string]any{"judge_litellm_api_key": "secret:j"}, kit.At(u.inOrder("task_instances")[0], "context", "metadata", "user_overrides")); d != "" {
			t.Errorf("%s: %s", name(program), d)
		}
	})
	sameRuns(t, ref, our)
}

// TestSeedsCross has both programs run the same rows, and compares what each run was given.
func TestSeedsCross(t *testing.T) {
	t.Parallel()
	rows := "name,v,id\nx,u,\ny,\"a\r\nb \"\"c\"\"\",I\n,,\nshort\n,w,\n"
	step := `{"id":"out-<name>","type":"teardown_sandboxes","agent_names":["ghost-<v>"]}`
	stories := map[string]string{}
	ref, our := eachStored(t, join(step), func(program string, u *user) {
		file := filepath.Join(kit.Write(t, u.Home, kit.Files{"rows.csv": rows}), "rows.csv")
		r := u.Run(program, "task", "run-batch", "--id", storedJob, "--seeds", file, "--concurrency", "1", "--output-dir", filepath.Join(u.Home, "out"))
		if r.Code != 0 {
			t.Errorf("%s: %s", name(program), r)
		}
		stories[program] = storyOf(r.Stdout)
		contexts, names := exported(t, filepath.Join(u.Home, "out"))
		if len(contexts) != 4 || !strings.Contains(names[0], "-seed1_HEX.json") && !strings.HasPrefix(names[0], "local-") {
			t.Errorf("%s wrote %v", name(program), names)
		}
		if text := u.OK(program, "task", "get", "--id", storedJob); !strings.Contains(text, "out-<name>") || !strings.Contains(text, "ghost-<v>") {
			t.Errorf("%s changed the task: %s", name(program), text)
		}
	})
	stories[reference] = strings.ReplaceAll(stories[reference], "[seed 4: ] ", "[seed 4: seed-4] ") // it takes an empty name for one
	order := func(story string) []string {                                                          // the reference submits a run when there is room for it
		lines := strings.Split(story, "\n")
		slices.Sort(lines)
		return lines
	}
	if d := cmp.Diff(order(stories[reference]), order(stories[ours])); d != "" {
		t.Errorf("the lines of the reference and ours:\n%s", d)
	}
	sameRuns(t, ref, our)
	var universes []any
	for _, in := range our.inOrder("task_instances") {
		universes = append(universes, kit.At(in, "context", "metadata", "universe_id"))
	}
	if d := cmp.Diff([]any{storedJob + "__v1-x", storedJob + "__v1-I", storedJob + "__v1-short", nil}, universes); d != "" {
		t.Error(d)
	}
	// A row whose collected files would get an id that cannot be is refused before anything runs.
	collects := join(step, `{"id":"c","type":"collect_artifacts","sandbox_name":"box","base_path":"/app","universe_id_suffix":"-c"}`)
	for program, u := range map[string]*user{reference: ref, ours: our} {
		dir := kit.Write(t, u.Home, kit.Files{"bad.csv": "name,v\nx,1\na//b,2\n", "collects.json": collects})
		u.OK(program, "task", "create", "--id", storedJob+"c", filepath.Join(dir, "collects.json"))
		if r := u.Run(program, "task", "run-batch", "--id", storedJob+"c", "--seeds", filepath.Join(dir, "bad.csv")); r.Code != 1 || len(u.inOrder("task_instances")) != 4 {
			t.Errorf("%s: %s", name(program), r)
		}
	}
}

// TestEvalsCross stores evals with one program, reads, extends and runs them with the other.
func TestEvalsCross(t *testing.T) {
	t.Parallel()
	for _, writer := range []string{ours, reference} {
		reader := reference
		if writer == reference {
			reader = ours
		}
		t.Run(name(writer)+" writes", func(t *testing.T) {
			t.Parallel()
			u := newUser(t)
			dir := kit.Write(t, u.Home, kit.Files{"steps.json": join(fmt.Sprintf(noop, "a")), "e.json": fmt.Sprintf(`[{"task_id":%q},{"task_id":"two","task_version":1}]`, "one"),
				"more.json": `[{"task_id":"three"},{"task_id":"two","task_version":1}]`, "gone.json": `[{"task_id":"one"},{"task_id":"gone"}]`, "bad.json": `[{"task_id":"one"},{"task_version":1}]`})
			for _, id := range []string{"one", "two", "three"} {
				u.OK(writer, "task", "create", "--id", id, filepath.Join(dir, "steps.json"))
			}
			created := u.OK(writer, "eval", "create", "--id", "e", filepath.Join(dir, "e.json"))
			if !strings.HasSuffix(created, "Created eval: id=e version=1 tasks=2\n") {
				t.Errorf("%s", created)
			}
			added := u.OK(reader, "eval", "add-tasks", "--id", "e", filepath.Join(dir, "more.json"))
			if !strings.HasSuffix(added, "Created eval: id=e version=2 tasks=3\n") {
				t.Errorf("%s", added)
			}
			for _, program := range []string{writer, reader} {
				for _, file := range []string{"gone.json", "bad.json"} {
					if r := u.Run(program, "eval", "create", "--id", "e", filepath.Join(dir, file)); r.Code != 1 {
						t.Errorf("%s stored %s: %s", name(program), file, r)
					}
				}
				r := u.Run(program, "eval", "run", "--id", "e", "--max-concurrency", "1")
				for _, line := range []string{"Found eval: id=e version=2 tasks=3\n", "  Loaded task: one v1 (1 steps) (resolved from latest)\n", "  Loaded task: two v1 (1 steps)\n",
					"[three] Run COMPLETED\n", "\nResults:\n", "  [one] PASSED\n", "All 3 runs completed!\n"} {
					if r.Code != 0 || !strings.Contains(r.Stdout, line) {
						t.Errorf("%s, no line %q: %s", name(program), line, r)
					}
				}
			}
		})
	}
}
