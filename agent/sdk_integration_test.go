//go:build integration

package agent_test

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"agentenv/agent"
)

// sdkAgent starts an agent on the public a2a-sdk, which the reference's Python has, and returns its URL.
func sdkAgent(t *testing.T, streams string) string {
	t.Helper()
	program := os.Getenv("AGENT_ENV_REFERENCE")
	if program == "" {
		t.Fatal("AGENT_ENV_REFERENCE must name the reference's program; make test installs it")
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	cmd := exec.CommandContext(ctx, filepath.Join(filepath.Dir(program), "python"), "testdata/sdk_agent.py", streams)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stop()
		cmd.Wait()
	})
	port, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the agent did not start: %v", err)
	}
	return "http://127.0.0.1:" + strings.TrimSpace(port)
}

// TestAgentOnSDK talks to an agent that was not made for us: its card gives the route, its answers may be artifacts.
func TestAgentOnSDK(t *testing.T) {
	for _, streams := range []string{"0", "1"} {
		client := agent.NewClient(agent.Options{})
		t.Cleanup(client.Close)
		e := agent.Endpoint{URL: sdkAgent(t, streams)}
		var err error
		if e.Card, err = client.AwaitCard(t.Context(), e, time.Minute); err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct{ say, state, text string }{
			{"hi", agent.Completed, "Echo: hi"}, {"artifact", agent.Completed, "in\npieces"}, {"ask", agent.InputRequired, "which?"},
			{"refuse", agent.Rejected, "no"}, {"long", agent.Completed, repeat("x", 300_000)},
		} {
			tn := turn(c.say)
			tn.MessageID, tn.ContextID = "", ""
			got, err := client.Send(t.Context(), e, tn)
			if err != nil || got.State != c.state || got.Text != c.text {
				t.Errorf("%s: %+v, %v", c.say, got, err)
			}
		}
		tn := turn("sleep")
		tn.ContextID, tn.Timeout = "", 3*time.Second
		_, err = client.Send(t.Context(), e, tn)
		if te := turnError(t, err, agent.TurnTimeout); te.Partial.Text != "thinking" {
			t.Errorf("%+v", te.Partial)
		}
	}
}
