package agents_test

import (
	"context"
	"io"
	"strings"
	"testing"

	"agentenv/fault"
	"agentenv/sandbox"
	"agentenv/store/doc"
	"agentenv/task"
)

// echoing answers what it is told, and some prompts as they ask.
func echoing(prompt string) (string, []any) {
	switch prompt {
	case "parts":
		return "completed", []any{text("a"), text("b"), data(map[string]any{"usage": map[string]any{"tool_call_count": 2, "input_tokens": 5}})}
	case "json":
		return "completed", []any{text("Here {\"a\":1} and\n```json\n{\"b\": {\"c\": 2}}\n```\n{not json}")}
	case "typed":
		return "completed", []any{text(`{"a":1}`), data(map[string]any{"structured_output": []any{1, "x"}, "tool_call_count": 1})}
	case "fail":
		return "failed", []any{text("it broke"), data(map[string]any{"error_type": "agent_error", "error_code": "echo.asked", "error_class": "Boom"})}
	case "bare":
		return "failed", texts("it just broke")
	case "cancel":
		return "canceled", texts("was given up")
	case "reject":
		return "rejected", texts("not my job")
	case "input":
		return "input-required", texts("which colour?")
	case "auth":
		return "auth-required", texts("log in first")
	case "silent":
		return "working", texts("on it")
	}
	return "completed", texts("Echo: " + prompt)
}

func TestOneTurn(t *testing.T) {
	t.Parallel()
	f := &fake{takes: "model,effort,task_id,timeout_seconds,model_params,max_turns", more: []string{"trajectory"}, answer: echoing}
	url := f.start(t)
	r := newRig(t, map[string]string{"KEY": "v-1"})
	before := deployed(t, doc.Of("task_id", "the-task", "user_overrides", doc.Of("agent_max_turns", doc.Int(9), "step_params", doc.Of("ask", doc.Of("effort", "high")))),
		map[string]string{"default-agent": url})
	run, err := r.run(t.Context(), before, `{"id":"ask","type":"prompt_agent","prompt":"hello","prompt_id":"p1","model":"m1","effort":"low","max_turns":2,"system_prompt":"be nice",
		"model_params":{"a":"env:KEY","b":[1]}}`)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := canon(f.got("/ext/agent-config")[0]), `{"effort":"high","max_turns":9,"model":"m1","model_params":{"a":"v-1","b":[1]},"task_id":"the-task","timeout_seconds":600}`; got != want {
		t.Errorf("configured with %s", got)
	}
	if !strings.Contains(strings.Join(r.notes, "\n"), "takes no system_prompt") {
		t.Errorf("notes: %q", r.notes)
	}
	message := f.got("message/send")[0].Obj("params").Obj("message")
	ctx, id := message.Str("contextId"), message.Str("messageId")
	base := "prompt_agent_trajectories/prompt_id=p1"
	prefix, err := r.objects.URL(base)
	if err != nil {
		t.Fatal(err)
	}
	trajectory := prefix + "/trajectory-" + id + ".json"
	want := doc.Of("prompt_id", "p1", "response", "Echo: hello", "prompt_text", "hello", "agent_trajectory_file_path", nil, "source_agent_per_turn_prompt_parts", []any{nil},
		"tool_call_count", nil, "model", "m1", "error_type", nil, "error_code", nil, "error_message", nil, "agent_session_id", "task-1", "a2a_context_id", ctx,
		"agent_name", "default-agent", "step_id", "ask", "structured_output", nil, "agent_trajectory_object_url", trajectory, "agent_trajectory_object_prefix", prefix,
		"target_agent_per_turn_trajectory_object_urls", []any{trajectory}, "agent_trajectory_s3_uri", trajectory, "agent_trajectory_s3_prefix", prefix,
		"target_agent_per_turn_trajectory_s3_uris", []any{trajectory}, "response_text", "Echo: hello")
	if got := run.PromptResponses(); len(got) != 1 || !doc.Equal(got[0], want) {
		t.Errorf("recorded %s\nnot %s", canon(got), canon(want))
	}
	body, err := r.objects.Open(t.Context(), trajectory)
	if err != nil {
		t.Fatal(err)
	}
	kept, _ := io.ReadAll(body)
	body.Close()
	if string(kept) != `[{"of":"task-1"}]` {
		t.Errorf("the trajectory is %s", kept)
	}
	if v := run.Metadata("models", "solver", "ask"); v != "m1" {
		t.Errorf("models.solver is %v", v)
	}
	if v := run.Metadata("a2a_conversations", "ask"); v != ctx || len(ctx) != 32 || len(id) != 32 {
		t.Errorf("conversation %v, context %s", v, ctx)
	}
	r.conversation(ctx, "closed", 2, "completed")
}

func canon(v any) string {
	if list, ok := v.([]*doc.Object); ok {
		var all []any
		for _, o := range list {
			all = append(all, o)
		}
		v = all
	}
	return doc.Canonical(v)
}

// conversation checks what is stored of one: how many messages, and the states of its turns.
func (r *rig) conversation(id, status string, messages int, states ...string) {
	r.t.Helper()
	c, err := r.conversations.Get(context.Background(), id)
	if err != nil {
		r.t.Fatal(err)
	}
	var got []string
	for _, one := range c.Tasks {
		got = append(got, one.State)
	}
	if c.Status != status || len(c.Messages) != messages || strings.Join(got, " ") != strings.Join(states, " ") || c.InstanceID != "inst-1" {
		r.t.Errorf("the conversation %+v", c)
	}
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	f := &fake{answer: echoing}
	url := f.start(t)
	for prompt, want := range map[string]struct {
		response, whole, output string
		calls                   any
	}{
		"parts": {"b", "a\nb", "null", doc.Int(2)},
		"json":  {"Here {\"a\":1} and\n```json\n{\"b\": {\"c\": 2}}\n```\n{not json}", "Here {\"a\":1} and\n```json\n{\"b\": {\"c\": 2}}\n```\n{not json}", `{"b":{"c":2}}`, nil},
		"typed": {`{"a":1}`, `{"a":1}`, `[1,"x"]`, doc.Int(1)},
		"plain": {"Echo: plain", "Echo: plain", "null", nil},
	} {
		t.Run(prompt, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, nil)
			run, err := r.run(t.Context(), deployed(t, nil, map[string]string{"default-agent": url}), `{"id":"ask","type":"prompt_agent","prompt":"`+prompt+`","context_id":"mine"}`)
			if err != nil {
				t.Fatal(err)
			}
			got := run.PromptResponses()[0]
			if got.Str("response") != want.response || got.Str("response_text") != want.whole || doc.Canonical(got.Value("structured_output")) != want.output || got.Value("tool_call_count") != want.calls {
				t.Errorf("%s", canon(got))
			}
			if got.Value("agent_trajectory_object_url") != nil || got.Str("a2a_context_id") != "mine" || run.Metadata("a2a_conversations", "ask") != "mine-inst-1-6" {
				t.Errorf("%s %v", canon(got), run.Metadata("a2a_conversations"))
			}
			if v, there := run.Lookup("models", "solver", "ask"); v != nil || !there {
				t.Errorf("models.solver is %v", v)
			}
		})
	}
}

// TestFailedTurns has every end of a turn but completed fail the step, with the answer recorded.
func TestFailedTurns(t *testing.T) {
	t.Parallel()
	f := &fake{more: []string{"trajectory"}, answer: echoing}
	url := f.start(t)
	for prompt, want := range map[string]struct {
		text, kind, message string
		class               task.Class
		task                string
	}{
		"fail":   {"A2A task failed (error_type=agent_error, error_code=echo.asked, exception=Boom, task_id=", "agent_error", "it broke", task.Failed, "completed"},
		"bare":   {"): it just broke", "", "it just broke", task.Failed, "completed"},
		"cancel": {"A2A task canceled (task_id=", "canceled", "was given up", task.Failed, "completed"},
		"reject": {"A2A task rejected (", "rejected", "not my job", task.Failed, "completed"},
		"input":  {"the agent asks, and nobody is there to answer: which colour?", "input_required", "which colour?", task.Failed, "completed"},
		"auth":   {"asks for credentials: log in first", "auth_required", "log in first", task.Failed, "completed"},
		"silent": {"did not end within 0.3 s", "timeout", "did not end within 0.3 s", task.TimedOut, "canceled"},
	} {
		t.Run(prompt, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, nil)
			run, err := r.run(t.Context(), deployed(t, nil, map[string]string{"default-agent": url}), `{"id":"ask","type":"prompt_agent","prompt":"`+prompt+`","timeout_seconds":`+limit(prompt)+`}`)
			if err == nil || !strings.Contains(err.Error(), want.text) || task.ClassOf(err) != want.class {
				t.Fatalf("%v (%s)", err, task.ClassOf(err))
			}
			if len(run.PromptResponses()) != 1 {
				t.Fatalf("recorded %s", canon(run.PromptResponses()))
			}
			got := run.PromptResponses()[0]
			if got.Str("error_type") != want.kind || !strings.Contains(got.Str("error_message"), want.message) || got.Str("agent_trajectory_object_url") == "" || got.Str("agent_session_id") == "" {
				t.Errorf("%s", canon(got))
			}
			messages := 2
			if want.task == "canceled" {
				messages = 1
			}
			r.conversation(got.Str("a2a_context_id"), "closed", messages, want.task)
		})
	}
}

func limit(prompt string) string {
	if prompt == "silent" {
		return "0.3"
	}
	return "30"
}

func TestUnreachable(t *testing.T) {
	t.Parallel()
	f := &fake{answer: func(string) (string, []any) { return "working", nil }}
	r := newRig(t, nil)
	r.provider.Serve = handler(f, t)
	r.put("bot", nil)
	run, err := r.run(t.Context(), nil, `{"id":"a","type":"deploy_agent","a2a_agent_id":"bot"}`)
	if err != nil {
		t.Fatal(err)
	}
	id := run.Agents()[0].Str("sandbox_id")
	f.answer = func(string) (string, []any) { go r.provider.Kill(id); return "working", texts("half an answer") }
	r.provider.Output = "out of memory"
	run, err = r.run(t.Context(), run.Context(), `{"id":"ask","type":"prompt_agent","prompt":"hello"}`)
	if err == nil || !strings.Contains(err.Error(), id) || !strings.Contains(err.Error(), "has ended") || task.ClassOf(err) != task.Failed {
		t.Fatalf("%v", err)
	}
	if got := run.PromptResponses(); len(got) != 1 || got[0].Str("error_type") != "unreachable" {
		t.Errorf("%s", canon(got))
	}
}

// TestGoneBeforehand has a prompt fail at once whose agent has died, which is its own failure, or whose sandbox was removed, which is not, since
// it was deployed.
func TestGoneBeforehand(t *testing.T) {
	t.Parallel()
	for how, class := range map[string]task.Class{"died": task.Failed, "removed": task.Infrastructure} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			f := &fake{takes: "model", answer: echoing}
			r := newRig(t, nil)
			r.provider.Serve = handler(f, t)
			r.put("bot", nil)
			run, err := r.run(t.Context(), nil, `{"id":"a","type":"deploy_agent","a2a_agent_id":"bot"}`)
			if err != nil {
				t.Fatal(err)
			}
			id := run.Agents()[0].Str("sandbox_id")
			if r.provider.Kill(id); how == "removed" {
				if err := r.manager.Terminate(t.Context(), sandbox.AgentRecord(run.Agents()[0])); err != nil {
					t.Fatal(err)
				}
			}
			_, err = r.run(t.Context(), run.Context(), `{"id":"ask","type":"prompt_agent","prompt":"hello","model":"m"}`)
			if task.ClassOf(err) != class || !strings.Contains(err.Error(), id) {
				t.Error(err)
			}
		})
	}
}

func TestCancelledPrompt(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	f := &fake{answer: func(string) (string, []any) {
		cancel(fault.New(fault.Canceled, "enough"))
		return "working", nil
	}}
	url := f.start(t)
	r := newRig(t, nil)
	run, err := r.run(ctx, deployed(t, nil, map[string]string{"default-agent": url}), `{"id":"ask","type":"prompt_agent","prompt":"hello"}`)
	if !fault.Is(err, fault.Canceled) || len(run.PromptResponses()) != 0 {
		t.Errorf("%v, recorded %s", err, canon(run.PromptResponses()))
	}
	if n := len(f.got("tasks/cancel")); n != 1 {
		t.Errorf("%d cancels", n)
	}
	id, _ := run.Metadata("a2a_conversations", "ask").(string)
	r.conversation(id, "closed", 1, "canceled")
}

func TestPartsAreSentAsTheyAre(t *testing.T) {
	t.Parallel()
	f := &fake{answer: echoing}
	url := f.start(t)
	r := newRig(t, nil)
	run, err := r.run(t.Context(), deployed(t, nil, map[string]string{"default-agent": url}),
		`{"id":"ask","type":"prompt_agent","parts":[{"kind":"text","text":"a"},{"kind":"file","file":{"uri":"https://x.test/f","name":"f"}},{"kind":"data","data":{"n":1.0}}]}`)
	if err != nil {
		t.Fatal(err)
	}
	sent := f.got("message/send")[0].Obj("params").Obj("message").Arr("parts")
	got := run.PromptResponses()[0]
	if got.Value("prompt_text") != nil || !doc.Equal(got.Arr("source_agent_per_turn_prompt_parts"), []any{sent}) || len(sent) != 3 {
		t.Errorf("sent %s, recorded %s", doc.Canonical(sent), canon(got))
	}
}

func TestPromptSteps(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	for text, want := range map[string]string{
		`"prompt":"a","parts":[]`: "not both",
		``:                        "needs prompt",
		`"parts":[{"kind":"text","text":"a"},{"kind":"x"}]`: "parts[1]",
		`"parts":["a"]`: "parts[0]",
		`"prompt":"a","max_conversation_turns":0`:     "at least 1",
		`"prompt":"a","timeout_seconds":true`:         "timeout_seconds",
		`"prompt":"a","timeout_seconds":0`:            "greater than 0",
		`"prompt":"a","model_params":{"api_key":"x"}`: `"api_key"`,
		`"prompt":5`: "prompt",
	} {
		if _, err := r.reg.ParseText("t", []byte(`[{"id":"p","type":"prompt_agent",`+text+`}]`), task.ParseOptions{Strict: true}); text != "" && (!fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v", text, err)
		}
	}
	s := r.step(`{"id":"p","type":"prompt_agent","parts":[]}`)
	if len(s.Fields.Str("prompt_id")) != 32 {
		t.Errorf("stored %s", canon(s.Fields))
	}
	for _, key := range []string{"snapshot_config", "live_trajectory"} {
		if _, there := s.Fields.Get(key); there {
			t.Errorf("%s is stored", key)
		}
	}
	if _, err := r.run(t.Context(), nil, `{"id":"p","type":"prompt_agent","prompt":"a"}`); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "no agent named") {
		t.Error(err)
	}
	f := &fake{answer: echoing}
	context := deployed(t, nil, map[string]string{"default-agent": f.start(t)})
	run, err := r.run(t.Context(), context, `{"id":"p","type":"prompt_agent","prompt":"a","trajectory_output_prefix":"s3://elsewhere/x"}`)
	if err != nil || len(run.PromptResponses()) != 1 || run.PromptResponses()[0].Value("agent_trajectory_object_url") != nil {
		t.Errorf("a prefix in another store: %v, %s", err, canon(run.PromptResponses()))
	}
}

// FuzzStructured reads JSON out of texts that agents write.
func FuzzStructured(f *testing.F) {
	for _, s := range []string{`{"a":1}`, "{{{{", `x {"a": {"b": "}"}} y {`, "```json\n{}\n```", `{"a":1}{"b":2}`, "{\"\\ud800\":1}"} {
		f.Add(s)
	}
	srv := &fake{}
	answer := ""
	srv.answer = func(string) (string, []any) { return "completed", texts(answer) }
	f.Fuzz(func(t *testing.T, s string) {
		url := srv.start(t)
		answer = s
		r := newRig(t, nil)
		run, err := r.run(t.Context(), deployed(t, nil, map[string]string{"default-agent": url}), `{"id":"ask","type":"prompt_agent","prompt":"x"}`)
		if err != nil {
			t.Fatal(err)
		}
		if v := run.PromptResponses()[0].Value("structured_output"); v != nil {
			if _, ok := v.(*doc.Object); !ok {
				t.Errorf("%q gives %v", s, v)
			}
		}
	})
}
