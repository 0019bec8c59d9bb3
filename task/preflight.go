package task

import (
	"context"
	"fmt"
	"strings"

	"agentenv/fault"
)

// Preflight returns the problems of a task that show without running it: step by step what cannot be read, the static ones, then those that
// need the stores. Empty means fine. It changes nothing and needs no sandbox.
func Preflight(ctx context.Context, t *Task) []string {
	var all []string
	for i, s := range t.Steps {
		if s.Problem != nil {
			all = append(all, stepAt(i, s)+s.Problem.Error())
			continue
		}
		found := t.Static(i)
		if s.Kind.Preflight != nil {
			found = append(found, s.Kind.Preflight(ctx, s)...)
		}
		for _, p := range found {
			all = append(all, stepAt(i, s)+p)
		}
	}
	return all
}

// Static returns the problems of the step at a position that show without the stores; nil for a step with a Problem.
func (t *Task) Static(i int) []string {
	s := t.Steps[i]
	if s.Problem != nil {
		return nil
	}
	var found []string
	if s.Kind.Check != nil {
		found = s.Kind.Check(s)
	}
	if s.Kind.Among != nil {
		found = append(found, s.Kind.Among(s, t.before(i), t.Steps)...)
	}
	return found
}

// before returns the steps that the step at a position depends on, directly or not.
func (t *Task) before(i int) []*Step {
	at := make(map[string]int, len(t.Steps))
	for j, s := range t.Steps {
		at[s.ID] = j
	}
	var out []*Step
	for j, is := range ancestorsOf(t.Steps, at, i) {
		if is {
			out = append(out, t.Steps[j])
		}
	}
	return out
}

// readable refuses a stored task that has a step with a Problem; a task may have thousands of steps, and the first few say what to do.
func readable(t *Task) error {
	const most = 5
	var all []string
	for i, s := range t.Steps {
		if s.Problem != nil && len(all) < most {
			all = append(all, stepAt(i, s)+s.Problem.Error())
		}
	}
	if len(all) == 0 {
		return nil
	}
	return fault.New(fault.Invalid, "task %s: %s; store it again with that mended", t.ID, strings.Join(all, "; "))
}

func stepAt(i int, s *Step) string {
	return fmt.Sprintf("step %q (position %d, %s): ", s.ID, i, s.Type)
}

// Supported returns one problem for each thing in the task that this version knows and cannot run yet; callers refuse the
// task with them before anything is deployed. Empty means that all of it runs; a step with a Problem is not asked.
func Supported(t *Task) []string {
	var all []string
	for i, s := range t.Steps {
		if s.Problem != nil {
			continue
		}
		if s.Kind.Pending || s.Action == nil {
			all = append(all, stepAt(i, s)+"the step type "+s.Type+" is not supported yet")
		} else if s.Kind.Unsupported != nil {
			if what := s.Kind.Unsupported(s); what != "" {
				all = append(all, stepAt(i, s)+"not supported yet: "+what)
			}
		}
	}
	return all
}
