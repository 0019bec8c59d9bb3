package agent_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"agentenv/agent"
	"agentenv/fault"
	"agentenv/protocol/a2a"
	"agentenv/protocol/a2a/echo"
	"agentenv/protocol/card"
	"agentenv/store/doc"
)

// serveEcho runs the echo agent behind a real server.
func serveEcho(tb testing.TB, token string) string {
	tb.Helper()
	kit, err := echo.New(context.WithoutCancel(tb.Context()), a2a.Settings{Token: token})
	if err != nil {
		tb.Fatal(err)
	}
	server := httptest.NewServer(kit.Handler())
	tb.Cleanup(func() {
		server.Close()
		if err := kit.Close(context.Background()); err != nil {
			tb.Error(err)
		}
	})
	return server.URL
}

func echoEndpoint(tb testing.TB, c *agent.Client, url, token string) agent.Endpoint {
	tb.Helper()
	e := agent.Endpoint{URL: url, Token: token}
	found, err := c.AwaitCard(tb.Context(), e, 10*time.Second)
	if err != nil {
		tb.Fatal(err)
	}
	e.Card = found
	return e
}

// TestEcho talks to the echo agent, streaming and by polls.
func TestEcho(t *testing.T) {
	t.Parallel()
	for _, token := range []string{"", "s3cr3t"} {
		url := serveEcho(t, token)
		client := agent.NewClient(agent.Options{})
		t.Cleanup(client.Close)
		streamed := echoEndpoint(t, client, url, token)
		if !streamed.Card.Streaming {
			t.Error("the echo agent offers no streams")
		}
		polled := streamed
		polled.Card = card.Of(map[string]any{"url": streamed.Card.URL})
		for _, c := range []struct{ say, state, text, code string }{
			{"hi", agent.Completed, "Echo: hi", ""},
			{"say 300000", agent.Completed, repeat("x", 300000), ""},
			{"fail", agent.Failed, "", "echo.asked"},
			{"boom", agent.Failed, "", "framework.unhandled_exception"},
		} {
			for _, e := range []agent.Endpoint{streamed, polled} {
				tn := turn(c.say)
				tn.MessageID, tn.ContextID = "", ""
				got, err := client.Send(t.Context(), e, tn)
				if err != nil || got.State != c.state || c.text != "" && got.Text != c.text || got.ErrorCode != c.code || got.TaskID == "" || got.ContextID == "" {
					t.Errorf("%s: %+v, %v", c.say, got, err)
				}
			}
		}
		answer, err := client.Call(t.Context(), streamed, agent.Call{URI: card.AgentConfig, Op: "set", Body: doc.Of("model", "m"), Retry: true})
		if err != nil || answer.Str("status") != "updated" {
			t.Error(answer, err)
		}
		if _, err := client.Call(t.Context(), streamed, agent.Call{URI: card.AgentConfig, Op: "set", Body: doc.Of("nope", "s3cr3t-value")}); !fault.Is(err, fault.Invalid) {
			t.Error(err)
		}
		if token == "" {
			continue
		}
		streamed.Token = ""
		_, err = client.Send(t.Context(), streamed, turn("hi"))
		if turnError(t, err, agent.TurnRPC); !fault.Is(err, fault.Denied) {
			t.Error(err)
		}
	}
}

// TestEchoIsCancelled gives a turn up: the task ends at the agent too.
func TestEchoIsCancelled(t *testing.T) {
	t.Parallel()
	client := agent.NewClient(agent.Options{})
	t.Cleanup(client.Close)
	e := echoEndpoint(t, client, serveEcho(t, ""), "")
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	tn := turn("sleep 3600")
	tn.OnTask = func(string) { stop() }
	_, err := client.Send(ctx, e, tn)
	te := turnError(t, err, agent.TurnCanceled)
	page, err := client.Call(t.Context(), e, agent.Call{URI: card.Trajectory, Op: "get", Body: doc.Of("task_id", te.TaskID, "after", doc.Int(0))})
	if err != nil || page.Str("state") != agent.Canceled {
		t.Error(page, err)
	}
}

// talkAll has so many agents take so many turns each, all at once, and returns what went wrong.
func talkAll(ctx context.Context, client *agent.Client, ends []agent.Endpoint, turns int) (wrong []string) {
	var all sync.WaitGroup
	var mu sync.Mutex
	for i, e := range ends {
		all.Go(func() {
			for n := range turns {
				words := fmt.Sprintf("agent %d turn %d", i, n)
				got, err := client.Send(ctx, e, agent.Turn{ContextID: fmt.Sprint("c", i), Parts: []*doc.Object{text(words)}, Timeout: 2 * time.Minute})
				if err != nil || got.State != agent.Completed || got.Text != "Echo: "+words {
					mu.Lock()
					wrong = append(wrong, fmt.Sprintf("%s: %+v, %v", words, got, err))
					mu.Unlock()
				}
			}
		})
	}
	all.Wait()
	return wrong
}

// TestOneConnection takes turns with one agent one after another: they share a connection.
func TestOneConnection(t *testing.T) {
	t.Parallel()
	kit, err := echo.New(context.WithoutCancel(t.Context()), a2a.Settings{})
	if err != nil {
		t.Fatal(err)
	}
	var opened atomic.Int64
	server := httptest.NewUnstartedServer(kit.Handler())
	server.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			opened.Add(1)
		}
	}
	server.Start()
	client := agent.NewClient(agent.Options{})
	t.Cleanup(func() {
		client.Close()
		server.Close()
		kit.Close(context.Background())
	})
	e := echoEndpoint(t, client, server.URL, "")
	if wrong := talkAll(t.Context(), client, []agent.Endpoint{e}, 10); len(wrong) > 0 {
		t.Error(wrong)
	}
	if n := opened.Load(); n > 3 {
		t.Errorf("%d connections for 10 turns", n)
	}
}

func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	client := agent.NewClient(agent.Options{})
	t.Cleanup(client.Close)
	var ends []agent.Endpoint
	for range 20 {
		ends = append(ends, echoEndpoint(t, client, serveEcho(t, ""), ""))
	}
	if wrong := talkAll(t.Context(), client, ends, 5); len(wrong) > 0 {
		t.Errorf("%d turns went wrong:\n%s", len(wrong), strings.Join(wrong, "\n"))
	}
}

// BenchmarkTurns is 200 agents with 20 turns each, all at once, agents and client in one process.
func BenchmarkTurns(b *testing.B) {
	const agents, turns = 200, 20
	for _, streamed := range []bool{true, false} {
		b.Run(fmt.Sprintf("streamed=%v", streamed), func(b *testing.B) {
			client := agent.NewClient(agent.Options{})
			defer client.Close()
			var ends []agent.Endpoint
			for range agents {
				e := echoEndpoint(b, client, serveEcho(b, ""), "")
				if !streamed {
					e.Card = nil
				}
				ends = append(ends, e)
			}
			for b.Loop() {
				if wrong := talkAll(b.Context(), client, ends, turns); len(wrong) > 0 {
					b.Fatalf("%d turns went wrong, the first: %s", len(wrong), wrong[0])
				}
			}
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			b.ReportMetric(float64(m.Sys)/(1<<20), "MiB")
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*agents*turns), "µs/turn")
		})
	}
}
