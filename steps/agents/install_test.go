package agents_test

import (
	"context"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"agentenv/agent"
	"agentenv/artifact"
	"agentenv/fault"
	"agentenv/protocol/a2a"
	"agentenv/protocol/a2a/echo"
	"agentenv/sandbox"
	"agentenv/store/doc"
	"agentenv/task"
)

const agentProcess = "AGENTENV_TEST_AGENT_PORT"

// TestAgentProcess is the agent that an install command starts: this program, which serves echo until it is ended. By itself it does nothing.
func TestAgentProcess(t *testing.T) {
	port := os.Getenv(agentProcess)
	if port == "" {
		return
	}
	s, err := echo.New(context.Background(), a2a.Settings{StagingMaxBytes: -1})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:"+port)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: s.Handler(), ReadHeaderTimeout: time.Minute}
	_ = server.Serve(l)
}

// starts is the command that starts the agent, which goes on when the command has ended.
func starts(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return agentProcess + "={a2a_port} nohup '" + self + "' -test.run='^TestAgentProcess$' > {work_dir}/log 2>&1 < /dev/null &"
}

// cardOf is the card of an agent that is installed so.
func cardOf(params *doc.Object) string {
	return doc.Canonical(doc.Of("name", "Echo", "url", "/a2a", "capabilities", doc.Of("extensions", []any{doc.Of("uri", "urn:agentenv:install/v1", "params", params)})))
}

func onHost(required []any, commands ...any) *doc.Object {
	return doc.Of("install_commands_host", commands, "required_params_host", required, "a2a_port", doc.Int(8000))
}

// installable stores the agent "echo" with a build context, and its card on the image's label, and returns a context with the sandbox "box".
func (c *crew) installable(label string, context bool) *doc.Object {
	c.t.Helper()
	dir := c.t.TempDir()
	for name, text := range map[string]string{"Dockerfile": "FROM scratch\n", "a.txt": "a\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			c.t.Fatal(err)
		}
	}
	built, err := artifact.OpenContext(c.t.Context(), dir, "")
	if err != nil {
		c.t.Fatal(err)
	}
	img, err := c.artifacts.PutContext(c.t.Context(), "built", artifact.ContextImage{Context: built})
	if err == nil && !context {
		img, err = c.artifacts.PutRef(c.t.Context(), "pulled", artifact.RefImage{Ref: "registry.test/a@sha256:" + strings.Repeat("a", 64)})
	}
	if err != nil {
		c.t.Fatal(err)
	}
	if _, err := c.agents.Put(c.t.Context(), agent.NewAgent{ID: "echo", Image: agent.ArtifactRef{ID: img.ID(), Version: img.Version()}, Metadata: doc.Of("default_model", "m-own")}); err != nil {
		c.t.Fatal(err)
	}
	if label != "" {
		c.images["agentenv.a2a.card"] = label
	}
	m, err := c.sandboxes.Deploy(c.t.Context(), "local", sandbox.Spec{Mode: sandbox.VM, ExposedPorts: []int{8000}}, func(string) {})
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() {
		if err := c.sandboxes.Terminate(lasting(c.t), sandbox.Record{Name: "box", ID: m.Info().ID, Type: "local", Mode: sandbox.VM}); err != nil {
			c.t.Error(err)
		}
	})
	box := task.Sandbox{Name: "box", ID: m.Info().ID, Mode: "vm", Type: "local", TunnelURLs: m.Info().TunnelURLs, ExpiresAt: time.Now().UTC().Add(time.Hour).Format("2006-01-02 15:04 UTC"),
		NetworkPolicy: doc.Of("mode", "allow_all", "allow_hosts", []any{}, "allow_cidrs", []any{})}
	return task.NewContext().Set("deployed_sandboxes", []any{box.Document()}).Set("metadata", doc.Of())
}

// lasting is a context for what is done once a test has ended.
func lasting(t *testing.T) context.Context { return context.WithoutCancel(t.Context()) }

func modelKeys() map[string]string {
	return map[string]string{"LITELLM_API_KEY": "sk-of-the-test", "LITELLM_BASE_URL": "http://127.0.0.1:4000"}
}

func TestInstallOnHost(t *testing.T) {
	t.Parallel()
	c := newCrew(t, modelKeys())
	at := c.installable(cardOf(onHost([]any{"work_dir", "agent_ctx_tar", "a2a_port", "agent_name", "workspace_dir", "litellm_api_key", "litellm_base_url", "litellm_extra_headers", "trust_env"},
		"mkdir -p {workspace_dir} && tar -xzf {agent_ctx_tar} -C {workspace_dir} && printf '%s\\n' {agent_name} {{}} > {workspace_dir}/told",
		"printf '%s|' {litellm_api_key} {litellm_base_url} {litellm_extra_headers} {agent_name} > {work_dir}/secrets; tr '\\0' ' ' < /proc/$$/cmdline > {work_dir}/cmdline; env > {work_dir}/env; true {litellm_api_key}",
		"printf %s {trust_env} > {work_dir}/trusted",
		starts(t))), true)
	run, err := c.run(t.Context(), at, `{"id":"i","type":"install_agent","sandbox_name":"box","a2a_agent_id":"echo","agent_name":"it's","workspace_dir":"/app/work"}`)
	if err != nil {
		t.Fatal(err)
	}
	a, err := run.Agent("it's")
	if err != nil {
		t.Fatal(err)
	}
	box := run.Sandboxes()[0]
	if a.Str("a2a_url") != box.TunnelURLs["8000"] || a.Str("api_url") != a.Str("a2a_url") || a.Str("sandbox_id") != box.ID || a.Str("sandbox_type") != "local" || a.Value("on_host") != true ||
		a.Value("installed_container") != nil || a.Obj("a2a_card").Str("name") != "Echo" || a.Obj("network_policy").Str("mode") != "allow_all" || run.Context().Str("default_agent_model") != "m-own" {
		t.Errorf("recorded %s", canon(a))
	}
	in, err := c.instances.Get(t.Context(), a.Str("instance_id"))
	if left := time.Until(in.ExpiresAt); err != nil || in.AgentID != "echo" || in.URL != a.Str("a2a_url") || left < 50*time.Minute || left > time.Hour {
		t.Errorf("%+v, %v", in, err)
	}
	m, err := c.sandboxes.Attach(t.Context(), sandbox.Record{ID: box.ID, Type: "local", Mode: sandbox.VM})
	if err != nil {
		t.Fatal(err)
	}
	work := "/tmp/install-agent-it's-" + box.ID
	read := func(file string) string {
		t.Helper()
		b, err := os.ReadFile(file)
		if err != nil {
			t.Error(err)
		}
		return string(b)
	}
	folder := m.Info().WorkDir
	if got := read(filepath.Join(folder, "work/a.txt")) + read(filepath.Join(folder, "work/told")); got != "a\nit's\n{}\n" {
		t.Errorf("it was handed %q", got)
	}
	if info, err := os.Stat(work); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the work folder: %v, %v", info, err)
	}
	if cmd, env := read(work+"/cmdline"), read(work+"/env"); strings.Contains(cmd+env, "sk-of-the-test") || !strings.Contains(cmd, "eval") {
		t.Errorf("the key is shown: %s\n%s", cmd, env)
	}
	if got := read(work + "/secrets"); got != "sk-of-the-test|http://127.0.0.1:4000|{}|it's|" {
		t.Errorf("it is told %q", got)
	}
	bundle := work + "/trust/ca-bundle.pem"
	if got, want := read(work+"/trusted"), "SSL_CERT_FILE='"+bundle+"'\nREQUESTS_CA_BUNDLE='"+bundle+"'\nNODE_EXTRA_CA_CERTS='"+bundle+"'\n"; got != want || read(bundle) != "PEM\n" {
		t.Errorf("it is to trust %q", got)
	}
	for _, note := range c.notes {
		if strings.Contains(note, "sk-of-the-test") || !strings.HasPrefix(note, "install command ") {
			t.Errorf("it says %s", note)
		}
	}
	run, err = c.run(t.Context(), run.Context(), `{"id":"ask","type":"prompt_agent","agent_name":"it's","prompt":"hello"}`)
	if err != nil || run.PromptResponses()[0].Str("response") != "Echo: hello" {
		t.Errorf("%s, %v", canon(run.PromptResponses()), err)
	}
	if _, err := c.run(t.Context(), run.Context(), `{"id":"i2","type":"install_agent","sandbox_name":"box","a2a_agent_id":"echo","agent_name":"it's"}`); !fault.Is(err, fault.Exists) {
		t.Errorf("the same name again: %v", err)
	}
	if _, err := c.run(t.Context(), run.Context(), `{"id":"i2","type":"install_agent","sandbox_name":"box","a2a_agent_id":"echo","workspace_dir":"/w"}`); !fault.Is(err, fault.Exists) || !strings.Contains(err.Error(), `"it's"`) {
		t.Errorf("the same port again: %v", err)
	}
}

// TestInstallIsRefused has what cannot be installed be refused before any command has run.
func TestInstallIsRefused(t *testing.T) {
	t.Parallel()
	fine := func(required ...any) string { return cardOf(onHost(required, "touch /app/ran", "true {a2a_port}")) }
	for name, c := range map[string]struct {
		label string
		step  string
		kind  fault.Kind
		wants []string
	}{
		"no such sandbox":       {fine("a2a_port"), `"sandbox_name":"other"`, fault.Invalid, []string{`"other"`, "box"}},
		"a container sandbox":   {fine("a2a_port"), `"sandbox_name":"jar"`, fault.Unsupported, []string{`"jar"`, "mode vm"}},
		"no such container":     {fine("a2a_port"), `"container_name":"c"`, fault.Invalid, []string{`"c"`, "deployed_docker_containers"}},
		"no such agent":         {fine("a2a_port"), `"a2a_agent_id":"nobody"`, fault.NotFound, []string{"nobody"}},
		"no build context":      {fine("a2a_port"), ``, fault.Invalid, []string{"echo v1", "no build context"}},
		"a card that is none":   {"[]", ``, fault.Invalid, []string{"agentenv.a2a.card", "JSON object"}},
		"no extension":          {`{"name":"x"}`, ``, fault.Unsupported, []string{"echo v1", "install/v1"}},
		"commands that are not": {cardOf(doc.Of("install_commands_host", "x", "required_params_host", []any{}, "a2a_port", doc.Int(8000))), ``, fault.Invalid, []string{"install_commands_host"}},
		"a command that is not": {cardOf(onHost([]any{}, "true", doc.Int(5))), ``, fault.Invalid, []string{"install_commands_host[1]"}},
		"no commands":           {cardOf(onHost([]any{})), ``, fault.Invalid, []string{"install_commands_host", "empty"}},
		"for containers only":   {cardOf(doc.Of("install_commands", []any{"true"}, "required_params", []any{}, "a2a_port", doc.Int(8000))), ``, fault.Invalid, []string{"install_commands_host"}},
		"no port":               {cardOf(doc.Of("install_commands_host", []any{"true"}, "required_params_host", []any{})), ``, fault.Invalid, []string{"a2a_port"}},
		"a port not exposed":    {fine("a2a_port"), `"a2a_port":9000`, fault.Invalid, []string{"9000", "exposed_ports", `"box"`}},
		"no workspace":          {fine("a2a_port", "workspace_dir"), ``, fault.Invalid, []string{"workspace_dir"}},
		"a host is no box":      {fine("a2a_port", "container"), ``, fault.Invalid, []string{"container_name"}},
		"what nobody knows":     {fine("a2a_port", "luck"), ``, fault.Invalid, []string{`"luck"`, "work_dir", "trust_env"}},
		"a stand-in's":          {fine("a2a_port", "host_user"), ``, fault.Unsupported, []string{"host_user"}},
		"undeclared":            {fine(), ``, fault.Invalid, []string{"install command 2 (true {a2a_port})", "{a2a_port}"}},
		"a lone brace":          {cardOf(onHost([]any{}, "touch /app/ran", "echo }")), ``, fault.Invalid, []string{"install command 2", "alone"}},
		"a secret beside /app":  {cardOf(onHost([]any{"litellm_api_key"}, "touch /app/ran", "echo {litellm_api_key} > '/app'/key")), ``, fault.Unsupported, []string{"install command 2", "/app"}},
		"no key":                {fine("a2a_port", "litellm_api_key"), ``, fault.Invalid, []string{"no model API key"}},
		"no endpoint":           {fine("a2a_port", "litellm_base_url"), ``, fault.Invalid, []string{"no model endpoint"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env := modelKeys()
			if strings.HasPrefix(name, "no ") {
				env = nil
			}
			crew := newCrew(t, env)
			at := crew.installable(c.label, name != "no build context")
			at.Set("deployed_sandboxes", append(at.Arr("deployed_sandboxes"), task.Sandbox{Name: "jar", ID: "fake-1", Mode: "container", Type: "fake"}.Document()))
			step := c.step
			for _, field := range [][2]string{{"sandbox_name", "box"}, {"a2a_agent_id", "echo"}} {
				if !strings.Contains(step, field[0]) {
					step = strings.TrimPrefix(step+`,"`+field[0]+`":"`+field[1]+`"`, ",")
				}
			}
			run, err := crew.run(t.Context(), at, `{"id":"i","type":"install_agent",`+step+`}`)
			if !fault.Is(err, c.kind) {
				t.Fatal(err)
			}
			for _, want := range append(c.wants, `install_agent "i"`) {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("no %q in %v", want, err)
				}
			}
			m, err := crew.sandboxes.Attach(t.Context(), sandbox.Record{ID: run.Sandboxes()[0].ID, Type: "local", Mode: sandbox.VM})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := os.Stat(filepath.Join(m.Info().WorkDir, "ran")); err == nil || len(run.Agents()) != 0 {
				t.Error("a command ran")
			}
		})
	}
}

func TestInstallFails(t *testing.T) {
	t.Parallel()
	c := newCrew(t, modelKeys())
	at := c.installable(cardOf(onHost([]any{"litellm_api_key"}, "true", "echo 'on the way'; echo the key {litellm_api_key} >&2; exit 3")), true)
	run, err := c.run(t.Context(), at, `{"id":"i","type":"install_agent","sandbox_name":"box","a2a_agent_id":"echo","agent_name":"solver"}`)
	if !fault.Is(err, fault.Unavailable) || task.ClassOf(err) != task.Infrastructure {
		t.Fatal(err)
	}
	for _, want := range []string{"install command 2 (echo 'on the way'; echo the key {litellm_api_key}", "exit code 3", "on the way", "the key ***"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in %v", want, err)
		}
	}
	if _, serr := os.Stat("/tmp/install-agent-solver-" + run.Sandboxes()[0].ID); strings.Contains(err.Error(), "sk-of-the-test") || serr == nil || len(run.Agents()) != 0 {
		t.Errorf("%v, %v", err, serr)
	}
	if _, err := c.run(t.Context(), task.NewContext().Set("deployed_sandboxes", at.Arr("deployed_sandboxes")).Set("metadata", doc.Of("user_overrides", doc.Of("step_params", doc.Of("i", doc.Of("proxy", "p"))))),
		`{"id":"i","type":"install_agent","sandbox_name":"box","a2a_agent_id":"echo"}`); !fault.Is(err, fault.Unsupported) || !strings.Contains(err.Error(), "proxy") {
		t.Errorf("a stand-in: %v", err)
	}
}

func TestInstallSteps(t *testing.T) {
	t.Parallel()
	c := newCrew(t, nil)
	for text, want := range map[string]string{
		`"container_name":"c"`:                        "sandbox_name",
		`"sandbox_name":""`:                           "sandbox_name",
		`"sandbox_name":"b","agent_name":""`:          "agent_name",
		`"sandbox_name":"b","a2a_port":0`:             "a2a_port",
		`"sandbox_name":"b","a2a_port":70000`:         "a2a_port",
		`"sandbox_name":"b","a2a_agent_version":0`:    "a2a_agent_version",
		`"sandbox_name":"b","workspace_dir":["/app"]`: "workspace_dir",
	} {
		if _, err := c.reg.ParseText("t", []byte(`[{"id":"i","type":"install_agent",`+text+`}]`), task.ParseOptions{Strict: true}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
	s := c.step(`{"id":"i","type":"install_agent","sandbox_name":"box"}`)
	if got, err := doc.Marshal(s.Fields); err != nil || string(got) != `{"sandbox_name": "box", "container_name": null, "a2a_agent_id": null, "a2a_agent_version": null, "agent_name": "default-agent", "a2a_port": null, "workspace_dir": null}` {
		t.Errorf("stored %s, %v", got, err)
	}
	for _, built := range []bool{true, false} {
		c := newCrew(t, nil)
		c.installable("", built)
		for id, problems := range map[string]int{"echo": 1, "nobody": 0} {
			s := c.step(`{"id":"i","type":"install_agent","sandbox_name":"box","a2a_agent_id":"` + id + `"}`)
			if got := s.Kind.Preflight(t.Context(), s); len(got) != problems && !built || len(got) != 0 && built {
				t.Errorf("%s, built %s: %v", id, strconv.FormatBool(built), got)
			}
		}
	}
}
