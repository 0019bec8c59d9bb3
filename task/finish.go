package task

import (
	"context"
	"errors"
	"maps"
	"slices"

	"agentenv/fault"
	"agentenv/store/doc"
)

// finish records how the run ended and returns its result. Every step has been awaited.
func (x *execution) finish(ctx context.Context) *Result {
	res := &Result{Instance: x.instance, Recorded: x.rec != nil, Steps: x.classes, Class: Passed, Status: "completed"}
	for _, i := range slices.Sorted(maps.Keys(x.retrying)) { // the run ended before their retry
		x.held = append(x.held, x.retrying[i])
	}
	last := x.withHeld()
	var superseded *Superseded
	done := 0
	for _, c := range x.state.Completed {
		if c {
			done++
		}
	}
	switch {
	case errors.As(x.terminal, &superseded):
		res.Status, res.Class, res.Err = "failed", Infrastructure, superseded
	case x.terminal != nil:
		res.Status, res.Err, res.Class = "failed", x.terminal, ClassOf(x.terminal)
		if x.failure == nil { // no step is to blame: the record could not be kept
			res.Class = Infrastructure
		}
		x.record(ctx, res, last, ending{status: "failed", bumps: 1, failure: x.failedID(), set: doc.Of("status", "failed", "error", x.failureText())})
	case done < x.end:
		reason := cancelReason(ctx)
		res.Status, res.Class, res.Err = "cancelled", Cancelled, fault.New(fault.Canceled, "%s", reason)
		x.record(ctx, res, x.clean, ending{status: "cancelled", bumps: 1, set: doc.Of("status", "cancelled", "error", reason)})
	default:
		res.Class = x.classOfTolerated()
		e := ending{set: &doc.Object{}}
		if x.end == len(x.task.Steps) {
			e.status = "completed"
			e.set.Set("status", "completed")
		} else {
			res.Status = "running"
			e.set.Set("end_step", doc.Int(x.end))
		}
		x.record(ctx, res, x.clean, e)
	}
	res.Context = x.hidden.lay(last).(*doc.Object)
	res.Dropped = x.dropped
	res.Failures = Failures(res.Context)
	for i, f := range res.Failures {
		if c, ok := x.classes[f.StepID]; ok {
			res.Failures[i].Class = c
		}
	}
	res.Scores = Scores(x.task, res.Context)
	res.Models = Models(res.Context)
	res.Seconds = x.engine.now().Sub(x.began).Seconds()
	return res
}

// withHeld returns the context with what failed and cancelled steps left as well: their sandboxes are up, and readers want to
// see why they failed.
func (x *execution) withHeld() *doc.Object {
	c := x.clean
	for _, a := range x.held {
		var lost []taken
		a.delta, lost = rebase(a.changes, a.base, c)
		x.drop(lost)
		c = a.delta.apply(c)
		x.hidden.hide(a.changes)
	}
	return c
}

func (x *execution) failedID() string {
	if x.failure == nil {
		return ""
	}
	return x.failure.ID
}

func (x *execution) failureText() string {
	var s *StepError
	if errors.As(x.terminal, &s) {
		return s.Err.Error()
	}
	return x.terminal.Error()
}

// classOfTolerated is the class of the first failure that the run went on after, in task order; Passed without one.
func (x *execution) classOfTolerated() Class {
	for _, s := range x.task.Steps {
		if c := x.classes[s.ID]; c != Passed && c != "" {
			return c
		}
	}
	return Passed
}

func (x *execution) record(ctx context.Context, res *Result, context *doc.Object, e ending) {
	if x.rec == nil {
		return
	}
	at := x.engine.now()
	for _, a := range x.held {
		x.rec.outcomes.Set(a.step.ID, string(x.classes[a.step.ID]))
	}
	e.set.Set("outcome_class", string(res.Class)).Set("ended_at_precise_utc", preciseTime(at))
	if e.status != "" {
		e.set.Set("completed_at_utc", minuteTime(at))
	}
	err := x.rec.end(ctx, context, e)
	var superseded *Superseded
	switch {
	case errors.As(err, &superseded):
		res.Status, res.Class, res.Err = "failed", Infrastructure, superseded
	case err != nil:
		x.log.Error("the end of the run could not be recorded", "instance", x.instance, "status", res.Status, "error", err)
		if res.Err == nil {
			res.Status, res.Class = "failed", Infrastructure
			res.Err = fault.At(err, "instance %s: the end of the run could not be recorded", x.instance)
		}
	}
}
