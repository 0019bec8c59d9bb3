package agents_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"agentenv/fault"
	"agentenv/protocol/a2a/echo"
	"agentenv/store/doc"
	"agentenv/task"
)

const onTurn = `"when":{"type":"step","turn":1,"cmp":"gte"}`

func register(triggers string) string {
	return `{"id":"r","type":"register_agent_triggers","agent_name":"sim","triggers":` + triggers + `}`
}

func TestRegister(t *testing.T) {
	t.Parallel()
	c := newCrew(t, nil)
	at := deployed(t, nil, map[string]string{"sim": serveKit(t, echo.Agent(), "")})
	step := register(`[{"id":"a",` + onTurn + `,"actions":[{"type":"end"}]},{` + onTurn + `,"actions":[{"type":"say","text":"x"}]}]`)
	run, err := c.run(t.Context(), at, step)
	if err != nil {
		t.Fatal(err)
	}
	list := run.Metadata("agent_trigger_registrations").([]any)
	added := list[0].(*doc.Object).Arr("added")
	if one := list[0].(*doc.Object); len(list) != 1 || one.Str("step_id") != "r" || one.Str("agent_name") != "sim" || len(added) != 2 || added[0] != "a" || !strings.HasPrefix(added[1].(string), "trg_") {
		t.Errorf("recorded %s", doc.Canonical(list))
	}
	// A repetition registers nothing twice, also where a trigger has no id.
	run, err = c.run(t.Context(), at, step)
	if err != nil || doc.Canonical(run.Metadata("agent_trigger_registrations")) != `[{"added":[],"agent_name":"sim","step_id":"r"}]` {
		t.Errorf("%s, %v", doc.Canonical(run.Metadata("agent_trigger_registrations")), err)
	}
	if _, err := c.run(t.Context(), at, register(`[{"id":"a","when":{"type":"step"},"actions":[{"type":"end"}]}]`)); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "already registered") ||
		!strings.Contains(err.Error(), `register_agent_triggers "r"`) {
		t.Errorf("another trigger of that id: %v", err)
	}
}

func TestRegisterIsRefused(t *testing.T) {
	t.Parallel()
	waits := func(condition string) string {
		return `[{"id":"t","when":` + condition + `,"actions":[{"type":"end"}]}]`
	}
	const mail = `{"type":"env_trigger","env_id":"mail","trigger_id":"sent"}`
	envs := doc.Of("env_trigger_registrations", []any{doc.Of("env_id", "mail", "added", []any{"sent"}), doc.Of("env_id", "other", "added", []any{"read"})})
	for name, c := range map[string]struct {
		triggers string
		envs     bool
		kind     fault.Kind // "" = it is taken
		wants    string
	}{
		"env that is not there":      {waits(mail), false, fault.Invalid, `"mail"`},
		"nested":                     {waits(`{"type":"any","of":[{"type":"step"},{"type":"all","of":[` + mail + `]}]}`), false, fault.Invalid, `"mail"`},
		"env that is":                {waits(mail), true, "", ""},
		"trigger of another env":     {waits(`{"type":"env_trigger","env_id":"mail","trigger_id":"read"}`), true, fault.Invalid, `"read"`},
		"an agent that takes none":   {waits(`{"type":"step"}`), false, fault.Unsupported, `"sim" takes no triggers`},
		"an agent that is not there": {waits(`{"type":"step"}`), false, fault.Invalid, `"sim"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			crew := newCrew(t, nil)
			agents := map[string]string{"sim": serveKit(t, echo.Agent(), "")}
			switch {
			case c.kind == fault.Unsupported:
				agents["sim"] = serveKit(t, asker(), "")
			case name == "an agent that is not there":
				agents = map[string]string{"other": agents["sim"]}
			}
			at := deployed(t, envs, agents)
			if c.envs {
				at.Set("deployed_envs", []any{doc.Of("env_id", "mail", "instance_id", "mail-1")})
			}
			run, err := crew.run(t.Context(), at, register(c.triggers))
			if c.kind == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if !fault.Is(err, c.kind) || !strings.Contains(err.Error(), c.wants) || run.Metadata("agent_trigger_registrations") != nil {
				t.Error(err)
			}
		})
	}
}

func TestTriggerSteps(t *testing.T) {
	t.Parallel()
	c := newCrew(t, nil)
	for triggers, want := range map[string]string{
		`[]`:    "at least one",
		`["x"]`: "triggers",
		`[{"id":"a","when":{"type":"step","turn":0},"actions":[{"type":"end"}]}]`:                                                     "turn",
		`[{"id":"a","when":{"type":"conversational","where":{"message":{"regex":"("}}},"actions":[{"type":"end"}]}]`:                  "regex",
		`[{"id":"a","when":{"type":"step"},"actions":[]}]`:                                                                            "actions",
		`[{"id":"a","when":{"type":"step"},"actions":[{"type":"end"}]},{"id":"a","when":{"type":"step"},"actions":[{"type":"end"}]}]`: "twice",
	} {
		if _, err := c.reg.ParseText("t", []byte("["+register(triggers)+"]"), task.ParseOptions{Strict: true}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", triggers, err)
		}
	}
	refs := c.step(register(`[{"id":"a","when":{"type":"all","of":[{"type":"env_trigger","env_id":"mail","trigger_id":"sent"}]},"actions":[{"type":"end"}]}]`))
	if found := refs.Kind.FindRefs(refs.Fields); len(found) != 1 || found[0].ID != "mail" || found[0].Ref.Kind != "env" {
		t.Errorf("it refers to %v", found)
	}
}

// TestTriggersSpeak has triggers decide what the user says: they say the next prompt, stay silent, and end the conversation.
func TestTriggersSpeak(t *testing.T) {
	t.Parallel()
	c := newCrew(t, nil)
	solver, user := &fake{answer: echoing}, serveKit(t, echo.Agent(), "")
	at := deployed(t, nil, map[string]string{"default-agent": solver.start(t), "sim": user})
	run, err := c.run(t.Context(), at, register(`[{"id":"more","when":{"type":"conversational","where":{"message":{"regex":"hello$"}}},"actions":[{"type":"say","text":"go"},{"type":"say","text":"on"}]},
		{"id":"stop","when":{"type":"step","turn":3},"actions":[{"type":"say","text":"bye"},{"type":"end"}]}]`))
	if err != nil {
		t.Fatal(err)
	}
	run, err = c.run(t.Context(), run.Context(), `{"id":"ask","type":"prompt_agent","prompt":"hello","max_conversation_turns":5,"user_agent_name":"sim"}`)
	if err != nil {
		t.Fatal(err)
	}
	// In the second turn nothing fires, so the user itself answers: echo says what it was told.
	if got := prompts(solver); got != "hello | go\non | Echo: Echo: go\non" {
		t.Errorf("the agent was told %q", got)
	}
	if got := doc.Canonical(run.Metadata("agent_trigger_firings", "ask")); got != `[{"fired":["more"],"turn":1},{"fired":[],"turn":2},{"fired":["stop"],"turn":3}]` {
		t.Errorf("fired: %s", got)
	}
	if got := doc.Canonical(run.Metadata("env_trigger_snapshots", "ask")); got != `[{"envs":{},"turn":1},{"envs":{},"turn":2},{"envs":{},"turn":3}]` {
		t.Errorf("envs: %s", got)
	}
	var kinds []string
	for _, v := range run.Metadata("agent_trigger_state", "ask").([]any) {
		kinds = append(kinds, v.(*doc.Object).Str("kind"))
	}
	if got := strings.Join(kinds, " "); got != "registered fired fired" {
		t.Errorf("the log: %s", got)
	}
	// Three prompts, three answers, and the last words of the user.
	c.conversation(run.PromptResponses()[0].Str("a2a_context_id"), "closed", 7, "completed", "completed", "completed")
}

func TestTriggersThatCannotDecide(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status int
		answer string
		envs   bool
		wants  []string
	}{
		"it refuses":        {http.StatusGatewayTimeout, `too slow`, false, []string{`"sim"`, "turn 1", "504", "too slow"}},
		"parts of no kind":  {http.StatusOK, `{"parts":[{"kind":"x"}],"done":false,"fired":["a"]}`, false, []string{`"sim"`, "parts[0]"}},
		"beside envs":       {http.StatusOK, `{}`, true, []string{`"sim"`, "not read"}},
		"answers no object": {http.StatusOK, `[]`, false, []string{`"sim"`, "no JSON object"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			crew := newCrew(t, nil)
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodGet && r.URL.Path != "/t" {
					_ = json.NewEncoder(w).Encode(map[string]any{"name": "sim", "url": "/a2a", "capabilities": map[string]any{"extensions": []any{map[string]any{
						"uri": "urn:agentenv:triggers/v1", "params": map[string]any{"endpoint": "/t"}}}}})
					return
				}
				w.WriteHeader(c.status)
				_, _ = w.Write([]byte(c.answer))
			}))
			t.Cleanup(s.Close)
			solver := &fake{answer: echoing}
			at := deployed(t, doc.Of("agent_trigger_registrations", []any{doc.Of("step_id", "r", "agent_name", "sim", "added", []any{"a"})}),
				map[string]string{"default-agent": solver.start(t), "sim": s.URL})
			if c.envs {
				at.Set("deployed_envs", []any{doc.Of("env_id", "mail", "instance_id", "mail-1")})
			}
			run, err := crew.run(t.Context(), at, `{"id":"ask","type":"prompt_agent","prompt":"hello","max_conversation_turns":3,"user_agent_name":"sim"}`)
			if err == nil {
				t.Fatal("it goes on")
			}
			for _, want := range append(c.wants, `prompt_agent "ask"`) {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("no %q in %v", want, err)
				}
			}
			if len(run.PromptResponses()) != 1 || prompts(solver) != "hello" {
				t.Errorf("what was said is lost: %s", canon(run.PromptResponses()))
			}
		})
	}
}
