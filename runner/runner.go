// Package runner says who runs a run: a Runner takes a request, gives it a record in the collection `runs`, and sees to it that a
// process runs it to its end. runner/local is the default one.
package runner

import (
	"context"
	"iter"

	"agentenv/store/doc"
	"agentenv/task"
)

// Status is where a run record stands, as stored.
type Status string

// The statuses; the last three are terminal, and the first terminal one that is written stays.
const (
	Queued    Status = "QUEUED"
	Running   Status = "RUNNING"
	Completed Status = "COMPLETED"
	Failed    Status = "FAILED"
	Canceled  Status = "CANCELED"
)

// Terminal reports whether a run with this status has ended.
func (s Status) Terminal() bool { return s == Completed || s == Failed || s == Canceled }

// Request asks for one run of a stored task.
type Request struct {
	TaskID          string
	TaskVersion     int64         // 0 = the latest, or with Instance that of the instance
	AgentModel      string        // for every prompted agent; "" = as the task says
	AgentArtifactID string        // "" = none
	Metadata        *doc.Object   // initial context.metadata: run_group_id, task_id, seed, keep, start_step, user_overrides, …
	Instance        string        // continue this stored instance with its context; "" = a fresh one
	Context         *doc.Object   // what a fresh instance begins with, Metadata merged over its metadata; nil = empty
	Limits          task.Limits   // laid over those of the task
	Observer        task.Observer // hears the steps when this process runs it; may be nil
}

// Handle names a submitted run.
type Handle struct{ Run, Instance string }

// Record is the stored record of a run. Times are RFC 3339 in UTC, "" when not yet.
type Record struct {
	ID          string
	Runner      string // type of the runner that took it
	TaskID      string
	TaskVersion int64 // 0 = none stored
	Instance    string
	Status      Status
	Class       task.Class // ours: how it ended; "" before, and in records of the reference
	Created     string
	Started     string
	Finished    string
	Error       string
	Overrides   *doc.Object // {agent_model, agent_artifact_id, metadata}, without secrets
	Owner       *doc.Object // {host, pid, seen} and, ours, {boot, start}; nil = nobody
	Cancel      string      // ours: the reason of a request to cancel it that its owner has not obeyed yet; "" = none
	Continues   bool        // ours: it continues an instance that was there before it
	Withheld    bool        // ours: it was given secrets, which only the process that took it has
	Context     *doc.Object // ours: what its instance begins with, without secrets; nil = empty
	Limits      task.Limits // ours: laid over those of the task
	Document    *doc.Object // as stored
}

// Event is one change that Watch saw: a step that ended, or a new status of the record.
type Event struct {
	Step   *task.Completion // nil when the record changed
	Record *Record          // nil when a step ended
}

// Runner takes runs and runs them. It is safe for concurrent use.
type Runner interface {
	// Submit records a run as queued and returns at once; it is run by whoever drains the queue. A request that cannot be recorded is
	// an error, and nothing was begun.
	Submit(context.Context, Request) (Handle, error)
	// Status returns the record of a run, nil when there is none.
	Status(ctx context.Context, run string) (*Record, error)
	// Cancel asks that a run end, and reports whether it had not ended yet. A queued run is never executed; a running one is told,
	// durably, whichever process runs it. A second call reports false once the run has ended.
	Cancel(ctx context.Context, run, reason string) (bool, error)
	// Watch yields what happens to a run until it has ended; breaking off the loop or ending ctx stops watching only.
	Watch(ctx context.Context, run string) iter.Seq2[Event, error]
	// Start begins to drain the queue. A second call is a no-op.
	Start(context.Context) error
	// Stop cancels what this process runs and waits for it, within bounds, and ends the draining.
	Stop(context.Context) error
}
