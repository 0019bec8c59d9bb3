package local

import (
	"context"
	"log/slog"

	"agentenv/fault"
	"agentenv/runner"
	"agentenv/store/doc"
	"agentenv/task"
)

// Tracker implements task.Tracker: it keeps the records of runs that a process runs by itself, without a queue.
type Tracker struct {
	records *runner.Records
	log     *slog.Logger
	beat    *beat
}

var _ task.Tracker = (*Tracker)(nil)

// NewTracker returns a tracker over the records; a nil log discards. It does nothing while no run is tracked.
func NewTracker(records *runner.Records, log *slog.Logger) *Tracker {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Tracker{records: records, log: log, beat: newBeat(records, log)}
}

// Begin implements task.Tracker. A run that goes on takes over the record that its process left; Conflict when that process lives.
func (t *Tracker) Begin(ctx context.Context, tracked task.Tracked) (context.Context, func(*task.Result, error), error) {
	rec, before, err := t.record(ctx, tracked)
	if err != nil {
		return nil, nil, err
	}
	h := newHeld(rec)
	run, cancel := context.WithCancelCause(ctx)
	h.cancel = cancel
	t.beat.add(h)
	end := func(res *task.Result, err error) {
		t.beat.remove(h)
		cancel(nil)
		t.end(rec, before, tracked.Metadata == nil, res, err)
	}
	return run, end, nil
}

// record returns the record of a run, which this process owns now, and who owned it before when there was one.
func (t *Tracker) record(ctx context.Context, tracked task.Tracked) (rec *runner.Record, before *previous, err error) {
	if tracked.Metadata == nil {
		last, err := t.records.OfInstance(ctx, tracked.Instance)
		if err != nil {
			return nil, nil, err
		}
		if last != nil && last.Runner == runner.LocalType && !last.Status.Terminal() {
			if t.records.Alive(last.Owner) {
				return nil, nil, fault.New(fault.Conflict, "resume %s: it is still running, in %s", tracked.Instance, runner.OwnerName(last.Owner))
			}
			before = &previous{last.Owner}
			mine, err := t.records.Claim(ctx, last)
			if err == nil && !mine {
				err = fault.New(fault.Conflict, "resume %s: another process took it up at the same moment", tracked.Instance)
			}
			return last, before, err
		}
	}
	rec = runner.NewRecord(runner.LocalType, runner.Request{TaskID: tracked.TaskID, TaskVersion: tracked.TaskVersion, Instance: tracked.Instance,
		AgentModel: tracked.AgentModel, Metadata: tracked.Metadata, Limits: tracked.Limits})
	rec.Status = runner.Running
	return rec, nil, t.records.Add(ctx, rec, true)
}

// previous is what a record that was taken over said of its owner.
type previous struct{ owner *doc.Object }

// end records how a run ended. One that was to go on and did not is left as it was found.
func (t *Tracker) end(rec *runner.Record, before *previous, resumes bool, res *task.Result, err error) {
	ctx := context.Background()
	failed := insist(func() error {
		switch {
		case res == nil && before != nil:
			_, failed := t.records.Release(ctx, rec, before.owner)
			return failed
		case res == nil && resumes:
			return t.records.Forget(ctx, rec)
		}
		status, class, text := Outcome(res, err)
		_, failed := t.records.End(ctx, rec, status, class, text)
		return failed
	})
	if failed == nil {
		return
	}
	t.log.Error("the end of the run could not be written into its record", "run", rec.ID, "instance", rec.Instance, "error", failed)
}
