//go:build integration

package interop_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentenv/test/kit"
)

// keeperAgent is the static binary of the agent that keeps its state, built once.
var keeperAgent = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "agentenv-keeper-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	build := exec.Command("go", "build", "-o", filepath.Join(dir, "keeper"), "agentenv/test/keeper")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return string(out), err
	}
	text, err := os.ReadFile(filepath.Join(dir, "keeper"))
	return string(text), err
})

// One program runs keptTask, and the other then goesOnTask in the same state: INSTANCE is the instance of the first run, and URL where its
// changelog lies.
const (
	keptJob   = "@local/~/x/tasks/t"
	goesOnJob = "@local/~/x/tasks/u"

	keptTask = `[
		{"id":"@local/first","type":"deploy_agent","a2a_agent_id":"@local/~/b/keeper","agent_name":"first","agent_description":"The first","role":"clerk","enable_agent_changelog":true},
		{"id":"@local/user","type":"deploy_agent","a2a_agent_id":"@local/~/b/echo","agent_name":"user"},
		{"id":"@local/talk","type":"prompt_agent","agent_name":"first","context_id":"talk","prompt_id":"talk","prompt":"one","user_agent_name":"user","max_conversation_turns":4,
			"snapshot_config":{"per_turn":true,"at_end":true,"max_snapshots":2}},
		{"id":"@local/keep","type":"snapshot_agent_state","agent_name":"first","prompt_id":"talk","artifact_id":"@local/kept"},
		{"id":"@local/own","type":"snapshot_agent_state","agent_name":"first","prompt_id":"talk","artifact_id":null},
		{"id":"@local/end","type":"teardown_sandboxes","agent_names":["first","user"]},
		{"id":"@local/second","type":"deploy_agent","a2a_agent_id":"@local/~/b/keeper","agent_name":"second","agent_snapshot_files_artifact_id":"@local/kept","agent_snapshot_target_context_id":"again"},
		{"id":"@local/again","type":"prompt_agent","agent_name":"second","context_id":"again","prompt_id":"again","prompt":"two"}
	]`
	goesOnTask = `[
		{"id":"@local/third","type":"deploy_agent","a2a_agent_id":"@local/~/b/keeper","agent_name":"third","agent_snapshot_files_artifact_id":"@local/kept","agent_snapshot_files_artifact_version":1},
		{"id":"@local/loaded","type":"prompt_agent","agent_name":"third","context_id":"context-1","prompt_id":"loaded","prompt":"three"},
		{"id":"@local/series","type":"deploy_agent","a2a_agent_id":"@local/~/b/keeper","agent_name":"series","agent_snapshot_files_artifact_id":"INSTANCE__@local/talk-workspace","agent_snapshot_files_artifact_version":2,
			"agent_snapshot_target_context_id":"turns"},
		{"id":"@local/turns","type":"prompt_agent","agent_name":"series","context_id":"turns","prompt_id":"turns","prompt":"four"},
		{"id":"@local/fourth","type":"deploy_agent","a2a_agent_id":"@local/~/b/keeper","agent_name":"fourth","agent_changelog_object_url":"URL","agent_changelog_toolcall_position_exclusive":3,
			"agent_snapshot_target_context_id":"past"},
		{"id":"@local/past","type":"prompt_agent","agent_name":"fourth","context_id":"past","prompt_id":"past","prompt":"five"}
	]`
)

// keeperBundle is a bundle with the agent that keeps its state, and with one that answers what it is told. Its task fails before it deploys them.
func keeperBundle(t *testing.T) kit.Files {
	t.Helper()
	keeper, err := keeperAgent()
	if err != nil {
		t.Fatalf("build the keeper: %v\n%s", err, keeper)
	}
	echo, err := os.ReadFile(ours)
	if err != nil {
		t.Fatal(err)
	}
	docker := "FROM scratch\nCOPY --chmod=0755 agent /agent\nCOPY --chown=65532:65532 tmp /tmp\nUSER 65532:65532\n"
	return kit.Files{
		"agents/keeper/agent": keeper, "agents/keeper/tmp/.keep": "", "agents/keeper/agent.toml": "[metadata]\ntakes_credentials = false\n",
		"agents/keeper/Dockerfile": docker + "CMD [\"/agent\"]\n",
		"agents/echo/agent":        string(echo), "agents/echo/tmp/.keep": "", "agents/echo/agent.toml": "[metadata]\ntakes_credentials = false\n",
		"agents/echo/Dockerfile": docker + "CMD [\"/agent\", \"a2a-agent\", \"serve\", \"echo\"]\n",
		"tasks/none.json":        `[` + bad("no", "") + `,{"id":"k","type":"deploy_agent","a2a_agent_id":"keeper","agent_name":"k"},{"id":"e","type":"deploy_agent","a2a_agent_id":"echo","agent_name":"e"}]`,
	}
}

// moreRandom is what no two runs with agents have in common, beside random.
var moreRandom = []struct {
	what *regexp.Regexp
	with string
}{
	{regexp.MustCompile(`([/_-][tu]|keeper|echo)-[a-z0-9]{8}(\b|_)`), "$1-INSTANCE$2"},
	{regexp.MustCompile(`t-INSTANCE-([a-z-]+)-[0-9a-f]{12}/`), "t-INSTANCE-$1/"},
	{regexp.MustCompile(`/(\d+)-[0-9a-f]{8}/`), "/$1/"},
	{regexp.MustCompile(`__[0-9a-f]{16}\b`), "__FILE"},
	{regexp.MustCompile(`\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b`), "UUID"},
	{regexp.MustCompile(`"elapsed_s":[0-9.e-]+`), `"elapsed_s":0`},
}

// alike takes out of a value what is moreRandom.
func alike(t *testing.T, v any) any {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	s := string(text)
	for _, r := range moreRandom {
		s = r.what.ReplaceAllString(s, r.with)
	}
	return kit.Parse(t, s)
}

// keptObjects are the objects of snapshots and changelogs, by key.
func (u *user) keptObjects() map[string]string {
	u.T.Helper()
	out := map[string]string{}
	for name, text := range kit.Read(u.T, filepath.Join(u.State, "object_store")) {
		if strings.HasPrefix(name, "agent_snapshots/") || strings.HasPrefix(name, "agent_changelog/") {
			out[name] = text
		}
	}
	return out
}

// keptRun has a program run a task that ours stored, since the reference stores no snapshot_config that comes as JSON, and returns the instance.
func (u *user) keptRun(program, id, steps string) any {
	u.T.Helper()
	u.OK(ours, "task", "create", "--id", id, filepath.Join(kit.Write(u.T, u.Home, kit.Files{"steps.json": steps}), "steps.json"))
	u.OK(program, "task", "run", "--id", id, "--output-dir", filepath.Join(u.Home, "out"))
	all := u.inOrder("task_instances")
	return all[len(all)-1]
}

// TestKeptStateCrosses has both programs run the same tasks: an agent is prompted over turns and snapshotted after each and at the end, its state is
// kept, and another agent goes on from it. Then the other program has agents go on from what the first one stored. All that is stored is compared.
func TestKeptStateCrosses(t *testing.T) {
	t.Parallel()
	files := keeperBundle(t)
	users, first, then := map[string]*user{}, map[string]any{}, map[string]any{}
	var both sync.WaitGroup
	var mu sync.Mutex
	for _, program := range []string{reference, ours} {
		u := newUser(t)
		if r := u.Run(ours, "run", kit.Write(t, filepath.Join(u.Home, "b"), files)); !strings.Contains(r.Stdout, "agents/keeper: v1 (new)") || !strings.Contains(r.Stdout, "agents/echo: v1 (new)") {
			t.Fatal(r)
		}
		other := ours
		if program == ours {
			other = reference
		}
		both.Go(func() {
			kept := u.keptRun(program, keptJob, keptTask)
			id, _ := kit.At(kept, "instance_id").(string)
			url, _ := kit.At(kept, "context", "metadata", "agent_changelog", 0, "object_url").(string)
			more := u.keptRun(other, goesOnJob, strings.NewReplacer("INSTANCE", id, "URL", url).Replace(goesOnTask))
			mu.Lock()
			defer mu.Unlock()
			users[program], first[program], then[other] = u, kept, more
		})
	}
	both.Wait()
	if t.Failed() || len(users) != 2 {
		t.FailNow()
	}
	ref, our := users[reference], users[ours]

	for program, record := range first {
		rows, _ := kit.At(record, "context", "metadata", "agent_snapshots").([]any)
		var got []any
		for _, r := range rows {
			got = append(got, []any{kit.At(r, "turn"), kit.At(r, "version"), kit.At(r, "is_final"), kit.At(r, "capture_status"), kit.At(r, "capture_reason")})
		}
		const untold = "trajectory_ext_unavailable"
		want := []any{[]any{1.0, 1.0, false, "partial", untold}, []any{2.0, 2.0, false, "partial", untold}, []any{3.0, nil, false, "skipped", "limit_reached"},
			[]any{nil, 3.0, true, "partial", untold + "; trajectory_missing"}, []any{nil, 1.0, nil, nil, nil}, []any{nil, 1.0, nil, nil, nil}}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s, the snapshots: %s", name(program), d)
		}
		if got := kit.At(record, "context", "prompt_responses", 1, "response"); !strings.HasPrefix(got.(string), "I heard one, Echo: I heard one, ") || !strings.HasSuffix(got.(string), ", two") {
			t.Errorf("%s: the agent that goes on says %v", name(program), got)
		}
	}
	for program, record := range then {
		for i, end := range []string{", three", ", four", ", five"} {
			got, _ := kit.At(record, "context", "prompt_responses", i, "response").(string)
			// Of the four messages of the conversation two were there at the second snapshot, and before the third increment.
			if heard := strings.Count(got, "Echo: I heard one"); !strings.HasPrefix(got, "I heard one, Echo: I heard one") || !strings.HasSuffix(got, end) || i > 0 && heard != 1 {
				t.Errorf("%s goes on from what the other stored with %q", name(program), got)
			}
		}
	}

	own := []string{`/(created|ended)_at_precise_utc`, `/step_outcomes`, `/outcome_class`, `/context/metadata/(runner|workflow_id)`, `/context/prompt_responses/\d/response_text`}
	compare(t, "the run", alike(t, first[reference]), alike(t, first[ours]), append(own, `/context/metadata/agent_changelog/\d/grant_port`)...)
	compare(t, "the run that goes on", alike(t, then[reference]), alike(t, then[ours]), own...)
	compare(t, "the objects", alike(t, ref.keptObjects()), alike(t, our.keptObjects()))
	for _, coll := range []string{"tasks", "artifacts"} {
		compare(t, coll, alike(t, ref.inOrder(coll)), alike(t, our.inOrder(coll)))
	}
	compare(t, "the instances of agents", alike(t, ref.inOrder("a2a_agent_instances")), alike(t, our.inOrder("a2a_agent_instances")))
	compare(t, "the conversations", alike(t, ref.inOrder("agent_env_a2a_conversations")), alike(t, our.inOrder("agent_env_a2a_conversations")),
		`/\d/(rev|step_id)`, `/\d/a2a_tasks/\d/agent_task_id`)
}
