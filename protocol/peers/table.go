// Package peers lets the model of one agent talk to other agents: a table of them, and the MCP tools by which the model lists and messages
// them. It is what lies behind the agent extension urn:agentenv:peer-agents/v1.
package peers

import (
	"strings"
	"sync"

	"agentenv/fault"
	"agentenv/protocol/card"
)

// Peer is another agent.
type Peer struct {
	Name        string         `json:"name"`
	URL         string         `json:"url"`
	Card        map[string]any `json:"card,omitempty"`
	Description string         `json:"description,omitempty"`
	Token       string         `json:"-"` // bearer token, "" = none
}

// Table holds the peers of one agent. Safe for concurrent use.
type Table struct {
	mu    sync.Mutex
	peers []Peer
}

// Set replaces the table. A name twice, and a peer without name or URL, are Invalid; the table stays as it was then.
func (t *Table) Set(list []Peer) error {
	seen := map[string]bool{}
	for _, p := range list {
		switch {
		case p.Name == "" || p.URL == "":
			return fault.New(fault.Invalid, "peers: each needs a name and a url")
		case seen[p.Name]:
			return fault.New(fault.Invalid, "peers: the name %q is there twice", p.Name)
		}
		seen[p.Name] = true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.peers = append([]Peer(nil), list...)
	return nil
}

// List returns the peers in their order.
func (t *Table) List() []Peer {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]Peer(nil), t.peers...)
}

// get returns a peer by name; the error lists those there are.
func (t *Table) get(name string) (Peer, error) {
	var names []string
	for _, p := range t.List() {
		if p.Name == name {
			return p, nil
		}
		names = append(names, p.Name)
	}
	known := strings.Join(names, ", ")
	if known == "" {
		known = "<none>"
	}
	return Peer{}, fault.New(fault.NotFound, "there is no peer %q; the peers are: %s", name, known)
}

// rpc is where a peer takes messages: its base URL and the path of its card's url, unless the base ends in that path already.
func (p Peer) rpc() string {
	base := strings.TrimRight(p.URL, "/")
	at := "/a2a"
	if u := card.Of(p.Card).URL; u != "" {
		if path := pathOf(u); path != "" {
			at = path
		}
	}
	if strings.HasSuffix(base, at) {
		return base
	}
	return base + at
}

// shown is what a model is told of a peer.
func (p Peer) shown() map[string]any {
	c := card.Of(p.Card)
	description := p.Description
	if description == "" {
		description = c.Description
	}
	if description == "" {
		description = "Peer A2A agent at " + p.URL
	}
	capabilities, _ := p.Card["capabilities"].(map[string]any)
	if capabilities == nil {
		capabilities = map[string]any{}
	}
	skills := []any{}
	list, _ := p.Card["skills"].([]any)
	for _, v := range list {
		if s, ok := v.(map[string]any); ok {
			skills = append(skills, map[string]any{"id": s["id"], "name": s["name"], "description": s["description"]})
		}
	}
	return map[string]any{"name": p.Name, "description": description, "url": p.URL, "skills": skills, "capabilities": capabilities,
		"default_input_modes": modes(c.InputModes), "default_output_modes": modes(c.OutputModes)}
}

func modes(list []string) []string {
	if len(list) == 0 {
		return []string{"text"}
	}
	return list
}
