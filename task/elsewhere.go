package task

import (
	"context"
	"errors"
	"slices"
	"strings"

	"agentenv/fault"
	"agentenv/store/doc"
	"agentenv/store/document"
)

// elsewhere reports whether the steps of the run are run by reference. A run without a record has nothing to refer to.
func (x *execution) elsewhere() bool { return x.engine.Steps != nil && x.rec != nil }

// onlyReferences refuses a run whose steps are run elsewhere and whose context holds secrets themselves.
func (x *execution) onlyReferences() error {
	if x.engine.Steps == nil {
		return nil
	}
	for _, v := range x.veils {
		for _, c := range v.changes {
			if c.kind == changeSecret || !c.hidden.empty() {
				return fault.New(fault.Invalid, "%s holds a secret, and the steps of this run are run by other processes; give a reference (secret:NAME or env:NAME)", dotted(c.path))
			}
		}
	}
	return nil
}

// call returns the work of a step that is run by reference. It is made in the run's loop, and done beside it.
func (x *execution) call(i int) func(context.Context, *attempt) {
	s, r, steps := x.task.Steps[i], x.rec, x.engine.Steps
	x.calls[s.ID]++
	c := StepCall{Instance: x.instance, StepID: s.ID, Generation: r.generation, Epoch: r.epoch, Attempt: x.calls[s.ID],
		View: ViewRef{x.instance, r.epoch, r.seq}, Affinity: x.engine.Owner.Self.Str("host"), Secrets: references(x.clean)}
	if s.Timeout > 0 {
		c.Deadline = x.engine.now().Add(s.Timeout)
	}
	return func(ctx context.Context, a *attempt) {
		done, err := steps.Run(ctx, c, func(p Progress) error {
			if p != (Progress{}) {
				a.run.Report(p)
			}
			if ctx.Err() != nil {
				return ErrCancelled
			}
			return nil
		})
		if err == nil {
			err = a.took(done)
		}
		if err != nil {
			a.err = fault.Wrap(fault.Unavailable, err, "the process that was to run it did not say how it ended")
		}
	}
}

// took makes an answer the end of an attempt.
func (a *attempt) took(done StepDone) error {
	a.done = &done
	if done.Class != Passed && done.Seq == 0 {
		a.err = fault.New(done.Kind, "%s", done.Error).WithClass(done.Named)
		a.late = done.Class == TimedOut
	}
	if done.Effect == nil {
		return nil
	}
	d, err := decodeDelta(done.Effect)
	if err != nil {
		return err
	}
	a.noted = done.Class != Cancelled
	a.run.state.now = d.apply(a.run.state.start)
	return nil
}

// references are the references to secrets that a run was given.
func references(context *doc.Object) []string {
	var all []string
	over := context.Obj("metadata").Obj("user_overrides")
	for _, k := range over.Keys() {
		if s := over.Str(k); slices.Contains(secretKeys, k) && (strings.HasPrefix(s, "secret:") || strings.HasPrefix(s, "env:")) {
			all = append(all, s)
		}
	}
	return all
}

// catchUp takes in the rows that other processes committed for this run since the last commit of this one.
func (x *execution) catchUp(ctx context.Context) error {
	r := x.rec
	ctx = context.WithoutCancel(ctx)
	var rows []Row
	var seq int64
	err := r.docs.Transact(ctx, func(tx document.Store) (err error) {
		head, err := tx.FindOne(ctx, collHeads, r.fence())
		if seq, _ = head.Int("seq"); err != nil || seq <= r.seq {
			return err
		}
		rows, err = rowsOf(ctx, tx, document.By("instance_id", x.instance, "generation", doc.Int(r.generation)).And("seq", document.Gte, doc.Int(r.seq+1)))
		return err
	})
	if err != nil {
		return fault.At(err, "instance %s: what other processes committed cannot be read", x.instance)
	}
	for _, row := range rows {
		d, err := decodeDelta(row.Ops)
		if err != nil {
			return fault.At(err, "instance %s, step %q", x.instance, row.StepID)
		}
		x.clean = d.apply(x.clean)
		x.arrived[row.StepID] = row
		x.classes[row.StepID] = row.class()
		r.entries = append(r.entries, completedEntry(row.StepID, row.Status))
		r.outcomes.Set(row.StepID, string(row.class()))
		r.pending++
	}
	r.seq = max(r.seq, seq)
	if len(rows) > 0 {
		x.live = x.hidden.lay(x.clean).(*doc.Object)
	}
	return nil
}

// committedElsewhere reports whether the row of a step is there, whatever is known of how its call ended; the attempt ended as the row says.
func (x *execution) committedElsewhere(a *attempt) bool {
	row, there := x.arrived[a.step.ID]
	if !there {
		return false
	}
	a.status, a.retry, a.cancelled = row.Status, false, false
	if a.err = nil; row.Status != "success" {
		a.err = fault.New(fault.Internal, "it failed in another process")
		if a.done != nil && a.done.Error != "" {
			a.err = fault.New(a.done.Kind, "%s", a.done.Error).WithClass(a.done.Named)
		}
	}
	return true
}

// undo takes the rows of steps away, as often as others commit something meanwhile.
func (x *execution) undo(ctx context.Context, ids []string, next retries) (*doc.Object, error) {
	for {
		clean, err := x.rec.undo(ctx, ids, func(replayed *doc.Object) *delta { return next.audit(x.clean, replayed) })
		if !errors.Is(err, errBehind) {
			return clean, err
		}
		if err := x.catchUp(ctx); err != nil {
			return nil, err
		}
	}
}
