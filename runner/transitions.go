package runner

import (
	"context"
	"errors"

	"agentenv/store"
	"agentenv/store/doc"
	"agentenv/store/document"
	"agentenv/task"
)

var notEnded = statuses([]Status{Queued, Running})

// Claim makes this process the owner of a run, as the record shows it, and the run running. It reports whether it did: another process may have
// been faster, or the run has ended, and then nothing has changed. On success the record holds the new owner and status.
func (s *Records) Claim(ctx context.Context, r *Record) (bool, error) {
	if r.Status.Terminal() {
		return false, nil
	}
	f := s.asSeen(r)
	owner := s.owner()
	set := doc.Of("status", string(Running), "owner", owner)
	if r.Started == "" {
		set.Set("started_at_utc", stamp(s.now()))
	}
	if r.Status == Running && r.Owner != nil { // whose process died
		set.Set("lost_owners", doc.Int(r.LostOwners()+1))
	}
	n, err := s.change(ctx, r.TaskID, f, document.Update{Set: set})
	if n == 0 || err != nil {
		return false, err
	}
	r.Status, r.Owner = Running, owner
	if v := set.Str("started_at_utc"); v != "" {
		r.Started = v
	}
	return true, nil
}

// asSeen selects a record as long as its status and its owner are those that were read; a sign of life in between is another owner.
func (s *Records) asSeen(r *Record) document.Filter {
	f := document.By("run_id", r.ID, "status", string(r.Status))
	switch {
	case r.Owner == nil:
		return f.And("owner", document.AbsentOrNull, nil)
	case processOf(r.Owner) == s.self:
		return s.ours(f)
	}
	return f.And("owner.host", document.Eq, r.Owner.Value("host")).And("owner.pid", document.Eq, r.Owner.Value("pid")).And("owner.seen", document.Eq, r.Owner.Value("seen"))
}

// LostOwners is how often a process died while it ran this run, as far as the run was taken up after it.
func (r *Record) LostOwners() int64 {
	n, _ := r.Document.Int("lost_owners")
	return n
}

// Release hands a run of this process back: it goes on counting as running, by owner, which may be nil: whoever drains the queue takes it up.
// It reports whether the run was this process's and had not ended.
func (s *Records) Release(ctx context.Context, r *Record, owner *doc.Object) (bool, error) {
	set := doc.Of("owner", nil)
	if owner != nil {
		set.Set("owner", owner)
	}
	n, err := s.change(ctx, r.TaskID, s.ours(document.By("run_id", r.ID, "status", string(Running))), document.Update{Set: set})
	return n > 0, err
}

// End records how a run of this process ended, and reports whether that is what the record says now: it is not when the run ended before, or another
// process has taken it over.
func (s *Records) End(ctx context.Context, r *Record, status Status, class task.Class, text string) (bool, error) {
	return s.end(ctx, r, s.ours(document.By("run_id", r.ID).And("status", document.In, notEnded)), status, class, text)
}

// Withdraw cancels a run that is still queued, and reports whether it was.
func (s *Records) Withdraw(ctx context.Context, r *Record, reason string) (bool, error) {
	return s.end(ctx, r, document.By("run_id", r.ID, "status", string(Queued)), Canceled, task.Cancelled, reason)
}

func (s *Records) end(ctx context.Context, r *Record, f document.Filter, status Status, class task.Class, text string) (bool, error) {
	at := stamp(s.now())
	set := doc.Of("status", string(status), "finished_at_utc", at, "error", textOrNull(text), "outcome_class", textOrNull(string(class)))
	// What the run began with is in its journal; a large one would be read again with every list of runs.
	n, err := s.change(ctx, r.TaskID, f, document.Update{Set: set, Unset: []string{"cancel", "initial_context"}})
	if n == 0 || err != nil {
		return false, err
	}
	r.Status, r.Class, r.Error, r.Finished, r.Cancel = status, class, text, at, ""
	return true, nil
}

// Lost records that a run whose process is gone has failed, for a runner whose runs nobody goes on with. It reports whether it did: a process that
// gave a sign of life since the record was read keeps its run.
func (s *Records) Lost(ctx context.Context, r *Record, text string) (bool, error) {
	if r.Status.Terminal() {
		return false, nil
	}
	return s.end(ctx, r, s.asSeen(r), Failed, task.Infrastructure, text)
}

// RequestCancel asks whoever runs a run to cancel it, and reports whether it runs. Of several requests the last one's reason counts.
func (s *Records) RequestCancel(ctx context.Context, r *Record, reason string) (bool, error) {
	n, err := s.change(ctx, r.TaskID, document.By("run_id", r.ID, "status", string(Running)), document.Update{Set: doc.Of("cancel", reason)})
	return n > 0, err
}

// Beat records that this process still lives, in the records of its runs, and returns those that are not its own any more. Runs of which
// that could not be recorded are not among them.
func (s *Records) Beat(ctx context.Context, held []*Record) (lost []*Record, err error) {
	bySide := map[bool][]*Record{}
	for _, r := range held {
		bySide[store.IsLocal(r.TaskID)] = append(bySide[store.IsLocal(r.TaskID)], r)
	}
	for _, records := range bySide {
		gone, failed := s.beat(ctx, records)
		err = errors.Join(err, failed)
		lost = append(lost, gone...)
	}
	return lost, err
}

// beat does it for the records of one store, in one commit.
func (s *Records) beat(ctx context.Context, records []*Record) (lost []*Record, err error) {
	ctx, docs, err := s.scope(ctx, records[0].TaskID)
	if err != nil {
		return nil, err
	}
	err = docs.Transact(ctx, func(tx document.Store) error {
		lost = nil
		for _, r := range records {
			n, err := tx.Update(ctx, collRuns, s.ours(document.By("run_id", r.ID).And("status", document.In, notEnded)), document.Update{Set: doc.Of("owner.seen", stamp(s.now()))}, false)
			if err != nil {
				return err
			}
			if n == 0 {
				lost = append(lost, r)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return lost, nil
}

// Remove deletes the record of a run that has ended, and reports whether it did.
func (s *Records) Remove(ctx context.Context, r *Record) (bool, error) {
	ctx, docs, err := s.scope(ctx, r.TaskID)
	if err != nil {
		return false, err
	}
	ended := document.By("run_id", r.ID).And("status", document.In, statuses([]Status{Completed, Failed, Canceled}))
	n, err := docs.Delete(ctx, collRuns, ended)
	return n > 0, err
}

// Forget deletes a record that this process has just made and of which nothing came.
func (s *Records) Forget(ctx context.Context, r *Record) error {
	ctx, docs, err := s.scope(ctx, r.TaskID)
	if err != nil {
		return err
	}
	_, err = docs.Delete(ctx, collRuns, s.ours(document.By("run_id", r.ID)))
	return err
}

func (s *Records) change(ctx context.Context, taskID string, f document.Filter, u document.Update) (int, error) {
	ctx, docs, err := s.scope(ctx, taskID)
	if err != nil {
		return 0, err
	}
	return docs.Update(ctx, collRuns, f, u, false)
}
