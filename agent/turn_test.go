package agent_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"agentenv/agent"
	"agentenv/fault"
	"agentenv/store/doc"
)

// TestTurnEnds sends one turn to agents that end it in every way, once with polls and once with a stream.
func TestTurnEnds(t *testing.T) {
	t.Parallel()
	two := int64(2)
	cases := map[string]struct {
		end  *doc.Object // the task as it ends
		want agent.Reply
	}{
		"every text part counts": {task("completed", text("a"), text("b"), data("usage", doc.Of("tool_call_count", doc.Int(2)))),
			agent.Reply{State: "completed", LastText: "b", Text: "a\nb", ToolCalls: &two}},
		"failed": {task("failed", text("no"), data("error_type", "agent_error", "error_code", "echo.asked", "error_class", "E", "error_message", "asked")),
			agent.Reply{State: "failed", LastText: "no", Text: "no", ErrorType: "agent_error", ErrorCode: "echo.asked", ErrorClass: "E", ErrorMessage: "asked"}},
		"canceled":             {task("canceled", text("stopped")), agent.Reply{State: "canceled", LastText: "stopped", Text: "stopped"}},
		"rejected":             {task("rejected"), agent.Reply{State: "rejected"}},
		"asks for input":       {task("input-required", text("which?")), agent.Reply{State: "input-required", LastText: "which?", Text: "which?"}},
		"asks for credentials": {task("auth-required"), agent.Reply{State: "auth-required"}},
		"a later report wins": {task("completed", data("tool_call_count", doc.Int(1), "error_code", "x"), data("usage", doc.Of("tool_call_count", doc.Int(2)), "error_code", "y"), text("t")),
			agent.Reply{State: "completed", LastText: "t", Text: "t", ToolCalls: &two, ErrorCode: "y"}},
		"an answer in artifacts": {task("completed").Set("artifacts", []any{doc.Of("artifactId", "1", "parts", []any{text("x")}), doc.Of("artifactId", "2", "parts", []any{text("y")})}),
			agent.Reply{State: "completed", LastText: "y", Text: "x\ny"}},
		"structured output": {task("completed", text("t"), data("structured_output", doc.Of("n", doc.Int(1)))),
			agent.Reply{State: "completed", LastText: "t", Text: "t", Structured: doc.Of("n", doc.Int(1))}},
		"a report that is none": {task("completed", data("usage", "x", "tool_call_count", true, "error_type", doc.Int(1)), doc.Of("kind", "file", "file", doc.Of("uri", "u")), "no part"),
			agent.Reply{State: "completed"}},
	}
	for name, c := range cases {
		for _, streamed := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/streamed=%v", name, streamed), func(t *testing.T) {
				t.Parallel()
				s := &script{methods: map[string]func(int, *doc.Object) any{
					"message/send": func(int, *doc.Object) any { return task("submitted") },
					"tasks/get": func(n int, _ *doc.Object) any {
						if n < 3 {
							return task("working", text("wait"))
						}
						return c.end
					},
					"message/stream": func(int, *doc.Object) any {
						return stream(func(emit func(any), _ <-chan struct{}) {
							emit(task("submitted"))
							emit(update("working"))
							emit(update("working", text("so far")))
							if list := c.end.Arr("artifacts"); list != nil {
								emit(doc.Of("kind", "artifact-update", "taskId", "T", "contextId", "C", "artifact", list[0]))
							}
							emit(doc.Of("kind", "status-update", "taskId", "T", "contextId", "C", "status", c.end.Obj("status"), "final", true))
						})
					},
				}}
				if streamed {
					s.card = streaming
				}
				client, e := serve(t, s)
				var told []string
				tn := turn("hi")
				tn.OnTask = func(id string) { told = append(told, id) }
				got, err := client.Send(t.Context(), e, tn)
				if err != nil {
					t.Fatal(err)
				}
				w := c.want
				if got.State != w.State || got.LastText != w.LastText || got.Text != w.Text || got.ErrorType != w.ErrorType || got.ErrorCode != w.ErrorCode ||
					got.ErrorClass != w.ErrorClass || got.ErrorMessage != w.ErrorMessage || !doc.Equal(got.Structured, w.Structured) {
					t.Errorf("got %+v, want %+v", got, w)
				}
				if (got.ToolCalls == nil) != (w.ToolCalls == nil) || w.ToolCalls != nil && *got.ToolCalls != *w.ToolCalls {
					t.Errorf("tool calls: %v", got.ToolCalls)
				}
				if got.TaskID != "T" || got.ContextID != "C" || len(told) != 1 || told[0] != "T" {
					t.Errorf("task %q, context %q, told %v", got.TaskID, got.ContextID, told)
				}
				if streamed && s.count("message/send") != 0 || s.count("tasks/cancel") != 0 {
					t.Errorf("calls: %v", s.calls)
				}
			})
		}
	}
}

func TestTheMessageOnTheWire(t *testing.T) {
	t.Parallel()
	s := &script{methods: map[string]func(int, *doc.Object) any{
		"message/send": func(int, *doc.Object) any { return task("submitted") },
		"tasks/get":    func(int, *doc.Object) any { return task("completed", text("ok")) },
	}}
	client, e := serve(t, s)
	e.Token, e.Headers = "s3cr3t", map[string]string{"X-Provider": "p"}
	tn := turn("Say hi")
	tn.Metadata = doc.Of("k", doc.Int(1))
	if _, err := client.Send(t.Context(), e, tn); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range s.requests() {
		line, _ := doc.Compact(r)
		got = append(got, string(line))
	}
	want := []string{
		`{"jsonrpc":"2.0","id":"1","method":"message/send","params":{"message":{"messageId":"M","role":"user","contextId":"C","parts":[{"kind":"text","text":"Say hi"}],"metadata":{"k":1}},"configuration":{"blocking":false}}}`,
		`{"jsonrpc":"2.0","id":"poll","method":"tasks/get","params":{"id":"T"}}`,
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for _, h := range s.heads {
		if h.Get("Authorization") != "Bearer s3cr3t" || h.Get("X-Provider") != "p" || h.Get("Content-Type") != "application/json" {
			t.Errorf("headers: %v", h)
		}
	}
}

func TestBareMessage(t *testing.T) {
	t.Parallel()
	for name, result := range map[string]*doc.Object{
		"named":   doc.Of("kind", "message", "messageId", "x", "role", "agent", "contextId", "theirs", "parts", []any{text("a"), text("b")}),
		"unnamed": doc.Of("messageId", "x", "role", "agent", "contextId", "theirs", "parts", []any{text("a"), text("b")}),
	} {
		for _, c := range []string{"", streaming} {
			t.Run(name+c, func(t *testing.T) {
				t.Parallel()
				client, e := serve(t, &script{card: c, methods: map[string]func(int, *doc.Object) any{
					"message/send":   func(int, *doc.Object) any { return result },
					"message/stream": func(int, *doc.Object) any { return stream(func(emit func(any), _ <-chan struct{}) { emit(result) }) },
				}})
				tn := turn("hi")
				tn.ContextID = ""
				got, err := client.Send(t.Context(), e, tn)
				if err != nil || got.State != "completed" || got.Text != "a\nb" || got.TaskID != "" || got.ContextID != "theirs" {
					t.Errorf("%+v, %v", got, err)
				}
			})
		}
	}
}

// TestStreams follows streams that do not run to their end by themselves.
func TestStreams(t *testing.T) {
	t.Parallel()
	done := func(int, *doc.Object) any { return task("completed", text("done")) }
	cases := map[string]struct {
		stream func(int, *doc.Object) any
		send   func(int, *doc.Object) any
	}{
		"breaks off": {stream: func(int, *doc.Object) any {
			return stream(func(emit func(any), _ <-chan struct{}) { emit(update("working")); panic(errAbort) })
		}},
		"ends too soon": {stream: func(int, *doc.Object) any {
			return stream(func(emit func(any), _ <-chan struct{}) { emit(task("working")) })
		}},
		"is held back by a proxy": {stream: func(int, *doc.Object) any {
			return stream(func(emit func(any), gone <-chan struct{}) { emit(update("working")); <-gone })
		}},
		"says final and is not": {stream: func(int, *doc.Object) any {
			return stream(func(emit func(any), _ <-chan struct{}) { emit(update("working").Set("final", true)) })
		}},
		"is not there at all": {stream: func(int, *doc.Object) any { return rpcFault{-32004, "no streams"} }, send: done},
		"is an unknown method": {stream: func(int, *doc.Object) any { return rpcFault{-32601, "what?"} },
			send: func(int, *doc.Object) any { return task("submitted") }},
		"is a plain answer": {stream: func(int, *doc.Object) any { return task("working") }},
		"has comments, retries and CRLF": {stream: func(int, *doc.Object) any {
			return stream(func(emit func(any), _ <-chan struct{}) {
				emit(": hello\r\n\r\nretry: 5\r\nevent: x\r\ndata\r\n\r\n")
				emit("data: " + strings.Replace(string(response("1", update("completed", text("done")))), `,"result"`, ",\r\ndata:\"result\"", 1) + "\r\n\r\n")
			})
		}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client, e := serve(t, &script{card: streaming, methods: map[string]func(int, *doc.Object) any{
				"message/stream": c.stream, "message/send": c.send, "tasks/get": done}})
			got, err := client.Send(t.Context(), e, turn("hi"))
			if err != nil || got.State != "completed" || got.Text != "done" {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
}

func TestLargeEvent(t *testing.T) {
	t.Parallel()
	client, e := serve(t, &script{card: streaming, methods: map[string]func(int, *doc.Object) any{"message/stream": func(int, *doc.Object) any {
		return stream(func(emit func(any), _ <-chan struct{}) { emit(update("completed", text(repeat("x", 300<<10)))) })
	}}})
	got, err := client.Send(t.Context(), e, turn("hi"))
	if err != nil || len(got.Text) != 300<<10 {
		t.Error(err)
	}
}

func TestTooLargeToSend(t *testing.T) {
	t.Parallel()
	s := &script{}
	client, e := serve(t, s)
	for name, c := range map[string]struct {
		parts []*doc.Object
		names string
	}{
		"file": {[]*doc.Object{text("x"), doc.Of("kind", "file", "file", doc.Of("bytes", repeat("A", 1<<20), "name", "f")), doc.Of("kind", "file", "file", doc.Of("bytes", "AAAA"))}, "parts[2]"},
		"text": {[]*doc.Object{text(repeat("x", 1<<20))}, "larger than 1 MiB"},
	} {
		tn := turn("")
		tn.Parts = c.parts
		if _, err := client.Send(t.Context(), e, tn); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), c.names) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if len(s.requests()) != 0 {
		t.Error("something was sent")
	}
}

// TestNoTurnWaitsForAPoll is a turn that ends at once: it must not last as long as the longest pause.
func TestNoTurnWaitsForAPoll(t *testing.T) {
	t.Parallel()
	client, e := serve(t, &script{methods: map[string]func(int, *doc.Object) any{
		"message/send": func(int, *doc.Object) any { return task("submitted") },
		"tasks/get":    func(int, *doc.Object) any { return task("completed", text("ok")) },
	}})
	tn := turn("hi")
	tn.Poll = time.Hour
	if _, err := client.Send(t.Context(), e, tn); err != nil {
		t.Error(err)
	}
}
