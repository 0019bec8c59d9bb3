package agent_test

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"agentenv/agent"
	"agentenv/fault"
	"agentenv/store/doc"
)

var errAbort = http.ErrAbortHandler

func answered(status int, body string) raw {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		io.WriteString(w, body)
	}
}

// TestFaults has agents that break the turn; each must be a clear error of its kind, within the turn's time. Those that let the time run out have
// a clock of their own.
func TestFaults(t *testing.T) {
	t.Parallel()
	submitted := func(int, *doc.Object) any { return task("submitted") }
	always := func(v any) func(int, *doc.Object) any { return func(int, *doc.Object) any { return v } }
	cases := map[string]struct {
		send, get, stream func(int, *doc.Object) any
		timeout           time.Duration
		kind              string
		fault             fault.Kind
		says              []string
		cancelled         bool
	}{
		"dies before it names a task": {send: always(raw(func(http.ResponseWriter, *http.Request) { panic(errAbort) })),
			kind: agent.TurnUnreachable, fault: fault.Timeout, says: []string{"the connection broke off"}},
		"never answers": {send: always(hang), timeout: 100 * time.Millisecond,
			kind: agent.TurnTimeout, fault: fault.Timeout, says: []string{"within 0.1 s", "never named a task"}},
		"answers 500": {send: always(answered(500, "boom\nbang")), kind: agent.TurnRPC, fault: fault.Unavailable, says: []string{"message/send answered HTTP 500: boom bang"}},
		"answers 404": {send: always(answered(404, "")), kind: agent.TurnRPC, fault: fault.Unavailable, says: []string{"answered HTTP 404"}},
		"answers 401": {send: always(answered(401, "")), kind: agent.TurnRPC, fault: fault.Denied, says: []string{"credentials"}},
		"redirects": {send: always(raw(func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://other/", http.StatusTemporaryRedirect)
		})),
			kind: agent.TurnRPC, fault: fault.Unavailable, says: []string{"HTTP 307", "redirect"}},
		"answers garbage":       {send: always(answered(200, "<html>")), kind: agent.TurnProtocol, fault: fault.Unavailable, says: []string{"no JSON object: <html>"}},
		"answers an array":      {send: always(answered(200, "[]")), kind: agent.TurnProtocol, fault: fault.Unavailable, says: []string{"no JSON object"}},
		"answers no result":     {send: always(answered(200, `{"jsonrpc":"2.0","id":"1"}`)), kind: agent.TurnProtocol, fault: fault.Unavailable, says: []string{"without a result"}},
		"answers no task":       {send: always(doc.Of("kind", "task")), kind: agent.TurnProtocol, fault: fault.Unavailable, says: []string{"no id"}},
		"answers neither":       {send: always(doc.Of("kind", "song")), kind: agent.TurnProtocol, fault: fault.Unavailable, says: []string{"neither a task nor a message"}},
		"refuses":               {send: always(rpcFault{-32602, "parts are empty"}), kind: agent.TurnRPC, fault: fault.Invalid, says: []string{"-32602", "parts are empty"}},
		"takes no such content": {send: always(rpcFault{-32005, "no images"}), kind: agent.TurnRPC, fault: fault.Unsupported, says: []string{"no images"}},
		"is in trouble":         {send: always(rpcFault{-32603, "oh"}), kind: agent.TurnRPC, fault: fault.Unavailable, says: []string{"oh"}},
		"errs in a text":        {send: always(answered(200, `{"jsonrpc":"2.0","id":"1","error":"out of credit"}`)), kind: agent.TurnRPC, fault: fault.Unavailable, says: []string{"out of credit"}},
		"errs without message":  {send: always(answered(200, `{"jsonrpc":"2.0","id":null,"error":{"code":-32603,"data":"disk full"}}`)), kind: agent.TurnRPC, fault: fault.Unavailable, says: []string{"-32603", "disk full"}},
		"answers another":       {send: always(answered(200, `{"jsonrpc":"2.0","id":"2","result":{"kind":"task","id":"T","contextId":"C","status":{"state":"completed"}}}`)), kind: agent.TurnProtocol, fault: fault.Unavailable, says: []string{`answered for another request (id 2, not "1")`}},
		"errs for another":      {send: always(answered(200, `{"jsonrpc":"2.0","id":7,"error":{"code":-32603,"message":"no"}}`)), kind: agent.TurnProtocol, fault: fault.Unavailable, says: []string{"id 7"}},
		"streams another's": {stream: always(stream(func(emit func(any), gone <-chan struct{}) {
			emit("data: " + string(response("9", update("completed"))) + "\n\n")
			<-gone
		})), kind: agent.TurnProtocol, fault: fault.Unavailable, says: []string{"message/stream was answered for another request"}},
		"sends a bomb": {send: always(raw(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			for range 4 {
				io.WriteString(z, repeat(" ", 1<<20))
			}
			z.Close()
		})), kind: agent.TurnProtocol, fault: fault.Unavailable, says: []string{"larger than 1 MiB"}},
		"talks too much": {stream: always(stream(func(emit func(any), gone <-chan struct{}) {
			for i := range 40 {
				o := update("working", text(repeat("x", 64<<10)))
				o.Set("metadata", doc.Of(fmt.Sprint(i), repeat("y", 64<<10)))
				o.Obj("status").Obj("message").Set("messageId", fmt.Sprint(i))
				emit(o)
			}
			<-gone
		})), get: always(task("working")), timeout: 500 * time.Millisecond, kind: agent.TurnTimeout, fault: fault.Timeout, cancelled: true},
		"forgets a task": {send: submitted, get: always(rpcFault{-32001, "Task not found"}), kind: agent.TurnProtocol, fault: fault.Unavailable,
			says: []string{"does not know task T any more", "-32001"}},
		"has no status": {send: submitted, get: always(doc.Of("kind", "task", "id", "T", "contextId", "C")), kind: agent.TurnProtocol, fault: fault.Unavailable,
			says: []string{"no status.state"}, cancelled: true},
		"mixes tasks up": {send: submitted, get: always(task("completed").Set("id", "U")), kind: agent.TurnProtocol, fault: fault.Unavailable,
			says: []string{`"U" instead of "T"`}, cancelled: true},
		"refuses polls": {send: submitted, get: always(answered(403, "")), kind: agent.TurnRPC, fault: fault.Denied, says: []string{"tasks/get"}, cancelled: true},
		"works for ever": {send: submitted, get: always(task("working", text("so far"))), timeout: 200 * time.Millisecond, kind: agent.TurnTimeout, fault: fault.Timeout,
			says: []string{"task T", "within 0.2 s", "working"}, cancelled: true},
		"streams for ever": {stream: always(stream(func(emit func(any), gone <-chan struct{}) {
			for {
				emit(update("working", text("and so on")))
				select {
				case <-gone:
					return
				case <-time.After(time.Millisecond):
				}
			}
		})), timeout: 200 * time.Millisecond, kind: agent.TurnTimeout, fault: fault.Timeout, says: []string{"task T"}, cancelled: true},
		"breaks off and is stuck": {stream: always(stream(func(emit func(any), _ <-chan struct{}) { emit(update("working")) })), get: always(task("working")),
			timeout: 300 * time.Millisecond, kind: agent.TurnTimeout, fault: fault.Timeout, says: []string{"its stream had ended before (EOF)"}, cancelled: true},
		"falls silent": {stream: always(stream(func(emit func(any), gone <-chan struct{}) { emit(update("working")); <-gone })), get: always(task("working")),
			timeout: 300 * time.Millisecond, kind: agent.TurnTimeout, fault: fault.Timeout, says: []string{"task T"}, cancelled: true},
		"streams nothing": {stream: always(stream(func(_ func(any), gone <-chan struct{}) { <-gone })), timeout: 100 * time.Millisecond, kind: agent.TurnTimeout,
			fault: fault.Timeout, says: []string{"never named a task"}},
		"ends an empty stream": {stream: always(stream(func(func(any), <-chan struct{}) {})), kind: agent.TurnProtocol, fault: fault.Unavailable,
			says: []string{"ended before it named a task"}},
		"streams garbage": {stream: always(stream(func(emit func(any), gone <-chan struct{}) { emit("data: garbage\n\n"); <-gone })), kind: agent.TurnProtocol,
			fault: fault.Unavailable, says: []string{"no JSON object: garbage"}},
		"streams an error": {stream: always(stream(func(emit func(any), gone <-chan struct{}) {
			emit(update("working"))
			emit(rpcFault{-32603, "oh"})
			<-gone
		})),
			kind: agent.TurnRPC, fault: fault.Unavailable, says: []string{"-32603", "oh"}, cancelled: true},
		"streams one endless event": {stream: always(stream(func(emit func(any), gone <-chan struct{}) {
			emit("data: ")
			for {
				select {
				case <-gone:
					return
				default:
					emit(repeat("x", 64<<10))
				}
			}
		})), kind: agent.TurnProtocol, fault: fault.Unavailable, says: []string{"larger than 1 MiB"}},
		"sends a file of 2 GB": {send: submitted, get: always(raw(func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, `{"jsonrpc":"2.0","id":"poll","result":{"kind":"task","id":"T","status":{"state":"completed","message":{"role":"agent","parts":[{"kind":"file","file":{"bytes":"`)
			piece := []byte(repeat("A", 64<<10))
			for range 2 << 30 / len(piece) {
				if _, err := w.Write(piece); err != nil {
					return
				}
			}
		})), kind: agent.TurnProtocol, fault: fault.Unavailable, says: []string{"larger than 1 MiB"}, cancelled: true},
		"announces 2 GB": {send: always(raw(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "2147483648")
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		})), kind: agent.TurnProtocol, fault: fault.Unavailable, says: []string{"larger than 1 MiB"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &script{methods: map[string]func(int, *doc.Object) any{"message/send": c.send, "tasks/get": c.get, "message/stream": c.stream,
				"tasks/cancel": always(task("canceled"))}}
			if c.stream != nil {
				s.card = streaming
			}
			check := func(t *testing.T, client *agent.Client, e agent.Endpoint) {
				tn := turn("hi")
				if c.timeout > 0 {
					tn.Timeout = c.timeout
				}
				_, err := client.Send(t.Context(), e, tn)
				te := turnError(t, err, c.kind)
				if k := fault.KindOf(err); k != c.fault {
					t.Errorf("the fault kind is %s, want %s", k, c.fault)
				}
				for _, want := range append(c.says, e.URL) {
					if !strings.Contains(err.Error(), want) {
						t.Errorf("%q does not say %q", err, want)
					}
				}
				if strings.Contains(err.Error(), "\n") {
					t.Errorf("%q has more than one line", err)
				}
				if got := s.count("tasks/cancel") > 0; got != c.cancelled {
					t.Errorf("cancelled: %v", got)
				}
				if n := len(te.Partial.Text) + te.Partial.Metadata.Len()<<16; n > 1<<20 {
					t.Errorf("%d bytes were kept", n)
				}
				if c.cancelled && te.TaskID != "T" {
					t.Errorf("task %q", te.TaskID)
				}
			}
			if c.timeout == 0 {
				client, e := serve(t, s)
				check(t, client, e)
				return
			}
			synctest.Test(t, func(t *testing.T) {
				client, e, _ := bubble(t, s)
				check(t, client, e)
			})
		})
	}
}

// TestPartial is a turn that runs out of time: what the agent said until then is not lost, however it was said.
func TestPartial(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]*script{
		"in the history of a polled task": {methods: map[string]func(int, *doc.Object) any{
			"message/send": func(int, *doc.Object) any { return task("submitted") },
			"tasks/get": func(int, *doc.Object) any {
				return task("working", text("two")).Set("history", []any{doc.Of("role", "user", "messageId", "u", "parts", []any{text("hi")}), said("m1", text("one"))})
			}}},
		"in a stream": {card: streaming, methods: map[string]func(int, *doc.Object) any{"message/stream": func(int, *doc.Object) any {
			return stream(func(emit func(any), gone <-chan struct{}) {
				emit(task("working"))
				for _, word := range []string{"one", "two", "two"} {
					emit(doc.Of("kind", "status-update", "taskId", "T", "status", doc.Of("state", "working", "message", said("m"+word, text(word)))))
				}
				<-gone
			})
		}, "tasks/get": func(int, *doc.Object) any { return task("working") }}},
		"in the answer to the cancel": {methods: map[string]func(int, *doc.Object) any{
			"message/send": func(int, *doc.Object) any { return task("working") },
			"tasks/get":    func(int, *doc.Object) any { return rpcFault{-32603, "busy"} },
			"tasks/cancel": func(int, *doc.Object) any {
				return task("canceled").Set("artifacts", []any{doc.Of("artifactId", "a", "parts", []any{text("one"), text("two")})})
			}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				client, e, _ := bubble(t, s)
				tn := turn("hi")
				tn.Timeout = 300 * time.Millisecond
				_, err := client.Send(t.Context(), e, tn)
				te := turnError(t, err, agent.TurnTimeout)
				if te.Partial.Text != "one\ntwo" || te.Partial.State != "working" || te.Partial.TaskID != "T" {
					t.Errorf("%+v", te.Partial)
				}
			})
		})
	}
}

func TestGivenUp(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancelCause(t.Context())
	s := &script{methods: map[string]func(int, *doc.Object) any{
		"message/send": func(int, *doc.Object) any { return task("submitted") },
		"tasks/get": func(int, *doc.Object) any {
			stop(errors.New("the run was cancelled"))
			return task("working")
		},
		"tasks/cancel": func(int, *doc.Object) any { return task("canceled") },
	}}
	client, e := serve(t, s)
	_, err := client.Send(ctx, e, turn("hi"))
	turnError(t, err, agent.TurnCanceled)
	if !fault.Is(err, fault.Canceled) || !strings.Contains(err.Error(), "the run was cancelled") || s.count("tasks/cancel") != 1 {
		t.Error(err)
	}
}

func TestNoTokenInErrors(t *testing.T) {
	t.Parallel()
	client, e := serve(t, &script{methods: map[string]func(int, *doc.Object) any{"message/send": func(int, *doc.Object) any {
		return raw(func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusInternalServerError)
			io.WriteString(w, repeat("x", 490)+r.Header.Get("Authorization"))
		})
	}}})
	e.Token = "t0psecret-t0psecret"
	if _, err := client.Send(t.Context(), e, turn("hi")); err == nil || strings.Contains(err.Error(), "t0p") {
		t.Error(err)
	}
}
