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
		floors, err := r.raised(ctx, tx, ids)
		if err != nil {
			return err
		}
		if err := r.moveHead(ctx, tx, doc.Of("seq", doc.Int(r.seq+1), "epoch", doc.Int(r.epoch+1), "floors", floors), ids[0]); err != nil {
			return err
		}
		drop := setOf(ids)
		rows, err := rowsOf(ctx, tx, document.By("instance_id", r.instance, "generation", doc.Int(r.generation)))
		if err != nil {
			return err
		}
		r.noteUndone(rows, drop)
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
		set := doc.Of("attempt_epoch", doc.Int(r.epoch+1))
		if len(r.undone) > 0 {
			set.Set("undone_attempts", r.undone)
		}
		if err := r.write(ctx, tx, clean, &ending{set: set, bumps: 1}); err != nil {
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

// raised returns from which epoch on the calls of steps count, once these steps are undone: one that was dispatched before is refused, while
// those of steps that go on are not.
func (r *recorder) raised(ctx context.Context, tx document.Store, ids []string) (*doc.Object, error) {
	head, err := tx.FindOne(ctx, collHeads, r.fence())
	floors := head.Obj("floors").Clone()
	for _, id := range ids {
		floors.Set(id, doc.Int(r.epoch+1))
	}
	return floors, err
}

// keptUndone bounds how many attempts that were undone a record names; the newest are kept.
const keptUndone = 500

// noteUndone keeps when the steps ran whose rows are dropped, for those who ask where the time of a run went.
func (r *recorder) noteUndone(rows []Row, drop map[string]bool) {
	list := slices.Clip(r.undone)
	for _, row := range rows {
		if drop[row.StepID] && row.StartedAt != "" {
			list = append(list, doc.Of("step_id", row.StepID, "status", row.Status, "started_at", row.StartedAt, "recorded_at", row.RecordedAt))
		}
	}
	r.undone = list[max(0, len(list)-keptUndone):]
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
