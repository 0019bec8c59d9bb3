package review_test

import (
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"agentenv/fault"
	"agentenv/steps/review"
	"agentenv/store/doc"
	"agentenv/store/document/sqlite"
	"agentenv/task"
)

type rig struct {
	reviews *task.Reviews
	engine  *task.Engine
	reg     *task.Registry
}

func newRig(t *testing.T) *rig {
	t.Helper()
	docs, err := sqlite.New(sqlite.Options{Path: filepath.Join(t.TempDir(), "docs.db")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { docs.Close() })
	r := &rig{reviews: task.NewReviews(docs, nil)}
	if r.reg, err = task.NewRegistry(review.Types(review.Deps{Reviews: r.reviews})...); err != nil {
		t.Fatal(err)
	}
	r.engine = task.NewEngine(r.reg, docs, slog.New(slog.DiscardHandler), nil)
	return r
}

func (r *rig) task(t *testing.T, step string) *task.Task {
	t.Helper()
	tk, err := r.reg.ParseText("t", []byte("["+step+"]"), task.ParseOptions{Strict: true})
	if err != nil {
		t.Fatal(err)
	}
	tk.Version = 1
	return tk
}

// decides waits until the review is there and decides it.
func (r *rig) decides(t *testing.T, decision string) {
	for range 500 {
		if ok, err := r.reviews.Decide(context.Background(), "t-1", "ask", decision, "ada"); err != nil || ok {
			if err != nil {
				t.Error(err)
			}
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Error("no review waits")
}

const step = `{"id":"ask","type":"review","label":"ship it?","poll_interval_seconds":0.02,"timeout_seconds":20}`

func TestContinue(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	tk := r.task(t, step)
	go r.decides(t, task.Continue)
	res, err := r.engine.Run(t.Context(), tk, task.Options{Instance: "t-1"})
	if err != nil || res.Status != "completed" {
		t.Fatalf("%+v, %v", res, err)
	}
	want := doc.Of("decision", "continue", "decided_by", "ada")
	if got := res.Context.Obj("metadata").Obj("review_decisions").Value("ask"); !doc.Equal(got, want) {
		t.Errorf("the decision is %v", got)
	}
	stands, err := r.reviews.Get(t.Context(), "t-1", "ask")
	if err != nil || stands.State != task.Continue || stands.Label != "ship it?" || stands.DecidedAt == "" {
		t.Errorf("%+v, %v", stands, err)
	}
	asked, err := time.Parse(time.RFC3339, stands.AwaitingAt)
	expires, bad := time.Parse(time.RFC3339, stands.ExpiresAt)
	if err != nil || bad != nil || expires.Sub(asked) != 7*24*time.Hour {
		t.Errorf("asked at %s, it is kept until %s: %v, %v", stands.AwaitingAt, stands.ExpiresAt, err, bad)
	}
	// Run again under the same instance, it does not ask a second time.
	if res, err := r.engine.Run(t.Context(), tk, task.Options{Instance: "t-1"}); err != nil || res.Status != "completed" {
		t.Errorf("again: %+v, %v", res, err)
	}
}

// TestAbort ends a run; going on with it asks anew.
func TestAbort(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	tk := r.task(t, step)
	go r.decides(t, task.Abort)
	res, err := r.engine.Run(t.Context(), tk, task.Options{Instance: "t-1"})
	if err == nil || res.Status != "failed" || !strings.Contains(err.Error(), "aborted by ada") {
		t.Fatalf("%+v, %v", res, err)
	}
	if ok, err := r.reviews.Decide(t.Context(), "t-1", "ask", task.Continue, "bob"); ok || err != nil {
		t.Errorf("decided twice: %v, %v", ok, err)
	}
	go r.decides(t, task.Continue)
	if res, err := r.engine.Resume(t.Context(), tk, "t-1", task.Options{}); err != nil || res.Status != "completed" {
		t.Errorf("resumed: %+v, %v", res, err)
	}
}

func TestNobodyDecides(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	res, err := r.engine.Run(t.Context(), r.task(t, `{"id":"ask","type":"review","timeout_seconds":0.1,"poll_interval_seconds":-1}`), task.Options{Instance: "t-1"})
	if !fault.Is(err, fault.Timeout) || res.Class != task.TimedOut {
		t.Errorf("%+v, %v", res, err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(50*time.Millisecond, func() { cancel(fault.New(fault.Canceled, "enough")) })
	if res, err := r.engine.Run(ctx, r.task(t, step), task.Options{Instance: "t-2"}); res.Status != "cancelled" || !strings.Contains(err.Error(), "enough") {
		t.Errorf("cancelled: %+v, %v", res, err)
	}
}

// TestUpstream is what whoever decides gets to see.
func TestUpstream(t *testing.T) {
	t.Parallel()
	reply := func(step, text string, structured any) *doc.Object {
		return doc.Of("prompt_id", step, "step_id", step, "response", text, "structured_output", structured)
	}
	long := strings.Repeat("ä", 20_000)
	for name, c := range map[string]struct {
		replies []any
		want    *doc.Object
	}{
		"nothing":    {nil, &doc.Object{}},
		"text":       {[]any{reply("a", long, nil)}, doc.Of("step_id", "a", "response", long[:8_000])},
		"structured": {[]any{reply("a", "x", doc.Of("n", doc.Int(1))), reply("b", "y", nil)}, doc.Of("step_id", "a", "structured_output", doc.Of("n", doc.Int(1)))},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			run := task.NewRun("ask", "review", task.NewContext().Set("prompt_responses", c.replies), nil, nil)
			run.Instance = "t-1"
			tk := r.task(t, `{"id":"ask","type":"review","timeout_seconds":0.01}`)
			if err := tk.Steps[0].Action.Execute(t.Context(), run); !fault.Is(err, fault.Timeout) {
				t.Fatal(err)
			}
			if got, _ := r.reviews.Get(t.Context(), "t-1", "ask"); !doc.Equal(got.Upstream, c.want) {
				t.Errorf("it shows %.200v", got.Upstream)
			}
		})
	}
	r := newRig(t)
	run := task.NewRun("ask", "review", task.NewContext().Set("prompt_responses", []any{reply("a", "", long)}), nil, nil)
	run.Instance = "t-1"
	_ = r.task(t, `{"id":"ask","type":"review","timeout_seconds":0.01}`).Steps[0].Action.Execute(t.Context(), run)
	if got, _ := r.reviews.Get(t.Context(), "t-1", "ask"); !got.Upstream.Bool("_truncated") || len([]rune(got.Upstream.Str("preview"))) != 16_000 {
		t.Error("a long reply is not cut")
	}
	if err := r.task(t, step).Steps[0].Action.Execute(t.Context(), task.NewRun("ask", "review", nil, nil, nil)); !fault.Is(err, fault.Invalid) {
		t.Errorf("a run without a record: %v", err)
	}
}
