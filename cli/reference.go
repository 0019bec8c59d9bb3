package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"agentenv/store/doc"
	"agentenv/task"
)

// WriteCommands writes the reference of all commands and options as Markdown, from the commands themselves.
func (a *App) WriteCommands(w io.Writer) error {
	root := a.root()
	root.InitDefaultCompletionCmd()
	var b strings.Builder
	b.WriteString("# Commands\n\nGenerated from the program; `agent-env COMMAND --help` shows the same.\n\n")
	b.WriteString("Options before and after a command: `-v`, `--verbose` logs what is done on standard error. `--help` works everywhere. `--trace FILE` writes the trace of what is done to a file (docs/tracing.md).\n\n")
	b.WriteString("| Exit code | Meaning |\n|---|---|\n| 0 | success; `run` also exits 0 when scores are below 1 |\n| 1 | an error, a failed run, a failed check, a refused change |\n" +
		"| 2 | not a command: unknown command or option, a missing one, a value out of range, a file or folder that an option or FILE names and that is not there (a BUNDLE that is not there: 1) |\n| 129, 130, 143 | ended by SIGHUP, Ctrl-C, SIGTERM |\n\n")
	b.WriteString("Errors are one line, `Error: …`, on standard error (several for several problems of a bundle, and the output of a failed build); a usage error shows the usage before it. Colour and live progress appear only on a terminal.\n")
	writeCommand(&b, root)
	_, err := io.WriteString(w, b.String())
	return err
}

func writeCommand(b *strings.Builder, cmd *cobra.Command) {
	for _, c := range cmd.Commands() {
		if c.Hidden || c.Name() == "help" {
			continue
		}
		if c.HasSubCommands() {
			writeCommand(b, c)
			continue
		}
		fmt.Fprintf(b, "\n## %s\n\n%s.\n", c.CommandPath(), strings.TrimSuffix(c.Short, "."))
		if c.Long != "" && c.Parent().Name() != "completion" {
			fmt.Fprintf(b, "%s\n", c.Long)
		}
		fmt.Fprintf(b, "\n    %s\n", c.UseLine())
		if c.Name() != "" && c.Parent().Name() == "completion" {
			fmt.Fprintf(b, "\n`agent-env completion %s --help` says how to install it.\n", c.Name())
		}
		var rows []string
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if f.Name != "help" && !f.Hidden {
				rows = append(rows, flagRow(f))
			}
		})
		if len(rows) > 0 {
			fmt.Fprintf(b, "\n| Option | Meaning |\n|---|---|\n%s", strings.Join(rows, ""))
		}
	}
}

func flagRow(f *pflag.Flag) string {
	name := "`--" + f.Name + "`"
	if f.Shorthand != "" {
		name = "`-" + f.Shorthand + "`, " + name
	}
	text := f.Usage
	def := f.DefValue
	// A default that depends on the machine has no place in a page.
	if f.Name == "jobs" {
		def = "4 a core, at least 4"
	}
	if !slices.Contains([]string{"", "false", "[]", "0"}, def) {
		text += " (default " + def + ")"
	}
	return fmt.Sprintf("| %s | %s |\n", name, strings.ReplaceAll(text, "|", `\|`))
}

// WriteSteps writes the reference of all kinds of step as Markdown, from the registry.
func WriteSteps(w io.Writer, reg *task.Registry) error {
	var b strings.Builder
	b.WriteString("# Steps\n\nGenerated from the program; `agent-env steps show TYPE` shows the same, `agent-env steps schema` prints a JSON Schema for editors.\n\n")
	b.WriteString(baseFieldsText)
	for _, t := range reg.All() {
		if t.Pending {
			continue
		}
		fmt.Fprintf(&b, "\n## %s\n\n%s.\n\n", t.Name, t.Summary)
		if t.Doc != "" {
			fmt.Fprintf(&b, "%s\n\n", t.Doc)
		}
		b.WriteString("| Field | Type | Default | Meaning |\n|---|---|---|---|\n")
		for _, f := range t.Fields {
			def := "–"
			switch {
			case f.Required:
				def = "required"
			case f.Default != nil:
				def = "`" + doc.Canonical(f.Default) + "`"
			}
			kind := string(f.Kind)
			if f.Items != "" && f.Items != task.Any {
				kind += " of " + string(f.Items)
			}
			if len(f.Enum) > 0 {
				kind = "`" + strings.Join(f.Enum, "` \\| `") + "`"
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", f.Name, kind, def, strings.ReplaceAll(f.Doc, "|", `\|`))
		}
		if !t.FailsTask {
			b.WriteString("\n`fail_task_on_error` is false for this step.\n")
		}
	}
	b.WriteString("\n## Not supported yet\n\nTasks with these can be stored and read; a run of one is refused before anything is deployed.\n\n")
	for _, t := range reg.All() {
		if t.Pending {
			fmt.Fprintf(&b, "- `%s`: %s\n", t.Name, t.Summary)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

const baseFieldsText = `Every step has these fields:

| Field | Type | Default | Meaning |
|---|---|---|---|
| ` + "`id`" + ` | string | required | name of the step, unique in the task |
| ` + "`type`" + ` | string | required | kind of step |
| ` + "`depends_on`" + ` | list | every earlier step | ids of steps that come before (` + "`\"a\"` or `{\"task_step_id\": \"a\"}`" + `); ` + "`[]`" + ` means none. Steps that do not wait for each other run at the same time |
| ` + "`fail_task_on_error`" + ` | boolean | true | false: a failure is recorded and the run goes on; the outcome of ` + "`agent-env run`" + ` is still ` + "`failed`" + ` |
| ` + "`step_timeout_seconds`" + ` | number | none | ends the step after that long (ours: the reference ignores it in bundles and stored tasks, and its ` + "`task create`" + ` refuses unknown step keys) |
| ` + "`retry_config`" + ` | object | none | what happens when the step fails: the run goes back and tries again; see [Retries](retries.md) |
| ` + "`metadata`" + ` | object | ` + "`{}`" + ` | where the kind of step has it |

A task file is a JSON array of steps, or (ours) an object with the array under ` + "`steps`" + ` and beside it ` + "`max_parallel_steps`" + ` (how many steps of a run go on at once; 0 = no limit) and ` +
	"`fail_fast`" + ` (a failure that fails the task cancels the steps still running).

Placeholders ` + "`<name>`" + ` in any string of a step are replaced by the value of ` + "`name`" + ` in the run's seed; runs of a bundle have no seed, those of ` + "`agent-env task run-batch`" + ` have a row of a table each.
`
