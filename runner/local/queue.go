package local

import (
	"context"
	"fmt"
	"time"

	"agentenv/runner"
	"agentenv/store/doc"
	"agentenv/task"
)

const (
	pollEvery = time.Second     // how often the queue is looked at when nothing here changes it
	scanEvery = 5 * time.Second // how often runs are looked for whose process is gone
	maxLost   = 4               // how often a run is taken up after a process that died with it
)

// Start implements runner.Runner. The draining goes on until Stop, whatever becomes of ctx; with Once it ends by itself.
func (r *Runner) Start(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.started || r.stopping {
		return nil
	}
	r.started = true
	ctx = context.WithoutCancel(ctx)
	go func() { // Stop waits for it
		defer close(r.drained)
		r.drain(ctx)
	}()
	return nil
}

// Done is closed when the draining has ended: with Once, when there was nothing left to run; otherwise by Stop.
func (r *Runner) Done() <-chan struct{} { return r.drained }

func (r *Runner) drain(ctx context.Context) {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	var scanned time.Time
	for {
		scan := !r.c.Own && (scanned.IsZero() || time.Since(scanned) >= scanEvery)
		found, err := r.fill(ctx, scan)
		if scan && err == nil {
			scanned = time.Now()
		}
		if err != nil {
			r.d.Log.Warn("the queue of runs cannot be read; it is tried again", "error", err)
		}
		if scan {
			r.reconcile(ctx)
		}
		if r.c.Once && !found && err == nil && r.idle() {
			if scan || r.c.Own {
				return
			}
			scanned = time.Time{} // once more, with those whose process is gone
			continue
		}
		select {
		case <-r.quit:
			return
		case <-r.wake:
		case <-tick.C:
		}
	}
}

// idle reports whether nothing runs here and nothing that was submitted here waits.
func (r *Runner) idle() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.running) == 0 && len(r.own) == 0
}

func (r *Runner) free() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopping {
		return 0
	}
	return r.c.Workers - len(r.running)
}

// fill begins as many runs as may run: what was submitted here, then what waits in the queue, then, with scan, what others left. It reports
// whether it began any.
func (r *Runner) fill(ctx context.Context, scan bool) (found bool, err error) {
	for r.free() > 0 {
		h := r.nextOwn()
		if h == nil {
			break
		}
		took, err := r.take(ctx, h)
		if err != nil {
			r.mu.Lock()
			r.own = append([]*held{h}, r.own...)
			r.mu.Unlock()
			return found, err
		}
		found = found || took
	}
	if r.c.Own {
		return found, nil
	}
	for n := r.free(); n > 0; n = r.free() {
		waiting, err := r.d.Records.Waiting(ctx, runner.LocalType, n)
		if err != nil {
			return found, err
		}
		for _, rec := range waiting {
			took, err := r.take(ctx, newHeld(rec))
			if err != nil {
				return found, err
			}
			found = found || took
		}
		if len(waiting) < n {
			break
		}
	}
	if !scan || r.free() == 0 {
		return found, nil
	}
	orphans, err := r.d.Records.Orphans(ctx, runner.LocalType)
	if err != nil {
		return found, err
	}
	for _, rec := range orphans {
		if r.free() == 0 {
			break
		}
		if lives, err := r.runsStill(ctx, rec); lives || err != nil {
			if err != nil {
				r.d.Log.Warn("a run without an owner cannot be taken up now", "run", rec.ID, "error", err)
			}
			continue
		}
		if rec.LostOwners() >= maxLost {
			r.giveUp(ctx, rec)
			continue
		}
		took, err := r.take(ctx, newHeld(rec))
		if err != nil {
			return found, err
		}
		found = found || took
	}
	return found, nil
}

// giveUp records a run as failed that process after process died with, so that it does not end those that run others.
func (r *Runner) giveUp(ctx context.Context, rec *runner.Record) {
	reason := fmt.Sprintf("%d processes died while they ran it, so it is not taken up again; `agent-env run --resume` goes on with it", rec.LostOwners()+1)
	in, err := r.d.Instances.Find(ctx, rec.Instance)
	var mine bool
	if err == nil {
		mine, err = r.d.Records.Claim(ctx, rec)
	}
	if mine && in != nil {
		if err = r.d.Instances.Cancel(ctx, in, reason, r.d.Now()); err == nil {
			r.tearDown(rec.Instance, in.Context)
		}
	}
	if mine && err == nil {
		_, err = r.d.Records.End(ctx, rec, runner.Failed, task.Infrastructure, reason)
	}
	r.d.Log.Warn("a run is given up: process after process died with it", "run", rec.ID, "instance", rec.Instance, "error", err)
}

// reconcile marks the runs of the reference's runner whose process is gone as failed, as its own serving process does: they live in the memory of
// their process alone, and nobody goes on with them.
func (r *Runner) reconcile(ctx context.Context) {
	left, err := r.d.Records.Orphans(ctx, runner.ReferenceType)
	for _, rec := range left {
		var done bool
		if done, err = r.d.Records.Lost(ctx, rec, "interrupted by a hub restart"); err != nil {
			break
		}
		if done {
			r.d.Log.Warn("a run of the reference was marked as failed: its process is gone", "run", rec.ID, "instance", rec.Instance)
		}
	}
	if err != nil {
		r.d.Log.Warn("the runs that the reference left cannot be looked at; it is tried again", "error", err)
	}
}

// runsStill reports whether a process that has no part in the record runs its instance.
func (r *Runner) runsStill(ctx context.Context, rec *runner.Record) (bool, error) {
	in, err := r.d.Instances.Find(ctx, rec.Instance)
	if err != nil || in == nil || in.Owner == nil {
		return false, err
	}
	return r.d.Records.RunsStill(ctx, rec.Instance, in.Owner)
}

func (r *Runner) nextOwn() *held {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.own) == 0 {
		return nil
	}
	h := r.own[0]
	r.own = r.own[1:]
	return h
}

// take claims a run and begins it, or goes on with it; it reports whether it did.
func (r *Runner) take(ctx context.Context, h *held) (bool, error) {
	was, cancelled := h.rec.Status, h.rec.Cancel
	mine, err := r.d.Records.Claim(ctx, h.rec)
	if err != nil {
		return false, err
	}
	if !mine { // cancelled, or another was faster
		r.beat.remove(h)
		return false, nil
	}
	if cancelled != "" { // its owner died before it obeyed
		r.beat.add(h)
		r.beat.cancel(h.rec.ID, cancelled)
	}
	r.mu.Lock()
	if r.stopping {
		r.mu.Unlock()
		r.giveBack(ctx, h)
		return false, nil
	}
	if len(r.running) == 0 {
		r.none = make(chan struct{})
	}
	r.running[h.rec.ID] = h
	r.mu.Unlock()
	r.beat.add(h)
	go func() { // Stop waits for it, as long as its bounds let it
		defer r.ended(h)
		r.one(h, was == runner.Running)
	}()
	return true, nil
}

func (r *Runner) giveBack(ctx context.Context, h *held) {
	if _, err := r.d.Records.Release(ctx, h.rec, nil); err != nil {
		r.d.Log.Warn("a run could not be handed back; it is taken up when this process is gone", "run", h.rec.ID, "error", err)
	}
	r.beat.remove(h)
}

func (r *Runner) ended(h *held) {
	h.cancel(nil)
	r.beat.remove(h)
	r.mu.Lock()
	delete(r.running, h.rec.ID)
	if len(r.running) == 0 {
		close(r.none)
	}
	r.mu.Unlock()
	r.nudge()
}

// asked returns what a record asks for: the request as it was submitted here, or as it is stored.
func asked(h *held) runner.Request {
	if h.request != nil {
		return *h.request
	}
	o := h.rec.Overrides
	meta := o.Obj("metadata")
	if meta == nil {
		meta = &doc.Object{}
	}
	return runner.Request{TaskID: h.rec.TaskID, TaskVersion: h.rec.TaskVersion, AgentModel: o.Str("agent_model"), AgentArtifactID: o.Str("agent_artifact_id"),
		Metadata: meta, Instance: h.rec.Instance, Context: h.rec.Context, Limits: h.rec.Limits}
}
