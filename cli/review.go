package cli

import (
	"context"
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"agentenv/fault"
	"agentenv/store/doc"
	"agentenv/task"
)

func (a *App) reviewCommand() *cobra.Command {
	var asJSON bool
	list := &cobra.Command{Use: "list [INSTANCE]", Short: "List the steps that wait for a decision, the longest waiting first", Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.with(cmd, func(ctx context.Context, s *Services) error {
				instance := ""
				if len(args) > 0 {
					instance = args[0]
				}
				all, err := s.Reviews.Awaiting(ctx, instance)
				if err == nil && len(all) == 0 && instance != "" {
					_, err = recordOf(ctx, s, instance) // there may be no such run
				}
				if err != nil {
					return err
				}
				return a.listReviews(ctx, s, all, asJSON)
			})
		}}
	list.Flags().BoolVar(&asJSON, "json", false, "print one JSON document, with what there is to decide on")
	return newGroup("review", "Steps that wait for a person's decision", list,
		a.reviewDecide(task.Continue, "Let a run that waits go on"), a.reviewDecide(task.Abort, "End a run that waits: its review step fails"))
}

// stateOfRun says whether the run of a review goes on: a decision helps one that was interrupted when it is gone on with.
func stateOfRun(ctx context.Context, s *Services, instance string) (string, error) {
	in, err := s.Instances.Find(ctx, instance)
	switch {
	case err != nil:
		return "", err
	case in == nil:
		return "gone", nil
	}
	return statusOf(s, in), nil
}

func (a *App) listReviews(ctx context.Context, s *Services, all []task.Review, asJSON bool) error {
	states := map[string]string{}
	for _, r := range all {
		if _, known := states[r.Instance]; known {
			continue
		}
		state, err := stateOfRun(ctx, s, r.Instance)
		if err != nil {
			return err
		}
		states[r.Instance] = state
	}
	if asJSON {
		out := []any{}
		for _, r := range all {
			out = append(out, doc.Of("instance_id", r.Instance, "step_id", r.StepID, "label", null(r.Label), "awaiting_at", r.AwaitingAt, "expires_at", r.ExpiresAt, "run_status", states[r.Instance], "upstream", r.Upstream))
		}
		return a.printJSON(doc.Of("reviews", out))
	}
	if len(all) == 0 {
		fmt.Fprintln(a.Stdout, "Nothing waits for a decision.")
		return nil
	}
	w := tabwriter.NewWriter(a.Stdout, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "INSTANCE\tSTEP\tWAITS SINCE\tRUN\tLABEL")
	for _, r := range all {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", r.Instance, r.StepID, r.AwaitingAt, states[r.Instance], brief(firstLine(r.Label), 80))
	}
	return w.Flush()
}

func (a *App) reviewDecide(decision, short string) *cobra.Command {
	var by string
	cmd := &cobra.Command{Use: decision + " INSTANCE STEP", Short: short, Args: cobra.ExactArgs(2), RunE: func(cmd *cobra.Command, args []string) error {
		return a.with(cmd, func(ctx context.Context, s *Services) error {
			if by == "" {
				by = a.Env("USER")
			}
			matched, err := s.Reviews.Decide(ctx, args[0], args[1], decision, by)
			if err != nil {
				return err
			}
			if matched {
				fmt.Fprintf(a.Stdout, "%s, step %s: %s\n", args[0], args[1], decision)
				if state, err := stateOfRun(ctx, s, args[0]); err != nil || state != "running" {
					fmt.Fprintf(a.Stderr, "nobody waits for it now: the run is %s; `agent-env run --resume` goes on with one that can be\n", state)
				}
				return nil
			}
			stands, err := s.Reviews.Get(ctx, args[0], args[1])
			if err != nil {
				return err
			}
			return fault.New(fault.Conflict, "the review of step %q of %s was decided before: %s by %s", args[1], args[0], stands.State, stands.DecidedBy)
		})
	}}
	cmd.Flags().StringVar(&by, "by", "", "who decides (default: the environment's USER)")
	return cmd
}
