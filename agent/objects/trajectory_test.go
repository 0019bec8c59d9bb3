package objects_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"agentenv/agent"
	"agentenv/agent/objects"
	"agentenv/fault"
	"agentenv/protocol/a2a"
	"agentenv/protocol/card"
)

func TestTrajectories(t *testing.T) {
	t.Parallel()
	for _, w := range []way{byGrant, byStaging, byLoopback, nowhere, unreached} {
		t.Run(string(w), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, w, a2a.Settings{})
			id := r.say("hi", "talk")
			r.say("there", "talk")
			url := r.put("t/x.json", "older")
			for want, of := range map[string]objects.Of{"hi": {TaskID: id}, "hi there": {ContextID: "talk"}} {
				got, err := r.mover.FetchTrajectory(t.Context(), r.e, of, url)
				must(t, err)
				var events []struct{ Input string }
				must(t, json.Unmarshal([]byte(r.get(got)), &events))
				var said []string
				for _, e := range events {
					said = append(said, e.Input)
				}
				if got != url || strings.Join(said, " ") != want {
					t.Errorf("%s: %v at %s", want, said, got)
				}
				info, err := r.store.Stat(t.Context(), url)
				if err != nil || info.ContentType != "application/json" {
					t.Error(info, err)
				}
			}
			for _, call := range r.asked("POST /ext/trajectory") {
				if objects := strings.Contains(call, `"objects"`); objects != (w != nowhere && w != unreached) {
					t.Error(call)
				}
				if w == byStaging || w == byLoopback {
					at := `"url":"https` + strings.TrimPrefix(strings.TrimPrefix(r.e.URL, "https"), "http") + "/ext/staging/"
					if !strings.Contains(call, at) || strings.Contains(call, `"url":"http:`) {
						t.Error(call)
					}
				}
			}
			if left := r.staged(); len(left) > 0 || r.said.Len() > 0 {
				t.Error("left on the agent:", left, r.said.String())
			}
			_, err := r.mover.FetchTrajectory(t.Context(), r.e, objects.Of{TaskID: "nope"}, r.url("t/none.json"))
			fails(t, err, fault.NotFound, "404")
			if info, err := r.store.Stat(t.Context(), r.url("t/none.json")); info != nil || err != nil {
				t.Error(info, err)
			}
			for _, of := range []objects.Of{{}, {TaskID: "a", ContextID: "b"}} {
				_, err := r.mover.FetchTrajectory(t.Context(), r.e, of, url)
				fails(t, err, fault.Invalid, "one")
			}
		})
	}
}

// TestTrajectoryThatCannotBeWritten is read from the agent when the grant turns out to be no way, and the agent is then not sent that way again.
func TestTrajectoryThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	r := newRig(t, byGrant, a2a.Settings{})
	var granted atomic.Int32
	r.e = scripted(t, r.e, func(w http.ResponseWriter, body string) {
		if strings.Contains(body, "objects") {
			granted.Add(1)
			unavailable(w, body)
			return
		}
		fmt.Fprint(w, `{"more":{"trajectory":[]},"trajectory":[ {"a":1}, 2 ,"x" ],"rest":0}`)
	})
	for range 2 {
		url, err := r.mover.FetchTrajectory(t.Context(), r.e, objects.Of{TaskID: "x"}, r.url("t.json"))
		if err != nil || r.get(url) != `[{"a":1},2,"x"]` || granted.Load() != 1 || strings.Count(r.said.String(), "grant_advertise_host") != 1 {
			t.Error(err, r.get(url), granted.Load(), r.said.String())
		}
	}
}

// scripted is an agent with the same card and with answers of its own.
func scripted(t testing.TB, like agent.Endpoint, answer func(w http.ResponseWriter, body string)) agent.Endpoint {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		var text strings.Builder
		buf := make([]byte, 64<<10)
		for {
			n, err := req.Body.Read(buf)
			text.Write(buf[:n])
			if err != nil {
				break
			}
		}
		answer(w, text.String())
	}))
	t.Cleanup(server.Close)
	like.URL = server.URL
	return like
}

func TestTrajectoriesThatAreNone(t *testing.T) {
	t.Parallel()
	r := newRig(t, nowhere, a2a.Settings{})
	for _, c := range []struct {
		answer string
		kind   fault.Kind
		says   string
	}{
		{``, fault.Invalid, "no whole"},
		{`[]`, fault.Invalid, "no JSON object"},
		{`{}`, fault.Invalid, "no list under trajectory"},
		{`{"trajectory":{}}`, fault.Invalid, "no list under trajectory"},
		{`{"trajectory":[1,2`, fault.Invalid, "no whole"},
		{`{"trajectory":[1,2]`, fault.Invalid, "no whole"},
		{`{"trajectory":[1 2]}`, fault.Invalid, "no whole"},
		{`{"trajectory":[NaN]}`, fault.Invalid, "no whole"},
		{`{"trajectory":[1]} {}`, fault.Invalid, "goes on"},
	} {
		e := scripted(t, r.e, func(w http.ResponseWriter, _ string) { fmt.Fprint(w, c.answer) })
		_, err := r.mover.FetchTrajectory(t.Context(), e, objects.Of{TaskID: "x"}, r.url("t.json"))
		fails(t, err, c.kind, c.says)
	}
	e := scripted(t, r.e, func(w http.ResponseWriter, _ string) {
		w.Header().Set("Content-Length", "100")
		fmt.Fprint(w, `{"trajectory":[1,`)
	})
	_, err := r.mover.FetchTrajectory(t.Context(), e, objects.Of{TaskID: "x"}, r.url("t.json"))
	fails(t, err, fault.Unavailable, "did not answer")
	if info, err := r.store.Stat(t.Context(), r.url("t.json")); info != nil || err != nil {
		t.Error(info, err)
	}
	r.e.Card = card.Of(map[string]any{})
	_, err = r.mover.FetchTrajectory(t.Context(), r.e, objects.Of{TaskID: "x"}, r.url("t.json"))
	fails(t, err, fault.Unsupported, "does not offer")
}

// TestAnswersThatDoNotHold refuses what an agent says when the store says otherwise.
func TestAnswersThatDoNotHold(t *testing.T) {
	t.Parallel()
	r := newRig(t, byGrant, a2a.Settings{})
	r.put("t.json", "[1]")
	for _, c := range []struct{ answer, key, says string }{
		{`{"objects":{"trajectory":{"size_bytes":3}}}`, "none.json", "there is no object"},
		{`{"objects":{"trajectory":{"size_bytes":4}}}`, "t.json", "is not the trajectory"},
		{`{"objects":{"trajectory":{"size_bytes":2147483648}}}`, "t.json", "more than"},
		{`{"objects":{"trajectory":{"size_bytes":-1}}}`, "t.json", "does not tell"},
		{`{"objects":{"trajectory":{"size_bytes":3,"sha256":"x"}}}`, "t.json", "does not tell"},
		{`{"objects":{}}`, "t.json", "does not tell"},
		{`{}`, "t.json", "does not tell"},
		{`[]`, "t.json", "no JSON object"},
	} {
		e := scripted(t, r.e, func(w http.ResponseWriter, _ string) { fmt.Fprint(w, c.answer) })
		_, err := r.mover.FetchTrajectory(t.Context(), e, objects.Of{TaskID: "x"}, r.url(c.key))
		fails(t, err, fault.Unavailable, c.says)
	}
	e := scripted(t, r.e, func(w http.ResponseWriter, _ string) {
		fmt.Fprint(w, `{"objects":{"trajectory":{"size_bytes":3,"more":1}}}`)
	})
	_, err := r.mover.FetchTrajectory(t.Context(), e, objects.Of{TaskID: "x"}, r.url("t.json"))
	must(t, err)
}

// TestTrajectoryIsGivenUp ends with its context, and stores nothing.
func TestTrajectoryIsGivenUp(t *testing.T) {
	t.Parallel()
	r := newRig(t, nowhere, a2a.Settings{})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan struct{})
	defer close(ended)
	e := scripted(t, r.e, func(w http.ResponseWriter, _ string) {
		fmt.Fprint(w, `{"trajectory":[1,`)
		w.(http.Flusher).Flush()
		stop()
		<-ended
	})
	_, err := r.mover.FetchTrajectory(ctx, e, objects.Of{TaskID: "x"}, r.url("t.json"))
	fails(t, err, fault.Canceled, "canceled")
}
