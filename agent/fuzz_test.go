package agent_test

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"agentenv/agent"
	"agentenv/store/doc"
)

// sameAnswer is an agent without a network that answers every request alike.
type sameAnswer struct {
	kind string
	body []byte
}

func (s sameAnswer) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {s.kind}}, ContentLength: -1, Body: io.NopCloser(bytes.NewReader(s.body))}, nil
}

// FuzzAnswer lets an agent answer anything: a turn ends in a reply or a TurnError, whatever comes.
func FuzzAnswer(f *testing.F) {
	for _, o := range []any{task("completed", text("a"), data("usage", doc.Of("tool_call_count", doc.Int(1)))), task("working"), update("failed", text("x")),
		said("m", text("a")), rpcFault{-32001, "no"}, doc.Of("kind", "artifact-update", "taskId", "T", "artifact", doc.Of("parts", []any{text("x")}))} {
		f.Add(false, response("1", o))
		f.Add(true, []byte("data: "+string(response("1", o))+"\n\n"))
	}
	f.Fuzz(func(t *testing.T, streamed bool, body []byte) {
		synctest.Test(t, func(t *testing.T) {
			s := &script{}
			kind := "application/json"
			if streamed {
				s.card, kind = streaming, "text/event-stream"
			}
			client := agent.NewClient(agent.Options{HTTP: &http.Client{Transport: sameAnswer{kind, body}}, MaxBody: 1 << 16})
			tn := turn("hi")
			tn.Timeout = 200 * time.Millisecond
			got, err := client.Send(t.Context(), endpoint(t, "http://agent", s), tn)
			if err == nil {
				if got.State == "" || got.State == "working" {
					t.Errorf("a turn ended in the state %q", got.State)
				}
				return
			}
			if te := turnErrorOf(err); te == nil || te.Partial == nil || strings.Contains(err.Error(), "\n") {
				t.Errorf("%T %v", err, err)
			}
		})
	})
}

func FuzzParseParts(f *testing.F) {
	f.Add([]byte(`[{"text":"a"},{"kind":"file","file":{"bytes":"AAAA"}},{"kind":"data","data":{"a":1}}]`))
	f.Fuzz(func(t *testing.T, body []byte) {
		v, err := doc.Parse(body, doc.Options{})
		if err != nil {
			return
		}
		parts, err := agent.ParseParts(v)
		if err != nil {
			return
		}
		again := make([]any, len(parts))
		for i, p := range parts {
			again[i] = p
		}
		if _, err := agent.ParseParts(again); err != nil {
			t.Error(err)
		}
	})
}

func FuzzParseManifest(f *testing.F) {
	f.Add([]byte("image = \"x\"\n[default_env_vars]\nA = \"b\"\n[metadata]\nmin_disk_size_gb = 1.5\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := agent.ParseManifest(text)
		if err == nil && (m.DefaultEnv == nil || m.Metadata == nil) {
			t.Error("a manifest without tables")
		}
	})
}
