// Package runnertest holds the conformance suite that every runner passes.
package runnertest

import (
	"context"
	"strings"
	"testing"
	"time"

	"agentenv/runner"
	"agentenv/store/doc"
	"agentenv/task"
)

// Rig is a started runner over stored tasks, and what the suite needs to see of it. The suite calls Stop.
type Rig struct {
	Runner    runner.Runner
	Instances *task.Instances
	// Task stores a task of the steps, in their stored form, and returns its id. The types that the suite uses: `teardown_sandboxes` with
	// agent_names ["ghost"], which does nothing; `aggregate_verifiers` of an unknown verifier, which fails; and the one that Long returns.
	Task func(t *testing.T, steps ...*doc.Object) string
	// Long returns a step that runs until it is cancelled.
	Long func(id string) *doc.Object
}

// Nothing returns a step that does nothing.
func Nothing(id string) *doc.Object {
	return doc.Of("id", id, "type", "teardown_sandboxes", "agent_names", []any{"ghost"})
}

// Failing returns a step that fails, with a text that names the verifier `nope`.
func Failing(id string) *doc.Object {
	return doc.Of("id", id, "type", "aggregate_verifiers", "verifier_ids", []any{"nope"}, "verifier_id", id)
}

// patience is how long the suite waits for anything.
const patience = 60 * time.Second

// Run runs the suite. open returns a runner of its own for each case, whose Start was not called.
func Run(t *testing.T, open func(t *testing.T) *Rig) {
	for _, c := range []struct {
		name string
		run  func(t *testing.T, g *Rig)
	}{
		{"a run completes under its handle", completes},
		{"a failing step fails the run", fails},
		{"a running run is cancelled", cancels},
		{"a failed instance is continued", continues},
		{"an ended and an unknown run cannot be cancelled", cannotCancel},
		{"another task's instance is not continued", refuses},
		{"a run is watched to its end", watches},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := open(t)
			if err := g.Runner.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := g.Runner.Start(t.Context()); err != nil {
				t.Errorf("a second start: %v", err)
			}
			c.run(t, g)
			ctx, stop := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
			defer stop()
			for range 2 {
				if err := g.Runner.Stop(ctx); err != nil {
					t.Errorf("stop: %v", err)
				}
			}
		})
	}
}

func (g *Rig) submit(t *testing.T, req runner.Request) runner.Handle {
	t.Helper()
	h, err := g.Runner.Submit(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	if h.Run == "" || h.Instance == "" {
		t.Fatalf("the handle is %+v", h)
	}
	return h
}

// until waits for a status of a run, and fails when another terminal one comes.
func (g *Rig) until(t *testing.T, run string, want runner.Status) *runner.Record {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		r, err := g.Runner.Status(t.Context(), run)
		if err != nil || r == nil {
			t.Fatalf("the record of %s: %v, %v", run, r, err)
		}
		if r.Status == want {
			return r
		}
		if r.Status.Terminal() {
			t.Fatalf("run %s ended as %s (%s), not %s", run, r.Status, r.Error, want)
		}
	}
	t.Fatalf("run %s did not get %s", run, want)
	return nil
}

func completes(t *testing.T, g *Rig) {
	id := g.Task(t, Nothing("a"))
	h := g.submit(t, runner.Request{TaskID: id, Metadata: doc.Of("carried", "yes")})
	r := g.until(t, h.Run, runner.Completed)
	if r.TaskID != id || r.Instance != h.Instance || r.Created == "" || r.Started < r.Created || r.Finished < r.Started || r.Error != "" {
		t.Errorf("the record is %+v", r)
	}
	in, err := g.Instances.Get(t.Context(), h.Instance)
	if err != nil {
		t.Fatal(err)
	}
	meta := in.Context.Obj("metadata")
	if in.Status != "completed" || meta.Str("workflow_id") != h.Run || meta.Str("instance_id") != h.Instance || meta.Str("runner") != r.Runner || meta.Str("carried") != "yes" {
		t.Errorf("status %s, metadata %s", in.Status, doc.Canonical(meta))
	}
}

func fails(t *testing.T, g *Rig) {
	h := g.submit(t, runner.Request{TaskID: g.Task(t, Failing("a"))})
	if r := g.until(t, h.Run, runner.Failed); !strings.Contains(r.Error, "nope") {
		t.Errorf("the error is %q", r.Error)
	}
}

func cancels(t *testing.T, g *Rig) {
	h := g.submit(t, runner.Request{TaskID: g.Task(t, g.Long("a"), Nothing("b"))})
	g.until(t, h.Run, runner.Running)
	if done, err := g.Runner.Cancel(t.Context(), h.Run, "not wanted"); !done || err != nil {
		t.Fatalf("cancel: %v, %v", done, err)
	}
	g.until(t, h.Run, runner.Canceled)
	if in, err := g.Instances.Find(t.Context(), h.Instance); err != nil || in != nil && (in.Status != "cancelled" || len(in.Completed) > 0) {
		t.Errorf("the instance: %+v, %v", in, err)
	}
}

func continues(t *testing.T, g *Rig) {
	id := g.Task(t, Failing("a"), Nothing("b"))
	first := g.submit(t, runner.Request{TaskID: id, Metadata: doc.Of("kept", "1", "both", "old")})
	g.until(t, first.Run, runner.Failed)
	h := g.submit(t, runner.Request{TaskID: id, Instance: first.Instance, Metadata: doc.Of("start_step", doc.Int(1), "both", "new")})
	if h.Instance != first.Instance || h.Run == first.Run {
		t.Errorf("%+v continues %+v", h, first)
	}
	g.until(t, h.Run, runner.Completed) // the failure of the step that does not run again counts no more
	in, err := g.Instances.Get(t.Context(), h.Instance)
	if err != nil {
		t.Fatal(err)
	}
	meta := in.Context.Obj("metadata")
	if in.Status != "completed" || meta.Str("kept") != "1" || meta.Str("both") != "new" || meta.Str("workflow_id") != h.Run {
		t.Errorf("status %s, metadata %s", in.Status, doc.Canonical(meta))
	}
}

func cannotCancel(t *testing.T, g *Rig) {
	h := g.submit(t, runner.Request{TaskID: g.Task(t, Nothing("a"))})
	g.until(t, h.Run, runner.Completed)
	for _, run := range []string{h.Run, "nobody-knows"} {
		if done, err := g.Runner.Cancel(t.Context(), run, "late"); done || err != nil {
			t.Errorf("cancelling %s: %v, %v", run, done, err)
		}
	}
	g.until(t, h.Run, runner.Completed)
	if r, err := g.Runner.Status(t.Context(), "nobody-knows"); r != nil || err != nil {
		t.Errorf("the record of an unknown run: %v, %v", r, err)
	}
}

func refuses(t *testing.T, g *Rig) {
	first := g.submit(t, runner.Request{TaskID: g.Task(t, Nothing("a"))})
	g.until(t, first.Run, runner.Completed)
	other := g.Task(t, Nothing("b"))
	h := g.submit(t, runner.Request{TaskID: other, TaskVersion: 1, Instance: first.Instance})
	r := g.until(t, h.Run, runner.Failed)
	if want := "Instance " + first.Instance + " is a run of "; !strings.Contains(r.Error, want) || !strings.Contains(r.Error, ", not of "+other+" v1") {
		t.Errorf("the error is %q", r.Error)
	}
	in, err := g.Instances.Get(t.Context(), first.Instance)
	if err != nil || in.Context.Obj("metadata").Str("workflow_id") != first.Run {
		t.Errorf("something ran: %v", err)
	}
}

func watches(t *testing.T, g *Rig) {
	h := g.submit(t, runner.Request{TaskID: g.Task(t, Nothing("a"), Nothing("b"))})
	ctx, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	var steps []string
	var last runner.Status
	for e, err := range g.Runner.Watch(ctx, h.Run) {
		switch {
		case err != nil:
			t.Fatal(err)
		case e.Step != nil:
			steps = append(steps, e.Step.StepID+" "+e.Step.Status)
		case e.Record != nil:
			last = e.Record.Status
		}
	}
	if strings.Join(steps, ", ") != "a success, b success" || last != runner.Completed {
		t.Errorf("seen: %v, then %s", steps, last)
	}
	for _, err := range g.Runner.Watch(ctx, "nobody-knows") {
		if err == nil {
			t.Error("an unknown run was watched")
		}
	}
}
