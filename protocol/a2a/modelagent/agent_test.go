package modelagent_test

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

	"agentenv/fault"
	"agentenv/protocol/a2a"
	"agentenv/protocol/a2a/modelagent"
	"agentenv/test/modelserver/scripted"
)

type object = map[string]any

const key = "sk-a-secret-key"

type rig struct {
	t      *testing.T
	url    string
	server *scripted.Server
	dir    string // where commands run
}

// serve serves the agent before a scripted model.
func serve(t *testing.T, api, script string) rig {
	t.Helper()
	s, err := scripted.Parse(strings.NewReader(script))
	if err != nil {
		t.Fatal(err)
	}
	model, err := scripted.New(s, key)
	if err != nil {
		t.Fatal(err)
	}
	endpoint := httptest.NewServer(model)
	t.Cleanup(endpoint.Close)
	o := modelagent.FromEnv(func(name string) string {
		return map[string]string{"LITELLM_BASE_URL": endpoint.URL, "LITELLM_API_KEY": key, "LITELLM_EXTRA_HEADERS": `{"X-Team":"t"}`, "AGENTENV_MODEL_API": api, "AGENTENV_MODEL": "m1"}[name]
	})
	o.Dir = t.TempDir()
	agent, err := modelagent.Agent(o)
	if err != nil {
		t.Fatal(err)
	}
	server, err := a2a.New(t.Context(), agent, a2a.Settings{StagingDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	h := httptest.NewServer(server.Handler())
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if err := server.Close(ctx); err != nil {
			t.Error(err)
		}
		h.Close()
	})
	return rig{t, h.URL, model, o.Dir}
}

func (r rig) post(path string, body object) object {
	r.t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		r.t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(r.t.Context(), http.MethodPost, r.url+path, bytes.NewReader(text))
	if err != nil {
		r.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	var out object
	if err := json.NewDecoder(resp.Body).Decode(&out); err != nil || resp.StatusCode != http.StatusOK {
		r.t.Fatalf("%s: %d %v %v", path, resp.StatusCode, out, err)
	}
	return out
}

// send sends a message in a context and returns the task's end.
func (r rig) send(contextID string, parts ...any) (status object, task string) {
	r.t.Helper()
	out := r.post("/a2a", object{"jsonrpc": "2.0", "id": "1", "method": "message/send", "params": object{
		"message": object{"kind": "message", "role": "user", "messageId": fmt.Sprint(time.Now().UnixNano()), "contextId": contextID, "parts": parts}}})
	result, ok := out["result"].(object)
	if !ok {
		r.t.Fatalf("%v", out)
	}
	return result["status"].(object), result["id"].(string)
}

func words(s string) object { return object{"kind": "text", "text": s} }

func said(status object) string {
	s := status["state"].(string)
	for _, p := range status["message"].(object)["parts"].([]any) {
		part := p.(object)
		if part["kind"] == "text" {
			s += "|" + part["text"].(string)
		} else {
			text, _ := json.Marshal(part["data"])
			s += "|" + string(text)
		}
	}
	return s
}

const script = `{"turns":[
	{"text":"let me see","tools":[{"name":"add","arguments":{"A":1,"B":2}},{"name":"bash","arguments":{"command":"echo from the shell; echo oops >&2; exit 3"}}]},
	{"tools":[{"name":"nothing"}]},
	{"text":"It is 3."},
	{"text":"You said: {last}"}]}`

// TestToolsOnBothWires calls a tool of an MCP server, the shell, and a tool that is not there; then goes on with the conversation.
func TestToolsOnBothWires(t *testing.T) {
	t.Parallel()
	for _, api := range []string{"openai", "anthropic"} {
		t.Run(api, func(t *testing.T) {
			t.Parallel()
			r := serve(t, api, script)
			var role string
			sums := mcp.NewServer(&mcp.Implementation{Name: "sums", Version: "1"}, nil)
			mcp.AddTool(sums, &mcp.Tool{Name: "add"}, func(_ context.Context, _ *mcp.CallToolRequest, in struct{ A, B int }) (*mcp.CallToolResult, any, error) {
				return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: fmt.Sprint("the sum is ", in.A+in.B)}}}, nil, nil
			})
			serveMCP := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return sums }, &mcp.StreamableHTTPOptions{Stateless: true, JSONResponse: true})
			m := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				role = req.Header.Get("AgentEnv-Role")
				serveMCP.ServeHTTP(w, req)
			}))
			t.Cleanup(m.Close)
			r.post("/ext/mcp-config", object{"url": m.URL, "name": "sums"})
			r.post("/ext/agent-config", object{"system_prompt": "be brief", "role": "clerk", "model_params": object{"temperature": 0, "messages": []any{}}})
			status, task := r.send("c", words("what is 1 and 2?"))
			if got := said(status); !strings.HasPrefix(got, `completed|It is 3.|{"usage":{"input_tokens":`) || !strings.Contains(got, `"tool_call_count":3`) {
				t.Error(got)
			}
			status, _ = r.send("c", words("thanks"))
			if got := said(status); !strings.HasPrefix(got, "completed|You said: thanks|") {
				t.Error(got)
			}
			if role != "clerk" {
				t.Errorf("the role %q", role)
			}
			var told []string
			for _, e := range r.post("/ext/trajectory", object{"task_id": task})["trajectory"].([]any) {
				e := e.(object)
				told = append(told, fmt.Sprintf("%v-%v-%v", e["type"], e["tool"], e["failed"]))
			}
			if got := strings.Join(told, " "); got != "message-<nil>-<nil> model-<nil>-<nil> tool-add-<nil> tool-bash-true model-<nil>-<nil> tool-nothing-true model-<nil>-<nil>" {
				t.Error(got)
			}
			requests := r.server.Requests()
			last, _ := json.Marshal(requests[2].Body)
			for _, want := range []string{"the sum is 3", "from the shell", "oops", "[exit code 3]", "there is no tool nothing", "be brief", `"temperature":0`, `"model":"m1"`} {
				if !strings.Contains(string(last), want) {
					t.Errorf("the third request lacks %q: %s", want, last)
				}
			}
			if requests[0].Headers.Get("X-Team") != "t" {
				t.Error("the extra headers are not sent")
			}
		})
	}
}

func TestAnswersThatAreNone(t *testing.T) {
	t.Parallel()
	r := serve(t, "", `{"turns":[{"when":"broken","status":400},{"when":"busy","status":503},{"when":"cut","text":"x","cut":true},{"when":"nothing"},{"when":"loop","tools":[{"name":"bash","arguments":{"command":"echo loop"}}]},
		{"when":"json","text":"`+"```json\\n{\\\"a\\\":1}\\n```"+`"},{"when":"slow","delay":"1m"},{"text":"plain"}]}`)
	for prompt, want := range map[string]string{
		"broken": "model.http_400", "busy": "model.unavailable", "cut": "model.unavailable", "nothing": "model.empty",
	} {
		status, _ := r.send(prompt, words(prompt))
		if got := said(status); !strings.HasPrefix(got, "failed") || !strings.Contains(got, `"error_code":"`+want+`"`) || strings.Contains(got, key) {
			t.Errorf("%s: %s", prompt, got)
		}
	}
	if status, _ := r.send("f", object{"kind": "file", "file": object{"uri": "https://x/y", "mimeType": "image/png"}}); !strings.Contains(said(status), "model.unsupported_part") {
		t.Error(said(status))
	}
	r.post("/ext/agent-config", object{"max_turns": 3, "output_format": object{"type": "object"}})
	for prompt, want := range map[string]string{"loop": "model.max_turns", "plain": "model.output_format"} {
		if status, _ := r.send(prompt, words(prompt)); !strings.Contains(said(status), want) {
			t.Errorf("%s: %s", prompt, said(status))
		}
	}
	if status, _ := r.send("j", words("json")); !strings.Contains(said(status), `|{"structured_output":{"a":1}}|`) {
		t.Error(said(status))
	}
	r.post("/ext/agent-config", object{"timeout_seconds": 1})
	if status, _ := r.send("s", words("slow")); !strings.Contains(said(status), "model.timeout") {
		t.Error(said(status))
	}
	if status, _ := r.send("i", object{"kind": "file", "file": object{"bytes": "aGk=", "mimeType": "image/png"}}, words("json")); !strings.HasPrefix(said(status), "completed") {
		t.Error(said(status))
	}
}

func TestOptionsThatAreRefused(t *testing.T) {
	t.Parallel()
	for _, o := range []modelagent.Options{{}, {BaseURL: "x"}, {BaseURL: "ftp://x"}, {BaseURL: "http://x", API: "other"}} {
		if _, err := modelagent.Agent(o); !fault.Is(err, fault.Invalid) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

// TestPeersAndSkills: the tools for talking to other agents are there once there is somebody to talk to, and skills are told to the model.
func TestPeersAndSkills(t *testing.T) {
	t.Parallel()
	other := serve(t, "", `{"turns":[{"text":"The other one heard: {last}"}]}`)
	r := serve(t, "openai", `{"turns":[{"when":"^ask it","tools":[{"name":"peer_send_message","arguments":{"name":"other","prompt":"hello there"}}]},{"when":"heard","text":"It said: {last}"},{"text":"alone"}]}`)
	if status, _ := r.send("c", words("hi")); !strings.HasPrefix(said(status), "completed|alone|") {
		t.Error(said(status))
	}
	r.post("/ext/peer-agents", object{"peers": []any{object{"name": "other", "url": other.url}}})
	r.post("/ext/skill-config", object{"name": "sums", "description": "Adding up", "skill_md": "Count on your fingers."})
	status, _ := r.send("d", words("ask it"))
	if got := said(status); !strings.HasPrefix(got, "completed|It said: ") || !strings.Contains(got, "The other one heard: hello there") {
		t.Error(got)
	}
	requests := r.server.Requests()
	tools := func(i int) string { return fmt.Sprint(requests[i].Body["tools"]) }
	if strings.Contains(tools(0), "peer_") || !strings.Contains(tools(1), "peer_send_message") {
		t.Errorf("the tools are first %s, then %s", tools(0), tools(1))
	}
	if told, _ := json.Marshal(requests[1].Body["messages"]); !strings.Contains(string(told), "Count on your fingers.") || !strings.Contains(string(told), "Adding up") {
		t.Errorf("%s", told)
	}
}
