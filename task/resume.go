package task

import (
	"context"
	"slices"
	"strings"

	"agentenv/fault"
	"agentenv/store"
	"agentenv/store/doc"
	"agentenv/store/document"
)

// Owner tells who runs a run, so that another process can find out whether it still does.
type Owner struct {
	Self *doc.Object // this process, as the head of its runs holds it
	// Alive reports whether the process that the head of an instance names (nil: it names none) still runs it; nil: none does, but one that is not
	// named may. An error means that it cannot be told.
	Alive func(ctx context.Context, instance string, owner *doc.Object) (bool, error)
}

// gone tells whose run an instance is no longer: its owner as it was seen, when that lives no longer.
func (o Owner) gone(ctx context.Context, in *Instance) (func(who *doc.Object) bool, error) {
	alive := in.Owner == nil // nobody is named: another program may run it
	if o.Alive != nil && in.Status == "running" {
		var err error
		if alive, err = o.Alive(ctx, in.ID, in.Owner); err != nil {
			return nil, err
		}
	}
	return func(who *doc.Object) bool {
		return !alive && (who == nil) == (in.Owner == nil) && (who == nil || doc.Equal(who, in.Owner))
	}, nil
}

// Resume goes on with the run id of a task, under the same id, from what its journal holds: the steps that are done stay done,
// one that failed or was under way is undone and starts again, and a step that runs again makes those that depend on it run again.
// A recorded sandbox that lives no longer takes its deploy step back, and so everything after it. Of o, Limits (laid over those that the run
// began with), Observer, Log and Keeper (nil: all sandboxes live) count.
//
// Conflict: the run is complete, its owner still runs it, somebody else resumed it at the same moment (exactly one goes on), it is
// of another task, or a step that would run again is declared not repeatable. NotFound: there is no such run. Nothing has
// changed then, and the result is nil; it is nil as well when the keeper fails once the run was taken over, which leaves an interrupted
// run. Otherwise the result and its error are those of Run.
func (e *Engine) Resume(ctx context.Context, t *Task, id string, o Options) (*Result, error) {
	ctx = store.WithRunScope(ctx, t.ID)
	ctx, docs, err := e.indexes.ensure(ctx, t.ID, collInstances, collJournal, collHeads)
	if err != nil {
		return nil, err
	}
	in, err := NewInstances(e.docs).Get(ctx, id)
	if err != nil {
		return nil, err
	}
	if err := in.isRunOf(t); err != nil {
		return nil, err
	}
	if in.Status == "completed" {
		return nil, fault.New(fault.Conflict, "instance %s is complete: there is nothing to go on with; `agent-env sandbox prune` removes what it may have left up", id)
	}
	if of := in.Context.Obj("metadata").Obj("episode").Str("id"); of != "" && strings.HasSuffix(id, of) { // not one that began with the context of an episode
		return nil, fault.New(fault.Conflict, "instance %s is an episode, whose agents were played from outside: it is not gone on with; start another, and close this one with `agent-env runs cancel %s`", id, id)
	}
	if of := in.Context.Obj("metadata").Str("verifies"); of != "" {
		return nil, fault.New(fault.Conflict, "instance %s verifies %s and is not gone on with; `agent-env task verify --id %s` verifies anew", id, of, of)
	}
	seeded, err := e.runnable(t, in.Context.Obj("metadata").Obj("seed"))
	if err != nil {
		return nil, err
	}
	limits := o.Limits.upon(LimitsFrom(in.Document.Obj("limits")))
	seeded = limits.over(seeded)
	end := len(seeded.Steps) // also of a run that an end_step limited
	x := &execution{engine: e, task: seeded, limits: limits, end: end, instance: id, log: e.runLog(o, in.Context.Obj("metadata")), began: e.now(), keeper: o.Keeper,
		classes: map[string]Class{}}
	x.watch = &watch{observer: o.Observer, log: x.log}
	x.scheduler = NewScheduler(seeded, 0, end)
	if err := x.takeUp(ctx, docs, in); err != nil {
		return nil, fault.At(err, "resume %s", id)
	}
	res := x.run(ctx)
	return res, res.Err
}

// takeUp works out where the run stands, what has to run again, and takes the run over in one transaction.
func (x *execution) takeUp(ctx context.Context, docs document.Store, in *Instance) error {
	generation, _ := in.Document.Int("run_generation")
	rows, err := rowsOf(ctx, docs, document.By("instance_id", x.instance, "generation", doc.Int(generation)))
	if err != nil {
		return err
	}
	if len(rows) == 0 || rows[0].StepID != seedRow {
		return fault.New(fault.Conflict, "its journal has no seed, so there is nothing to go on from; run the task again")
	}
	if rows, err = ofCompletions(rows, in.Completed); err != nil {
		return err
	}
	again, _, err := x.reruns(ctx, rows)
	if err != nil {
		return err
	}
	r := &recorder{docs: docs, log: x.log, now: x.engine.now, instance: x.instance, total: len(x.task.Steps), lastFold: x.engine.now(),
		owner: x.engine.Owner.Self, generation: generation, limits: x.limits.Document(), outcomes: in.Document.Obj("step_outcomes").Clone(), undone: in.Document.Arr("undone_attempts")}
	gone, err := x.engine.Owner.gone(ctx, in)
	if err != nil {
		return err
	}
	if x.clean, err = r.resume(ctx, in.Document, rows, x.names(again), gone); err != nil {
		return err
	}
	x.rec = r
	if x.keeper != nil {
		if err := x.keeper.Adopt(ctx, x.instance); err != nil {
			return err
		}
		// Only now nobody else ends them any more: what was pruned at the same moment is lost as well.
		late, err := x.loseMore(ctx)
		if err != nil {
			return err
		}
		for i := range late {
			again[i] = again[i] || late[i]
		}
	}
	x.live = x.clean
	x.scheduler.done = make([]bool, x.end)
	for i, s := range x.task.Steps[:x.end] {
		if x.scheduler.done[i] = !again[i]; !again[i] {
			x.classes[s.ID] = Class(r.outcomes.Str(s.ID))
		}
	}
	x.log.Info("going on with the run", "instance", x.instance, "done", len(r.entries), "again", x.names(again))
	x.discardWork(ctx, x.names(again))
	return nil
}

// ofCompletions returns the rows that count: a step that the record does not hold as done is not done, whatever its row says (the reference
// writes the two apart). Conflict: one that is done has no row, so its effect cannot be told from the others'.
func ofCompletions(rows []Row, completed []Completion) ([]Row, error) {
	status := map[string]string{seedRow: "", schedulerRow: ""}
	for _, c := range completed {
		status[c.StepID] = c.Status
	}
	kept := slices.DeleteFunc(rows, func(row Row) bool {
		_, counts := status[row.StepID]
		return !counts
	})
	for _, row := range kept {
		delete(status, row.StepID)
	}
	for _, c := range completed {
		if _, missing := status[c.StepID]; missing && c.Status == "success" {
			return nil, fault.New(fault.Conflict, "its journal has no row of step %q, which is done, so what to go on from cannot be told; run the task again", c.StepID)
		}
	}
	return kept, nil
}

// loseMore takes back the steps whose sandboxes were lost while the run was taken over, and what depends on them; it says which.
func (x *execution) loseMore(ctx context.Context) ([]bool, error) {
	rows, err := rowsOf(ctx, x.rec.docs, document.By("instance_id", x.instance, "generation", doc.Int(x.rec.generation)))
	if err != nil {
		return nil, err
	}
	again, lost, err := x.reruns(ctx, rows)
	if err != nil || !lost {
		return nil, err
	}
	x.clean, err = x.rec.undo(ctx, x.names(again), nil) // nothing is dispatched yet that could commit meanwhile
	return again, err
}

// reruns says of each step whether it has to run: it has no row, its sandbox is lost, or it depends on one of those. lost tells that
// there are lost sandboxes. Conflict: a step that is done and not repeatable would run again.
func (x *execution) reruns(ctx context.Context, rows []Row) (again []bool, lost bool, err error) {
	done := make(map[string]bool, len(rows))
	for _, row := range rows {
		done[row.StepID] = true
	}
	gone, err := x.lostSteps(ctx, rows)
	if err != nil {
		return nil, false, err
	}
	steps := x.task.Steps[:x.end]
	again = x.scheduler.spread(func(i int) bool { return !done[steps[i].ID] || slices.Contains(gone, i) })
	for i, s := range steps {
		if again[i] && done[s.ID] && !s.Kind.Repeatable {
			return nil, false, fault.New(fault.Conflict, "step %q (%s) is done and would run again, since a sandbox or a step that it needs is lost, and steps of its kind are not repeatable; run the task again", s.ID, s.Type)
		}
	}
	return again, len(gone) > 0, nil
}

// names returns the ids of the steps that are marked.
func (x *execution) names(marked []bool) []string {
	var ids []string
	for i, is := range marked {
		if is {
			ids = append(ids, x.task.Steps[i].ID)
		}
	}
	return ids
}

// lostSteps returns the positions of the steps whose recorded sandboxes live no longer.
func (x *execution) lostSteps(ctx context.Context, rows []Row) (lost []int, err error) {
	context, err := Replay(rows)
	if err != nil || x.keeper == nil {
		return nil, err
	}
	gone := TornDownIDs(context)
	for _, s := range Sandboxes(context) {
		if gone[s.ID] {
			continue
		}
		lives, err := x.keeper.Alive(ctx, s)
		if err != nil {
			return nil, fault.At(err, "sandbox %q (%s)", s.Name, s.ID)
		}
		if lives {
			continue
		}
		step := x.deployer(rows, s.ID)
		if step < 0 {
			return nil, fault.New(fault.Conflict, "sandbox %q (%s), with which the run began, lives no longer; run the task again", s.Name, s.ID)
		}
		if !slices.Contains(lost, step) {
			x.log.Warn("a sandbox lives no longer: its step runs again", "instance", x.instance, "sandbox", s.Name, "id", s.ID, "step", x.task.Steps[step].ID)
			lost = append(lost, step)
		}
	}
	return lost, nil
}

// deployer returns the position of the step whose row brought a sandbox into the context, -1 when none did.
func (x *execution) deployer(rows []Row, sandbox string) int {
	for _, row := range rows {
		d, err := decodeDelta(row.Ops)
		if err != nil {
			continue
		}
		for _, a := range d.adds {
			for _, v := range a.items {
				if o, ok := v.(*doc.Object); ok && listName(a.path) == "deployed_sandboxes" && o.Str("sandbox_id") == sandbox {
					return slices.IndexFunc(x.task.Steps[:x.end], func(s *Step) bool { return s.ID == row.StepID })
				}
			}
		}
	}
	return -1
}

// resume takes the run over: under a new epoch, as its owner, without the rows of the steps that run again. Exactly one of those
// who try at the same moment succeeds; for the others it is a Conflict. It returns the context that is left.
func (r *recorder) resume(ctx context.Context, seen *doc.Object, rows []Row, again []string, gone func(who *doc.Object) bool) (clean *doc.Object, err error) {
	before := *r
	err = r.docs.Transact(ctx, func(tx document.Store) error {
		*r = before
		stored, head, err := r.stands(ctx, tx)
		if err != nil {
			return err
		}
		if err := ownerGone(stored, head, gone); err != nil {
			return err
		}
		r.rev, _ = stored.Int("rev")
		r.epoch, _ = stored.Int("attempt_epoch")
		last := int64(0)
		for _, row := range rows {
			last = max(last, row.Seq)
		}
		was, _ := seen.Int("attempt_epoch")
		seq, live := head.Int("seq")
		if was != r.epoch || stored.Str("status") != seen.Str("status") || live && seq != last {
			return fault.New(fault.Conflict, "another process took it up, or ended it, at the same moment")
		}
		r.seq, _ = stored.Int("journal_seq")
		r.seq = max(r.seq, seq, last)
		drop := setOf(again)
		r.noteUndone(rows, drop)
		kept := slices.DeleteFunc(slices.Clone(rows), func(row Row) bool { return drop[row.StepID] })
		kept, err = r.keepFailures(ctx, tx, stored, kept, again)
		if err != nil {
			return err
		}
		if clean, err = Replay(kept); err != nil {
			return err
		}
		r.entries = []any{}
		for _, row := range kept {
			if row.Status == "success" || row.Status == "failure" {
				r.entries = append(r.entries, completedEntry(row.StepID, row.Status))
				r.outcomes.Set(row.StepID, string(row.class()))
			}
		}
		if err := r.dropRows(ctx, tx, again); err != nil {
			return err
		}
		r.epoch++
		if err := r.reopen(ctx, tx, stored, clean); err != nil {
			return err
		}
		_, err = tx.Replace(ctx, collHeads, document.By("instance_id", r.instance), r.head(), true)
		return err
	})
	if err != nil {
		*r = before
		return nil, err
	}
	r.folded = clean
	return clean, nil
}

func (r *recorder) stands(ctx context.Context, tx document.Store) (stored, head *doc.Object, err error) {
	stored, err = tx.FindOne(ctx, collInstances, document.By("instance_id", r.instance))
	if err == nil && stored == nil {
		err = fault.New(fault.NotFound, "its record is gone")
	}
	if err != nil {
		return nil, nil, err
	}
	if g, _ := stored.Int("run_generation"); g != r.generation {
		return nil, nil, fault.New(fault.Conflict, "another process began it anew at the same moment")
	}
	head, err = tx.FindOne(ctx, collHeads, document.By("instance_id", r.instance))
	return stored, head, err
}

// ownerGone refuses a run that somebody may still be running.
func ownerGone(stored, head *doc.Object, gone func(who *doc.Object) bool) error {
	if stored.Str("status") != "running" {
		return nil
	}
	if _, limited := stored.Get("end_step"); limited && head == nil {
		return nil
	}
	who := head.Obj("owner")
	switch {
	case who == nil && !gone(nil):
		return fault.New(fault.Conflict, "its record says that it is running and not by whom; another program may be running it")
	case who != nil && !gone(who):
		return fault.New(fault.Conflict, "it is still running, in process %s on %s", who.Value("pid"), who.Str("host"))
	}
	return nil
}

// keepFailures writes the failures of steps that run again into the scheduler's row, marked as retried, as a retry does.
func (r *recorder) keepFailures(ctx context.Context, tx document.Store, stored *doc.Object, kept []Row, again []string) ([]Row, error) {
	left, err := Replay(kept)
	if err != nil {
		return nil, err
	}
	have := left.Obj("metadata").Arr("failed_steps")
	var lost []any
	for _, v := range stored.Obj("context").Obj("metadata").Arr("failed_steps") {
		if o, ok := v.(*doc.Object); ok && slices.Contains(again, o.Str("step_id")) && !containsEqual(have, v) {
			lost = append(lost, retried(o))
		}
	}
	if len(lost) == 0 {
		return kept, nil
	}
	base := kept[:1]
	if len(kept) > 1 && kept[1].StepID == schedulerRow {
		base = kept[:2]
	}
	early, err := Replay(base)
	if err != nil {
		return nil, err
	}
	was := early.Obj("metadata")
	d := &delta{sets: []pathValue{{[]string{"metadata", "failed_steps"}, append(slices.Clone(was.Arr("failed_steps")), lost...)}}}
	if resets := was.Arr("retry_resets"); len(resets) > 0 {
		d.sets = append(d.sets, pathValue{[]string{"metadata", "retry_resets"}, resets})
	}
	r.seq++
	ops := d.encode(early)
	if err := r.putRow(ctx, tx, schedulerRow, r.seq, "scheduler", ops); err != nil {
		return nil, err
	}
	rest := slices.DeleteFunc(slices.Clone(kept[1:]), func(row Row) bool { return row.StepID == schedulerRow })
	return slices.Concat(kept[:1], []Row{{StepID: schedulerRow, Seq: r.seq, Ops: ops}}, rest), nil
}

// reopen makes the stored document that of a run in progress again.
func (r *recorder) reopen(ctx context.Context, tx document.Store, stored, clean *doc.Object) error {
	guard := document.By("instance_id", r.instance, "rev", doc.Int(r.rev))
	r.rev++
	set := doc.Of("context", clean, "completed_steps", slices.Clone(r.entries), "status", "running", "error", nil, "completed_at_utc", nil,
		"current_step", doc.Int(len(r.entries)), "journal_seq", doc.Int(r.seq), "rev", doc.Int(r.rev), "attempt_epoch", doc.Int(r.epoch), "step_outcomes", r.outcomes.Clone())
	if _, there := stored.Get("rerecorded_steps"); !there {
		set.Set("rerecorded_steps", []any{})
	}
	n, err := tx.Update(ctx, collInstances, guard, document.Update{Set: set, Unset: r.begunAnew(stored, set)}, false)
	if err == nil && n == 0 {
		err = fault.New(fault.Conflict, "another process changed it at the same moment")
	}
	return err
}
