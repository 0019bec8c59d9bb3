package task

import (
	"fmt"
	"slices"
	"strings"

	"agentenv/fault"
	"agentenv/store/doc"
)

// stepName names a step in messages, from its document.
func stepName(i int, v any) string {
	d, _ := v.(*doc.Object)
	if id := d.Str("id"); id != "" {
		return fmt.Sprintf("step %q (position %d)", id, i)
	}
	return fmt.Sprintf("step at position %d", i)
}

// checkGraph reports the first step that breaks the rules of the graph. It is linear in steps and edges; only a step with a
// retry and explicit edges looks at what is before it.
func checkGraph(steps []*Step) error {
	at := make(map[string]int, len(steps))
	for i, s := range steps {
		if j, dup := at[s.ID]; dup {
			return fault.New(fault.Invalid, "step %q at position %d has the id of the step at position %d; ids are unique in a task", s.ID, i, j)
		}
		at[s.ID] = i
	}
	for i, s := range steps {
		if err := checkRetryTarget(steps, at, i); err != nil {
			return err
		}
		for _, id := range s.DependsOn {
			j, known := at[id]
			if known && j < i {
				continue
			}
			if known {
				return fault.New(fault.Invalid, "step %q (position %d) depends on %q, which doesn't come before it; forward references are not allowed: move it up or drop the edge", s.ID, i, id)
			}
			return fault.New(fault.Invalid, "step %q (position %d) depends on %q, which names no step in this task; the steps before it are %s", s.ID, i, id, idList(steps[:i]))
		}
	}
	return nil
}

func checkRetryTarget(steps []*Step, at map[string]int, i int) error {
	s := steps[i]
	if s.Retry == nil || s.Retry.From == s.ID {
		return nil
	}
	target, known := at[s.Retry.From]
	if known && target < i && s.Implicit {
		return nil
	}
	ancestors := ancestorsOf(steps, at, i)
	if known && target < i && ancestors[target] {
		return nil
	}
	var before []*Step
	for j, is := range ancestors {
		if is {
			before = append(before, steps[j])
		}
	}
	return fault.New(fault.Invalid, "step %q (position %d) retries from %q, which is neither itself nor a step it depends on; those are %s", s.ID, i, s.Retry.From, idList(before))
}

// ancestorsOf marks the steps that step i depends on, directly or not.
func ancestorsOf(steps []*Step, at map[string]int, i int) []bool {
	mark := make([]bool, i)
	below := 0 // every step before this position is an ancestor
	var todo []int
	visit := func(j int) {
		if steps[j].Implicit {
			below = max(below, j)
			return
		}
		for _, id := range steps[j].DependsOn {
			if k, ok := at[id]; ok && k < j && !mark[k] {
				mark[k] = true
				todo = append(todo, k)
			}
		}
	}
	visit(i)
	for len(todo) > 0 {
		j := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		visit(j)
	}
	for j := range below {
		mark[j] = true
	}
	return mark
}

func idList(steps []*Step) string {
	if len(steps) == 0 {
		return "none"
	}
	const most = 50
	ids := make([]string, len(steps))
	for i, s := range steps {
		ids[i] = s.ID
	}
	slices.Sort(ids)
	if len(ids) > most {
		return strings.Join(ids[:most], ", ") + fmt.Sprintf(" and %d more", len(ids)-most)
	}
	return strings.Join(ids, ", ")
}
