package task

import (
	"context"
	"fmt"
)

// Preflight returns the problems of a task that show without running it: step by step the static ones, then those that
// need the stores. Empty means fine. It changes nothing and needs no sandbox.
func Preflight(ctx context.Context, t *Task) []string {
	var all []string
	for i, s := range t.Steps {
		var found []string
		if s.Kind.Check != nil {
			found = s.Kind.Check(s)
		}
		if s.Kind.Preflight != nil {
			found = append(found, s.Kind.Preflight(ctx, s)...)
		}
		for _, p := range found {
			all = append(all, stepAt(i, s)+p)
		}
	}
	return all
}

func stepAt(i int, s *Step) string {
	return fmt.Sprintf("step %q (position %d, %s): ", s.ID, i, s.Type)
}

// Supported returns one problem for each thing in the task that this version knows and cannot run yet; callers refuse the
// task with them before anything is deployed. Empty means that all of it runs.
func Supported(t *Task) []string {
	var all []string
	for i, s := range t.Steps {
		if s.Kind.Pending || s.Action == nil {
			all = append(all, stepAt(i, s)+"the step type "+s.Type+" is not supported yet")
		} else if s.Kind.Unsupported != nil {
			if what := s.Kind.Unsupported(s); what != "" {
				all = append(all, stepAt(i, s)+"not supported yet: "+what)
			}
		}
		if s.Retry != nil {
			all = append(all, stepAt(i, s)+"retry_config is not supported yet")
		}
	}
	return all
}
