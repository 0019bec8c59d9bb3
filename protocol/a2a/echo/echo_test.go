package echo_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"agentenv/protocol/a2a"
	"agentenv/protocol/a2a/echo"
	"agentenv/protocol/card"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 60 * time.Second

type peer struct {
	*testing.T
	url    string
	client *http.Client
	sent   int
}

func serve(t *testing.T) *peer {
	server, err := echo.New(t.Context(), a2a.Settings{StagingDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	h := httptest.NewServer(server.Handler())
	p := &peer{T: t, url: h.URL, client: &http.Client{Transport: &http.Transport{}}}
	t.Cleanup(func() {
		ctx, done := context.WithTimeout(context.Background(), patience)
		defer done()
		if err := server.Close(ctx); err != nil {
			t.Error(err)
		}
		p.client.CloseIdleConnections()
		h.Close()
	})
	return p
}

func (p *peer) do(method, path, body string) (int, string) {
	p.Helper()
	ctx, done := context.WithTimeout(context.Background(), patience)
	defer done()
	r, err := http.NewRequestWithContext(ctx, method, p.url+path, strings.NewReader(body))
	if err != nil {
		p.Fatal(err)
	}
	res, err := p.client.Do(r)
	if err != nil {
		p.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		p.Fatal(err)
	}
	return res.StatusCode, string(text)
}

type part struct {
	Kind, Text string
	Data       map[string]any
}

type task struct {
	ID, ContextID string
	Status        struct {
		State     string
		Timestamp time.Time
		Message   struct{ Parts []part }
	}
}

func (t task) data() map[string]any {
	return t.Status.Message.Parts[len(t.Status.Message.Parts)-1].Data
}

func (p *peer) rpc(method, params string) (t task, code int) {
	p.Helper()
	_, text := p.do("POST", "/a2a", `{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":`+params+`}`)
	var a struct {
		Result task
		Error  struct{ Code int }
	}
	if err := json.Unmarshal([]byte(text), &a); err != nil {
		p.Fatalf("%v: %s", err, text)
	}
	return a.Result, a.Error.Code
}

func (p *peer) send(text, context string, blocking bool) task {
	p.Helper()
	p.sent++
	t, code := p.rpc("message/send", fmt.Sprintf(`{"message":{"messageId":"m%d","role":"user","contextId":%q,"parts":[{"kind":"text","text":%q}]},"configuration":{"blocking":%v}}`,
		p.sent, context, text, blocking))
	if code != 0 {
		p.Fatalf("message/send %q: error %d", text, code)
	}
	return t
}

func (p *peer) await(id string) task {
	p.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if t, _ := p.rpc("tasks/get", `{"id":"`+id+`"}`); slices.Contains([]string{"completed", "failed", "canceled"}, t.Status.State) {
			return t
		}
	}
	p.Fatalf("the task %s does not end", id)
	return task{}
}

func TestCardAndHealth(t *testing.T) {
	t.Parallel()
	p := serve(t)
	_, one := p.do("GET", "/.well-known/agent-card.json", "")
	_, two := p.do("GET", "/.well-known/agent.json", "")
	of, err := card.Parse([]byte(one))
	if err != nil || one != two || of.ProtocolVersion != "0.3.0" || !of.Streaming {
		t.Fatalf("%v %s", err, one)
	}
	var uris []string
	for _, e := range of.Extensions {
		uris = append(uris, e.URI)
	}
	if !slices.Equal(uris, []string{card.AgentConfig, card.MCPConfig, card.Trajectory, card.Triggers, card.SkillConfig, card.Staging}) {
		t.Error(uris)
	}
	if status, text := p.do("GET", "/health", ""); status != 200 || text != `{"status":"ok"}` {
		t.Error(text)
	}
}

func TestAnswer(t *testing.T) {
	t.Parallel()
	p := serve(t)
	got := p.send("hi", "c", true)
	if got.Status.State != "completed" || got.ContextID != "c" || got.Status.Message.Parts[0].Text != "Echo: hi" || got.data()["usage"] == nil {
		t.Errorf("%+v", got)
	}
	if first := p.send("hi", "c", false); first.Status.State != "submitted" || p.await(first.ID).Status.Message.Parts[0].Text != "Echo: hi" {
		t.Errorf("%+v", first)
	}
	if got := p.send("say 300000", "", true); got.Status.Message.Parts[0].Text != strings.Repeat("x", 300_000) {
		t.Errorf("%d bytes", len(got.Status.Message.Parts[0].Text))
	}
	for _, text := range []string{"sleep", "sleep x", "fail me", "boom 1", "say -1"} {
		if got := p.send(text, "", true); got.Status.Message.Parts[0].Text != "Echo: "+text {
			t.Errorf("%+v", got)
		}
	}
}

func TestFailures(t *testing.T) {
	t.Parallel()
	p := serve(t)
	got := p.send("fail", "", true)
	if got.Status.State != "failed" || got.data()["error_code"] != "echo.asked" || got.data()["error_type"] != "agent_error" {
		t.Errorf("%+v", got)
	}
	got = p.send("boom", "", true)
	data := got.data()
	if got.Status.State != "failed" || data["error_code"] != "framework.unhandled_exception" || data["error_type"] != "infra_error" ||
		!regexp.MustCompile(`\b[0-9a-f]{32}$`).MatchString(fmt.Sprint(data["error_message"])) || strings.Contains(fmt.Sprint(got), "defect") {
		t.Errorf("%+v", got)
	}
}

func TestCancel(t *testing.T) {
	t.Parallel()
	p := serve(t)
	id := p.send("sleep 3600", "", false).ID
	if got, code := p.rpc("tasks/cancel", `{"id":"`+id+`"}`); got.Status.State != "canceled" {
		t.Errorf("%+v %d", got, code)
	}
	if _, code := p.rpc("tasks/cancel", `{"id":"`+id+`"}`); code != -32002 {
		t.Error(code)
	}
	if _, text := p.do("POST", "/ext/trajectory", `{"task_id":"`+id+`","after":0}`); !strings.Contains(text, `"state":"canceled"`) {
		t.Error(text)
	}
}

func TestOneContextWaitsAndOthersDoNot(t *testing.T) {
	t.Parallel()
	p := serve(t)
	one, two, other := p.send("sleep 1", "c", false), p.send("sleep 1", "c", false), p.send("hi", "d", false)
	first, second, beside := p.await(one.ID).Status.Timestamp, p.await(two.ID).Status.Timestamp, p.await(other.ID).Status.Timestamp
	if second.Sub(first) < 900*time.Millisecond || !beside.Before(second) {
		t.Errorf("the first ended at %v, the second at %v, the one beside at %v", first, second, beside)
	}
}

func TestExtensions(t *testing.T) {
	t.Parallel()
	p := serve(t)
	for _, c := range []struct {
		method, path, body string
		status             int
		says               string
	}{
		{"POST", "/ext/agent-config", `{"model":"m","model_params":{"k":"s3cr3t"}}`, 200, `{"status":"updated"}`},
		{"GET", "/ext/agent-config", ``, 200, `{"config":{"model":"m","model_params":"***"}}`},
		{"POST", "/ext/agent-config", `{"nope":1}`, 400, `nope`},
		{"GET", "/ext/agent-config", ``, 200, `{"config":{"model":"m","model_params":"***"}}`},
		{"POST", "/ext/mcp-config", `{"url":" http://e/mcp ","name":"crm","headers":{"A":"b"}}`, 200, `"url":"http://e/mcp"`},
		{"POST", "/ext/mcp-config", `{"url":" http://e/mcp ","name":"crm","headers":{"A":"b"}}`, 409, `crm`},
		{"GET", "/ext/mcp-config", ``, 200, `{"mcp_servers":{"crm":{"url":"http://e/mcp","has_headers":true}}}`},
		{"POST", "/ext/triggers", `{"triggers":[{"id":"t","when":{"type":"step","turn":2},"actions":[{"type":"say","text":"stop"},{"type":"end"}]}]}`, 200, `{"added":["t"],"all":["t"],"ok":true}`},
		{"POST", "/ext/triggers/decide", `{"turn":1}`, 200, `{"done":false,"fired":[],"parts":[]}`},
		{"POST", "/ext/triggers/decide", `{"turn":2}`, 200, `{"done":true,"fired":["t"],"parts":[{"kind":"text","text":"stop"}]}`},
		{"POST", "/ext/triggers/decide", `{"turn":3}`, 200, `{"done":false,"fired":[],"parts":[]}`},
		{"POST", "/ext/triggers/decide", `{"turn":1}`, 200, `{"done":false,"fired":[],"parts":[]}`},
		{"POST", "/ext/triggers/decide", `{"turn":true}`, 400, `integer`},
		{"GET", "/ext/triggers", ``, 200, `"kind":"reset"`},
		{"PUT", "/ext/staging/0123456789012345678901/a/b", `bytes`, 201, `"size_bytes":5`},
		{"GET", "/ext/staging/0123456789012345678901/a/b", ``, 200, `bytes`},
		{"GET", "/ext/staging/0123456789012345678901/", ``, 200, `"path":"a/b"`},
		{"DELETE", "/ext/staging/0123456789012345678901/a/b", ``, 204, ``},
		{"PUT", "/ext/staging/0123456789/a", `bytes`, 404, ``},
	} {
		status, text := p.do(c.method, c.path, c.body)
		if status != c.status || !strings.Contains(text, c.says) {
			t.Errorf("%s %s %s: %d %s", c.method, c.path, c.body, status, text)
		}
	}
}

func TestLiveSteps(t *testing.T) {
	t.Parallel()
	p := serve(t)
	id := p.send("live-steps 3", "", false).ID
	var page struct {
		State, Format string
		Events        []json.RawMessage
		Next          int
		HasMore       bool `json:"has_more"`
	}
	var joined []json.RawMessage
	sizes := map[int]bool{}
	for end := time.Now().Add(patience); page.State != "completed"; time.Sleep(20 * time.Millisecond) {
		_, text := p.do("POST", "/ext/trajectory", fmt.Sprintf(`{"task_id":%q,"after":%d}`, id, page.Next))
		if err := json.Unmarshal([]byte(text), &page); err != nil || time.Now().After(end) {
			t.Fatal(err, text)
		}
		joined = append(joined, page.Events...)
		sizes[page.Next] = true
	}
	if len(joined) != 4 || page.Next != 4 || page.HasMore || len(sizes) < 3 || page.Format != echo.Format {
		t.Errorf("%d events, %+v, %v", len(joined), page, sizes)
	}
	all, _ := json.Marshal(map[string]any{"trajectory": joined})
	if _, text := p.do("POST", "/ext/trajectory", `{"task_id":"`+id+`"}`); text != string(all) {
		t.Errorf("%s\n%s", text, all)
	}
}
