package peers_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"agentenv/fault"
	"agentenv/protocol/a2a"
	"agentenv/protocol/a2a/echo"
	"agentenv/protocol/peers"
)

// echoAgent serves the echo agent and returns its address.
func echoAgent(t *testing.T) string {
	t.Helper()
	s, err := echo.New(t.Context(), a2a.Settings{})
	if err != nil {
		t.Fatal(err)
	}
	h := httptest.NewServer(s.Handler())
	t.Cleanup(func() {
		h.Close()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return h.URL
}

type caller struct {
	t       *testing.T
	session *mcp.ClientSession
}

// connect returns an MCP client of the tools over a table.
func connect(t *testing.T, table *peers.Table) caller {
	t.Helper()
	tools := peers.NewTools(table, nil, 10*time.Millisecond)
	h := httptest.NewServer(tools.Handler())
	t.Cleanup(h.Close)
	t.Cleanup(tools.Close)
	c := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	session, err := c.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: h.URL + peers.Path}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = session.Close() })
	return caller{t, session}
}

// call returns the JSON a tool answers, or the text of its error.
func (c caller) call(tool string, arguments map[string]any) (out map[string]any, failed string) {
	c.t.Helper()
	r, err := c.session.CallTool(c.t.Context(), &mcp.CallToolParams{Name: tool, Arguments: arguments})
	if err != nil {
		return nil, err.Error()
	}
	text := r.Content[0].(*mcp.TextContent).Text
	if r.IsError {
		return nil, text
	}
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		c.t.Fatalf("%s: %s", tool, text)
	}
	if list, ok := v.([]any); ok {
		return map[string]any{"list": list}, ""
	}
	return v.(map[string]any), ""
}

func TestMessages(t *testing.T) {
	t.Parallel()
	url := echoAgent(t)
	table := &peers.Table{}
	if err := table.Set([]peers.Peer{{Name: "ann", URL: url + "/a2a", Card: map[string]any{"url": "/a2a", "description": "answers"}}, {Name: "bob", URL: url, Description: "told"}, {Name: "gone", URL: "http://127.0.0.1:1"}}); err != nil {
		t.Fatal(err)
	}
	c := connect(t, table)

	out, _ := c.call("peer_list", nil)
	var told []string
	for _, v := range out["list"].([]any) {
		p := v.(map[string]any)
		told = append(told, fmt.Sprint(p["name"], " ", p["description"], " ", p["default_input_modes"]))
	}
	if got := strings.Join(told, "; "); got != "ann answers [text]; bob told [text]; gone Peer A2A agent at http://127.0.0.1:1 [text]" {
		t.Error(got)
	}
	if out, _ := c.call("peer_get_card", map[string]any{"name": "bob"}); out["name"] != "Echo" {
		t.Errorf("the card that is fetched: %v", out)
	}
	for _, name := range []string{"ann", "bob"} { // a base that ends in the path already, and one that does not
		if out, failed := c.call("peer_send_message", map[string]any{"name": name, "prompt": "hi", "context_id": "c"}); out["response"] != "Echo: hi" || out["state"] != "completed" || out["context_id"] != "c" {
			t.Errorf("%v %s", out, failed)
		}
	}
	if out, _ := c.call("peer_send_message", map[string]any{"name": "bob", "parts": []any{map[string]any{"kind": "text", "text": "fail"}}}); out["state"] != "failed" || out["error"] == nil {
		t.Errorf("a task that fails: %v", out)
	}
	if out, _ := c.call("peer_send_message", map[string]any{"name": "bob", "prompt": "sleep 60", "timeout_seconds": 1}); out["state"] != "working" {
		t.Errorf("one that is not done in time: %v", out)
	}

	out, failed := c.call("peer_start_task", map[string]any{"name": "bob", "prompt": "sleep 60"})
	id, _ := out["task_id"].(string)
	if id == "" {
		t.Fatalf("%v %s", out, failed)
	}
	if out, _ := c.call("peer_get_task", map[string]any{"task_id": id, "history_length": 5}); out["state"] != "working" || len(out["history"].([]any)) == 0 {
		t.Errorf("%v", out)
	}
	if out, _ := c.call("peer_cancel_task", map[string]any{"task_id": id}); out["state"] != "canceled" {
		t.Errorf("%v", out)
	}
	for tool, f := range map[string]struct {
		arguments map[string]any
		want      string
	}{
		"peer_get_task": {map[string]any{"task_id": "none"}, "none"}, "peer_get_card": {map[string]any{"name": "eve"}, "ann, bob, gone"},
		"peer_start_task": {map[string]any{"name": "bob"}, "either prompt or parts"}, "peer_send_message": {map[string]any{"name": "bob", "prompt": "x", "loud": true}, "loud"},
		"peer_cancel_task": {map[string]any{}, "task_id"},
	} {
		if out, failed := c.call(tool, f.arguments); !strings.Contains(failed, f.want) {
			t.Errorf("%s: %v %q, want %q", tool, out, failed, f.want)
		}
	}
	if err := table.Set(nil); err != nil {
		t.Fatal(err)
	}
	if out, _ := c.call("peer_list", nil); len(out["list"].([]any)) != 0 {
		t.Errorf("after it is cleared: %v", out)
	}
	if _, failed := c.call("peer_get_card", map[string]any{"name": "bob"}); !strings.Contains(failed, "<none>") {
		t.Error(failed)
	}
}

// TestWhoMayCall lets this machine alone in.
func TestWhoMayCall(t *testing.T) {
	t.Parallel()
	tools := peers.NewTools(&peers.Table{}, nil, 0)
	h := tools.Handler()
	ask := func(from, host, origin string) int {
		r := httptest.NewRequest(http.MethodPost, peers.Path, strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}`))
		r.RemoteAddr, r.Host = from, host
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json, text/event-stream")
		if origin != "" {
			r.Header.Set("Origin", origin)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code
	}
	for _, c := range []struct {
		from, host, origin string
		let                bool
	}{
		{"127.0.0.1:5", "127.0.0.1:8000", "", true}, {"[::1]:5", "localhost:8000", "", true}, {"[::ffff:127.0.0.1]:5", "[::1]:8000", "http://localhost", true},
		{"10.0.0.1:5", "127.0.0.1:8000", "", false}, {"127.0.0.1:5", "example.com", "", false}, {"127.0.0.1:5", "localhost", "http://example.com", false},
	} {
		if got := ask(c.from, c.host, c.origin); (got != http.StatusForbidden) != c.let {
			t.Errorf("%+v: %d", c, got)
		}
	}
	tools.Close()
	if got := ask("127.0.0.1:5", "localhost", ""); got != http.StatusServiceUnavailable {
		t.Errorf("after the end: %d", got)
	}
}

func TestTablesThatAreRefused(t *testing.T) {
	t.Parallel()
	table := &peers.Table{}
	if err := table.Set([]peers.Peer{{Name: "a", URL: "http://a"}}); err != nil {
		t.Fatal(err)
	}
	for _, bad := range [][]peers.Peer{{{Name: "b"}}, {{URL: "http://b"}}, {{Name: "b", URL: "http://b"}, {Name: "b", URL: "http://c"}}} {
		if err := table.Set(bad); !fault.Is(err, fault.Invalid) || len(table.List()) != 1 {
			t.Errorf("%v: %v", bad, err)
		}
	}
}
