package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"agentenv/fault"
	"agentenv/runner"
	"agentenv/store/doc"
	"agentenv/task"
)

// template is what a command runs of a task, once or several times.
type template struct {
	task *task.Task
	seed *doc.Object // of a batch; nil = none
}

// runKey is what a run and the template that makes it have in common, whatever the version.
func runKey(taskID string, seed *doc.Object) string {
	if seed == nil {
		return taskID
	}
	return taskID + "\x00" + doc.Canonical(seed)
}

func keyOf(r *runner.Record) string { return runKey(r.TaskID, r.Overrides.Obj("metadata").Obj("seed")) }

// repeats says how often each template runs: k times, or with --rerun as often as a run of it in the group ended in one of the classes; it
// says then which those are. NotFound: there is no such group. That nothing runs again is no error.
func (f *launchFlags) repeats(ctx context.Context, s *Services, all []template, say func(string)) ([]int, error) {
	counts := make([]int, len(all))
	if len(f.rerun) == 0 {
		for i := range counts {
			counts[i] = f.k
		}
		return counts, nil
	}
	byKey := map[string][]int{}
	for i, t := range all {
		key := runKey(t.task.ID, t.seed)
		byKey[key] = append(byKey[key], i)
	}
	runs, group, err := f.earlier(ctx, s, byKey)
	if err != nil {
		return nil, err
	}
	var lines []string
	next := 0
	for _, r := range runs {
		class, why, err := endOf(ctx, s, r)
		if err != nil {
			return nil, err
		}
		if why != "" {
			lines = append(lines, "  "+why)
		}
		if !slices.Contains(f.rerun, string(class)) {
			continue
		}
		line := fmt.Sprintf("  %s: %s", r.Instance, class)
		if r.Error != "" {
			line += ": " + brief(firstLine(r.Error), 160)
		}
		lines = append(lines, line)
		counts[pick(all, byKey[keyOf(r)], r, counts)]++
		next++
	}
	head := fmt.Sprintf("Rerunning %d of %s in group %s, which ended as %s:", next, plural(len(runs), "run", "runs"), group, strings.Join(f.rerun, ", "))
	if next == 0 {
		head = fmt.Sprintf("Nothing to rerun: of %s in group %s, none ended as %s.", plural(len(runs), "run", "runs"), group, strings.Join(f.rerun, " or "))
	}
	for _, line := range append([]string{head}, lines...) {
		say(line)
	}
	return counts, nil
}

// earlier returns the runs of a group, each once by its newest record, and the group: the one that was named, or the last one that holds runs of
// all templates.
func (f *launchFlags) earlier(ctx context.Context, s *Services, byKey map[string][]int) ([]*runner.Record, string, error) {
	var found []*runner.Record
	looked := map[string]bool{}
	for key := range byKey {
		id, _, _ := strings.Cut(key, "\x00")
		if looked[id] {
			continue
		}
		looked[id] = true
		some, err := s.Records.List(ctx, runner.Query{TaskID: id, Group: f.group})
		if err != nil {
			return nil, "", err
		}
		found = append(found, some...)
	}
	slices.SortStableFunc(found, func(a, b *runner.Record) int {
		return cmp.Or(strings.Compare(b.Created, a.Created), strings.Compare(b.ID, a.ID))
	})
	groups, keys := map[string][]*runner.Record{}, map[string]map[string]bool{}
	var order []string // the newest first
	seen := map[string]bool{}
	for _, r := range found {
		key := keyOf(r)
		if seen[r.Instance] || byKey[key] == nil {
			continue
		}
		seen[r.Instance] = true
		g := r.Overrides.Obj("metadata").Str("run_group_id")
		if groups[g] == nil {
			order = append(order, g)
			keys[g] = map[string]bool{}
		}
		keys[g][key] = true
		groups[g] = append(groups[g], r)
	}
	if f.group != "" {
		if len(groups[f.group]) == 0 {
			return nil, "", fault.New(fault.NotFound, "--group %s: no run in that group that this command makes is on record; `agent-env runs list --json` shows each run's run_group_id", f.group)
		}
		order = []string{f.group}
	}
	for _, g := range order {
		if f.group != "" || len(keys[g]) == len(byKey) {
			slices.Reverse(groups[g]) // the oldest first
			return groups[g], g, nil
		}
	}
	text := "no earlier run of it is on record"
	if len(order) > 0 {
		text = fmt.Sprintf("no run group holds runs of all that this command runs; name one with --group (the last that holds some of them is %s)", order[0])
	}
	return nil, "", fault.New(fault.NotFound, "--rerun: %s", text)
}

// endOf is how a run ended: as its instance says, which may have been gone on with, else as its record does. A run that has not ended is only named.
func endOf(ctx context.Context, s *Services, r *runner.Record) (class task.Class, open string, err error) {
	in, err := s.Instances.Find(ctx, r.Instance)
	if err != nil {
		return "", "", err
	}
	if class = r.Class; in != nil && (in.EndClass() != "" || r.Status.Terminal()) {
		class = in.EndClass()
	}
	if class == "" {
		open = r.Instance + " has not ended, and is left alone (`agent-env task resume` goes on with it if its process is gone)"
	}
	return class, open, nil
}

// pick returns the template that a run is made of again: one of its own version before others, and of several the one with the fewest runs.
func pick(all []template, of []int, r *runner.Record, counts []int) int {
	return slices.MinFunc(of, func(i, j int) int {
		return cmp.Or(other(all[i], r)-other(all[j], r), counts[i]-counts[j])
	})
}

// other is 1 for a template of another version than that of a run.
func other(t template, r *runner.Record) int {
	if t.task.Version == r.TaskVersion {
		return 0
	}
	return 1
}
