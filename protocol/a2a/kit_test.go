package a2a_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"agentenv/protocol/a2a"
	"agentenv/protocol/a2a/sse"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for what must happen; it passes only when something is broken.
const patience = 30 * time.Second

// peer is a served agent and a client for it.
type peer struct {
	t      *testing.T
	url    string
	client *http.Client
	log    *syncBuffer
	server *a2a.Server
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func serve(t *testing.T, agent a2a.Agent, settings a2a.Settings) *peer {
	t.Helper()
	log := &syncBuffer{}
	settings.Log = slog.New(slog.NewTextHandler(log, nil))
	if settings.StagingDir == "" {
		settings.StagingMaxBytes = -1
	}
	server, err := a2a.New(t.Context(), agent, settings)
	if err != nil {
		t.Fatal(err)
	}
	h := httptest.NewServer(server.Handler())
	p := &peer{t: t, url: h.URL, client: &http.Client{Transport: &http.Transport{}}, log: log, server: server}
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

// serveBare serves a server that the test closes itself.
func (p *peer) serveBare(server *a2a.Server) {
	h := httptest.NewServer(server.Handler())
	p.url, p.client = h.URL, &http.Client{Transport: &http.Transport{}}
	p.t.Cleanup(func() {
		p.client.CloseIdleConnections()
		h.Close()
	})
}

func identity() a2a.Identity {
	return a2a.Identity{Name: "Test", Description: "An agent for tests", Version: "1"}
}

// answering returns an agent that answers each message with its own text.
func answering() a2a.Agent {
	return a2a.Agent{Identity: identity(), Run: func(_ context.Context, r *a2a.Request) (a2a.Result, error) {
		return a2a.Result{Parts: []a2a.Part{a2a.Text(r.Text())}}, nil
	}}
}

func (p *peer) do(method, path, body string, headers ...string) (int, string, http.Header) {
	p.t.Helper()
	ctx, done := context.WithTimeout(context.Background(), patience)
	defer done()
	r, err := http.NewRequestWithContext(ctx, method, p.url+path, strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	res, err := p.client.Do(r)
	if err != nil {
		p.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return res.StatusCode, string(text), res.Header
}

// object is decoded JSON with a way into it: at("a", 0, "b").
type object map[string]any

func (o object) at(path ...any) any {
	var v any = map[string]any(o)
	for _, step := range path {
		switch s := step.(type) {
		case string:
			m, _ := v.(map[string]any)
			v = m[s]
		case int:
			l, _ := v.([]any)
			if s < 0 {
				s += len(l)
			}
			if s < 0 || s >= len(l) {
				return nil
			}
			v = l[s]
		}
	}
	return v
}

func (o object) text(path ...any) string { return fmt.Sprint(o.at(path...)) }

func parse(t *testing.T, text string) object {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var o object
	if err := d.Decode(&o); err != nil {
		t.Fatalf("no JSON object: %v: %s", err, text)
	}
	return o
}

// rpc sends a request and returns the whole answer.
func (p *peer) rpc(method, params string) object {
	p.t.Helper()
	status, text, header := p.do("POST", "/a2a", `{"jsonrpc":"2.0","id":"1","method":"`+method+`","params":`+params+`}`)
	if status != 200 || header.Get("Content-Type") != "application/json" {
		p.t.Fatalf("%s: status %d, %v: %s", method, status, header, text)
	}
	return parse(p.t, text)
}

type sending struct {
	id, context, text, configuration, metadata string
}

var sent atomic.Int64

func (s sending) params() string {
	if s.id == "" {
		s.id = fmt.Sprint("m-", sent.Add(1))
	}
	m := map[string]any{"kind": "message", "messageId": s.id, "role": "user", "parts": []any{map[string]any{"kind": "text", "text": s.text}}}
	if s.context != "" {
		m["contextId"] = s.context
	}
	if s.metadata != "" {
		m["metadata"] = json.RawMessage(s.metadata)
	}
	all := map[string]any{"message": m}
	if s.configuration != "" {
		all["configuration"] = json.RawMessage(s.configuration)
	}
	text, _ := json.Marshal(all)
	return string(text)
}

// send returns the task that message/send answers.
func (p *peer) send(s sending) object {
	p.t.Helper()
	o := p.rpc("message/send", s.params())
	task, ok := o.at("result").(map[string]any)
	if !ok {
		p.t.Fatalf("message/send: %v", o)
	}
	return task
}

func (p *peer) start(s sending) object {
	p.t.Helper()
	s.configuration = `{"blocking":false}`
	return p.send(s)
}

// await polls a task until it is in the state.
func (p *peer) await(id, state string) object {
	p.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		task := object(p.rpc("tasks/get", `{"id":"`+id+`"}`).at("result").(map[string]any))
		if task.text("status", "state") == state {
			return task
		}
		if time.Now().After(end) {
			p.t.Fatalf("the task is not %s: %v", state, task)
		}
	}
}

// stream returns the results of all events of a call that streams; each is called when it comes.
func (p *peer) stream(method, params string, each func(object)) []object {
	p.t.Helper()
	ctx, done := context.WithTimeout(context.Background(), patience)
	defer done()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url+"/a2a", strings.NewReader(`{"jsonrpc":"2.0","id":7,"method":"`+method+`","params":`+params+`}`))
	if err != nil {
		p.t.Fatal(err)
	}
	res, err := p.client.Do(r)
	if err != nil {
		p.t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK || !sse.Is(res.Header.Get("Content-Type")) {
		text, _ := io.ReadAll(res.Body)
		p.t.Fatalf("%s: status %d, %v: %s", method, res.StatusCode, res.Header, text)
	}
	var all []object
	for in := sse.NewReader(res.Body, 64<<20); ; {
		data, err := in.Next()
		if err == io.EOF {
			return all
		}
		if err != nil {
			p.t.Fatal(err)
		}
		o := parse(p.t, string(data))
		if o.text("id") != "7" || o.text("jsonrpc") != "2.0" {
			p.t.Fatalf("an event is no answer: %s", data)
		}
		event := object(o.at("result").(map[string]any))
		all = append(all, event)
		if each != nil {
			each(event)
		}
	}
}

func (p *peer) ext(method, path, body string, want int) object {
	p.t.Helper()
	status, text, header := p.do(method, path, body)
	if status != want || header.Get("Content-Type") != "application/json" {
		p.t.Fatalf("%s %s %s: status %d, not %d: %s", method, path, body, status, want, text)
	}
	return parse(p.t, text)
}
