package task

import (
	"context"
	"time"

	"agentenv/fault"
	"agentenv/store/doc"
)

// ViewRef names the context that a step begins with: what the journal of an instance held up to Seq, in the attempt Epoch.
type ViewRef struct {
	Instance string `json:"instance"`
	Epoch    int64  `json:"epoch"`
	Seq      int64  `json:"seq"`
}

// StepCall asks for one step of a run by reference: whoever runs it reads the task and the context from the store, so a call stays small
// whatever they hold.
type StepCall struct {
	Instance   string    `json:"instance"`
	StepID     string    `json:"step_id"`
	Generation int64     `json:"generation"` // of the instance
	Epoch      int64     `json:"epoch"`      // of the run's attempts, under which it was dispatched
	Attempt    int       `json:"attempt"`    // of this step, from 1
	View       ViewRef   `json:"view"`
	Deadline   time.Time `json:"deadline,omitzero"`  // the zero value: none
	Affinity   string    `json:"affinity,omitempty"` // the host whose sandboxes, grants and proxies the step may need; "" = any
	Secrets    []string  `json:"secrets,omitempty"`  // references (secret:NAME, env:NAME) that the run was given; never a secret itself
}

// StepDone is how a step ended. A step that ended well, or whose failure the run goes on after, is committed by then, under the fence: Seq is
// that of its row. Any other failure has no row; Effect then holds, as the ops of a row would, what the step wrote and its entry of
// metadata.failed_steps, since the failed run keeps both.
type StepDone struct {
	Class  Class       `json:"outcome_class"`
	Seq    int64       `json:"seq,omitempty"` // 0 = no row
	Error  string      `json:"error,omitempty"`
	Kind   fault.Kind  `json:"kind,omitempty"`        // of the error
	Named  string      `json:"error_class,omitempty"` // class of the error, as failed_steps has it
	Effect *doc.Object `json:"effect,omitempty"`
}

// StepRunner runs single steps. It is safe for concurrent use.
type StepRunner interface {
	// Run executes the step and commits its row. It is idempotent by (Instance, StepID, Attempt): a call for a step whose row is there
	// returns what the row says and executes nothing. beat is called about once a second and with all progress, never twice at a time; its
	// error cancels the step. When ctx ends the step is cancelled as well. An error means that it is not known how the step ended (the
	// caller may call again); ErrFenced, that it is not this call's to run any more. It returns once nothing of the step's work goes on.
	Run(ctx context.Context, call StepCall, beat Beat) (StepDone, error)
}

// Beat tells that a step is still being run, and how far it is. ErrCancelled: the step is to stop. ErrFenced: a later attempt owns it, and
// nothing that it does can be committed any more. Any other error is taken as trouble on the way, and the step goes on.
type Beat func(Progress) error

// The answers of a Beat that end a step.
var (
	ErrCancelled error = fault.New(fault.Canceled, "the step was cancelled")
	ErrFenced    error = fault.New(fault.Conflict, "a later attempt owns the step: what it does is refused")
)
