package task

import (
	"context"
	"errors"
	"time"

	"agentenv/fault"
	"agentenv/store"
	"agentenv/store/doc"
	"agentenv/store/document"
)

// beatEvery is how often a step that says nothing tells that it is still run.
const beatEvery = time.Second

// StepWorker is a StepRunner that runs steps of runs whose scheduler may live in another process: the document store is all that the two
// share. It is safe for concurrent use.
type StepWorker struct {
	engine *Engine
	tasks  *Tasks
}

var _ StepRunner = (*StepWorker)(nil)

// NewStepWorker returns a worker that knows the engine's step types and reads tasks from tasks, over the same store as the engine.
func NewStepWorker(e *Engine, tasks *Tasks) *StepWorker { return &StepWorker{e, tasks} }

// called is a call with what the store says of its run.
type called struct {
	StepCall
	rec  *recorder
	task *Task // with its seed put in
	step int
	base *doc.Object // the context that the step begins with
}

// Run implements StepRunner. A step that puts a secret itself into the context fails: it could not leave this process.
func (w *StepWorker) Run(ctx context.Context, call StepCall, beat Beat) (StepDone, error) {
	ctx = store.WithRunScope(ctx, call.Instance)
	c, done, err := w.take(ctx, call)
	if err != nil || done != nil {
		return orZero(done), err
	}
	s := c.task.Steps[c.step]
	run := &Run{Instance: call.Instance, TaskID: c.task.ID, TaskVersion: c.task.Version, StepID: s.ID, StepType: s.Type, Epoch: call.Epoch,
		Log: w.engine.log.With("instance", call.Instance, "step", s.ID), state: &view{start: c.base, now: c.base}}
	a := &attempt{index: c.step, step: s, run: run, base: c.base, started: w.engine.now()}
	cause := w.execute(ctx, call, a, beat)
	a.seconds = w.engine.now().Sub(a.started).Seconds()
	if errors.Is(cause, ErrFenced) {
		return StepDone{}, ErrFenced
	}
	a.cancelled = cause != nil && a.err != nil && !a.late
	return w.commit(context.WithoutCancel(ctx), c, a)
}

func orZero(done *StepDone) StepDone {
	if done == nil {
		return StepDone{}
	}
	return *done
}

// take reads the run that a call is of. done is not nil when the step is committed already.
func (w *StepWorker) take(ctx context.Context, call StepCall) (c *called, done *StepDone, err error) {
	ctx, docs, err := w.engine.indexes.ensure(ctx, call.Instance, collInstances, collJournal, collHeads)
	if err != nil {
		return nil, nil, err
	}
	in, err := docs.FindOne(ctx, collInstances, document.By("instance_id", call.Instance))
	if err != nil {
		return nil, nil, err
	}
	if in == nil {
		return nil, nil, ErrFenced
	}
	version, _ := in.Int("task_version")
	c = &called{StepCall: call, rec: &recorder{docs: docs, log: w.engine.log, now: w.engine.now, instance: call.Instance, generation: call.Generation, epoch: call.Epoch}}
	err = docs.Transact(ctx, func(tx document.Store) error {
		_, row, err := c.stands(ctx, tx)
		if err != nil || row != nil {
			done = row.done()
			return err
		}
		rows, err := rowsOf(ctx, tx, document.By("instance_id", call.Instance, "generation", doc.Int(call.Generation)))
		if err != nil {
			return err
		}
		c.base, err = Replay(upTo(rows, call.View.Seq))
		return err
	})
	if err != nil || done != nil {
		return nil, done, err
	}
	t, err := w.tasks.Get(ctx, in.Str("task_id"), version)
	if err != nil {
		return nil, nil, err
	}
	if c.task, err = w.engine.runnable(t, c.base.Obj("metadata").Obj("seed")); err != nil {
		return nil, nil, err
	}
	for i, s := range c.task.Steps {
		if s.ID == call.StepID {
			c.step = i
			return c, nil, nil
		}
	}
	return nil, nil, fault.New(fault.NotFound, "instance %s: its task has no step %q", call.Instance, call.StepID)
}

// upTo leaves the rows that a view holds; those that no step has are part of every view.
func upTo(rows []Row, seq int64) []Row {
	var out []Row
	for _, row := range rows {
		if row.Seq <= seq || row.StepID == seedRow || row.StepID == schedulerRow {
			out = append(out, row)
		}
	}
	return out
}

// stands returns the head of the run and the step's row, nil when it has none. ErrFenced: the call is not to be run any more, since the run has
// ended or begun anew, or the step was taken back after the call was made.
func (c *called) stands(ctx context.Context, tx document.Store) (head *doc.Object, row *Row, err error) {
	head, err = tx.FindOne(ctx, collHeads, document.By("instance_id", c.Instance, "generation", doc.Int(c.Generation)))
	if err != nil {
		return nil, nil, err
	}
	if head == nil || c.Epoch < floorOf(head, c.StepID) {
		return nil, nil, ErrFenced
	}
	rows, err := rowsOf(ctx, tx, document.By("instance_id", c.Instance, "generation", doc.Int(c.Generation), "step_id", c.StepID))
	if err != nil || len(rows) == 0 {
		return head, nil, err
	}
	return head, &rows[0], nil
}

// done is what a call is told of a step that is committed; nil for a nil row.
func (r *Row) done() *StepDone {
	if r == nil {
		return nil
	}
	return &StepDone{Class: r.class(), Seq: r.Seq}
}

// execute runs the step until it has ended, and tells beat meanwhile. It returns why the step was told to stop, if it was.
func (w *StepWorker) execute(ctx context.Context, call StepCall, a *attempt, beat Beat) (cause error) {
	stepCtx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	said := make(chan Progress, 64)
	a.run.state.report = func(p Progress) {
		select {
		case said <- p:
		default: // what is told is how far it is, and the next one tells that too
		}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		tooLong := error(errDeadline)
		if a.step.Timeout > 0 {
			tooLong = timedOut(a.step)
		}
		bounded, cancel := within(stepCtx, call.Deadline, tooLong)
		defer cancel()
		a.late, a.err = execute(bounded, a.step, a.run)
		if a.err != nil && errors.Is(context.Cause(bounded), tooLong) {
			a.late, a.err = true, tooLong
		}
	}()
	tick := time.NewTicker(beatEvery)
	defer tick.Stop()
	for {
		var p Progress
		select {
		case <-done:
			return context.Cause(stepCtx)
		case p = <-said:
		case <-tick.C:
		}
		if beat == nil {
			continue
		}
		if err := beat(p); errors.Is(err, ErrFenced) || errors.Is(err, ErrCancelled) {
			stop(err)
		}
	}
}

var errDeadline = fault.New(fault.Timeout, "the step did not end before its deadline")

func within(ctx context.Context, deadline time.Time, tooLong error) (context.Context, context.CancelFunc) {
	if deadline.IsZero() {
		return context.WithCancel(ctx)
	}
	return context.WithDeadlineCause(ctx, deadline, tooLong)
}

// commit writes the row of a step that ended, on top of what the journal holds by now, or answers with what is left of a failure that has none.
func (w *StepWorker) commit(ctx context.Context, c *called, a *attempt) (done StepDone, err error) {
	err = c.rec.docs.Transact(ctx, func(tx document.Store) error {
		done = StepDone{}
		head, row, err := c.stands(ctx, tx)
		if err != nil || row != nil { // another call of the same attempt was faster
			done = orZero(row.done())
			return err
		}
		rows, err := rowsOf(ctx, tx, document.By("instance_id", c.Instance, "generation", doc.Int(c.Generation)))
		if err != nil {
			return err
		}
		now, err := Replay(rows)
		if err != nil {
			return err
		}
		if a.err == nil {
			a.err = c.keepsSecret(a)
		}
		a.merge(now)
		done.Class = ClassOf(a.err)
		if a.err != nil {
			done.Error, done.Kind, done.Named = a.err.Error(), fault.KindOf(a.err), fault.ClassOf(a.err)
		}
		if a.cancelled {
			done.Class, done.Kind = Cancelled, fault.Canceled
		}
		if a.cancelled || a.err != nil && (a.step.FailsTask || a.step.Retry != nil) { // whether it is tried again is the scheduler's to say
			done.Effect = a.ops()
			return nil
		}
		a.status = "success"
		if a.err != nil {
			a.status = "failure"
		}
		seq, _ := head.Int("seq")
		if done.Seq = seq + 1; done.Seq <= 0 {
			return fault.New(fault.Internal, "instance %s: its head has the seq %d", c.Instance, seq)
		}
		mine := document.By("instance_id", c.Instance, "generation", doc.Int(c.Generation), "seq", doc.Int(seq))
		n, err := tx.Update(ctx, collHeads, mine, document.Update{Set: doc.Of("seq", doc.Int(done.Seq))}, false)
		if err == nil && n == 0 {
			err = fault.New(fault.Conflict, "instance %s went on while step %q was committed; try again", c.Instance, c.StepID)
		}
		if err != nil {
			return err
		}
		return c.rec.putRow(ctx, tx, c.StepID, done.Seq, a.status, a.ops().Set("attempt", doc.Int(c.Attempt)))
	})
	return done, err
}

// keepsSecret refuses a step that left a secret itself in the context.
func (c *called) keepsSecret(a *attempt) error {
	for _, ch := range diff(c.base, a.run.Context()) {
		if ch.kind == changeSecret && !ch.gone || !ch.hidden.empty() {
			return fault.New(fault.Unsupported, "it keeps a secret in memory (%s), which no other process can read; run it in the process of its run", dotted(ch.path))
		}
	}
	return nil
}

// Beat returns a Beat that looks into the store whether a call is still to be run, for workers whose dispatcher cannot tell them. An error of
// the store is returned as it is.
func (w *StepWorker) Beat(ctx context.Context, call StepCall) Beat {
	ctx = store.WithRunScope(ctx, call.Instance)
	return func(Progress) error {
		c := &called{StepCall: call}
		_, _, err := c.stands(ctx, document.Placed(ctx, w.engine.docs, call.Instance))
		return err
	}
}

// floorOf is the epoch from which on a call of a step counts.
func floorOf(head *doc.Object, step string) int64 {
	since, _ := head.Int("since")
	floor, _ := head.Obj("floors").Int(step)
	return max(since, floor)
}
