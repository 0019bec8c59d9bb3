package cli

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"agentenv/bundle"
	"agentenv/task"
)

func (a *App) taskResume() *cobra.Command {
	f := &runFlags{parallel: 1}
	cmd := &cobra.Command{Use: "resume", Short: "Go on with a run that crashed, failed or was cancelled",
		Long: "Goes on with a run from what its journal holds: steps that are done stay done, the one that failed or was under way starts again. " +
			"Sandboxes that still live are used on; one that is gone takes its deploy step back, and what depends on it. Tears down and sums up as `agent-env run` does.",
		Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error { return a.resumeRun(cmd, nil, *f) }}
	cmd.Flags().StringVar(&f.resume, "id", "", "the run, by its instance id (required)")
	cmd.Flags().BoolVar(&f.keep, "keep", false, "leave what it deployed up until a signal comes")
	f.limitFlags.add(cmd.Flags())
	cmd.Flags().BoolVar(&f.asJSON, "json", false, "print the summary as one JSON document on standard output, progress on standard error")
	_ = cmd.MarkFlagRequired("id")
	return cmd
}

// resumeRun goes on with one stored run. What chooses tasks or changes them has no place then: the run goes on as it began.
func (a *App) resumeRun(cmd *cobra.Command, args []string, f runFlags) error {
	if f.resume == "" {
		return usagef(cmd, "the instance id of the run is empty; `agent-env runs list` shows the runs there are")
	}
	if len(args) > 0 {
		return usagef(cmd, "--resume goes on with a stored run and takes no BUNDLE")
	}
	for _, name := range []string{"task", "eval", "model", "user-model", "judge-model", "agent", "sandbox", "dry-run", "k", "rerun", "group"} {
		if cmd.Flags().Changed(name) {
			return usagef(cmd, "--resume goes on with the run as it began; it does not go with --%s", name)
		}
	}
	if err := f.check(cmd); err != nil {
		return err
	}
	return a.run(cmd, &f, a.ofStored(cmd, f.resume, (*bundle.Runner).Resume))
}

func (a *App) taskVerify() *cobra.Command {
	f := runFlags{parallel: 1}
	var id string
	cmd := &cobra.Command{Use: "verify", Short: "Run the verifiers of a run once more, and nothing else",
		Long: "Grades a run that has ended again: its verifier steps run on what it recorded and on those of its sandboxes that still live (see --keep), as a run of its own, " +
			"which names the one it verifies. That one stays as it is, and so does what it deployed.",
		Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(cmd); err != nil {
				return err
			}
			return a.run(cmd, &f, a.ofStored(cmd, id, (*bundle.Runner).Verify))
		}}
	cmd.Flags().StringVar(&id, "id", "", "the run, by its instance id or its run id (required)")
	cmd.Flags().BoolVar(&f.asJSON, "json", false, "print the summary as one JSON document on standard output, progress on standard error")
	_ = cmd.MarkFlagRequired("id")
	return cmd
}

// ofStored prepares what is made of one stored run.
func (a *App) ofStored(cmd *cobra.Command, id string, plan func(*bundle.Runner, *task.Task, *task.Instance) *bundle.Plan) func(*Services, *signals, *display, io.Writer) (*bundle.Plan, error) {
	return func(s *Services, sig *signals, _ *display, _ io.Writer) (p *bundle.Plan, err error) {
		err = sig.during(cmd.Context(), func(ctx context.Context) error {
			in, err := instance(ctx, s, id)
			if err != nil {
				return err
			}
			t, err := s.Tasks.Get(ctx, in.TaskID, in.TaskVersion)
			if err != nil {
				return err
			}
			p = plan(s.Bundles, t, in)
			return nil
		})
		return p, err
	}
}
