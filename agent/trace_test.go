package agent_test

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"testing"

	"agentenv/agent"
	"agentenv/telemetry"
)

// TestTheTraceGoesOn hands the trace of a run to the agent, and nothing where nobody traces.
func TestTheTraceGoesOn(t *testing.T) {
	t.Parallel()
	var got []string
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = append(got, r.Header.Get("Traceparent"))
		_, _ = w.Write([]byte(`{"name":"n"}`))
	}))
	defer h.Close()
	client := agent.NewClient(agent.Options{})
	defer client.Close()
	traced, end, err := telemetry.Open(t.Context(), telemetry.Options{Env: func(string) string { return "" }, File: filepath.Join(t.TempDir(), "t.json"), Command: "test", Version: "1"})
	if err != nil {
		t.Fatal(err)
	}
	inStep, span := telemetry.Start(traced, "step ask")
	if _, err := client.Card(inStep, agent.Endpoint{URL: h.URL}); err != nil {
		t.Fatal(err)
	}
	span.End(nil)
	if err := end(); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Card(t.Context(), agent.Endpoint{URL: h.URL}); err != nil {
		t.Fatal(err)
	}
	if len(got) != 2 || !regexp.MustCompile(`^00-[0-9a-f]{32}-[0-9a-f]{16}-01$`).MatchString(got[0]) || got[1] != "" {
		t.Errorf("%q", got)
	}
}
