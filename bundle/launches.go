package bundle

import (
	"context"
	"slices"

	"agentenv/artifact"
	"agentenv/store/doc"
	"agentenv/store/document"
	"agentenv/task"
)

// collInvocations has one document for each invocation that ran a bundle: which tasks were to run, and how often. Runs that never started
// have no record of their own; from here they are known all the same.
const collInvocations = "bundle_invocations"

// launches returns the runs to make, task by task, none of them started.
func (p *Plan) launches(o RunOptions) []*Run {
	var runs []*Run
	for _, en := range p.tasks {
		times := max(o.Times, 1)
		if o.Again != nil {
			times = o.Again.counts[en.e.ID]
		}
		for i := range times {
			run := &Run{of: en, Path: en.e.Path, TaskID: en.e.ID, Version: en.version, Outcome: Cancelled, Class: task.Cancelled, Scores: []Score{}, Failures: []Failure{}}
			if times > 1 {
				run.Number = i + 1
			}
			if o.Repeat != nil && en.resumes == "" {
				run.Repeat = o.Repeat(en.e.Name)
			}
			runs = append(runs, run)
		}
	}
	return runs
}

// rounds returns runs in the order in which they begin: the first one of every task, then the second ones.
func rounds(runs []*Run) []*Run {
	order := slices.Clone(runs)
	slices.SortStableFunc(order, func(a, b *Run) int { return a.Number - b.Number })
	return order
}

// remember records what this invocation is to run. Runs go on without that record: only running some of them again needs it.
func (p *Plan) remember(ctx context.Context, group string, runs []*Run, progress Progress) {
	if p.b == nil || len(runs) == 0 {
		return // what goes on is part of the invocation that began it
	}
	counts := &doc.Object{}
	for _, r := range runs {
		n, _ := counts.Int(r.TaskID)
		counts.Set(r.TaskID, doc.Int(n+1))
	}
	docs := invocations(ctx, p.p.Deps, p.b)
	err := docs.EnsureIndex(ctx, collInvocations, document.Index{Fields: []string{"id", "at"}})
	if err == nil {
		err = docs.Insert(ctx, collInvocations, doc.Of("id", p.b.Root, "run_group_id", group, "at", artifact.Timestamp(p.p.Now()), "runs", counts))
	}
	if err != nil {
		progress.Note("--rerun will not know of this invocation, since it could not be recorded: " + oneLine(err.Error()))
	}
}

// invocations returns the store with the invocations of a bundle.
func invocations(ctx context.Context, d Deps, b *Bundle) document.Store {
	return document.Placed(ctx, d.Documents, b.Root)
}
