package a2a

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"

	"agentenv/fault"
	"agentenv/protocol/card"
)

// MCPConfig returns the extension by which clients register MCP servers; the kit keeps them and hands them to each task.
func MCPConfig() Extension {
	return Extension{URI: card.MCPConfig, Description: "Register MCP servers", bind: func(s *Server) []Operation {
		return []Operation{Op("add", s.mcp.add), Op("list", s.listMCP)}
	}}
}

// mcpTable are the MCP servers that clients registered.
type mcpTable struct {
	reserved []string

	mu      sync.Mutex
	servers map[string]MCPServer
}

type mcpAdd struct {
	URL     string            `json:"url"`
	Headers map[string]string `json:"headers" agent:"optional"`
	Name    *string           `json:"name"`
}

type mcpAdded struct {
	Status string `json:"status"`
	Name   string `json:"name"`
	URL    string `json:"url"`
}

type mcpList struct {
	Servers map[string]mcpShown `json:"mcp_servers"`
}

type mcpShown struct {
	URL        string `json:"url"`
	HasHeaders bool   `json:"has_headers"`
}

func (t *mcpTable) add(_ context.Context, in mcpAdd) (mcpAdded, error) {
	url, name := strings.TrimSpace(in.URL), "mcp_"+correlation()[:8]
	if in.Name != nil {
		name = *in.Name
	}
	if url == "" || strings.TrimSpace(name) == "" {
		return mcpAdded{}, fault.New(fault.Invalid, "an MCP server needs a URL, and a name that is not blank if it has one")
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for other, s := range t.servers {
		if s.URL == url {
			return mcpAdded{}, fault.New(fault.Exists, "the MCP server is registered already, as %q", other)
		}
	}
	if _, taken := t.servers[name]; taken || slices.Contains(t.reserved, name) {
		return mcpAdded{}, fault.New(fault.Exists, "the name %q of an MCP server is taken", name)
	}
	if t.servers == nil {
		t.servers = map[string]MCPServer{}
	}
	t.servers[name] = MCPServer{URL: url, Headers: maps.Clone(in.Headers)}
	return mcpAdded{"added", name, url}, nil
}

// all returns the servers as copies.
func (t *mcpTable) all() map[string]MCPServer {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := map[string]MCPServer{}
	for name, s := range t.servers {
		out[name] = MCPServer{URL: s.URL, Headers: maps.Clone(s.Headers)}
	}
	return out
}

// servers returns those that clients registered and those that extensions bring.
func (s *Server) servers(port int) map[string]MCPServer {
	out := s.mcp.all()
	for _, e := range s.entries {
		if e.ext.MCPServers != nil {
			maps.Copy(out, e.ext.MCPServers(port))
		}
	}
	return out
}

func (s *Server) listMCP(ctx context.Context, _ struct{}) (mcpList, error) {
	out := mcpList{Servers: map[string]mcpShown{}}
	for name, v := range s.servers(s.port(ctx)) {
		out.Servers[name] = mcpShown{URL: v.URL, HasHeaders: len(v.Headers) > 0}
	}
	return out, nil
}
