package task

import (
	"context"
	"log/slog"

	"agentenv/store/doc"
)

// Sandbox is a record of context.deployed_sandboxes. Nullable fields are nil or empty when null.
type Sandbox struct {
	Name, ID, Mode, Type string
	TunnelURLs           map[string]string
	VNCURL               string
	InstanceID           string
	CreatedAt, ExpiresAt string
	NetworkPolicy        *doc.Object
}

// Progress is what a running step reports about itself.
type Progress struct {
	What  string // "loading", "collecting", "pulling image"
	Bytes int64  // moved so far
	Total int64  // 0 = unknown
	Files int
	Note  string // a line for people: what was left out, which shell ran
}

// Options of a run; the zero value runs the whole task from an empty context under a new instance id.
type Options struct {
	Instance        string      // run under this id (re-registered when it exists); "" = mint one
	StartStep       int         // 0-based; steps before it count as done
	EndStep         int         // exclusive; 0 = none
	Context         *doc.Object // initial context, whole; nil = empty
	Metadata        *doc.Object // initial context.metadata (run_group_id, task_id, seed, user_overrides, …), key by key over that of Context
	AgentModel      string
	AgentArtifactID string
	Limits          Limits        // laid over those of the task
	Observer        Observer      // may be nil
	Log             *slog.Logger  // nil: the engine's
	Keeper          SandboxKeeper // nil: what dropped attempts deployed stays until the run's teardown
}

// SandboxKeeper is what the engine asks of the sandboxes that a run recorded, beside its steps. It must be safe for concurrent use.
type SandboxKeeper interface {
	// Alive reports whether a recorded sandbox can still be used; an error means that it cannot be told.
	Alive(context.Context, Sandbox) (bool, error)
	// Adopt makes this process the owner of what a run deployed, once it has taken the run over.
	Adopt(ctx context.Context, instance string) error
	// Discard ends what these steps of a run deployed, since their effects are dropped, and returns an error that names what is
	// still up, if anything. It is called beside the run and may take its time.
	Discard(ctx context.Context, instance string, steps []string) error
}

// Event is one thing that happened to a step.
type Event struct {
	Instance     string
	Index, Total int // position in the whole task, 0-based, and its length
	StepID, Type string
	Seconds      float64 // on end
	Err          error   // on end: nil for success
	Tolerated    bool    // on end: failed, and the run goes on
	Retried      bool    // on end: what it did is dropped, and it starts again
	Progress     *Progress
}

// Observer hears what a run does. Calls for one run come one at a time. It must not block; a panic or a closed pipe inside
// it is the observer's own problem: it is dropped and the run goes on.
type Observer interface {
	StepStarted(Event)
	StepProgress(Event)
	StepEnded(Event)
}

// Class is the outcome class of a step or a run; retries, denominators, exit codes and summaries read it, never the text of an error.
type Class string

// The classes, as stored.
const (
	Passed         Class = "passed"
	Failed         Class = "failed"
	TimedOut       Class = "timed_out"
	Infrastructure Class = "infrastructure"
	Configuration  Class = "configuration"
	Judge          Class = "judge"
	Cancelled      Class = "cancelled"
)

// Result is how a run ended.
type Result struct {
	Instance string
	Status   string // completed, failed, cancelled (running when limited by EndStep)
	Class    Class
	Err      error       // the terminal error, nil otherwise
	Context  *doc.Object // the final context, redacted values included (in memory only)
	Failures []Failure
	Scores   []Score
	Models   map[string][]string // role → distinct models in use
	Seconds  float64
	Recorded bool              // an instance document exists
	Steps    map[string]Class  // how each step that ended did, by its id (seeded ids)
	LeftOut  []string          // verifier steps that a verification could not run
	Dropped  []RecordedSandbox // sandboxes that steps made and that are not in Context, since their name was taken meanwhile
}

// Failure is one entry of metadata.failed_steps.
type Failure struct {
	StepID, StepType, Error, ErrorType string
	Fatal, Retried                     bool
	StartedAt                          string  // "" when not recorded
	Seconds                            float64 // it took
	Class                              Class
}

// Score is a numeric verification score under the id of the step that wrote it.
type Score struct {
	Label string
	Value float64
}

// Runs is what runs tasks; *Engine is the one implementation, the interface is for callers that only start runs.
type Runs interface {
	Run(ctx context.Context, t *Task, o Options) (*Result, error)
	Resume(ctx context.Context, t *Task, id string, o Options) (*Result, error)
	Verify(ctx context.Context, t *Task, id string, o Options) (*Result, error)
}
