package agents_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"agentenv/artifact"
	"agentenv/fault"
	"agentenv/protocol/a2a"
	"agentenv/protocol/a2a/echo"
	"agentenv/protocol/transfer"
	"agentenv/store/doc"
	"agentenv/task"
)

// stateful is an agent that writes its state to objects, reads skills from them, and has a staging store of its own.
type stateful struct {
	client *transfer.Client

	mu     sync.Mutex
	skills []string
	saved  []string
}

func newStateful(t *testing.T) *stateful {
	t.Helper()
	s := &stateful{client: transfer.NewClient(transfer.Options{})}
	t.Cleanup(s.client.Close)
	return s
}

// deployed is a context with the agent as "solver" and an agent without state as "plain", both on this machine.
func (s *stateful) deployed(t *testing.T) *doc.Object {
	t.Helper()
	server, err := a2a.New(context.WithoutCancel(t.Context()), a2a.Agent{Identity: a2a.Identity{Name: "Stateful", Description: "remembers", Version: "1"},
		Run: func(_ context.Context, r *a2a.Request) (a2a.Result, error) {
			return a2a.Result{Parts: []a2a.Part{a2a.Text("I heard " + r.Text())}}, nil
		}, Extensions: []a2a.Extension{a2a.Snapshot(s), a2a.SkillConfig(nil, s.install)}}, a2a.Settings{StagingDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	h := httptest.NewServer(server.Handler())
	t.Cleanup(func() {
		ctx, stop := context.WithTimeout(lasting(t), 30*time.Second)
		defer stop()
		if err := server.Close(ctx); err != nil {
			t.Error(err)
		}
		h.CloseClientConnections()
		h.Close()
	})
	at := deployed(t, nil, map[string]string{"solver": h.URL, "plain": serveKit(t, echo.Agent(), "")})
	for _, name := range []string{"solver", "plain"} {
		record(at, name).Set("sandbox_id", name+"-1").Set("sandbox_type", "here").Set("instance_id", name+"-inst")
	}
	return at
}

func (s *stateful) Save(ctx context.Context, id string, to a2a.SnapshotTargets) (out a2a.SnapshotWritten, err error) {
	s.mu.Lock()
	s.saved = append(s.saved, id)
	s.mu.Unlock()
	if id == "forgotten" {
		return out, fault.New(fault.NotFound, "there is no context %s", id)
	}
	if out.Trajectory, err = s.client.Upload(ctx, to.Trajectory, transfer.Bytes([]byte("talk"))); err != nil || to.Workspace == nil {
		return out, err
	}
	w, err := s.client.Upload(ctx, *to.Workspace, transfer.Bytes([]byte("work")))
	out.Workspace = &w
	return out, err
}

func (s *stateful) Load(context.Context, a2a.SnapshotSources, string) (string, error) {
	return "", fault.New(fault.Unsupported, "it only writes")
}

func (s *stateful) install(ctx context.Context, b a2a.SkillBundle) error {
	dir, err := os.MkdirTemp("", "agentenv-skill-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := b.Download(ctx, s.client, filepath.Join(dir, "skill")); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range b.Files {
		text, err := os.ReadFile(filepath.Join(dir, "skill", f.Path))
		if err != nil {
			return err
		}
		s.skills = append(s.skills, fmt.Sprintf("%s/%s=%s", b.Name, f.Path, text))
	}
	return nil
}

func (s *stateful) learned() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.skills, "|")
}

func TestSnapshot(t *testing.T) {
	t.Parallel()
	c, s := newCrew(t, nil), newStateful(t)
	run, err := c.run(t.Context(), s.deployed(t), `{"id":"ask","type":"prompt_agent","agent_name":"solver","prompt":"hello","prompt_id":"p1"}`)
	if err != nil {
		t.Fatal(err)
	}
	conversation := run.PromptResponses()[0].Str("a2a_context_id")
	for n, want := range []struct{ step, id string }{
		{`"artifact_id":null`, "inst-1__s-agent-state"}, {`"artifact_id":"kept"`, "kept"}, {`"artifact_id":"kept"`, "kept"},
	} {
		run, err = c.run(t.Context(), run.Context(), `{"id":"s","type":"snapshot_agent_state","agent_name":"solver","prompt_id":"p1",`+want.step+`}`)
		if err != nil {
			t.Fatal(err)
		}
		rows := run.Metadata("agent_snapshots").([]any)
		row := rows[n].(*doc.Object)
		version, _ := row.Int("version")
		if len(rows) != n+1 || row.Str("id") != want.id || version != int64(max(n, 1)) || row.Str("source_agent_name") != "solver" || row.Str("source_context_id") != conversation || row.Str("capture_step_id") != "s" {
			t.Errorf("recorded %s", canon(row))
		}
		at := row.Str("bundle_object_url")
		if !strings.Contains(at, fmt.Sprintf("/team/agent_snapshots/%s/%d-", want.id, version)) || !strings.HasSuffix(at, "/") {
			t.Errorf("it is at %s", at)
		}
		u, err := artifact.GetAs[*artifact.Universe](t.Context(), c.artifacts, artifact.Ref{ID: want.id, Version: version})
		if err != nil {
			t.Fatal(err)
		}
		members, err := c.artifacts.Members(t.Context(), u)
		if err != nil || len(members) != 2 || members[0].Name != "trajectory" || members[1].Name != "workspace" || members[0].URL != at+"trajectory" {
			t.Errorf("%+v, %v", members, err)
		}
	}
	if got := strings.Join(s.saved, " "); got != conversation+" "+conversation+" "+conversation {
		t.Errorf("saved %s", got)
	}
}

func TestSnapshotIsRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		step    string
		context string // of the prompt, "" = none was given
		kind    fault.Kind
		wants   string
	}{
		"no agent":            {`"agent_name":"nobody","prompt_id":"p"`, "c", fault.Invalid, `"nobody"`},
		"no prompt":           {`"agent_name":"solver","prompt_id":"other"`, "c", fault.Invalid, `"other"`},
		"no conversation":     {`"agent_name":"solver","prompt_id":"p"`, "", fault.Invalid, `"p"`},
		"no state, but named": {`"agent_name":"plain","prompt_id":"p","artifact_id":"kept"`, "c", fault.Unsupported, `"plain"`},
		"forgotten":           {`"agent_name":"solver","prompt_id":"p"`, "forgotten", fault.Internal, "404"},
		"too slow":            {`"agent_name":"solver","prompt_id":"p","timeout_seconds":0.000001`, "c", fault.Timeout, "within 1µs"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			crew, s := newCrew(t, nil), newStateful(t)
			at := s.deployed(t).Set("prompt_responses", []any{doc.Of("prompt_id", "p", "a2a_context_id", c.context, "step_id", "ask")})
			step := c.step
			if !strings.Contains(step, "artifact_id") {
				step += `,"artifact_id":null`
			}
			run, err := crew.run(t.Context(), at, `{"id":"s","type":"snapshot_agent_state",`+step+`}`)
			if !fault.Is(err, c.kind) || !strings.Contains(err.Error(), c.wants) || !strings.Contains(err.Error(), `snapshot_agent_state "s"`) {
				t.Error(err)
			}
			if found, err := crew.artifacts.List(t.Context(), artifact.ListQuery{}); err != nil || len(found) != 0 || run.Metadata("agent_snapshots") != nil {
				t.Errorf("stored %v, %v", found, err)
			}
		})
	}
	// Without a name for it an agent that keeps no state is passed over.
	crew, s := newCrew(t, nil), newStateful(t)
	run, err := crew.run(t.Context(), s.deployed(t), `{"id":"s","type":"snapshot_agent_state","agent_name":"plain","prompt_id":"p","artifact_id":null}`)
	if err != nil || run.Metadata("agent_snapshots") != nil || len(crew.notes) != 1 || !strings.Contains(crew.notes[0], `"plain" keeps no state`) {
		t.Errorf("%v, %v", err, crew.notes)
	}
}

func TestSnapshotSteps(t *testing.T) {
	t.Parallel()
	c := newCrew(t, nil)
	for text, want := range map[string]string{`"artifact_id":"a"`: "prompt_id", `"prompt_id":"p","timeout_seconds":0`: "greater than 0", `"prompt_id":"p","timeout_seconds":true`: "timeout_seconds"} {
		if _, err := c.reg.ParseText("t", []byte(`[{"id":"s","type":"snapshot_agent_state",`+text+`}]`), task.ParseOptions{Strict: true}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
	s := c.step(`{"id":"s","type":"snapshot_agent_state","prompt_id":"p"}`)
	if got, err := doc.Marshal(s.Fields); err != nil || string(got) != `{"artifact_id": null, "prompt_id": "p", "agent_name": "default-agent", "env_id": null, "universe_artifact_id": null, "timeout_seconds": 120}` {
		t.Errorf("stored %s, %v", got, err)
	}
	if why := s.Kind.Unsupported(s); why != "" {
		t.Error(why)
	}
	if s := c.step(`{"id":"s","type":"snapshot_agent_state","prompt_id":"p","env_id":"e","universe_artifact_id":"u"}`); s.Kind.Unsupported(s) == "" {
		t.Error("the state of an env is taken")
	}
}
