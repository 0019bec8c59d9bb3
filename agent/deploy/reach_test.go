package deploy_test

import (
	"strings"
	"testing"

	"agentenv/agent"
	"agentenv/fault"
	"agentenv/store/doc"
)

func TestReach(t *testing.T) {
	t.Parallel()
	r := newRig(t, model{}, nil)
	here := func(more ...any) *doc.Object {
		return doc.Of(append([]any{"agent_name", "a", "sandbox_id", "fake-1", "sandbox_type", "fake"}, more...)...)
	}
	for name, c := range map[string]struct {
		from  *doc.Object
		to    agent.Endpoint
		wants string // "" = an error
	}{
		"in a container":              {here(), agent.Endpoint{URL: "http://127.0.0.1:20001"}, "http://host.docker.internal:20001"},
		"by name":                     {here(), agent.Endpoint{URL: "http://localhost:20001/x"}, "http://host.docker.internal:20001/x"},
		"far away":                    {here(), agent.Endpoint{URL: "https://a.test/x", Sandbox: "fake-2", SandboxType: "fake"}, "https://a.test/x"},
		"installed into a container":  {here("on_host", true, "installed_container", "box-fake-1"), agent.Endpoint{URL: "http://127.0.0.1:1"}, "http://host.docker.internal:1"},
		"on the host":                 {here("on_host", true), agent.Endpoint{URL: "http://127.0.0.1:1", Sandbox: "fake-2", SandboxType: "fake"}, "http://127.0.0.1:1"},
		"in no sandbox":               {doc.Of("agent_name", "h"), agent.Endpoint{URL: "http://127.0.0.1:1"}, "http://127.0.0.1:1"},
		"of another program":          {doc.Of("sandbox_id", "x", "sandbox_type", "elsewhere"), agent.Endpoint{URL: "http://127.0.0.1:1"}, "http://127.0.0.1:1"},
		"published on loopback alone": {here(), agent.Endpoint{URL: "http://127.0.0.1:1", Sandbox: "fake-2", SandboxType: "fake"}, ""},
	} {
		got, err := r.Reach(c.from, c.to)
		if got != c.wants || (err != nil) != (c.wants == "") || err != nil && (!fault.Is(err, fault.Unsupported) || !strings.Contains(err.Error(), "fake-2")) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}
