package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"agentenv/bundle"
)

type runFlags struct {
	sel                  bundle.Selection
	model, user, judge   string
	resume               string
	keep, dryRun, asJSON bool
	parallel, times      int
	junit, outputDir     string
	limitFlags
	rerunFlags

	again *bundle.Again // what of an earlier invocation runs again; nil = every selected task
}

func (a *App) runCommand() *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:   "run [BUNDLE]",
		Short: "Run the tasks of a bundle: a folder, or the name of a shipped one",
		Long: "Writes what changed of the bundle to the local stores, runs its tasks, tears down what they deployed and sums up. " +
			"Without BUNDLE it lists the bundles that ship with the program. Exits 1 when a task failed (a score below 1 is no failure).",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("resume") {
				return a.resumeRun(cmd, args, f)
			}
			if len(args) == 0 {
				if cmd.Flags().NFlag() > 0 {
					return usagef(cmd, "options need a BUNDLE: a folder, or a name that `agent-env run` lists")
				}
				return a.with(cmd, func(_ context.Context, s *Services) error {
					_, err := io.WriteString(a.Stdout, s.Catalog.Table())
					return err
				})
			}
			if f.dryRun && f.asJSON {
				return usagef(cmd, "--dry-run has no --json form")
			}
			if err := f.check(cmd); err != nil {
				return err
			}
			return a.run(cmd, &f, func(s *Services, sig *signals, show *display, out io.Writer) (*bundle.Plan, error) {
				return a.planned(cmd, s, sig, show, out, args[0], &f)
			})
		},
		ValidArgsFunction: a.completeBundles,
	}
	fl := cmd.Flags()
	fl.StringArrayVar(&f.sel.Tasks, "task", nil, "run this task (repeatable)")
	fl.StringArrayVar(&f.sel.Evals, "eval", nil, "run the tasks of this eval (repeatable)")
	fl.StringVar(&f.model, "model", "", "model of the agents that are prompted")
	fl.StringVar(&f.user, "user-model", "", "model of the user simulator")
	fl.StringVar(&f.judge, "judge-model", "", "model of the judges")
	fl.StringVar(&f.sel.Agent, "agent", "", "put this agent in place of the solver")
	fl.StringVar(&f.sel.Sandbox, "sandbox", "", "provider of every sandbox, or several separated by commas")
	fl.BoolVar(&f.keep, "keep", false, "leave what finished tasks deployed up until a signal comes")
	fl.BoolVar(&f.dryRun, "dry-run", false, "check everything and say what would be written and run")
	fl.StringVar(&f.resume, "resume", "", "go on with this run (an instance id) from what it has done, instead of starting a BUNDLE")
	jobsFlag(fl, &f.parallel)
	fl.IntVar(&f.times, "k", 1, "run each task this many times")
	f.limitFlags.add(fl)
	fl.StringVar(&f.junit, "junit", "", "write a report as JUnit XML to this file")
	fl.StringVar(&f.outputDir, "output-dir", "", "write each run's final context and a summary as JSON into this folder, which must be empty or new")
	f.rerunFlags.add(fl, "that the bundle ran")
	_ = cmd.RegisterFlagCompletionFunc("sandbox", a.completeProviders)
	fl.BoolVar(&f.asJSON, "json", false, "print the summary as one JSON document on standard output, progress on standard error")
	return cmd
}

// run runs what prepare plans (nil without an error: there is nothing to run), shows its progress and sums up.
func (a *App) run(cmd *cobra.Command, f *runFlags, prepare func(*Services, *signals, *display, io.Writer) (*bundle.Plan, error)) error {
	sig, stop := watchSignals()
	defer stop()
	out := a.Stdout
	if f.asJSON {
		out = a.Stderr
	}
	show := a.newDisplay(out)
	defer show.close()
	logs := newRunLogs(a, show)
	defer logs.close()
	s, err := a.Open(cmd.Context(), logs.logger())
	if err != nil {
		return err
	}
	defer s.Close()
	logs.dir = s.LogDir
	reports, err := openReports(f)
	if err != nil {
		return err
	}
	defer reports.close()
	plan, err := prepare(s, sig, show, out)
	switch code := sig.code(); {
	case code != 0:
		fmt.Fprintln(a.Stderr, "Cancelled before any task started.")
		return exit(code)
	case err != nil || plan == nil:
		return err
	}
	o := f.options(cmd)
	o.Runs, o.Tracker, o.Teardown, o.Progress, o.Signals, o.Output = s.Engine, s.Tracker, s.Teardown, show, sig.ch, reports.output
	if text := cmd.Flags().Arg(0); text != "" {
		o.Repeat = func(name string) string { return f.repeat(cmd, text, name) }
	}
	sum := plan.Run(cmd.Context(), o)
	show.close()
	if sum.Refused != nil {
		return sum.Refused
	}
	say := func(line string) { fmt.Fprintln(out, line) }
	lost := reports.write(sum)
	io.WriteString(a.coloured(out), sum.Text())
	if sum.Hold(say) {
		lost = reports.write(sum) // what was torn down
	}
	io.WriteString(out, sum.TeardownText())
	if len(sum.Left) > 0 {
		fmt.Fprintln(a.Stderr, "`agent-env sandbox prune` removes what is still up once this process has ended")
	}
	for _, r := range sum.Runs {
		if file := logs.of(r.Instance); file != "" && r.Outcome == bundle.Failed {
			fmt.Fprintf(a.Stderr, "log of %s: %s\n", r.Label(), file)
		}
		if r.Resumes {
			fmt.Fprintf(a.Stderr, "go on with %s: agent-env run --resume %s\n", r.Label(), shellWord(r.Instance))
		}
	}
	if f.asJSON {
		if err := a.printJSON(sum.Document()); err != nil {
			return err
		}
	}
	if lost != nil {
		fmt.Fprintf(a.Stderr, "Error: %s\n", lost)
	}
	if code := sum.ExitCode(); code != 0 {
		return exit(code)
	}
	if lost != nil {
		return exit(exitError)
	}
	return nil
}

// planned resolves and writes a bundle; a dry run only says what it would do, and plans nothing.
func (a *App) planned(cmd *cobra.Command, s *Services, sig *signals, show *display, out io.Writer, text string, f *runFlags) (*bundle.Plan, error) {
	b, release, err := s.Catalog.Open(text, a.Env("HOME"))
	if err != nil {
		return nil, err
	}
	defer release() // once it is materialized, nothing of the folder is read any more
	for _, name := range b.Ignored {
		show.Note("ignored: " + name + " means nothing in a bundle")
	}
	var plan *bundle.Plan
	defer func() {
		if plan != nil {
			plan.Release()
		}
	}()
	err = sig.during(cmd.Context(), func(ctx context.Context) (err error) {
		sel := f.sel
		if len(f.rerun) > 0 {
			if sel.Tasks, err = a.rerun(ctx, s, b, f, out); err != nil {
				return err
			}
			sel.Evals = nil
			if len(sel.Tasks) == 0 {
				plan = &bundle.Plan{}
				return nil
			}
		}
		if plan, err = s.Bundles.Plan(ctx, b, sel); err != nil {
			return err
		}
		for _, w := range plan.Warnings() {
			show.Note("warning: " + w)
		}
		if !f.dryRun {
			return nil
		}
		text, err := plan.DryRun(ctx)
		if err != nil {
			return err
		}
		_, err = io.WriteString(out, text)
		return err
	})
	if err != nil || f.dryRun {
		return nil, err
	}
	if f.again != nil && len(f.again.Tasks()) == 0 {
		return plan, nil
	}
	err = sig.during(cmd.Context(), func(ctx context.Context) error { return plan.Materialize(ctx, show.lines.Say, show.Note) })
	return plan, err
}

// rerun says what of an earlier invocation runs again and returns the ids of the tasks.
func (a *App) rerun(ctx context.Context, s *Services, b *bundle.Bundle, f *runFlags, out io.Writer) ([]string, error) {
	again, err := s.Bundles.Again(ctx, b, f.sel, s.Instances, bundle.Rerun{Group: f.group, Classes: f.classes()})
	if err != nil {
		return nil, err
	}
	f.again = again
	for _, line := range again.Lines {
		fmt.Fprintln(out, line)
	}
	return again.Tasks(), nil
}

func (a *App) completeProviders(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	var names []string
	_ = a.with(cmd, func(_ context.Context, s *Services) error { names = s.Sandboxes.Known(); return nil })
	return names, cobra.ShellCompDirectiveNoFileComp
}

func (a *App) completeBundles(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	var names []string
	if len(args) == 0 {
		_ = a.with(cmd, func(_ context.Context, s *Services) error { names = s.Catalog.Names(); return nil })
	}
	return names, cobra.ShellCompDirectiveFilterDirs
}
