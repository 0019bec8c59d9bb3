// Package mcptools lets an agent use the MCP servers that were registered with it: one connection to each server for one task.
package mcptools

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"agentenv/fault"
	"agentenv/protocol/a2a"
)

// Tool is a tool of a server.
type Tool struct {
	Server, Name, Description string
	InputSchema               json.RawMessage // nil = not told
}

// Set are the servers of one task. Close it when the task ends. Safe for concurrent use.
type Set struct {
	client  *http.Client
	servers map[string]a2a.MCPServer

	mu       sync.Mutex
	sessions map[string]*connection
	closed   bool
}

// connection is made once; those who need it meanwhile wait for it.
type connection struct {
	ready   chan struct{}
	session *mcp.ClientSession
	err     error
}

// New returns the set of servers, connected to at their first use. client makes the requests, nil = one of its own.
func New(servers map[string]a2a.MCPServer, client *http.Client) *Set {
	if client == nil {
		client = &http.Client{}
	}
	return &Set{client: client, servers: servers, sessions: map[string]*connection{}}
}

// Close ends the connections; a second call is a no-op.
func (s *Set) Close() {
	s.mu.Lock()
	s.closed = true
	open := slices.Collect(maps.Values(s.sessions))
	s.sessions = map[string]*connection{}
	s.mu.Unlock()
	for _, c := range open {
		<-c.ready
		if c.session != nil {
			_ = c.session.Close()
		}
	}
}

// List returns the tools of all servers, servers by name. An error is Unavailable and names the server.
func (s *Set) List(ctx context.Context) ([]Tool, error) {
	var out []Tool
	for _, name := range slices.Sorted(maps.Keys(s.servers)) {
		session, err := s.connect(ctx, name)
		if err != nil {
			return nil, err
		}
		for t, err := range session.Tools(ctx, nil) {
			if err != nil {
				return nil, fault.Wrap(fault.Unavailable, err, "listing the tools of the MCP server %q", name)
			}
			tool := Tool{Server: name, Name: t.Name, Description: t.Description}
			if t.InputSchema != nil {
				if tool.InputSchema, err = json.Marshal(t.InputSchema); err != nil {
					return nil, fault.Wrap(fault.Unavailable, err, "the tool %q of the MCP server %q", t.Name, name)
				}
			}
			out = append(out, tool)
		}
	}
	return out, nil
}

// Call calls a tool. A tool that fails is a result with IsError; an error means that no result came: NotFound for a server that is not
// there, Unavailable otherwise.
func (s *Set) Call(ctx context.Context, server, tool string, arguments any) (*mcp.CallToolResult, error) {
	session, err := s.connect(ctx, server)
	if err != nil {
		return nil, err
	}
	r, err := session.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: arguments})
	if err != nil {
		return nil, fault.Wrap(fault.Unavailable, err, "calling the tool %q of the MCP server %q", tool, server)
	}
	return r, nil
}

func (s *Set) connect(ctx context.Context, name string) (*mcp.ClientSession, error) {
	server, known := s.servers[name]
	if !known {
		return nil, fault.New(fault.NotFound, "there is no MCP server %q", name)
	}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil, fault.New(fault.Canceled, "the task has ended")
	}
	c, begun := s.sessions[name]
	if !begun {
		c = &connection{ready: make(chan struct{})}
		s.sessions[name] = c
	}
	s.mu.Unlock()
	if !begun {
		client := mcp.NewClient(&mcp.Implementation{Name: "agent-env-agent", Version: "1"}, nil)
		with := *s.client
		with.Transport = headers{server.Headers, s.client.Transport}
		c.session, c.err = client.Connect(ctx, &mcp.StreamableClientTransport{Endpoint: server.URL, HTTPClient: &with, DisableStandaloneSSE: true}, nil)
		close(c.ready)
	}
	select {
	case <-c.ready:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if c.err != nil {
		s.mu.Lock()
		if s.sessions[name] == c {
			delete(s.sessions, name) // the next call tries again
		}
		s.mu.Unlock()
		return nil, fault.Wrap(fault.Unavailable, c.err, "connecting to the MCP server %q", name)
	}
	return c.session, nil
}

// headers adds those of a server's registration.
type headers struct {
	set  map[string]string
	next http.RoundTripper
}

func (h headers) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	for k, v := range h.set {
		r.Header.Set(k, v)
	}
	if h.next == nil {
		return http.DefaultTransport.RoundTrip(r)
	}
	return h.next.RoundTrip(r)
}
