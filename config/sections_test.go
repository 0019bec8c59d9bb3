package config_test

import (
	"maps"
	"reflect"
	"testing"

	"agentenv/config"
	"agentenv/fault"
	"agentenv/store/doc"
)

func TestSandbox(t *testing.T) {
	w := newWorld(t)
	c := w.load()
	s, err := c.Sandbox()
	if err != nil || s.Default != "local" || s.AgentDefault != "local" || len(s.Providers) != 0 {
		t.Errorf("without a file: %+v, %v", s, err)
	}
	w.env["TEAM"] = "red"
	w.file(`[sandbox]
default = "docker, local"
[sandbox.attribution]
team = "env:TEAM"
key = "secret:K"
[sandbox.providers.docker]
[sandbox.providers.local.config]
a = "env:X?y"
[sandbox.providers.modal.config]
app_name = "env:UNSET"
`)
	c = w.load()
	c.SetSecrets(func(string) (string, bool, error) { return "s", true, nil })
	s, err = c.Sandbox()
	if err != nil {
		t.Fatal(err)
	}
	if s.Default != "docker, local" || s.AgentDefault != "local" || !maps.Equal(s.Attribution, map[string]string{"team": "red", "key": "s"}) {
		t.Errorf("got %+v", s)
	}
	if len(s.Providers) != 2 {
		t.Errorf("providers %v: those of the reference alone are left out", s.Providers)
	}
	equal(t, s.Providers["local"].Config, doc.Of("a", "y"))
	equal(t, s.Providers["docker"].Config, &doc.Object{})
}

func TestSectionErrors(t *testing.T) {
	sandbox := func(c *config.Config) error { _, err := c.Sandbox(); return err }
	artifacts := func(c *config.Config) error { _, err := c.Artifacts(); return err }
	state := func(c *config.Config) error { _, err := c.StateProviders(); return err }
	explorer := func(c *config.Config) error { _, err := c.Explorer(); return err }
	agents := func(c *config.Config) error { _, err := c.Agents(); return err }
	humans := func(c *config.Config) error { _, err := c.Conversations(); return err }
	model := func(c *config.Config) error { _, err := c.Model(); return err }
	limits := func(c *config.Config) error { _, err := c.Limits(); return err }
	tests := []struct {
		name string
		read func(*config.Config) error
		file string
		says []string
	}{
		{"sandbox", sandbox, "sandbox = 5", []string{"[sandbox] must be a table, got int"}},
		{"default", sandbox, "[sandbox]\ndefault = 5", []string{"[sandbox] default"}},
		{"blank default", sandbox, "[sandbox]\nagent_default = \" , \"", []string{"[sandbox] agent_default"}},
		{"attribution", sandbox, "[sandbox.attribution]\na = 1", []string{"[sandbox.attribution] a", "int"}},
		{"attribution unset", sandbox, "[sandbox.attribution]\na = \"env:NOPE\"", []string{"env:NOPE"}},
		{"providers", sandbox, "[sandbox]\nproviders = 5", []string{"[sandbox.providers] must be a table"}},
		{"collision, text", sandbox, "[sandbox.providers]\nlocal = \"a:B\"", []string{"collides with the built-in"}},
		{"collision, table", sandbox, "[sandbox.providers.modal]\nimpl = \"a:B\"", []string{"collides with the built-in"}},
		{"extra keys", sandbox, "[sandbox.providers.docker]\nconfig = {}\nz = 1\nb = 2", []string{"accepts only a config table", "'b' and 'z'"}},
		{"provider config", sandbox, "[sandbox.providers.docker]\nconfig = 5", []string{"[sandbox.providers.docker.config] must be a table, got int"}},
		{"provider no table", sandbox, "[sandbox.providers]\ndocker = 5", []string{"[sandbox.providers.docker] must be a table, got int"}},
		{"unknown provider", sandbox, "[sandbox.providers.\"a.b\".config]", []string{"[sandbox.providers.\"a.b\"]", "missing an impl"}},
		{"foreign provider", sandbox, "[sandbox.providers]\nx = \"acme:Box\"", []string{"acme:Box", "Python"}},
		{"date for text", sandbox, "[sandbox]\ndefault = 2024-01-02", []string{"datetime"}},
		{"impls", artifacts, "[artifacts]\nimpls = \"x\"", []string{"[artifacts] impls must be a list"}},
		{"impls entry", artifacts, "[artifacts]\nimpls = [\"x\", 1]", []string{"impls[1] must be a string"}},
		{"self alias", artifacts, "[artifacts.type_aliases]\na = \"a\"", []string{"alias of itself"}},
		{"chain", artifacts, "[artifacts.type_aliases]\na = \"b\"\nb = \"file\"", []string{`"b"`, "an alias too"}},
		{"alias type", artifacts, "[artifacts.type_aliases]\na = 1", []string{"must be a string"}},
		{"state", state, "[state.providers]\nx = 5", []string{"[state.providers.x] must be a string or a table"}},
		{"state built-in", state, "[state.providers]\nlocal_postgres = \"a:B\"", []string{"[state.providers.local_postgres]", "collides"}},
		{"state impl", state, "[state.providers.x]\nconfig = {}", []string{"[state.providers.x]", "impl"}},
		{"port", explorer, "[explorer]\nport = \"x\"", []string{"port"}},
		{"port range", explorer, "[explorer]\nport = 70000", []string{"port"}},
		{"hosts", explorer, "[explorer]\nallowed_hosts = \"x\"", []string{"allowed_hosts must be a list"}},
		{"agents", agents, "[agents]\nbogus = 1", []string{"unknown keys 'bogus'", "'default_a2a_agent_id'"}},
		{"agent", agents, "[agents]\ndefault_a2a_agent_id = \"  \"", []string{"[agents] default_a2a_agent_id", "blank"}},
		{"agent reference", agents, "[agents]\ndefault_a2a_agent_id = \"env:NOPE\"", []string{"env:NOPE"}},
		{"human", humans, "", []string{"AGENT_ENV_HUMAN_A2A_URL", "default_human_a2a_url"}},
		{"human blank", humans, "[conversations]\ndefault_human_a2a_url = \"\"", []string{"default_human_a2a_url"}},
		{"model keys", model, "[model]\nbogus = 1\nbase = 2", []string{"unknown keys 'base' and 'bogus'", "'base_url'"}},
		{"model type", model, "[model]\nbase_url = 5", []string{"[model] base_url must be a string, got int"}},
		{"reserved", model, "[model.params]\nmodel = 1\ntimeout = 2", []string{"'model' and 'timeout'", "reserved"}},
		{"header name", model, "[model.headers]\n\"a b\" = \"x\"", []string{"a b"}},
		{"header value", model, "[model.headers]\na = \"caf\u00e9-hush\"", []string{"the value of a"}},
		{"roles", model, "[model.roles]\njudge = 1", []string{"judge must be a string"}},
		{"max_sandboxes", limits, "[plugins.agent-env]\nmax_sandboxes = 0", []string{"[plugins.agent-env] max_sandboxes", "at least 1"}},
		{"own keys", limits, "[plugins.Agent_Env]\nmax = 3", []string{"unknown keys 'max'"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t)
			path := ""
			if test.file != "" {
				path = w.file(test.file)
			}
			fails(t, test.read(w.load()), fault.Invalid, append(test.says, path)...)
		})
	}
}

func TestSections(t *testing.T) {
	w := newWorld(t)
	w.env["MAX"] = "x"
	w.file(`[artifacts]
impls = ["a:B"]
type_aliases = {old = "file"}
[envs]
impls = []
[state.providers]
x = "a:B"
[explorer]
port = 99
cors_origins = ["o"]
static_dir = "d"
[explorer.plugins]
impls = ["p:Q"]
[agents]
default_a2a_agent_id = "env:NOPE?mine"
[plugins.Agent_Env]
max_sandboxes = 7
`)
	c := w.load()
	check := func(name string, got any, err error, want any) {
		t.Helper()
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v (%v), want %+v", name, got, err, want)
		}
	}
	a, err := c.Artifacts()
	check("artifacts", a, err, config.ArtifactsSection{Impls: []string{"a:B"}, Aliases: map[string]string{"old": "file"}})
	e, err := c.Explorer()
	check("explorer", e, err, config.ExplorerSection{Port: 99, CORSOrigins: []string{"o"}, StaticDir: "d"})
	p, err := c.Impls("explorer", "plugins")
	check("explorer plugins", p, err, []string{"p:Q"})
	g, err := c.Agents()
	check("agents", g, err, config.AgentsSection{DefaultID: "mine"})
	l, err := c.Limits()
	check("limits", l, err, config.Limits{MaxSandboxes: 7})
	s, err := c.StateProviders()
	if err != nil || s["x"].Str("impl") != "a:B" {
		t.Errorf("state: %v, %v", s, err)
	}
}

func TestHumanAddressOfTheEnvironment(t *testing.T) {
	w := newWorld(t)
	w.file("[conversations\n")
	w.env["AGENT_ENV_HUMAN_A2A_URL"] = "any text"
	if s, err := w.load().Conversations(); err != nil || s.HumanURL != "any text" {
		t.Errorf("got %q, %v", s.HumanURL, err)
	}
}

func TestPlugin(t *testing.T) {
	w := newWorld(t)
	w.file("[plugins.\"My.Plug__in\"]\na = 1\n[plugins.X]\n[plugins.x]\n[plugins]\nbad = 5\n")
	c := w.load()
	got, err := c.Plugin("my-plug-in")
	if err != nil {
		t.Fatal(err)
	}
	equal(t, got, doc.Of("a", doc.Int(1)))
	if none, err := c.Plugin("absent"); err != nil || none == nil || none.Len() != 0 {
		t.Errorf("absent: %v, %v", none, err)
	}
	_, err = c.Plugin("x")
	fails(t, err, fault.Invalid, "[plugins.X]", "[plugins.x]")
	_, err = c.Plugin("bad")
	fails(t, err, fault.Invalid, "[plugins.bad] must be a table, got int")
}

func TestCheckProviders(t *testing.T) {
	c := newWorld(t).load()
	if err := c.CheckProviders("docker, local,", "--sandbox"); err != nil {
		t.Error(err)
	}
	fails(t, c.CheckProviders("local,modal", "--sandbox"), fault.Unsupported, "--sandbox", `"modal"`, "not supported yet")
	fails(t, c.CheckProviders("nope", "--sandbox"), fault.Invalid, `"nope"`, "'local' and 'docker'")
}
