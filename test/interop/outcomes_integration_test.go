//go:build integration

package interop_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/moby/moby/client"

	"agentenv/sandbox/engine"
	"agentenv/sandbox/sandboxtest/images"
	"agentenv/test/kit"
)

// scripts are run_code scripts, each of which ends in a way of its own.
var scripts = kit.Files{
	"artifacts/one/one.txt":      "hi\n",
	"artifacts/codes/ok.py":      "def run(i): return {'args': i['args'], 'é': 'ü', 'f': 1.5, 'b': None, 'before': sorted(i['results']), 'n': [1, 2]}\n",
	"artifacts/codes/raises.py":  "def run(i): raise ValueError('no')\n",
	"artifacts/codes/slow.py":    "import time\ndef run(i): time.sleep(60)\n",
	"artifacts/codes/bad.py":     "def run(i): return {1, 2}\n",
	"artifacts/codes/exits.py":   "import os\ndef run(i): os._exit(0)\n",
	"artifacts/codes/imports.py": "import nothing_of_this_name\ndef run(i): pass\n",
}

// everyFailure is a task whose steps provoke every kind of failure, none of which ends it. The first %s is the deploy step, the second what comes at the end.
const everyFailure = `[%s,
 {"id":"load","type":"load_artifact","sandbox_name":"box","artifact_id":"one","destination_path":"/app/in"},
 {"id":"ok","type":"run_code","sandbox_name":"box","script_artifact_id":"codes","script_file":"ok.py","args":{"x":[1,"é"]}},
 {"id":"again","type":"run_code","sandbox_name":"box","script_artifact_id":"codes","script_file":"ok.py","result_id":"other"},
 {"id":"raises","type":"run_code","sandbox_name":"box","script_artifact_id":"codes","script_file":"raises.py","fail_task_on_error":false},
 {"id":"slow","type":"run_code","sandbox_name":"box","script_artifact_id":"codes","script_file":"slow.py","timeout_seconds":1,"fail_task_on_error":false},
 {"id":"bad","type":"run_code","sandbox_name":"box","script_artifact_id":"codes","script_file":"bad.py","fail_task_on_error":false},
 {"id":"exits","type":"run_code","sandbox_name":"box","script_artifact_id":"codes","script_file":"exits.py","fail_task_on_error":false},
 {"id":"imports","type":"run_code","sandbox_name":"box","script_artifact_id":"codes","script_file":"imports.py","fail_task_on_error":false},
 {"id":"no-function","type":"run_code","sandbox_name":"box","script_artifact_id":"codes","script_file":"ok.py","entrypoint":"nope","fail_task_on_error":false},
 {"id":"no-box-load","type":"load_artifact","sandbox_name":"none","artifact_id":"one","fail_task_on_error":false},
 {"id":"no-box-collect","type":"collect_artifacts","sandbox_name":"none","fail_task_on_error":false},
 {"id":"no-box-verify","type":"verify_sandbox","sandbox_name":"none","criteria":[],"verifier_id":"none","fail_task_on_error":false},
 {"id":"no-box-code","type":"run_code","sandbox_name":"none","script_artifact_id":"codes","script_file":"ok.py","fail_task_on_error":false},
 {"id":"twice","type":"deploy_sandbox","sandbox_name":"box","sandbox_mode":"vm","sandbox_type":"local","fail_task_on_error":false},
 {"id":"policy","type":"deploy_sandbox","sandbox_name":"other","sandbox_mode":"vm","sandbox_type":"local","network_policy":{"mode":"allowlist","allow_hosts":["x.org"]},"fail_task_on_error":false},
 {"id":"collect","type":"collect_artifacts","sandbox_name":"box","base_path":"/app/in","universe_id_suffix":"-c"},
 {"id":"collect-some","type":"collect_artifacts","sandbox_name":"box","base_path":"/app","artifact_paths":["in/one.txt","in/absent","https://x.org/skip"],"universe_id_suffix":"-s"},
 {"id":"collect-none","type":"collect_artifacts","sandbox_name":"box","base_path":"/app/in","artifact_paths":["zz"],"fail_task_on_error":false},
 {"id":"collect-folder-absent","type":"collect_artifacts","sandbox_name":"box","base_path":"/app/nowhere"},
 {"id":"from-none","type":"load_artifact","sandbox_name":"box","artifact_from_step_id":"load","destination_path":"/app/y","fail_task_on_error":false},
 {"id":"from","type":"load_artifact","sandbox_name":"box","artifact_from_step_id":"collect","destination_path":"/app/again"},
 {"id":"url","type":"load_artifact","sandbox_name":"box","urls":["http://127.0.0.1:1/x"],"destination_path":"/app/u","fail_task_on_error":false},
 {"id":"v","type":"verify_sandbox","sandbox_name":"box","base_dir":"/app/in","verifier_id":"v","shell_timeout_seconds":1,"score_aggregator":"weighted_average","criteria":[
  {"type":"probe_file_exists","paths":["one.txt","zz"]},{"type":"probe_file_exists","paths":["one.txt"]},{"type":"probe_file_exists"},
  {"type":"probe_file_contains","paths":["one.txt"],"expected":"^h.$"},{"type":"probe_file_contains","paths":["one.txt"],"expected":"nope"},{"type":"probe_file_contains","paths":["zz"],"expected":"x"},
  {"type":"bash_cmd_succeeds","bash_cmd":"echo no >&2; exit 7"},{"type":"bash_cmd_succeeds","bash_cmd":"sleep 20"},{"type":"bash_cmd_succeeds"},
  {"type":"other"},{"type":"probe_dir_exists","paths":["."],"weight":2},{"type":"probe_dir_exists","paths":["one.txt"]}]},
 {"id":"aggregate","type":"aggregate_verifiers","verifier_ids":["v"],"verifier_id":"all","score_aggregator":"any_pass"},
 {"id":"aggregate-none","type":"aggregate_verifiers","verifier_ids":["nope"],"fail_task_on_error":false},
 {"id":"down","type":"teardown_sandboxes","sandbox_names":["box","zz"]}%s]`

// afterTeardown loads into a sandbox that is gone. The reference does so on this machine itself where the sandbox was a host.
const afterTeardown = `,
 {"id":"after","type":"load_artifact","sandbox_name":"box","artifact_id":"one","fail_task_on_error":false}`

// allowed are the differences between the records of one task run by both.
var allowed = []string{
	// Names of ours, which the reference ignores.
	"/created_at_precise_utc", "/ended_at_precise_utc", "/step_outcomes", "/outcome_class",
	// Wording.
	`/context/metadata/failed_steps/\d+/error`,
	`/context/metadata/verifications/v/results/5/justification`,
	// A collection of nothing leaves no mirror of an earlier one behind.
	"/context/metadata/file_artifact_universe", "/context/metadata/collect_produced_files",
	// Empty maps and lists stand; the reference loses them.
	`/context/metadata/collected_artifacts/collect-(none|folder-absent)/artifacts`, `/context/metadata/script_results/(ok/before|other/args)`,
}

// both runs one bundle with each program, each on a state folder of its own, and returns the records and the users.
func both(t *testing.T, task string, more kit.Files) (refRecord, ourRecord any, ref, our *user) {
	t.Helper()
	records := map[string]any{}
	codes := map[string]int{}
	users := map[string]*user{}
	for _, program := range []string{reference, ours} {
		u := newUser(t)
		users[program] = u
		dir := kit.Write(t, filepath.Join(u.Home, "same"), kit.Files{"tasks/t.json": task})
		kit.Write(t, dir, more)
		r := u.Run(program, "run", dir)
		codes[program] = r.Code
		list := u.documents("task_instances", "instance_id")
		if len(list) != 1 {
			t.Fatalf("%s recorded %d instances: %s", name(program), len(list), r)
		}
		records[program] = list[0]
	}
	if codes[reference] != codes[ours] {
		t.Errorf("exit code %d, the reference's is %d", codes[ours], codes[reference])
	}
	return records[reference], records[ours], users[reference], users[ours]
}

// TestEveryFailureOnAHost compares what both programs record of a task that fails in every way, in VM mode.
func TestEveryFailureOnAHost(t *testing.T) {
	t.Parallel()
	refRecord, ourRecord, ref, our := both(t, fmt.Sprintf(everyFailure, `{"id":"box","type":"deploy_sandbox","sandbox_name":"box","sandbox_mode":"vm","sandbox_type":"local"}`, ""), scripts)
	compareRuns(t, refRecord, ourRecord, ref, our)
}

func compareRuns(t *testing.T, refRecord, ourRecord any, ref, our *user) {
	t.Helper()
	if r, o := errorTypes(refRecord), errorTypes(ourRecord); r != o {
		t.Errorf("the failed steps of the reference:\n%s\nours:\n%s", r, o)
	}
	compare(t, "instance", refRecord, ourRecord, allowed...)
	refTasks, ourTasks := ref.documents("tasks", "id"), our.documents("tasks", "id")
	compare(t, "tasks", refTasks, ourTasks)
	refArtifacts, ourArtifacts := ref.documents("artifacts", "filename || id"), our.documents("artifacts", "filename || id")
	if len(refArtifacts) != len(ourArtifacts) {
		t.Errorf("%d artifacts, the reference wrote %d", len(ourArtifacts), len(refArtifacts))
	}
}

// labelled returns a Debian image that the reference takes for one of its own builds, so that it pulls nothing.
func labelled(t *testing.T) string {
	t.Helper()
	tag := "agentenv-test/labelled-" + strings.ToLower(rand.Text()[:8]) + ":1" // of this test alone, which removes it
	e, err := engine.Open(context.Background(), engine.Options{})
	if err != nil {
		t.Fatalf("this test needs a Docker Engine: %v", err)
	}
	t.Cleanup(func() {
		_, _ = e.Client().ImageRemove(context.Background(), tag, client.ImageRemoveOptions{})
		e.Close()
	})
	base, err := images.Debian(t.Context(), e)
	if err != nil {
		t.Fatal(err)
	}
	if err := images.Built(t.Context(), e, base, tag); err != nil {
		t.Fatal(err)
	}
	return tag
}

// TestEveryFailureInAContainer does the same in a container.
func TestEveryFailureInAContainer(t *testing.T) {
	t.Parallel()
	deploy := fmt.Sprintf(`{"id":"box","type":"deploy_sandbox","sandbox_name":"box","sandbox_mode":"container","sandbox_type":"local","image":%q,"port":8080}`, labelled(t))
	refRecord, ourRecord, ref, our := both(t, fmt.Sprintf(everyFailure, deploy, afterTeardown), scripts)
	compareRuns(t, refRecord, ourRecord, ref, our)
}

// either is what depends on which of two parallel steps ended first.
var either = regexp.MustCompile(`^/completed_steps/[12]/step_id$|^/context/metadata/loaded_file_artifact_universes/[01]/destination_path$`)

// TestFatalFailures compares runs that a failure ends.
func TestFatalFailures(t *testing.T) {
	const box = `{"id":"box","type":"deploy_sandbox","sandbox_name":"box","sandbox_mode":"vm","sandbox_type":"local"}`
	for label, task := range map[string]string{
		"script":    `[` + box + `,{"id":"raises","type":"run_code","sandbox_name":"box","script_artifact_id":"codes","script_file":"raises.py"},{"id":"after","type":"load_artifact","sandbox_name":"box","artifact_id":"one"}]`,
		"collect":   `[` + box + `,{"id":"c","type":"collect_artifacts","sandbox_name":"box","artifact_paths":["zz"]}]`,
		"below one": `[` + box + `,{"id":"v","type":"verify_sandbox","sandbox_name":"box","verifier_id":"v","criteria":[{"type":"probe_file_exists","paths":["zz"]}]}]`,
		"no score":  `[` + box + `]`,
		"parallel":  `[` + box + `,{"id":"a","type":"load_artifact","sandbox_name":"box","artifact_id":"one","destination_path":"/app/a","depends_on":["box"]},{"id":"b","type":"load_artifact","sandbox_name":"box","artifact_id":"one","destination_path":"/app/b","depends_on":["box"]},{"id":"v","type":"verify_sandbox","sandbox_name":"box","verifier_id":"v","criteria":[{"type":"probe_file_exists","paths":["a/one.txt","b/one.txt"]}],"depends_on":["a","b"]}]`,
	} {
		t.Run(label, func(t *testing.T) {
			t.Parallel()
			refRecord, ourRecord, ref, our := both(t, task, scripts)
			if r, o := errorTypes(refRecord), errorTypes(ourRecord); r != o {
				t.Errorf("the failed steps of the reference:\n%s\nours:\n%s", r, o)
			}
			found := map[string]string{}
			differences("", normal(t, refRecord), normal(t, ourRecord), found)
			for p, what := range found {
				ok := strings.HasSuffix(p, "/error") || p == "/context/metadata/collected_artifacts/c/artifacts" || label == "parallel" && either.MatchString(p)
				for _, a := range allowed[:4] {
					ok = ok || p == a
				}
				if !ok {
					t.Errorf("%s: %s", p, what)
				}
			}
			compare(t, "tasks", ref.documents("tasks", "id"), our.documents("tasks", "id"))
		})
	}
}
