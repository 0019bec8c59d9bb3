package task

import (
	"context"

	"agentenv/store/doc"
)

// Tracker keeps the record that a run has beside its instance, by which runs are listed, followed and cancelled from other
// processes. Safe for concurrent use.
type Tracker interface {
	// Begin records that this process runs an instance, and goes on telling so until end is called, once, with how the run ended.
	// The returned context ends, with the reason as its cause (kind Canceled), when somebody asks to cancel the run. A run that cannot be
	// recorded is an error, and nothing was begun.
	Begin(ctx context.Context, r Tracked) (run context.Context, end func(*Result, error), err error)
}

// Tracked is a run as its record names it.
type Tracked struct {
	Instance, TaskID string
	TaskVersion      int64
	AgentModel       string
	Metadata         *doc.Object // initial context.metadata; nil when the run goes on from its instance
	Limits           Limits      // as Options has them
}
