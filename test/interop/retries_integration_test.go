//go:build integration

package interop_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"agentenv/test/kit"
)

// flakyScripts fail until the file /app/count of their sandbox has grown to so many bytes.
func flakyScripts(passesAt ...int) kit.Files {
	f := kit.Files{"artifacts/one/one.txt": "hi\n"}
	for _, n := range passesAt {
		f[fmt.Sprintf("artifacts/flaky/at%d.py", n)] = fmt.Sprintf(`import os
def run(i):
    path = os.path.join(os.getcwd(), "..", "count-%d") if not os.path.isdir("/app") else "/app/count-%d"
    with open(path, "a") as f:
        f.write("x")
    if os.path.getsize(path) < %d:
        raise RuntimeError("not yet")
    return {"n": os.path.getsize(path)}
`, n, n, n)
	}
	return f
}

// TestRetries compares what both programs record of runs that go back and try again.
func TestRetries(t *testing.T) {
	t.Parallel()
	image := labelled(t)
	box := fmt.Sprintf(`{"id":"box","type":"deploy_sandbox","sandbox_name":"box","sandbox_mode":"container","sandbox_type":"local","image":%q,"port":8080}`, image)
	load := `{"id":"load","type":"load_artifact","sandbox_name":"box","artifact_id":"one","destination_path":"/app"}`
	flaky := func(id string, passesAt int, more string) string {
		return fmt.Sprintf(`{"id":%q,"type":"run_code","sandbox_name":"box","script_artifact_id":"flaky","script_file":"at%d.py"%s}`, id, passesAt, more)
	}
	verify := `{"id":"v","type":"verify_sandbox","sandbox_name":"box","verifier_id":"v","criteria":[{"type":"probe_file_exists","paths":["/app/one.txt"]}]}`
	collect := `{"id":"c","type":"collect_artifacts","sandbox_name":"box","base_path":"/app"}`
	for name, task := range map[string]string{
		"from itself":                       join(box, load, flaky("f", 2, `,"retry_config":{"retry_from_step_id":"f"}`), verify, collect),
		"from an earlier step":              join(box, load, flaky("f", 3, `,"retry_config":{"retry_from_step_id":"load","max_retries":5}`), verify, collect),
		"from the deploy step, in vain":     join(box, load, flaky("f", 2, `,"retry_config":{"go_to_step_id":"box","max_retries":2}`), verify),
		"the budget ends":                   join(box, load, flaky("f", 4, `,"retry_config":{"retry_from_step_id":"f","max_retries":2}`), verify),
		"no retries":                        join(box, load, flaky("f", 2, `,"retry_config":{"retry_from_step_id":"f","max_retries":0}`), verify),
		"tolerated at last":                 join(box, load, flaky("f", 9, `,"fail_task_on_error":false,"retry_config":{"retry_from_step_id":"f"}`), verify, collect),
		"tolerated, and passes":             join(box, load, flaky("f", 2, `,"fail_task_on_error":false,"retry_config":{"retry_from_step_id":"load"}`), verify),
		"two steps, each in its turn":       join(box, load, flaky("f", 2, `,"retry_config":{"retry_from_step_id":"f"}`), flaky("g", 3, `,"retry_config":{"retry_from_step_id":"f","max_retries":3}`), verify),
		"a tolerated failure in the span":   join(box, flaky("soft", 9, `,"fail_task_on_error":false`), load, flaky("f", 2, `,"retry_config":{"retry_from_step_id":"soft"}`), verify),
		"a branch outside the span is done": join(box, load, `{"id":"c","type":"load_artifact","sandbox_name":"box","artifact_id":"one","destination_path":"/data","depends_on":["load"]}`, flaky("f", 2, `,"depends_on":["c"],"retry_config":{"retry_from_step_id":"f"}`), verify),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			refRecord, ourRecord, ref, our := both(t, task, flakyScripts(2, 3, 4, 9))
			if r, o := errorTypes(refRecord), errorTypes(ourRecord); r != o {
				t.Errorf("the failed steps of the reference:\n%s\nours:\n%s", r, o)
			}
			found := map[string]string{}
			differences("", normal(t, refRecord), normal(t, ourRecord), found)
			differences("/rows", normal(t, rowsOf(ref)), normal(t, rowsOf(our)), found)
			for at, what := range found {
				if !mayDiffer.MatchString(at) {
					t.Errorf("%s: %s", at, what)
				}
			}
		})
	}
}

func join(steps ...string) string {
	text := "["
	for i, s := range steps {
		if i > 0 {
			text += ","
		}
		text += s
	}
	return text + "]"
}

// mayDiffer are names of ours, wording, and counters: the reference records a tolerated failure before it takes it back.
var mayDiffer = regexp.MustCompile(`^/(created_at_precise_utc|ended_at_precise_utc|step_outcomes|outcome_class|undone_attempts|rev|journal_seq|error)$|^/rows/\d+/(seq|ops/outcome_class|ops/started_at)$|failed_steps/\d+/error$|/value/\d+/error$|/items/\d+/error$`)

// rowsOf returns a user's journal rows by step, each with what it sets by path: rows set many things, in no order that matters.
func rowsOf(u *user) []any {
	rows := u.documents("task_step_journal", "step_id")
	for _, row := range rows {
		sets, _ := kit.At(row, "ops", "sets").([]any)
		slices.SortFunc(sets, func(a, b any) int {
			return strings.Compare(fmt.Sprint(kit.At(a, "path")), fmt.Sprint(kit.At(b, "path")))
		})
	}
	return rows
}
