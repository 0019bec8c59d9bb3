package cli

import (
	"context"
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"agentenv/store/doc"
	"agentenv/task"
)

func (a *App) runsCommand() *cobra.Command {
	var q task.ListQuery
	var class string
	var asJSON bool
	list := &cobra.Command{Use: "list", Short: "List the runs on record, the newest first", Args: cobra.NoArgs,
		Long: "A run whose process is gone without an end on record is shown as interrupted; `agent-env run --resume INSTANCE` goes on with it.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if q.Limit < 0 {
				return usagef(cmd, "--limit must be at least 0")
			}
			q.Class = task.Class(class)
			return a.with(cmd, func(ctx context.Context, s *Services) error { return a.listRuns(ctx, s, q, asJSON) })
		}}
	fl := list.Flags()
	fl.StringVar(&q.TaskID, "task", "", "runs of this task")
	fl.StringVar(&q.Status, "status", "", "runs with this status: running, completed, failed or cancelled")
	fl.StringVar(&class, "class", "", "runs with this outcome class: passed, failed, timed_out, infrastructure, configuration, judge or cancelled")
	fl.IntVar(&q.Limit, "limit", 50, "how many at most; 0 = all")
	fl.BoolVar(&asJSON, "json", false, "print one JSON document")
	return newGroup("runs", "The runs on record", list, a.runsShow(), a.runsLogs())
}

func (a *App) listRuns(ctx context.Context, s *Services, q task.ListQuery, asJSON bool) error {
	runs, err := s.Instances.List(ctx, q)
	if err != nil {
		return err
	}
	if asJSON {
		out := []any{}
		for _, in := range runs {
			out = append(out, runDocument(s, in))
		}
		return a.printJSON(doc.Of("runs", out))
	}
	if len(runs) == 0 {
		fmt.Fprintln(a.Stdout, "No runs.")
		return nil
	}
	w := tabwriter.NewWriter(a.Stdout, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "INSTANCE\tSTATUS\tCLASS\tSTEPS\tBEGAN\tERROR")
	for _, in := range runs {
		fmt.Fprintf(w, "%s\t%s\t%s\t%d/%d\t%s\t%s\n", in.ID, statusOf(s, in), in.Class, in.CurrentStep, in.TotalSteps, in.CreatedAt, brief(firstLine(in.Error), 60))
	}
	return w.Flush()
}

// interrupted reports whether the process that ran a run is gone, although the record says that it goes on.
func interrupted(s *Services, in *task.Instance) bool {
	return in.Status == "running" && in.Owner != nil && !s.OwnerAlive(in.Owner)
}

// statusOf is a run's status for people.
func statusOf(s *Services, in *task.Instance) string {
	if interrupted(s, in) {
		return "interrupted"
	}
	return in.Status
}

func brief(text string, most int) string {
	if r := []rune(text); len(r) > most {
		return string(r[:most]) + "…"
	}
	return text
}

// null is a text, or JSON's null for an empty one.
func null(text string) any {
	if text == "" {
		return nil
	}
	return text
}

func runDocument(s *Services, in *task.Instance) *doc.Object {
	began := in.Document.Str("created_at_precise_utc")
	if began == "" {
		began = in.CreatedAt
	}
	return doc.Of("run_id", in.ID, "instance_id", in.ID, "task_id", in.TaskID, "task_version", doc.Int(in.TaskVersion),
		"run_group_id", null(in.Context.Obj("metadata").Str("run_group_id")), "status", in.Status, "interrupted", interrupted(s, in),
		"outcome_class", null(string(in.Class)), "created_at", began, "ended_at", null(in.Document.Str("ended_at_precise_utc")),
		"steps_done", doc.Int(in.CurrentStep), "steps_total", doc.Int(in.TotalSteps), "error", null(in.Error))
}
