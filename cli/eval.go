package cli

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"agentenv/artifact"
	"agentenv/fault"
	"agentenv/runner"
	"agentenv/task"
)

func (a *App) evalCommand() *cobra.Command {
	return newGroup("eval", "Stored evals: lists of tasks that are run together", a.evalCreate(), a.evalAddTasks(), a.evalRun())
}

const evalFileText = `FILE holds a JSON array of {"task_id": …, "task_version": optional}; without a version an entry means the latest when the eval runs. `

func (a *App) evalCreate() *cobra.Command {
	var id string
	cmd := &cobra.Command{Use: "create FILE", Short: "Store an eval from a JSON file of tasks", Args: cobra.ExactArgs(1),
		Long: evalFileText + "Every task must be stored.",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := needFile(cmd, args[0]); err != nil {
				return err
			}
			return a.with(cmd, func(ctx context.Context, s *Services) error {
				fmt.Fprintf(a.Stdout, "Reading tasks from %s...\n", args[0])
				evals := task.NewEvals(s.Tasks)
				entries, err := a.evalFile(ctx, evals, args[0])
				if err != nil {
					return err
				}
				fmt.Fprintf(a.Stdout, "Creating eval '%s' with %d tasks...\n", id, len(entries))
				stored, err := evals.Create(ctx, id, entries)
				return a.evalStored(stored, err)
			})
		}}
	cmd.Flags().StringVar(&id, "id", "", "id of the eval (required)")
	_ = cmd.MarkFlagRequired("id")
	return cmd
}

func (a *App) evalAddTasks() *cobra.Command {
	var id string
	var version int64
	cmd := &cobra.Command{Use: "add-tasks FILE", Short: "Store a new version of an eval with more tasks", Args: cobra.ExactArgs(1),
		Long: evalFileText + "An entry with the task and version of one that is there takes its place; others are added at the end.",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := needFile(cmd, args[0]); err != nil {
				return err
			}
			return a.with(cmd, func(ctx context.Context, s *Services) error {
				evals := task.NewEvals(s.Tasks)
				if _, err := a.foundEval(ctx, evals, id, version, a.sayOut); err != nil {
					return err
				}
				fmt.Fprintf(a.Stdout, "Reading new tasks from %s...\n", args[0])
				entries, err := a.evalFile(ctx, evals, args[0])
				if err != nil {
					return err
				}
				stored, err := evals.Add(ctx, id, version, entries)
				if err == nil {
					fmt.Fprintf(a.Stdout, "Creating new eval version with %d tasks (%d added/updated)...\n", len(stored.Tasks), len(entries))
				}
				return a.evalStored(stored, err)
			})
		}}
	cmd.Flags().StringVar(&id, "id", "", "id of the eval (required)")
	cmd.Flags().Int64Var(&version, "version", 0, "version to add to (the latest when not given)")
	_ = cmd.MarkFlagRequired("id")
	return cmd
}

func (a *App) sayOut(line string) { fmt.Fprintln(a.Stdout, line) }

// evalFile reads a file of entries and makes sure that every task is there.
func (a *App) evalFile(ctx context.Context, evals *task.Evals, file string) ([]task.EvalTask, error) {
	text, err := readLimited(file, task.MaxEvalBytes)
	if err != nil {
		return nil, err
	}
	entries, err := task.ParseEvalTasks(text, file)
	if err != nil {
		return nil, err
	}
	for i, e := range entries {
		t, err := evals.Check(ctx, e)
		if err != nil {
			return nil, fault.At(err, "%s, entry %d", file, i)
		}
		fmt.Fprintf(a.Stdout, "  Validated task %d/%d: %s v%d (%d steps)\n", i+1, len(entries), t.ID, t.Version, len(t.Steps))
	}
	return entries, nil
}

func (a *App) evalStored(e *task.Eval, err error) error {
	if err == nil {
		fmt.Fprintf(a.Stdout, "Created eval: id=%s version=%d tasks=%d\n", e.ID, e.Version, len(e.Tasks))
	}
	return err
}

func (a *App) foundEval(ctx context.Context, evals *task.Evals, id string, version int64, say func(string)) (*task.Eval, error) {
	say(fmt.Sprintf("Fetching eval: id=%s version=%s...", id, askedVersion(version)))
	e, err := evals.Get(ctx, id, version)
	if err != nil {
		return nil, err
	}
	say(fmt.Sprintf("Found eval: id=%s version=%d tasks=%d", e.ID, e.Version, len(e.Tasks)))
	return e, nil
}

func (a *App) evalRun() *cobra.Command {
	f := &launchFlags{}
	cmd := &cobra.Command{Use: "run", Short: "Run the tasks of a stored eval",
		Long: "Runs every task of an eval, each as often as --k says, and sums up: how each run did, the pass rate with its denominator, pass@k, times. Contexts are written " +
			"with --output-dir only. Otherwise as `agent-env task run`.",
		Args: cobra.NoArgs}
	fl := cmd.Flags()
	f.add(fl, "eval", "that all its tasks ran together")
	fl.IntVar(&f.k, "k", 1, "how many runs of each task")
	fl.StringVar(&f.outputDir, "output-dir", "", "folder for the final contexts")
	_ = cmd.MarkFlagRequired("id")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return a.follow(cmd, f, func(ctx context.Context, s *Services, say func(string)) (*batch, error) {
			return a.evalRuns(ctx, cmd, s, f, say)
		})
	}
	return cmd
}

func (a *App) evalRuns(ctx context.Context, cmd *cobra.Command, s *Services, f *launchFlags, say func(string)) (*batch, error) {
	if err := f.check(cmd, s); err != nil {
		return nil, err
	}
	evals := task.NewEvals(s.Tasks)
	e, err := a.foundEval(ctx, evals, f.id, f.version, say)
	if err != nil {
		return nil, err
	}
	b := &batch{group: artifact.RandomHex(16), results: true, what: "runs", jobs: f.jobs, detach: f.detach}
	caller := callerOf(ctx, a.Dir)
	tasks := make([]*task.Task, len(e.Tasks))
	for i, entry := range e.Tasks {
		t, err := evals.Check(ctx, entry)
		if err == nil {
			err = runnable(t)
		}
		if err != nil {
			return nil, fault.At(err, "eval %s v%d, entry %d", e.ID, e.Version, i)
		}
		line := fmt.Sprintf("  Loaded task: %s v%d (%d steps)", t.ID, t.Version, len(t.Steps))
		if entry.Version == 0 {
			line += " (resolved from latest)"
		}
		say(line)
		tasks[i] = t
	}
	templates := make([]template, len(tasks))
	for i, t := range tasks {
		templates[i].task = t
	}
	counts, err := f.repeats(ctx, s, templates, say)
	if err != nil {
		return nil, err
	}
	tags := evalTags(tasks, counts)
	// The first runs of all tasks come before the second ones: a stop halfway leaves as much of each.
	for round := range slices.Max(append(counts, 0)) {
		for i, t := range tasks {
			if round >= counts[i] {
				continue
			}
			tag, number := tags(t)
			l := &launch{tag: tag, number: number, name: t.ID, file: fileSafe(t.ID), task: t, repeat: f.repeat(cmd, "task run", t.ID, t.Version),
				request: runner.Request{TaskID: t.ID, TaskVersion: t.Version, AgentModel: f.agentModel, AgentArtifactID: f.agentArtifact, Limits: f.limits(cmd), Metadata: f.metadata(b.group, t.ID, nil, caller)}}
			b.launches = append(b.launches, l)
		}
	}
	if f.outputDir != "" && !f.detach && len(b.launches) > 0 {
		if b.contexts, err = openContexts(f.outputDir, e.ID, "run"); err != nil {
			return nil, err
		}
	}
	if !f.detach && len(f.rerun) == 0 {
		say(fmt.Sprintf("Running %d tasks x %d run(s) = %d total runs...", len(tasks), f.k, len(b.launches)))
		say("")
	}
	return b, nil
}

// evalTags returns what names the next run of a task: [TASK], with its version when the eval has several of that task, and with a number when it
// runs several times.
func evalTags(tasks []*task.Task, counts []int) func(*task.Task) (tag string, number int) {
	type key struct {
		id      string
		version int64
	}
	times, versions := map[key]int{}, map[string]int{}
	for i, t := range tasks {
		at := key{t.ID, t.Version}
		if times[at] == 0 {
			versions[t.ID]++
		}
		times[at] += counts[i]
	}
	next := map[key]int{}
	return func(t *task.Task) (string, int) {
		at := key{t.ID, t.Version}
		tag, number := t.ID, 0
		if versions[t.ID] > 1 {
			tag += fmt.Sprintf(" v%d", t.Version)
		}
		if times[at] > 1 {
			next[at]++
			number = next[at]
			tag += fmt.Sprintf(" run %d", number)
		}
		return "[" + tag + "] ", number
	}
}
