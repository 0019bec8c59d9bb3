package task

import (
	"context"
	"errors"
	"slices"
	"time"

	"agentenv/store/doc"
)

// retries is what a run remembers of its retries: how many each failing step has used, and the audit that every undo writes
// anew in the scheduler's row.
type retries struct {
	possible bool // some step of the task has a retry_config
	used     map[string]int
	inherits *doc.Object     // metadata that the run began with
	again    map[string]bool // steps that were rolled back
	failures []any           // failed_steps entries of dropped attempts
	resets   []any
}

// newRetries takes up the budget that earlier attempts of the run used.
func newRetries(t *Task, metadata *doc.Object) retries {
	r := retries{used: map[string]int{}, inherits: metadata, again: map[string]bool{}}
	r.possible = slices.ContainsFunc(t.Steps, func(s *Step) bool { return s.Retry != nil })
	for _, v := range metadata.Arr("retry_resets") {
		if o, ok := v.(*doc.Object); ok {
			r.used[o.Str("step_id")]++
		}
	}
	return r
}

func (x *execution) mayRetry(stepCtx context.Context, a *attempt) bool {
	r := a.step.Retry
	if r == nil || x.retries.used[a.step.ID] >= r.Max || stepCtx.Err() != nil || x.state.Halted {
		return false
	}
	if x.rec == nil {
		x.log.Error("the step is not tried again: the run is not recorded, so nothing can be undone", "step", a.step.ID)
		return false
	}
	return true
}

// prepare ends what the span of a failed step's retry created and waits for its delay, beside the run. What the span did is
// undone only then, so that a run which ends meanwhile records the failure as one that was not tried again.
func (x *execution) prepare(stepCtx context.Context, failing int) {
	a, ids := x.retrying[failing], x.rewinding()
	x.log.Warn("going back to try again", "instance", x.instance, "step", a.step.ID, "from", a.step.Retry.From, "attempt", x.retries.used[a.step.ID]+2, "steps", ids)
	x.running.Go(func() {
		x.discardWork(stepCtx, ids)
		pause(stepCtx, a.step.Retry.Delay)
		x.prepared <- struct{}{}
	})
}

// rewinding returns the ids of the span of the retry under way.
func (x *execution) rewinding() []string {
	span := x.state.Rewinds[0].Span
	ids := make([]string, len(span))
	for i, at := range span {
		ids[i] = x.task.Steps[at].ID
	}
	return ids
}

// rewind undoes what the span of the first retry did and lets the run go on from there. A span that cannot be undone ends the run
// with the step's own error.
func (x *execution) rewind(stepCtx context.Context) {
	if stepCtx.Err() != nil && !x.state.Halted {
		x.next(stepCtx, Signal{Kind: SignalCancelled})
	}
	if x.state.Halted {
		return
	}
	failing, ids := x.state.Rewinds[0].Step, x.rewinding()
	a := x.retrying[failing]
	next := x.retries.after(a, ids, x.engine.now(), x.clean)
	for _, at := range x.state.Rewinds[0].Span {
		if b := x.retrying[at]; b != nil {
			next.failures = append(next.failures, retried(b.failedStep()))
		}
	}
	clean, err := x.undo(stepCtx, ids, next)
	if err != nil {
		x.log.Error("the steps cannot be undone, so the failure stands", "instance", x.instance, "step", a.step.ID, "error", err)
		if superseded := (*Superseded)(nil); x.terminal == nil && errors.As(err, &superseded) {
			x.terminal = superseded
		} else if x.terminal == nil {
			x.terminal, x.failure = &StepError{StepID: a.step.ID, Err: a.err}, a.step
		}
		x.next(stepCtx, Signal{Kind: SignalFatal, Step: failing})
		return
	}
	x.retries = next
	x.goBack(clean, ids)
	x.next(stepCtx, Signal{Kind: SignalRewound})
}

// goBack puts the run on the context that is left without some steps.
func (x *execution) goBack(clean *doc.Object, ids []string) {
	x.clean = clean
	gone := setOf(ids)
	x.veils = slices.DeleteFunc(x.veils, func(v veil) bool { return gone[v.step] })
	x.hidden = secrets{}
	for _, v := range x.veils {
		x.hidden.hide(v.changes)
	}
	x.live = x.hidden.lay(x.clean).(*doc.Object)
	for i, s := range x.task.Steps[:x.end] {
		if gone[s.ID] {
			delete(x.retrying, i)
			delete(x.classes, s.ID)
			delete(x.arrived, s.ID)
		}
	}
}

func (x *execution) discardWork(ctx context.Context, ids []string) {
	if x.keeper == nil {
		return
	}
	if err := x.keeper.Discard(ctx, x.instance, ids); err != nil {
		x.log.Warn("what the dropped attempt created is not all gone; the run's teardown tries again", "instance", x.instance, "error", err)
	}
}

func pause(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// after returns the memory once a retry is done: what was not marked as retried of the failures that are dropped is.
func (r retries) after(a *attempt, ids []string, now time.Time, stored *doc.Object) retries {
	n := retries{possible: true, used: map[string]int{}, inherits: r.inherits, again: map[string]bool{}, failures: slices.Clone(r.failures), resets: slices.Clone(r.resets)}
	for k, v := range r.used {
		n.used[k] = v
	}
	for k := range r.again {
		n.again[k] = true
	}
	for _, id := range ids {
		n.again[id] = true
	}
	n.used[a.step.ID]++
	inherited := r.inherits.Arr("failed_steps")
	for _, v := range stored.Obj("metadata").Arr("failed_steps") {
		o, isObj := v.(*doc.Object)
		if !isObj || !slices.Contains(ids, o.Str("step_id")) || o.Value("retried") == true || containsEqual(inherited, v) {
			continue
		}
		n.failures = append(n.failures, retried(o))
	}
	replayed := make([]any, len(ids))
	for i, id := range ids {
		replayed[i] = id
	}
	n.resets = append(n.resets, doc.Of("attempt", doc.Int(n.used[a.step.ID]+1), "step_id", a.step.ID, "retry_from_step_id", a.step.Retry.From,
		"replayed", replayed, "at_utc", preciseTime(now)))
	return n
}

func containsEqual(list []any, v any) bool {
	return slices.ContainsFunc(list, func(x any) bool { return doc.Equal(x, v) })
}

func retried(failure *doc.Object) *doc.Object { return failure.Clone().Set("retried", true) }

// audit returns what the scheduler's row holds: the failures of dropped attempts, and the resets. The newest of them gets what
// the context lost between stored and replayed.
func (r retries) audit(stored, replayed *doc.Object) *delta {
	failures := []any{}
	for _, v := range r.inherits.Arr("failed_steps") {
		if o, ok := v.(*doc.Object); ok && r.again[o.Str("step_id")] {
			v = retried(o)
		}
		failures = append(failures, v)
	}
	last := len(r.resets) - 1
	if newest, ok := r.resets[last].(*doc.Object); ok {
		r.resets[last] = newest.Clone().Set("rolled_back_sandboxes", lostSandboxes(stored, replayed))
	}
	return &delta{sets: []pathValue{
		{[]string{"metadata", "failed_steps"}, append(failures, r.failures...)},
		{[]string{"metadata", "retry_resets"}, append(slices.Clone(r.inherits.Arr("retry_resets")), r.resets...)},
	}}
}

// lostSandboxes returns the sandboxes of the records that before holds and after does not.
func lostSandboxes(before, after *doc.Object) *doc.Object {
	out := &doc.Object{}
	for _, list := range []string{"deployed_envs", "deployed_agents", "deployed_sandboxes"} {
		keys := []string{"sandbox_id", "sandbox_type"}
		if list == "deployed_envs" {
			keys = append(keys, "sandbox_ids")
		}
		kept, lost := after.Arr(list), []any{}
		for _, o := range objects(before, list) {
			if containsEqual(kept, o) || (list == "deployed_agents" && o.Str("sandbox_id") == "") {
				continue
			}
			entry := &doc.Object{}
			for _, k := range keys {
				entry.Set(k, o.Value(k))
			}
			lost = append(lost, entry)
		}
		out.Set(list, lost)
	}
	return out
}
