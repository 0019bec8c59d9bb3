package local

import (
	"context"
	"sync"
	"time"

	"agentenv/fault"
	"agentenv/task"
)

const (
	unwindWait  = 60 * time.Second // how long a cancelled run may take to stop
	abandonWait = time.Second      // how long one that did not gets after it was cancelled again
)

// errStopped ends the runs of a runner that stops.
var errStopped = fault.New(fault.Canceled, "the process that ran it was stopped")

// Stop implements runner.Runner: nothing more is begun, what runs is cancelled, awaited and torn down. What was submitted here is recorded as
// cancelled; a run of the queue is handed back, and goes on when the queue is drained again. A run that does not stop within a minute is left
// behind, its sandboxes torn down. When ctx ends, so do the teardowns; the error names what is left. A second call waits as well.
func (r *Runner) Stop(ctx context.Context) error {
	r.mu.Lock()
	first := !r.stopping
	r.stopping = true
	var withdrawn, cancelled []*held
	if first {
		close(r.quit)
		withdrawn, r.own = r.own, nil
		if !r.started {
			close(r.drained)
		}
	}
	for _, h := range r.running {
		if h.phase == executing {
			cancelled = append(cancelled, h)
		}
	}
	none := r.none
	r.mu.Unlock()
	<-r.drained
	for _, h := range withdrawn {
		if _, err := r.d.Records.Withdraw(context.WithoutCancel(ctx), h.rec, errStopped.Error()); err != nil {
			r.d.Log.Warn("a queued run could not be withdrawn; it is taken up when this process is gone", "run", h.rec.ID, "error", err)
		}
		r.beat.remove(h)
	}
	for _, h := range cancelled {
		h.cancel(errStopped)
	}
	unhalt := context.AfterFunc(ctx, r.halt)
	defer unhalt()
	select {
	case <-none:
		return nil
	case <-ctx.Done():
	case <-time.After(unwindWait):
	}
	return r.abandon(ctx, none)
}

// abandon sees to the runs that did not stop, and waits for those that are being torn down.
func (r *Runner) abandon(ctx context.Context, none <-chan struct{}) error {
	for _, h := range r.inPhase(executing) {
		h.cancel(errStopped)
	}
	select {
	case <-none:
		return nil
	case <-time.After(abandonWait):
	}
	var left []*held
	for _, h := range r.inPhase(executing) {
		if r.enter(h, abandoned) {
			left = append(left, h)
		}
	}
	var all sync.WaitGroup
	for _, h := range left {
		all.Go(func() { r.bounded(h) })
	}
	all.Wait()
	if len(r.inPhase(tearing)) > 0 {
		select {
		case <-none:
		case <-ctx.Done():
			time.Sleep(abandonWait) // their teardowns were told to end
		case <-time.After(teardownWait):
		}
	}
	if left = append(left, r.inPhase(tearing)...); len(left) > 0 {
		return fault.New(fault.Timeout, "%d of the runs did not stop in time, the first is %s; `agent-env sandbox prune` removes what they may have left up", len(left), left[0].rec.Instance)
	}
	return nil
}

// bounded tears down what a run recorded that did not stop. Its record stays as it is: the run is taken up when this process is gone.
func (r *Runner) bounded(h *held) {
	in, err := r.d.Instances.Find(context.WithoutCancel(r.teardown), h.rec.Instance)
	if err != nil || in == nil {
		r.d.Log.Error("what a run that did not stop has deployed cannot be told", "run", h.rec.ID, "instance", h.rec.Instance, "error", err)
		return
	}
	done := make(chan task.TeardownReport, 1)
	go func() { done <- r.tearDown(h.rec.Instance, in.Context) }()
	select {
	case report := <-done:
		for _, s := range report.Left {
			r.d.Log.Warn("a sandbox of a run that did not stop is still up", "run", h.rec.ID, "instance", h.rec.Instance, "sandbox", s.ID, "error", s.Why)
		}
	case <-time.After(teardownWait):
		r.d.Log.Warn("the teardown of a run that did not stop has not ended", "run", h.rec.ID, "instance", h.rec.Instance)
	}
}

func (r *Runner) inPhase(p phase) []*held {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []*held
	for _, h := range r.running {
		if h.phase == p {
			all = append(all, h)
		}
	}
	return all
}

// enter puts a run into a phase, unless it was abandoned.
func (r *Runner) enter(h *held, p phase) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if h.phase == abandoned || p == abandoned && h.phase != executing {
		return false
	}
	h.phase = p
	return true
}
