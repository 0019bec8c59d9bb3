package bundle

import (
	"agentenv/task"
)

// Resume returns a plan that goes on with one run of a stored task, in its own run group, and needs no bundle folder: it writes
// nothing and is run as it is. Its lines name the task by its id.
func (pl *Runner) Resume(t *task.Task, in *task.Instance) *Plan {
	return pl.ofStored(t, in.Context.Obj("metadata").Str("run_group_id"), entry{resumes: in.ID})
}

// Verify returns a plan that runs the verifiers of one run of a stored task once more, as a run of its own. What the run deployed stays up.
func (pl *Runner) Verify(t *task.Task, in *task.Instance) *Plan {
	return pl.ofStored(t, "", entry{verifies: in.ID})
}

func (pl *Runner) ofStored(t *task.Task, group string, en entry) *Plan {
	en.e, en.r, en.version = &Entity{Path: t.ID, ID: t.ID}, &resolved{task: t}, t.Version
	return &Plan{p: pl, group: group, tasks: []*entry{&en}}
}
