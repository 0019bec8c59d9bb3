package episode_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"agentenv/episode"
	"agentenv/fault"
	"agentenv/store/doc"
	"agentenv/task"
)

const token = "0123456789abcdef0123456789abcdef"

// client is a client of a door.
type client struct {
	t   testing.TB
	url string
}

// served opens a door to a plan; it is closed with the test.
func (r *rig) served(steps string, o episode.Options) (client, *episode.Door) {
	r.t.Helper()
	d := episode.NewDoor(r.plan(steps, o), token)
	s := httptest.NewServer(d)
	r.t.Cleanup(func() {
		d.Close(context.Background(), "the test is over")
		s.Close()
	})
	return client{r.t, s.URL + "/v1/"}, d
}

func (c client) do(ctx context.Context, method, path, auth, body string) (int, *doc.Object, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.url+path, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	if auth != "" {
		req.Header.Set("Authorization", auth)
	}
	res, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		return 0, nil, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return 0, nil, err
	}
	answer, err := doc.ParseObject(text, doc.Options{Strict: true})
	if err != nil {
		c.t.Errorf("%s %s: %d, no JSON: %s", method, path, res.StatusCode, text)
	}
	return res.StatusCode, answer, err
}

// want posts and returns the answer, which must have the status.
func (c client) want(status int, path, body string) *doc.Object {
	c.t.Helper()
	got, answer, err := c.do(context.Background(), http.MethodPost, path, "Bearer "+token, body)
	if err != nil || got != status {
		c.t.Fatalf("%s %.80s: %d %s, %v; want %d", path, body, got, doc.Canonical(answer), err, status)
	}
	return answer
}

func (c client) refused(status int, name, path, body, detail string) {
	c.t.Helper()
	answer := c.want(status, path, body)
	if answer.Str("error") != name || !strings.Contains(answer.Str("detail"), detail) {
		c.t.Errorf("%s: %s; want %s with %q", path, doc.Canonical(answer), name, detail)
	}
}

// begin starts an episode and returns the path to it.
func (c client) begin(body string) string {
	c.t.Helper()
	return "episodes/" + c.want(200, "episodes", body).Str("episode_id") + "/"
}

func TestDoor(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.graded("42")
	k := &tools{}
	r.deps.Tools = func(*task.Run, string) episode.Toolbox { return k }
	r.teardown.left = []task.SandboxReport{{ID: "s-1", Provider: "local", Why: "busy"}}
	c, _ := r.served(deploy+`,{"id":"ask","type":"prompt_agent","prompt":"Hello <name>","system_prompt":"Be kind."},`+check, episode.Options{})
	_, about, _ := c.do(t.Context(), http.MethodGet, "task", "bearer  "+token, "")
	want := doc.Of("task_id", "t", "task_version", doc.Int(7), "trainer_agents", []any{"default-agent"},
		"prompts", []any{doc.Of("step_id", "ask", "agent_name", "default-agent", "prompt", "Hello <name>", "system_prompt", "Be kind.")})
	if !doc.Equal(about, want) {
		t.Errorf("%s", doc.Canonical(about))
	}
	started := c.want(200, "episodes", `{"seed":{"name":"ann"}}`)
	id := started.Str("episode_id")
	if len(id) != 32 || started.Str("instance_id") != id || started.Arr("prompts")[0].(*doc.Object).Str("prompt") != "Hello ann" {
		t.Errorf("%s", doc.Canonical(started))
	}
	e := "episodes/" + id + "/"
	for range 2 { // an answer that got lost can be asked for again
		if turn := c.want(200, e+"next", `{}`); !doc.Equal(turn, doc.Of("done", false, "turn", doc.Of("turn", doc.Int(1), "step_id", "ask", "agent_name", "default-agent", "prompt", "Hello ann", "system_prompt", "Be kind."))) {
			t.Errorf("%s", doc.Canonical(turn))
		}
	}
	if none := c.want(200, e+"next", `{"after":1,"wait_seconds":0.05}`); !doc.Equal(none, doc.Of("done", false, "turn", nil)) {
		t.Errorf("%s", doc.Canonical(none))
	}
	c.refused(409, "conflict", e+"result", `{}`, "turn 1 (step ask) is open")
	if list := c.want(200, e+"turns/1/tools", ``).Arr("tools"); len(list) != 2 || list[0].(*doc.Object).Str("name") != "add" || list[1].(*doc.Object).Obj("input_schema") == nil {
		t.Errorf("%s", doc.Canonical(list))
	}
	c.want(200, e+"turns/1/record", `{"message":{"role":"assistant","content":[{"type":"tool_use","name":"add","input":{"a":1}}]},"model":"m","usage":{"input_tokens":3}}`)
	c.refused(409, "conflict", e+"turns/1/end", `{"response":"x"}`, "have not run (add)")
	c.refused(409, "conflict", e+"turns/1/call", `{"name":"add","arguments":{"a":2}}`, "did not ask")
	c.refused(400, "invalid", e+"turns/1/call", `{"name":"bash"}`, "there is no tool named")
	if res := c.want(200, e+"turns/1/call", `{"name":"add","arguments":{"a":1.0}}`); res.Bool("is_error") || len(res.Arr("content")) != 1 {
		t.Errorf("%s", doc.Canonical(res))
	}
	for range 2 {
		c.want(200, e+"turns/1/end", `{"response":"42"}`)
	}
	c.refused(404, "turn_over", e+"turns/1/record", `{"message":"x"}`, "is over")
	c.refused(404, "turn_over", e+"turns/1/tools", ``, "is over")
	c.refused(404, "turn_over", e+"turns/2/end", ``, "no turn 2 so far")
	if end := c.want(200, e+"next", ``); !doc.Equal(end, doc.Of("turn", nil, "done", true, "error", nil)) {
		t.Errorf("%s", doc.Canonical(end))
	}
	if res := c.want(200, e+"result", ``); !doc.Equal(res, doc.Of("done", true, "instance_id", id, "status", "completed", "outcome_class", "passed", "error", nil,
		"scores", []any{doc.Of("step_id", "check", "score", doc.Int(1))}, "still_up", []any{doc.Of("sandbox_id", "s-1", "provider", "local", "why", "busy")})) {
		t.Errorf("%s", doc.Canonical(res))
	}
	if in, err := r.instances.Get(t.Context(), id); err != nil || in.Status != "completed" || in.TaskID != "t" {
		t.Errorf("%+v, %v", in, err)
	}
}

func TestDoorAbandon(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c, _ := r.served(talk, episode.Options{})
	e := c.begin(``)
	c.want(200, e+"next", ``)
	if done := c.want(200, e+"abandon", `{"reason":"bored"}`); !done.Bool("done") {
		t.Errorf("%s", doc.Canonical(done))
	}
	c.refused(404, "turn_over", e+"turns/1/end", `{"response":"late"}`, "bored")
	res := c.want(200, e+"result", ``)
	if res.Str("status") != "cancelled" || res.Str("outcome_class") != "cancelled" || !doc.Equal(res.Value("error"), doc.Of("kind", "canceled", "detail", "bored")) {
		t.Errorf("%s", doc.Canonical(res))
	}
	if end := c.want(200, e+"next", ``); !end.Bool("done") || end.Obj("error").Str("detail") != "bored" {
		t.Errorf("%s", doc.Canonical(end))
	}
}

// TestDoorRefuses has everything that a client can get wrong: each has a status, a name and a line, and starts nothing.
func TestDoorRefuses(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c, _ := r.served(talk, episode.Options{})
	e := c.begin(``)
	c.want(200, e+"next", ``)
	turn := e + "turns/1/"
	deep := strings.Repeat("[", 100_000)
	for _, w := range []struct {
		status           int
		name, path, body string
		detail           string
	}{
		{404, "no_such_path", "nothing", ``, "nothing answers POST /v1/nothing"},
		{404, "no_such_path", "task", ``, "nothing answers POST"},
		{404, "no_such_episode", "episodes/" + token + "/next", ``, "no episode"},
		{404, "turn_over", e + "turns/0/end", ``, "no turn 0"},
		{400, "invalid", e + "turns/first/end", ``, "named by its number"},
		{400, "invalid", e + "next", `[]`, "the body"},
		{400, "invalid", e + "next", `{"after":1,"after":2}`, "the body"},
		{400, "invalid", e + "next", deep, "the body"},
		{400, "invalid", e + "next", `{"after":-1}`, `field "after"`},
		{400, "invalid", e + "next", `{"wait_seconds":61}`, `field "wait_seconds" needs a number from 0 to 60`},
		{400, "invalid", e + "result", `{"wait_seconds":"1"}`, `field "wait_seconds"`},
		{400, "invalid", e + "abandon", `{"reason":7}`, `field "reason" needs a string`},
		{400, "invalid", e + "abandon", `{"reason":"` + strings.Repeat("x", 2_001) + `"}`, `the most is 2000`},
		{400, "invalid", "episodes", `{"seed":"x"}`, `field "seed" needs an object`},
		{400, "invalid", "episodes", `{"sed":{"name":"ann"}}`, `field "sed" is not known; an episode is started with seed and sandbox`},
		{400, "invalid", "episodes", `{"sandbox":[]}`, `field "sandbox" needs a string`},
		{400, "invalid", turn + "call", `{"name":"x","arguments":[]}`, `field "arguments" needs an object`},
		{400, "invalid", turn + "record", `{"message":{"role":"user"}}`, `"role" needs "assistant"`},
		{400, "invalid", turn + "record", `{"message":"x","model":1}`, `field "model" needs a string`},
		{400, "invalid", turn + "end", `{"response":{}}`, `field "response" needs a string`},
		{413, "too_large", turn + "end", `{"response":"` + strings.Repeat("x", 16<<20) + `"}`, "more than 16 MiB"},
	} {
		c.refused(w.status, w.name, w.path, w.body, w.detail)
	}
	for _, auth := range []string{"", "Bearer", "Bearer x", "Basic " + token, "Bearer " + token + "x", token} {
		for _, path := range []string{"episodes", "nothing", e + "abandon"} {
			status, answer, err := c.do(t.Context(), http.MethodPost, path, auth, `{}`)
			if status != http.StatusUnauthorized || answer.Str("error") != "unauthorized" || strings.Contains(answer.Str("detail"), token) {
				t.Errorf("%q: %d %s, %v", auth, status, doc.Canonical(answer), err)
			}
		}
	}
	c.want(200, turn+"end", `{"response":null}`) // the turn is as it was
	if n, _ := r.docs.Count(t.Context(), "task_instances", nil); n != 1 {
		t.Errorf("%d runs", n)
	}
}

// TestDoorSeedThatBreaksTheTask is refused like the task itself.
func TestDoorSeedThatBreaksTheTask(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c, _ := r.served(`{"id":"agent","type":"deploy_agent","agent_name":"<a>"},{"id":"ask","type":"prompt_agent","prompt":"?","agent_name":"<a>"},{"id":"v","type":"verify_sandbox","agent_name":"<b>"}`, episode.Options{})
	c.refused(400, "invalid", "episodes", `{"seed":{"a":"x","b":"x"}}`, "task 't' can't run as an episode: step 'v' (verify_sandbox) needs a sandbox with agent 'x'")
}

// TestDoorCallers has two clients on one turn, one of which goes away while it waits.
func TestDoorCallers(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c, _ := r.served(talk, episode.Options{})
	e := c.begin(``)
	c.want(200, e+"next", ``)
	ctx, goAway := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer goAway()
	if _, _, err := c.do(ctx, http.MethodPost, e+"next", "Bearer "+token, `{"after":1}`); err == nil {
		t.Error("nothing was to be waited for")
	}
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() {
			if status, _, err := c.do(context.Background(), http.MethodPost, e+"turns/1/end", "Bearer "+token, `{"response":"x"}`); status != 200 || err != nil {
				t.Errorf("%d, %v", status, err)
			}
		})
	}
	both.Wait()
	if res := c.want(200, e+"result", ``); res.Str("status") != "completed" {
		t.Errorf("%s", doc.Canonical(res))
	}
}

// TestDoorClose abandons what goes on, waits for the teardowns, and starts nothing any more.
func TestDoorClose(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c, d := r.served(talk, episode.Options{})
	var open []string
	for range 3 {
		e := c.begin(``)
		c.want(200, e+"next", ``)
		open = append(open, e)
	}
	d.Close(t.Context(), "cancelled by SIGTERM")
	for _, e := range open {
		id := strings.Split(e, "/")[1]
		if in, err := r.instances.Get(t.Context(), id); err != nil || in.Status != "cancelled" || in.Error != "cancelled by SIGTERM" || r.teardown.times(id) != 1 {
			t.Errorf("%+v, %v", in, err)
		}
	}
	c.refused(503, "unavailable", "episodes", ``, "the door is closing")
}

// TestDoorCloseInAHurry stops teardowns that do not end.
func TestDoorCloseInAHurry(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.teardown.stuck = make(chan struct{})
	c, d := r.served(talk, episode.Options{})
	e := c.begin(``)
	c.want(200, e+"next", ``)
	ctx, hurry := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer hurry()
	d.Close(ctx, "stop")
	if res := c.want(200, e+"result", ``); res.Str("status") != "cancelled" {
		t.Errorf("%s", doc.Canonical(res))
	}
}

func TestListen(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"0.0.0.0:0", ":0", "example.com:80", "10.0.0.1:0", "127.0.0.1", "[::]:0"} {
		if l, err := episode.Listen(t.Context(), bad); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: %v, %v", bad, l, err)
		}
	}
	l, err := episode.Listen(t.Context(), "localhost:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if l2, err := episode.Listen(t.Context(), l.Addr().String()); !fault.Is(err, fault.Unavailable) {
		t.Errorf("%v, %v", l2, err)
	}
	if a, b := episode.NewToken(), episode.NewToken(); a == b || len(a) < 43 {
		t.Errorf("tokens %q, %q", a, b)
	}
}
