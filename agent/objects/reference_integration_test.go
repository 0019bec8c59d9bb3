//go:build integration

package objects_test

import (
	"fmt"
	"net"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"agentenv/agent/objects"
	"agentenv/protocol/a2a"
)

// writer is an agent as users of the reference's library write them.
const writer = `
from agentenv_protocol.a2a_agent import (
    TRAJECTORY_V1, AgentConfig, AgentEnvAgent, AgentIdentity, TaskRequest, TaskResult, a2a_agent, enable,
)


class Config(AgentConfig):
    model: str | None = None


@a2a_agent(identity=AgentIdentity(name="writer", description="Writes", version="1.0.0"), config=Config,
           extensions=(enable(TRAJECTORY_V1, live=True),))
class Writer(AgentEnvAgent):
    async def run(self, request: TaskRequest[Config]) -> TaskResult:
        request.trajectory.set_format("writer/v1")
        request.trajectory.append({"input": "hi", "text": "x" * 100000})
        return TaskResult.builder().succeeded().add_text("one").build()


if __name__ == "__main__":
    Writer().serve()
`

// TestAgentsOfTheReference write their trajectories on every way that ours do.
func TestAgentsOfTheReference(t *testing.T) {
	python := filepath.Join(filepath.Dir(os.Getenv("AGENT_ENV_REFERENCE")), "python")
	if _, err := os.Stat(python); err != nil {
		t.Fatalf("AGENT_ENV_REFERENCE must name the reference's program; make test installs it: %v", err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	port := l.Addr().(*net.TCPAddr).Port
	must(t, l.Close())
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "agent.py"), []byte(writer), 0o600))
	staged := filepath.Join(dir, "staging")
	cmd := exec.CommandContext(t.Context(), python, filepath.Join(dir, "agent.py"))
	cmd.Env = append(os.Environ(), "A2A_HOST=127.0.0.1", fmt.Sprintf("A2A_PORT=%d", port), "AGENTENV_STAGING_DIR="+staged, "NO_PROXY=localhost,127.0.0.1")
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Log(out.String())
		}
	})
	plain := fmt.Sprintf("http://127.0.0.1:%d", port)
	to, err := url.Parse(plain)
	must(t, err)
	tls := httptest.NewTLSServer(&httputil.ReverseProxy{Rewrite: func(p *httputil.ProxyRequest) { p.SetURL(to) }})
	t.Cleanup(tls.Close)
	for _, w := range []way{byGrant, byStaging, byLoopback, nowhere} {
		t.Run(string(w), func(t *testing.T) {
			r := newRig(t, w, a2a.Settings{})
			if r.e.URL = plain; w == byStaging {
				r.e.URL = tls.URL
			}
			r.e.Card, err = r.client.AwaitCard(t.Context(), r.e, time.Minute)
			must(t, err)
			id := r.say("hi", "")
			url, err := r.mover.FetchTrajectory(t.Context(), r.e, objects.Of{TaskID: id}, r.url("t.json"))
			must(t, err)
			if text := r.get(url); !strings.HasPrefix(text, "[") || !strings.Contains(text, strings.Repeat("x", 100000)) || r.said.Len() > 0 {
				t.Errorf("%.200s %s", text, r.said.String())
			}
			r.dir = staged
			for _, f := range r.staged() {
				if info, err := os.Stat(f); err == nil && info.Size() > 0 && strings.Contains(f, "/objects/") {
					t.Error("left on the agent:", f)
				}
			}
		})
	}
}
