package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"agentenv/artifact"
	"agentenv/fault"
	"agentenv/runner"
	"agentenv/store/doc"
	"agentenv/task"
)

// maxContextBytes bounds a file with the context that a run begins with.
const maxContextBytes = 64 << 20

func (a *App) taskRun() *cobra.Command {
	f := &launchFlags{}
	cmd := &cobra.Command{Use: "run", Short: "Run a stored task, once or several times",
		Long: "Submits runs of a stored task, runs them in this process and shows how they go. What they deployed is torn down as each ends. Each run's " +
			"final context, without secrets, is written as JSON to --output-dir, by default a new folder for temporary files. Exits 1 unless every run completed " +
			"and every context was written. Ctrl-C cancels the runs, a second one stops waiting for them.",
		Args: cobra.NoArgs}
	fl := cmd.Flags()
	f.add(fl, "task", "that the task ran without seeds")
	fl.IntVar(&f.k, "k", 1, "how many runs")
	fl.StringVar(&f.outputDir, "output-dir", "", "folder for the final contexts")
	fl.IntVar(&f.startStep, "start-step", 0, "position of the step to begin with, from 0; those before it count as done")
	fl.StringVar(&f.contextFile, "context-json", "", "JSON file with the context that each run begins with")
	f.filterFlags(fl)
	f.override(fl, keyOverrides...)
	f.override(fl, agentOverrides...)
	f.override(fl, infraOverrides...)
	f.override(fl, stateOverrides...)
	_ = cmd.MarkFlagRequired("id")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if f.contextFile != "" {
			if err := needFile(cmd, f.contextFile); err != nil {
				return err
			}
		}
		return a.follow(cmd, f, func(ctx context.Context, s *Services, say func(string)) (*batch, error) {
			return a.taskRuns(ctx, cmd, s, f, say)
		})
	}
	return cmd
}

func askedVersion(version int64) string {
	if version == 0 {
		return "latest"
	}
	return string(doc.Int(version))
}

// foundTask fetches the task of a command and says which it is.
func foundTask(ctx context.Context, s *Services, f *launchFlags, say func(string)) (*task.Task, error) {
	say(fmt.Sprintf("Fetching task: id=%s version=%s...", f.id, askedVersion(f.version)))
	t, err := s.Tasks.Get(ctx, f.id, f.version)
	if err != nil {
		return nil, err
	}
	say(fmt.Sprintf("Found task: id=%s version=%d steps=%d", t.ID, t.Version, len(t.Steps)))
	return t, nil
}

func (a *App) taskRuns(ctx context.Context, cmd *cobra.Command, s *Services, f *launchFlags, say func(string)) (*batch, error) {
	if err := f.check(cmd, s); err != nil {
		return nil, err
	}
	began, err := readContext(f.contextFile)
	if err != nil {
		return nil, err
	}
	t, err := foundTask(ctx, s, f, say)
	if err != nil {
		return nil, err
	}
	before := began.Obj("metadata")
	if t, err = s.Registry.Substitute(t, before.Obj("seed")); err != nil {
		return nil, err
	}
	if err := runnable(t); err != nil {
		return nil, err
	}
	if f.startStep < 0 || f.startStep >= len(t.Steps) {
		return nil, fault.New(fault.Invalid, "start_step=%d out of range [0, %d)", f.startStep, len(t.Steps))
	}
	group := before.Str("run_group_id")
	if group == "" {
		group = artifact.RandomHex(16)
	}
	counts, err := f.repeats(ctx, s, []template{{task: t}}, say)
	if err != nil {
		return nil, err
	}
	n := counts[0]
	b := &batch{group: group, detail: n == 1, jobs: f.jobs, detach: f.detach}
	if !f.detach && n > 0 {
		if b.contexts, err = openContexts(f.outputDir, t.ID, "run"); err != nil {
			return nil, err
		}
	}
	meta := f.metadata(group, t.ID, before, callerOf(ctx, a.Dir)).Set("start_step", doc.Int(int64(f.startStep)))
	for i := range n {
		l := &launch{name: t.ID, file: fileSafe(t.ID), task: t, repeat: f.repeat(cmd, "task run", t.ID, t.Version),
			request: runner.Request{TaskID: t.ID, TaskVersion: t.Version, AgentModel: f.agentModel, AgentArtifactID: f.agentArtifact, Limits: f.limits(cmd), Metadata: meta.Clone(), Context: began}}
		if n > 1 {
			l.tag, l.number = fmt.Sprintf("[run %d] ", i+1), i+1
		}
		b.launches = append(b.launches, l)
	}
	return b, nil
}

// readContext reads the context that runs begin with; nil without a file.
func readContext(file string) (*doc.Object, error) {
	if file == "" {
		return nil, nil
	}
	text, err := readLimited(file, maxContextBytes)
	if err != nil {
		return nil, fault.At(err, "--context-json")
	}
	began, err := doc.ParseObject(text, doc.Options{})
	if err != nil {
		return nil, fault.At(err, "--context-json %s must hold one JSON object", file)
	}
	if v, there := began.Get("metadata"); there && v != nil && began.Obj("metadata") == nil {
		return nil, fault.New(fault.Invalid, "--context-json %s: metadata must be an object, not %s", file, brief(doc.Canonical(v), 40))
	}
	if err := task.Storable(began); err != nil {
		return nil, fault.At(err, "--context-json %s", file)
	}
	return began, nil
}
