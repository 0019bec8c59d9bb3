package peers

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"agentenv/fault"
)

const (
	// Path is where Handler is meant to be served.
	Path = "/ext/peer-agents/mcp"
	// ServerName is the name under which the tools are registered with an agent.
	ServerName = "peer_agents"

	callLimit = 58 * time.Second
	maxWait   = 50 // seconds peer_send_message waits at most
	maxTasks  = 1024
)

// Tools serves the tools that talk to the peers of a table. Safe for concurrent use.
type Tools struct {
	table *Table
	http  *http.Client
	poll  time.Duration

	mu     sync.Mutex
	tasks  map[string]*started
	order  []string
	closed bool
}

// started is a task a tool began.
type started struct {
	peer  Peer
	state string
}

// NewTools returns the tools over a table. client makes the requests, nil for one of its own that follows no redirects; poll is the
// longest pause between two looks at a task that works, 0 = 5 s.
func NewTools(t *Table, client *http.Client, poll time.Duration) *Tools {
	if client == nil {
		client = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	}
	if poll == 0 {
		poll = 5 * time.Second
	}
	return &Tools{table: t, http: client, poll: poll, tasks: map[string]*started{}}
}

// Close ends the serving: requests are answered 503 from then on. A second call is a no-op.
func (t *Tools) Close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	t.http.CloseIdleConnections()
}

// Handler serves the tools as a stateless MCP server over streamable HTTP with JSON answers, to clients on this machine alone: everyone else
// is answered 403.
func (t *Tools) Handler() http.Handler {
	s := mcp.NewServer(&mcp.Implementation{Name: ServerName, Version: "1"}, nil)
	add(s, "peer_list", "List the peer agents you can message", t.list)
	add(s, "peer_get_card", "Get the card of a peer agent", t.card)
	add(s, "peer_send_message", "Send a message to a peer agent and wait for its answer", t.sendMessage)
	add(s, "peer_start_task", "Send a message to a peer agent without waiting; ask for the answer with peer_get_task", t.startTask)
	add(s, "peer_get_task", "Get a task of a peer agent and its answer", t.getTask)
	add(s, "peer_cancel_task", "Cancel a task of a peer agent", t.cancelTask)
	serve := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, &mcp.StreamableHTTPOptions{Stateless: true, JSONResponse: true})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		t.mu.Lock()
		closed := t.closed
		t.mu.Unlock()
		switch {
		case closed:
			http.Error(w, "the agent ends", http.StatusServiceUnavailable)
		case !local(r):
			http.Error(w, "the peer tools are for this agent alone", http.StatusForbidden)
		default:
			serve.ServeHTTP(w, r)
		}
	})
}

// local reports whether a request comes from this machine and was meant for it.
func local(r *http.Request) bool {
	from, _, err := net.SplitHostPort(r.RemoteAddr)
	if ip := net.ParseIP(from); err != nil || ip == nil || !ip.IsLoopback() {
		return false
	}
	if !loopback(r.Host) {
		return false
	}
	origin := r.Header.Get("Origin")
	if origin == "" {
		return true
	}
	u, err := url.Parse(origin)
	return err == nil && loopback(u.Host)
}

func loopback(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.Trim(host, "[]")
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// add registers a tool whose errors the model sees, and whose result is one JSON text.
func add[In any](s *mcp.Server, name, description string, do func(context.Context, In) (any, error)) {
	mcp.AddTool(s, &mcp.Tool{Name: name, Description: description}, func(ctx context.Context, _ *mcp.CallToolRequest, in In) (*mcp.CallToolResult, any, error) {
		ctx, cancel := context.WithTimeoutCause(ctx, callLimit, fault.New(fault.Timeout, "%s took longer than %s", name, callLimit))
		defer cancel()
		out, err := do(ctx, in)
		if err != nil {
			return nil, nil, err
		}
		text, err := json.Marshal(out)
		if err != nil {
			return nil, nil, err
		}
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: string(text)}}}, nil, nil
	})
}

type nothing struct{}

type named struct {
	Name string `json:"name" jsonschema:"the peer's name"`
}

type toSend struct {
	Name    string `json:"name" jsonschema:"the peer's name"`
	Prompt  string `json:"prompt,omitempty" jsonschema:"the message as text"`
	Parts   []any  `json:"parts,omitempty" jsonschema:"the message as A2A parts, instead of prompt"`
	Context string `json:"context_id,omitempty" jsonschema:"go on with this conversation"`
}

type toAwait struct {
	Name    string   `json:"name" jsonschema:"the peer's name"`
	Prompt  string   `json:"prompt,omitempty" jsonschema:"the message as text"`
	Parts   []any    `json:"parts,omitempty" jsonschema:"the message as A2A parts, instead of prompt"`
	Context string   `json:"context_id,omitempty" jsonschema:"go on with this conversation"`
	Timeout *float64 `json:"timeout_seconds,omitempty" jsonschema:"how long to wait for the answer, 45 when absent, 50 at most"`
}

type aTask struct {
	Task    string `json:"task_id"`
	History *int   `json:"history_length,omitempty" jsonschema:"how many messages of the task's history to give"`
}

type ended struct {
	Task string `json:"task_id"`
}

func (t *Tools) list(context.Context, nothing) (any, error) {
	out := []any{}
	for _, p := range t.table.List() {
		out = append(out, p.shown())
	}
	return out, nil
}

func (t *Tools) card(ctx context.Context, in named) (any, error) {
	p, err := t.table.get(in.Name)
	if err != nil || len(p.Card) > 0 {
		return p.Card, err
	}
	ctx, cancel := context.WithTimeout(ctx, getLimit)
	defer cancel()
	text, err := t.fetch(ctx, p, http.MethodGet, strings.TrimRight(p.URL, "/")+"/.well-known/agent.json", nil)
	if err != nil {
		return nil, err
	}
	if !json.Valid(text) {
		return nil, fault.New(fault.Unavailable, "the card of peer %q is no JSON", p.Name)
	}
	return json.RawMessage(text), nil
}

// begin sends a message and remembers its task.
func (t *Tools) begin(ctx context.Context, in toSend) (Peer, map[string]any, error) {
	p, err := t.table.get(in.Name)
	if err != nil {
		return p, nil, err
	}
	parts := in.Parts
	switch {
	case (in.Prompt == "") == (len(parts) == 0):
		return p, nil, fault.New(fault.Invalid, "give either prompt or parts")
	case in.Prompt != "":
		parts = []any{map[string]any{"kind": "text", "text": in.Prompt}}
	}
	task, err := t.send(ctx, p, parts, in.Context)
	if err != nil {
		return p, nil, err
	}
	if task["kind"] == "message" { // the peer answered at once, without a task
		task = map[string]any{"id": "", "contextId": task["contextId"], "status": map[string]any{"state": "completed", "message": task}}
	} else if id, _ := task["id"].(string); id == "" {
		return p, nil, fault.New(fault.Unavailable, "peer %q answered without a task", p.Name)
	} else {
		t.keep(id, p, stateOf(task))
	}
	return p, task, nil
}

// keep remembers a task; where there are too many, the oldest that has ended is forgotten, or else the oldest.
func (t *Tools) keep(id string, p Peer, state string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if known, ok := t.tasks[id]; ok {
		known.state = state
		return
	}
	if len(t.order) >= maxTasks {
		i := max(0, slices.IndexFunc(t.order, func(old string) bool { return terminal(t.tasks[old].state) }))
		delete(t.tasks, t.order[i])
		t.order = slices.Delete(t.order, i, i+1)
	}
	t.tasks[id] = &started{p, state}
	t.order = append(t.order, id)
}

func (t *Tools) find(id string) (Peer, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s, ok := t.tasks[id]; ok {
		return s.peer, nil
	}
	return Peer{}, fault.New(fault.NotFound, "there is no task %q; use the task_id that peer_start_task or peer_send_message gave", id)
}

func (t *Tools) sendMessage(ctx context.Context, in toAwait) (any, error) {
	wait := 45.0
	if in.Timeout != nil {
		wait = min(*in.Timeout, maxWait)
	}
	if wait < 1 {
		return nil, fault.New(fault.Invalid, "timeout_seconds must be at least 1")
	}
	deadline := time.Now().Add(time.Duration(wait * float64(time.Second)))
	p, task, err := t.begin(ctx, toSend{in.Name, in.Prompt, in.Parts, in.Context})
	if err != nil {
		return nil, err
	}
	if task, err = t.settle(ctx, p, task, deadline); err != nil {
		return nil, err
	}
	return t.told(p, task), nil
}

func (t *Tools) startTask(ctx context.Context, in toSend) (any, error) {
	p, task, err := t.begin(ctx, in)
	if err != nil {
		return nil, err
	}
	if task["id"] == "" { // the peer has answered, and there is no task to read the answer from
		return t.told(p, task), nil
	}
	return map[string]any{"task_id": task["id"], "context_id": task["contextId"], "state": stateOf(task)}, nil
}

func (t *Tools) getTask(ctx context.Context, in aTask) (any, error) {
	p, err := t.find(in.Task)
	if err != nil {
		return nil, err
	}
	history := 0
	if in.History != nil {
		if history = *in.History; history < 0 {
			return nil, fault.New(fault.Invalid, "history_length must be at least 0")
		}
	}
	task, err := t.get(ctx, p, in.Task, history)
	if err != nil {
		return nil, err
	}
	out := t.told(p, task)
	if list, ok := task["history"].([]any); ok && in.History != nil {
		out["history"] = list
	}
	return out, nil
}

func (t *Tools) cancelTask(ctx context.Context, in ended) (any, error) {
	p, err := t.find(in.Task)
	if err != nil {
		return nil, err
	}
	task, err := t.call(ctx, p, "tasks/cancel", map[string]any{"id": in.Task}, getLimit)
	if err != nil {
		return nil, err
	}
	t.keep(in.Task, p, stateOf(task))
	return map[string]any{"task_id": in.Task, "state": stateOf(task)}, nil
}

// told is what a model sees of a task.
func (t *Tools) told(p Peer, task map[string]any) map[string]any {
	id, _ := task["id"].(string)
	state := stateOf(task)
	if id != "" {
		t.keep(id, p, state)
	}
	if !settled(state) {
		state = "working"
	}
	out := map[string]any{"task_id": id, "context_id": task["contextId"], "state": state}
	status, _ := task["status"].(map[string]any)
	message, _ := status["message"].(map[string]any)
	parts, _ := message["parts"].([]any)
	var texts []string
	var others []any
	for _, v := range parts {
		part, _ := v.(map[string]any)
		if s, ok := part["text"].(string); ok && part["kind"] == "text" {
			texts = append(texts, s)
		} else {
			others = append(others, v)
		}
	}
	if texts != nil {
		out["response"] = strings.Join(texts, "\n")
	}
	if others != nil {
		out["parts"] = others
	}
	if artifacts, ok := task["artifacts"].([]any); ok && len(artifacts) > 0 {
		out["artifacts"] = artifacts
	}
	if state == "failed" {
		out["error"] = map[string]any{"raw_message": strings.Join(texts, "\n")}
	}
	return out
}
