package a2a_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"agentenv/protocol/a2a"
)

// stepping is an agent that says one thing on its way, waits, and answers.
func stepping(wait <-chan struct{}) a2a.Agent {
	return a2a.Agent{Identity: identity(), Extensions: []a2a.Extension{a2a.Trajectory(false)},
		Stream: func(ctx context.Context, r *a2a.Request, emit a2a.Emit) (a2a.Result, error) {
			if err := emit(a2a.Progress{Parts: []a2a.Part{a2a.Text("on it")}, Metadata: map[string]any{"step": 1}}); err != nil {
				return a2a.Result{}, err
			}
			select {
			case <-wait:
			case <-ctx.Done():
				return a2a.Result{}, ctx.Err()
			}
			return a2a.Result{Parts: []a2a.Part{a2a.Text("done")}, SessionRef: "s"}, r.Trajectory.SetFormat("f")
		}}
}

func kinds(events []object) (out []string) {
	for _, e := range events {
		state := e.text("status", "state")
		if e.at("final") == true {
			state += "!"
		}
		out = append(out, e.text("kind")+" "+state)
	}
	return out
}

func TestStreamSaysAllInOrder(t *testing.T) {
	t.Parallel()
	wait := make(chan struct{})
	p := serve(t, stepping(wait), a2a.Settings{})
	var id string
	events := p.stream("message/stream", sending{context: "c", text: "x"}.params(), func(e object) {
		if e.text("kind") == "task" {
			id = e.text("id")
		}
		if e.text("metadata", "step") == "1" {
			close(wait) // what is said comes before the end
		}
	})
	want := []string{"task submitted", "status-update working", "status-update working", "status-update completed!"}
	if got := kinds(events); !slices.Equal(got, want) {
		t.Fatalf("%v", got)
	}
	for _, e := range events[1:] {
		if e.text("taskId") != id || e.text("contextId") != "c" {
			t.Errorf("%v", e)
		}
	}
	if events[2].text("status", "message", "parts", 0, "text") != "on it" || events[3].text("status", "message", "parts", 0, "text") != "done" {
		t.Errorf("%v", events)
	}
	if task := p.await(id, "completed"); task.text("metadata", "step") != "1" || task.text("history", 1, "parts", 0, "text") != "on it" {
		t.Errorf("%v", task)
	}
}

func TestStreamingAgentAnswersPollsToo(t *testing.T) {
	t.Parallel()
	wait := make(chan struct{})
	close(wait)
	p := serve(t, stepping(wait), a2a.Settings{})
	task := p.await(p.start(sending{text: "x"}).text("id"), "completed")
	if task.text("status", "message", "parts", 0, "text") != "done" {
		t.Errorf("%v", task)
	}
}

func TestResubscribe(t *testing.T) {
	t.Parallel()
	wait := make(chan struct{})
	p := serve(t, stepping(wait), a2a.Settings{})
	id := p.start(sending{id: "m", text: "x"}).text("id")
	for p.await(id, "working").at("metadata", "step") == nil {
		time.Sleep(time.Millisecond)
	}
	events := p.stream("tasks/resubscribe", `{"id":"`+id+`"}`, func(e object) {
		if e.text("kind") == "task" {
			close(wait)
		}
	})
	if got := kinds(events); !slices.Equal(got, []string{"task working", "status-update completed!"}) {
		t.Errorf("%v", got)
	}
	if got := p.rpc("tasks/resubscribe", `{"id":"`+id+`"}`); got.text("error", "code") != "-32602" || !strings.Contains(got.text("error", "message"), "completed") {
		t.Errorf("%v", got)
	}
	if got := kinds(p.stream("message/stream", sending{id: "m", text: "x"}.params(), nil)); !slices.Equal(got, []string{"task completed"}) {
		t.Errorf("a message sent again: %v", got)
	}
}

func TestStreamOfACanceledTaskEnds(t *testing.T) {
	t.Parallel()
	p := serve(t, stepping(make(chan struct{})), a2a.Settings{})
	var id string
	events := p.stream("message/stream", sending{text: "x"}.params(), func(e object) {
		if e.text("kind") == "task" {
			id = e.text("id")
		}
		if e.text("metadata", "step") == "1" {
			p.rpc("tasks/cancel", `{"id":"`+id+`"}`)
		}
	})
	if got := kinds(events); got[len(got)-1] != "status-update canceled!" {
		t.Errorf("%v", got)
	}
}

func TestAClientThatGoesAwayStopsNothing(t *testing.T) {
	t.Parallel()
	wait := make(chan struct{})
	p := serve(t, stepping(wait), a2a.Settings{})
	ctx, leave := context.WithCancel(t.Context())
	body := `{"jsonrpc":"2.0","id":7,"method":"message/stream","params":` + sending{id: "m", text: "x"}.params() + `}`
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url+"/a2a", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	res, err := p.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	leave()
	res.Body.Close()
	id := p.start(sending{id: "m", text: "x"}).text("id")
	close(wait)
	p.await(id, "completed")
}

func TestABigAnswerIsOneEvent(t *testing.T) {
	t.Parallel()
	big := strings.Repeat("0123456789", 30_000)
	agent := a2a.Agent{Identity: identity(), Stream: func(context.Context, *a2a.Request, a2a.Emit) (a2a.Result, error) {
		return a2a.Result{Parts: []a2a.Part{a2a.Text(big)}}, nil
	}}
	p := serve(t, agent, a2a.Settings{})
	events := p.stream("message/stream", sending{text: "x"}.params(), nil)
	if got := events[len(events)-1].text("status", "message", "parts", 0, "text"); got != big {
		t.Errorf("%d bytes", len(got))
	}
}

func TestEmitAfterTheEndIsRefused(t *testing.T) {
	t.Parallel()
	var late a2a.Emit
	agent := a2a.Agent{Identity: identity(), Stream: func(_ context.Context, _ *a2a.Request, emit a2a.Emit) (a2a.Result, error) {
		late = emit
		if emit(a2a.Progress{}) == nil || emit(a2a.Progress{Parts: []a2a.Part{a2a.Data(map[string]any{"f": func() {}})}}) == nil {
			return a2a.Fail("bad", "progress without parts, or with what is no JSON, was taken"), nil
		}
		return a2a.Result{Parts: []a2a.Part{a2a.Text("x")}}, nil
	}}
	p := serve(t, agent, a2a.Settings{})
	if task := p.send(sending{text: "x"}); task.text("status", "state") != "completed" {
		t.Fatal(task)
	}
	if err := late(a2a.Progress{Parts: []a2a.Part{a2a.Text("late")}}); err == nil {
		t.Error("it was taken")
	}
}
