package scripted

import (
	"encoding/json"
	"io"
	"net/http"
	"sync"
	"time"
)

// maxBody bounds a request.
const maxBody = 64 << 20

// Server answers by a script and remembers what it was asked. Safe for concurrent use.
type Server struct {
	script *Script
	key    string

	mu       sync.Mutex
	requests []Request
}

// Request is one request the server took.
type Request struct {
	Path    string
	Headers http.Header
	Body    map[string]any
}

// New returns a server; key, if not "", must be given as bearer token or x-api-key.
func New(s *Script, key string) (*Server, error) {
	return &Server{script: s, key: key}, s.compile()
}

// Requests returns what was asked so far.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Request(nil), s.requests...)
}

// ServeHTTP serves POST …/chat/completions, POST …/messages and GET …/models.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		reply(w, 200, map[string]any{"object": "list", "data": []any{map[string]any{"id": "scripted", "object": "model"}}})
		return
	}
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	var body map[string]any
	if err == nil {
		err = json.Unmarshal(text, &body)
	}
	if err != nil {
		reply(w, 400, errorBody("invalid_request_error", "the body is no JSON object"))
		return
	}
	s.mu.Lock()
	s.requests = append(s.requests, Request{r.URL.Path, r.Header.Clone(), body})
	s.mu.Unlock()
	if s.key != "" && r.Header.Get("Authorization") != "Bearer "+s.key && r.Header.Get("X-Api-Key") != s.key {
		reply(w, 401, errorBody("authentication_error", "the key is not the server's"))
		return
	}
	var wire dialect
	switch {
	case hasSuffix(r.URL.Path, "/chat/completions"):
		wire = openAI{}
	case hasSuffix(r.URL.Path, "/messages"):
		wire = anthropic{}
	default:
		reply(w, 404, errorBody("not_found_error", "there is nothing at "+r.URL.Path))
		return
	}
	a := wire.read(body)
	t := s.script.next(a)
	select {
	case <-time.After(time.Duration(t.Delay)):
	case <-r.Context().Done():
		return
	}
	if t.Status != 0 {
		reply(w, t.Status, errorBody("scripted_error", "the script answers this status"))
		return
	}
	model, _ := body["model"].(string)
	if stream, _ := body["stream"].(bool); stream {
		w.Header().Set("Content-Type", "text/event-stream")
		wire.stream(&events{w: w, cut: t.Cut}, model, a, t, body)
		return
	}
	if t.Cut {
		panic(http.ErrAbortHandler)
	}
	reply(w, 200, wire.whole(model, a, t))
}

func hasSuffix(path, end string) bool {
	return len(path) >= len(end) && path[len(path)-len(end):] == end
}

// dialect is one wire format.
type dialect interface {
	read(body map[string]any) asked
	whole(model string, a asked, t Turn) map[string]any
	stream(e *events, model string, a asked, t Turn, body map[string]any)
}

func errorBody(kind, text string) map[string]any {
	return map[string]any{"type": "error", "error": map[string]any{"type": kind, "message": text}}
}

func reply(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

// events writes server-sent events; one that is cut breaks the connection after a few.
type events struct {
	w    http.ResponseWriter
	cut  bool
	sent int
}

func (e *events) send(name string, body any) {
	if e.sent++; e.cut && e.sent > 2 {
		panic(http.ErrAbortHandler)
	}
	if name != "" {
		_, _ = io.WriteString(e.w, "event: "+name+"\n")
	}
	text, ok := body.(string)
	if !ok {
		b, _ := json.Marshal(body)
		text = string(b)
	}
	_, _ = io.WriteString(e.w, "data: "+text+"\n\n")
	_ = http.NewResponseController(e.w).Flush()
}
