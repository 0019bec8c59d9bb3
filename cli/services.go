package cli

import (
	"context"
	"errors"

	"agentenv/artifact"
	"agentenv/bundle"
	"agentenv/episode"
	"agentenv/runner"
	"agentenv/runner/local"
	"agentenv/sandbox"
	"agentenv/store/doc"
	"agentenv/store/document"
	"agentenv/task"
)

// Services is what commands work with, wired by main from the configuration. Nothing in it is opened before its first use.
type Services struct {
	Documents document.Store
	Artifacts *artifact.Store
	Registry  *task.Registry
	Tasks     *task.Tasks
	Instances *task.Instances
	Reviews   *task.Reviews
	Agents    Agents
	Sandboxes *sandbox.Manager
	Bundles   *bundle.Runner
	Catalog   *bundle.Catalog
	Engine    task.Runs
	Records   *runner.Records
	Tracker   task.Tracker // of the runs that a command runs by itself
	Episodes  episode.Deps // of the tasks whose agents are played from outside
	// Runner returns a runner over the queue; the caller starts and stops it.
	Runner func(local.Config) *local.Runner
	// OwnerAlive reports whether the process that runs an instance, which names an owner, still lives.
	OwnerAlive func(*task.Instance) bool
	Teardown   task.Teardown
	LogDir     string // where the logs of runs go
	StateRoot  string
	StateMark  string // marks what was made with this state folder
	Checks     []Check
	Closers    []func() error // what Close ends, last first
}

// Check is one thing `doctor` looks at.
type Check struct {
	Name string
	Look func(ctx context.Context) Finding
}

// Finding is what a check found: fine, or what is lacking and what to do about each. A lack that is not Needed is a note: only
// some tasks need the thing.
type Finding struct {
	Detail string
	Lacks  []sandbox.Lack
	Needed bool
}

// Close ends what was opened; a second call is a no-op.
func (s *Services) Close() error {
	var errs []error
	for i := len(s.Closers) - 1; i >= 0; i-- {
		errs = append(errs, s.Closers[i]())
	}
	s.Closers = nil
	return errors.Join(errs...)
}

// compatibility is one recorded check of an env against a universe.
type compatibility struct {
	EnvID      string
	EnvVersion int64
	Compatible bool
}

// Compatibility returns the recorded checks of a universe.
func (s *Services) Compatibility(ctx context.Context, universe string) ([]compatibility, error) {
	docs, err := s.Documents.Query(ctx, "env_artifacts", document.Query{
		Filter: document.By("artifact_id", universe).And("type", document.Eq, "universe_compatibility"), Sort: []document.Sort{{Path: "env_id"}}})
	if err != nil {
		return nil, err
	}
	var out []compatibility
	for _, d := range docs {
		v, _ := d.Int("env_version")
		out = append(out, compatibility{d.Str("env_id"), v, compatible(d)})
	}
	return out, nil
}

func compatible(d *doc.Object) bool { return d.Obj("data").Bool("compatible") }
