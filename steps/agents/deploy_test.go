package agents_test

import (
	"net/http"
	"strings"
	"testing"

	"agentenv/agent"
	"agentenv/artifact"
	"agentenv/fault"
	"agentenv/store/doc"
	"agentenv/task"
)

// handler serves one fake in every container.
func handler(f *fake, t *testing.T) func(map[string]string) (http.Handler, func()) {
	f.bodies, f.tasks = map[string][]*doc.Object{}, map[string][2]string{}
	return func(map[string]string) (http.Handler, func()) { return f, nil }
}

// put stores an agent that needs no model, unless its metadata says so, with these default variables.
func (r *rig) put(id string, metadata *doc.Object, env ...any) {
	r.t.Helper()
	if metadata == nil {
		metadata = doc.Of("takes_credentials", false)
	}
	if _, err := r.agents.Put(r.t.Context(), agent.NewAgent{ID: id, Image: r.image, Metadata: metadata, DefaultEnv: doc.Of(env...)}); err != nil {
		r.t.Fatal(err)
	}
}

func TestDeploy(t *testing.T) {
	t.Parallel()
	f := &fake{takes: "name,role,system_prompt", more: []string{"skills"}, answer: echoing}
	r := newRig(t, nil)
	r.provider.Serve = handler(f, t)
	r.put("bot", nil)
	run, err := r.run(t.Context(), nil, `{"id":"d","type":"deploy_agent","a2a_agent_id":"bot","agent_name":"solver","agent_description":"clever","role":"buyer","system_prompt":"Be quick.",
		"env_vars":{"A":"1"},"skills":[{"name":"s1","description":"one","skill_md":"# s1","object_url":"x"},{"name":"s2","content":"# s2"}],"cpu":2,"memory_mb":512,"ttl_seconds":60,"disk_size_gb":3}`)
	if err != nil {
		t.Fatal(err)
	}
	spec := r.provider.Specs()[0]
	if spec.Env["A"] != "1" || spec.Env["AGENT_ENV_ROLE"] != "buyer" || spec.CPU != 2 || spec.MemoryMB != 512 || spec.TTL.Seconds() != 60 || spec.DiskGB != 3 || spec.Owner.Instance != "inst-1" || spec.Owner.Step != "d" {
		t.Errorf("%+v", spec)
	}
	if got := canon(f.got("/ext/skill-config")); got != `[{"description":"one","name":"s1","skill_md":"# s1"},{"description":"","name":"s2","skill_md":"# s2"}]` {
		t.Errorf("skills: %s", got)
	}
	if got := canon(f.got("/ext/agent-config")); got != `[{"system_prompt":"Be quick."},{"name":"solver","role":"buyer"}]` {
		t.Errorf("configured: %s", got)
	}
	a, err := run.Agent("solver")
	if err != nil {
		t.Fatal(err)
	}
	card := a.Obj("a2a_card")
	if a.Str("role") != "buyer" || card.Str("name") != "solver" || card.Str("role") != "buyer" || card.Str("description") != "a fake" || a.Str("sandbox_type") != "fake" || a.Str("api_url") != a.Str("a2a_url") ||
		!strings.HasPrefix(a.Str("instance_id"), "bot-") || a.Obj("network_policy").Str("mode") != "allow_all" || a.Value("installed_container") != nil || a.Value("on_host") != false {
		t.Errorf("recorded %s", canon(a))
	}
	if _, err := r.run(t.Context(), run.Context(), `{"id":"d2","type":"deploy_agent","a2a_agent_id":"bot","agent_name":"solver"}`); !fault.Is(err, fault.Exists) || len(r.provider.Specs()) != 1 {
		t.Errorf("the same name again: %v", err)
	}
}

// TestImageOfTheRun has a run put another image in place of the agent's own.
func TestImageOfTheRun(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.provider.Serve = handler(&fake{answer: echoing}, t)
	r.put("bot", nil)
	const ref = "registry.test/other@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	if _, err := r.artifacts.PutRef(t.Context(), "other", artifact.RefImage{Ref: ref}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.run(t.Context(), task.NewContext().Set("agent_artifact_id", "other"), `{"id":"d","type":"deploy_agent","a2a_agent_id":"bot"}`); err != nil {
		t.Fatal(err)
	}
	if got := r.provider.Specs()[0].Image; got != ref {
		t.Errorf("it runs %s", got)
	}
}

// TestNotDeployed has each failure leave no sandbox and no record.
func TestNotDeployed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		takes, step string
		kind        fault.Kind
		wants       string
		asked       bool // the agent was started
	}{
		"role that is not taken":   {"name", `"role":"buyer"`, fault.Unsupported, "takes no role", true},
		"skills that are not":      {"name", `"skills":[{"name":"s","skill_md":"x"}]`, fault.Unsupported, "takes no skills", true},
		"no such agent":            {"name", `"a2a_agent_id":"@local/x/nobody"`, fault.NotFound, "running their bundle", false},
		"no such version":          {"name", `"a2a_agent_version":9`, fault.NotFound, "version=9", false},
		"an agent that wants keys": {"name", `"a2a_agent_id":"keyed"`, fault.Invalid, "no model API key", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := &fake{takes: c.takes, answer: echoing}
			r := newRig(t, nil)
			r.provider.Serve = handler(f, t)
			r.put("bot", nil)
			r.put("keyed", doc.Of())
			step := c.step
			if !strings.Contains(step, "a2a_agent_id") {
				step += `,"a2a_agent_id":"bot"`
			}
			run, err := r.run(t.Context(), nil, `{"id":"d","type":"deploy_agent",`+step+`}`)
			if !fault.Is(err, c.kind) || !strings.Contains(err.Error(), c.wants) {
				t.Error(err)
			}
			if len(run.Agents()) != 0 || len(r.provider.Live()) != 0 || len(r.provider.Specs()) > 0 != c.asked || len(f.got("/ext/agent-config"))+len(f.got("/ext/skill-config")) != 0 {
				t.Errorf("recorded %s, live %v, %d sandboxes", canon(run.Agents()), r.provider.Live(), len(r.provider.Specs()))
			}
		})
	}
}

func TestWhichAgent(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		step      string
		overrides *doc.Object
		want      string
	}{
		"of the step":              {step: `"a2a_agent_id":"one"`, want: "one v2"},
		"a version":                {step: `"a2a_agent_id":"one","a2a_agent_version":1`, want: "one v1"},
		"of the run":               {step: `"a2a_agent_id":"one","a2a_agent_version":1`, overrides: doc.Of("a2a_agent_id", "two"), want: "two v1"},
		"of the step's override":   {step: `"a2a_agent_id":"one","a2a_agent_version":1`, overrides: doc.Of("a2a_agent_id", "two", "step_params", doc.Of("d", doc.Of("a2a_agent_id", "one"))), want: "one v2"},
		"with its version":         {step: `"a2a_agent_id":"two"`, overrides: doc.Of("step_params", doc.Of("d", doc.Of("a2a_agent_id", "one", "a2a_agent_version", doc.Int(1)))), want: "one v1"},
		"the default is not there": {step: `"agent_name":"x"`, want: "! claude-code"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, nil)
			r.provider.Serve = handler(&fake{answer: echoing}, t)
			for _, n := range []string{"one v1", "one v2", "two v1"} {
				id, _, _ := strings.Cut(n, " ")
				r.put(id, nil, "WHO", n)
			}
			_, err := r.run(t.Context(), task.NewContext().Set("metadata", doc.Of("user_overrides", c.overrides)), `{"id":"d","type":"deploy_agent",`+c.step+`}`)
			if why, bad := strings.CutPrefix(c.want, "! "); bad {
				if !fault.Is(err, fault.NotFound) || !strings.Contains(err.Error(), why) {
					t.Error(err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := r.provider.Specs()[0].Env["WHO"]; got != c.want {
				t.Errorf("it is %s", got)
			}
		})
	}
}

func TestDeploySteps(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	for text, want := range map[string]string{
		`"agent_name":""`:                                 "agent_name",
		`"ttl_seconds":0`:                                 "greater than 0",
		`"cpu":true`:                                      "cpu",
		`"a2a_agent_version":0`:                           "a2a_agent_version",
		`"env_vars":{"A":1}`:                              "env_vars",
		`"skills":[{"name":"s"}]`:                         "skill_md",
		`"agent_snapshot_files_artifact_version":0`:       "agent_snapshot_files_artifact_version",
		`"skills":[{"skill_md":"s"}]`:                     "needs a name",
		`"network_policy":{"mode":"x"}`:                   "network policy",
		`"agent_changelog_toolcall_position_exclusive":3`: "agent_changelog_object_url",
	} {
		if _, err := r.reg.ParseText("t", []byte(`[{"id":"d","type":"deploy_agent",`+text+`}]`), task.ParseOptions{Strict: true}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
	s := r.step(`{"id":"d","type":"deploy_agent","role":"","network_policy":{"mode":"allow_all"}}`)
	if s.Fields.Value("role") != nil || canon(s.Fields.Obj("network_policy")) != `{"allow_cidrs":[],"allow_hosts":[],"mode":"allow_all"}` || s.Fields.Str("agent_name") != "default-agent" {
		t.Errorf("stored %s", canon(s.Fields))
	}
	for _, text := range []string{`"env_ids":["e"]`} {
		if s := r.step(`{"id":"d","type":"deploy_agent",` + text + `}`); s.Kind.Unsupported(s) == "" {
			t.Errorf("%s is taken", text)
		}
	}
}

func TestDeployHuman(t *testing.T) {
	t.Parallel()
	f := &fake{answer: echoing}
	url := f.start(t)
	r := newRig(t, map[string]string{"AGENT_ENV_HUMAN_A2A_URL": url + "/"})
	run, err := r.run(t.Context(), nil, `{"id":"h","type":"deploy_human_agent"}`)
	if err != nil {
		t.Fatal(err)
	}
	a, err := run.Agent("human_agent")
	if err != nil || a.Str("a2a_url") != url+"/instance/inst-1" || a.Value("sandbox_id") != nil || a.Obj("a2a_card").Str("name") != "fake" {
		t.Errorf("%s, %v", canon(a), err)
	}
	if got := doc.Canonical(run.Metadata("human_agents")); got != `[{"a2a_url":"`+url+`/instance/inst-1","agent_name":"human_agent","step_id":"h"}]` {
		t.Error(got)
	}
	if _, err := r.run(t.Context(), run.Context(), `{"id":"h2","type":"deploy_human_agent","agent_name":"other"}`); !fault.Is(err, fault.Exists) {
		t.Errorf("a second person: %v", err)
	}
	run, err = newRig(t, nil).run(t.Context(), nil, `{"id":"h","type":"deploy_human_agent","a2a_url":"http://127.0.0.1:1/x"}`)
	if err != nil {
		t.Fatal(err)
	}
	if a := run.Agents()[0]; a.Str("a2a_url") != "http://127.0.0.1:1/x" || a.Obj("a2a_card").Str("name") != "human_agent" {
		t.Errorf("nobody answers there: %s", canon(a))
	}
	if _, err := newRig(t, nil).run(t.Context(), nil, `{"id":"h","type":"deploy_human_agent"}`); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "AGENT_ENV_HUMAN_A2A_URL") {
		t.Errorf("not configured: %v", err)
	}
}
