package bundle

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"agentenv/fault"
	"agentenv/store/doc"
	"agentenv/store/document"
	"agentenv/task"
)

// Rerun says which runs of an earlier invocation of a bundle are to run again.
type Rerun struct {
	Classes []task.Class // those that ended in one of these; a run that was to start and never did is one of the cancelled
	Group   string       // run group of the invocation, "" = the last one of this bundle
}

// Again is what runs again.
type Again struct {
	Lines  []string       // for people: what runs again and why
	counts map[string]int // by task id
}

// Tasks returns the ids of the tasks that run again, in no order; none: there is nothing to run again.
func (a *Again) Tasks() []string {
	var ids []string
	for id := range a.counts {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// Again looks up which runs of an earlier invocation ended in one of the classes, among the tasks of the selection (all of the bundle when it
// names none). It reads only. A group of which no run is on record is a NotFound error; that there is nothing to run again is none.
func (pl *Runner) Again(ctx context.Context, b *Bundle, sel Selection, runs *task.Instances, r Rerun) (*Again, error) {
	tasks, err := pl.selected(b, sel)
	if err != nil {
		return nil, err
	}
	last, err := pl.invocation(ctx, b, r.Group)
	if err != nil {
		return nil, err
	}
	out := &Again{counts: map[string]int{}}
	group := r.Group
	if group == "" {
		group = last.Str("run_group_id")
	}
	if group == "" {
		out.Lines = []string{"Nothing to rerun: no earlier invocation of this bundle is on record."}
		return out, nil
	}
	var lines []string
	seen, again := 0, 0
	for _, t := range tasks {
		planned, _ := last.Obj("runs").Int(t.ID)
		some, err := runs.InGroup(ctx, t.ID, group)
		if err != nil {
			return nil, err
		}
		seen += max(len(some), int(planned))
		n, why := rerunOf(some, int(planned), r.Classes)
		if n > 0 {
			out.counts[t.ID] = n
			again += n
		}
		for _, w := range why {
			lines = append(lines, "  "+t.Path+": "+w)
		}
	}
	of := "one of " + joined(r.Classes)
	if len(r.Classes) == 1 {
		of = string(r.Classes[0])
	}
	switch {
	case seen == 0 && last == nil:
		return nil, fault.New(fault.NotFound, "--group %s: no run of this bundle's tasks in that group is on record; `agent-env runs list --json` shows each run's run_group_id", shown(group))
	case again == 0:
		lines = append(lines, fmt.Sprintf("Nothing to rerun: of %s in group %s, none ended as %s.", count(seen, "run"), printable(group), of))
		out.Lines = lines
	default:
		out.Lines = append([]string{fmt.Sprintf("Rerunning %d of %s in group %s, which ended as %s:", again, count(seen, "run"), printable(group), of)}, lines...)
	}
	return out, nil
}

// rerunOf says how many runs of a task are to run again, and why; a run that has not ended is only named.
func rerunOf(runs []*task.Instance, planned int, classes []task.Class) (n int, why []string) {
	for _, in := range runs {
		class := in.EndClass()
		switch {
		case class == "":
			why = append(why, "instance "+in.ID+" has not ended, and is left alone (`agent-env run --resume` goes on with it if its process is gone)")
		case slices.Contains(classes, class):
			n++
			line := string(class) + ", instance " + in.ID
			if in.Error != "" {
				line += ": " + cut(oneLine(in.Error), 160)
			}
			why = append(why, line)
		}
	}
	if missing := planned - len(runs); missing > 0 && slices.Contains(classes, task.Cancelled) {
		n += missing
		why = append(why, "cancelled, "+count(missing, "run")+" without a record: never started, or removed since")
	}
	return n, why
}

// invocation returns the record of an invocation of a bundle, the newest one without a group; nil when there is none.
func (pl *Runner) invocation(ctx context.Context, b *Bundle, group string) (*doc.Object, error) {
	f := document.By("id", b.Root)
	if group != "" {
		f = f.And("run_group_id", document.Eq, group)
	}
	return invocations(ctx, pl.Deps, b).FindOne(ctx, collInvocations, f, document.Sort{Path: "at", Desc: true})
}

// selected returns the tasks that a selection names, itself or through evals; all tasks when it names nothing.
func (pl *Runner) selected(b *Bundle, sel Selection) ([]*Entity, error) {
	all := b.Of(StoreTask)
	if len(sel.Tasks)+len(sel.Evals) == 0 {
		return all, nil
	}
	p := &Plan{p: pl, b: b, sel: sel}
	tasks, evals, err := p.choose()
	if err != nil {
		return nil, err
	}
	var found problems
	for _, e := range evals {
		_, named := (&resolver{b: b, reg: pl.Registry, p: &found}).eval(e)
		tasks = append(tasks, named...)
	}
	return slices.DeleteFunc(slices.Clone(all), func(e *Entity) bool { return !slices.Contains(tasks, e) }), found.err()
}

func joined(classes []task.Class) string {
	names := make([]string, len(classes))
	for i, c := range classes {
		names[i] = string(c)
	}
	return strings.Join(names, ", ")
}

func cut(s string, most int) string {
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + "…"
	}
	return s
}
