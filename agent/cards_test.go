package agent_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"agentenv/agent"
	"agentenv/fault"
	"agentenv/protocol/card"
)

func TestRPC(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ url, card, want string }{
		{"http://h:1", "", "http://h:1/a2a"},
		{"http://h:1/", "/a2a", "http://h:1/a2a"},
		{"http://h/a2a", "/a2a", "http://h/a2a"},
		{"http://h", "a2a", "http://h/a2a"},
		{"http://h", "https://inside:8000/custom/a2a?x=1", "http://h/custom/a2a"},
		{"http://h", "http://inside:8000/", "http://h/"},
		{"http://h", "http://inside:8000", "http://h/"},
		{"https://hub/instance/i", "", "https://hub/instance/i/a2a"},
		{"https://hub/instance/i", "https://hub/instance/i/a2a", "https://hub/instance/i/a2a"},
		{"https://hub/instance/i", "/a2a", "https://hub/instance/i/a2a"},
		{"http://h", "http://x/%zz", "http://h/a2a"},
	} {
		e := agent.Endpoint{URL: c.url}
		if c.card != "" {
			e.Card = card.Of(map[string]any{"url": c.card})
		}
		if got := e.RPC(); got != c.want {
			t.Errorf("%s with %q: %s, want %s", c.url, c.card, got, c.want)
		}
	}
}

func TestCard(t *testing.T) {
	t.Parallel()
	only := func(path, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != path {
				http.NotFound(w, r)
				return
			}
			io.WriteString(w, body)
		}
	}
	const good = `{"name":"n","url":"/a2a"}`
	for name, c := range map[string]struct {
		serve http.HandlerFunc
		kind  fault.Kind
		says  string
	}{
		"at the older place": {only("/.well-known/agent.json", good), "", ""},
		"at the newer place": {only("/.well-known/agent-card.json", good), "", ""},
		"nowhere":            {http.NotFound, fault.Unavailable, "GET /.well-known/agent.json answered HTTP 404"},
		"garbage":            {only("/.well-known/agent.json", "<html>"), fault.Invalid, "no JSON"},
		"too large":          {only("/.well-known/agent.json", repeat(" ", 2<<20)), fault.Unavailable, "larger than 1 MiB"},
		"a redirect": {func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "http://other/", http.StatusFound) }, fault.Unavailable,
			"a redirect"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client, e := serve(t, &script{other: c.serve})
			got, err := client.Card(t.Context(), e)
			if c.kind == "" {
				if err != nil || got.Name != "n" {
					t.Errorf("%+v, %v", got, err)
				}
				return
			}
			if !fault.Is(err, c.kind) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: %v", fault.KindOf(err), err)
			}
		})
	}
}

func TestAwaitCard(t *testing.T) {
	t.Parallel()
	const good = `{"name":"n"}`
	for name, c := range map[string]struct {
		serve func(since time.Duration) raw
		kind  fault.Kind
		says  string
		most  time.Duration
	}{
		"after a while": {func(since time.Duration) raw {
			if since < 5*time.Second {
				return answered(503, "starting")
			}
			return answered(200, good)
		}, "", "", 6 * time.Second},
		"never":          {func(time.Duration) raw { return answered(503, "starting") }, fault.Timeout, "no card within 5m0s: read the card of the agent at http://agent (sandbox box): GET /.well-known/agent.json answered HTTP 503: starting", 301 * time.Second},
		"something else": {func(time.Duration) raw { return answered(200, "<html>") }, fault.Invalid, "serves no card", 12 * time.Second},
		"something else at first": {func(since time.Duration) raw {
			if since < 5*time.Second {
				return answered(200, "<html>")
			}
			return answered(200, good)
		}, "", "", 6 * time.Second},
		"a host that hangs": {func(time.Duration) raw { return hang }, fault.Timeout,
			"no card within 5m0s", 301 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				client, e, _ := bubble(t, &script{other: func(w http.ResponseWriter, r *http.Request) { c.serve(time.Since(began))(w, r) }})
				e.Sandbox = "box"
				got, err := client.AwaitCard(t.Context(), e, 0)
				if lasted := time.Since(began); lasted > c.most {
					t.Errorf("it took %s", lasted)
				}
				if c.kind == "" {
					if err != nil || got.Name != "n" {
						t.Error(err)
					}
					return
				}
				if !fault.Is(err, c.kind) || !strings.Contains(err.Error(), c.says) {
					t.Errorf("%s: %v", fault.KindOf(err), err)
				}
			})
		})
	}
}
