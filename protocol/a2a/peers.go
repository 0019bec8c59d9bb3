package a2a

import (
	"context"
	"fmt"

	"agentenv/protocol/card"
	"agentenv/protocol/peers"
)

// PeerAgents returns the extension by which clients name the agents that this one may talk to. The agent's model gets tools for it: an MCP
// server of the agent itself, which serves this machine alone and is handed to each task as "peer_agents".
func PeerAgents() Extension {
	table := &peers.Table{}
	tools := peers.NewTools(table, nil, 0)
	return Extension{URI: card.PeerAgents, Description: "Name the agents this one may talk to", Params: peerContract(),
		Operations: []Operation{
			Op("set", func(_ context.Context, in peersSet) (peersUpdated, error) { return in.into(table) }),
			Op("list", func(context.Context, struct{}) (peersList, error) { return listed(table), nil }),
		},
		// The handler lets only this machine in, whose model does not know the agent's token.
		Mounts:   map[string]Mount{peers.Path + "/": {Handler: tools.Handler(), Open: true}},
		Reserved: []string{peers.ServerName},
		MCPServers: func(port int) map[string]MCPServer {
			if port == 0 {
				return nil
			}
			return map[string]MCPServer{peers.ServerName: {URL: fmt.Sprintf("http://127.0.0.1:%d%s", port, peers.Path)}}
		},
		Close: func(context.Context) error { tools.Close(); return nil },
	}
}

// peerContract is the JSON Schema of the table, without which a client could not tell that a peer's token is taken.
func peerContract() map[string]any {
	text := map[string]any{"type": "string"}
	peer := map[string]any{"type": "object", "required": []string{"name", "url"}, "additionalProperties": false, "properties": map[string]any{
		"name": text, "url": text, "card": map[string]any{"type": "object"}, "description": text, "token": map[string]any{"type": "string", "writeOnly": true}}}
	schema := map[string]any{"type": "object", "required": []string{"peers"}, "additionalProperties": false, "properties": map[string]any{
		"peers": map[string]any{"type": "array", "items": peer}}}
	return map[string]any{"methods": map[string]any{"set": map[string]any{"request": map[string]any{"schema": schema}}}}
}

type peersSet struct {
	Peers []peerSet `json:"peers"`
}

type peerSet struct {
	Name        string         `json:"name"`
	URL         string         `json:"url"`
	Card        map[string]any `json:"card" agent:"optional"`
	Description *string        `json:"description"`
	Token       *string        `json:"token"` // bearer token of a peer that asks for one
}

type peersUpdated struct {
	Status string `json:"status"`
	Peers  int    `json:"peers"`
}

type peersList struct {
	Peers []peerShown `json:"peers"`
}

type peerShown struct {
	Name        string  `json:"name"`
	URL         string  `json:"url"`
	Description *string `json:"description"`
}

func (in peersSet) into(t *peers.Table) (peersUpdated, error) {
	list := make([]peers.Peer, len(in.Peers))
	for i, p := range in.Peers {
		list[i] = peers.Peer{Name: p.Name, URL: p.URL, Card: p.Card}
		if p.Description != nil {
			list[i].Description = *p.Description
		}
		if p.Token != nil {
			list[i].Token = *p.Token
		}
	}
	return peersUpdated{"updated", len(list)}, t.Set(list)
}

func listed(t *peers.Table) peersList {
	out := peersList{Peers: []peerShown{}}
	for _, p := range t.List() {
		shown := peerShown{Name: p.Name, URL: p.URL}
		if p.Description != "" {
			shown.Description = &p.Description
		}
		out.Peers = append(out.Peers, shown)
	}
	return out
}
