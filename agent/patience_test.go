package agent_test

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"agentenv/agent"
	"agentenv/fault"
	"agentenv/store/doc"
)

func submitted(int, *doc.Object) any { return task("submitted") }

// lose answers nothing: it breaks the connection.
var lose raw = func(http.ResponseWriter, *http.Request) { panic(errAbort) }

// TestLostAgents runs on a clock of its own, so that minutes cost nothing.
func TestLostAgents(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		get, cancel func(int, *doc.Object) any
		card        string
		sandbox     string
		kind        string
		says        string
		least, most time.Duration // how long the turn lasts
	}{
		"three refusals, then answers": {get: func(n int, _ *doc.Object) any {
			if n <= 3 {
				return lose
			}
			return task("completed", text("ok"))
		}, sandbox: "box", most: time.Minute},
		"no answers from a sandbox": {get: func(int, *doc.Object) any { return lose }, sandbox: "box", kind: agent.TurnUnreachable,
			says: "sandbox box is unreachable", least: time.Minute, most: 100 * time.Second},
		"a gateway without its agent": {get: func(int, *doc.Object) any { return answered(502, "bad gateway") }, sandbox: "box", kind: agent.TurnUnreachable,
			says: "HTTP 502: bad gateway", least: time.Minute, most: 100 * time.Second},
		"no answers, and no sandbox of ours": {get: func(int, *doc.Object) any { return lose }, kind: agent.TurnTimeout, says: "polls failed",
			least: 10 * time.Minute, most: 11 * time.Minute},
		"answers of 500": {get: func(int, *doc.Object) any { return answered(500, "boom") }, sandbox: "box", kind: agent.TurnTimeout, says: "boom",
			least: 10 * time.Minute, most: 11 * time.Minute},
		"answers of an error": {get: func(int, *doc.Object) any { return rpcFault{-32603, "boom"} }, sandbox: "box", kind: agent.TurnTimeout, says: "boom",
			least: 10 * time.Minute, most: 11 * time.Minute},
		"too many requests": {get: func(n int, _ *doc.Object) any {
			if n <= 3 {
				return answered(429, "slow down")
			}
			return task("completed", text("ok"))
		}, sandbox: "box", most: time.Minute},
		"a sandbox that goes while its stream is silent": {card: streaming, get: func(int, *doc.Object) any {
			return hang
		}, sandbox: "box", kind: agent.TurnUnreachable, says: "sandbox box is unreachable", least: time.Minute, most: 4 * time.Minute},
		"a refused cancel": {get: func(int, *doc.Object) any { return task("working") }, cancel: func(int, *doc.Object) any { return rpcFault{-32004, "no"} },
			kind: agent.TurnTimeout, says: "within 600 s", least: 10 * time.Minute, most: 11 * time.Minute},
		"a broken cancel": {get: func(int, *doc.Object) any { return task("working") }, cancel: func(int, *doc.Object) any { return answered(500, "") },
			kind: agent.TurnTimeout, says: "within 600 s", least: 10 * time.Minute, most: 11 * time.Minute},
		"a cancel without an answer": {get: func(int, *doc.Object) any { return task("working") }, cancel: func(int, *doc.Object) any {
			return hang
		}, kind: agent.TurnTimeout, says: "within 600 s", least: 10*time.Minute + 10*time.Second, most: 10*time.Minute + 11*time.Second},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := &script{card: c.card, methods: map[string]func(int, *doc.Object) any{"message/send": submitted, "tasks/get": c.get, "tasks/cancel": c.cancel,
					"message/stream": func(int, *doc.Object) any {
						return stream(func(emit func(any), gone <-chan struct{}) { emit(update("working")); <-gone })
					}}}
				client, e, _ := bubble(t, s)
				e.Sandbox = c.sandbox
				began := time.Now()
				tn := turn("hi")
				tn.Timeout, tn.Poll = 10*time.Minute, 0
				got, err := client.Send(t.Context(), e, tn)
				lasted := time.Since(began)
				if lasted < c.least || lasted > c.most {
					t.Errorf("it lasted %s, want %s to %s", lasted, c.least, c.most)
				}
				if c.kind == "" {
					if err != nil || got.Text != "ok" {
						t.Errorf("%+v, %v", got, err)
					}
					return
				}
				turnError(t, err, c.kind)
				if !fault.Is(err, fault.Timeout) || !strings.Contains(err.Error(), c.says) || s.count("tasks/cancel") != 1 {
					t.Errorf("%v, %d cancels", err, s.count("tasks/cancel"))
				}
			})
		})
	}
}

func TestPollsGrowApart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var at []time.Duration
		client, e, _ := bubble(t, &script{methods: map[string]func(int, *doc.Object) any{"message/send": submitted, "tasks/get": func(n int, _ *doc.Object) any {
			at = append(at, time.Since(began))
			if n == 20 {
				return task("completed", text("ok"))
			}
			return task("working")
		}}})
		tn := turn("hi")
		tn.Timeout, tn.Poll = time.Hour, 0
		if _, err := client.Send(t.Context(), e, tn); err != nil {
			t.Fatal(err)
		}
		if at[0] != 50*time.Millisecond || at[1]-at[0] != 75*time.Millisecond || at[19]-at[18] != 2*time.Second {
			t.Error(at)
		}
	})
}

// TestNoConnection is an agent that nobody reaches: five tries, each of them before anything was sent.
func TestNoConnection(t *testing.T) {
	t.Parallel()
	for _, c := range []string{"", streaming} {
		synctest.Test(t, func(t *testing.T) {
			s := &script{card: c}
			client, e, down := bubble(t, s)
			down()
			began := time.Now()
			_, err := client.Send(t.Context(), e, turn("hi"))
			turnError(t, err, agent.TurnUnreachable)
			if lasted := time.Since(began); lasted != 29*time.Second || !strings.Contains(err.Error(), "connection refused") {
				t.Errorf("%v after %s", err, lasted)
			}
		})
	}
}

func TestNoConnectionWithinTheTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client, e, down := bubble(t, &script{})
		down()
		tn := turn("hi")
		tn.Timeout = 3 * time.Second
		_, err := client.Send(t.Context(), e, tn)
		turnError(t, err, agent.TurnUnreachable)
		if !strings.Contains(err.Error(), "connection refused") {
			t.Error(err)
		}
	})
}
