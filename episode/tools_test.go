package episode_test

import (
	"context"
	"testing"
	"time"

	"agentenv/episode"
	"agentenv/fault"
	"agentenv/store/doc"
	"agentenv/task"
)

// withTools starts an episode whose agent has two tools, and returns its turn.
func withTools(t *testing.T) (*rig, *tools, *episode.Episode, *episode.Turn) {
	t.Helper()
	r := newRig(t)
	k := &tools{goOn: make(chan struct{})}
	r.deps.Tools = func(run *task.Run, agent string) episode.Toolbox {
		if run.StepID != "ask" || agent != "default-agent" {
			t.Errorf("tools for %s in %s", agent, run.StepID)
		}
		return k
	}
	e := r.start(talk, episode.Options{})
	return r, k, e, r.turn(e)
}

func asks(calls ...*doc.Object) episode.ModelCall {
	list := []any{}
	for _, c := range calls {
		list = append(list, c)
	}
	return episode.ModelCall{Message: doc.Of("role", "assistant", "content", list)}
}

func use(name string, args *doc.Object) *doc.Object {
	return doc.Of("type", "tool_use", "id", "x", "name", name, "input", args)
}

func TestNoTools(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	turn := r.turn(r.start(talk, episode.Options{}))
	if list, err := turn.Tools(t.Context()); len(list) != 0 || err != nil {
		t.Errorf("%v, %v", list, err)
	}
	_, err := turn.Call(t.Context(), episode.ToolCall{Name: "bash"})
	wantKind(t, err, fault.Invalid, `there is no tool named "bash" in turn 1 (step ask); it has none`)
	// What a model asks of tools that are not there keeps nothing waiting.
	if err := turn.RecordModelCall(t.Context(), asks(use("bash", nil))); err != nil {
		t.Error(err)
	}
	if err := turn.End("done"); err != nil {
		t.Error(err)
	}
}

// TestFreeCalls are made before any model call was recorded.
func TestFreeCalls(t *testing.T) {
	t.Parallel()
	r, k, e, turn := withTools(t)
	for range 2 {
		res, err := turn.Call(t.Context(), episode.ToolCall{Name: "add", Arguments: doc.Of("fail", true)})
		if err != nil || !res.IsError || !doc.Equal(res.Content, []any{doc.Of("type", "text", "text", "ok")}) {
			t.Errorf("%+v, %v", res, err)
		}
	}
	_, err := turn.Call(t.Context(), episode.ToolCall{Name: "bash"})
	wantKind(t, err, fault.Invalid, "it has 'add', 'slow'")
	if err := turn.End("x"); err != nil {
		t.Error(err)
	}
	res, err := e.Result(r.soon())
	if err != nil || len(k.ran) != 2 {
		t.Fatalf("%v, %v", k.ran, err)
	}
	if n, _ := res.Context.Arr("prompt_responses")[0].(*doc.Object).Int("tool_call_count"); n != 2 {
		t.Errorf("%d calls recorded", n)
	}
}

// TestRecordedCalls holds an agent to what its model asked for.
func TestRecordedCalls(t *testing.T) {
	t.Parallel()
	_, _, _, turn := withTools(t)
	ctx := t.Context()
	call := func(name string, args *doc.Object) error {
		_, err := turn.Call(ctx, episode.ToolCall{Name: name, Arguments: args})
		return err
	}
	if err := turn.RecordModelCall(ctx, asks(use("add", doc.Of("a", doc.Int(1), "b", doc.Float(2))), use("add", nil), use("elsewhere", nil))); err != nil {
		t.Fatal(err)
	}
	wantKind(t, call("add", doc.Of("a", doc.Int(9))), fault.Conflict, "did not ask for this call")
	wantKind(t, call("slow", nil), fault.Conflict, "did not ask")
	if err := call("add", doc.Of("b", doc.Int(2), "a", doc.Float(1))); err != nil { // other order, whole floats
		t.Error(err)
	}
	wantKind(t, call("add", doc.Of("a", doc.Int(1), "b", doc.Int(2))), fault.Conflict, "or it ran already")
	wantKind(t, turn.End("x"), fault.Conflict, "have not run (add)")
	wantKind(t, turn.RecordModelCall(ctx, asks()), fault.Conflict, "have not run (add)")
	if err := call("add", &doc.Object{}); err != nil {
		t.Error(err)
	}
	if err := turn.RecordModelCall(ctx, asks()); err != nil {
		t.Error(err)
	}
	wantKind(t, call("add", nil), fault.Conflict, "did not ask")
	if err := turn.End("x"); err != nil {
		t.Error(err)
	}
}

// TestCallThatRuns counts as not run until it ended; its caller may give it up.
func TestCallThatRuns(t *testing.T) {
	t.Parallel()
	_, _, _, turn := withTools(t)
	if err := turn.RecordModelCall(t.Context(), asks(use("slow", nil))); err != nil {
		t.Fatal(err)
	}
	ctx, giveUp := context.WithCancel(t.Context())
	defer giveUp()
	ended := make(chan error)
	go func() {
		_, err := turn.Call(ctx, episode.ToolCall{Name: "slow"})
		ended <- err
	}()
	for { // until it runs, the call is free to be made once
		if err := turn.End("x"); !fault.Is(err, fault.Conflict) {
			t.Fatalf("ended while a call ran: %v", err)
		}
		if _, err := turn.Call(t.Context(), episode.ToolCall{Name: "add"}); !fault.Is(err, fault.Conflict) {
			t.Fatal(err)
		}
		select {
		case err := <-ended:
			if !fault.Is(err, fault.Canceled) {
				t.Errorf("%v", err)
			}
			if err := turn.End("x"); err != nil {
				t.Error(err)
			}
			return
		case <-time.After(20 * time.Millisecond):
			giveUp()
		}
	}
}

// TestEndStopsCalls that run without a record; the step waits for them.
func TestEndStopsCalls(t *testing.T) {
	t.Parallel()
	r, k, e, turn := withTools(t)
	ended := make(chan error, 1)
	go func() {
		_, err := turn.Call(t.Context(), episode.ToolCall{Name: "slow"})
		ended <- err
	}()
	for began := false; !began; time.Sleep(time.Millisecond) {
		k.mu.Lock()
		began = len(k.ran) == 1
		k.mu.Unlock()
	}
	if err := turn.End("x"); err != nil {
		t.Fatal(err)
	}
	wantKind(t, <-ended, fault.NotFound, "is over")
	if res, err := e.Result(r.soon()); err != nil || res.Status != "completed" {
		t.Errorf("%+v, %v", res, err)
	}
}

// TestModelCalls are the forms of an answer.
func TestModelCalls(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		message string
		bad     string // "" = recorded
		waits   string // the call that must run then
	}{
		"text":               {message: `"hi"`},
		"openai text":        {message: `{"role":"assistant","content":"hi"}`},
		"openai calls":       {message: `{"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function","function":{"name":"add","arguments":"{\"a\":1}"}}]}`, waits: "add"},
		"openai no argument": {message: `{"role":"assistant","tool_calls":[{"function":{"name":"slow","arguments":""}}]}`, waits: "slow"},
		"openai broken":      {message: `{"role":"assistant","tool_calls":[{"function":{"name":"add","arguments":"{a"}}]}`},
		"anthropic":          {message: `{"role":"assistant","content":[{"type":"thinking","thinking":"…"},{"type":"text","text":"x"},{"type":"tool_use","name":"add","input":{}}]}`, waits: "add"},
		"no message":         {message: `null`, bad: `field "message" needs a string or an assistant message, not null`},
		"another role":       {message: `{"role":"user","content":"hi"}`, bad: `"role" needs "assistant"`},
		"content":            {message: `{"role":"assistant","content":7}`, bad: `field "content" needs`},
		"a block":            {message: `{"role":"assistant","content":["x"]}`, bad: `content[0]`},
		"tool_calls":         {message: `{"role":"assistant","tool_calls":{}}`, bad: `field "tool_calls" needs a list`},
		"no function":        {message: `{"role":"assistant","tool_calls":[{}]}`, bad: `tool_calls[0]`},
		"no name":            {message: `{"role":"assistant","content":[{"type":"tool_use","input":{}}]}`, bad: `the tool call has no name`},
		"bad arguments":      {message: `{"role":"assistant","content":[{"type":"tool_use","name":"add","input":3}]}`, bad: `the arguments of "add" need an object`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, _, _, turn := withTools(t)
			m, err := doc.Parse([]byte(c.message), doc.Options{})
			if err != nil {
				t.Fatal(err)
			}
			err = turn.RecordModelCall(t.Context(), episode.ModelCall{Message: m})
			if c.bad != "" {
				wantKind(t, err, fault.Invalid, c.bad)
			} else if err != nil {
				t.Error(err)
			}
			err = turn.End("x")
			if c.waits != "" {
				wantKind(t, err, fault.Conflict, "have not run ("+c.waits+")")
			} else if err != nil {
				t.Error(err)
			}
		})
	}
}
