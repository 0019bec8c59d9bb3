package local_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
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

func TestConformance(t *testing.T) {
	for name, c := range map[string]local.Config{"own": {Own: true}, "queue": {}} {
		t.Run(name, func(t *testing.T) {
			runnertest.Run(t, func(t *testing.T) *runnertest.Rig {
				p := newWorld(t).process(sandbox.Process{})
				var n atomic.Int64
				return &runnertest.Rig{Runner: local.New(p.deps, c), Instances: p.instances, Long: long,
					Task: func(t *testing.T, steps ...*doc.Object) string {
						return p.taskNamed("t"+string(rune('a'+n.Add(1))), steps...)
					}}
			})
		})
	}
}

// TestEveryRunIsRunOnce has two processes drain one queue.
func TestEveryRunIsRunOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, b := w.process(sandbox.Process{}), w.process(sandbox.Process{Host: "elsewhere", PID: 7, Start: "1"})
	id := a.task(runnertest.Nothing("a"), runnertest.Nothing("b"))
	filler := local.New(a.deps, local.Config{})
	var runs []runner.Handle
	for range 60 {
		runs = append(runs, a.submit(filler, runner.Request{TaskID: id}))
	}
	one, two := a.start(local.Config{Once: true, Workers: 4}), b.start(local.Config{Once: true, Workers: 4})
	<-one.Done()
	<-two.Done()
	hosts := map[string]int{}
	for _, h := range runs {
		r := a.until(h.Run, runner.Completed)
		hosts[r.Owner.Str("host")]++
		if n, m := w.times(h.Instance, "a"), w.times(h.Instance, "b"); n != 1 || m != 1 {
			t.Errorf("the steps of %s ran %d and %d times", h.Instance, n, m)
		}
		if a.teardown.of(h.Instance)+b.teardown.of(h.Instance) != 1 {
			t.Errorf("%s was not torn down once", h.Instance)
		}
	}
	if len(hosts) != 2 {
		t.Errorf("only one process ran something: %v", hosts)
	}
}

// TestOwnRunsStayWithTheirProcess submits for itself; a worker beside it takes only what is in the queue.
func TestOwnRunsStayWithTheirProcess(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.process(sandbox.Process{})
	id := p.task(long("a"))
	own := p.start(local.Config{Own: true, Workers: 1})
	first, second := p.submit(own, runner.Request{TaskID: id}), p.submit(own, runner.Request{TaskID: id})
	p.until(first.Run, runner.Running)
	worker := p.start(local.Config{Once: true})
	<-worker.Done()
	if r := p.until(second.Run, runner.Queued); r.Owner == nil {
		t.Error("a run that waits in its process has no owner")
	}
	// A queued one is cancelled: it never begins, and there is nothing to cancel any more.
	for i, want := range []bool{true, false} {
		if done, err := worker.Cancel(t.Context(), second.Run, "not wanted"); done != want || err != nil {
			t.Errorf("cancel %d: %v, %v", i, done, err)
		}
	}
	if done, err := worker.Cancel(t.Context(), first.Run, "enough"); !done || err != nil {
		t.Fatalf("%v, %v", done, err)
	}
	if r := p.until(first.Run, runner.Canceled); r.Error != "enough" || r.Class != task.Cancelled || r.Cancel != "" {
		t.Errorf("the record: %+v", r)
	}
	p.stop(own)
	if r := p.until(second.Run, runner.Canceled); r.Error != "not wanted" || w.times(second.Instance, "a") != 0 {
		t.Errorf("the queued run: %+v, ran %d times", r, w.times(second.Instance, "a"))
	}
	if in, err := p.instances.Find(t.Context(), second.Instance); in != nil || err != nil {
		t.Errorf("the cancelled run has an instance: %v, %v", in, err)
	}
}

// dead is a process of this host that is gone.
func dead() sandbox.Process {
	p := sandbox.ThisProcess()
	return sandbox.Process{Host: p.Host, Boot: p.Boot, PID: p.PID, Start: "1"} // the number was given to another one
}

// TestAnotherGoesOnWithWhatADeadProcessLeft has a process die at several moments.
func TestAnotherGoesOnWithWhatADeadProcessLeft(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		gone    sandbox.Process
		before  func(t *testing.T, p *process, rec *runner.Record) // what the dead process had done
		steps   []*doc.Object
		want    runner.Status
		class   task.Class
		text    string
		a, b    int // how often the steps run in the living process
		restart bool
	}{
		{name: "nothing", gone: dead(), want: runner.Completed, class: task.Passed, a: 1, b: 1},
		{name: "claimed", gone: dead(), before: claimed, want: runner.Completed, class: task.Passed, a: 1, b: 1},
		{name: "first step done", gone: dead(), before: halfway, want: runner.Completed, class: task.Passed, a: 0, b: 1},
		{name: "the other step fails", gone: dead(), before: halfway, steps: []*doc.Object{runnertest.Nothing("a"), runnertest.Failing("b")},
			want: runner.Failed, class: task.Configuration, text: "ValueError: verifier nope is not known", b: 1},
		{name: "asked to cancel", gone: dead(), before: func(t *testing.T, p *process, rec *runner.Record) {
			halfway(t, p, rec)
			if done, err := p.records.RequestCancel(t.Context(), rec, "enough"); !done || err != nil {
				t.Fatal(done, err)
			}
		}, want: runner.Canceled, class: task.Cancelled, text: "enough"},
		{name: "ended, but not in the record", gone: dead(), before: func(t *testing.T, p *process, rec *runner.Record) {
			claimed(t, p, rec)
			p.run(t, rec, task.Options{})
		}, want: runner.Completed, class: task.Passed},
		{name: "on another host, not seen for long", gone: sandbox.Process{Host: "elsewhere", PID: 9, Start: "1"}, before: func(t *testing.T, p *process, rec *runner.Record) {
			halfway(t, p, rec)
			if n, err := p.docs.Update(t.Context(), "runs", document.By("run_id", rec.ID), document.Update{Set: doc.Of("owner.seen", stampBefore(121*time.Second))}, false); n != 1 || err != nil {
				t.Fatal(n, err)
			}
		}, want: runner.Completed, class: task.Passed, b: 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			gone, alive := w.process(c.gone), w.process(sandbox.Process{})
			steps := c.steps
			if steps == nil {
				steps = []*doc.Object{runnertest.Nothing("a"), runnertest.Nothing("b")}
			}
			id := gone.task(steps...)
			rec := runner.NewRecord(runner.LocalType, runner.Request{TaskID: id, TaskVersion: 1, Instance: "t-1", Metadata: doc.Of("mine", "yes")})
			if err := gone.records.Add(t.Context(), rec, true); err != nil {
				t.Fatal(err)
			}
			if c.before != nil {
				c.before(t, gone, rec)
			}
			a, b := w.times("t-1", "a"), w.times("t-1", "b")
			r := alive.start(local.Config{Once: true})
			<-r.Done()
			got := alive.until(rec.ID, c.want)
			if got.Class != c.class || got.Error != c.text {
				t.Errorf("the record ended as %s, %q", got.Class, got.Error)
			}
			if n, m := w.times("t-1", "a")-a, w.times("t-1", "b")-b; n != c.a || m != c.b {
				t.Errorf("the steps ran %d and %d times, not %d and %d", n, m, c.a, c.b)
			}
			if alive.teardown.of("t-1") != 1 {
				t.Error("it was not torn down once")
			}
			in, err := alive.instances.Get(t.Context(), "t-1")
			if err != nil || in.Context.Obj("metadata").Str("mine") != "yes" || in.Status != map[runner.Status]string{runner.Completed: "completed", runner.Failed: "failed", runner.Canceled: "cancelled"}[c.want] {
				t.Errorf("the instance is %+v, %v", in, err)
			}
		})
	}
}

func stampBefore(d time.Duration) string {
	return time.Now().Add(-d).UTC().Format("2006-01-02T15:04:05.000000+00:00")
}

func claimed(t *testing.T, p *process, rec *runner.Record) {
	if mine, err := p.records.Claim(t.Context(), rec); !mine || err != nil {
		t.Fatal(mine, err)
	}
}

// run runs the task of a record as its process does.
func (p *process) run(t *testing.T, rec *runner.Record, o task.Options) {
	t.Helper()
	tk, err := p.tasks.Get(t.Context(), rec.TaskID, 1)
	if err != nil {
		t.Fatal(err)
	}
	o.Instance, o.Metadata = rec.Instance, doc.Of("mine", "yes")
	if _, err := p.deps.Engine.Run(t.Context(), tk, o); err != nil {
		t.Fatal(err)
	}
}

// halfway leaves a run as a process does that dies once the first step is committed.
func halfway(t *testing.T, p *process, rec *runner.Record) {
	claimed(t, p, rec)
	p.run(t, rec, task.Options{EndStep: 1})
	me := p.deps.Engine.(*task.Engine).Owner.Self
	in, err := p.instances.Get(t.Context(), rec.Instance)
	if err != nil {
		t.Fatal(err)
	}
	seq, _ := in.Document.Int("journal_seq")
	if _, err := p.docs.Update(t.Context(), "task_instances", document.By("instance_id", rec.Instance), document.Update{Unset: []string{"end_step", "outcome_class", "ended_at_precise_utc"}}, false); err != nil {
		t.Fatal(err)
	}
	if err := p.docs.Insert(t.Context(), "task_run_heads", doc.Of("instance_id", rec.Instance, "generation", doc.Int(0), "epoch", doc.Int(0), "seq", doc.Int(seq), "owner", me)); err != nil {
		t.Fatal(err)
	}
}

// TestTheLivingAreLeftAlone looks for the runs of processes that live, and of the reference's runner.
func TestTheLivingAreLeftAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.process(sandbox.Process{})
	id := p.task(runnertest.Nothing("a"))
	for name, c := range map[string]struct {
		self sandbox.Process
		typ  string
	}{
		"this process":                {sandbox.ThisProcess(), runner.LocalType},
		"seen a moment ago elsewhere": {sandbox.Process{Host: "elsewhere", PID: 9}, runner.LocalType},
		"the reference's":             {sandbox.ThisProcess(), runner.ReferenceType},
	} {
		other := w.process(c.self)
		rec := runner.NewRecord(c.typ, runner.Request{TaskID: id, TaskVersion: 1, Instance: "t-" + name})
		if err := other.records.Add(t.Context(), rec, true); err != nil {
			t.Fatal(err)
		}
		before, err := p.records.Get(t.Context(), rec.ID)
		if err != nil {
			t.Fatal(err)
		}
		r := p.start(local.Config{Once: true})
		<-r.Done()
		if done, err := r.Cancel(t.Context(), rec.ID, "x"); c.typ == runner.ReferenceType && (done || err != nil) {
			t.Errorf("%s: cancelled: %v, %v", name, done, err)
		}
		after, err := p.records.Get(t.Context(), rec.ID)
		if err != nil || c.typ == runner.ReferenceType && !doc.Equal(before.Document, after.Document) || w.times(rec.Instance, "a") != 0 {
			t.Errorf("%s: %v, it ran %d times:\n%s", name, err, w.times(rec.Instance, "a"), doc.Canonical(after.Document))
		}
	}
}

// TestAStoppedWorkerHandsItsRunsBack stops a worker in the middle of a run; the next one goes on after the step that was done.
func TestAStoppedWorkerHandsItsRunsBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.process(sandbox.Process{})
	id := p.task(runnertest.Nothing("a"), long("b"))
	r := p.start(local.Config{})
	h := p.submit(r, runner.Request{TaskID: id})
	w.wait("the second step", func() bool { return w.times(h.Instance, "b") == 1 })
	p.stop(r)
	if rec := p.until(h.Run, runner.Running); rec.Owner != nil || p.teardown.of(h.Instance) != 1 {
		t.Errorf("handed back: %+v, torn down %d times", rec, p.teardown.of(h.Instance))
	}
	if _, err := r.Submit(t.Context(), runner.Request{TaskID: id}); !fault.Is(err, fault.Conflict) {
		t.Errorf("submitted to a stopped runner: %v", err)
	}
	w.on("b", func(context.Context, *task.Run) error { return nil })
	again := p.start(local.Config{Once: true})
	<-again.Done()
	p.until(h.Run, runner.Completed)
	if w.times(h.Instance, "a") != 1 || w.times(h.Instance, "b") != 2 {
		t.Errorf("the steps ran %d and %d times", w.times(h.Instance, "a"), w.times(h.Instance, "b"))
	}
}

// TestCancelOfWhatADeadProcessLeft marks a run whose process is gone, its record and its instance, without running anything.
func TestCancelOfWhatADeadProcessLeft(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	gone, p := w.process(dead()), w.process(sandbox.Process{})
	id := gone.task(runnertest.Nothing("a"), runnertest.Nothing("b"))
	rec := runner.NewRecord(runner.LocalType, runner.Request{TaskID: id, TaskVersion: 1, Instance: "t-1"})
	if err := gone.records.Add(t.Context(), rec, true); err != nil {
		t.Fatal(err)
	}
	halfway(t, gone, rec)
	r := local.New(p.deps, local.Config{})
	for i, want := range []bool{true, false} {
		if done, err := r.Cancel(t.Context(), rec.ID, "enough"); done != want || err != nil {
			t.Errorf("cancel %d: %v, %v", i, done, err)
		}
	}
	in, err := p.instances.Get(t.Context(), "t-1")
	if err != nil || in.Status != "cancelled" || in.Error != "enough" || len(in.Completed) != 1 || in.Owner != nil {
		t.Errorf("the instance: %+v, %v", in, err)
	}
	p.until(rec.ID, runner.Canceled)
	// The process was not gone after all: what it still does is refused.
	if ok, err := gone.records.End(t.Context(), rec, runner.Completed, task.Passed, ""); ok || err != nil {
		t.Errorf("the end of a cancelled run: %v, %v", ok, err)
	}
}

// TestSecrets are taken for runs of the process itself, in memory only.
func TestSecrets(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.process(sandbox.Process{})
	id := p.task(runnertest.Nothing("a"))
	meta := doc.Of("user_overrides", doc.Of("litellm_api_key", "sk-raw", "judge_litellm_api_key", "secret:j"))
	if _, err := local.New(p.deps, local.Config{}).Submit(t.Context(), runner.Request{TaskID: id, Metadata: meta}); !fault.Is(err, fault.Invalid) ||
		!strings.Contains(err.Error(), "metadata.user_overrides.litellm_api_key") || strings.Contains(err.Error(), "sk-raw") || strings.Contains(err.Error(), "judge") {
		t.Errorf("queued: %v", err)
	}
	if n, _ := p.docs.Count(t.Context(), "runs", nil); n != 0 {
		t.Error("something was recorded")
	}
	var seen atomic.Value
	w.on("a", func(_ context.Context, r *task.Run) error {
		seen.Store(r.Context().Obj("metadata").Obj("user_overrides").Str("litellm_api_key"))
		return nil
	})
	r := p.start(local.Config{Own: true})
	h := p.submit(r, runner.Request{TaskID: id, Metadata: meta})
	rec := p.until(h.Run, runner.Completed)
	over := rec.Overrides.Obj("metadata").Obj("user_overrides")
	if seen.Load() != "sk-raw" || over.Str("judge_litellm_api_key") != "secret:j" || strings.Contains(doc.Canonical(rec.Document), "sk-raw") || !rec.Withheld {
		t.Errorf("the step saw %v, the record is %s", seen.Load(), doc.Canonical(rec.Document))
	}
	// Nobody else can go on with such a run.
	gone := w.process(dead())
	left := runner.NewRecord(runner.LocalType, runner.Request{TaskID: id, TaskVersion: 1, Instance: "t-2", Metadata: meta})
	if err := gone.records.Add(t.Context(), left, true); err != nil {
		t.Fatal(err)
	}
	<-p.start(local.Config{Once: true}).Done()
	if rec := p.until(left.ID, runner.Failed); !strings.Contains(rec.Error, "secrets that are not stored") || w.times("t-2", "a") != 0 {
		t.Errorf("%+v", rec)
	}
}

// TestBadRequests cost nothing.
func TestBadRequests(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.process(sandbox.Process{})
	id := p.task(runnertest.Nothing("a"))
	r := local.New(p.deps, local.Config{})
	for name, c := range map[string]struct {
		req  runner.Request
		kind fault.Kind
	}{
		"no such task":    {runner.Request{TaskID: "nope"}, fault.NotFound},
		"no such version": {runner.Request{TaskID: id, TaskVersion: 9}, fault.NotFound},
		"two beginnings":  {runner.Request{TaskID: id, Instance: "t-1", Context: &doc.Object{}}, fault.Invalid},
	} {
		if h, err := r.Submit(t.Context(), c.req); !fault.Is(err, c.kind) {
			t.Errorf("%s: %v, %v", name, h, err)
		}
	}
	if n, _ := p.docs.Count(t.Context(), "runs", nil); n != 0 {
		t.Errorf("%d records", n)
	}
	p.start(local.Config{})
	for _, start := range []any{"x", doc.Int(7), true} {
		h := p.submit(r, runner.Request{TaskID: id, Metadata: doc.Of("start_step", start)})
		if rec := p.until(h.Run, runner.Failed); !strings.Contains(rec.Error, "start_step") || rec.Class != task.Configuration {
			t.Errorf("start_step %v: %+v", start, rec)
		}
	}
	h := p.submit(r, runner.Request{TaskID: id, Instance: "t-none"})
	if rec := p.until(h.Run, runner.Failed); !strings.Contains(rec.Error, "TaskInstance 't-none' not found") {
		t.Errorf("%+v", rec)
	}
}

// TestContextToBeginWith begins a fresh instance in the middle of a task.
func TestContextToBeginWith(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.process(sandbox.Process{})
	id := p.task(runnertest.Failing("a"), runnertest.Nothing("b"))
	r := p.start(local.Config{})
	h := p.submit(r, runner.Request{TaskID: id, Metadata: doc.Of("start_step", doc.Int(1), "x", "new"),
		Context: doc.Of("metadata", doc.Of("x", "old", "y", "kept"), "agent_model", "m", "deployed_sandboxes", []any{doc.Of("sandbox_name", "box", "sandbox_id", "s1")})})
	if rec := p.until(h.Run, runner.Completed); rec.Context != nil {
		t.Error("the record of a run that ended still holds what it began with")
	}
	in, err := p.instances.Get(t.Context(), h.Instance)
	if err != nil {
		t.Fatal(err)
	}
	meta := in.Context.Obj("metadata")
	if meta.Str("x") != "new" || meta.Str("y") != "kept" || in.Context.Str("agent_model") != "m" || len(task.Sandboxes(in.Context)) != 1 || len(in.Completed) != 2 {
		t.Errorf("%s", doc.Canonical(in.Context))
	}
}
