package peers_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"agentenv/protocol/peers"
)

// wire is a peer without a network, so that time can be made to pass: it answers the calls of a method one after another, the last answer
// again and again, and notes when each came.
type wire struct {
	t       *testing.T
	began   time.Time
	answers map[string][]answer
	calls   map[string][]time.Duration // since the start
}

// answer is the result of a call, or how it fails instead.
type answer struct {
	result any
	status int // of the HTTP answer, 0 = 200
	err    error
	after  time.Duration
}

func newWire(t *testing.T, answers map[string][]answer) *wire {
	return &wire{t: t, began: time.Now(), answers: answers, calls: map[string][]time.Duration{}}
}

// RoundTrip implements http.RoundTripper.
func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	var call struct{ Method string }
	if err := json.NewDecoder(r.Body).Decode(&call); err != nil {
		w.t.Error(err)
	}
	n := len(w.calls[call.Method])
	w.calls[call.Method] = append(w.calls[call.Method], time.Since(w.began))
	list := w.answers[call.Method]
	a := list[min(n, len(list)-1)]
	select {
	case <-time.After(a.after):
	case <-r.Context().Done():
		return nil, context.Cause(r.Context())
	}
	if a.err != nil {
		return nil, a.err
	}
	text, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": "1", "result": a.result})
	if err != nil {
		w.t.Error(err)
	}
	return &http.Response{StatusCode: max(a.status, http.StatusOK), Header: http.Header{}, Body: io.NopCloser(bytes.NewReader(text)), Request: r}, nil
}

// tools returns what calls the tools of an agent whose one peer is bob, without a network too: it gives the JSON a tool answers, or the text of its error.
func (w *wire) tools() func(tool string, arguments map[string]any) (map[string]any, string) {
	w.t.Helper()
	table := &peers.Table{}
	if err := table.Set([]peers.Peer{{Name: "bob", URL: "http://bob"}}); err != nil {
		w.t.Fatal(err)
	}
	tools := peers.NewTools(table, &http.Client{Transport: w}, 0)
	w.t.Cleanup(tools.Close)
	h := tools.Handler()
	return func(tool string, arguments map[string]any) (map[string]any, string) {
		w.t.Helper()
		body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": map[string]any{"name": tool, "arguments": arguments}})
		if err != nil {
			w.t.Fatal(err)
		}
		r := httptest.NewRequestWithContext(w.t.Context(), http.MethodPost, peers.Path, bytes.NewReader(body))
		r.RemoteAddr, r.Host = "127.0.0.1:5", "localhost"
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json, text/event-stream")
		got := httptest.NewRecorder()
		h.ServeHTTP(got, r)
		var out struct {
			Result struct {
				Content []struct{ Text string }
				IsError bool
			}
		}
		if err := json.Unmarshal(got.Body.Bytes(), &out); err != nil || len(out.Result.Content) != 1 {
			w.t.Fatalf("%s: %d %s, %v", tool, got.Code, got.Body, err)
		}
		text := out.Result.Content[0].Text
		if out.Result.IsError {
			return nil, text
		}
		var o map[string]any
		if err := json.Unmarshal([]byte(text), &o); err != nil {
			w.t.Fatal(err)
		}
		return o, ""
	}
}

func aTask(id, state string) answer {
	return answer{result: map[string]any{"kind": "task", "id": id, "contextId": "c", "status": map[string]any{"state": state}}}
}

func late(a answer, d time.Duration) answer { a.after = d; return a }

// TestHowLongAMessageWaits has a peer that works on and on: the tool gives up when its time is over, at most one look later.
func TestHowLongAMessageWaits(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		timeout   any
		send, get answer
		low, high int // seconds
		state     string
		fails     string
	}{
		"by itself":                        {nil, aTask("1", "working"), aTask("1", "working"), 45, 50, "working", ""},
		"ten seconds":                      {10, aTask("1", "submitted"), aTask("1", "working"), 10, 15, "working", ""},
		"the most":                         {50, aTask("1", "working"), aTask("1", "working"), 50, 55, "working", ""},
		"more than the most":               {5000, aTask("1", "working"), aTask("1", "working"), 50, 55, "working", ""},
		"sending counts":                   {20, late(aTask("1", "working"), 18*time.Second), aTask("1", "working"), 20, 25, "working", ""},
		"sending alone takes longer":       {20, late(aTask("1", "working"), 26*time.Second), aTask("1", "working"), 26, 26, "working", ""},
		"until it is done":                 {nil, aTask("1", "working"), aTask("1", "completed"), 0, 5, "completed", ""},
		"until it asks":                    {nil, aTask("1", "working"), aTask("1", "input-required"), 0, 5, "input-required", ""},
		"it is done at once":               {nil, aTask("1", "completed"), answer{}, 0, 0, "completed", ""},
		"the whole call":                   {50, late(aTask("1", "working"), 59*time.Second), answer{}, 58, 58, "", "took longer than 58s"},
		"too short a time":                 {0.5, answer{}, answer{}, 0, 0, "", "at least 1"},
		"what it is asked is refused":      {nil, aTask("1", "working"), answer{status: 404}, 0, 5, "", "404"},
		"it does not answer in that while": {30, aTask("1", "working"), answer{status: 503}, 15, 35, "working", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWire(t, map[string][]answer{"message/send": {c.send}, "tasks/get": {c.get}})
				arguments := map[string]any{"name": "bob", "prompt": "hi"}
				if c.timeout != nil {
					arguments["timeout_seconds"] = c.timeout
				}
				out, failed := w.tools()("peer_send_message", arguments)
				took := time.Since(w.began).Seconds()
				if took < float64(c.low) || took > float64(c.high) {
					t.Errorf("it took %v s", took)
				}
				if c.fails != "" {
					if !strings.Contains(failed, c.fails) {
						t.Errorf("%v %q", out, failed)
					}
					return
				}
				if out["state"] != c.state || out["task_id"] != "1" || out["context_id"] != "c" {
					t.Errorf("%v %q", out, failed)
				}
			})
		})
	}
}

// TestLooksAtATask looks every five seconds in the end, and more seldom the more looks have failed.
func TestLooksAtATask(t *testing.T) {
	t.Parallel()
	broken := answer{status: 500}
	for name, c := range map[string]struct {
		get   []answer
		gaps  []float64 // the shortest pause before each look, in seconds
		most  float64
		state string
	}{
		"it works":           {[]answer{aTask("1", "working")}, make([]float64, 10), 5, "working"},
		"it breaks":          {[]answer{broken, broken, broken, aTask("1", "completed")}, []float64{0, 5, 10, 15}, 20, "completed"},
		"it breaks and goes": {[]answer{broken, aTask("1", "working"), broken, aTask("1", "completed")}, []float64{0, 5, 0, 5}, 10, "completed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWire(t, map[string][]answer{"message/send": {aTask("1", "working")}, "tasks/get": c.get})
				out, failed := w.tools()("peer_send_message", map[string]any{"name": "bob", "prompt": "hi"})
				if out["state"] != c.state {
					t.Errorf("%v %q", out, failed)
				}
				looks := w.calls["tasks/get"]
				if len(looks) < len(c.gaps) {
					t.Fatalf("looks at %v", looks)
				}
				before := time.Duration(0)
				for i, at := range looks {
					gap := (at - before).Seconds()
					if before = at; i < len(c.gaps) && gap < c.gaps[i] || gap > c.most {
						t.Errorf("look %d after %v s", i, gap)
					}
				}
			})
		})
	}
}

// TestConnects tries five times to reach a peer, with pauses; once it was reached, a message is not sent again.
func TestConnects(t *testing.T) {
	t.Parallel()
	refused := answer{err: &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}}
	broken := answer{err: &net.OpError{Op: "read", Net: "tcp", Err: errors.New("connection reset")}}
	for name, c := range map[string]struct {
		answers []answer
		sent    []time.Duration
		fails   string
	}{
		"never":             {[]answer{refused}, []time.Duration{0, 2, 6, 14, 29}, "could not be reached"},
		"at the fifth time": {[]answer{refused, refused, refused, refused, aTask("1", "completed")}, []time.Duration{0, 2, 6, 14, 29}, ""},
		"at the second":     {[]answer{refused, aTask("1", "completed")}, []time.Duration{0, 2}, ""},
		"it breaks off":     {[]answer{broken}, []time.Duration{0}, "could not be reached"},
		"it is busy":        {[]answer{{status: 503}}, []time.Duration{0}, "503"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				for i := range c.sent {
					c.sent[i] *= time.Second
				}
				w := newWire(t, map[string][]answer{"message/send": c.answers})
				out, failed := w.tools()("peer_start_task", map[string]any{"name": "bob", "prompt": "hi"})
				if !strings.Contains(failed, c.fails) || (c.fails == "") != (out["task_id"] == "1") {
					t.Errorf("%v %q", out, failed)
				}
				if got := w.calls["message/send"]; !slices.Equal(got, c.sent) {
					t.Errorf("sent after %v", got)
				}
			})
		})
	}
}

// TestBareMessages come from a peer that answers without a task.
func TestBareMessages(t *testing.T) {
	t.Parallel()
	words := func(s string) any { return map[string]any{"kind": "text", "text": s} }
	data := map[string]any{"kind": "data", "data": map[string]any{"n": 1}}
	for name, c := range map[string]struct {
		parts    []any
		response any
		others   string
	}{
		"one text":  {[]any{words("hi")}, "hi", "<nil>"},
		"two":       {[]any{words("a"), data, words("b")}, "a\nb", fmt.Sprint([]any{data})},
		"no text":   {[]any{data}, nil, fmt.Sprint([]any{data})},
		"no a part": {nil, nil, "<nil>"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWire(t, map[string][]answer{"message/send": {{result: map[string]any{"kind": "message", "messageId": "m", "role": "agent", "contextId": "c", "parts": c.parts}}}})
			out, failed := w.tools()("peer_send_message", map[string]any{"name": "bob", "prompt": "hi"})
			if out["state"] != "completed" || out["context_id"] != "c" || out["task_id"] != "" || out["response"] != c.response || fmt.Sprint(out["parts"]) != c.others || out["error"] != nil {
				t.Errorf("%v %q", out, failed)
			}
			if len(w.calls["tasks/get"]) != 0 {
				t.Error("it looks for a task")
			}
			// There is no task whose answer could be asked for later.
			if out, failed := w.tools()("peer_start_task", map[string]any{"name": "bob", "prompt": "hi"}); out["state"] != "completed" || out["response"] != c.response {
				t.Errorf("%v %q", out, failed)
			}
		})
	}
}

// TestManyTasks has the oldest task that has ended be forgotten for the one that is too many; those that work are kept.
func TestManyTasks(t *testing.T) {
	t.Parallel()
	const most = 1024
	w := newWire(t, map[string][]answer{})
	one := func(id int) answer { return aTask(fmt.Sprint(id), []string{"working", "completed"}[id%2]) }
	for id := range most + 2 {
		w.answers["message/send"] = append(w.answers["message/send"], one(id))
	}
	call := w.tools()
	start := func() {
		t.Helper()
		if out, failed := call("peer_start_task", map[string]any{"name": "bob", "prompt": "hi"}); failed != "" {
			t.Fatal(out, failed)
		}
	}
	known := func(id int) bool {
		t.Helper()
		w.answers["tasks/get"] = []answer{one(id)}
		_, failed := call("peer_get_task", map[string]any{"task_id": fmt.Sprint(id)})
		if failed != "" && !strings.Contains(failed, "there is no task") {
			t.Error(failed)
		}
		return failed == ""
	}
	for range most {
		start()
	}
	for more := range 3 {
		for id, want := range map[int]bool{0: true, 1: more < 1, 2: true, 3: more < 2, 4: true, 5: true, most - 1: true, most - 1 + more: true} {
			if known(id) != want {
				t.Errorf("with %d too many, the task %d is known: %t", more, id, !want)
			}
		}
		if more < 2 {
			start()
		}
	}
}

// TestTasksThatAllWork are no reason to remember more of them: the oldest is forgotten.
func TestTasksThatAllWork(t *testing.T) {
	t.Parallel()
	const most = 1024
	w := newWire(t, map[string][]answer{})
	for id := range most + 1 {
		w.answers["message/send"] = append(w.answers["message/send"], aTask(fmt.Sprint(id), "working"))
	}
	call := w.tools()
	for range most + 1 {
		if out, failed := call("peer_start_task", map[string]any{"name": "bob", "prompt": "hi"}); failed != "" {
			t.Fatal(out, failed)
		}
	}
	for id, want := range map[int]bool{0: false, 1: true, most: true} {
		w.answers["tasks/get"] = []answer{aTask(fmt.Sprint(id), "working")}
		if _, failed := call("peer_get_task", map[string]any{"task_id": fmt.Sprint(id)}); (failed == "") != want {
			t.Errorf("task %d: %q", id, failed)
		}
	}
}
