package agents_test

import (
	"strings"
	"testing"

	"agentenv/fault"
	"agentenv/store/doc"
	"agentenv/task"
)

// script answers one turn after another, the last answer again and again.
func script(answers ...string) func(string) (string, []any) {
	n := 0
	return func(string) (string, []any) {
		a := answers[min(n, len(answers)-1)]
		n++
		if state, rest, ok := strings.Cut(a, "!"); ok {
			return state, texts(rest)
		}
		return "completed", texts(a)
	}
}

// prompts returns what an agent was sent, in order.
func prompts(f *fake) string {
	var out []string
	for _, b := range f.got("message/send") {
		text := ""
		for _, p := range b.Obj("params").Obj("message").Arr("parts") {
			text += p.(*doc.Object).Str("text")
		}
		out = append(out, text)
	}
	return strings.Join(out, " | ")
}

func TestSimulatedUser(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answers []string
		sent    string // to the agent
		fields  string // metadata.usersim_turn_outputs
		fails   string
	}{
		"until done":         {[]string{`{"message":"again","done":false}`, `{"message":"bye","done":true}`}, "hello | again", "null", ""},
		"until the limit":    {[]string{`{"message":"more","done":false}`}, "hello | more | more", "null", ""},
		"more fields":        {[]string{`{"message":"a","done":false,"mood":"good"}`, `{"message":"b","done":true,"mood":"bad"}`}, "hello | a", `[{"fields":{"mood":"good"},"turn":1},{"fields":{"mood":"bad"},"turn":2}]`, ""},
		"in a code fence":    {[]string{"```json\n{\"message\":\"a\",\"done\":false}\n```", `{"done":true}`}, "hello | a", "null", ""},
		"done is not said":   {[]string{`{"message":"a"}`, `{"message":"b","done":true}`}, "hello | a", "null", ""},
		"plain text":         {[]string{"just text", `{"message":"","done":true}`}, "hello | just text", "null", ""},
		"half an object":     {[]string{`{"message":"a"`, `{"message":"","done":true}`}, `hello | {"message":"a"`, "null", ""},
		"a number":           {[]string{"5"}, "hello", "null", "a JSON number where an object with message and done is needed: 5"},
		"a list":             {[]string{"[1]"}, "hello", "null", "a JSON array"},
		"null":               {[]string{"null"}, "hello", "null", "a JSON null"},
		"done as text":       {[]string{`{"message":"a","done":"false"}`}, "hello", "null", `a done that is no boolean: {"message":"a","done":"false"}`},
		"no message":         {[]string{`{"done":false}`}, "hello", "null", "no message that is a text"},
		"message that is no": {[]string{`{"message":5,"done":false}`}, "hello", "null", "no message that is a text"},
		"it fails":           {[]string{"failed!sorry"}, "hello", "null", ""},
		"it asks back":       {[]string{"input-required!what?"}, "hello", "null", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			solver, user := &fake{answer: echoing, more: []string{"trajectory"}}, &fake{takes: "output_format,model", answer: script(c.answers...)}
			r := newRig(t, nil)
			run, err := r.run(t.Context(), deployed(t, doc.Of("user_overrides", doc.Of("user_model", "m-user")), map[string]string{"default-agent": solver.start(t), "sim": user.start(t)}),
				`{"id":"ask","type":"prompt_agent","prompt":"hello","max_conversation_turns":3,"user_agent_name":"sim"}`)
			if c.fails != "" && (err == nil || !strings.Contains(err.Error(), c.fails)) || c.fails == "" && err != nil {
				t.Fatal(err)
			}
			if got := prompts(solver); got != c.sent {
				t.Errorf("the agent was told %q", got)
			}
			v := run.Metadata("usersim_turn_outputs", "ask")
			if got := doc.Canonical(v); got != c.fields {
				t.Errorf("fields: %s", got)
			}
			turns := len(solver.got("message/send"))
			one := run.PromptResponses()[0]
			asked := one.Arr("source_agent_per_turn_prompt_parts")
			if len(asked) != turns || asked[0] != nil || len(one.Arr("target_agent_per_turn_trajectory_object_urls")) != turns {
				t.Errorf("%d turns: %s", turns, canon(one))
			}
			states := strings.TrimSpace(strings.Repeat("completed ", turns))
			r.conversation(one.Str("a2a_context_id"), "closed", 2*turns, strings.Fields(states)...)
			for _, b := range user.got("message/send") {
				if b.Obj("params").Obj("message").Str("contextId") != one.Str("a2a_context_id") {
					t.Errorf("the user was told %s", canon(b))
				}
			}
			config := user.got("/ext/agent-config")[0]
			if config.Str("model") != "m-user" || !doc.Equal(config.Obj("output_format").Arr("required"), []any{"message", "done"}) || run.Metadata("models", "user simulator", "ask") != "m-user" {
				t.Errorf("the user was configured with %s, %v", canon(config), run.Metadata("models"))
			}
		})
	}
}

func TestPersonAnswers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		metadata *doc.Object
		step     string
		env      bool // the address of people is configured
		name     string
		answers  string
		told     string
	}{
		"an address":     {nil, `"user_a2a_url":"URL/"`, false, "default-agent", `{"message":"x","done":true}`, `hello | {"message":"x","done":true}`},
		"the configured": {nil, `"user_agent_name":"nobody"`, true, "default-agent", `{"message":"x","done":true}`, `hello | {"message":"x","done":true}`},
		// One that is deployed may answer as a simulated user does, and need not.
		"deployed, done":       {doc.Of("human_agents", []any{doc.Of("agent_name", "human_agent")}), `"timeout_seconds":60`, false, "human_agent", `{"message":"x","done":true}`, `hello`},
		"deployed, goes on":    {doc.Of("human_agents", []any{doc.Of("agent_name", "human_agent")}), `"timeout_seconds":60`, false, "human_agent", `{"message":"x","done":false}`, `hello | x`},
		"deployed, words":      {doc.Of("human_agents", []any{doc.Of("agent_name", "human_agent")}), `"timeout_seconds":60`, false, "human_agent", `well, 5`, `hello | well, 5`},
		"deployed, other JSON": {doc.Of("human_agents", []any{doc.Of("agent_name", "human_agent")}), `"timeout_seconds":60`, false, "human_agent", `[5]`, `hello | [5]`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			solver, person := &fake{answer: echoing}, &fake{takes: "output_format,model", answer: script(c.answers)}
			url := person.start(t)
			env := map[string]string{}
			if c.env {
				env["AGENT_ENV_HUMAN_A2A_URL"] = url
			}
			r := newRig(t, env)
			people := map[string]string{"default-agent": solver.start(t)}
			if c.name != "default-agent" {
				people[c.name] = url
			}
			_, err := r.run(t.Context(), deployed(t, c.metadata, people),
				`{"id":"ask","type":"prompt_agent","prompt":"hello","max_conversation_turns":2,`+strings.ReplaceAll(c.step, "URL", url)+`}`)
			if err != nil {
				t.Fatal(err)
			}
			if got := prompts(solver); got != c.told {
				t.Errorf("the agent was told %q", got)
			}
			if configured := len(person.got("/ext/agent-config")) != 0; configured != (c.metadata != nil) {
				t.Errorf("it was configured: %v", configured)
			}
		})
	}
	solver := &fake{answer: echoing}
	r := newRig(t, nil)
	context := deployed(t, nil, map[string]string{"default-agent": solver.start(t)})
	if _, err := r.run(t.Context(), context, `{"id":"ask","type":"prompt_agent","prompt":"hello","max_conversation_turns":2}`); !fault.Is(err, fault.Invalid) || task.ClassOf(err) != task.Configuration || len(solver.got("message/send")) != 0 {
		t.Errorf("nobody to ask: %v, after %d prompts", err, len(solver.got("message/send")))
	}
	if _, err := r.run(t.Context(), context, `{"id":"ask","type":"prompt_agent","prompt":"hello"}`); err != nil {
		t.Errorf("one turn needs nobody: %v", err)
	}
}

// TestToolCounts adds up what the turns say of the tools they called; a turn that says nothing counts for nothing.
func TestToolCounts(t *testing.T) {
	t.Parallel()
	number := func(n int) map[string]any { return map[string]any{"tool_call_count": n} }
	for name, c := range map[string]struct {
		turns []map[string]any // the data part of each, nil = it has none
		want  any
	}{
		"2, none, 3":       {[]map[string]any{number(2), nil, number(3)}, doc.Int(5)},
		"none at all":      {[]map[string]any{nil, nil, nil}, nil},
		"the first alone":  {[]map[string]any{number(4), nil, nil}, doc.Int(4)},
		"the last alone":   {[]map[string]any{nil, nil, number(1)}, doc.Int(1)},
		"zero":             {[]map[string]any{nil, number(0), nil}, doc.Int(0)},
		"within the usage": {[]map[string]any{{"usage": number(2)}, {"usage": map[string]any{"input_tokens": 1}}, number(3)}, doc.Int(5)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := 0
			solver := &fake{answer: func(string) (string, []any) {
				parts := texts("done")
				if said := c.turns[n]; said != nil {
					parts = append(parts, data(said))
				}
				n++
				return "completed", parts
			}}
			user := &fake{answer: script(`{"message":"go on","done":false}`)}
			r := newRig(t, nil)
			run, err := r.run(t.Context(), deployed(t, nil, map[string]string{"default-agent": solver.start(t), "sim": user.start(t)}),
				`{"id":"ask","type":"prompt_agent","prompt":"hello","max_conversation_turns":3,"user_agent_name":"sim"}`)
			if err != nil {
				t.Fatal(err)
			}
			turns := len(solver.got("message/send"))
			if got := run.PromptResponses()[0].Value("tool_call_count"); turns != len(c.turns) || got != c.want {
				t.Errorf("after %d turns the count is %v", turns, got)
			}
		})
	}
}
