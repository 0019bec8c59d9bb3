package a2a_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"agentenv/protocol/a2a"
)

func TestErrorsOfTheFront(t *testing.T) {
	t.Parallel()
	p := serve(t, answering(), a2a.Settings{MaxBody: 4096})
	done := p.send(sending{text: "hi"}).text("id")
	message := func(with string) string {
		return `{"jsonrpc":"2.0","id":1,"method":"message/send","params":{"message":{"messageId":"m","role":"user",` + with + `}}}`
	}
	call := func(method, params string) string {
		return `{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":` + params + `}`
	}
	parts := `"parts":[{"kind":"text","text":"x"}]`
	for _, c := range []struct {
		name, body string
		code       int
		id         string // as echoed, "" = absent
		says       string
	}{
		{"no JSON", `{`, -32700, "", ""},
		{"two values", `{} {}`, -32700, "", ""},
		{"empty", ``, -32700, "", ""},
		{"a batch", `[{"jsonrpc":"2.0","id":1,"method":"tasks/get"}]`, -32600, "", "batch"},
		{"a string", `"x"`, -32600, "", ""},
		{"no id", `{"jsonrpc":"2.0","method":"tasks/get","params":{"id":"x"}}`, -32600, "", "id"},
		{"null id", `{"jsonrpc":"2.0","id":null,"method":"tasks/get"}`, -32600, "", "id"},
		{"an id that is no integer", `{"jsonrpc":"2.0","id":1.5,"method":"tasks/get"}`, -32600, "", "id"},
		{"a boolean id", `{"jsonrpc":"2.0","id":true,"method":"tasks/get"}`, -32600, "", "id"},
		{"another version", `{"jsonrpc":"1.0","id":"a","method":"tasks/get"}`, -32600, `"a"`, "jsonrpc"},
		{"no version", `{"id":"a","method":"tasks/get"}`, -32600, `"a"`, "jsonrpc"},
		{"no method", `{"jsonrpc":"2.0","id":"a"}`, -32600, `"a"`, "method"},
		{"an unknown method", `{"jsonrpc":"2.0","id":123456789012345678901,"method":"tasks/list"}`, -32601, `123456789012345678901`, ""},
		{"params that are a list", call("tasks/get", `[]`), -32602, "1", "params"},
		{"no params", `{"jsonrpc":"2.0","id":1,"method":"message/send"}`, -32602, "1", "message"},
		{"no message", call("message/send", `{}`), -32602, "1", "message"},
		{"a message that is a text", call("message/send", `{"message":"x"}`), -32602, "1", "message"},
		{"no parts", message(`"contextId":"c"`), -32602, "1", "parts"},
		{"empty parts", message(`"parts":[]`), -32602, "1", "parts"},
		{"a part of no kind", message(`"parts":[{"text":"x"}]`), -32602, "1", "parts[0]"},
		{"a part of another kind", message(`"parts":[{"kind":"text","text":"x"},{"kind":"video"}]`), -32602, "1", "parts[1]"},
		{"a text that is a number", message(`"parts":[{"kind":"text","text":5}]`), -32602, "1", "text"},
		{"a file with both", message(`"parts":[{"kind":"file","file":{"bytes":"eA==","uri":"http://h"}}]`), -32602, "1", "exactly one"},
		{"a file with neither", message(`"parts":[{"kind":"file","file":{}}]`), -32602, "1", "exactly one"},
		{"data that is a list", message(`"parts":[{"kind":"data","data":[]}]`), -32602, "1", "data"},
		{"a context that is a number", message(`"contextId":5,` + parts), -32602, "1", "contextId"},
		{"a context of many bytes", message(`"contextId":"` + strings.Repeat("c", 1025) + `",` + parts), -32602, "1", "contextId is longer"},
		{"a task id of many bytes", call("tasks/get", `{"id":"`+strings.Repeat("c", 1025)+`"}`), -32602, "1", "id is longer"},
		{"no message id", `{"jsonrpc":"2.0","id":1,"method":"message/send","params":{"message":{"role":"user",` + parts + `}}}`, -32602, "1", "messageId"},
		{"another role", `{"jsonrpc":"2.0","id":1,"method":"message/send","params":{"message":{"messageId":"m","role":"boss",` + parts + `}}}`, -32602, "1", "role"},
		{"blocking that is a text", call("message/send", `{"message":{"messageId":"m","role":"user",`+parts+`},"configuration":{"blocking":"no"}}`), -32602, "1", "blocking"},
		{"a task that ended", message(`"taskId":"` + done + `",` + parts), -32602, "1", done + " is completed"},
		{"a task nobody knows", message(`"taskId":"t",` + parts), -32001, "1", `"t"`},
		{"get without id", call("tasks/get", `{}`), -32602, "1", "id"},
		{"get of an unknown task", call("tasks/get", `{"id":"t"}`), -32001, "1", `"t"`},
		{"a negative history", call("tasks/get", `{"id":"`+done+`","historyLength":-1}`), -32602, "1", "historyLength"},
		{"cancel without id", call("tasks/cancel", `{}`), -32602, "1", "id"},
		{"cancel of an unknown task", call("tasks/cancel", `{"id":"t"}`), -32001, "1", `"t"`},
		{"cancel of a task that ended", call("tasks/cancel", `{"id":"`+done+`"}`), -32002, "1", "completed"},
		{"a stream of an agent that does not", call("message/stream", `{"message":{"messageId":"m","role":"user",`+parts+`}}`), -32004, "1", "stream"},
		{"resubscribing to an agent that does not stream", call("tasks/resubscribe", `{"id":"`+done+`"}`), -32004, "1", "stream"},
		{"an extended card", call("agent/getAuthenticatedExtendedCard", `{}`), -32004, "1", ""},
		{"push notifications", call("tasks/pushNotificationConfig/set", `{}`), -32003, "1", ""},
		{"a body over the limit", message(`"parts":[{"kind":"text","text":"` + strings.Repeat("x", 5000) + `"}]`), -32600, "", "4096 bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			status, text, header := p.do("POST", "/a2a", c.body)
			var got struct {
				JSONRPC string
				ID      json.RawMessage
				Error   struct {
					Code    int
					Message string
				}
				Result any
			}
			if err := json.Unmarshal([]byte(text), &got); err != nil {
				t.Fatalf("%v: %s", err, text)
			}
			if status != 200 || header.Get("Content-Type") != "application/json" || got.JSONRPC != "2.0" || got.Result != nil {
				t.Errorf("status %d, %v: %s", status, header, text)
			}
			if got.Error.Code != c.code || string(got.ID) != c.id || !strings.Contains(got.Error.Message, c.says) || got.Error.Message == "" {
				t.Errorf("%s", text)
			}
		})
	}
}

func TestIdsAreEchoedWithTheirType(t *testing.T) {
	t.Parallel()
	p := serve(t, answering(), a2a.Settings{})
	for _, id := range []string{`"x"`, `0`, `-1`, `123456789012345678901`, `""`} {
		_, text, _ := p.do("POST", "/a2a", `{"jsonrpc":"2.0","id":`+id+`,"method":"message/send","params":`+sending{text: "hi"}.params()+`}`)
		if !strings.Contains(text, `"id":`+id+`,"result"`) {
			t.Errorf("%s: %s", id, text)
		}
	}
}

func TestOtherMethodsOnTheRoutes(t *testing.T) {
	t.Parallel()
	p := serve(t, answering(), a2a.Settings{})
	for _, c := range []struct {
		method, path string
		status       int
		allow        string
	}{
		{"GET", "/a2a", 405, "POST"}, {"PUT", "/a2a", 405, "POST"}, {"POST", "/health", 405, "GET"}, {"GET", "/nope", 404, ""},
		{"POST", "/ext/mcp-config", 404, ""}, {"HEAD", "/health", 200, ""},
	} {
		status, text, header := p.do(c.method, c.path, "")
		if status != c.status || header.Get("Allow") != c.allow {
			t.Errorf("%s %s: %d %q %s", c.method, c.path, status, header.Get("Allow"), text)
		}
		if c.method != "HEAD" && (parse(t, text).text("detail") == "" || parse(t, text).text("code") == "<nil>") {
			t.Errorf("%s %s: %s", c.method, c.path, text)
		}
	}
}

func TestPartsComeBackAsTheyWere(t *testing.T) {
	t.Parallel()
	p := serve(t, a2a.Agent{Identity: identity(), Run: func(_ context.Context, r *a2a.Request) (a2a.Result, error) {
		return a2a.Result{Parts: r.Parts}, nil
	}}, a2a.Settings{})
	parts := `[{"kind":"text","metadata":{"k":1},"text":"<&> é \u2028"},{"data":{"big":12345678901234567890,"f":1.0,"list":[1,null,{}]},"kind":"data"},` +
		`{"file":{"bytes":"eA==","mimeType":"text/plain","name":"a.txt"},"kind":"file"},{"file":{"uri":"https://h/x"},"kind":"file","metadata":{"a":[]}}]`
	task := object(p.rpc("message/send", `{"message":{"messageId":"m","role":"user","parts":`+parts+`}}`).at("result").(map[string]any))
	for _, at := range [][]any{{"status", "message", "parts"}, {"history", 0, "parts"}} {
		got, _ := json.Marshal(task.at(at...))
		want, _ := json.Marshal(json.RawMessage(parts))
		var a, b any
		for text, v := range map[*any][]byte{&a: got, &b: want} {
			*text = parse(t, `{"v":`+string(v)+`}`).at("v")
		}
		if fmt.Sprint(a) != fmt.Sprint(b) {
			t.Errorf("%v:\n got %s\nwant %s", at, got, want)
		}
	}
	if task.text("history", 0, "taskId") != task.text("id") || task.text("history", 0, "contextId") != task.text("contextId") {
		t.Errorf("%v", task)
	}
}

func TestNullFieldsAreNotOnTheWire(t *testing.T) {
	t.Parallel()
	p := serve(t, answering(), a2a.Settings{})
	_, text, _ := p.do("POST", "/a2a", `{"jsonrpc":"2.0","id":"1","method":"message/send","params":`+sending{text: "hi"}.params()+`}`)
	if strings.Contains(text, "null") || strings.Contains(text, `"metadata"`) || strings.Contains(text, `"artifacts"`) {
		t.Error(text)
	}
}

func FuzzFront(f *testing.F) {
	f.Add([]byte(`{"jsonrpc":"2.0","id":1,"method":"message/send","params":{"message":{"messageId":"m","role":"user","parts":[{"kind":"file","file":{"uri":"u"}}]},"configuration":{"blocking":true,"historyLength":0}}}`))
	f.Add([]byte(`{"jsonrpc":"2.0","id":"x","method":"message/stream","params":{"message":{"messageId":"m","role":"user","parts":[{"kind":"data","data":{"a":1e999}}]}}}`))
	f.Add([]byte(`{"jsonrpc":"2.0","id":12345678901234567890,"method":"tasks/get","params":{"id":"t"}}`))
	f.Add([]byte(`[]`))
	server, err := a2a.New(context.Background(), a2a.Agent{Identity: identity(), Stream: func(_ context.Context, r *a2a.Request, emit a2a.Emit) (a2a.Result, error) {
		return a2a.Result{Parts: r.Parts}, emit(a2a.Progress{Parts: r.Parts})
	}}, a2a.Settings{StagingMaxBytes: -1})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = server.Close(context.Background()) })
	f.Fuzz(func(t *testing.T, body []byte) {
		w := httptest.NewRecorder()
		server.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/a2a", strings.NewReader(string(body))))
		text := w.Body.String()
		if w.Code != 200 {
			t.Fatalf("status %d: %s", w.Code, text)
		}
		if w.Header().Get("Content-Type") == "application/json" {
			o := parse(t, text)
			if o.text("jsonrpc") != "2.0" || (o["result"] == nil) == (o["error"] == nil) {
				t.Fatal(text)
			}
		}
	})
}
