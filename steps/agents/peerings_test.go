package agents_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"agentenv/fault"
	"agentenv/protocol/a2a"
	"agentenv/protocol/a2a/echo"
	"agentenv/store/doc"
	"agentenv/task"
)

// asker is an agent that passes what it is told on to its peer "other" and answers what the tool gives.
func asker() a2a.Agent {
	return a2a.Agent{Identity: a2a.Identity{Name: "Asker", Description: "asks", Version: "1"}, Extensions: []a2a.Extension{a2a.PeerAgents()},
		Run: func(ctx context.Context, r *a2a.Request) (a2a.Result, error) {
			session, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(ctx,
				&mcp.StreamableClientTransport{Endpoint: r.MCPServers["peer_agents"].URL, DisableStandaloneSSE: true}, nil)
			if err != nil {
				return a2a.Result{}, err
			}
			defer session.Close()
			out, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "peer_send_message", Arguments: map[string]any{"name": "other", "prompt": r.Text()}})
			if err != nil {
				return a2a.Result{}, err
			}
			return a2a.Result{Parts: []a2a.Part{a2a.Text(out.Content[0].(*mcp.TextContent).Text)}}, nil
		}}
}

// TestPeersTalk has one agent message another that asks for a token, which only the deployer knows.
func TestPeersTalk(t *testing.T) {
	t.Parallel()
	for name, tokens := range map[string]bool{"with a token": true, "open": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCrew(t, nil)
			token := ""
			if tokens {
				var err error
				if token, err = c.tokens.For("far-1"); err != nil {
					t.Fatal(err)
				}
			}
			at := deployed(t, nil, map[string]string{"asks": serveKit(t, asker(), ""), "other": serveKit(t, echo.Agent(), token)})
			record(at, "other").Set("sandbox_id", "far-1").Set("sandbox_type", "elsewhere")
			run, err := c.run(t.Context(), at, `{"id":"p","type":"peer_agents","peerings":[{"source_agent_name":"asks","peer_agent_names":["other"]}]}`)
			if err != nil {
				t.Fatal(err)
			}
			if got := doc.Canonical(run.Context().Obj("metadata")); got != `{"agent_peerings":[{"peer_agent_names":["other"],"source_agent_name":"asks"}]}` {
				t.Errorf("recorded %s", got)
			}
			run, err = c.run(t.Context(), run.Context(), `{"id":"ask","type":"prompt_agent","agent_name":"asks","prompt":"hello"}`)
			if err != nil || !strings.Contains(run.PromptResponses()[0].Str("response"), "Echo: hello") {
				t.Errorf("%s, %v", canon(run.PromptResponses()), err)
			}
		})
	}
}

// TestPeersAreRefused has what cannot work be refused before any agent is told anything.
func TestPeersAreRefused(t *testing.T) {
	t.Parallel()
	const one = `{"source_agent_name":"asks","peer_agent_names":["PEER"]}`
	for name, c := range map[string]struct {
		peerings, peer string
		change         func(at *doc.Object)
		kind           fault.Kind
		wants          []string
	}{
		"source that is not there": {`{"source_agent_name":"nobody","peer_agent_names":["other"]}`, "", nil, fault.Invalid, []string{`"nobody"`, "asks"}},
		"peer that is not there":   {one, "nobody", nil, fault.Invalid, []string{`"nobody"`, `a peer of "asks"`}},
		"no url":                   {one, "other", func(at *doc.Object) { record(at, "asks").Set("a2a_url", nil).Set("api_url", "") }, fault.Invalid, []string{`"asks"`, "without a URL"}},
		"takes no peers":           {`{"source_agent_name":"other","peer_agent_names":["asks"]}`, "", nil, fault.Unsupported, []string{`"other"`, "peer-agents"}},
		"takes no token":           {`{"source_agent_name":"old","peer_agent_names":["guarded"]}`, "", nil, fault.Unsupported, []string{`"guarded"`, `"old"`, "token"}},
		"token that nobody knows": {one, "guarded", func(at *doc.Object) { record(at, "guarded").Set("sandbox_id", nil) },
			fault.Unsupported, []string{`"guarded"`, "does not know"}},
		"not reachable": {one, "near", func(at *doc.Object) {
			record(at, "asks").Set("sandbox_id", "local-12345678").Set("sandbox_type", "local")
		},
			fault.Unsupported, []string{`"asks"`, `"near"`, "fake-1"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			crew := newCrew(t, nil)
			told := &told{}
			at := deployed(t, nil, map[string]string{"guest": told.serve(t, true), "asks": told.serve(t, true), "old": told.serve(t, false), "other": serveKit(t, echo.Agent(), ""),
				"guarded": serveKit(t, echo.Agent(), "x"), "near": serveKit(t, echo.Agent(), "")})
			record(at, "guarded").Set("sandbox_id", "far-1").Set("sandbox_type", "elsewhere")
			record(at, "near").Set("sandbox_id", "fake-1").Set("sandbox_type", "fake")
			if c.change != nil {
				c.change(at)
			}
			// A peering that could be made comes first.
			_, err := crew.run(t.Context(), at, `{"id":"p","type":"peer_agents","peerings":[{"source_agent_name":"guest","peer_agent_names":[]},`+strings.ReplaceAll(c.peerings, "PEER", c.peer)+`]}`)
			if !fault.Is(err, c.kind) {
				t.Fatal(err)
			}
			for _, want := range append(c.wants, `peer_agents "p"`) {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("no %q in %v", want, err)
				}
			}
			if len(told.bodies) != 0 {
				t.Errorf("told %s", told.bodies)
			}
		})
	}
}

// told is an agent by the wire alone that takes peers.
type told struct {
	bodies []string
	status int
}

func (a *told) serve(t *testing.T, tokens bool) string {
	t.Helper()
	request := map[string]any{"required": []string{"peers"}}
	if tokens {
		request["schema"] = map[string]any{"properties": map[string]any{"peers": map[string]any{"items": map[string]any{"properties": map[string]any{"token": map[string]any{"type": "string"}}}}}}
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			_ = json.NewEncoder(w).Encode(map[string]any{"name": "told", "description": "is told", "url": "/a2a", "capabilities": map[string]any{"extensions": []any{map[string]any{
				"uri": "urn:agentenv:peer-agents/v1", "params": map[string]any{"endpoint": "/peers", "methods": map[string]any{"set": map[string]any{"method": "POST", "request": request}}}}}}})
			return
		}
		var body map[string]any
		_ = json.NewDecoder(r.Body).Decode(&body)
		text, _ := json.Marshal(body)
		a.bodies = append(a.bodies, r.URL.Path+" "+string(text))
		if a.status != 0 {
			http.Error(w, `{"error":{"code":"no_luck"},"was":`+string(text)+`}`, a.status)
		}
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func TestWhatAPeerIs(t *testing.T) {
	t.Parallel()
	c := newCrew(t, nil)
	a := &told{}
	at := deployed(t, nil, map[string]string{"asks": a.serve(t, true), "other": serveKit(t, echo.Agent(), "")})
	record(at, "asks").Set("sandbox_id", "local-12345678").Set("sandbox_type", "local")
	url := record(at, "other").Str("a2a_url")
	record(at, "other").Set("sandbox_id", "local-87654321").Set("sandbox_type", "local").Set("a2a_card", doc.Of("name", "E", "description", "echoes"))
	step := `{"id":"p","type":"peer_agents","peerings":[{"source_agent_name":"asks","peer_agent_names":["other"]}]}`
	if _, err := c.run(t.Context(), at, step); err != nil {
		t.Fatal(err)
	}
	// In a container of this machine its loopback address has another name; on its host it has not.
	seen := strings.Replace(url, "127.0.0.1", "host.docker.internal", 1)
	want := `/peers {"peers":[{"card":{"description":"echoes","name":"E"},"description":"echoes","name":"other","url":"` + seen + `"}]}`
	if len(a.bodies) != 1 || a.bodies[0] != want {
		t.Errorf("told %s, not %s", a.bodies, want)
	}
	record(at, "asks").Set("on_host", true)
	if _, err := c.run(t.Context(), at, step); err != nil || !strings.Contains(a.bodies[1], `"url":"`+url+`"`) {
		t.Errorf("told %s, %v", a.bodies, err)
	}
}

// TestPeersToldInVain has a source refuse, without a word of the token in the error.
func TestPeersToldInVain(t *testing.T) {
	t.Parallel()
	c := newCrew(t, nil)
	token, err := c.tokens.For("far-1")
	if err != nil {
		t.Fatal(err)
	}
	a := &told{status: http.StatusBadRequest}
	at := deployed(t, nil, map[string]string{"asks": a.serve(t, true), "other": serveKit(t, echo.Agent(), token)})
	record(at, "other").Set("sandbox_id", "far-1").Set("sandbox_type", "elsewhere")
	run, err := c.run(t.Context(), at, `{"id":"p","type":"peer_agents","peerings":[{"source_agent_name":"asks","peer_agent_names":["other"]}]}`)
	if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "no_luck") || strings.Contains(err.Error(), token) || !strings.Contains(a.bodies[0], token) {
		t.Errorf("%v", err)
	}
	if run.Metadata("agent_peerings") != nil {
		t.Error("it is recorded all the same")
	}
}

func TestPeerSteps(t *testing.T) {
	t.Parallel()
	c := newCrew(t, nil)
	for text, want := range map[string]string{
		`"peerings":[]`: "empty",
		`"peerings":[{"source_agent_name":"","peer_agent_names":["b"]}]`:                                                        "peerings[0]",
		`"peerings":[{"source_agent_name":"a"}]`:                                                                                "peerings[0]",
		`"peerings":[{"source_agent_name":"a","peer_agent_names":["a"]}]`:                                                       "its own peer",
		`"peerings":[{"source_agent_name":"a","peer_agent_names":["b","b"]}]`:                                                   "twice",
		`"peerings":[{"source_agent_name":"a","peer_agent_names":[5]}]`:                                                         "peer_agent_names",
		`"peerings":[{"source_agent_name":"a","peer_agent_names":["b"]},{"source_agent_name":"a","peer_agent_names":["c"]}]`:    "a source twice",
		`"peerings":[{"source_agent_name":"a","peer_agent_names":["b"]},{"source_agent_name":"c","peer_agent_names":[""]}]`:     "peerings[1]",
		`"peerings":[{"source_agent_name":"a","peer_agent_names":["b"]},{"source_agent_name":"c","peer_agent_names":[[], {}]}]`: "peerings[1]",
	} {
		if _, err := c.reg.ParseText("t", []byte(`[{"id":"p","type":"peer_agents",`+text+`}]`), task.ParseOptions{Strict: true}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
