package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"agentenv/fault"
	"agentenv/store/doc"
	"agentenv/task"
)

func (a *App) stepsCommand() *cobra.Command {
	var asJSON bool
	list := &cobra.Command{Use: "list", Short: "List every kind of step", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.with(cmd, func(_ context.Context, s *Services) error { return a.listSteps(s.Registry, asJSON) })
		}}
	list.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	show := &cobra.Command{Use: "show TYPE", Short: "Show a kind of step: what it does and its fields", Args: cobra.ExactArgs(1),
		ValidArgsFunction: a.completeSteps,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.with(cmd, func(_ context.Context, s *Services) error { return a.showStep(s.Registry, args[0]) })
		}}
	schema := &cobra.Command{Use: "schema", Short: "Print the JSON Schema of task files, for editors", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.with(cmd, func(_ context.Context, s *Services) error { return a.printJSON(task.SchemaOf(s.Registry)) })
		}}
	return newGroup("steps", "The kinds of step a task is made of", list, show, schema)
}

func (a *App) printJSON(v any) error {
	text, err := doc.MarshalIndent(v)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(a.Stdout, "%s\n", text)
	return err
}

func (a *App) listSteps(reg *task.Registry, asJSON bool) error {
	if asJSON {
		var out []any
		for _, t := range reg.All() {
			out = append(out, doc.Of("type", t.Name, "family", t.Family, "summary", t.Summary, "supported", !t.Pending))
		}
		return a.printJSON(doc.Of("steps", out))
	}
	w := tabwriter.NewWriter(a.Stdout, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "TYPE\tFAMILY\tWHAT IT DOES")
	for _, pending := range []bool{false, true} {
		for _, t := range reg.All() {
			if t.Pending == pending {
				note := ""
				if pending {
					note = " (not supported yet)"
				}
				fmt.Fprintf(w, "%s\t%s\t%s%s\n", t.Name, t.Family, t.Summary, note)
			}
		}
	}
	return w.Flush()
}

func (a *App) showStep(reg *task.Registry, name string) error {
	t := reg.Get(name)
	if t == nil {
		return fault.New(fault.NotFound, "no kind of step is called %q; `agent-env steps list` shows those there are", name)
	}
	fmt.Fprintf(a.Stdout, "%s: %s\n", t.Name, t.Summary)
	if t.Pending {
		fmt.Fprintln(a.Stdout, "\nNot supported yet: tasks with it can be stored, not run. Its document is kept as it is.")
	}
	if t.Doc != "" {
		fmt.Fprintf(a.Stdout, "\n%s\n", wrap(t.Doc, 100))
	}
	fmt.Fprintln(a.Stdout, "\nFields:")
	w := tabwriter.NewWriter(a.Stdout, 0, 4, 2, ' ', 0)
	fmt.Fprintf(w, "  id\tstring, required\tname of the step, unique in the task\n")
	for _, f := range t.Fields {
		fmt.Fprintf(w, "  %s\t%s\t%s\n", f.Name, fieldType(f), f.Doc)
	}
	fmt.Fprintf(w, "  depends_on\tlist of ids\tsteps that come before; absent means every earlier step, [] none\n")
	fmt.Fprintf(w, "  fail_task_on_error\tboolean, default %t\twhether the task fails when this step does\n", t.FailsTask)
	fmt.Fprintf(w, "  retry_config\tobject\twhere a failure goes back to and tries again: retry_from_step_id, max_retries, delay_seconds (ours)\n")
	fmt.Fprintf(w, "  step_timeout_seconds\tnumber\tends the step after that long (ours)\n")
	return w.Flush()
}

func fieldType(f task.Field) string {
	s := string(f.Kind)
	if f.Items != "" && f.Items != task.Any {
		s += " of " + string(f.Items)
	}
	if len(f.Enum) > 0 {
		s = strings.Join(f.Enum, " | ")
	}
	switch {
	case f.Required:
		s += ", required"
	case f.Default != nil:
		s += ", default " + doc.Canonical(f.Default)
	}
	if f.User {
		s += ", user scope"
	}
	return s
}

// wrap breaks text into lines of at most width characters.
func wrap(text string, width int) string {
	var b strings.Builder
	n := 0
	for _, word := range strings.Fields(text) {
		if n > 0 && n+1+len(word) > width {
			b.WriteByte('\n')
			n = 0
		} else if n > 0 {
			b.WriteByte(' ')
			n++
		}
		b.WriteString(word)
		n += len(word)
	}
	return b.String()
}

func (a *App) completeSteps(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	var names []string
	_ = a.with(cmd, func(_ context.Context, s *Services) error {
		for _, t := range s.Registry.All() {
			names = append(names, t.Name+"\t"+t.Summary)
		}
		return nil
	})
	slices.Sort(names)
	return names, cobra.ShellCompDirectiveNoFileComp
}
