package episode_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"agentenv/episode"
	"agentenv/fault"
	"agentenv/store/doc"
	"agentenv/task"
)

// TestEpisode plays a task of two turns to its end: what it leaves is what any run leaves.
func TestEpisode(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.graded("42")
	r.deeds["between"] = func(_ context.Context, run *task.Run) error {
		if got := run.PromptResponses(); len(got) != 1 || got[0].Str("response") != "" {
			t.Errorf("after the first turn: %v", got)
		}
		return nil
	}
	e := r.start(`{"id":"agent","type":"deploy_agent","role":"helper"},{"id":"first","type":"prompt_agent","prompt":"Hello <name>","context_id":"c1"},
		{"id":"between","type":"do"},`+ask+`,`+check, episode.Options{Seed: doc.Of("name", "you")})
	if len(e.ID) != 32 || strings.Trim(e.ID, "0123456789abcdef") != "" {
		t.Errorf("id %q", e.ID)
	}
	first := r.turn(e)
	if first.Number != 1 || first.Text != "Hello you" || first.StepID != "first" || first.AgentName != "default-agent" {
		t.Errorf("%+v", first.Prompt)
	}
	if _, err := e.Result(t.Context()); !fault.Is(err, fault.Conflict) {
		t.Errorf("a result with a turn open: %v", err)
	}
	if err := first.End(""); err != nil {
		t.Fatal(err)
	}
	second := r.turn(e)
	if err := second.RecordModelCall(t.Context(), episode.ModelCall{Message: "It is 42", Model: "m-1"}); err != nil {
		t.Fatal(err)
	}
	if err := second.End("It is 42"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if turn, err := e.NextTurn(r.soon()); turn != nil || err != nil {
			t.Fatalf("after the last turn: %v, %v", turn, err)
		}
	}
	res, err := e.Result(t.Context())
	if err != nil || res.Status != "completed" || res.Class != task.Passed || res.Instance != e.ID {
		t.Fatalf("%+v, %v", res, err)
	}
	if d := cmp.Diff([]task.Score{{Label: "check", Value: 1}}, res.Scores); d != "" {
		t.Error(d)
	}
	if again, err := e.Result(t.Context()); again != res || err != nil {
		t.Errorf("asked again: %v, %v", again, err)
	}
	in := r.stored(e)
	if in.TaskID != "t" || in.TaskVersion != 7 || in.TotalSteps != 5 || in.Status != "completed" {
		t.Errorf("stored: %+v", in)
	}
	want := doc.MustFrom([]any{
		doc.Of("prompt_id", in.Context.Arr("prompt_responses")[0].(*doc.Object).Str("prompt_id"), "response", "", "prompt_text", "Hello you", "model", nil, "a2a_context_id", "c1", "step_id", "first"),
		doc.Of("prompt_id", "p1", "response", "It is 42", "prompt_text", "How many?", "model", "m-1", "a2a_context_id", nil, "step_id", "ask"),
	}).([]any)
	for _, w := range want {
		w := w.(*doc.Object)
		for _, k := range []string{"agent_trajectory_file_path", "error_type", "error_code", "error_message", "structured_output", "agent_trajectory_object_url", "agent_trajectory_s3_uri",
			"agent_trajectory_object_prefix", "agent_trajectory_s3_prefix", "target_agent_per_turn_trajectory_object_urls", "target_agent_per_turn_trajectory_s3_uris"} {
			w.Set(k, nil)
		}
		w.Set("source_agent_per_turn_prompt_parts", []any{nil}).Set("tool_call_count", doc.Int(0)).Set("agent_session_id", "").Set("agent_name", "default-agent")
	}
	if got := in.Context.Value("prompt_responses"); !doc.Equal(got, want) {
		t.Errorf("responses:\n%s\nwant:\n%s", doc.Canonical(got), doc.Canonical(want))
	}
	if agent := in.Context.Arr("deployed_agents")[0].(*doc.Object); agent.Str("agent_name") != "default-agent" || agent.Str("role") != "helper" || agent.Value("sandbox_id") != nil {
		t.Errorf("agent: %v", doc.Canonical(agent))
	}
	meta := in.Context.Obj("metadata")
	if !doc.Equal(meta.Value("episode"), doc.Of("id", e.ID, "trainer_agents", []any{"default-agent"})) || meta.Str("task_id") != "t" || meta.Obj("seed").Str("name") != "you" ||
		!doc.Equal(meta.Value("models"), doc.Of("solver", doc.Of("first", nil, "ask", "m-1"))) {
		t.Errorf("metadata: %s", doc.Canonical(meta))
	}
	if r.teardown.times(e.ID) != 1 || !cmp.Equal(r.tracker.statuses(), []string{"completed"}) || r.tracker.began[0].Instance != e.ID || r.tracker.began[0].TaskVersion != 7 {
		t.Errorf("torn down %d times, tracked %+v %v", r.teardown.times(e.ID), r.tracker.began, r.tracker.statuses())
	}
	if err := e.Abandon(t.Context(), "too late"); err != nil || r.stored(e).Status != "completed" {
		t.Errorf("abandoned after the end: %v", err)
	}
}

// TestTwoCallers has many ask for turns and end them: each turn goes to one of them, and one reply stands.
func TestTwoCallers(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	e := r.start(talk, episode.Options{})
	var all sync.WaitGroup
	var mu sync.Mutex
	var turns []*episode.Turn
	for range 4 {
		all.Go(func() {
			turn, err := e.NextTurn(r.soon())
			if err != nil {
				t.Error(err)
			}
			if turn == nil {
				return
			}
			mu.Lock()
			turns = append(turns, turn)
			mu.Unlock()
			var ends sync.WaitGroup
			for _, reply := range []string{"a", "b"} {
				ends.Go(func() {
					if err := turn.End(reply); err != nil {
						t.Error(err)
					}
				})
			}
			ends.Wait()
		})
	}
	all.Wait()
	if len(turns) != 1 {
		t.Fatalf("%d callers got a turn", len(turns))
	}
	res, err := e.Result(r.soon())
	if err != nil {
		t.Fatal(err)
	}
	got := res.Context.Arr("prompt_responses")
	if reply := got[0].(*doc.Object).Str("response"); len(got) != 1 || reply != "a" && reply != "b" {
		t.Errorf("%v", got)
	}
	wantKind(t, turns[0].RecordModelCall(t.Context(), episode.ModelCall{Message: "late"}), fault.NotFound, "is over")
}

// TestSideBySide has two agents prompted at once: both turns are open, and may end in any order.
func TestSideBySide(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	e := r.start(deploy+`,{"id":"b","type":"deploy_agent","agent_name":"b"},{"id":"ask","type":"prompt_agent","prompt":"1"},
		{"id":"askb","type":"prompt_agent","prompt":"2","agent_name":"b","depends_on":["b"]}`, episode.Options{TrainerAgents: []string{"default-agent", "b"}})
	x, y := r.turn(e), r.turn(e)
	if x == y || x.Number != 1 || y.Number != 2 {
		t.Fatalf("%d and %d", x.Number, y.Number)
	}
	for range 2 { // who asks by number gets the same turn again
		if got, err := e.TurnAfter(r.soon(), 1); got != y || err != nil {
			t.Errorf("%v, %v", got, err)
		}
	}
	if err := errors.Join(y.End("second"), x.End("first")); err != nil {
		t.Fatal(err)
	}
	if res, err := e.Result(r.soon()); err != nil || len(res.Context.Arr("prompt_responses")) != 2 {
		t.Errorf("%+v, %v", res, err)
	}
}

// TestCallersGone has every caller give up: the run is not touched by it.
func TestCallersGone(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	goOn := make(chan struct{})
	r.deeds["wait"] = func(ctx context.Context, _ *task.Run) error {
		select {
		case <-goOn:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	p := r.plan(deploy+`,{"id":"wait","type":"do"},`+ask, episode.Options{})
	ctx, gone := context.WithCancel(t.Context())
	e, err := p.Start(ctx, "")
	if err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(20*time.Millisecond, gone)
	if turn, err := e.NextTurn(ctx); turn != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("%v, %v", turn, err)
	}
	if res, err := e.Result(ctx); res != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("%v, %v", res, err)
	}
	close(goOn)
	turn := r.turn(e)
	if err := turn.End("still here"); err != nil {
		t.Fatal(err)
	}
	if res, err := e.Result(r.soon()); err != nil || res.Status != "completed" {
		t.Errorf("%+v, %v", res, err)
	}
}

// TestAbandon cancels with the reason, which the record has; open turns end, and everything is torn down.
func TestAbandon(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	e := r.start(talk, episode.Options{})
	turn := r.turn(e)
	if err := e.Abandon(r.soon(), "bored"); err != nil {
		t.Fatal(err)
	}
	wantKind(t, turn.End("late"), fault.NotFound, "bored")
	if turn, err := e.NextTurn(r.soon()); turn != nil || !fault.Is(err, fault.Canceled) {
		t.Errorf("%v, %v", turn, err)
	}
	res, err := e.Result(r.soon())
	if res.Status != "cancelled" || res.Class != task.Cancelled || err.Error() != "bored" {
		t.Errorf("%+v, %v", res, err)
	}
	if in := r.stored(e); in.Status != "cancelled" || in.Error != "bored" || r.teardown.times(e.ID) != 1 {
		t.Errorf("%+v", in)
	}
	if err := e.Abandon(r.soon(), "again"); err != nil || r.stored(e).Error != "bored" {
		t.Errorf("%v", err)
	}
}

// TestAbandonAfterAFailure keeps the error of a run that failed for good while another step still ran.
func TestAbandonAfterAFailure(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	failed := make(chan struct{})
	r.deeds["bad"] = func(context.Context, *task.Run) error {
		time.AfterFunc(100*time.Millisecond, func() { close(failed) })
		return fault.New(fault.Invalid, "no such thing")
	}
	e := r.start(deploy+`,`+ask+`,{"id":"bad","type":"do","depends_on":["agent"]}`, episode.Options{})
	turn := r.turn(e)
	<-failed
	if err := e.Abandon(r.soon(), "bored"); err != nil {
		t.Fatal(err)
	}
	res, err := e.Result(r.soon())
	var step *task.StepError
	if res.Status != "failed" || !errors.As(err, &step) || step.StepID != "bad" {
		t.Errorf("%+v, %v", res, err)
	}
	if in := r.stored(e); in.Status != "failed" || in.Error != "no such thing" {
		t.Errorf("%+v", in)
	}
	wantKind(t, turn.End("late"), fault.NotFound, "is over")
}

// TestTimeout ends a turn that nobody ends, as a step that took too long.
func TestTimeout(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	e := r.start(deploy+`,{"id":"ask","type":"prompt_agent","prompt":"?","timeout_seconds":500}`, episode.Options{TurnTimeout: 10 * time.Millisecond})
	turn := r.turn(e)
	began := time.Now()
	none, err := e.NextTurn(r.soon())
	if none != nil || !fault.Is(err, fault.Timeout) || time.Since(began) < 500*time.Millisecond {
		t.Fatalf("%v, %v after %v", none, err, time.Since(began))
	}
	wantKind(t, turn.End("late"), fault.NotFound, "did not end its turn within 1 s")
	res, _ := e.Result(r.soon())
	if res.Status != "failed" || res.Class != task.TimedOut || res.Steps["ask"] != task.TimedOut || len(res.Context.Arr("prompt_responses")) != 0 {
		t.Errorf("%+v", res)
	}
	if in := r.stored(e); in.Class != task.TimedOut {
		t.Errorf("%+v", in)
	}
}

// TestTolerated lets the run go on after a turn that took too long.
func TestTolerated(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.graded("x")
	e := r.start(deploy+`,{"id":"ask","type":"prompt_agent","prompt":"?","timeout_seconds":0.05,"fail_task_on_error":false},`+check, episode.Options{})
	r.turn(e)
	if none, err := e.NextTurn(r.soon()); none != nil || err != nil {
		t.Fatalf("%v, %v", none, err)
	}
	res, err := e.Result(r.soon())
	if err != nil || res.Status != "completed" || res.Class != task.TimedOut || res.Scores[0].Value != 0 || res.Failures[0].StepType != "episode_prompt" {
		t.Errorf("%+v, %v", res, err)
	}
}

// TestCancelledFromElsewhere obeys a request that came through the run's record.
func TestCancelledFromElsewhere(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	e := r.start(talk, episode.Options{})
	r.turn(e)
	r.tracker.cancel(fault.New(fault.Canceled, "cancelled by ann"))
	if _, err := e.NextTurn(r.soon()); !fault.Is(err, fault.Canceled) || r.stored(e).Error != "cancelled by ann" {
		t.Errorf("%v", err)
	}
}

// TestNotBegun has runs that cannot be recorded.
func TestNotBegun(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.plan(talk, episode.Options{})
	r.tracker.refuse = fault.New(fault.Unavailable, "the disk is full")
	if _, err := p.Start(t.Context(), ""); !fault.Is(err, fault.Unavailable) {
		t.Errorf("%v", err)
	}
	r.tracker.refuse = nil
	if err := r.docs.Close(); err != nil {
		t.Fatal(err)
	}
	e, err := p.Start(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	if turn, err := e.NextTurn(r.soon()); turn != nil || err == nil {
		t.Errorf("%v, %v", turn, err)
	}
	if res, err := e.Result(r.soon()); res != nil || err == nil {
		t.Errorf("%v, %v", res, err)
	}
	if !cmp.Equal(r.tracker.statuses(), []string{"not begun"}) {
		t.Error(r.tracker.statuses())
	}
}

// TestPromptBeforeDeploy fails the prompt of an agent that is not there yet.
func TestPromptBeforeDeploy(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	e := r.start(`{"id":"ask","type":"prompt_agent","prompt":"?"},{"id":"agent","type":"deploy_agent"}`, episode.Options{})
	turn, err := e.NextTurn(r.soon())
	if turn != nil {
		t.Fatalf("a turn: %+v", turn.Prompt)
	}
	wantKind(t, err, fault.Invalid, `no agent named "default-agent" is deployed before this step`)
}

// TestLocal has an @local task, whose records are named for it.
func TestLocal(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	tk := r.task(talk)
	tk.ID = "@local/me/t"
	p, err := episode.New(r.deps, tk, episode.Options{})
	if err != nil {
		t.Fatal(err)
	}
	e, err := p.Start(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	if len(e.ID) != 32 || e.Instance != "@local/me/t-"+e.ID {
		t.Errorf("%s, %s", e.ID, e.Instance)
	}
	r.turn(e)
	if err := e.Abandon(r.soon(), ""); err != nil {
		t.Fatal(err)
	}
	if in, err := r.instances.Get(t.Context(), e.Instance); err != nil || in.Status != "cancelled" || in.Error != "abandoned" || r.teardown.times(e.Instance) != 1 {
		t.Errorf("%+v, %v", in, err)
	}
	_, err = r.deps.Engine.Resume(t.Context(), tk, e.Instance, task.Options{})
	wantKind(t, err, fault.Conflict, "is an episode")
}

// TestNoResume refuses to go on with an episode as with a run of a real agent.
func TestNoResume(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	e := r.start(talk, episode.Options{})
	r.turn(e)
	if err := e.Abandon(r.soon(), ""); err != nil {
		t.Fatal(err)
	}
	_, err := r.deps.Engine.Resume(t.Context(), r.task(talk), e.ID, task.Options{})
	wantKind(t, err, fault.Conflict, "is an episode")
}
