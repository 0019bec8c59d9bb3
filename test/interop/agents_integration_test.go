//go:build integration

package interop_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"agentenv/sandbox/engine"
	"agentenv/sandbox/sandboxtest/images"
	"agentenv/test/kit"
)

// kitVersion is the release of the reference's library for agents.
const kitVersion = "agentenv-framework-protocol[agent]==0.1.379"

// pythonKit returns the folder that library is installed in, with all it needs, for the Python of the tests' Debian image.
var pythonKit = sync.OnceValues(func() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "agent-env-test", "agent-kit-0.1.379")
	if _, err := os.Stat(filepath.Join(dir, "whole")); err == nil {
		return dir, nil
	}
	if err := os.RemoveAll(dir); err != nil {
		return "", err
	}
	install := exec.Command(filepath.Join(filepath.Dir(reference), "python"), "-m", "pip", "install", "--quiet", "--no-compile", "--target", dir,
		"--only-binary=:all:", "--python-version", "3.11", "--platform", "manylinux2014_x86_64", "--platform", "manylinux_2_28_x86_64", kitVersion)
	if out, err := install.CombinedOutput(); err != nil {
		os.Stderr.Write(out)
		return "", err
	}
	return dir, os.WriteFile(filepath.Join(dir, "whole"), nil, 0o600)
})

// onPythonKit writes a bundle with an agent on that library, for a container whose user has no name, may write in /work and not read in /vault,
// and with more files. It returns the bundle's folder.
func (u *user) onPythonKit(t *testing.T, id, agent string, more kit.Files) string {
	t.Helper()
	dir, err := pythonKit()
	if err != nil {
		t.Fatal(err)
	}
	e, err := engine.Open(t.Context(), engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if _, err := images.PythonSlim(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	bundle := kit.Write(t, filepath.Join(u.Home, "b"), kit.Files{
		"agent.toml": "[metadata]\ntakes_credentials = false\n",
		"agent.py":   agent,
		"Dockerfile": "FROM python:3.12-slim-bookworm\nCOPY site /site\nCOPY agent.py /agent.py\nRUN mkdir -m 777 /work && mkdir -m 700 /vault\nENV PYTHONPATH=/site PYTHONDONTWRITEBYTECODE=1\nUSER 65534:65534\n" +
			"CMD [\"python3\", \"/agent.py\"]\n",
	}.Under("agents/"+id).And(more))
	if err := os.CopyFS(filepath.Join(bundle, "agents", id, "site"), os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	return bundle
}

// referenceAgent is an agent as its users write them.
const referenceAgent = `
from agentenv_protocol.a2a_agent import (
    MCP_CONFIG_V1, TRAJECTORY_V1, TRIGGERS_V1, AgentConfig, AgentEnvAgent, AgentIdentity, TaskRequest, TaskResult, Usage, a2a_agent, enable,
)
import os


class Config(AgentConfig):
    model: str | None = None
    system_prompt: str | None = None


@a2a_agent(identity=AgentIdentity(name="writer", description="Writes what it is told", version="1.0.0"), config=Config,
           extensions=(MCP_CONFIG_V1, enable(TRAJECTORY_V1, live=True), TRIGGERS_V1))
class Writer(AgentEnvAgent):
    async def run(self, request: TaskRequest[Config]) -> TaskResult:
        text = "".join(p.root.text if hasattr(p, "root") else p.text for p in request.parts)
        if text == "fail":
            return TaskResult.failure("writer.asked", "as asked")
        seen = int(request.session_ref or 0) + 1
        with open("/work/told.txt", "a") as f:
            f.write(text + "\n")
        staged = open("/vault/in.txt").read().strip() if os.access("/vault/in.txt", os.R_OK) else "unreadable"
        request.trajectory.set_format("writer/v1")
        request.trajectory.append({"told": text})
        return (TaskResult.builder().succeeded().add_text("one").add_text(f"{seen} {request.config.system_prompt} {staged} {text}")
                .session_ref(str(seen)).usage(Usage(tool_call_count=2)).build())


if __name__ == "__main__":
    Writer().serve()
`

// TestAnAgentOfTheReference deploys an agent that was written with the reference's library: it is configured, prompted twice in one
// conversation, graded, and files go in and out of its container.
func TestAnAgentOfTheReference(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	bundle := u.onPythonKit(t, "writer", referenceAgent, kit.Files{
		"artifacts/in/in.txt": "staged\n",
		"tasks/t.json": `[
			{"id":"agent","type":"deploy_agent","a2a_agent_id":"writer","agent_name":"w","system_prompt":"be brief"},
			{"id":"in","type":"load_artifact","agent_name":"w","artifact_id":"in","destination_path":"/vault"},
			{"id":"one","type":"prompt_agent","agent_name":"w","prompt_id":"one","prompt":"first","context_id":"c"},
			{"id":"two","type":"prompt_agent","agent_name":"w","prompt_id":"two","prompt":"second","context_id":"c"},
			{"id":"said","type":"agent_prompt_response_verifier","prompt_id":"two","verifier_id":"said","criteria":[{"type":"response_contains","needles":["2 be brief unreadable second"]},{"type":"response_contains","needles":["one"]}]},
			{"id":"made","type":"verify_sandbox","agent_name":"w","base_dir":"/","verifier_id":"made","criteria":[{"type":"probe_file_contains","paths":["work/told.txt"],"expected":"first\nsecond"},{"type":"probe_file_exists","paths":["vault/in.txt"]}]},
			{"id":"out","type":"collect_artifacts","agent_name":"w","base_path":"/vault"},
			{"id":"bad","type":"prompt_agent","agent_name":"w","prompt_id":"bad","prompt":"fail","fail_task_on_error":false}
		]`,
	})
	r := u.Run(ours, "run", bundle, "--json")
	record := kit.Parse(t, r.Stdout)
	for _, verifier := range []int{0, 1} { // the last prompt fails, and the run with it
		if got := kit.At(record, "tasks", 0, "scores", verifier, "value"); got != 1.0 {
			t.Fatalf("%v\n%s%s", got, r.Stdout, r.Stderr)
		}
	}
	instance := instanceOf(t, u, kit.At(record, "tasks", 0, "instance").(string))
	for at, want := range map[string]any{"response": "2 be brief unreadable second", "response_text": "one\n2 be brief unreadable second", "tool_call_count": 2.0} {
		if got := kit.At(instance, "context", "prompt_responses", 1, at); got != want {
			t.Errorf("%s is %v, want %v", at, got, want)
		}
	}
	if got := kit.At(instance, "context", "prompt_responses", 2, "error_code"); got != "writer.asked" {
		t.Errorf("the prompt that fails: %v", got)
	}
	url, _ := kit.At(instance, "context", "prompt_responses", 1, "agent_trajectory_object_url").(string)
	if text, err := os.ReadFile(strings.TrimPrefix(url, "file://")); err != nil || !strings.Contains(string(text), `"second"`) || strings.Contains(string(text), `"first"`) {
		t.Errorf("the trajectory: %s, %v", text, err)
	}
}

// TestOurAgentUnderTheReference has the reference deploy, prompt and tear down the agent that ships, from what our program stored.
func TestOurAgentUnderTheReference(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	program, err := os.ReadFile(ours)
	if err != nil {
		t.Fatal(err)
	}
	bundle := kit.Write(t, filepath.Join(u.Home, "b"), kit.Files{
		"agents/echo/agent.toml": "[metadata]\ntakes_credentials = false\n", "agents/echo/agent-env": string(program), "agents/echo/tmp/.keep": "",
		"agents/echo/Dockerfile": "FROM scratch\nCOPY --chmod=0755 agent-env /agent-env\nCOPY --chown=65532:65532 tmp /tmp\nUSER 65532:65532\nCMD [\"/agent-env\", \"a2a-agent\", \"serve\", \"echo\"]\n",
		"tasks/t.json": `[{"id":"agent","type":"deploy_agent","a2a_agent_id":"echo","agent_name":"e"},
			{"id":"one","type":"prompt_agent","agent_name":"e","prompt_id":"p","prompt":"hello"},
			{"id":"more","type":"prompt_agent","agent_name":"e","prompt_id":"q","prompt":"live-steps 2"},
			{"id":"said","type":"agent_prompt_response_verifier","prompt_id":"p","criteria":[{"type":"response_contains","needles":["Echo: hello"]}],"verifier_id":"said"},
			{"id":"end","type":"teardown_sandboxes","agent_names":["e"]}]`})
	u.OK(ours, "run", bundle)
	out := u.OK(reference, "task", "run", "--id", "@local/~/b/t", "--output-dir", filepath.Join(u.Home, "out"))
	contexts, _ := exported(t, filepath.Join(u.Home, "out"))
	if len(contexts) != 1 || kit.At(contexts[0], "prompt_responses", 0, "response") != "Echo: hello" || kit.At(contexts[0], "metadata", "verifications", "said", "score") != 1.0 {
		t.Fatalf("%v\n%s", contexts, out)
	}
	url, _ := kit.At(contexts[0], "prompt_responses", 1, "agent_trajectory_object_url").(string)
	if text, err := os.ReadFile(strings.TrimPrefix(url, "file://")); err != nil || strings.Count(string(text), `"step"`) < 2 {
		t.Errorf("the trajectory: %s, %v", text, err)
	}
}
