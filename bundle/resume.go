package bundle

import (
	"agentenv/task"
)

// Resume returns a plan that goes on with one run of a stored task, in its own run group, and needs no bundle folder: it writes
// nothing and is run as it is. Its lines name the task by its id.
func (pl *Runner) Resume(t *task.Task, in *task.Instance) *Plan {
	return &Plan{p: pl, group: in.Context.Obj("metadata").Str("run_group_id"),
		tasks: []*entry{{e: &Entity{Path: t.ID, ID: t.ID}, r: &resolved{task: t}, version: t.Version, resumes: in.ID}}}
}
