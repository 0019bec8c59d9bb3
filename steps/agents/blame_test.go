package agents_test

import (
	"net"
	"net/http"
	"strings"
	"testing"

	"agentenv/agent"
	"agentenv/fault"
	"agentenv/store/doc"
	"agentenv/task"
)

// TestWhoseFault tells failures of an agent that was deployed from those of what it stands on.
func TestWhoseFault(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer func(string) (string, []any)
		raw    string // what message/send answers instead
		class  task.Class
	}{
		"it fails": {answer: func(string) (string, []any) { return "failed", texts("no") }, class: task.Failed},
		"it lacks something": {answer: func(string) (string, []any) {
			return "failed", []any{text("no model"), data(map[string]any{"error_type": "infra_error", "error_message": "no model"})}
		}, class: task.Infrastructure},
		"it answers nonsense":  {raw: `null`, class: task.Failed},
		"it refuses the call":  {raw: `{"jsonrpc":"2.0","id":"1","error":{"code":-32603,"message":"no"}}`, class: task.Failed},
		"it asks for anything": {answer: func(string) (string, []any) { return "input-required", texts("which?") }, class: task.Failed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := &fake{answer: c.answer}
			r := newRig(t, nil)
			serve := handler(f, t)
			r.provider.Serve = func(env map[string]string) (http.Handler, func()) {
				h, end := serve(env)
				return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
					if c.raw != "" && q.URL.Path == "/a2a" {
						_, _ = w.Write([]byte(c.raw))
						return
					}
					h.ServeHTTP(w, q)
				}), end
			}
			r.put("bot", nil)
			run, err := r.run(t.Context(), nil, `{"id":"a","type":"deploy_agent","a2a_agent_id":"bot"}`)
			if err != nil {
				t.Fatal(err)
			}
			_, err = r.run(t.Context(), run.Context(), `{"id":"ask","type":"prompt_agent","prompt":"hello"}`)
			if got := task.ClassOf(err); got != c.class {
				t.Errorf("%s: %v", got, err)
			}
		})
	}
}

// TestAnUnreachableUser fails the step: a conversation that was cut off is not graded as whole.
func TestAnUnreachableUser(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	context := deployed(t, nil, map[string]string{"default-agent": (&fake{answer: echoing}).start(t)})
	refusing := &fake{}
	url := refusing.start(t)
	run, err := r.run(t.Context(), context, `{"id":"ask","type":"prompt_agent","prompt":"hello","max_conversation_turns":2,"user_a2a_url":"`+url+`/nowhere"}`)
	if task.ClassOf(err) != task.Infrastructure || !strings.Contains(err.Error(), "the user cannot be asked after turn 1") || len(run.PromptResponses()) != 1 {
		t.Errorf("%v, %d responses", err, len(run.PromptResponses()))
	}
}

// TestAUserThatIsNotThere is no user who was slow, however short the time is that a user has.
func TestAUserThatIsNotThere(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	context := deployed(t, nil, map[string]string{"default-agent": (&fake{answer: echoing}).start(t)})
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close() // nobody listens there any more
	_, err = r.run(t.Context(), context, `{"id":"ask","type":"prompt_agent","prompt":"hello","max_conversation_turns":2,"user_agent_timeout_seconds":0.5,"user_a2a_url":"http://`+l.Addr().String()+`"}`)
	if task.ClassOf(err) != task.Infrastructure || !strings.Contains(err.Error(), "the user cannot be asked after turn 1") {
		t.Errorf("%v", err)
	}
}

// TestWhatAnAttemptLeft has the agent's task of an attempt cancelled that died with its process, and its conversation closed.
func TestWhatAnAttemptLeft(t *testing.T) {
	t.Parallel()
	f := &fake{answer: echoing}
	r := newRig(t, nil)
	context := deployed(t, nil, map[string]string{"default-agent": f.start(t)})
	if err := r.conversations.Open(t.Context(), agent.Conversation{ID: "old", InstanceID: "inst-1", StepID: "ask", Source: "human_agent", Target: "default-agent"}); err != nil {
		t.Fatal(err)
	}
	if err := r.conversations.AddMessage(t.Context(), "old", "user", []*doc.Object{agent.Text("hello")}, "m"); err != nil {
		t.Fatal(err)
	}
	if err := r.conversations.NoteAgentTask(t.Context(), "old", "m", "task-of-before"); err != nil {
		t.Fatal(err)
	}
	if _, err := r.run(t.Context(), context, `{"id":"ask","type":"prompt_agent","prompt":"hello"}`); err != nil {
		t.Fatal(err)
	}
	if got := f.got("tasks/cancel"); len(got) != 1 || !strings.Contains(canon(got[0]), "task-of-before") {
		t.Errorf("cancelled: %v", got)
	}
	if c, err := r.conversations.Get(t.Context(), "old"); err != nil || c.Status != agent.ConversationClosed || c.Tasks[0].State != agent.Canceled {
		t.Errorf("%+v, %v", c, err)
	}
}

// TestSecretsAnAgentSays are kept nowhere: not in the response, the error, the conversation or the trajectory.
func TestSecretsAnAgentSays(t *testing.T) {
	t.Parallel()
	const key = "sk-that-nobody-sees"
	r := newRig(t, map[string]string{"LITELLM_API_KEY": key, "LITELLM_BASE_URL": "http://model.test"})
	f := &fake{more: []string{"trajectory"}, answer: func(prompt string) (string, []any) {
		if prompt == "fail" {
			return "failed", texts("my key is " + key)
		}
		return "completed", []any{text("my key is " + key), data(map[string]any{"structured_output": map[string]any{"key": key}})}
	}}
	r.provider.Serve = handler(f, t)
	r.put("bot", nil)
	run, err := r.run(t.Context(), nil, `{"id":"a","type":"deploy_agent","a2a_agent_id":"bot"}`)
	if err != nil {
		t.Fatal(err)
	}
	for _, prompt := range []string{"tell", "fail"} {
		at, err := r.run(t.Context(), run.Context(), `{"id":"ask","type":"prompt_agent","prompt":"`+prompt+`","context_id":"c-`+prompt+`"}`)
		if (err != nil) != (prompt == "fail") || fault.Is(err, fault.Invalid) {
			t.Fatal(err)
		}
		said := canon(at.Context())
		if err != nil {
			said += err.Error()
		}
		c, cerr := r.conversations.Get(t.Context(), at.Metadata("a2a_conversations", "ask").(string))
		if cerr != nil {
			t.Fatal(cerr)
		}
		for _, m := range c.Messages {
			for _, p := range m.Parts {
				said += canon(p)
			}
		}
		if strings.Contains(said, key) || !strings.Contains(said, "my key is ***") {
			t.Errorf("%s: %s", prompt, said)
		}
	}
}
