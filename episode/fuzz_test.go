package episode

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"agentenv/store/doc"
	"agentenv/task"
)

// FuzzDoor sends anything to an open turn of an episode that has no run behind it, which would cost all the time: the answer is always JSON, with a
// status that the door means.
func FuzzDoor(f *testing.F) {
	for path, body := range map[string]string{
		"turns/1/record": `{"message":{"role":"assistant","content":[{"type":"tool_use","name":"add","input":{}}],"tool_calls":[{"function":{"name":"a","arguments":"{}"}}]}}`,
		"turns/1/call":   `{"name":"add","arguments":{"a":1e999}}`,
		"turns/1/end":    `{"response":"\ud800"}`,
		"turns/1/tools":  `{}`,
		"turns/01/end":   `{"response":null}`,
		"next":           `{"after":1e3,"wait_seconds":0}`,
		"result":         `{"wait_seconds":-0.0}`,
		"abandon":        `{"reason":null}`,
	} {
		f.Add(path, []byte(body))
	}
	f.Add("turns/1/record", []byte(`{"message":"x","model":"m"}`))
	f.Fuzz(func(t *testing.T, path string, body []byte) {
		e := newEpisode(&Plan{task: &task.Task{ID: "t"}})
		e.cancel = func(err error) { e.update(func() { e.finished, e.err = true, err }) }
		e.turns = []*Turn{newTurn(&promptStep{Prompt: Prompt{StepID: "ask"}}, noTools{}, nil)}
		e.turns[0].Number = 1
		d := NewDoor(nil, "t")
		d.episodes["e"] = e
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		req := httptest.NewRequestWithContext(ctx, http.MethodPost, "/v1/episodes/e/", bytes.NewReader(body))
		req.URL.Path += path
		if strings.Contains(path, "/..") || strings.Contains(path, "//") || strings.Contains(path, "./") || strings.HasPrefix(path, "/") || strings.HasSuffix(path, ".") {
			return // the mux answers with a redirection
		}
		req.Header.Set("Authorization", "Bearer t")
		rec := httptest.NewRecorder()
		d.ServeHTTP(rec, req)
		answer, err := doc.ParseObject(rec.Body.Bytes(), doc.Options{Strict: true})
		if err != nil {
			t.Fatalf("%s %q: %d %s", path, body, rec.Code, rec.Body)
		}
		switch rec.Code {
		case http.StatusOK:
		case http.StatusBadRequest, http.StatusNotFound, http.StatusConflict:
			if answer.Str("error") == "" || answer.Str("detail") == "" {
				t.Errorf("%s %q: %s", path, body, rec.Body)
			}
		case http.StatusGatewayTimeout:
			if ctx.Err() == nil {
				t.Errorf("%s %q: %s", path, body, rec.Body)
			}
		default:
			t.Errorf("%s %q: %d %s", path, body, rec.Code, rec.Body)
		}
	})
}

// FuzzPrompt reads anything as a prompt step: what is read asks something, within a time.
func FuzzPrompt(f *testing.F) {
	f.Add([]byte(`{"id":"ask","prompt":"?","timeout_seconds":0.1,"prompt_id":"p","agent_name":" "}`))
	f.Add([]byte(`{"id":"ask","parts":[],"timeout_seconds":1e400}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		d, err := doc.ParseObject(text, doc.Options{})
		if err != nil {
			return
		}
		s, err := parsePrompt(d)
		if err != nil {
			return
		}
		if s.timeout < 0 || s.promptID == "" || strings.TrimSpace(s.AgentName) == "" {
			t.Errorf("%q: %+v", text, s)
		}
		refusals(&task.Task{Steps: []*task.Step{{ID: "x", Type: "prompt_agent", Fields: d}, {ID: "y", Type: "peer_agents", Fields: d}, {ID: "z", Type: "register_env_triggers", Fields: d}}},
			casting{agents: []string{s.AgentName}, prompts: []int{0}})
	})
}
