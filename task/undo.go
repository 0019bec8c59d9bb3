package task

import (
	"context"
	"slices"

	"agentenv/fault"
	"agentenv/store/doc"
	"agentenv/store/document"
)

// undo takes the rows of steps away and returns the context that is left, with what audit puts into the scheduler's row; it
// is given the context without that row, and nil leaves the row as it is. The epoch goes up, so that nothing which was dispatched
// before can be committed. All of it happens in one transaction, or nothing does. Conflict: the journal does not hold what it takes to undo.
func (r *recorder) undo(ctx context.Context, ids []string, audit func(replayed *doc.Object) *delta) (*doc.Object, error) {
	ctx = context.WithoutCancel(ctx)
	before := *r
	var clean *doc.Object
	err := r.docs.Transact(ctx, func(tx document.Store) error {
		*r = before
		n, err := tx.Update(ctx, collHeads, r.fence(), document.Update{Set: doc.Of("seq", doc.Int(r.seq+1), "epoch", doc.Int(r.epoch+1))}, false)
		if err != nil {
			return err
		}
		if n == 0 {
			return r.superseded(ctx, tx, ids[0])
		}
		drop := setOf(ids)
		rows, err := rowsOf(ctx, tx, document.By("instance_id", r.instance, "generation", doc.Int(r.generation)))
		if err != nil {
			return err
		}
		rows = slices.DeleteFunc(rows, func(row Row) bool {
			return drop[row.StepID] || row.StepID == schedulerRow && audit != nil
		})
		if len(rows) == 0 || rows[0].StepID != seedRow {
			return fault.New(fault.Conflict, "instance %s has no journal seed of generation %d; cannot undo", r.instance, r.generation)
		}
		if clean, err = Replay(rows); err != nil {
			return err
		}
		r.seq++
		if audit != nil {
			ops := audit(clean).encode(clean)
			if clean, err = Replay(slices.Insert(rows, 1, Row{StepID: schedulerRow, Ops: ops})); err != nil {
				return err
			}
			if err := r.putRow(ctx, tx, schedulerRow, r.seq, "scheduler", ops); err != nil {
				return err
			}
		}
		r.outcomes = r.outcomes.Clone()
		if err := r.dropRows(ctx, tx, ids); err != nil {
			return err
		}
		r.entries = slices.DeleteFunc(slices.Clone(r.entries), func(v any) bool {
			o, _ := v.(*doc.Object)
			return drop[o.Str("step_id")]
		})
		if err := r.write(ctx, tx, clean, &ending{set: doc.Of("attempt_epoch", doc.Int(r.epoch+1)), bumps: 1}); err != nil {
			return err
		}
		r.epoch++
		return nil
	})
	if err != nil {
		*r = before
		return nil, err
	}
	return clean, nil
}

// dropRows deletes the rows of steps, and forgets how the steps did.
func (r *recorder) dropRows(ctx context.Context, tx document.Store, ids []string) error {
	for _, id := range ids {
		r.outcomes.Delete(id)
		mine := document.By("instance_id", r.instance, "generation", doc.Int(r.generation), "step_id", id)
		if _, err := tx.Delete(ctx, collJournal, mine); err != nil {
			return err
		}
	}
	return nil
}

func setOf(ids []string) map[string]bool {
	set := make(map[string]bool, len(ids))
	for _, id := range ids {
		set[id] = true
	}
	return set
}

// fence selects the head of the run as long as this attempt owns it.
func (r *recorder) fence() document.Filter {
	return document.By("instance_id", r.instance, "generation", doc.Int(r.generation), "epoch", doc.Int(r.epoch))
}
