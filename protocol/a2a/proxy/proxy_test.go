package proxy_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"agentenv/protocol/a2a"
	"agentenv/protocol/a2a/proxy"
)

const token = "a-token-nobody-can-guess"

type object = map[string]any

type driver struct {
	t   *testing.T
	url string
}

// serve serves the proxy with an MCP server that has the tool add, and others by name.
func serve(t *testing.T, o proxy.Options, tools ...string) driver {
	t.Helper()
	if o.Poll == 0 {
		o.Poll = 5 * time.Second
	}
	o.Dir, o.Skills = t.TempDir(), t.TempDir()
	s, err := a2a.New(t.Context(), proxy.Agent(o), a2a.Settings{StagingMaxBytes: -1})
	if err != nil {
		t.Fatal(err)
	}
	h := httptest.NewServer(s.Handler())
	d := driver{t, h.URL}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			t.Error(err)
		}
		h.Close()
	})
	server := mcp.NewServer(&mcp.Implementation{Name: "sums", Version: "1"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "add", Description: "Add"}, func(_ context.Context, _ *mcp.CallToolRequest, in struct{ A, B int }) (*mcp.CallToolResult, any, error) {
		if in.A < 0 {
			return nil, nil, fmt.Errorf("no debts")
		}
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: fmt.Sprint(in.A + in.B)}}}, nil, nil
	})
	for _, name := range tools {
		mcp.AddTool(server, &mcp.Tool{Name: name}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
			return &mcp.CallToolResult{}, nil, nil
		})
	}
	m := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &mcp.StreamableHTTPOptions{Stateless: true, JSONResponse: true}))
	t.Cleanup(m.Close)
	d.ext("/ext/mcp-config", object{"url": m.URL, "name": "sums"}, 200)
	return d
}

func (d driver) ext(path string, body object, want int) object {
	d.t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		d.t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(d.t.Context(), http.MethodPost, d.url+path, bytes.NewReader(text))
	if err != nil {
		d.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		d.t.Fatal(err)
	}
	defer resp.Body.Close()
	var out object
	_ = json.NewDecoder(resp.Body).Decode(&out)
	if resp.StatusCode != want {
		d.t.Errorf("%s %v: %d %v, want %d", path, body, resp.StatusCode, out, want)
	}
	return out
}

// call calls the proxy's operations with the token.
func (d driver) call(op string, body object, want int) object {
	d.t.Helper()
	body["token"] = token
	return d.ext("/ext/proxy/"+op, body, want)
}

func (d driver) rpc(method string, params object) object {
	d.t.Helper()
	out := d.ext("/a2a", object{"jsonrpc": "2.0", "id": "1", "method": method, "params": params}, 200)
	result, _ := out["result"].(object)
	if result == nil {
		d.t.Fatalf("%s: %v", method, out)
	}
	return result
}

// send sends a message without waiting and returns its task.
func (d driver) send(parts ...any) string {
	d.t.Helper()
	r := d.rpc("message/send", object{"configuration": object{"blocking": false}, "message": object{"kind": "message", "role": "user", "messageId": fmt.Sprint(time.Now().UnixNano()), "parts": parts}})
	return r["id"].(string)
}

// open sends a message and returns its task once its turn is open.
func (d driver) open(parts ...any) string {
	d.t.Helper()
	task := d.send(parts...)
	for range 600 {
		for _, one := range d.call("next", object{}, 200)["turns"].([]any) {
			if one.(object)["task_id"] == task {
				return task
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
	d.t.Fatal("the turn does not open")
	return ""
}

func words(s string) object { return object{"kind": "text", "text": s} }

// await polls for the end of a task.
func (d driver) await(task string) object {
	d.t.Helper()
	for range 600 {
		r := d.rpc("tasks/get", object{"id": task})
		switch state := r["status"].(object)["state"]; state {
		case "submitted", "working":
			time.Sleep(20 * time.Millisecond)
		default:
			return r["status"].(object)
		}
	}
	d.t.Fatal("the task does not end")
	return nil
}

// TestAWholeTurn claims, sees one turn, runs a command, replies.
func TestAWholeTurn(t *testing.T) {
	t.Parallel()
	d := serve(t, proxy.Options{})
	d.call("next", object{}, 401)
	d.ext("/ext/proxy/claim", object{"token": "short"}, 400)
	d.call("claim", object{}, 200)
	d.call("claim", object{}, 200)
	d.ext("/ext/proxy/claim", object{"token": token + "x"}, 409)
	d.ext("/ext/proxy/next", object{}, 401)
	d.ext("/ext/proxy/next", object{"token": token + "x"}, 401)

	d.ext("/ext/agent-config", object{"system_prompt": "be brief"}, 200)
	d.ext("/ext/skill-config", object{"name": "s", "description": "d", "skill_md": "# s"}, 200)
	task := d.send(words("do it"))
	seen := d.call("next", object{"after": 0}, 200)
	turns := seen["turns"].([]any)
	for len(turns) == 0 {
		seen = d.call("next", object{"after": seen["version"]}, 200)
		turns = seen["turns"].([]any)
	}
	one := turns[0].(object)
	if len(turns) != 1 || one["task_id"] != task || one["system_prompt"] != "be brief" || !strings.HasSuffix(one["skills"].([]any)[0].(object)["path"].(string), "/s") {
		t.Errorf("%v", one)
	}
	tools := d.call("tools", object{"task_id": task}, 200)["tools"].([]any)
	if len(tools) != 2 || fmt.Sprint(tools[0].(object)["name"], tools[0].(object)["server"], tools[1].(object)["name"], tools[1].(object)["server"]) != "bash<nil>addsums" {
		t.Errorf("%v", tools)
	}
	act := object{"task_id": task, "action_id": "1", "action": object{"kind": "bash", "command": "echo 1"}}
	out := d.call("act", act, 200)
	if r := out["result"].(object); out["done"] != true || r["exit_code"] != 0.0 || r["stdout"] != "1\n" {
		t.Errorf("%v", out)
	}
	act["action"] = object{"kind": "bash", "command": "echo 2"} // the same id: the first result, and nothing runs
	if out := d.call("act", act, 200); out["result"].(object)["stdout"] != "1\n" {
		t.Errorf("%v", out)
	}
	sum := object{"task_id": task, "action_id": "2", "action": object{"kind": "tool", "server": "sums", "name": "add", "arguments": object{"A": 1, "B": 2}}}
	if out := d.call("act", sum, 200); fmt.Sprint(out["result"].(object)["content"]) != "[map[text:3 type:text]]" || out["result"].(object)["is_error"] != false {
		t.Errorf("%v", out)
	}
	sum["action_id"], sum["action"] = "3", object{"kind": "tool", "server": "none", "name": "add"}
	if out := d.call("act", sum, 200); out["result"].(object)["is_error"] != true {
		t.Errorf("%v", out)
	}
	if out := d.call("result", object{"action_id": "2"}, 200); out["done"] != true {
		t.Errorf("%v", out)
	}
	d.call("result", object{"action_id": "none"}, 404)
	d.call("reply", object{"task_id": task}, 400)
	d.call("reply", object{"task_id": task, "parts": []any{words("x")}, "error": "y"}, 400)
	d.call("reply", object{"task_id": task, "parts": []any{words("done")}}, 200)
	status := d.await(task)
	if got := fmt.Sprint(status["state"], status["message"].(object)["parts"]); got != "completed[map[kind:text text:done] map[data:map[usage:map[tool_call_count:3]] kind:data]]" {
		t.Error(got)
	}
	d.call("result", object{"action_id": "2"}, 404)
	d.call("tools", object{"task_id": task}, 404)
	var names []string
	for _, e := range d.ext("/ext/trajectory", object{"task_id": task}, 200)["trajectory"].([]any) {
		names = append(names, e.(object)["name"].(string)+" "+e.(object)["status"].(object)["status_code"].(string))
	}
	if got := strings.Join(names, ", "); got != "execute_tool bash OK, execute_tool add OK, execute_tool add ERROR, turn OK" {
		t.Error(got)
	}
}

// TestRecordedCalls run as they were recorded, each once, before the model goes on.
func TestRecordedCalls(t *testing.T) {
	t.Parallel()
	d := serve(t, proxy.Options{})
	d.call("claim", object{}, 200)
	task := d.open(words("go"))
	record := func(message any, want int) {
		t.Helper()
		d.call("record", object{"task_id": task, "message": message, "model": "m", "usage": object{"prompt_tokens": 3, "output_tokens": 4}}, want)
	}
	n := 0
	act := func(action object, want int) {
		t.Helper()
		n++
		d.call("act", object{"task_id": task, "action_id": fmt.Sprint(n), "action": action}, want)
	}
	for _, bad := range []any{5, object{"role": "user", "content": "x"}, object{"role": "assistant", "content": 5}, object{"role": "assistant", "content": []any{object{"type": "image"}}},
		object{"role": "assistant", "tool_calls": 5}, object{"role": "assistant", "tool_calls": []any{object{}}}} {
		record(bad, 400)
	}
	record("I think", 200)
	act(object{"kind": "bash", "command": "echo"}, 409)
	record(object{"role": "assistant", "content": nil, "reasoning_content": "hm", "tool_calls": []any{
		object{"id": "1", "type": "function", "function": object{"name": "add", "arguments": `{"B":2.0,"A":1}`}},
		object{"id": "2", "type": "function", "function": object{"name": "bash", "arguments": `{"command":"echo hi","timeout_seconds":5}`}},
		object{"id": "3", "type": "function", "function": object{"name": "unknown", "arguments": `{}`}}}}, 200)
	record("again", 409)
	d.call("reply", object{"task_id": task, "parts": []any{words("x")}}, 409)
	act(object{"kind": "tool", "server": "sums", "name": "add", "arguments": object{"A": 1, "B": 3}}, 409)
	act(object{"kind": "tool", "server": "sums", "name": "add", "arguments": object{"A": 1.0, "B": 2}}, 200)
	act(object{"kind": "tool", "server": "sums", "name": "add", "arguments": object{"A": 1, "B": 2}}, 409)
	act(object{"kind": "bash", "command": "echo hi"}, 200)
	record(object{"role": "assistant", "content": []any{object{"type": "thinking", "thinking": "hm"}, object{"type": "tool_use", "id": "4", "name": "add", "input": object{"A": 5, "B": 5}}}}, 200)
	act(object{"kind": "tool", "server": "sums", "name": "add", "arguments": object{"B": 5, "A": 5}}, 200)
	d.call("reply", object{"task_id": task, "parts": []any{words("10")}}, 200)
	if status := d.await(task); status["state"] != "completed" {
		t.Errorf("%v", status)
	}
	events := d.ext("/ext/trajectory", object{"task_id": task}, 200)["trajectory"].([]any)
	chat := events[0].(object)["attributes"].(object)
	if chat["gen_ai.usage.input_tokens"] != 3.0 || chat["gen_ai.usage.output_tokens"] != 4.0 || chat["gen_ai.completion"] != `"I think"` || len(events) != 7 {
		t.Errorf("%d events, %v", len(events), chat)
	}
}

func TestTurnsThatEnd(t *testing.T) {
	t.Parallel()
	d := serve(t, proxy.Options{Poll: 200 * time.Millisecond})
	d.call("claim", object{}, 200)
	task := d.open(words("go"))
	slow := object{"task_id": task, "action_id": "1", "action": object{"kind": "bash", "command": "sleep 60"}}
	if out := d.call("act", slow, 200); out["done"] != false {
		t.Errorf("%v", out)
	}
	other := d.open(words("two"))
	slow["task_id"] = other
	d.call("act", slow, 409) // another turn's id
	d.rpc("tasks/cancel", object{"id": task})
	d.call("reply", object{"task_id": other, "error": "no model today"}, 200)
	status := d.await(other)
	if data := fmt.Sprint(status["message"]); status["state"] != "failed" || !strings.Contains(data, "proxy.driver_error") || !strings.Contains(data, "no model today") {
		t.Errorf("%v", status)
	}
	for range 200 {
		if seen := d.call("next", object{}, 200); len(seen["turns"].([]any)) == 0 {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	d.call("result", object{"action_id": "1"}, 404)
	if status := d.await(d.send(object{"kind": "data", "data": object{"a": 1}})); status["state"] != "failed" || !strings.Contains(fmt.Sprint(status), "proxy.unsupported_part") {
		t.Errorf("%v", status)
	}
	for _, bad := range []object{{"kind": "bash"}, {"kind": "tool", "name": "add"}, {"kind": "eval"}, {"kind": "bash", "command": "x", "cwd": "/"}, {"kind": "bash", "command": "x", "timeout_seconds": 0},
		{"kind": "tool", "server": "s", "name": "n", "arguments": 5}} {
		open := d.open(words("x"))
		d.call("act", object{"task_id": open, "action_id": "bad", "action": bad}, 400)
		d.call("reply", object{"task_id": open, "error": "x"}, 200)
	}
}

// TestTwoToolsOfOneName cannot be told apart.
func TestTwoToolsOfOneName(t *testing.T) {
	t.Parallel()
	d := serve(t, proxy.Options{}, "bash")
	d.call("claim", object{}, 200)
	task := d.open(words("go"))
	d.call("tools", object{"task_id": task}, 409)
	d.ext("/ext/mcp-config", object{"url": "http://127.0.0.1:1/mcp", "name": "gone"}, 200)
	d.call("reply", object{"task_id": task, "error": "x"}, 200)
	task = d.open(words("go"))
	if out := d.call("tools", object{"task_id": task}, 502); !strings.Contains(fmt.Sprint(out), "gone") {
		t.Errorf("%v", out)
	}
	d.call("reply", object{"task_id": task, "error": "x"}, 200)
}

// TestWithoutAShell offers none and takes no skills.
func TestWithoutAShell(t *testing.T) {
	t.Parallel()
	d := serve(t, proxy.Options{NoShell: true})
	d.call("claim", object{}, 200)
	d.ext("/ext/skill-config", object{"name": "s", "description": "d", "skill_md": "x"}, 409)
	task := d.open(words("go"))
	if tools := d.call("tools", object{"task_id": task}, 200)["tools"].([]any); len(tools) != 1 {
		t.Errorf("%v", tools)
	}
	d.call("act", object{"task_id": task, "action_id": "1", "action": object{"kind": "bash", "command": "echo"}}, 409)
	d.call("reply", object{"task_id": task, "error": "x"}, 200)
}
