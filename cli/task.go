package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"agentenv/fault"
	"agentenv/store/doc"
	"agentenv/task"
)

func (a *App) taskCommand() *cobra.Command {
	return newGroup("task", "Stored tasks and the records of their runs", a.taskCreate(), a.taskGet(), a.taskValidate(), a.taskGetInstance(), a.taskRun(), a.taskRunBatch(), a.taskResume(), a.taskVerify())
}

func (a *App) taskCreate() *cobra.Command {
	var id string
	var skip bool
	cmd := &cobra.Command{Use: "create FILE", Short: "Store a task from a JSON file of steps", Args: cobra.ExactArgs(1), RunE: func(cmd *cobra.Command, args []string) error {
		if err := needFile(cmd, args[0]); err != nil {
			return err
		}
		return a.with(cmd, func(ctx context.Context, s *Services) error { return a.createTask(ctx, s, id, args[0], skip) })
	}}
	cmd.Flags().StringVar(&id, "id", "", "id of the task (required)")
	cmd.Flags().BoolVar(&skip, "skip-validation", false, "store it although preflight found problems")
	_ = cmd.MarkFlagRequired("id")
	return cmd
}

func (a *App) createTask(ctx context.Context, s *Services, id, file string, skip bool) error {
	text, err := readLimited(file, task.MaxTaskBytes)
	if err != nil {
		return err
	}
	fmt.Fprintf(a.Stdout, "Reading steps from %s...\n", file)
	t, err := s.Registry.ParseText(id, text, task.ParseOptions{Where: file, Strict: true})
	if err != nil {
		return err
	}
	if problems := task.Preflight(ctx, t); len(problems) > 0 {
		fmt.Fprintf(a.Stderr, "Preflight found %d problem(s):\n", len(problems))
		for _, p := range problems {
			fmt.Fprintf(a.Stderr, "  - %s\n", p)
		}
		if !skip {
			return fault.New(fault.Invalid, "nothing was stored; mend the problems, or say --skip-validation")
		}
		fmt.Fprintln(a.Stderr, "Saving anyway (--skip-validation).")
	}
	stored, err := s.Tasks.Create(ctx, t)
	if err != nil {
		return err
	}
	for i, step := range stored.Steps {
		fmt.Fprintf(a.Stdout, "  Step %d/%d: %s id=%s version=%d\n", i+1, len(stored.Steps), step.Type, step.ID, step.Version)
	}
	fmt.Fprintf(a.Stdout, "Creating task '%s' with %d steps...\nCreated task: id=%s version=%d steps=%d\n", stored.ID, len(stored.Steps), stored.ID, stored.Version, len(stored.Steps))
	return nil
}

// readLimited reads a regular file of at most limit bytes.
func readLimited(file string, limit int64) ([]byte, error) {
	info, err := os.Stat(file)
	if err != nil {
		return nil, fault.Wrap(fault.KindOf(err), fault.Reason(err), "%s cannot be read", file)
	}
	if !info.Mode().IsRegular() {
		return nil, fault.New(fault.Invalid, "%s is no regular file", file)
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, fault.Wrap(fault.KindOf(err), fault.Reason(err), "%s cannot be read", file)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(text)) > limit {
		err = fault.New(fault.Invalid, "%s is larger than %d MiB", file, limit>>20)
	}
	return text, err
}

// taskFlags are the flags that name a stored task.
func taskFlags(cmd *cobra.Command, id *string, version *int64) *cobra.Command {
	cmd.Flags().StringVar(id, "id", "", "id of the task (required)")
	cmd.Flags().Int64Var(version, "version", 0, "version (the latest when not given)")
	_ = cmd.MarkFlagRequired("id")
	return cmd
}

func (a *App) taskGet() *cobra.Command {
	var id string
	var version int64
	return taskFlags(a.command("get", "Print a task's steps as JSON", func(ctx context.Context, s *Services) error {
		d, err := s.Tasks.Document(ctx, id, version)
		if err != nil {
			return err
		}
		steps := d.Value("steps")
		if steps == nil {
			steps = []any{}
		}
		return a.printJSON(steps)
	}), &id, &version)
}

func (a *App) taskValidate() *cobra.Command {
	var id string
	var version int64
	return taskFlags(a.command("validate", "Check a stored task without running it", func(ctx context.Context, s *Services) error {
		t, err := s.Tasks.Get(ctx, id, version)
		if err != nil {
			return err
		}
		problems := task.Preflight(ctx, t)
		for _, p := range problems {
			fmt.Fprintf(a.Stderr, "  %s\n", p)
		}
		if len(problems) > 0 {
			return fault.New(fault.Invalid, "task %s version=%d has %s", t.ID, t.Version, plural(len(problems), "problem", "problems"))
		}
		checked := 0
		for _, step := range t.Steps {
			if step.Kind.Preflight != nil { // checks of the fields alone do not count
				checked++
			}
		}
		fmt.Fprintf(a.Stdout, "Task %s version=%d: %d of %d steps have preflight checks, none found a problem.\n%s\n", t.ID, t.Version, checked, len(t.Steps), limitsLine(t))
		if later := task.Supported(t); len(later) > 0 {
			fmt.Fprintln(a.Stdout, "This version of agent-env cannot run it:")
			for _, l := range later {
				fmt.Fprintln(a.Stdout, "  "+l)
			}
		}
		return nil
	}), &id, &version)
}

// limitsLine says what a task limits, under the names that its document has for it.
func limitsLine(t *task.Task) string {
	var limits, timeouts []string
	if t.MaxParallelSteps > 0 {
		limits = append(limits, fmt.Sprintf("max_parallel_steps %d", t.MaxParallelSteps))
	}
	if t.FailFast {
		limits = append(limits, "fail_fast true")
	}
	for _, step := range t.Steps {
		if step.Timeout > 0 {
			timeouts = append(timeouts, fmt.Sprintf("%s %g", step.ID, step.Timeout.Seconds()))
		}
	}
	if len(timeouts) > 0 {
		limits = append(limits, "step_timeout_seconds of "+strings.Join(timeouts, ", "))
	}
	if len(limits) == 0 {
		return "Limits: none"
	}
	return "Limits: " + strings.Join(limits, "; ")
}

func (a *App) taskGetInstance() *cobra.Command {
	var id string
	var asJSON bool
	cmd := a.command("get-instance", "Print the record of a run", func(ctx context.Context, s *Services) error {
		in, err := instance(ctx, s, id)
		if err != nil {
			return err
		}
		if asJSON {
			return a.printJSON(task.Shown(in.Document))
		}
		return a.printInstance(in)
	})
	cmd.Flags().StringVar(&id, "id", "", "id of the run's instance (required)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the stored document")
	_ = cmd.MarkFlagRequired("id")
	return cmd
}

func (a *App) printInstance(in *task.Instance) error {
	line := func(label, value string) {
		if value != "" {
			fmt.Fprintf(a.Stdout, "%s %s\n", label, value)
		}
	}
	line("Instance ID:", in.ID)
	line("Task ID:", in.TaskID)
	line("Task Version:", fmt.Sprint(in.TaskVersion))
	line("Status:", in.Status)
	line("Progress:", fmt.Sprintf("%d/%d", in.CurrentStep, in.TotalSteps))
	line("Created At (UTC):", in.CreatedAt)
	line("Completed At (UTC):", in.CompletedAt)
	line("Error:", in.Error)
	if in.Context == nil {
		return nil
	}
	text, err := doc.MarshalIndent(task.Shown(in.Context))
	if err != nil {
		return err
	}
	line("Context:", string(text))
	return nil
}
