package local_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"agentenv/fault"
	"agentenv/runner"
	"agentenv/runner/local"
	"agentenv/runner/runnertest"
	"agentenv/sandbox"
	"agentenv/store/doc"
	"agentenv/store/document"
	"agentenv/task"
)

// TestKept leaves up what a run that ended on its own asked to keep, and nothing of one that was cancelled.
func TestKept(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.process(sandbox.Process{})
	r := p.start(local.Config{})
	for name, c := range map[string]struct {
		step *doc.Object
		end  runner.Status
		down int
	}{"passed": {runnertest.Nothing("a"), runner.Completed, 0}, "failed": {runnertest.Failing("a"), runner.Failed, 0}, "cancelled": {long("a"), runner.Canceled, 1}} {
		h := p.submit(r, runner.Request{TaskID: p.taskNamed(name, c.step), Metadata: doc.Of("keep", true)})
		if c.end == runner.Canceled {
			w.wait("the step", func() bool { return w.times(h.Instance, "a") == 1 })
			if done, err := r.Cancel(t.Context(), h.Run, ""); !done || err != nil {
				t.Fatal(done, err)
			}
		}
		p.until(h.Run, c.end)
		if n := p.teardown.of(h.Instance); n != c.down {
			t.Errorf("%s: torn down %d times", name, n)
		}
	}
}

// TestACancelThatComesTooLate finds a run that has done its work: it ends as what it did.
func TestACancelThatComesTooLate(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.process(sandbox.Process{})
	at, on := make(chan struct{}), make(chan struct{})
	w.on("a", func(context.Context, *task.Run) error { close(at); <-on; return nil })
	r := p.start(local.Config{})
	h := p.submit(r, runner.Request{TaskID: p.task(runnertest.Nothing("a"))})
	<-at
	if done, err := r.Cancel(t.Context(), h.Run, "late"); !done || err != nil {
		t.Error(done, err)
	}
	close(on)
	p.until(h.Run, runner.Completed)
}

// TestARunThatIsBeingTornDownIsLetFinish, whether it is cancelled or its runner stops.
func TestARunThatIsBeingTornDownIsLetFinish(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.process(sandbox.Process{})
	p.teardown.hold = make(chan struct{})
	w.on("a", func(_ context.Context, r *task.Run) error {
		return r.AddSandbox(task.Sandbox{Name: "box", ID: "s1", Mode: "vm"})
	})
	ended := make(chan *local.Ended, 1)
	r := p.start(local.Config{Own: true, Ended: func(e *local.Ended) { ended <- e }})
	h := p.submit(r, runner.Request{TaskID: p.task(runnertest.Nothing("a"))})
	w.wait("the teardown", func() bool { return p.teardown.of(h.Instance) == 1 })
	if _, err := r.Cancel(t.Context(), h.Run, "late"); err != nil {
		t.Error(err)
	}
	stopped := make(chan error, 1)
	go func() { stopped <- r.Stop(context.Background()) }()
	select {
	case err := <-stopped:
		t.Fatalf("it stopped in the middle of a teardown: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	close(p.teardown.hold)
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	p.until(h.Run, runner.Completed)
	if e := <-ended; len(e.TornDown.Ended) != 1 || len(e.TornDown.Left) != 0 || p.teardown.of(h.Instance) != 1 {
		t.Errorf("torn down: %+v", e.TornDown)
	}
}

// TestCancelFromAnotherProcess is obeyed by the process that runs it.
func TestCancelFromAnotherProcess(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p, other := w.process(sandbox.Process{}), w.process(sandbox.Process{Host: "elsewhere", PID: 9})
	r := p.start(local.Config{})
	h := p.submit(r, runner.Request{TaskID: p.task(long("a"))})
	p.until(h.Run, runner.Running)
	began := time.Now()
	if done, err := local.New(other.deps, local.Config{}).Cancel(t.Context(), h.Run, "from elsewhere"); !done || err != nil {
		t.Fatal(done, err)
	}
	if rec := p.until(h.Run, runner.Canceled); rec.Error != "from elsewhere" {
		t.Errorf("%+v", rec)
	}
	if took := time.Since(began); took > 10*time.Second { // a second, on a machine with nothing else to do
		t.Errorf("it took %s", took)
	}
}

// TestStopIsBounded has a step that never ends and a teardown that never ends.
func TestStopIsBounded(t *testing.T) {
	t.Parallel()
	for name, hang := range map[string]bool{"the step": false, "the step and the teardown": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				p := w.process(sandbox.Process{})
				on := make(chan struct{})
				w.on("a", func(context.Context, *task.Run) error { <-on; return nil })
				p.teardown.hang = hang
				r := local.New(p.deps, local.Config{})
				if err := r.Start(t.Context()); err != nil {
					t.Fatal(err)
				}
				h := p.submit(r, runner.Request{TaskID: p.task(runnertest.Nothing("a"))})
				p.until(h.Run, runner.Running)
				w.wait("the step", func() bool { return w.times(h.Instance, "a") == 1 })
				began := time.Now()
				err := r.Stop(context.Background())
				if took := time.Since(began); !fault.Is(err, fault.Timeout) || took < time.Minute || took > 302*time.Second {
					t.Errorf("it took %s: %v", took, err)
				}
				if p.teardown.of(h.Instance) != 1 {
					t.Errorf("it was torn down %d times", p.teardown.of(h.Instance))
				}
				close(on)
				synctest.Wait()
				time.Sleep(time.Minute) // nothing of it is left to do
				if p.teardown.of(h.Instance) != 1 {
					t.Errorf("it was torn down %d times after all", p.teardown.of(h.Instance))
				}
			})
		})
	}
}

// TestTracker keeps records of runs that a process runs by itself.
func TestTracker(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p, other, gone := w.process(sandbox.Process{}), w.process(sandbox.Process{Host: "elsewhere", PID: 9}), w.process(dead())
	tr := local.NewTracker(p.records, nil)
	fresh := task.Tracked{Instance: "t-1", TaskID: "t", TaskVersion: 1, Metadata: doc.Of("run_group_id", "g")}
	ctx, end, err := tr.Begin(t.Context(), fresh)
	if err != nil {
		t.Fatal(err)
	}
	rec, err := p.records.OfInstance(t.Context(), "t-1")
	if err != nil || rec.Status != runner.Running || rec.Runner != runner.LocalType || !p.records.Alive(rec.Owner) {
		t.Fatalf("%+v, %v", rec, err)
	}
	// It runs still, so nobody goes on with it.
	if _, _, err := local.NewTracker(other.records, nil).Begin(t.Context(), task.Tracked{Instance: "t-1", TaskID: "t", TaskVersion: 1}); !fault.Is(err, fault.Conflict) || !strings.Contains(err.Error(), "still running") {
		t.Errorf("resumed while it runs: %v", err)
	}
	if done, err := local.New(other.deps, local.Config{}).Cancel(t.Context(), rec.ID, "enough"); !done || err != nil {
		t.Fatal(done, err)
	}
	<-ctx.Done()
	if cause := context.Cause(ctx); !fault.Is(cause, fault.Canceled) || cause.Error() != "enough" {
		t.Errorf("cancelled with %v", cause)
	}
	end(&task.Result{Status: "cancelled", Class: task.Cancelled}, fault.New(fault.Canceled, "enough"))
	p.until(rec.ID, runner.Canceled)

	// The same instance again: a record of its own, which stays only when the run did go on.
	resumed := task.Tracked{Instance: "t-1", TaskID: "t", TaskVersion: 1}
	count := func() int { n, _ := p.docs.Count(t.Context(), "runs", document.By("instance_id", "t-1")); return n }
	_, end, err = tr.Begin(t.Context(), resumed)
	if err != nil || count() != 2 {
		t.Fatal(err, count())
	}
	end(nil, errors.New("refused"))
	if count() != 1 {
		t.Errorf("%d records", count())
	}

	// What a dead process left is taken over, and given back when it is refused.
	left := runner.NewRecord(runner.LocalType, runner.Request{TaskID: "t", TaskVersion: 1, Instance: "t-2"})
	left.Status = runner.Running
	if err := gone.records.Add(t.Context(), left, true); err != nil {
		t.Fatal(err)
	}
	resumed.Instance = "t-2"
	for _, refused := range []bool{true, false} {
		_, end, err = tr.Begin(t.Context(), resumed)
		if err != nil {
			t.Fatal(err)
		}
		if rec, _ := p.records.Get(t.Context(), left.ID); !p.records.Alive(rec.Owner) {
			t.Errorf("not taken over: %+v", rec)
		}
		if refused {
			end(nil, errors.New("refused"))
			if rec, _ := p.records.Get(t.Context(), left.ID); rec.Status != runner.Running || p.records.Alive(rec.Owner) {
				t.Errorf("not given back: %+v", rec)
			}
			continue
		}
		end(&task.Result{Status: "completed", Class: task.Passed}, nil)
		p.until(left.ID, runner.Completed)
	}
	// A run that could not begin says why.
	fresh.Instance = "t-3"
	if _, end, err = tr.Begin(t.Context(), fresh); err != nil {
		t.Fatal(err)
	}
	end(nil, fault.New(fault.Unsupported, "no such step"))
	if rec, _ := p.records.OfInstance(t.Context(), "t-3"); rec.Status != runner.Failed || rec.Error != "RuntimeError: no such step" || rec.Class != task.Configuration {
		t.Errorf("%+v", rec)
	}
}

// TestSignsOfLife are given every 30 seconds, for every run in one commit; a run whose record went to another process ends.
func TestSignsOfLife(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		p := w.process(sandbox.Process{})
		r := local.New(p.deps, local.Config{Own: true, Workers: 1})
		if err := r.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		id := p.task(long("a"))
		runs := []runner.Handle{p.submit(r, runner.Request{TaskID: id}), p.submit(r, runner.Request{TaskID: id})}
		p.until(runs[0].Run, runner.Running)
		seen := func(run string) string {
			rec, err := p.records.Get(t.Context(), run)
			if err != nil {
				t.Fatal(err)
			}
			return rec.Owner.Str("seen")
		}
		before := []string{seen(runs[0].Run), seen(runs[1].Run)}
		time.Sleep(31 * time.Second)
		for i, h := range runs {
			if seen(h.Run) <= before[i] {
				t.Errorf("run %d was not heard of", i)
			}
		}
		if n, err := p.docs.Update(t.Context(), "runs", document.By("run_id", runs[0].Run), document.Update{Set: doc.Of("owner", doc.Of("host", "elsewhere", "pid", doc.Int(9), "seen", stampBefore(0)))}, false); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		time.Sleep(31 * time.Second)
		p.until(runs[1].Run, runner.Running)
		if p.teardown.of(runs[0].Instance) != 0 {
			t.Error("what another process runs was torn down")
		}
		p.until(runs[0].Run, runner.Running)
		if err := r.Stop(context.Background()); err != nil {
			t.Error(err)
		}
		if rec := p.until(runs[1].Run, runner.Canceled); rec.Error == "" || !slices.Contains(p.teardown.down, runs[1].Instance) {
			t.Errorf("%+v", rec)
		}
	})
}

// TestWhatCannotGoOn drains a run that can never be gone on with: its record and its instance both say that it has ended.
func TestWhatCannotGoOn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	gone, alive := w.process(dead()), w.process(sandbox.Process{})
	id := gone.task(runnertest.Nothing("a"), runnertest.Nothing("b"))
	rec := runner.NewRecord(runner.LocalType, runner.Request{TaskID: id, TaskVersion: 1, Instance: "t-1", Metadata: doc.Of("mine", "yes")})
	if err := gone.records.Add(t.Context(), rec, true); err != nil {
		t.Fatal(err)
	}
	halfway(t, gone, rec)
	if _, err := gone.docs.Update(t.Context(), "task_instances", document.By("instance_id", "t-1"), document.Update{Set: doc.Of("context.metadata.verifies", "t-0")}, false); err != nil {
		t.Fatal(err)
	}
	// What replaces the document is replayed from the rows, so the seed says it too.
	if _, err := gone.docs.Update(t.Context(), "task_step_journal", document.By("instance_id", "t-1", "step_id", "__seed__"),
		document.Update{Push: doc.Of("ops.sets", []any{doc.Of("path", "context.metadata.verifies", "value", "t-0")})}, false); err != nil {
		t.Fatal(err)
	}
	r := alive.start(local.Config{Once: true})
	<-r.Done()
	got := alive.until(rec.ID, runner.Failed)
	in, err := alive.instances.Get(t.Context(), "t-1")
	if err != nil || in.Status != "cancelled" || in.Error == "" || !strings.Contains(got.Error, in.Error) || w.times("t-1", "b") != 0 {
		t.Errorf("the record says %q, the instance is %s, %q, %v", got.Error, in.Status, in.Error, err)
	}
}

// TestGivenUp does not take up a run again that several processes died with.
func TestGivenUp(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	gone, alive := w.process(dead()), w.process(sandbox.Process{})
	id := gone.task(runnertest.Nothing("a"), runnertest.Nothing("b"))
	rec := runner.NewRecord(runner.LocalType, runner.Request{TaskID: id, TaskVersion: 1, Instance: "t-1", Metadata: doc.Of("mine", "yes")})
	if err := gone.records.Add(t.Context(), rec, true); err != nil {
		t.Fatal(err)
	}
	halfway(t, gone, rec)
	if n, err := gone.docs.Update(t.Context(), "runs", document.By("run_id", rec.ID), document.Update{Set: doc.Of("lost_owners", doc.Int(4))}, false); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	r := alive.start(local.Config{Once: true})
	<-r.Done()
	got := alive.until(rec.ID, runner.Failed)
	in, err := alive.instances.Get(t.Context(), "t-1")
	if err != nil || in.Status != "cancelled" || got.Class != task.Infrastructure || !strings.Contains(got.Error, "5 processes died") || w.times("t-1", "b") != 0 || alive.teardown.of("t-1") != 1 {
		t.Errorf("the record ended as %s, %q; the instance is %s, %v", got.Class, got.Error, in.Status, err)
	}
}

// TestLostOwners counts the processes that died with a run, and none that handed it back.
func TestLostOwners(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	gone, alive := w.process(dead()), w.process(sandbox.Process{})
	rec := runner.NewRecord(runner.LocalType, runner.Request{TaskID: "t", TaskVersion: 1, Instance: "t-1"})
	if err := gone.records.Add(t.Context(), rec, true); err != nil {
		t.Fatal(err)
	}
	claimed(t, gone, rec)
	take := func(want int64) {
		t.Helper()
		seen, err := alive.records.Get(t.Context(), rec.ID)
		if err != nil {
			t.Fatal(err)
		}
		claimed(t, alive, seen)
		if seen, err = alive.records.Get(t.Context(), rec.ID); err != nil || seen.LostOwners() != want {
			t.Errorf("%d owners were lost, not %d, %v", seen.LostOwners(), want, err)
		}
		if _, err := alive.records.Release(t.Context(), seen, nil); err != nil {
			t.Fatal(err)
		}
	}
	take(1)
	take(1)
}
