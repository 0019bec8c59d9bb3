package agents_test

import (
	"fmt"
	"strings"
	"testing"

	"agentenv/agent/deploy/deploytest"
	"agentenv/fault"
	"agentenv/sandbox"
	"agentenv/steps/sandboxes"
	"agentenv/store/doc"
	"agentenv/task"
)

// steps parses a task of agents and sandboxes as a person writes it.
func (r *rig) steps(text string) *task.Task {
	r.t.Helper()
	reg, err := task.NewRegistry(append(r.reg.All(), sandboxes.Types(sandboxes.Deps{Sandboxes: r.manager})...)...)
	if err != nil {
		r.t.Fatal(err)
	}
	tk, err := reg.ParseText("t", []byte(text), task.ParseOptions{Strict: true})
	if err != nil {
		r.t.Fatal(err)
	}
	return tk
}

const box = `{"id":"box","type":"deploy_sandbox","sandbox_name":"box","sandbox_mode":"vm","exposed_ports":[8000]}`

// TestOntoASandbox has two agents follow one another on one sandbox.
func TestOntoASandbox(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.provider.Serve = handler(&fake{answer: echoing}, t)
	r.put("bot", nil)
	context := task.NewContext()
	last := ""
	for i, c := range []struct {
		step, fails string
		kind        fault.Kind
		containers  int
	}{
		{`{"id":"early","type":"deploy_agent","a2a_agent_id":"bot","agent_name":"a","sandbox_name":"box"}`, `no sandbox named "box"`, fault.Invalid, 0},
		{box, "", "", 0},
		{`{"id":"a","type":"deploy_agent","a2a_agent_id":"bot","agent_name":"a","sandbox_name":"box"}`, "", "", 1},
		{`{"id":"again","type":"deploy_agent","a2a_agent_id":"bot","agent_name":"a","sandbox_name":"box"}`, "already deployed", fault.Exists, 1},
		{`{"id":"b","type":"deploy_agent","a2a_agent_id":"bot","agent_name":"b","sandbox_name":"box"}`, `"a" runs on it, and port 8000 serves one`, fault.Exists, 1},
		{`{"id":"end","type":"teardown_sandboxes","agent_names":["a"]}`, "", "", 0},
		{`{"id":"b","type":"deploy_agent","a2a_agent_id":"bot","agent_name":"b","sandbox_name":"box"}`, "", "", 1},
		{`{"id":"end","type":"teardown_sandboxes","agent_names":["b"]}`, "", "", 0},
		{`{"id":"c","type":"deploy_agent","a2a_agent_id":"bot","agent_name":"c","sandbox_name":"box"}`, "", "", 1},
		{`{"id":"end","type":"teardown_sandboxes","sandbox_names":["box"],"agent_names":["c"]}`, "", "", 0},
	} {
		s := r.steps("[" + c.step + "]").Steps[0]
		run := task.NewRun(s.ID, s.Type, context, nil, nil)
		run.Instance = "inst-1"
		err := s.Action.Execute(t.Context(), run)
		if (err == nil) != (c.fails == "") || err != nil && (!strings.Contains(err.Error(), c.fails) || !fault.Is(err, c.kind)) {
			t.Fatalf("%d (%s): %v", i, s.ID, err)
		}
		if err == nil {
			context = run.Context()
			last = s.ID
		}
		up := 0
		for _, id := range r.provider.Live() {
			if _, err := r.manager.Place(t.Context(), sandbox.Record{ID: id, Type: deploytest.Name, Mode: sandbox.Container}, ""); err == nil {
				up++
			}
		}
		if up != c.containers || len(r.provider.Live()) != 1 && i > 0 && i < 9 {
			t.Errorf("%d (%s): %d containers on %v", i, s.ID, up, r.provider.Live())
		}
	}
	if last != "end" || len(r.provider.Live()) != 0 {
		t.Errorf("left: %v", r.provider.Live())
	}
	id := task.Sandboxes(context)[0].ID
	if got := canon(context.Obj("metadata").Arr("torn_down_sandbox_ids")); got != fmt.Sprintf(`["%s/agent","%s"]`, id, id) && got != fmt.Sprintf(`["%s/agent"]`, id) {
		t.Errorf("torn down: %s", got)
	}
	for _, v := range context.Arr("deployed_agents") {
		a := v.(*doc.Object)
		if a.Str("sandbox_id") != id || a.Str("sandbox_type") != deploytest.Name || a.Value("on_host") != false || a.Value("installed_container") != nil || a.Str("a2a_url") == "" {
			t.Errorf("recorded %s", canon(a))
		}
	}
}

func TestOntoASandboxRefused(t *testing.T) {
	t.Parallel()
	record := func(mode, port string) *doc.Object {
		return doc.Of("sandbox_name", "box", "sandbox_id", "fake-1", "sandbox_mode", mode, "sandbox_type", deploytest.Name, "tunnel_urls", doc.Of(port, "http://127.0.0.1:1"))
	}
	overridden := doc.Of("user_overrides", doc.Of("network_policy", doc.Of("mode", "allowlist")))
	for name, c := range map[string]struct {
		box, meta, agent *doc.Object
		step, wants      string
		kind             fault.Kind
	}{
		"a container":       {record("container", "8000"), nil, nil, "", "of the mode container; an agent is deployed onto one of the mode vm that exposes port 8000", fault.Invalid},
		"another port":      {record("vm", "80"), nil, nil, "", "exposes 80, and port 8000 is needed", fault.Invalid},
		"a policy":          {record("vm", "8000"), nil, nil, `,"network_policy":{"mode":"allowlist"}`, "give it to its deploy_sandbox", fault.Invalid},
		"a policy of a run": {record("vm", "8000"), overridden, nil, "", "give it to its deploy_sandbox", fault.Invalid},
		"one installed there": {record("vm", "8000"), nil, doc.Of("agent_name", "first", "sandbox_id", "fake-1", "on_host", true, "a2a_url", "http://127.0.0.1:1/"), "",
			`the agent "first" answers on its port 8000`, fault.Exists},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, nil)
			r.put("bot", nil)
			context := task.NewContext().Set("deployed_sandboxes", []any{c.box})
			if c.meta != nil {
				context.Set("metadata", c.meta)
			}
			if c.agent != nil {
				context.Set("deployed_agents", []any{c.agent})
			}
			_, err := r.run(t.Context(), context, `{"id":"d","type":"deploy_agent","a2a_agent_id":"bot","agent_name":"a","sandbox_name":"box"`+c.step+`}`)
			if !fault.Is(err, c.kind) || !strings.Contains(err.Error(), c.wants) || len(r.provider.Specs()) != 0 {
				t.Errorf("%v, after %d starts", err, len(r.provider.Specs()))
			}
		})
	}
}

func TestOntoASandboxPreflight(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	const agent = `{"id":"a","type":"deploy_agent","a2a_agent_id":"bot","sandbox_name":"box"}`
	for text, want := range map[string]string{
		"[" + agent + "]":             "",
		"[" + box + "," + agent + "]": "",
		"[" + strings.Replace(box, "[8000]", "[80]", 1) + "," + agent + "]":                                                     `"box" does not expose port 8000; add it to its exposed_ports`,
		"[" + strings.Replace(box, `,"exposed_ports":[8000]`, "", 1) + "," + agent + "]":                                        `"box" does not expose port 8000`,
		"[" + strings.Replace(box, `"box","sandbox_mode"`, `"jar","sandbox_mode"`, 1) + "," + agent + "]":                       `no step deploys a sandbox "box"; deployed are jar`,
		"[" + strings.Replace(box, `"vm","exposed_ports":[8000]`, `"container","image":"x","port":8000`, 1) + "," + agent + "]": "of the mode container",
		"[" + box + "," + strings.Replace(agent, `"box"}`, `"box","depends_on":[]}`, 1) + "]":                                   `deployed by the step "box", on which this one does not depend`,
		"[" + box + "," + strings.Replace(agent, `"box"}`, `"box","depends_on":["box"]}`, 1) + "]":                              "",
		"[" + box + "," + strings.Replace(agent, `"box"}`, `"box","network_policy":{"mode":"allowlist"}}`, 1) + "]":             "give it to its deploy_sandbox",
	} {
		got := task.Preflight(t.Context(), r.steps(text))
		if want == "" && len(got) > 0 || want != "" && (len(got) != 1 || !strings.Contains(got[0], want)) {
			t.Errorf("%s: %q", text, got)
		}
	}
	s := r.steps("[" + box + "," + strings.Replace(agent, `"box"}`, `"box","cpu":2,"sandbox_type":"fake"}`, 1) + "]").Steps[1]
	if got := s.Kind.Warn(s); len(got) != 1 || !strings.HasSuffix(got[0], ": sandbox_type, cpu") {
		t.Errorf("%q", got)
	}
}
