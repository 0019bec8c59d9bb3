//go:build integration

package e2e_test

import (
	"bufio"
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/moby/moby/client"

	"agentenv/test/kit"
)

// echoAgent is the static binary of the echo agent, built once.
var echoAgent = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "agentenv-echo-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	build := exec.Command("go", "build", "-o", filepath.Join(dir, "echo"), "agentenv/cmd/agentenv-echo-agent")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return string(out), err
	}
	b, err := os.ReadFile(filepath.Join(dir, "echo"))
	return string(b), err
})

// echoFolder is a bundle's folder of the echo agent: an image from nothing, for a user without a name, with a file that only root reads.
func echoFolder(t *testing.T, toml string) kit.Files {
	t.Helper()
	program, err := echoAgent()
	if err != nil {
		t.Fatalf("build the echo agent: %v\n%s", err, program)
	}
	return kit.Files{
		"agents/echo/echo":   "+x" + program,
		"agents/echo/secret": "for root alone\n",
		"agents/echo/Dockerfile": "FROM scratch\nCOPY echo /echo\nCOPY --chmod=0400 secret /vault/secret\nLABEL agentenv.a2a.auth=bearer\nENV AGENTENV_STAGING_MAX_BYTES=0\n" +
			"USER 65532\nENTRYPOINT [\"/echo\"]\n",
		"agents/echo/agent.toml": toml,
		"artifacts/in/in.txt":    "input\n",
	}
}

const modelFree = "[metadata]\ntakes_credentials = false\n"

func deployEcho() map[string]any {
	return map[string]any{"id": "agent", "type": "deploy_agent", "a2a_agent_id": "echo", "agent_name": "solver"}
}

func prompt(id, text string) map[string]any {
	return map[string]any{"id": id, "type": "prompt_agent", "agent_name": "solver", "prompt": text}
}

// onAgent has a step act where the agent works, not in a sandbox.
func onAgent(step map[string]any) map[string]any {
	delete(step, "sandbox_name")
	step["agent_name"] = "solver"
	return step
}

func TestAgentInItsContainer(t *testing.T) {
	for _, target := range []string{"local", "docker"} {
		t.Run(target, func(t *testing.T) {
			t.Parallel()
			k := newUser(t)
			dir := k.bundle("echo", steps{deployEcho(), onAgent(load("load", "", "in", "/vault")), prompt("ask", "hello"),
				onAgent(verify("check", "", "/vault", contains("in.txt", "input"), contains("secret", "root alone"))),
				onAgent(collect("out", "", "/vault"))}, echoFolder(t, modelFree))
			p := k.start("run", dir, "--sandbox", target, "--keep")
			defer p.kill()
			p.waitFor("Holding 1 sandbox up")
			p.waitFor("passed (check: 1)")
			id := strings.Trim(strings.Fields(p.text()[strings.Index(p.text(), "instance @local/"):])[1], ",")
			record := k.instance(id)
			response := record.at("context", "prompt_responses", 0)
			if response.str("response") != "Echo: hello" || response.str("response_text") != "Echo: hello" || response.at("error_type").v != nil {
				t.Errorf("%s", response)
			}
			trajectory, err := os.ReadFile(strings.TrimPrefix(response.str("agent_trajectory_object_url"), "file://"))
			if err != nil || !strings.Contains(string(trajectory), `"output":"Echo: hello"`) {
				t.Errorf("the trajectory is %q, %v", trajectory, err)
			}
			agent := record.at("context", "deployed_agents", 0)
			if agent.str("sandbox_type") != target || agent.str("a2a_card", "name") != "solver" || agent.at("on_host").v != false {
				t.Errorf("%s", agent)
			}
			same(t, k.collected(id+"-out"), kit.Files{"in.txt": "input\n", "secret": "for root alone\n"})

			k.keepsSecret(agent.str("sandbox_id"), p.text())
			k.otherTask(record, steps{onAgent(load("@local/more", "", "@local/~/echo/in", "/vault/more")), prompt("again", "once more"),
				onAgent(verify("check", "", "/vault", contains("secret", "root alone"), is("in.txt"), contains("more/in.txt", "input"))),
				onAgent(collect("out", "", "/vault", "secret", "more/in.txt"))})
			p.signal(syscall.SIGINT)
			if code := p.wait(); code != 0 && code != 130 {
				t.Errorf("exit code %d\n%s", code, p.text())
			}
			if left := k.leftovers(); left != "" {
				t.Errorf("left behind: %s", left)
			}
		})
	}
}

// keepsSecret looks for the agent's token in everything that was stored and printed.
func (k *user) keepsSecret(sandbox, printed string) {
	k.T.Helper()
	file := filepath.Join(k.State, "agent-tokens.key")
	key, err := os.ReadFile(file)
	if err != nil {
		k.T.Fatal(err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		k.T.Errorf("%v, %v", info, err)
	}
	m := hmac.New(sha256.New, key)
	m.Write([]byte(sandbox))
	token := hex.EncodeToString(m.Sum(nil))
	if strings.Contains(printed, token) {
		k.T.Error("the token was printed")
	}
	for name, text := range kit.Read(k.T, k.State) {
		if strings.Contains(text, token) {
			k.T.Errorf("the token is in %s", name)
		}
	}
}

// otherTask runs steps in a process of its own on what a finished run left up, and passes.
func (k *user) otherTask(record doc, task steps) {
	k.T.Helper()
	context, err := json.Marshal(record.at("context").v)
	if err != nil {
		k.T.Fatal(err)
	}
	file, err := json.Marshal(task)
	if err != nil {
		k.T.Fatal(err)
	}
	at := kit.Write(k.T, filepath.Join(k.Home, "other"), kit.Files{"context.json": string(context), "steps.json": string(file)})
	k.ok("task", "create", "--id", "@local/other", filepath.Join(at, "steps.json"))
	k.ok("task", "run", "--id", "@local/other", "--context-json", filepath.Join(at, "context.json"), "--output-dir", filepath.Join(at, "out"))
	for _, text := range kit.Read(k.T, filepath.Join(at, "out")) {
		got := parse(k.T, text)
		if got.str("prompt_responses", 1, "response") != "Echo: once more" || got.num("metadata", "verifications", "check", "score") != 1 ||
			got.str("metadata", "artifacts", "secret") == "" {
			k.T.Errorf("%s", got)
		}
	}
}

func TestAgentThatDoesNotStart(t *testing.T) {
	for name, c := range map[string]struct {
		toml, fails string
		wants       []string
	}{
		"ends at once":   {modelFree + "[default_env_vars]\nA2A_HOST = \"no address\"\n", "infrastructure", []string{"container", "has ended", "its last output", "no address"}},
		"no model key":   {"", "configuration", []string{"no model API key", "LITELLM_API_KEY"}},
		"no model place": {"[default_env_vars]\nLITELLM_API_KEY = \"sk-1\"\n", "configuration", []string{"no model endpoint", "LITELLM_BASE_URL"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := newUser(t)
			s, r := k.summed(k.bundle("bad", steps{deployEcho()}, echoFolder(t, c.toml)))
			if len(s.Tasks) != 1 || s.Tasks[0].Class != c.fails || len(s.Tasks[0].Failures) != 1 {
				t.Fatal(r)
			}
			for _, want := range c.wants {
				if !strings.Contains(s.Tasks[0].Failures[0].Error, want) {
					t.Errorf("no %q in %q", want, s.Tasks[0].Failures[0].Error)
				}
			}
			if n := k.instance(s.Tasks[0].Instance).at("context", "deployed_agents").len(); n != 0 {
				t.Errorf("%d agents are recorded", n)
			}
			if left := k.leftovers(); left != "" {
				t.Errorf("left behind: %s", left)
			}
		})
	}
}

// TestModelKeyStaysInTheContainer looks for the configured key in all that is stored, printed, traced and shown of a run whose agent gets it, and
// in the command lines of all processes of this machine meanwhile, the engine's and the container's too.
func TestModelKeyStaysInTheContainer(t *testing.T) {
	t.Parallel()
	key, header := "sk-very-secret-"+rand.Text(), "team-very-secret-"+rand.Text()
	secrets := regexp.MustCompile(key + "|" + header)
	k := newUser(t)
	kit.Write(t, k.Home, kit.Files{"agent-env.toml": "[model]\nbase_url = \"http://127.0.0.1:9/v1\"\napi_key = \"env:THE_KEY\"\n[model.headers]\nX-Team = \"env:THE_HEADER\"\n"})
	k.Env = append(k.Env, "THE_KEY="+key, "THE_HEADER="+header, "AGENT_ENV_CONFIG="+filepath.Join(k.Home, "agent-env.toml"))
	trace := filepath.Join(t.TempDir(), "trace.json")
	bundle := k.bundle("keyed", steps{deployEcho(), prompt("ask", "hello")}, echoFolder(t, ""))
	lines := watchCommandLines(t)
	p := k.start("--trace", trace, "run", bundle, "--keep", "--verbose")
	defer p.kill()
	p.waitFor("Holding 1 sandbox up")
	held := k.containers()
	if len(held) != 1 {
		t.Fatalf("%v\n%s", held, p.text())
	}
	c, err := docker(t).Client().ContainerInspect(t.Context(), strings.Fields(held[0])[0], client.ContainerInspectOptions{})
	if err != nil {
		t.Fatal(err)
	}
	env := strings.Join(c.Container.Config.Env, "\n")
	for _, want := range []string{"LITELLM_API_KEY=" + key, "LITELLM_BASE_URL=http://host.docker.internal:9/v1", header} {
		if !strings.Contains(env, want) {
			t.Errorf("the container has no %q", want)
		}
	}
	c.Container.Config.Env = nil
	rest, err := json.Marshal(c.Container)
	if err != nil {
		t.Fatal(err)
	}
	all := kit.Read(t, k.State).And(kit.Files{"the engine's record": string(rest)})
	p.signal(syscall.SIGINT)
	p.wait()
	all = all.And(kit.Read(t, k.State).Under("at the end")).And(kit.Files{"what was printed": p.text(), "a command line": lines(), "the trace": kit.Read(t, filepath.Dir(trace))["trace.json"]})
	for name, text := range all {
		if secrets.MatchString(text) {
			t.Errorf("a secret is in %s", name)
		}
	}
	for name, want := range map[string]string{"a command line": trace + " run ", "the trace": "deploy_agent"} {
		if !strings.Contains(all[name], want) {
			t.Errorf("there is no %q in %s", want, name)
		}
	}
	if agent := strings.Join(append([]string{c.Container.Path}, c.Container.Args...), " "); !slices.Contains(strings.Split(all["a command line"], "\n"), agent) {
		t.Errorf("the agent's command %q was not seen", agent)
	}
	if left := k.leftovers(); left != "" {
		t.Errorf("left behind: %s", left)
	}
}

func TestTurnsThatFail(t *testing.T) {
	t.Parallel()
	k := newUser(t)
	lenient := func(s map[string]any) map[string]any { s["fail_task_on_error"] = false; return s }
	late := lenient(prompt("late", "sleep 60"))
	late["timeout_seconds"] = 2
	dies := prompt("dies", "sleep 60")
	dir := k.bundle("turns", steps{deployEcho(), lenient(prompt("fails", "fail")), late, dies}, echoFolder(t, modelFree))
	s := k.killsAgentAt("step 4/4 dies", "run", "--json", dir, "--sandbox", "docker")
	if len(s.Tasks) != 1 || len(s.Tasks[0].Failures) != 3 {
		t.Fatalf("%+v", s)
	}
	record := k.instance(s.Tasks[0].Instance)
	for i, want := range []struct{ class, text, kind string }{
		{"failed", "A2A task failed (error_type=agent_error, error_code=echo.asked, task_id=", "agent_error"},
		{"timed_out", "did not end within 2 s", "timeout"},
		{"failed", "container", "unreachable"},
	} {
		f := s.Tasks[0].Failures[i]
		if f.Class != want.class && want.class != "" && record.str("step_outcomes", f.Step) != want.class {
			t.Errorf("%s: class %s, %s", f.Step, f.Class, record.at("step_outcomes"))
		}
		if !strings.Contains(f.Error, want.text) {
			t.Errorf("%s: %s", f.Step, f.Error)
		}
		if got := record.str("context", "prompt_responses", i, "error_type"); got != want.kind {
			t.Errorf("%s: error_type %q", f.Step, got)
		}
	}
	if left := k.leftovers(); left != "" {
		t.Errorf("left behind: %s", left)
	}
}

// killsAgentAt runs the program, kills the one container it made as soon as it prints a line that holds a text, and returns its summary.
func (k *user) killsAgentAt(line string, args ...string) (s summary) {
	k.T.Helper()
	cmd := k.command(args...)
	var out bytes.Buffer
	cmd.Stdout = &out
	lines, err := cmd.StderrPipe()
	if err != nil {
		k.T.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		k.T.Fatal(err)
	}
	var said strings.Builder
	for in := bufio.NewScanner(lines); in.Scan(); {
		fmt.Fprintln(&said, in.Text())
		if !strings.Contains(in.Text(), line) {
			continue
		}
		for _, c := range k.containers() {
			if err := exec.CommandContext(k.T.Context(), "docker", "kill", strings.Fields(c)[0]).Run(); err != nil {
				k.T.Errorf("kill %s: %v", c, err)
			}
		}
	}
	_ = cmd.Wait() // the run fails
	if err := json.Unmarshal(out.Bytes(), &s); err != nil {
		k.T.Fatalf("%v\n%s%s", err, out.String(), said.String())
	}
	return s
}
