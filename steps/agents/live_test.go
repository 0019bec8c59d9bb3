package agents_test

import (
	"io"
	"path"
	"strings"
	"testing"

	"agentenv/protocol/a2a/echo"
	"agentenv/store/doc"
)

// kept returns the live objects of each turn of a prompt by name, turns in the order they lie.
func (r *rig) kept(prompt string) map[string]map[string]string {
	r.t.Helper()
	keys, err := r.objects.List(r.t.Context(), "prompt_agent_trajectories/prompt_id="+prompt+"/")
	if err != nil {
		r.t.Fatal(err)
	}
	out := map[string]map[string]string{}
	for _, k := range keys {
		folder, name := path.Split(k)
		if path.Base(folder) != "live" {
			continue
		}
		url, err := r.objects.URL(k)
		if err != nil {
			r.t.Fatal(err)
		}
		body, err := r.objects.Open(r.t.Context(), url)
		if err != nil {
			r.t.Fatal(err)
		}
		text, err := io.ReadAll(body)
		body.Close()
		if err != nil {
			r.t.Fatal(err)
		}
		turn := path.Base(path.Dir(path.Clean(folder)))
		if out[turn] == nil {
			out[turn] = map[string]string{}
		}
		out[turn][name] = string(text)
	}
	return out
}

// TestLiveTrajectory keeps what the agent does while it does it, in order and once.
func TestLiveTrajectory(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	context := deployed(t, nil, map[string]string{"solver": serveKit(t, echo.Agent(), "")})
	if _, err := r.run(t.Context(), context, `{"id":"p","type":"prompt_agent","agent_name":"solver","prompt_id":"q","prompt":"live-steps 3","live_trajectory":true,"poll_interval_seconds":0.2}`); err != nil {
		t.Fatal(err)
	}
	turns := r.kept("q")
	if len(turns) != 1 {
		t.Fatalf("%d turns: %v", len(turns), turns)
	}
	for _, objects := range turns {
		var events strings.Builder
		chunks := 0
		for _, from := range []string{"00000000", "00000001", "00000002", "00000003"} {
			for name, text := range objects {
				if strings.HasPrefix(name, from+"-") {
					events.WriteString(text)
					chunks++
				}
			}
		}
		if n := strings.Count(events.String(), "\n"); n != 4 || chunks < 2 || !strings.HasPrefix(events.String(), `{"type":"step","step":1}`) || !strings.Contains(events.String(), `"Echo: live-steps 3"`) {
			t.Errorf("%d events in %d chunks: %s", n, chunks, events.String())
		}
		for name, want := range map[string]string{"meta.json": `{"format":"agentenv-echo-agent/v1"}`, "end.json": `{"state":"completed","next":4}`, "next.json": `{"turn":null}`} {
			if objects[name] != want {
				t.Errorf("%s: %s", name, objects[name])
			}
		}
	}
	if _, err := r.run(t.Context(), context, `{"id":"p","type":"prompt_agent","agent_name":"solver","prompt_id":"f","prompt":"fail","live_trajectory":true}`); err == nil {
		t.Error("the prompt that fails does not")
	}
	for _, objects := range r.kept("f") {
		if objects["end.json"] != `{"state":"failed","next":0}` {
			t.Errorf("%v", objects)
		}
	}
}

// TestLiveTrajectoryOfAnother agent, which offers none, is kept at the end alone, and a note says so.
func TestLiveTrajectoryOfAnother(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	context := deployed(t, doc.Of("user_overrides", doc.Of("step_params", doc.Of("p", doc.Of("live_trajectory", true)))), map[string]string{"default-agent": (&fake{answer: echoing}).start(t)})
	if _, err := r.run(t.Context(), context, `{"id":"p","type":"prompt_agent","prompt_id":"q","prompt":"hi"}`); err != nil {
		t.Fatal(err)
	}
	if len(r.kept("q")) != 0 || !strings.Contains(strings.Join(r.notes, "\n"), "no trajectory while it works") {
		t.Errorf("%v, %q", r.kept("q"), r.notes)
	}
}
