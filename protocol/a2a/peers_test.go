package a2a_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"agentenv/protocol/a2a"
)

// TestPeersTalk names one agent to another, whose code then uses the tools it was handed, over loopback; both ask for a token.
func TestPeersTalk(t *testing.T) {
	t.Parallel()
	asked := serve(t, a2a.Agent{Identity: a2a.Identity{Name: "Asked", Description: "d", Version: "1"},
		Run: func(_ context.Context, r *a2a.Request) (a2a.Result, error) {
			return a2a.Result{Parts: []a2a.Part{a2a.Text("you said " + r.Text())}}, nil
		}}, a2a.Settings{Token: "other"})
	asker := serve(t, a2a.Agent{Identity: a2a.Identity{Name: "Asker", Description: "d", Version: "1"}, Extensions: []a2a.Extension{a2a.PeerAgents(), a2a.MCPConfig()},
		Run: func(ctx context.Context, r *a2a.Request) (a2a.Result, error) {
			client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
			session, err := client.Connect(ctx, &mcp.StreamableClientTransport{Endpoint: r.MCPServers["peer_agents"].URL, DisableStandaloneSSE: true}, nil)
			if err != nil {
				return a2a.Result{}, err
			}
			defer session.Close()
			out, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "peer_send_message", Arguments: map[string]any{"name": "other", "prompt": r.Text()}})
			if err != nil {
				return a2a.Result{}, err
			}
			return a2a.Result{Parts: []a2a.Part{a2a.Text(out.Content[0].(*mcp.TextContent).Text)}}, nil
		}}, a2a.Settings{Token: "mine"})
	bearer := []string{"Authorization", "Bearer mine"}
	set := func(body string, want int) {
		t.Helper()
		if status, text, _ := asker.do("POST", "/ext/peer-agents", body, bearer...); status != want {
			t.Errorf("%s: %d %s", body, status, text)
		}
	}
	set(`{"peers":[{"name":"other","url":"`+asked.url+`","token":"other","description":"told"}]}`, 200)
	set(`{"peers":[{"name":"a","url":"http://a"},{"name":"a","url":"http://b"}]}`, 400)
	if _, text, _ := asker.do("GET", "/ext/peer-agents", "", bearer...); text != `{"peers":[{"name":"other","url":"`+asked.url+`","description":"told"}]}` {
		t.Error(text)
	}
	if status, text, _ := asker.do("POST", "/ext/mcp-config", `{"url":"http://e/mcp","name":"peer_agents"}`, bearer...); status != http.StatusConflict {
		t.Errorf("the reserved name: %d %s", status, text)
	}
	_, text, _ := asker.do("POST", "/a2a", `{"jsonrpc":"2.0","id":"1","method":"message/send","params":{"message":{"messageId":"m","role":"user","parts":[{"kind":"text","text":"hello"}]}}}`, bearer...)
	var answer struct {
		Result struct {
			Status struct {
				Message struct{ Parts []struct{ Text string } }
			}
		}
	}
	if err := json.Unmarshal([]byte(text), &answer); err != nil || len(answer.Result.Status.Message.Parts) == 0 || !strings.Contains(answer.Result.Status.Message.Parts[0].Text, "you said hello") {
		t.Errorf("%v %s", err, text)
	}
}
