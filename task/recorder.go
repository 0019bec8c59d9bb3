package task

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"agentenv/fault"
	"agentenv/store/doc"
	"agentenv/store/document"
	"agentenv/telemetry"
)

// The rows that no step has: what the run began with, and what retries write down.
const (
	seedRow      = "__seed__"
	schedulerRow = "__scheduler__"
)

// How far the instance document may lag behind the journal of a run in progress.
const (
	foldEvery = time.Second
	foldSteps = 64
	foldLarge = 1 << 20 // bytes of a context beyond which the document is brought up to date by time alone
)

// recorder writes one run's documents. A nil recorder writes nothing. It is used by the run's loop alone.
type recorder struct {
	docs     document.Store
	log      *slog.Logger
	now      func() time.Time
	instance string
	owner    *doc.Object

	generation, epoch, seq, rev int64
	total                       int
	limits                      *doc.Object // laid over those of the task; nil = none
	entries                     []any       // completed_steps
	undone                      []any       // undone_attempts: when the steps ran whose rows were dropped
	outcomes                    *doc.Object // step_outcomes
	folded                      *doc.Object // the context that the document holds
	pending                     int         // completions that the document lacks
	lastFold                    time.Time
	large                       bool // the context was beyond foldLarge when it was last looked at
	gone                        bool // the document vanished: there is nothing to write to
}

// openRecorder registers the run and writes its seed, in one transaction: a document with a new id, or the reset of the one
// with the given id under a new generation and epoch.
func openRecorder(ctx context.Context, x *execution, id string, given bool) (*recorder, error) {
	ctx, docs, err := x.engine.indexes.ensure(ctx, x.task.ID, collInstances, collJournal, collHeads)
	if err != nil {
		return nil, err
	}
	r := &recorder{docs: docs, log: x.log, now: x.engine.now, instance: id, owner: x.engine.Owner.Self, total: len(x.task.Steps),
		limits: x.limits.Document(), outcomes: &doc.Object{}, folded: x.clean, lastFold: x.engine.now(), entries: []any{}}
	if err := r.docs.CheckID(id); err != nil {
		return nil, err
	}
	for _, c := range x.carried {
		r.entries = append(r.entries, completedEntry(c.StepID, c.Status))
		if c.Class != "" {
			r.outcomes.Set(c.StepID, string(c.Class))
		}
	}
	empty := NewContext()
	seed, _ := rebase(diff(empty, x.clean), empty, empty)
	fresh := true // nothing is left of an earlier run with this id
	register := func(tx document.Store) error { return r.register(ctx, tx, x, given, fresh, seed.encode(x.clean)) }
	err = r.docs.Transact(ctx, register)
	if given && fault.Is(err, fault.Exists) { // another process made it since we looked, or its document is gone and its rows are not
		fresh = false
		err = r.docs.Transact(ctx, register)
	}
	if err != nil {
		return nil, err
	}
	return r, nil
}

func (r *recorder) register(ctx context.Context, tx document.Store, x *execution, given, fresh bool, seed *doc.Object) error {
	var old *doc.Object
	if given {
		var err error
		if old, err = tx.FindOne(ctx, collInstances, document.By("instance_id", r.instance)); err != nil {
			return err
		}
	}
	r.generation, r.epoch, r.seq, r.rev = 0, 0, 0, 0
	if old != nil {
		if err := r.takeOver(ctx, tx, old); err != nil {
			return err
		}
	}
	first := r.seq + 1
	r.seq += int64(len(x.carried)) + 1
	var err error
	if old == nil {
		err = tx.Insert(ctx, collInstances, r.newDocument(x))
	} else {
		err = r.reset(ctx, tx, old, x.clean)
	}
	if err != nil {
		return err
	}
	for i, c := range x.carried {
		if err := r.putRow(ctx, tx, c.StepID, first+int64(i), c.Status, (&delta{}).encode(nil)); err != nil {
			return err
		}
	}
	if old == nil && fresh {
		if err := tx.Insert(ctx, collJournal, r.row(seedRow, r.seq, "seed", seed)); err != nil {
			return err
		}
		return tx.Insert(ctx, collHeads, r.head())
	}
	if err := r.putRow(ctx, tx, seedRow, r.seq, "seed", seed); err != nil {
		return err
	}
	_, err = tx.Replace(ctx, collHeads, document.By("instance_id", r.instance), r.head(), true)
	return err
}

func completedEntry(id, status string) *doc.Object {
	return doc.Of("step_id", id, "status", status)
}

// takeOver reads where an existing instance stands; rows that its document lacks raise the sequence.
func (r *recorder) takeOver(ctx context.Context, tx document.Store, old *doc.Object) error {
	r.generation, _ = old.Int("run_generation")
	r.epoch, _ = old.Int("attempt_epoch")
	r.rev, _ = old.Int("rev")
	r.seq, _ = old.Int("journal_seq")
	head, err := tx.FindOne(ctx, collHeads, document.By("instance_id", r.instance))
	if err != nil {
		return err
	}
	if seq, ok := head.Int("seq"); ok {
		r.seq = max(r.seq, seq)
	}
	r.generation++
	r.epoch++
	return nil
}

func (r *recorder) head() *doc.Object {
	d := doc.Of("instance_id", r.instance, "generation", doc.Int(r.generation), "epoch", doc.Int(r.epoch), "seq", doc.Int(r.seq), "since", doc.Int(r.epoch))
	if r.owner != nil {
		d.Set("owner", r.owner)
	}
	return d
}

func (r *recorder) newDocument(x *execution) *doc.Object {
	at := r.now()
	d := doc.Of("instance_id", r.instance, "task_id", x.task.ID, "task_version", versionValue(x.task.Version),
		"total_steps", doc.Int(r.total), "created_at_utc", minuteTime(at), "rev", doc.Int(0), "run_generation", doc.Int(0),
		"context", x.clean, "completed_steps", slices.Clone(r.entries), "status", "running", "error", nil, "completed_at_utc", nil,
		"current_step", doc.Int(len(r.entries)), "rerecorded_steps", []any{}, "attempt_epoch", doc.Int(0), "journal_seq", doc.Int(r.seq),
		"created_at_precise_utc", preciseTime(at), "step_outcomes", r.outcomes.Clone())
	if r.limits != nil {
		d.Set("limits", r.limits)
	}
	return d
}

func (r *recorder) reset(ctx context.Context, tx document.Store, old, clean *doc.Object) error {
	was := r.rev
	r.rev++
	set := doc.Of("context", clean, "completed_steps", slices.Clone(r.entries), "status", "running", "error", nil, "completed_at_utc", nil,
		"current_step", doc.Int(len(r.entries)), "rerecorded_steps", []any{}, "journal_seq", doc.Int(r.seq),
		"rev", doc.Int(r.rev), "run_generation", doc.Int(r.generation), "attempt_epoch", doc.Int(r.epoch), "step_outcomes", r.outcomes.Clone())
	unset := r.begunAnew(old, set)
	n, err := tx.Update(ctx, collInstances, document.By("instance_id", r.instance, "rev", doc.Int(was)), document.Update{Set: set, Unset: unset}, false)
	if err == nil && n == 0 {
		err = fault.New(fault.Conflict, "another process changed it at the same moment; try again")
	}
	return err
}

// begunAnew adds to set what a run that begins, or goes on, has of its own, and returns the fields of the stored document that it does not have.
func (r *recorder) begunAnew(stored, set *doc.Object) (unset []string) {
	gone := []string{"outcome_class", "ended_at_precise_utc", "end_step"}
	if len(r.undone) > 0 {
		set.Set("undone_attempts", r.undone)
	} else {
		gone = append(gone, "undone_attempts")
	}
	if r.limits != nil {
		set.Set("limits", r.limits)
	} else {
		gone = append(gone, "limits")
	}
	for _, k := range gone {
		if _, there := stored.Get(k); there {
			unset = append(unset, k)
		}
	}
	return unset
}

func (r *recorder) row(step string, seq int64, status string, ops *doc.Object) *doc.Object {
	return doc.Of("instance_id", r.instance, "step_id", step, "seq", doc.Int(seq), "generation", doc.Int(r.generation),
		"status", status, "recorded_at", preciseTime(r.now()), "ops", ops)
}

// putRow writes a step's row in place of an earlier one, but never of one that a later generation wrote.
func (r *recorder) putRow(ctx context.Context, tx document.Store, step string, seq int64, status string, ops *doc.Object) error {
	row := r.row(step, seq, status, ops)
	mine := document.By("instance_id", r.instance, "step_id", step).And("generation", document.Lte, doc.Int(r.generation))
	_, err := tx.Replace(ctx, collJournal, mine, row, true)
	if fault.Is(err, fault.Exists) {
		return &Superseded{r.instance, step, fmt.Sprintf("it was re-registered after generation %d", r.generation)}
	}
	return err
}

// commit writes the rows of steps that ended, all or none, under the fence of the run's head.
func (r *recorder) commit(ctx context.Context, rows []*attempt) (err error) {
	if r == nil || r.gone {
		return nil
	}
	ctx, span := telemetry.Start(ctx, "store write", attribute.String("agentenv.collection", collJournal), attribute.Int("agentenv.rows", len(rows)))
	defer func() { span.End(err) }()
	ops := make([]*doc.Object, len(rows))
	for i, a := range rows {
		ops[i] = a.ops()
	}
	ctx = context.WithoutCancel(ctx)
	next := r.seq + int64(len(rows))
	err = r.docs.Transact(ctx, func(tx document.Store) error {
		if err := r.moveHead(ctx, tx, doc.Of("seq", doc.Int(next)), rows[0].step.ID); err != nil {
			return err
		}
		for i, a := range rows {
			if err := r.putRow(ctx, tx, a.step.ID, r.seq+1+int64(i), a.status, ops[i]); err != nil {
				return err
			}
		}
		return nil
	})
	var taken *Superseded
	switch {
	case errors.As(err, &taken):
		return taken
	case errors.Is(err, errBehind):
		return errBehind
	case err != nil:
		return fault.At(err, "instance %s: the result of step %q could not be recorded", r.instance, rows[0].step.ID)
	}
	r.seq = next
	return nil
}

// errBehind says that other processes committed steps of the run since this one looked: what is to be committed has to take them in first.
var errBehind = errors.New("the journal went on")

// moveHead changes the head of the run, if this attempt owns it and knows all that was committed; step is what the change is for.
func (r *recorder) moveHead(ctx context.Context, tx document.Store, set *doc.Object, step string) error {
	n, err := tx.Update(ctx, collHeads, r.fence().And("seq", document.Eq, doc.Int(r.seq)), document.Update{Set: set}, false)
	if n > 0 || err != nil {
		return err
	}
	head, err := tx.FindOne(ctx, collHeads, r.fence())
	if err != nil {
		return err
	}
	if seq, ok := head.Int("seq"); ok && seq > r.seq {
		return errBehind
	}
	return r.superseded(ctx, tx, step)
}

// superseded explains why the fence refused a write.
func (r *recorder) superseded(ctx context.Context, tx document.Store, step string) error {
	d, err := tx.FindOne(ctx, collInstances, document.By("instance_id", r.instance))
	if err != nil {
		return err
	}
	reason := "its record is gone"
	if d != nil {
		generation, _ := d.Int("run_generation")
		epoch, _ := d.Int("attempt_epoch")
		reason = fmt.Sprintf("it was re-registered (generation %d -> %d)", r.generation, generation)
		if generation == r.generation {
			reason = fmt.Sprintf("it was dispatched under attempt epoch %d, and the instance is at %d", r.epoch, epoch)
		}
	}
	return &Superseded{r.instance, step, reason}
}

// completed notes a step whose row is written.
func (r *recorder) completed(a *attempt, class Class) {
	if r == nil {
		return
	}
	r.entries = append(r.entries, completedEntry(a.step.ID, a.status))
	r.outcomes.Set(a.step.ID, string(class))
	r.pending++
}

// foldTimer fires when the document must be brought up to date; nil when it is.
func (r *recorder) foldTimer() <-chan time.Time {
	if r == nil || r.pending == 0 || r.gone {
		return nil
	}
	return time.After(foldEvery - r.now().Sub(r.lastFold))
}

// foldIfDue brings the instance document up to date when it lags far enough, or would with more completions.
func (x *execution) foldIfDue(ctx, stepCtx context.Context, more int) {
	r := x.rec
	if r == nil || r.pending == 0 {
		return
	}
	many := r.pending+more >= foldSteps+min(more, 1) && !r.large
	if !many && r.now().Sub(r.lastFold) < foldEvery {
		return
	}
	const suspicious = 5 * time.Millisecond
	began := time.Now()
	ctx = context.WithoutCancel(ctx)
	err := r.docs.Transact(ctx, func(tx document.Store) error { return r.write(ctx, tx, x.clean, nil) })
	r.lastFold = r.now()
	if took := time.Since(began); took > suspicious {
		text, bad := doc.Marshal(x.clean)
		r.large = bad == nil && len(text) > foldLarge
	}
	if err != nil {
		x.recordFailed(stepCtx, err)
	}
}

// recordFailed ends the run when it was superseded; any other trouble with the document is tried again with the next write,
// since the rows hold the truth.
func (x *execution) recordFailed(stepCtx context.Context, err error) {
	var taken *Superseded
	if errors.As(err, &taken) {
		if x.terminal == nil {
			x.terminal = taken
		}
		x.next(stepCtx, Signal{Kind: SignalCancelled})
		return
	}
	x.log.Warn("the instance document lags behind its journal", "instance", x.instance, "error", err)
}

// ending is a change of status that goes with a write.
type ending struct {
	status  string      // "" when only the class is known
	set     *doc.Object // what to set with it
	failure string      // id of the step that failed the run
	bumps   int64       // of rev
}

// write brings the document to what the run knows, under the fence of its revision, generation and epoch; end may be nil.
func (r *recorder) write(ctx context.Context, tx document.Store, clean *doc.Object, end *ending) error {
	const tries = 1000
	for range tries {
		if r.gone {
			return nil
		}
		entries := slices.Clone(r.entries)
		next := r.rev + int64(r.pending)
		set := doc.Of("current_step", doc.Int(len(r.entries)), "journal_seq", doc.Int(r.seq), "step_outcomes", r.outcomes.Clone())
		if clean != r.folded {
			set.Set("context", clean)
		}
		if end != nil {
			next += end.bumps
			for _, k := range end.set.Keys() {
				set.Set(k, end.set.Value(k))
			}
			if end.failure != "" {
				entries = append(entries, completedEntry(end.failure, "failure"))
			}
		}
		set.Set("completed_steps", entries).Set("rev", doc.Int(next))
		guard := document.By("instance_id", r.instance, "rev", doc.Int(r.rev), "run_generation", doc.Int(r.generation), "attempt_epoch", doc.Int(r.epoch))
		n, err := tx.Update(ctx, collInstances, guard, document.Update{Set: set}, false)
		if err != nil {
			return err
		}
		if n == 1 {
			r.rev, r.folded, r.pending = next, clean, 0
			return nil
		}
		if err := r.lookAgain(ctx, tx, end); err != nil {
			return err
		}
	}
	return fault.New(fault.Conflict, "instance %s: its document changed %d times while it was written", r.instance, tries)
}

// lookAgain takes in what another writer did to the document: a mark of cancellation stays, a later attempt ends this one.
func (r *recorder) lookAgain(ctx context.Context, tx document.Store, end *ending) error {
	d, err := tx.FindOne(ctx, collInstances, document.By("instance_id", r.instance))
	if err != nil {
		return err
	}
	if d == nil {
		r.gone = true
		r.log.Warn("the instance document is gone; the run goes on without a record", "instance", r.instance)
		return nil
	}
	generation, _ := d.Int("run_generation")
	epoch, _ := d.Int("attempt_epoch")
	if generation != r.generation || epoch != r.epoch {
		return r.superseded(ctx, tx, "")
	}
	r.rev, _ = d.Int("rev")
	status := d.Str("status")
	if end != nil && (status == "completed" || (end.status == "completed" && status != "running")) {
		for _, k := range []string{"status", "error", "completed_at_utc", "outcome_class"} {
			end.set.Delete(k)
		}
	}
	return nil
}

// end writes the last state of a run and takes its head away; it is tried three times.
func (r *recorder) end(ctx context.Context, clean *doc.Object, e ending) (err error) {
	ctx, span := telemetry.Start(context.WithoutCancel(ctx), "store write", attribute.String("agentenv.collection", collInstances))
	defer func() { span.End(err) }()
	rev, pending, folded := r.rev, r.pending, r.folded
	for _, wait := range []time.Duration{500 * time.Millisecond, time.Second, 0} {
		err = r.docs.Transact(ctx, func(tx document.Store) error {
			r.rev, r.pending, r.folded = rev, pending, folded
			e := e
			e.set = e.set.Clone()
			if err := r.write(ctx, tx, clean, &e); err != nil {
				return err
			}
			_, err := tx.Delete(ctx, collHeads, r.fence())
			return err
		})
		var taken *Superseded
		if err == nil || errors.As(err, &taken) {
			return err
		}
		time.Sleep(wait)
	}
	return err
}
