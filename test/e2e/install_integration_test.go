//go:build integration

package e2e_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"agentenv/test/kit"
)

// installedEcho is a bundle's folder of the echo agent that says how it is installed: on its image's label, or by a Python module.
func installedEcho(t *testing.T, python bool) kit.Files {
	t.Helper()
	program, err := echoAgent()
	if err != nil {
		t.Fatalf("build the echo agent: %v\n%s", err, program)
	}
	unpack := "tar -xzf {agent_ctx_tar} -C {work_dir}"
	params := map[string]any{"a2a_port": 8000, "required_params": []string{"work_dir", "agent_ctx_tar", "a2a_port", "container"}, "required_params_host": []string{"work_dir", "agent_ctx_tar", "a2a_port"},
		"install_commands": []string{unpack, "docker cp {work_dir}/echo {container}:/echo",
			"docker exec -d -e A2A_PORT={a2a_port} -e AGENTENV_STAGING_MAX_BYTES=0 {container} /echo"},
		"install_commands_host": []string{unpack, "A2A_HOST=127.0.0.1 A2A_PORT={a2a_port} AGENTENV_STAGING_MAX_BYTES=0 nohup {work_dir}/echo > {work_dir}/log 2>&1 < /dev/null &"}}
	card, err := json.Marshal(map[string]any{"name": "Echo", "capabilities": map[string]any{"extensions": []any{map[string]any{"uri": "urn:agentenv:install/v1", "params": params}}}})
	if err != nil {
		t.Fatal(err)
	}
	out := kit.Files{"agents/echo/echo": "+x" + program, "agents/echo/agent.toml": modelFree, "artifacts/in/in.txt": "input\n"}
	if python {
		out["agents/echo/a2a_server.py"] = "import json\nprint('noise')\nAGENT_CARD = json.loads(" + strconv.Quote(string(card)) + ")\n"
		return out.And(kit.Files{"agents/echo/Dockerfile": "FROM " + debian(t) + "\nCOPY a2a_server.py /app/\nENTRYPOINT [\"/nothing\"]\n"})
	}
	return out.And(kit.Files{"agents/echo/Dockerfile": "FROM scratch\nCOPY echo /echo\nLABEL agentenv.a2a.card=" + strconv.Quote(string(card)) + "\nENTRYPOINT [\"/echo\"]\n"})
}

// TestInstalledAgents installs an agent onto the host of a sandbox and, from another process, a second one into a container that runs there.
func TestInstalledAgents(t *testing.T) {
	for name, python := range map[string]bool{"a card on a label": false, "a card in a module": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			image := busybox(t)
			k := newUser(t)
			dir := k.bundle("install", steps{
				{"id": "box", "type": "deploy_sandbox", "sandbox_name": "box", "sandbox_mode": "vm", "exposed_ports": []int{8000, 8001}},
				{"id": "agent", "type": "install_agent", "sandbox_name": "box", "a2a_agent_id": "echo", "agent_name": "solver"},
				prompt("ask", "hello"), onAgent(load("load", "", "in", "/app/in")), onAgent(verify("check", "", "/app/in", contains("in.txt", "input")))}, installedEcho(t, python))
			p := k.start("run", dir, "--keep")
			defer p.kill()
			p.waitFor("Holding 1 sandbox up")
			p.waitFor("passed (check: 1)")
			record := k.instance(strings.Trim(strings.Fields(p.text()[strings.Index(p.text(), "instance @local/"):])[1], ","))
			if record.str("context", "prompt_responses", 0, "response") != "Echo: hello" || record.at("context", "deployed_agents", 0, "on_host").v != true {
				t.Errorf("%s", record)
			}
			k.installsInto(image, record)

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

// installsInto starts a container on the sandbox of a run, and has another task install the run's agent into it and work there.
func (k *user) installsInto(image string, record doc) {
	k.T.Helper()
	box := record.str("context", "deployed_sandboxes", 0, "sandbox_id")
	agent := record.str("context", "deployed_agents", 0, "instance_id")
	url := record.str("context", "deployed_sandboxes", 0, "tunnel_urls", "8001")
	args := []string{"run", "-d", "--user", "0", "--name", "jar-" + box, "--label", "agentenv.sandbox=" + box, "-p", strings.TrimPrefix(url, "http://") + ":8001", image, "sh", "-c", "mkdir -p -m 700 /kept; echo inside > /kept/kept; exec sleep 1000"}
	if out, err := exec.CommandContext(k.T.Context(), "docker", args...).CombinedOutput(); err != nil {
		k.T.Fatalf("docker %v: %v\n%s", args, err, out)
	}
	k.T.Cleanup(func() { _ = exec.Command("docker", "rm", "-f", "jar-"+box).Run() })
	context, ok := record.at("context").v.(map[string]any)
	if !ok {
		k.T.Fatal(record)
	}
	metadata, _ := context["metadata"].(map[string]any)
	// A task of everybody's names no entity of one user; the run says which agent it is.
	metadata["user_overrides"] = map[string]any{"a2a_agent_id": agent[:len(agent)-9]}
	metadata["deployed_docker_containers"] = []any{map[string]any{"sandbox_name": "box", "container_name": "jar"}}
	inside := func(s map[string]any) map[string]any { s["agent_name"] = "inside"; delete(s, "sandbox_name"); return s }
	task := steps{{"id": "agent", "type": "install_agent", "sandbox_name": "box", "container_name": "jar", "agent_name": "inside", "a2a_port": 8001},
		inside(prompt("ask", "once more")), inside(verify("inside", "", "/kept", contains("kept", "inside"), is("/echo"))), inside(collect("out", "", "/kept"))}
	files := kit.Files{}
	for name, v := range map[string]any{"context.json": context, "steps.json": task} {
		text, err := json.Marshal(v)
		if err != nil {
			k.T.Fatal(err)
		}
		files[name] = string(text)
	}
	at := kit.Write(k.T, filepath.Join(k.Home, "into"), files)
	k.ok("task", "create", "--id", "into", filepath.Join(at, "steps.json"))
	k.ok("task", "run", "--id", "into", "--context-json", filepath.Join(at, "context.json"), "--output-dir", filepath.Join(at, "out"))
	for _, text := range kit.Read(k.T, filepath.Join(at, "out")) {
		got := parse(k.T, text)
		installed := got.at("deployed_agents", 1)
		if got.str("prompt_responses", 1, "response") != "Echo: once more" || got.num("metadata", "verifications", "inside", "score") != 1 || installed.str("installed_container") != "jar-"+box ||
			installed.at("on_host").v != false || installed.str("a2a_url") != url || got.str("metadata", "artifacts", "kept") == "" {
			k.T.Errorf("%s", got)
		}
	}
	if _, err := os.Stat("/tmp/install-agent-inside-" + box); err == nil {
		k.T.Error("the work folder of the container's installation is still there")
	}
}
