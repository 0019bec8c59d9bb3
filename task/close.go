package task

import (
	"context"
	"time"

	"agentenv/fault"
	"agentenv/store/doc"
	"agentenv/store/document"
)

// Cancel records a run whose process is gone as cancelled, with a reason, as of the moment at; in is the run as it was read. What its journal
// holds stays, writers that may still be on their way are fenced out, and the run can be resumed. A run that has ended stays as it is. Conflict:
// somebody took the run up, or committed a step, since it was read. Whether its process is gone is the caller's to know.
func (s *Instances) Cancel(ctx context.Context, in *Instance, reason string, at time.Time) error {
	if _, limited := in.Document.Get("end_step"); in.Status != "running" || limited && in.Owner == nil {
		return nil
	}
	ctx, docs, err := s.indexes.ensure(ctx, in.TaskID, collInstances, collJournal, collHeads)
	if err != nil {
		return err
	}
	return docs.Transact(ctx, func(tx document.Store) error {
		stored, err := s.unchanged(ctx, tx, in)
		if err != nil || stored == nil {
			return err
		}
		rev, _ := stored.Int("rev")
		epoch, _ := stored.Int("attempt_epoch")
		folded, _ := in.Document.Int("rev")
		set := doc.Of("status", "cancelled", "error", reason, "completed_at_utc", minuteTime(at), "ended_at_precise_utc", preciseTime(at),
			"outcome_class", string(Cancelled), "rev", doc.Int(folded+1), "attempt_epoch", doc.Int(epoch+1))
		for _, k := range []string{"context", "completed_steps", "current_step", "journal_seq", "step_outcomes"} {
			if v, there := in.Document.Get(k); there {
				set.Set(k, v)
			}
		}
		n, err := tx.Update(ctx, collInstances, document.By("instance_id", in.ID, "rev", doc.Int(rev)), document.Update{Set: set}, false)
		if err != nil {
			return err
		}
		if n == 0 {
			return changed(in)
		}
		_, err = tx.Delete(ctx, collHeads, document.By("instance_id", in.ID))
		return err
	})
}

// Remove deletes the record and the journal of a run that nobody runs; in is the run as it was read. A second call is a no-op. Conflict:
// somebody took the run up since it was read. What it collected stays, and so do sandboxes that are still up.
func (s *Instances) Remove(ctx context.Context, in *Instance) error {
	ctx, docs, err := s.indexes.ensure(ctx, in.TaskID, collInstances, collJournal, collHeads, collReviews)
	if err != nil {
		return err
	}
	return docs.Transact(ctx, func(tx document.Store) error {
		if stored, err := s.unchanged(ctx, tx, in); err != nil || stored == nil {
			return err
		}
		for _, coll := range []string{collJournal, collHeads, collReviews, collInstances} {
			for n := 1; n > 0; {
				if n, err = tx.Delete(ctx, coll, document.By("instance_id", in.ID)); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// Size returns how many documents a run is made of and about how many bytes they take.
func (s *Instances) Size(ctx context.Context, in *Instance) (documents int, bytes int64, err error) {
	rows, err := s.docs.Query(ctx, collJournal, document.Query{Filter: document.By("instance_id", in.ID)})
	if err != nil {
		return 0, 0, err
	}
	bytes = int64(len(doc.Canonical(in.Document)))
	for _, row := range rows {
		bytes += int64(len(doc.Canonical(row)))
	}
	return len(rows) + 1, bytes, nil
}

// unchanged returns the stored document of a run that is still as it was read; nil when it is gone.
func (s *Instances) unchanged(ctx context.Context, tx document.Store, in *Instance) (*doc.Object, error) {
	stored, err := tx.FindOne(ctx, collInstances, document.By("instance_id", in.ID))
	if err != nil || stored == nil {
		return nil, err
	}
	head, err := tx.FindOne(ctx, collHeads, document.By("instance_id", in.ID))
	if err != nil {
		return nil, err
	}
	same := stored.Str("status") == in.Status && doc.Equal(head.Value("owner"), ownerValue(in))
	for _, k := range []string{"run_generation", "attempt_epoch"} {
		was, _ := in.Document.Int(k)
		now, _ := stored.Int(k)
		same = same && was == now
	}
	if seq, live := head.Int("seq"); live {
		read, _ := in.Document.Int("journal_seq")
		same = same && seq == read
	}
	if !same {
		return nil, changed(in)
	}
	return stored, nil
}

func ownerValue(in *Instance) any {
	if in.Owner == nil {
		return nil
	}
	return in.Owner
}

func changed(in *Instance) error {
	return fault.New(fault.Conflict, "run %s has gone on since it was looked at; look again", in.ID)
}
