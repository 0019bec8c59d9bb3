package agent_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"agentenv/agent"
	"agentenv/protocol/card"
	"agentenv/store/doc"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// script is an agent that answers each method as a test says.
type script struct {
	t       *testing.T
	card    string
	methods map[string]func(n int, params *doc.Object) any // n counts the calls of the method from 1
	other   http.HandlerFunc                               // everything but the card and /a2a

	mu    sync.Mutex
	calls map[string]int
	sent  []*doc.Object // the whole requests
	heads []http.Header
}

type (
	rpcFault struct {
		code    int
		message string
	}
	raw    func(w http.ResponseWriter, r *http.Request)
	stream func(emit func(result any), gone <-chan struct{})
)

// hang takes a request and never answers. The body is read, since a server notices only then that its client is gone.
var hang raw = func(_ http.ResponseWriter, r *http.Request) {
	io.Copy(io.Discard, r.Body)
	<-r.Context().Done()
}

func (s *script) count(method string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[method]
}

func (s *script) requests() []*doc.Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]*doc.Object(nil), s.sent...)
}

func (s *script) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.heads = append(s.heads, r.Header.Clone())
	s.mu.Unlock()
	switch {
	case r.URL.Path == "/.well-known/agent.json" && s.card != "":
		io.WriteString(w, s.card)
		return
	case r.URL.Path != "/a2a" && s.other != nil:
		s.other(w, r)
		return
	case r.URL.Path != "/a2a":
		http.NotFound(w, r)
		return
	}
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	req, err := doc.ParseObject(text, doc.Options{Strict: true})
	if err != nil {
		s.t.Errorf("the request is no JSON: %s", text)
		return
	}
	method := req.Str("method")
	s.mu.Lock()
	s.sent = append(s.sent, req)
	if s.calls == nil {
		s.calls = map[string]int{}
	}
	s.calls[method]++
	n := s.calls[method]
	s.mu.Unlock()
	do := s.methods[method]
	var out any = rpcFault{-32601, "no such method"}
	if do != nil {
		out = do(n, req.Obj("params"))
	}
	switch out := out.(type) {
	case raw:
		out(w, r)
	case stream:
		w.Header().Set("Content-Type", "text/event-stream")
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		out(func(result any) {
			if text, ok := result.(string); ok {
				io.WriteString(w, text)
			} else {
				fmt.Fprintf(w, "data: %s\n\n", response(req.Value("id"), result))
			}
			w.(http.Flusher).Flush()
		}, r.Context().Done())
	default:
		w.Header().Set("Content-Type", "application/json")
		w.Write(response(req.Value("id"), out))
	}
}

func response(id, result any) []byte {
	o := doc.Of("jsonrpc", "2.0", "id", id)
	if f, ok := result.(rpcFault); ok {
		o.Set("error", doc.Of("code", doc.Int(f.code), "message", f.message))
	} else {
		o.Set("result", result)
	}
	text, err := doc.Compact(o)
	if err != nil {
		panic(err)
	}
	return text
}

// task is a task named T; its status has a message when there are parts.
func task(state string, parts ...any) *doc.Object {
	return doc.Of("kind", "task", "id", "T", "contextId", "C", "status", status(state, parts...))
}

func status(state string, parts ...any) *doc.Object {
	o := doc.Of("state", state)
	if len(parts) > 0 {
		o.Set("message", said("m-"+state, parts...))
	}
	return o
}

func said(id string, parts ...any) *doc.Object {
	return doc.Of("kind", "message", "messageId", id, "role", "agent", "taskId", "T", "contextId", "C", "parts", parts)
}

func update(state string, parts ...any) *doc.Object {
	return doc.Of("kind", "status-update", "taskId", "T", "contextId", "C", "status", status(state, parts...), "final", state != "working")
}

func text(s string) *doc.Object { return agent.Text(s) }

func data(kv ...any) *doc.Object { return doc.Of("kind", "data", "data", doc.Of(kv...)) }

// serve runs a script behind a real server.
func serve(t *testing.T, s *script) (*agent.Client, agent.Endpoint) {
	t.Helper()
	s.t = t
	server := httptest.NewServer(s)
	client := agent.NewClient(agent.Options{MaxBody: 1 << 20})
	t.Cleanup(func() {
		client.Close()
		server.CloseClientConnections()
		server.Close()
	})
	return client, endpoint(t, server.URL, s)
}

func endpoint(t *testing.T, url string, s *script) agent.Endpoint {
	t.Helper()
	e := agent.Endpoint{URL: url}
	if s.card != "" {
		found, err := card.Parse([]byte(s.card))
		if err != nil {
			t.Fatal(err)
		}
		e.Card = found
	}
	return e
}

const streaming = `{"name":"s","url":"/a2a","capabilities":{"streaming":true}}`

// pipes is a network inside the process, so that a test in a bubble of time can use real HTTP.
type pipes struct {
	conns chan net.Conn
	once  sync.Once
	done  chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}
func (p *pipes) Close() error   { p.once.Do(func() { close(p.done) }); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }
func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case p.conns <- theirs:
		return ours, nil
	case <-p.done:
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// bubble runs a script behind a network of pipes; down closes it, up opens it.
func bubble(t *testing.T, s *script) (client *agent.Client, e agent.Endpoint, down func()) {
	t.Helper()
	s.t = t
	p := &pipes{conns: make(chan net.Conn), done: make(chan struct{})}
	server := &http.Server{Handler: s}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Serve(p)
	}()
	transport := &http.Transport{DialContext: p.dial}
	client = agent.NewClient(agent.Options{HTTP: &http.Client{Transport: transport}, MaxBody: 1 << 20})
	down = func() {
		p.Close()
		server.Close()
	}
	t.Cleanup(func() {
		down()
		<-ended
		transport.CloseIdleConnections()
	})
	return client, endpoint(t, "http://agent", s), down
}

// turn is a message with pauses that suit a test.
func turn(words string) agent.Turn {
	return agent.Turn{MessageID: "M", ContextID: "C", Parts: []*doc.Object{text(words)}, Poll: 5 * time.Millisecond, Timeout: 30 * time.Second}
}

func turnError(t *testing.T, err error, kind string) *agent.TurnError {
	t.Helper()
	var te *agent.TurnError
	if !errors.As(err, &te) {
		t.Fatalf("got %v, want a TurnError", err)
	}
	if te.Kind != kind {
		t.Errorf("the kind is %s, want %s (%v)", te.Kind, kind, err)
	}
	if te.Partial == nil {
		t.Error("there is no partial reply")
	}
	return te
}

func repeat(s string, n int) string { return string(bytes.Repeat([]byte(s), n)) }

func turnErrorOf(err error) *agent.TurnError {
	var te *agent.TurnError
	errors.As(err, &te)
	return te
}

var times = regexp.MustCompile(`2030-01-02T\d\d:\d\d:\d\d\.\d{6}\+00:00`)

func contains(s, part string) bool { return strings.Contains(s, part) }
