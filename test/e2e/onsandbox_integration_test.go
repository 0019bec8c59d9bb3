//go:build integration

package e2e_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/moby/moby/client"

	"agentenv/sandbox"
	"agentenv/sandbox/sandboxtest/images"
	"agentenv/test/kit"
)

// hostWithPort is a sandbox of this machine onto which an agent can be deployed.
func hostWithPort() map[string]any {
	return map[string]any{"id": "box", "type": "deploy_sandbox", "sandbox_name": "box", "sandbox_mode": "vm", "sandbox_type": "local", "exposed_ports": []int{8000}}
}

func deployOnto(box string) map[string]any {
	s := deployEcho()
	s["sandbox_name"] = box
	return s
}

// TestAgentOnASandbox deploys an agent onto a sandbox, and has steps reach its container, not the host: at once, and from another process.
func TestAgentOnASandbox(t *testing.T) {
	t.Parallel()
	k := newUser(t)
	const secret = "sk-of-the-step"
	agent := deployOnto("box")
	agent["env_vars"] = map[string]any{"SOME_API_KEY": secret}
	dir := k.bundle("onto", steps{hostWithPort(), agent, onAgent(load("load", "", "in", "/vault")), prompt("ask", "hello"),
		onAgent(verify("check", "", "/vault", contains("in.txt", "input"), contains("secret", "root alone"), is("/echo"))),
		verify("host", "box", "/", absentOn("/vault")), onAgent(collect("out", "", "/vault"))}, echoFolder(t, modelFree))
	p := k.start("run", dir, "--keep")
	defer p.kill()
	p.waitFor("Holding 1 sandbox up")
	p.waitFor("passed (check: 1, host: 1)")
	id := strings.Trim(strings.Fields(p.text()[strings.Index(p.text(), "instance @local/"):])[1], ",")
	record := k.instance(id)
	box, solver := record.at("context", "deployed_sandboxes", 0), record.at("context", "deployed_agents", 0)
	if solver.str("sandbox_id") != box.str("sandbox_id") || solver.str("sandbox_type") != "local" || solver.at("on_host").v != false || solver.at("installed_container").v != nil ||
		solver.str("a2a_url") != box.str("tunnel_urls", "8000") || record.str("context", "prompt_responses", 0, "response") != "Echo: hello" {
		t.Errorf("%s", record)
	}
	same(t, k.collected(id+"-out"), kit.Files{"in.txt": "input\n", "secret": "for root alone\n"})
	if !absent("/vault") {
		t.Error("files of the agent are on the host")
	}

	// Its container is labelled as the sandbox's, and alone has the secrets.
	c, err := docker(t).Client().ContainerInspect(t.Context(), "agent-"+box.str("sandbox_id"), client.ContainerInspectOptions{})
	if err != nil {
		t.Fatal(err)
	}
	labels := c.Container.Config.Labels
	if labels[sandbox.LabelSandbox] != box.str("sandbox_id") || labels[sandbox.LabelState] != k.mark() || labels[sandbox.LabelStep] != "agent" || labels[sandbox.LabelInstance] == "" || labels[sandbox.LabelExpires] == "" {
		t.Errorf("labels: %v", labels)
	}
	if !strings.Contains(strings.Join(c.Container.Config.Env, "\n"), "SOME_API_KEY="+secret) || c.Container.Config.User != "65532" {
		t.Errorf("%+v", c.Container.Config)
	}
	k.keepsSecret(box.str("sandbox_id"), p.text())

	k.otherTask(record, steps{prompt("again", "once more"), onAgent(verify("check", "", "/vault", contains("secret", "root alone"), is("in.txt"))),
		onAgent(collect("out", "", "/vault", "secret"))})
	p.signal(syscall.SIGINT)
	if code := p.wait(); code != 0 && code != 130 {
		t.Errorf("exit code %d\n%s", code, p.text())
	}
	if left := k.leftovers(); left != "" {
		t.Errorf("left behind: %s", left)
	}
}

// absentOn is a check that a path is not there.
func absentOn(path string) map[string]any { return sh("test ! -e " + path) }

// TestAgentsInTurnOnASandbox ends one agent on a sandbox and deploys another there; the host lives all the while. What fails to come up, and a second
// agent at once, leave the sandbox as it is.
func TestAgentsInTurnOnASandbox(t *testing.T) {
	t.Parallel()
	k := newUser(t)
	named := func(s map[string]any, id, name string) map[string]any { s["id"], s["agent_name"] = id, name; return s }
	lenient := func(s map[string]any) map[string]any { s["fail_task_on_error"] = false; return s }
	bad := named(deployOnto("box"), "bad", "bad")
	bad["env_vars"] = map[string]any{"A2A_HOST": "no address"}
	end := func(id, name string) map[string]any {
		return map[string]any{"id": id, "type": "teardown_sandboxes", "agent_names": []string{name}}
	}
	lives := func(id string) map[string]any { return verify(id, "box", "/app", sh("test -f kept")) }
	dir := k.bundle("turns", steps{hostWithPort(), verify("mark", "box", "/app", sh("echo x > kept")), lenient(bad), named(deployOnto("box"), "first", "solver"), prompt("one", "hello"),
		lenient(named(deployOnto("box"), "crowd", "crowd")), prompt("two", "still here"), end("end", "solver"), lives("alive"), named(deployOnto("box"), "next", "next"),
		named(prompt("three", "me too"), "three", "next"), lives("check")}, echoFolder(t, modelFree))
	s, r := k.summed(dir)
	if len(s.Tasks) != 1 || len(s.Tasks[0].Failures) != 2 {
		t.Fatal(r)
	}
	for i, want := range []string{"no address", `"solver" runs on it, and port 8000 serves one`} {
		if !strings.Contains(s.Tasks[0].Failures[i].Error, want) {
			t.Errorf("no %q in %q", want, s.Tasks[0].Failures[i].Error)
		}
	}
	record := k.instance(s.Tasks[0].Instance)
	for i, want := range []string{"Echo: hello", "Echo: still here", "Echo: me too"} {
		if got := record.str("context", "prompt_responses", i, "response"); got != want {
			t.Errorf("turn %d: %q", i, got)
		}
	}
	if n := record.at("context", "deployed_agents").len(); n != 2 || record.num("context", "metadata", "verifications", "check", "score") != 1 {
		t.Errorf("%s", record)
	}
	if left := k.leftovers(); left != "" {
		t.Errorf("left behind: %s", left)
	}
}

// TestAgentOnASandboxRetried has a retry end the agent's container and make another, while the sandbox stays.
func TestAgentOnASandboxRetried(t *testing.T) {
	t.Parallel()
	k := newUser(t)
	out := collect("out", "box", "/app", "second")
	out["retry_config"] = map[string]any{"retry_from_step_id": "agent", "max_retries": 1}
	record := k.passes(k.bundle("retried", steps{hostWithPort(), deployOnto("box"), prompt("ask", "hello"),
		verify("check", "box", "/app", sh("echo x >> first; test $(wc -l < first) = 1 || cp first second")), out}, echoFolder(t, modelFree)))
	if n := record.at("context", "deployed_agents").len(); n != 1 || record.at("context", "prompt_responses").len() != 1 {
		t.Errorf("%s", record)
	}
	if left := k.leftovers(); left != "" {
		t.Errorf("left behind: %s", left)
	}
}

// TestAgentOnASandboxKilled kills the program; prune finds the agent's container and the sandbox.
func TestAgentOnASandboxKilled(t *testing.T) {
	t.Parallel()
	k := newUser(t)
	p := k.start("run", k.bundle("killed", steps{hostWithPort(), deployOnto("box")}, echoFolder(t, modelFree)), "--keep")
	defer p.kill()
	p.waitFor("Holding 1 sandbox up")
	p.kill()
	if held := k.containers(); len(held) != 1 || !strings.HasPrefix(held[0], "agent-local-") {
		t.Fatalf("held: %v", held)
	}
	k.ok("sandbox", "prune", "--yes")
	if left := k.leftovers(); left != "" && !onlyTmp(k, left) {
		t.Errorf("left behind: %s", left)
	}
	if up := k.listed(); len(up) != 0 {
		t.Errorf("still listed: %v", up)
	}
}

// TestAgentOnASandboxResumed has a run that was killed go on with the agent it had, in another process.
func TestAgentOnASandboxResumed(t *testing.T) {
	t.Parallel()
	k := newUser(t)
	waits := verify("wait", "box", "/app", sh("while test ! -e go; do sleep 0.1; done"))
	p := k.start("run", k.bundle("resumed", steps{hostWithPort(), deployOnto("box"), waits, prompt("ask", "hello"),
		onAgent(verify("check", "", "/vault", contains("secret", "root alone")))}, echoFolder(t, modelFree)))
	defer p.kill()
	p.waitFor("wait (verify_sandbox)")
	p.kill()
	held := k.containers()
	folders, err := os.ReadDir(k.Sandboxes)
	if err != nil || len(folders) != 1 || len(held) != 1 {
		t.Fatal(folders, held, err)
	}
	if err := os.WriteFile(filepath.Join(k.Sandboxes, folders[0].Name(), "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	record := k.passes("--resume", k.Select(`SELECT json_extract(doc, '$.instance_id') FROM docs_task_instances`)[0])
	if name := strings.Fields(held[0])[0]; name != "agent-"+record.str("context", "deployed_agents", 0, "sandbox_id") || record.str("context", "prompt_responses", 0, "response") != "Echo: hello" {
		t.Errorf("%s held, %s", name, record)
	}
	if left := k.leftovers(); left != "" && !onlyTmp(k, left) {
		t.Errorf("left behind: %s", left)
	}
}

// TestAgentOnASandboxUndeployed ends an agent by hand, and not the sandbox that it was deployed onto.
func TestAgentOnASandboxUndeployed(t *testing.T) {
	t.Parallel()
	k := newUser(t)
	p := k.start("run", k.bundle("byhand", steps{hostWithPort(), deployOnto("box")}, echoFolder(t, modelFree)), "--keep")
	defer p.kill()
	p.waitFor("Holding 1 sandbox up")
	agent := k.instance(k.only(p.text())).at("context", "deployed_agents", 0)
	for range 2 {
		box := agent.str("sandbox_id")
		if out := k.ok("a2a-agent", "undeploy", "--instance-id", agent.str("instance_id")); !strings.Contains(out, box) {
			t.Errorf("%s", out)
		}
		if folders, err := os.ReadDir(k.Sandboxes); err != nil || len(folders) != 1 || len(k.containers()) != 0 {
			t.Fatalf("left are %v and the folders %v, %v", k.containers(), folders, err)
		}
	}
	p.signal(syscall.SIGINT)
	p.wait()
	if left := k.leftovers(); left != "" {
		t.Errorf("left behind: %s", left)
	}
}

// TestAgentOnASandboxTakenAway has a container of somebody else's on this machine be taken for nobody's.
func TestAgentOnASandboxTakenAway(t *testing.T) {
	t.Parallel()
	k := newUser(t)
	check := onAgent(verify("check", "", "/vault", contains("secret", "root alone")))
	waits := verify("wait", "box", "/app", sh("touch waiting; while test ! -e go; do sleep 0.1; done"))
	p := k.start("run", "--json", k.bundle("taken", steps{hostWithPort(), deployOnto("box"), waits, check}, echoFolder(t, modelFree)))
	defer p.kill()
	p.waitFor("wait (verify_sandbox)")
	held := k.containers()
	if len(held) != 1 {
		t.Fatalf("held: %v", held)
	}
	name := strings.Fields(held[0])[0]
	other := "a2a-agent-" + name
	if out, err := exec.CommandContext(t.Context(), "docker", "run", "-d", "--name", other, busybox(t), "sleep", "1000").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Cleanup(func() { _ = exec.Command("docker", "rm", "-f", other).Run() })
	if out, err := exec.CommandContext(t.Context(), "docker", "rm", "-f", name).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	entries, err := os.ReadDir(k.Sandboxes)
	if err != nil || len(entries) != 1 {
		t.Fatal(entries, err)
	}
	if err := os.WriteFile(filepath.Join(k.Sandboxes, entries[0].Name(), "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if code := p.wait(); code != 1 || !strings.Contains(p.text(), "there is no container "+name) {
		t.Errorf("exit code %d\n%s", code, p.text())
	}
	if left := k.leftovers(); left != "" {
		t.Errorf("left behind: %s", left)
	}
}

// TestAgentWithItsOwnDocker gives an agent an engine of its own, in a sandbox of its own and on one that is there.
func TestAgentWithItsOwnDocker(t *testing.T) {
	image, err := images.Docker(t.Context(), docker(t), images.Serves)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		agent map[string]any
		args  []string
		image string
		fails string
		held  int
	}{
		"a sandbox of its own": {deployEcho(), nil, image, "", 2},
		"one that is there":    {deployOnto("box"), nil, image, "", 2},
		"no such image":        {deployEcho(), nil, "127.0.0.1:1/nothing:1", "AGENT_ENV_AGENT_DOCKER_IMAGE", 0},
		"containers only":      {deployEcho(), []string{"--sandbox", "docker"}, image, "docker can give a container no Docker Engine of its own", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := newUser(t)
			k.Env = append(k.Env, "AGENT_ENV_AGENT_DOCKER_IMAGE="+c.image)
			c.agent["enable_docker"] = true
			task := steps{c.agent, prompt("ask", "hello")}
			if c.args == nil {
				task = append(steps{hostWithPort()}, task...)
			}
			dir := k.bundle("docked", task, echoFolder(t, modelFree))
			if c.fails != "" {
				s, r := k.summed(append([]string{dir}, c.args...)...)
				if len(s.Tasks) != 1 || len(s.Tasks[0].Failures) != 1 || !strings.Contains(s.Tasks[0].Failures[0].Error, c.fails) {
					t.Error(r)
				}
			} else {
				k.killedWithDocker(dir, c.held)
			}
			if left := k.leftovers() + k.networks(); left != "" && !onlyTmp(k, left) {
				t.Errorf("left behind: %s", left)
			}
		})
	}
}

// killedWithDocker runs a bundle, kills the program when its task is done, and prunes.
func (k *user) killedWithDocker(dir string, containers int) {
	k.T.Helper()
	p := k.start("run", dir, "--keep")
	defer p.kill()
	p.waitFor("Holding")
	held := k.containers()
	if len(held) != containers || k.networks() == "" {
		k.T.Fatalf("held: %v, %s\n%s", held, k.networks(), p.text())
	}
	for _, one := range held {
		name := strings.Fields(one)[0]
		c, err := docker(k.T).Client().ContainerInspect(k.T.Context(), name, client.ContainerInspectOptions{})
		if err != nil {
			k.T.Fatal(err)
		}
		if env := strings.Join(c.Container.Config.Env, "\n"); !strings.HasPrefix(name, "agent-dind-") && !strings.Contains(env, "DOCKER_HOST=tcp://agent-dind:2375") {
			k.T.Errorf("%s: %s", name, env)
		}
	}
	p.kill()
	k.ok("sandbox", "prune", "--yes")
}

// networks names the networks that the user's program made.
func (k *user) networks() string {
	k.T.Helper()
	list, err := docker(k.T).Networks(k.T.Context(), sandbox.LabelState+"="+k.mark())
	if err != nil {
		k.T.Fatal(err)
	}
	var out []string
	for _, n := range list {
		out = append(out, "network "+n.Name)
	}
	return strings.Join(out, "; ")
}
