//go:build integration

package interop_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentenv/artifact"
	"agentenv/fault"
	"agentenv/sandbox"
	"agentenv/sandbox/engine"
	"agentenv/sandbox/local"
	stepcode "agentenv/steps/code"
	stepfiles "agentenv/steps/files"
	"agentenv/steps/sandboxes"
	stepverify "agentenv/steps/verify"
	"agentenv/store"
	"agentenv/store/doc"
	"agentenv/store/document"
	"agentenv/store/document/sqlite"
	"agentenv/store/object/localfs"
	"agentenv/task"
	"agentenv/test/kit"
)

// soundSteps are steps without a fault, by the short name that the tables below use; @ID stands for the id of the step.
var soundSteps = map[string]string{
	"vm":        `{"type":"deploy_sandbox","sandbox_name":"@ID","sandbox_mode":"vm","sandbox_type":"local"}`,
	"container": `{"type":"deploy_sandbox","sandbox_name":"@ID","sandbox_mode":"container","sandbox_type":"local","image":"@IMAGE","port":8080}`,
	"load":      `{"type":"load_artifact","sandbox_name":"box","artifacts":[{"id":"set"}],"destination_path":"/app/@ID"}`,
	"code":      `{"type":"run_code","sandbox_name":"box","script_artifact_id":"codes","script_file":"ok.py"}`,
	"collect":   `{"type":"collect_artifacts","sandbox_name":"box","base_path":"/app/seed","universe_id_suffix":"-@ID"}`,
	"verify": `{"type":"verify_sandbox","sandbox_name":"box","verifier_id":"@ID","base_dir":"/app/seed","criteria":[{"type":"probe_file_exists","paths":["a.txt"]},
		{"type":"probe_file_exists","paths":["/app/seed/a.txt"]},{"type":"probe_file_contains","paths":["/app/seed/a.txt"],"expected":"hel+o"},{"type":"bash_cmd_succeeds","bash_cmd":"true"}]}`,
	"aggregate": `{"type":"aggregate_verifiers","verifier_ids":["v0"],"verifier_id":"@ID"}`,
	"teardown":  `{"type":"teardown_sandboxes","sandbox_names":["ghost"]}`,
}

// beforeAll comes before the steps of the tables.
const beforeAll = `[{"id":"box","type":"deploy_sandbox","sandbox_name":"box","sandbox_mode":"vm","sandbox_type":"local"},
 {"id":"seed","type":"load_artifact","sandbox_name":"box","artifacts":[{"id":"set"}],"destination_path":"/app/seed"},
 {"id":"v0","type":"verify_sandbox","sandbox_name":"box","verifier_id":"v0","base_dir":"/app/seed","criteria":[{"type":"probe_file_exists","paths":["a.txt"]}]}]`

// runs lists fields that the reference stores unchecked and can run, by the step they spoil.
var runs = map[string][]string{
	"vm": {`"cpu":"1"`, `"cpu":0`, `"cpu":-1`, `"cpu":null`, `"cpu":"x"`, `"cpu":true`, `"memory_mb":"8192"`, `"memory_mb":0`, `"memory_mb":1.5`, `"memory_mb":null`,
		`"disk_size_gb":"10"`, `"disk_size_gb":-5`, `"ttl_seconds":"7200"`, `"ttl_seconds":0`, `"ttl_seconds":-1`, `"ttl_seconds":"x"`, `"sandbox_name":""`,
		`"sandbox_name":5`, `"exposed_ports":["8080"]`, `"exposed_ports":{}`, `"exposed_ports":[]`, `"boot_mode":5`, `"port":"x"`, `"port":0`, `"env_vars":{"A":1}`, `"env_vars":"x"`,
		`"image":5`, `"image":""`, `"sandbox_type":""`, `"metadata":[]`, `"network_policy":""`, `"network_policy":{}`, `"depends_on":["box","box"]`},
	"container": {`"cpu":"1"`, `"memory_mb":"x"`, `"port":"8080"`, `"port":0`, `"env_vars":[]`, `"env_vars":{"A":null,"B":"b"}`, `"exposed_ports":8080`, `"ttl_seconds":-1`},
	"load": {`"destination_path":""`, `"snapshot_after_load":"x"`, `"snapshot_after_load":0`, `"agent_name":5`, `"agent_name":""`, `"env_step_id":5`, `"urls":{}`,
		`"artifacts":[{"id":"set","version":1.0}]`, `"artifacts":[{"id":"set","x":1}]`, `"collected_artifacts_step_id":""`, `"artifact_version":"1"`},
	"code":    {`"args":"x"`, `"args":[1]`, `"args":5`, `"args":[]`, `"timeout_seconds":"600"`, `"timeout_seconds":0`, `"result_id":5`, `"entrypoint":""`, `"script_artifact_version":1.0`, `"env_id":""`},
	"collect": {`"artifacts_key":5`, `"artifacts_key":null`, `"artifact_paths":{}`, `"exclude_basenames":[5]`, `"exclude_basenames":"a.txt"`, `"container_name":""`, `"manifest_step_id":""`},
	"verify": {`"criteria":""`, `"criteria":{}`, `"shell_timeout_seconds":"120"`, `"shell_timeout_seconds":0`, `"shell_timeout_seconds":-1`, `"shell_timeout_seconds":true`,
		`"shell_timeout_seconds":null`, `"shell_timeout_seconds":[]`, `"base_dir":null`, `"base_dir":5`, `"base_dir":""`, `"base_dir":[]`, `"verifier_id":5`, `"agent_name":""`, `"score_aggregator":null`},
	"aggregate": {`"verifier_ids":{}`, `"verifier_ids":""`, `"verifier_id":7`, `"verifier_ids":["v0","v0"]`},
	"teardown":  {`"sandbox_names":"ghost"`, `"sandbox_names":[5]`, `"sandbox_names":[null]`, `"env_ids":[5]`, `"fail_task_on_error":0`, `"fail_task_on_error":null`},
}

// fails lists fields that the reference stores unchecked and that fail it when it runs the step.
var fails = map[string][]string{
	"container": {`"port":"x"`, `"port":-1`, `"port":70000`, `"env_vars":{"A":1}`, `"env_vars":"x"`, `"image":5`},
	"load":      {`"artifacts":"set"`, `"artifacts":["set"]`, `"artifacts":[{}]`, `"artifacts":[{"id":"set","version":0}]`, `"artifacts":[{"id":5}]`, `"sandbox_name":""`},
	"code":      {`"script_artifact_id":null`, `"script_artifact_version":0`, `"script_artifact_version":1.5`, `"timeout_seconds":-1`, `"timeout_seconds":"x"`, `"timeout_seconds":true`},
	"collect":   {`"artifact_paths":"a.txt"`, `"artifact_paths":5`, `"artifact_paths":["",null]`},
	"verify":    {`"criteria":"x"`, `"criteria":[null]`, `"criteria":[[]]`},
	"aggregate": {`"verifier_ids":[null]`},
}

// spoilt makes a task of the steps of a table, one after the other: of steps at the same time the reference may lose results.
// fields tells what is spoilt in each, by its id.
func spoilt(t *testing.T, table map[string][]string, image string) (text string, fields map[string]string) {
	t.Helper()
	var all []map[string]any
	if err := json.Unmarshal([]byte(beforeAll), &all); err != nil {
		t.Fatal(err)
	}
	fields = map[string]string{}
	for _, of := range slices.Sorted(maps.Keys(table)) {
		for i, field := range table[of] {
			id := fmt.Sprintf("%s%d", of, i)
			step := map[string]any{"id": id, "fail_task_on_error": false}
			sound := strings.NewReplacer("@ID", id, "@IMAGE", image).Replace(soundSteps[of])
			for _, part := range []string{sound, "{" + field + "}"} {
				if err := json.Unmarshal([]byte(part), &step); err != nil {
					t.Fatal(err)
				}
			}
			all, fields[id] = append(all, step), field
		}
	}
	b, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	return string(b), fields
}

// rooms are ours inside the test, on a user's state folder.
type rooms struct {
	docs      document.Store
	registry  *task.Registry
	tasks     *task.Tasks
	engine    *task.Engine
	instances *task.Instances
	sandboxes *sandbox.Manager
}

func openRooms(t *testing.T, u *user) *rooms {
	t.Helper()
	must := func(err error) {
		if err != nil {
			t.Helper()
			t.Fatal(err)
		}
	}
	configured, err := sqlite.New(sqlite.Options{Path: filepath.Join(u.State, "document_store", "documents.db")})
	must(err)
	own, err := sqlite.New(sqlite.Options{Path: filepath.Join(u.State, "document_store", "local.db"), CheckID: store.CheckLocalID})
	must(err)
	r := &rooms{docs: document.NewRouter(configured, own)}
	objects, err := localfs.New(filepath.Join(u.State, "object_store"))
	must(err)
	artifacts, err := artifact.New(artifact.Options{Documents: r.docs, Objects: objects})
	must(err)
	lazy := &engine.Lazy{}
	host, err := local.New(local.Options{StateRoot: u.State, Root: u.Sandboxes, Engine: lazy})
	must(err)
	r.sandboxes, err = sandbox.NewManager(sandbox.Config{Providers: []sandbox.Provider{host}, Ledger: sandbox.OpenLedger(filepath.Join(u.State, "sandboxes.db"))})
	must(err)
	for _, c := range []io.Closer{r.docs, objects, lazy, r.sandboxes} {
		t.Cleanup(func() {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	r.registry, err = task.NewRegistry(slices.Concat(
		sandboxes.Types(sandboxes.Deps{Sandboxes: r.sandboxes}), stepfiles.Types(stepfiles.Deps{Sandboxes: r.sandboxes, Artifacts: artifacts}),
		stepcode.Types(stepcode.Deps{Sandboxes: r.sandboxes, Artifacts: artifacts}), stepverify.Types(stepverify.Deps{Sandboxes: r.sandboxes}))...)
	must(err)
	r.tasks, r.instances = task.NewTasks(r.registry, r.docs, nil, nil), task.NewInstances(r.docs)
	r.engine = task.NewEngine(r.registry, r.docs, slog.New(slog.DiscardHandler), nil)
	return r
}

// record returns the one record of a task's runs, other than the given one.
func (r *rooms) record(t *testing.T, taskID, other string) *task.Instance {
	t.Helper()
	all, err := r.instances.List(t.Context(), task.ListQuery{TaskID: taskID})
	if err != nil {
		t.Fatal(err)
	}
	all = slices.DeleteFunc(all, func(in *task.Instance) bool { return in.ID == other })
	if len(all) != 1 {
		t.Fatalf("%d records of runs of %s", len(all), taskID)
	}
	return all[0]
}

// storedTask has the reference store a task.
func storedTask(t *testing.T, u *user, id, text string) {
	t.Helper()
	in := func(name string, f kit.Files) string { return kit.Write(t, filepath.Join(u.Home, name), f) }
	u.OK(reference, "artifact", "file-artifact-universe", "put-bundled", "--id", "set", "--file-dir", in("set", kit.Files{"a.txt": "hello"}))
	u.OK(reference, "artifact", "file-artifact-universe", "put-bundled", "--id", "codes", "--file-dir", in("codes", kit.Files{"ok.py": "def run(i): return {'args': i['args']}\n"}))
	u.OK(reference, "task", "create", "--id", id, "--skip-validation", filepath.Join(in(id, kit.Files{"steps.json": text}), "steps.json"))
}

// shown returns the task as ours prints it, which must be what is stored, to the letter.
func shown(t *testing.T, u *user, r *rooms, id string) {
	t.Helper()
	d, err := r.tasks.Document(t.Context(), id, 0)
	if err != nil {
		t.Fatal(err)
	}
	want, err := doc.MarshalIndent(d.Value("steps"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want)+"\n", u.OK(ours, "task", "get", "--id", id)); diff != "" {
		t.Errorf("the task as it is stored, and as ours prints it:\n%s", diff)
	}
}

// TestStoredStepsThatRun has both run a stored task full of fields that nobody checked.
func TestStoredStepsThatRun(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	text, fields := spoilt(t, runs, labelled(t))
	storedTask(t, u, "job", text)
	r := openRooms(t, u)
	shown(t, u, r, "job")
	u.OK(ours, "task", "validate", "--id", "job")
	u.OK(reference, "task", "validate", "--id", "job")
	u.OK(reference, "task", "run", "--id", "job", "--output-dir", filepath.Join(u.Dir, "out"))
	ref := r.record(t, "job", "")
	job, err := r.tasks.Get(t.Context(), "job", 0)
	if err != nil {
		t.Fatal(err)
	}
	res, err := r.engine.Run(t.Context(), job, task.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range task.Sandboxes(res.Context) {
		if err := r.sandboxes.Terminate(context.WithoutCancel(t.Context()), sandboxes.RecordOf(s)); err != nil {
			t.Error(err)
		}
	}
	our := r.record(t, "job", ref.ID)
	refSteps, ourSteps := outcomes(ref), outcomes(our)
	for id, field := range fields {
		if len(refSteps[id]) == 0 {
			t.Errorf("%s with %s: the reference did nothing", id, field)
		}
	}
	if d := cmp.Diff(refSteps, ourSteps); d != "" {
		t.Errorf("the reference, and ours:\n%s", d)
	}
	shown(t, u, r, "job")
}

// outcomes tells of each step how it ended and what it recorded, wording apart; a record under a name of its own stands alone.
func outcomes(in *task.Instance) map[string][]string {
	out := map[string][]string{}
	say := func(id, format string, args ...any) { out[id] = append(out[id], fmt.Sprintf(format, args...)) }
	meta := in.Context.Obj("metadata")
	for _, v := range in.Document.Arr("completed_steps") {
		s := v.(*doc.Object)
		say(s.Str("step_id"), "ended: %s", s.Str("status"))
	}
	for _, v := range meta.Arr("failed_steps") {
		s := v.(*doc.Object)
		say(s.Str("step_id"), "failed: %s", s.Str("error"))
	}
	verifications, results, collected := meta.Obj("verifications"), meta.Obj("script_results"), meta.Obj("collected_artifacts")
	for _, id := range verifications.Keys() {
		v := verifications.Obj(id)
		rows := ""
		for _, row := range v.Arr("results") {
			rows += fmt.Sprint(" ", row.(*doc.Object).Value("result"))
		}
		say(id, "score %v, rows%s", v.Value("score"), rows)
	}
	for _, id := range results.Keys() {
		say(id, "result %s", doc.Canonical(results.Value(id)))
	}
	for _, id := range collected.Keys() {
		say(id, "collected %q", collected.Obj(id).Obj("artifacts").Keys())
	}
	for _, v := range meta.Arr("loaded_file_artifact_universes") {
		l := v.(*doc.Object)
		say(strings.TrimPrefix(l.Str("destination_path"), "/app/"), "loaded %s of %v", doc.Canonical(l.Value("files")), l.Value("version"))
	}
	for _, v := range in.Context.Arr("deployed_sandboxes") {
		s := v.(*doc.Object) // a name that is a number is its text in ours
		say(fmt.Sprint("sandbox ", task.Adapt(s.Value("sandbox_name"), task.String)), "deployed %s %s, policy %s", s.Str("sandbox_type"), s.Str("sandbox_mode"), doc.Canonical(s.Value("network_policy")))
	}
	return out
}

// TestStoredStepsThatFail has ours name every step that fails the reference, before it deploys anything.
func TestStoredStepsThatFail(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	text, fields := spoilt(t, fails, labelled(t))
	storedTask(t, u, "job", text)
	r := openRooms(t, u)
	shown(t, u, r, "job")
	u.Run(reference, "task", "run", "--id", "job", "--output-dir", filepath.Join(u.Dir, "out"))
	ref := r.record(t, "job", "")
	says := u.Run(ours, "task", "validate", "--id", "job")
	if says.Code != 1 {
		t.Errorf("ours found nothing to mend: %s", says)
	}
	for id, field := range fields {
		name, _, _ := strings.Cut(strings.TrimPrefix(field, `"`), `"`)
		if ended := outcomes(ref)[id]; !slices.Contains(ended, "ended: failure") {
			t.Errorf("%s with %s: in the reference %v", id, field, ended)
		}
		lines := slices.Collect(strings.Lines(says.Stderr))
		if !slices.ContainsFunc(lines, func(l string) bool {
			return strings.Contains(l, fmt.Sprintf("step %q", id)) && strings.Contains(l, name)
		}) {
			t.Errorf("%s with %s: no line names step and field:\n%s", id, field, says.Stderr)
		}
	}
	job, err := r.tasks.Get(t.Context(), "job", 0)
	if err != nil {
		t.Fatal(err)
	}
	if res, err := r.engine.Run(t.Context(), job, task.Options{}); res != nil || !fault.Is(err, fault.Invalid) || !strings.HasPrefix(err.Error(), "task job: step ") {
		t.Errorf("the run: %v, %v", res, err)
	}
	r.record(t, "job", "") // of the reference; ours began nothing
	shown(t, u, r, "job")
}
