package cli

import (
	"context"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"agentenv/fault"
	"agentenv/runner"
	"agentenv/store/doc"
	"agentenv/task"
)

func (a *App) runsShow() *cobra.Command {
	var asJSON, times, follow bool
	cmd := &cobra.Command{Use: "show INSTANCE", Short: "Show one run: its steps, scores, failures and sandboxes", Args: cobra.ExactArgs(1),
		Long: "Shows a run as far as it has come. `agent-env task get-instance --json` prints the whole record.",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.with(cmd, func(ctx context.Context, s *Services) error {
				if follow {
					out := a.Stdout
					if asJSON {
						out = a.Stderr
					}
					if err := followRun(ctx, s, args[0], out); err != nil {
						return err
					}
					fmt.Fprintln(out)
				}
				v, err := viewRun(ctx, s, args[0])
				if err != nil {
					return err
				}
				switch {
				case asJSON && times:
					return a.printJSON(v.document(s).Set("time", v.spent().document()))
				case asJSON:
					return a.printJSON(v.document(s))
				case times:
					return a.showTimes(v)
				}
				return a.showRun(s, v)
			})
		}}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "first say how it goes, step by step, until it ends, whichever process runs it")
	cmd.Flags().BoolVar(&times, "time", false, "show where the time of the run went")
	return cmd
}

// runView is a run with what is known of its steps.
type runView struct {
	in     *task.Instance
	rec    *runner.Record // the one that was named, else the newest; may be nil
	steps  []stepView
	scores []task.Score
	rows   []task.Row
}

type stepView struct {
	id, kind, status, ended string // status "" = it has not ended; ended is when, "" = unknown
	class                   task.Class
}

// viewRun reads a run, and its task where that is still there, for the steps that have not ended.
func viewRun(ctx context.Context, s *Services, id string) (*runView, error) {
	in, err := instance(ctx, s, id)
	if err != nil {
		return nil, err
	}
	rec, err := recordOf(ctx, s, id)
	if err != nil {
		return nil, err
	}
	rows, err := s.Instances.Journal(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	t, err := s.Tasks.Get(ctx, in.TaskID, in.TaskVersion)
	if err != nil && !fault.Is(err, fault.NotFound, fault.Invalid) {
		return nil, err
	}
	if t != nil {
		if seeded, err := s.Registry.Substitute(t, in.Context.Obj("metadata").Obj("seed")); err == nil {
			t = seeded
		}
	}
	v := &runView{in: in, rec: rec, rows: rows, scores: task.Scores(t, in.Context)}
	ended := map[string]string{}
	for _, row := range rows {
		ended[row.StepID] = row.RecordedAt
	}
	known := map[string]bool{}
	for _, c := range in.Completed {
		known[c.StepID] = true
		v.steps = append(v.steps, stepView{id: c.StepID, kind: kindOf(t, c.StepID), status: c.Status, class: c.Class, ended: ended[c.StepID]})
	}
	if t != nil {
		for _, step := range t.Steps {
			if !known[step.ID] {
				v.steps = append(v.steps, stepView{id: step.ID, kind: step.Type})
			}
		}
	}
	return v, nil
}

func kindOf(t *task.Task, id string) string {
	if t != nil {
		for _, s := range t.Steps {
			if s.ID == id {
				return s.Type
			}
		}
	}
	return ""
}

// after is how long after the run's beginning a step ended, "" when that is not known.
func (v *runView) after(ended string) string {
	began, err := time.Parse(time.RFC3339Nano, v.in.Document.Str("created_at_precise_utc"))
	if err != nil {
		return ""
	}
	at, err := time.Parse(time.RFC3339Nano, ended)
	if err != nil {
		return ""
	}
	return fmt.Sprintf("%.1f s", at.Sub(began).Seconds())
}

func (a *App) showRun(s *Services, v *runView) error {
	in := v.in
	status := statusOf(s, in)
	if in.Class != "" {
		status += ", " + string(in.Class)
	}
	fmt.Fprintf(a.Stdout, "%s: %s\nTask %s v%d, began %s", in.ID, status, in.TaskID, in.TaskVersion, in.CreatedAt)
	if took := v.after(in.Document.Str("ended_at_precise_utc")); took != "" {
		fmt.Fprintf(a.Stdout, ", took %s", took)
	}
	fmt.Fprintln(a.Stdout)
	if in.Error != "" {
		fmt.Fprintf(a.Stdout, "Error: %s\n", in.Error)
	}
	w := tabwriter.NewWriter(a.Stdout, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "\nSTEP\tTYPE\tSTATUS\tCLASS\tENDED AFTER")
	for _, step := range v.steps {
		if step.status == "" {
			step.status = "not ended"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", step.id, step.kind, step.status, step.class, v.after(step.ended))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	section := func(title string, n int, line func(i int) string) {
		if n > 0 {
			fmt.Fprintf(a.Stdout, "\n%s:\n", title)
		}
		for i := range n {
			fmt.Fprintf(a.Stdout, "  %s\n", line(i))
		}
	}
	section("Scores", len(v.scores), func(i int) string { return fmt.Sprintf("%s: %g", v.scores[i].Label, v.scores[i].Value) })
	failures := task.Failures(in.Context)
	section("Failures", len(failures), func(i int) string {
		f := failures[i]
		line := f.StepID + ": " + f.ErrorType + ": " + brief(firstLine(f.Error), 200)
		if f.Retried {
			line += " (tried again)"
		}
		return line
	})
	boxes := task.Sandboxes(in.Context)
	section("Sandboxes", len(boxes), func(i int) string { return fmt.Sprintf("%s  %s  %s", boxes[i].Name, boxes[i].ID, boxes[i].Mode) })
	return nil
}

func (v *runView) document(s *Services) *doc.Object {
	steps, scores, failures, boxes := []any{}, []any{}, []any{}, []any{}
	for _, step := range v.steps {
		steps = append(steps, doc.Of("step_id", step.id, "type", null(step.kind), "status", null(step.status), "outcome_class", null(string(step.class)), "ended_at", null(step.ended)))
	}
	for _, score := range v.scores {
		scores = append(scores, doc.Of("step", score.Label, "value", doc.Float(score.Value)))
	}
	for _, f := range task.Failures(v.in.Context) {
		failures = append(failures, doc.Of("step", f.StepID, "type", f.StepType, "error", f.Error, "error_class", f.ErrorType, "fatal", f.Fatal, "retried", f.Retried))
	}
	for _, b := range task.Sandboxes(v.in.Context) {
		boxes = append(boxes, doc.Of("name", b.Name, "id", b.ID, "mode", b.Mode, "provider", null(b.Type)))
	}
	return runDocument(s, v.in, v.rec).Set("steps", steps).Set("scores", scores).Set("failures", failures).Set("sandboxes", boxes)
}
