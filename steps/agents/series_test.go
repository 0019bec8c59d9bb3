package agents_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"agentenv/artifact"
	"agentenv/fault"
	"agentenv/protocol/a2a"
	"agentenv/protocol/card"
	"agentenv/protocol/transfer"
	"agentenv/store/doc"
	"agentenv/store/object"
	"agentenv/task"
)

// subject is an agent that snapshots are taken of, and does what its fields say.
type subject struct {
	work  func(ctx context.Context, r *a2a.Request) (a2a.Result, error) // nil = it answers at once
	save  func(ctx context.Context, n int) error                        // before it writes its state for the n-th time, from 1; may be nil
	quiet bool                                                          // it appends nothing to its trajectory
	still bool                                                          // it offers no trajectory of contexts
	// answers stand in for the agent's own, by path; requests about a single task go through.
	answers map[string]func(http.ResponseWriter)
	without []string // extensions that it does not have

	client *transfer.Client
	mu     sync.Mutex
	saves  int
}

func (s *subject) Save(ctx context.Context, id string, to a2a.SnapshotTargets) (out a2a.SnapshotWritten, err error) {
	s.mu.Lock()
	s.saves++
	n := s.saves
	s.mu.Unlock()
	if s.save != nil {
		if err := s.save(ctx, n); err != nil {
			return out, err
		}
	}
	if out.Trajectory, err = s.client.Upload(ctx, to.Trajectory, transfer.Bytes([]byte("talk of "+id))); err != nil {
		return out, err
	}
	w, err := s.client.Upload(ctx, *to.Workspace, transfer.Bytes(fmt.Appendf(nil, "work %d", n)))
	out.Workspace = &w
	return out, err
}

func (s *subject) Load(context.Context, a2a.SnapshotSources, string) (string, error) {
	return "", fault.New(fault.Unsupported, "it only writes")
}

// deployed is a context with the agent as "solver".
func (s *subject) deployed(t *testing.T) *doc.Object {
	t.Helper()
	s.client = transfer.NewClient(transfer.Options{})
	t.Cleanup(s.client.Close)
	a := a2a.Agent{Identity: a2a.Identity{Name: "Subject", Description: "is looked at", Version: "1"}, Run: func(ctx context.Context, r *a2a.Request) (a2a.Result, error) {
		if !s.quiet {
			if err := errors.Join(r.Trajectory.SetFormat("subject/v1"), r.Trajectory.Append(map[string]string{"heard": r.Text()})); err != nil {
				return a2a.Result{}, err
			}
		}
		if s.work != nil {
			return s.work(ctx, r)
		}
		return said("done"), nil
	}}
	if !slices.Contains(s.without, card.Trajectory) {
		a.Extensions = append(a.Extensions, a2a.Trajectory(!s.still))
	}
	if !slices.Contains(s.without, card.Snapshot) {
		a.Extensions = append(a.Extensions, a2a.Snapshot(s))
	}
	server, err := a2a.New(context.WithoutCancel(t.Context()), a, a2a.Settings{StagingDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	own := server.Handler()
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if answer := s.answers[r.URL.Path]; answer != nil {
			body, err := io.ReadAll(r.Body)
			if err != nil || !strings.Contains(string(body), `"task_id"`) {
				answer(w)
				return
			}
			r.Body = io.NopCloser(strings.NewReader(string(body)))
		}
		own.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		ctx, stop := context.WithTimeout(lasting(t), 30*time.Second)
		defer stop()
		if err := server.Close(ctx); err != nil {
			t.Error(err)
		}
		h.CloseClientConnections()
		h.Close()
	})
	at := deployed(t, nil, map[string]string{"solver": h.URL})
	record(at, "solver").Set("sandbox_id", "solver-1").Set("sandbox_type", "here")
	return at
}

func said(s string) a2a.Result { return a2a.Result{Parts: []a2a.Part{a2a.Text(s)}} }

// patience is how long a test waits for what is to come.
const patience = time.Minute

// taken hears of the snapshots that a step takes, as "status reason".
type taken struct {
	slog.Handler
	mu   sync.Mutex
	list []string
}

func (h *taken) Enabled(context.Context, slog.Level) bool { return true }
func (h *taken) Handle(_ context.Context, r slog.Record) error {
	if r.Message != "a snapshot of the agent" {
		return nil
	}
	var status, reason string
	r.Attrs(func(a slog.Attr) bool {
		switch a.Key {
		case "status":
			status = a.Value.String()
		case "reason":
			reason = a.Value.String()
		}
		return true
	})
	h.mu.Lock()
	defer h.mu.Unlock()
	h.list = append(h.list, strings.TrimSpace(status+" "+reason))
	return nil
}

// until waits for a snapshot that went so, as far as it is told.
func (h *taken) until(ctx context.Context, want string) error {
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	for {
		h.mu.Lock()
		there := slices.ContainsFunc(h.list, func(s string) bool { return strings.HasPrefix(s, want) })
		h.mu.Unlock()
		if there {
			return nil
		}
		select {
		case <-ctx.Done():
			return fault.New(fault.Timeout, "no snapshot went %q", want)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// watched executes a prompt_agent step with these further fields.
func (c *crew) watched(ctx context.Context, at *doc.Object, fields string) (*task.Run, *taken, func() error) {
	c.t.Helper()
	s, heard := c.step(`{"id":"ask","type":"prompt_agent","agent_name":"solver","prompt":"go","prompt_id":"p","poll_interval_seconds":0.05,`+fields+`}`), &taken{}
	run := task.NewRun(s.ID, s.Type, at, slog.New(heard), nil)
	run.Instance = "inst-1"
	return run, heard, func() error { return s.Action.Execute(ctx, run) }
}

// opened waits for a channel to be closed.
func opened(ctx context.Context, c <-chan struct{}) error {
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	select {
	case <-c:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// rows are those of the record, each as "turn status reason".
func rows(run *task.Run) (all []*doc.Object, told []string) {
	list, _ := run.Metadata("agent_snapshots").([]any)
	for _, v := range list {
		o := v.(*doc.Object)
		line := o.Str("capture_status")
		if n, ok := o.Int("turn"); ok {
			line = fmt.Sprintf("%d %s", n, line)
		}
		if o.Bool("is_final") {
			line = "final " + line
		}
		all, told = append(all, o), append(told, strings.TrimSpace(line+" "+o.Str("capture_reason")))
	}
	return all, told
}

// read returns the text of an object.
func (c *crew) read(url string) string {
	c.t.Helper()
	body, err := c.objects.Open(c.t.Context(), url)
	if err != nil {
		c.t.Error(err)
		return ""
	}
	defer body.Close()
	text, err := io.ReadAll(body)
	if err != nil {
		c.t.Error(err)
	}
	return string(text)
}

// TestSeriesByTheClock takes snapshots while the agent works until the limit is reached, and one when it has ended.
func TestSeriesByTheClock(t *testing.T) {
	t.Parallel()
	working := make(chan struct{})
	c, s := newCrew(t, nil), &subject{save: func(ctx context.Context, _ int) error { return opened(ctx, working) }}
	run, heard, execute := c.watched(t.Context(), s.deployed(t), `"snapshot_config":{"interval_seconds":0.01,"max_snapshots":2}`)
	s.work = func(ctx context.Context, _ *a2a.Request) (a2a.Result, error) {
		close(working)
		return said("done"), heard.until(ctx, "skipped limit_reached")
	}
	if err := execute(); err != nil {
		t.Fatal(err)
	}
	all, told := rows(run)
	if strings.Join(told, ", ") != "ok, ok, skipped limit_reached, final ok" {
		t.Fatalf("recorded %v", told)
	}
	response := run.PromptResponses()[0]
	urls := map[string]bool{}
	for i, row := range all {
		if row.Str("source_agent_name") != "solver" || row.Str("source_context_id") != response.Str("a2a_context_id") || row.Value("elapsed_s") == nil {
			t.Errorf("row %d: %s", i, canon(row))
		}
		if _, err := time.Parse("2006-01-02T15:04:05.000000+00:00", row.Str("captured_at_utc")); err != nil {
			t.Error(err)
		}
		if row.Str("capture_status") == "skipped" {
			continue
		}
		version, _ := row.Int("version")
		at := row.Str("bundle_object_url")
		if row.Str("id") != "inst-1__ask-workspace" || !strings.Contains(at, fmt.Sprintf("/team/agent_snapshots/inst-1__ask-workspace/%d-", version)) || urls[at] {
			t.Errorf("row %d: %s", i, canon(row))
		}
		urls[at] = true
		u, err := artifact.GetAs[*artifact.Universe](t.Context(), c.artifacts, artifact.Ref{ID: row.Str("id"), Version: version})
		if err != nil {
			t.Fatal(err)
		}
		members, err := c.artifacts.Members(t.Context(), u)
		if err != nil || len(members) != 2 || members[1].URL != at+"workspace" || c.read(members[1].URL) != fmt.Sprintf("work %d", version) {
			t.Errorf("%+v, %v", members, err)
		}
	}
	last := all[3]
	if keys := strings.Join(last.Keys(), " "); keys != "id version bundle_object_url source_agent_name source_context_id elapsed_s captured_at_utc is_final capture_status trajectory_s3_uri trajectory_object_url" {
		t.Errorf("keys %s", keys)
	}
	if url := last.Str("trajectory_object_url"); url != last.Str("trajectory_s3_uri") || !strings.Contains(url, "/prompt_id=p/trajectory-") || !strings.Contains(c.read(url), `"go"`) {
		t.Errorf("the trajectory is at %s", url)
	}
}

// TestSeriesByTurn takes a snapshot between each turn and what the user says to it, and none after the last.
func TestSeriesByTurn(t *testing.T) {
	t.Parallel()
	for name, v := range map[string]struct {
		config string
		turns  int
		want   string
	}{
		"each":        {`{"per_turn":true,"at_end":false}`, 3, "1 ok, 2 ok"},
		"limited":     {`{"per_turn":true,"max_snapshots":1}`, 4, "1 ok, 2 skipped limit_reached, final ok"},
		"the user":    {`{"per_turn":true,"at_end":false}`, 9, "1 ok, 2 ok, 3 ok, 4 ok"}, // has enough after the fourth
		"at the end":  {`{"at_end":true}`, 3, "final ok"},
		"single turn": {`{"per_turn":true}`, 1, "final ok"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, s := newCrew(t, nil), &subject{}
			at := s.deployed(t)
			asked := 0
			user := &fake{answer: func(string) (string, []any) {
				asked++
				return "completed", texts(fmt.Sprintf(`{"message":"more","done":%t}`, asked >= 4))
			}}
			url := user.start(t)
			at.Set("deployed_agents", append(at.Arr("deployed_agents"), deployed(t, nil, map[string]string{"user": url}).Arr("deployed_agents")...))
			run, _, execute := c.watched(t.Context(), at, fmt.Sprintf(`"user_agent_name":"user","max_conversation_turns":%d,"snapshot_config":%s`, v.turns, v.config))
			if err := execute(); err != nil {
				t.Fatal(err)
			}
			all, told := rows(run)
			if got := strings.Join(told, ", "); got != v.want {
				t.Fatalf("recorded %s, want %s", got, v.want)
			}
			for i, row := range all[:len(all)-1] {
				if row.Str("capture_status") == "ok" && strings.Count(c.read(row.Str("trajectory_object_url")), "heard") != i+1 {
					t.Errorf("the trajectory after turn %d: %s", i+1, c.read(row.Str("trajectory_object_url")))
				}
			}
		})
	}
}

func answered(status int, text string) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, text)
	}
}

// TestWhatASnapshotLacks is recorded by its reason; a step without the agent's last state fails.
func TestWhatASnapshotLacks(t *testing.T) {
	t.Parallel()
	const save, read = "/ext/snapshot", "/ext/trajectory"
	instead := func(path string, status int, text string) map[string]func(http.ResponseWriter) {
		return map[string]func(http.ResponseWriter){path: answered(status, text)}
	}
	for name, v := range map[string]struct {
		s      *subject
		change func(*crew, *doc.Object)
		status string
		reason string     // the start of it
		kind   fault.Kind // of the step, "" = it does not fail
		url    string     // of the trajectory: "own", "turn" = that of the last turn, "" = none
	}{
		"all is there":             {s: &subject{}, status: "ok", url: "own"},
		"the state, 404":           {s: &subject{answers: instead(save, 404, "no")}, status: "failed", reason: "RuntimeError: save of urn:agentenv:snapshot/v1", kind: fault.Internal},
		"the state, 500":           {s: &subject{answers: instead(save, 500, "no")}, status: "failed", reason: "RuntimeError: save of urn:agentenv:snapshot/v1", kind: fault.Internal},
		"the state, nothing":       {s: &subject{answers: instead(save, 200, "")}, status: "failed", reason: "RuntimeError: save of urn:agentenv:snapshot/v1", kind: fault.Internal},
		"the state, no JSON":       {s: &subject{answers: instead(save, 200, "so")}, status: "failed", reason: "RuntimeError: save of urn:agentenv:snapshot/v1", kind: fault.Internal},
		"the state, but not there": {s: &subject{answers: instead(save, 200, `{"context_id":"c","objects":{"trajectory":{"size_bytes":1},"workspace":{"size_bytes":1}}}`)}, status: "failed", reason: "RuntimeError: save of", kind: fault.Internal},
		"no snapshots":             {s: &subject{without: []string{card.Snapshot}}, status: "failed", reason: "RuntimeError: save of urn:agentenv:snapshot/v1: the card of", kind: fault.Unsupported},
		"too slow": {s: &subject{save: func(ctx context.Context, _ int) error {
			<-ctx.Done()
			return ctx.Err()
		}}, status: "failed", reason: "capture_timeout_0.5s", kind: fault.Timeout},
		"no trajectories":         {s: &subject{without: []string{card.Trajectory}}, status: "partial", reason: "trajectory_ext_unavailable; trajectory_missing"},
		"none of contexts":        {s: &subject{still: true}, status: "partial", reason: "trajectory_context_unsupported", url: "turn"},
		"none listed":             {s: &subject{}, change: unlisted, status: "partial", reason: "trajectory_get_unadvertised", url: "turn"},
		"the trajectory, 404":     {s: &subject{answers: instead(read, 404, "no")}, status: "partial", reason: "trajectory_session_missing", url: "turn"},
		"the trajectory, 500":     {s: &subject{answers: instead(read, 500, "no")}, status: "partial", reason: "trajectory_http_500", url: "turn"},
		"the trajectory, no JSON": {s: &subject{answers: instead(read, 200, "so")}, status: "partial", reason: "trajectory_read_failed", url: "turn"},
		"the trajectory, nothing": {s: &subject{answers: instead(read, 200, "")}, status: "partial", reason: "trajectory_read_failed", url: "turn"},
		"the trajectory, empty":   {s: &subject{quiet: true}, status: "partial", reason: "trajectory_empty; trajectory_missing"},
		"the store is in the way": {s: &subject{}, change: blocked, status: "partial", reason: "trajectory_upload_failed; trajectory_missing"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCrew(t, nil)
			at := v.s.deployed(t)
			if v.change != nil {
				v.change(c, at)
			}
			limit := "30"
			if v.kind == fault.Timeout {
				limit = "0.5"
			}
			run, _, execute := c.watched(t.Context(), at, `"snapshot_config":{"timeout_seconds":`+limit+`}`)
			err := execute()
			if v.kind == "" && err != nil || v.kind != "" && (!fault.Is(err, v.kind) || fault.ClassOf(err) != "RuntimeError" || !strings.Contains(err.Error(), `"ask": the agent answered, but`)) {
				t.Errorf("%s: %v", fault.KindOf(err), err)
			}
			if len(run.PromptResponses()) != 1 {
				t.Fatal("the answer is not recorded")
			}
			all, told := rows(run)
			if len(all) != 1 || all[0].Str("capture_status") != v.status || !strings.HasPrefix(all[0].Str("capture_reason"), v.reason) || !all[0].Bool("is_final") {
				t.Fatalf("recorded %v, want %s %s", told, v.status, v.reason)
			}
			if there := all[0].Str("bundle_object_url") != ""; there != (v.kind == "") {
				t.Errorf("recorded %s", canon(all[0]))
			}
			of, got := run.PromptResponses()[0].Str("agent_trajectory_object_url"), all[0].Str("trajectory_object_url")
			if (v.url == "turn") != (got != "" && got == of) || (v.url == "") != (got == "") {
				t.Errorf("the trajectory is at %q, that of the turn at %q", got, of)
			}
		})
	}
}

// unlisted takes the operation out of the card.
func unlisted(_ *crew, at *doc.Object) {
	for _, v := range record(at, "solver").Obj("a2a_card").Obj("capabilities").Arr("extensions") {
		if e := v.(*doc.Object); e.Str("uri") == card.Trajectory {
			e.Obj("params").Obj("methods").Delete("get")
		}
	}
}

// blocked puts a file where the folder of the trajectories would be.
func blocked(c *crew, _ *doc.Object) {
	c.t.Helper()
	text := "in the way"
	item := object.Item{Key: "team/prompt_agent_trajectories/prompt_id=p", Size: int64(len(text)), Body: strings.NewReader(text)}
	if _, err := c.objects.Put(c.t.Context(), item, false); err != nil {
		c.t.Fatal(err)
	}
}
