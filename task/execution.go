package task

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"agentenv/fault"
	"agentenv/store/doc"
	"agentenv/telemetry"
)

// The attributes of spans.
const (
	attrInstance = "agentenv.instance.id"
	attrTask     = "agentenv.task.id"
	attrClass    = "agentenv.outcome_class"
)

// execution is one run in progress. Its loop owns all of it; steps run in goroutines of their own and hand their view back.
type execution struct {
	engine     *Engine
	task       *Task // with its seed put in
	limits     Limits
	start, end int
	carried    []Completion // steps that count as completed from the beginning, as the record holds them
	log        *slog.Logger
	watch      *watch
	began      time.Time
	keeper     SandboxKeeper

	instance string
	rec      *recorder   // nil: the run is not recorded
	clean    *doc.Object // what the journal rows amount to
	hidden   secrets     // laid on clean for the steps
	live     *doc.Object // clean with hidden laid on

	scheduler *Scheduler
	state     State
	cancel    context.CancelCauseFunc
	ended     chan *attempt
	prepared  chan struct{} // the first retry can go on
	running   sync.WaitGroup

	retries  retries
	veils    []veil           // what each part of the context hides, by commit
	flying   map[int]*attempt // steps that run now
	retrying map[int]*attempt // steps that failed and wait for their retry
	held     []*attempt       // failed for good or cancelled: no row of their own
	classes  map[string]Class
	calls    map[string]int // of each step that is run elsewhere
	arrived  map[string]Row // rows of steps that other processes committed
	dropped  []RecordedSandbox
	terminal error
	failure  *Step // whose failure terminal is; nil when the run itself failed
}

// veil is what a committed step changed, of which secrets are only kept here; "" stands for what the run began with.
type veil struct {
	step    string
	changes []change
}

// attempt is one execution of a step.
type attempt struct {
	index   int
	step    *Step
	run     *Run
	base    *doc.Object // x.clean when it started
	started time.Time
	seconds float64
	err     error
	late    bool // its own timeout ended it
	stop    context.CancelCauseFunc
	done    *StepDone // as another process ended it; nil = it ran here

	cancelled bool
	noted     bool   // its failure is among its effects
	dropped   bool   // stopped in the span of a retry: nothing of it counts
	retry     bool   // failed, and is tried again
	status    string // of its row
	changes   []change
	delta     *delta
	after     *doc.Object
}

func (x *execution) register(ctx context.Context, id string, initial *doc.Object) error {
	given := id != ""
	if !given {
		id = NewInstanceID(x.task.ID)
	}
	if err := x.seed(initial.Clone().Set("instance_id", id)); err != nil {
		return err
	}
	if err := x.onlyReferences(); err != nil {
		return err
	}
	rec, err := openRecorder(ctx, x, id, given)
	switch {
	case err == nil:
		x.instance, x.rec = id, rec
	case given:
		return fault.At(err, "instance %s cannot be recorded", id)
	default:
		x.log.Error("the run cannot be recorded and goes on without a record", "task", x.task.ID, "error", err)
		return x.seed(initial)
	}
	return nil
}

// seed makes the first context as if a step had written it all, so that replaying its row gives the same.
func (x *execution) seed(initial *doc.Object) error {
	empty := NewContext()
	changes, err := storableChanges(diff(empty, initial))
	if err != nil {
		return err
	}
	d, _ := rebase(changes, empty, empty)
	x.hidden = secrets{}
	x.hidden.hide(changes)
	x.clean = d.apply(empty)
	x.live = x.hidden.lay(x.clean).(*doc.Object)
	x.veils = []veil{{"", changes}}
	return nil
}

func (x *execution) run(ctx context.Context) *Result {
	ctx, span := telemetry.StartTrace(ctx, "run "+x.task.ID, attribute.String(attrInstance, x.instance), attribute.String(attrTask, x.task.ID),
		attribute.Int64("agentenv.task.version", x.task.Version), attribute.String("agentenv.run_group.id", x.clean.Obj("metadata").Str("run_group_id")))
	stepCtx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	x.cancel = func(cause error) {
		if ctx.Err() != nil { // which came first, and may not have got here yet
			cause = context.Cause(ctx)
		}
		cancel(cause)
	}
	stepCtx, stop := context.WithCancel(stepCtx)
	defer stop()
	x.ended, x.prepared = make(chan *attempt, x.end), make(chan struct{}, 1)
	x.retries = newRetries(x.task, x.clean.Obj("metadata"))
	x.flying, x.retrying = map[int]*attempt{}, map[int]*attempt{}
	x.calls, x.arrived = map[string]int{}, map[string]Row{}
	if x.scheduler == nil {
		x.scheduler = NewScheduler(x.task, x.start, x.end)
	}
	x.state = x.scheduler.Initial()

	cancelled := ctx.Done()
	x.next(stepCtx, Signal{Kind: SignalBegin})
	for !x.state.Ended {
		select {
		case a := <-x.ended:
			batch := []*attempt{a}
			runtime.Gosched() // what ended at the same moment is dealt with in task order
			for more := true; more && len(batch) < foldSteps; {
				select {
				case a := <-x.ended:
					batch = append(batch, a)
				default:
					more = false
				}
			}
			slices.SortStableFunc(batch, func(a, b *attempt) int { return a.index - b.index })
			x.foldIfDue(ctx, stepCtx, len(batch))
			x.settle(ctx, stepCtx, batch)
		case <-x.prepared:
			x.rewind(stepCtx)
		case <-cancelled:
			cancelled = nil
			x.next(stepCtx, Signal{Kind: SignalCancelled})
		case <-x.rec.foldTimer():
		}
		x.foldIfDue(ctx, stepCtx, 0)
	}
	stop() // nothing is tried again any more
	x.running.Wait()
	res := x.finish(ctx)
	span.Set(attribute.String("agentenv.run.status", res.Status), attribute.String(attrClass, string(res.Class)))
	span.End(res.Err)
	return res
}

// next tells the scheduler what happened and does what it says. That the run was cancelled comes before anything else, so
// that nothing is started after it.
func (x *execution) next(ctx context.Context, s Signal) {
	if ctx.Err() != nil && !x.state.Halted {
		x.state, _ = x.scheduler.Next(x.state, Signal{Kind: SignalCancelled})
	}
	var commands []Command
	x.state, commands = x.scheduler.Next(x.state, s)
	for _, c := range commands {
		switch c.Kind {
		case CommandStart:
			x.launch(ctx, c.Step)
		case CommandStop:
			if a := x.flying[c.Step]; a != nil { // else it has just ended
				a.stop(fault.New(fault.Canceled, "stopped, since a step before it is run again"))
			}
		case CommandCancel:
			x.cancel(fault.New(fault.Canceled, "cancelled, since another step failed"))
		case CommandRewind:
			x.prepare(ctx, c.Step)
		}
	}
}

func (x *execution) launch(ctx context.Context, i int) {
	s := x.task.Steps[i]
	x.watch.tell(func(o Observer) { o.StepStarted(x.event(i, nil)) })
	run := &Run{Instance: x.instance, TaskID: x.task.ID, TaskVersion: x.task.Version, StepID: s.ID, StepType: s.Type,
		Log:   x.log.With("instance", x.instance, "step", s.ID),
		state: &view{start: x.live, now: x.live}}
	if x.rec != nil {
		run.Epoch = x.rec.epoch
	}
	run.state.report = func(p Progress) {
		ev := x.event(i, nil)
		ev.Progress = &p
		x.watch.tell(func(o Observer) { o.StepProgress(ev) })
	}
	ctx, stop := context.WithCancelCause(ctx)
	work := func(ctx context.Context, a *attempt) { a.late, a.err = execute(ctx, s, run) }
	if x.elsewhere() {
		work = x.call(i)
	}
	a := &attempt{index: i, step: s, run: run, base: x.clean, started: x.engine.now(), stop: stop}
	x.flying[i] = a
	x.running.Add(1)
	go func() {
		defer x.running.Done()
		defer stop(nil)
		ctx, span := telemetry.Start(ctx, "step "+s.ID, attribute.String(attrInstance, x.instance), attribute.String(attrTask, x.task.ID),
			attribute.String("agentenv.step.id", s.ID), attribute.String("agentenv.step.type", s.Type))
		work(ctx, a)
		span.Set(attribute.String(attrClass, string(ClassOf(a.err))))
		span.End(a.err)
		a.seconds = x.engine.now().Sub(a.started).Seconds()
		x.ended <- a
	}()
}

func (x *execution) event(i int, a *attempt) Event {
	s := x.task.Steps[i]
	e := Event{Instance: x.instance, Index: i, Total: len(x.task.Steps), StepID: s.ID, Type: s.Type}
	if a != nil {
		e.Seconds, e.Err = a.seconds, a.err
	}
	return e
}

// execute runs a step within its own timeout; a panic is its failure. late says that the timeout ended it.
func execute(ctx context.Context, s *Step, run *Run) (late bool, err error) {
	defer func() {
		if p := recover(); p != nil {
			run.Log.Error("the step panicked", "panic", p, "stack", string(debug.Stack()))
			err = fault.New(fault.Internal, "the step panicked: %v", p)
		}
	}()
	if s.Timeout <= 0 {
		return false, s.Action.Execute(ctx, run)
	}
	tooLong := timedOut(s)
	ctx, cancel := context.WithTimeoutCause(ctx, s.Timeout, tooLong)
	defer cancel()
	err = s.Action.Execute(ctx, run)
	if err != nil && errors.Is(context.Cause(ctx), tooLong) {
		return true, tooLong
	}
	return false, err
}

func timedOut(s *Step) error {
	return fault.New(fault.Timeout, "the step did not end within its step_timeout_seconds of %v", s.Timeout.Seconds())
}

// settle commits the steps of a batch, in the order they ended, by one write.
func (x *execution) settle(ctx, stepCtx context.Context, batch []*attempt) {
	var rows, held []*attempt
	for _, a := range batch {
		delete(x.flying, a.index)
		a.dropped = x.state.Rewinding(a.index) && stepCtx.Err() == nil
		if a.cancelled = stepCtx.Err() != nil && a.err != nil && !a.late; a.cancelled {
			a.err = fault.Wrap(fault.Canceled, a.err, "%s", cancelReason(stepCtx))
		}
	}
	var err error
	if x.elsewhere() && !x.rec.gone {
		err = x.catchUp(ctx)
	}
	for err == nil {
		var now *doc.Object
		now, rows, held = x.sort(stepCtx, batch, x.clean)
		if err = x.commit(ctx, rows, now); !errors.Is(err, errBehind) {
			break
		}
		err = x.catchUp(ctx)
	}
	x.held = append(x.held, held...)
	if err != nil {
		x.held = append(x.held, rows...)
		if x.terminal == nil {
			x.terminal = err
		}
		for _, a := range rows {
			a.status = ""
			x.classes[a.step.ID] = Infrastructure
		}
	}
	for _, a := range batch {
		x.conclude(stepCtx, a)
	}
}

// sort works out what the steps of a batch did, on top of a context, and which of them get a row and which are held. It changes nothing
// else, so that it can be done again on a later context.
func (x *execution) sort(stepCtx context.Context, batch []*attempt, now *doc.Object) (after *doc.Object, rows, held []*attempt) {
	for _, a := range batch {
		if a.dropped || x.committedElsewhere(a) {
			continue
		}
		x.drop(a.merge(now))
		a.retry, a.status = false, ""
		switch {
		case a.cancelled:
			held = append(held, a)
		case a.err != nil && x.mayRetry(stepCtx, a):
			a.retry = true
		case a.err != nil && a.step.FailsTask:
			held = append(held, a)
		default:
			a.status = "success"
			if a.err != nil {
				a.status = "failure"
			}
			now = a.after
			rows = append(rows, a)
		}
		x.classes[a.step.ID] = ClassOf(a.err)
	}
	return now, rows, held
}

// merge works out what a step did, on top of a context; the failure of the step is part of it. It returns what cannot be committed.
func (a *attempt) merge(now *doc.Object) (lost []taken) {
	lost, bad := a.rebase(now)
	if a.err == nil {
		if a.err = bad; bad == nil && len(lost) > 0 {
			a.err = nameTaken(lost[0])
		}
	}
	if a.err != nil && !a.cancelled && !a.noted {
		a.noted = true
		a.run.appendAt(a.failedStep(), []string{"metadata", "failed_steps"})
		lost, _ = a.rebase(now)
	}
	a.after = a.delta.apply(now)
	return lost
}

// ops is what the row of the step holds.
func (a *attempt) ops() *doc.Object {
	ops := a.delta.encode(a.after).Set("started_at", preciseTime(a.started))
	if a.err != nil {
		ops.Set("outcome_class", string(ClassOf(a.err)))
	}
	return ops
}

// drop keeps the sandboxes of records that could not be committed, each once, so that they can be ended.
func (x *execution) drop(lost []taken) {
	for _, t := range lost {
		recordsOf(doc.Of(t.list, []any{t.record}), func(r RecordedSandbox) {
			if r.ID != "" && !slices.ContainsFunc(x.dropped, func(d RecordedSandbox) bool { return d.ID == r.ID }) {
				x.dropped = append(x.dropped, r)
			}
		})
	}
}

// rebase works out the step's effect on a context. What cannot be stored is left out of it, and is an error.
func (a *attempt) rebase(now *doc.Object) (lost []taken, bad error) {
	a.changes, bad = storableChanges(diff(a.run.state.start, a.run.Context()))
	a.delta, lost = rebase(a.changes, a.base, now)
	return lost, bad
}

func (a *attempt) failedStep() *doc.Object {
	return doc.Of("step_id", a.step.ID, "step_type", a.step.Type, "error", a.err.Error(), "error_type", fault.ClassOf(a.err),
		"started_at_utc", preciseTime(a.started), "duration_seconds", doc.Float(a.seconds), "is_fatal", a.step.FailsTask)
}

// commit writes the rows; only then are they part of the run.
func (x *execution) commit(ctx context.Context, rows []*attempt, now *doc.Object) error {
	if len(rows) == 0 {
		return nil
	}
	if err := x.rec.commit(ctx, rows); err != nil {
		return err
	}
	x.clean = now
	for _, a := range rows {
		x.hidden.hide(a.changes)
		if x.retries.possible {
			x.veils = append(x.veils, veil{a.step.ID, a.changes})
		}
		for _, p := range a.delta.overwrites {
			x.log.Warn("a step replaced what another step wrote while it ran", "instance", x.instance, "step", a.step.ID, "path", dotted(p))
		}
		x.rec.completed(a, x.classes[a.step.ID])
	}
	x.live = x.hidden.lay(x.clean).(*doc.Object)
	return nil
}

// conclude logs and reports the end of a step and lets the run go on.
func (x *execution) conclude(stepCtx context.Context, a *attempt) {
	what := fmt.Sprintf("Step %s (%s)", a.step.ID, a.step.Type)
	attrs := []any{"instance", x.instance, "error", a.err}
	signal := Signal{Kind: SignalCompleted, Step: a.index}
	switch {
	case a.dropped:
		signal.Kind = SignalDropped
		x.log.Info(what+" stopped: it is run again with a step before it", "instance", x.instance)
	case a.retry:
		signal.Kind, signal.From = SignalRetry, slices.IndexFunc(x.task.Steps, func(s *Step) bool { return s.ID == a.step.Retry.From })
		x.retrying[a.index] = a
		x.log.Warn(what+" failed and is tried again", attrs...)
	case a.status == "success":
		x.log.Info(fmt.Sprintf("%s completed in %.1f s", what, a.seconds), "instance", x.instance)
	case a.status == "failure":
		x.log.Warn(what+" failed (tolerant, continuing)", attrs...)
	case x.classes[a.step.ID] == Cancelled:
		signal.Kind = SignalFatal
		x.log.Info(what+" cancelled", attrs...)
	default:
		signal.Kind = SignalFatal
		var superseded *Superseded
		if errors.As(x.terminal, &superseded) {
			x.log.Error(what+" failed (superseded)", attrs...)
			break
		}
		if x.terminal == nil {
			x.terminal, x.failure = &StepError{StepID: a.step.ID, Err: a.err}, a.step
		}
		if a.err == nil { // it did its work, which could not be recorded
			attrs = []any{"instance", x.instance, "error", x.terminal}
		}
		x.log.Error(what+" failed (fatal)", attrs...)
	}
	ev := x.event(a.index, a)
	ev.Tolerated, ev.Retried = a.status == "failure", a.retry || a.dropped
	if ev.Err == nil && a.status == "" && !ev.Retried {
		ev.Err = x.terminal
	}
	x.watch.tell(func(o Observer) { o.StepEnded(ev) })
	x.next(stepCtx, signal)
}
