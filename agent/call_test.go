package agent_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"agentenv/agent"
	"agentenv/fault"
	"agentenv/protocol/card"
	"agentenv/store/doc"
)

// configured declares agent-config with a set that takes model and effort, and a list at a path of its own.
const configured = `{"name":"s","capabilities":{"extensions":[{"uri":"urn:agentenv:agent-config/v1","params":{"endpoint":"/ext/agent-config","methods":{
	"set":{"method":"POST","request":{"supported":["effort","model"]}},"look":{"method":"GET","endpoint":"/ext/look"},"bare":{"method":"POST"}}}}]}}`

func TestCall(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		op              string
		body            *doc.Object
		serve           raw
		grants, secrets bool
		want            string
		kind            fault.Kind
		code            string
		says            string
		notSays         string
	}{
		"posts":        {op: "set", body: doc.Of("model", "m"), serve: echoRequest, want: `{"method":"POST","url":"/ext/agent-config","body":"{\"model\":\"m\"}"}`},
		"gets":         {op: "look", body: doc.Of("a", "x y", "n", doc.Int(2)), serve: echoRequest, want: `{"method":"GET","url":"/ext/look?a=x+y&n=2","body":""}`},
		"empty answer": {op: "set", serve: answered(200, ""), want: `{}`},
		"plain text error": {op: "set", serve: answered(400, "unknown field nope"), kind: fault.Invalid,
			says: "set of urn:agentenv:agent-config/v1 failed with HTTP 400: unknown field nope"},
		"detail": {op: "set", serve: answered(422, `{"detail":"too long"}`), kind: fault.Invalid, says: "too long"},
		"code":   {op: "set", serve: answered(409, `{"error":{"code":"taken","message":"it is"}}`), kind: fault.Conflict, code: "taken", says: "it is"},
		"grants hide the answer": {op: "set", grants: true, serve: answered(502, `{"error":{"code":"transfer_rejected","message":"https://store/?sig=s"}}`), kind: fault.Unavailable,
			code: "transfer_rejected", says: "HTTP 502: transfer_rejected", notSays: "sig"},
		"grants are taken out": {op: "set", grants: true, body: doc.Of("write", doc.Of("url", "https://store/v1/abcdefghijklmnop?sig=0123456789abcdef")), kind: fault.NotFound, code: "not_found",
			serve: answered(404, `{"code":"not_found","detail":"no context x: not written to /v1/abcdefghijklmnop, sig 0123456789abcdef"}`), says: "no context x: not written to /v1/***, sig ***"},
		"secrets hide the answer":  {op: "set", secrets: true, serve: answered(400, `{"code":"invalid","detail":"no such key: k"}`), kind: fault.Invalid, code: "invalid", says: "HTTP 400: invalid (", notSays: "key"},
		"secrets hide a bad code":  {op: "set", secrets: true, serve: answered(502, `{"error":{"code":"bad code!"}}`), kind: fault.Unavailable, says: "HTTP 502 (", notSays: "bad"},
		"grants hide what is none": {op: "set", grants: true, serve: answered(200, `sig`), kind: fault.Unavailable, says: "no JSON object", notSays: "sig"},
		"long errors are cut":      {op: "set", serve: answered(500, repeat("x", 600)), kind: fault.Unavailable, says: repeat("x", 500), notSays: repeat("x", 501)},
		"not found":                {op: "set", serve: answered(404, ""), kind: fault.NotFound, says: "not served"},
		"denied":                   {op: "set", serve: answered(403, ""), kind: fault.Denied},
		"timeout":                  {op: "set", serve: answered(504, ""), kind: fault.Timeout},
		"too many requests":        {op: "set", serve: answered(429, ""), kind: fault.Unavailable},
		"redirect":                 {op: "set", serve: answered(302, ""), kind: fault.Unavailable, says: "redirect"},
		"garbage":                  {op: "set", serve: answered(200, "[]"), kind: fault.Unavailable, says: "no JSON object"},
		"breaks off":               {op: "set", serve: lose, kind: fault.Unavailable, says: "did not answer"},
		"unknown operation":        {op: "unheard", kind: fault.Invalid, says: "HTTP 400", serve: answered(400, "")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &script{card: configured, other: func(w http.ResponseWriter, r *http.Request) { c.serve(w, r) }}
			client, e := serve(t, s)
			got, err := client.Call(t.Context(), e, agent.Call{URI: card.AgentConfig, Op: c.op, Body: c.body, Grants: c.grants, Secrets: c.secrets})
			if c.kind == "" {
				if text, _ := doc.Compact(got); err != nil || string(text) != c.want {
					t.Errorf("%s, %v", text, err)
				}
				return
			}
			var ce *agent.CallError
			if !errors.As(err, &ce) || !fault.Is(err, c.kind) || ce.Code != c.code || !strings.Contains(err.Error(), c.says) ||
				c.notSays != "" && strings.Contains(err.Error(), c.notSays) {
				t.Errorf("%s: %v (%+v)", fault.KindOf(err), err, ce)
			}
		})
	}
}

func echoRequest(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	text, _ := doc.Compact(doc.Of("method", r.Method, "url", r.URL.String(), "body", string(body)))
	w.Write(text)
}

func TestCallOfWhatIsNotOffered(t *testing.T) {
	t.Parallel()
	s := &script{card: configured, other: func(http.ResponseWriter, *http.Request) { t.Error("something was sent") }}
	client, e := serve(t, s)
	if _, err := client.Call(t.Context(), e, agent.Call{URI: card.Snapshot, Op: "save"}); !fault.Is(err, fault.Unsupported) || !strings.Contains(err.Error(), "does not offer") {
		t.Error(err)
	}
	e.Card = nil
	if _, err := client.Call(t.Context(), e, agent.Call{URI: card.AgentConfig, Op: "set"}); !fault.Is(err, fault.Unsupported) {
		t.Error(err)
	}
}

func TestCallAgain(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		serve  func(n int) raw
		retry  bool
		tries  int
		lasts  time.Duration
		status int // of the error, -1 = none
	}{
		"404 until it is there": {func(n int) raw {
			if n < 3 {
				return answered(404, "")
			}
			return answered(200, "{}")
		}, true, 3, 6 * time.Second, -1},
		"404 for ever":       {func(int) raw { return answered(404, "") }, true, 10, 104 * time.Second, 404},
		"broken connections": {func(int) raw { return lose }, true, 10, 104 * time.Second, 0},
		"no answers":         {func(int) raw { return hang }, true, 10, 704 * time.Second, 0},
		"a refusal is final": {func(int) raw { return answered(422, "") }, true, 1, 0, 422},
		"only when asked to": {func(int) raw { return answered(404, "") }, false, 1, 0, 404},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var n atomic.Int64
				client, e, _ := bubble(t, &script{card: configured, other: func(w http.ResponseWriter, r *http.Request) {
					c.serve(int(n.Add(1)))(w, r)
				}})
				began := time.Now()
				_, err := client.Call(t.Context(), e, agent.Call{URI: card.AgentConfig, Op: "set", Body: doc.Of(), Retry: c.retry})
				if lasted := time.Since(began); int(n.Load()) != c.tries || lasted != c.lasts {
					t.Errorf("%d tries in %s", n.Load(), lasted)
				}
				var ce *agent.CallError
				if errors.As(err, &ce) != (c.status >= 0) || ce != nil && ce.Status != c.status {
					t.Error(err)
				}
			})
		})
	}
}

func TestNegotiate(t *testing.T) {
	t.Parallel()
	found, err := card.Parse([]byte(configured))
	if err != nil {
		t.Fatal(err)
	}
	e := agent.Endpoint{Card: found}
	body := doc.Of("model", "m", "harness", "h", "effort", "e")
	for _, c := range []struct {
		e       agent.Endpoint
		op      string
		taken   string
		dropped string
	}{
		{e, "set", `{"model":"m","effort":"e"}`, "harness"},
		{e, "bare", `{}`, "model harness effort"},
		{e, "get", `{}`, "model harness effort"},
		{agent.Endpoint{}, "set", `{}`, "model harness effort"},
	} {
		taken, dropped := agent.Negotiate(c.e, card.AgentConfig, c.op, body)
		if text, _ := doc.Compact(taken); string(text) != c.taken || strings.Join(dropped, " ") != c.dropped {
			t.Errorf("%s: %s, %v", c.op, text, dropped)
		}
	}
}
