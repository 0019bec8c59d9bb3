package a2a_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"agentenv/protocol/a2a"
	"agentenv/protocol/trajectory"
)

// gated is an agent whose code, for a text, begins when the test lets it go on; it says what began and ended.
type gated struct {
	mu    sync.Mutex
	gates map[string]chan struct{}
	seen  []string
}

func (g *gated) gate(text string) chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.gates == nil {
		g.gates = map[string]chan struct{}{}
	}
	if g.gates[text] == nil {
		g.gates[text] = make(chan struct{})
	}
	return g.gates[text]
}

func (g *gated) note(s string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.seen = append(g.seen, s)
}

func (g *gated) notes() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.seen)
}

func (g *gated) awaitNote(t *testing.T, s string) {
	t.Helper()
	for end := time.Now().Add(patience); !slices.Contains(g.notes(), s); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("no %q in %v", s, g.notes())
		}
	}
}

func (g *gated) agent() a2a.Agent {
	return a2a.Agent{Identity: identity(), Extensions: []a2a.Extension{a2a.Trajectory(true)},
		Run: func(ctx context.Context, r *a2a.Request) (a2a.Result, error) {
			text := r.Text()
			g.note("begin " + text)
			defer g.note("end " + text)
			select {
			case <-g.gate(text):
			case <-ctx.Done():
				return a2a.Result{}, ctx.Err()
			}
			return a2a.Result{Parts: []a2a.Part{a2a.Text("after " + r.SessionRef)}, SessionRef: text}, nil
		}}
}

func TestTasksOfOneContextFollowEachOther(t *testing.T) {
	t.Parallel()
	g := &gated{}
	p := serve(t, g.agent(), a2a.Settings{})
	one := p.start(sending{context: "c", text: "one"})
	two := p.start(sending{context: "c", text: "two"})
	other := p.start(sending{context: "d", text: "other"})
	for _, task := range []object{one, two, other} {
		if task.text("status", "state") != "submitted" {
			t.Errorf("the first answer is %v", task)
		}
	}
	g.awaitNote(t, "begin one")
	g.awaitNote(t, "begin other") // another context does not wait
	p.await(two.text("id"), "working")
	close(g.gate("two"))
	if slices.Contains(g.notes(), "begin two") {
		t.Error("two tasks of a context run at once")
	}
	close(g.gate("one"))
	if task := p.await(two.text("id"), "completed"); task.text("status", "message", "parts", 0, "text") != "after one" {
		t.Errorf("the second task does not see what the first left: %v", task)
	}
	close(g.gate("other"))
	if task := p.await(other.text("id"), "completed"); task.text("status", "message", "parts", 0, "text") != "after " {
		t.Errorf("%v", task)
	}
	notes := g.notes()
	if slices.Index(notes, "end one") > slices.Index(notes, "begin two") {
		t.Error(notes)
	}
}

func TestCancel(t *testing.T) {
	t.Parallel()
	g := &gated{}
	p := serve(t, g.agent(), a2a.Settings{})
	running, waiting := p.start(sending{context: "c", text: "running"}), p.start(sending{context: "c", text: "waiting"})
	g.awaitNote(t, "begin running")
	for _, task := range []object{waiting, running} {
		id := task.text("id")
		got := p.rpc("tasks/cancel", `{"id":"`+id+`"}`)
		if got.text("result", "status", "state") != "canceled" {
			t.Fatalf("%v", got)
		}
		if got := p.rpc("tasks/cancel", `{"id":"`+id+`"}`); got.text("error", "code") != "-32002" {
			t.Errorf("canceled twice: %v", got)
		}
		p.await(id, "canceled")
		if page := p.ext("POST", "/ext/trajectory", `{"task_id":"`+id+`","after":0}`, 200); page.text("state") != "canceled" {
			t.Errorf("%v", page)
		}
	}
	g.awaitNote(t, "end running")
	if slices.Contains(g.notes(), "begin waiting") {
		t.Error("a task that was canceled while it waited ran")
	}
	close(g.gate("next"))
	next := p.send(sending{context: "c", text: "next"})
	if next.text("status", "state") != "completed" {
		t.Errorf("the context is stuck: %v", next)
	}
}

func TestCancelOfCodeThatDoesNotListen(t *testing.T) {
	t.Parallel()
	begun, release := make(chan struct{}), make(chan struct{})
	p := serve(t, a2a.Agent{Identity: identity(), Extensions: []a2a.Extension{a2a.Trajectory(true)},
		Run: func(ctx context.Context, r *a2a.Request) (a2a.Result, error) {
			close(begun)
			<-release
			err := errors.Join(r.Trajectory.SetFormat("f"), r.Trajectory.Append(map[string]any{"late": ctx.Err() != nil}))
			return a2a.Result{Parts: []a2a.Part{a2a.Text("done all the same")}}, err
		}}, a2a.Settings{})
	id := p.start(sending{text: "x"}).text("id")
	<-begun
	if got := p.rpc("tasks/cancel", `{"id":"`+id+`"}`); got.text("result", "status", "state") != "canceled" {
		t.Fatalf("%v", got)
	}
	close(release)
	for end := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		page := p.ext("POST", "/ext/trajectory", `{"task_id":"`+id+`","after":0}`, 200)
		if page.text("state") == "canceled" {
			if page.text("events", 0, "late") != "true" {
				t.Errorf("events of the clean-up are lost: %v", page)
			}
			break
		}
		if time.Now().After(end) {
			t.Fatal(page)
		}
	}
	p.await(id, "canceled")
}

func TestUnexpectedErrorsShowNothing(t *testing.T) {
	t.Parallel()
	for name, run := range map[string]func(context.Context, *a2a.Request) (a2a.Result, error){
		"an error":        func(context.Context, *a2a.Request) (a2a.Result, error) { return a2a.Result{}, errors.New("s3cr3t") },
		"a panic":         func(context.Context, *a2a.Request) (a2a.Result, error) { panic("s3cr3t") },
		"an empty result": func(context.Context, *a2a.Request) (a2a.Result, error) { return a2a.Result{}, nil },
		"a part that is none": func(context.Context, *a2a.Request) (a2a.Result, error) {
			return a2a.Result{Parts: []a2a.Part{nil}}, nil
		},
		"data that is no JSON": func(context.Context, *a2a.Request) (a2a.Result, error) {
			return a2a.Result{Parts: []a2a.Part{a2a.Data(map[string]any{"f": func() {}})}}, nil
		},
		"a negative count": func(context.Context, *a2a.Request) (a2a.Result, error) {
			n := int64(-1)
			return a2a.Result{Parts: []a2a.Part{a2a.Text("x")}, Usage: a2a.Usage{InputTokens: &n}}, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			agent := answering()
			agent.Run = run
			p := serve(t, agent, a2a.Settings{})
			task := p.send(sending{text: "x"})
			id := regexp.MustCompile(`[0-9a-f]{32}$`).FindString(task.text("status", "message", "parts", 0, "text"))
			data := object(task.at("status", "message", "parts", 1, "data").(map[string]any))
			if task.text("status", "state") != "failed" || id == "" || data.text("error_code") != "framework.unhandled_exception" ||
				data.text("error_type") != "infra_error" || !strings.HasSuffix(data.text("error_message"), id) {
				t.Errorf("%v", task)
			}
			if strings.Contains(fmt.Sprint(task), "s3cr3t") || !strings.Contains(p.log.String(), id) {
				t.Errorf("%v\n%s", task, p.log)
			}
		})
	}
}

func TestTerminalMessage(t *testing.T) {
	t.Parallel()
	count, cost := int64(2), 0.5
	agent := answering()
	agent.Run = func(_ context.Context, r *a2a.Request) (a2a.Result, error) {
		out := a2a.Result{Parts: []a2a.Part{a2a.Text("partial")}}
		if r.Text() != "plain" {
			out = a2a.Fail("x.y", "it is broken")
			out.Parts = []a2a.Part{a2a.Text("partial")}
			out.Usage = a2a.Usage{ToolCalls: &count, CostUSD: &cost, ProviderDetails: map[string]any{"p": 1}}
		}
		return out, nil
	}
	p := serve(t, agent, a2a.Settings{})
	if parts := p.send(sending{text: "plain"}).at("status", "message", "parts").([]any); len(parts) != 1 {
		t.Errorf("an empty usage is told: %v", parts)
	}
	task := p.send(sending{text: "fail"})
	parts := task.at("status", "message", "parts").([]any)
	if len(parts) != 2 || task.text("status", "state") != "failed" {
		t.Fatalf("%v", task)
	}
	want := map[string]any{"usage": map[string]any{"tool_call_count": 2, "cost_usd": 0.5, "provider_details": map[string]any{"p": 1}},
		"error_type": "agent_error", "error_code": "x.y", "error_message": "it is broken"}
	if got := task.at("status", "message", "parts", 1, "data"); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v", got)
	}
}

func TestHistory(t *testing.T) {
	t.Parallel()
	p := serve(t, a2a.Agent{Identity: identity(), Stream: func(_ context.Context, r *a2a.Request, emit a2a.Emit) (a2a.Result, error) {
		for i := range 2 {
			if err := emit(a2a.Progress{Parts: []a2a.Part{a2a.Text(fmt.Sprint(i))}, Metadata: map[string]any{"at": i, fmt.Sprint("k", i): true}}); err != nil {
				return a2a.Result{}, err
			}
		}
		return a2a.Result{Parts: []a2a.Part{a2a.Text("end")}}, nil
	}}, a2a.Settings{})
	task := p.send(sending{text: "hi"})
	id := task.text("id")
	texts := func(task object) (out []string) {
		list, _ := task.at("history").([]any)
		for i := range list {
			out = append(out, task.text("history", i, "parts", 0, "text"))
		}
		return out
	}
	if got := texts(task); !slices.Equal(got, []string{"hi", "0", "1"}) {
		t.Errorf("%v", got)
	}
	if task.text("metadata") != fmt.Sprint(map[string]any{"at": 1, "k0": true, "k1": true}) {
		t.Errorf("%v", task.at("metadata"))
	}
	for length, want := range map[string][]string{"0": nil, "1": {"1"}, "2": {"0", "1"}, "99": {"hi", "0", "1"}} {
		got := object(p.rpc("tasks/get", `{"id":"`+id+`","historyLength":`+length+`}`).at("result").(map[string]any))
		if !slices.Equal(texts(got), want) {
			t.Errorf("%s: %v", length, texts(got))
		}
		got = p.send(sending{text: "hi", configuration: `{"historyLength":` + length + `}`})
		if !slices.Equal(texts(got), want) {
			t.Errorf("send %s: %v", length, texts(got))
		}
	}
}

func TestAMessageSentAgainIsTheSameTask(t *testing.T) {
	t.Parallel()
	g := &gated{}
	p := serve(t, g.agent(), a2a.Settings{})
	first := p.start(sending{id: "m", text: "x"})
	again := p.start(sending{id: "m", text: "x"})
	elsewhere := p.start(sending{id: "m", text: "y", context: "c"})
	if first.text("id") != again.text("id") || first.text("id") == elsewhere.text("id") {
		t.Errorf("%v %v %v", first, again, elsewhere)
	}
	close(g.gate("x"))
	close(g.gate("y"))
	if ended := p.send(sending{id: "m", text: "x"}); ended.text("id") != first.text("id") || ended.text("status", "state") != "completed" {
		t.Errorf("%v", ended)
	}
	if n := len(slices.DeleteFunc(g.notes(), func(s string) bool { return s != "begin x" })); n != 1 {
		t.Errorf("it ran %d times", n)
	}
}

func TestOnlyTheContextsUsedLastAreRemembered(t *testing.T) {
	t.Parallel()
	g := &gated{}
	for _, text := range []string{"a", "b", "c", "d"} {
		close(g.gate(text))
	}
	p := serve(t, g.agent(), a2a.Settings{Contexts: 2})
	known := func(id string) bool { return p.rpc("tasks/get", `{"id":"`+id+`"}`)["result"] != nil }
	a, b := p.send(sending{context: "a", text: "a"}).text("id"), p.send(sending{context: "b", text: "b"}).text("id")
	if !known(a) {
		t.Fatal("a is gone")
	}
	running := p.start(sending{context: "c", text: "held"}).text("id")
	if !known(a) || known(b) || !known(running) {
		t.Error("the context used longest ago is b")
	}
	if got := p.send(sending{context: "b", text: "b"}).text("status", "message", "parts", 0, "text"); got != "after " {
		t.Errorf("a session that was dropped came back: %q", got)
	}
	p.send(sending{context: "d", text: "d"})
	if !known(running) {
		t.Error("a context in which a task goes on was dropped")
	}
	close(g.gate("held"))
	p.await(running, "completed")
}

func TestALongContextForgetsItsOldestTasks(t *testing.T) {
	t.Parallel()
	p := serve(t, answering(), a2a.Settings{})
	var first string
	for i := range 1026 {
		id := p.send(sending{context: "c", text: "x"}).text("id")
		if i == 0 {
			first = id
		}
	}
	if p.rpc("tasks/get", `{"id":"`+first+`"}`).text("error", "code") != "-32001" {
		t.Error("tasks of a context are never dropped")
	}
}

func TestARequestIsTheTasksOwn(t *testing.T) {
	t.Parallel()
	type config struct {
		a2a.BaseConfig
		Tags map[string]any `json:"tags" agent:"optional"`
	}
	hold, held := make(chan struct{}), make(chan struct{})
	agent := a2a.Agent{Identity: identity(), Workspace: "/w", Config: func() any { return &config{BaseConfig: a2a.DefaultBase(), Tags: map[string]any{"t": "default"}} },
		Extensions: []a2a.Extension{a2a.MCPConfig(), a2a.SkillConfig(func(context.Context, a2a.Skill) error { return nil }, nil)},
		Run: func(_ context.Context, r *a2a.Request) (a2a.Result, error) {
			if r.Text() == "hold" {
				close(held)
				<-hold
			}
			c := r.Config.(*config)
			out := fmt.Sprint(c.Tags, c.TimeoutSeconds, r.Metadata, len(r.MCPServers), len(r.Skills), r.Workspace)
			c.Tags["t"] = "spoiled"
			r.Metadata["spoiled"] = true
			return a2a.Result{Parts: []a2a.Part{a2a.Text(out)}}, nil
		}}
	p := serve(t, agent, a2a.Settings{})
	task := p.start(sending{text: "hold", metadata: `{"role":"mine","k":1}`})
	<-held
	p.ext("POST", "/ext/agent-config", `{"role":"judge","tags":{"t":"set"},"timeout_seconds":"60"}`, 200)
	p.ext("POST", "/ext/mcp-config", `{"url":"http://h/mcp"}`, 200)
	p.ext("POST", "/ext/skill-config", `{"name":"s","description":"d","skill_md":"# s"}`, 200)
	close(hold)
	if got := p.await(task.text("id"), "completed").text("status", "message", "parts", 0, "text"); got != "map[t:default] 600 map[k:1 role:mine] 0 0/w" {
		t.Error(got)
	}
	for range 2 {
		if got := p.send(sending{text: "x", metadata: `{"role":"mine","k":1}`}).text("status", "message", "parts", 0, "text"); got != "map[t:set] 60 map[k:1 role:judge] 1 1/w" {
			t.Error(got)
		}
	}
}

func TestCloseEndsWhatGoesOn(t *testing.T) {
	t.Parallel()
	g := &gated{}
	agent := g.agent()
	var order []string
	agent.Start = func(context.Context) (func(context.Context) error, error) {
		order = append(order, "start")
		return func(context.Context) error { order = append(order, "stop"); return nil }, nil
	}
	agent.Extensions = append(agent.Extensions, a2a.Extension{URI: "urn:x", Close: func(context.Context) error { order = append(order, "extension"); return nil },
		Operations: []a2a.Operation{a2a.Op("o", func(context.Context, struct{}) (struct{}, error) { return struct{}{}, nil }).At("GET", "/x")}})
	server, err := a2a.New(t.Context(), agent, a2a.Settings{StagingMaxBytes: -1})
	if err != nil {
		t.Fatal(err)
	}
	p := &peer{t: t}
	p.serveBare(server)
	task := p.start(sending{text: "x"})
	g.awaitNote(t, "begin x")
	if err := server.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(order, []string{"start", "extension", "stop"}) || !slices.Contains(g.notes(), "end x") {
		t.Error(order, g.notes())
	}
	p.await(task.text("id"), "canceled")
	if got := p.rpc("message/send", sending{text: "y"}.params()); got.text("error", "code") != "-32603" {
		t.Errorf("%v", got)
	}
}

func TestCloseSaysThatCodeGoesOn(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	agent := answering()
	agent.Run = func(context.Context, *a2a.Request) (a2a.Result, error) { <-release; return a2a.Result{}, nil }
	server, err := a2a.New(t.Context(), agent, a2a.Settings{StagingMaxBytes: -1})
	if err != nil {
		t.Fatal(err)
	}
	p := &peer{t: t}
	p.serveBare(server)
	p.start(sending{text: "x"})
	ctx, done := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer done()
	if err := server.Close(ctx); err == nil || !strings.Contains(err.Error(), "goes on") {
		t.Error(err)
	}
	close(release)
}

func TestNativeTrajectoryIsTheFinalOne(t *testing.T) {
	t.Parallel()
	agent := answering()
	agent.Extensions = []a2a.Extension{a2a.Trajectory(true)}
	agent.Run = func(_ context.Context, r *a2a.Request) (a2a.Result, error) {
		err := errors.Join(r.Trajectory.SetFormat("f"), r.Trajectory.Append(map[string]any{"n": 1}))
		return a2a.Result{Parts: []a2a.Part{a2a.Text("x")}, Trajectory: &trajectory.Native{Format: "n", Payload: []any{"own"}, Version: 1}}, err
	}
	p := serve(t, agent, a2a.Settings{})
	id := p.send(sending{text: "x"}).text("id")
	if got := p.ext("POST", "/ext/trajectory", `{"task_id":"`+id+`"}`, 200); got.text("trajectory") != "[own]" {
		t.Errorf("%v", got)
	}
	if got := p.ext("POST", "/ext/trajectory", `{"task_id":"`+id+`","after":0}`, 200); got.text("events", 0, "n") != "1" {
		t.Errorf("%v", got)
	}
	if n := strings.Count(p.log.String(), "level=WARN"); n != 1 {
		t.Errorf("%d warnings: %s", n, p.log)
	}
}
