package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"agentenv/store/doc"
)

func (a *App) doctorCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{Use: "doctor", Short: "Check what this machine has and lacks for running tasks, and say what to do", Args: cobra.NoArgs,
		Long: "Looks at the container engine, the registry, the disk, the state folder and each sandbox provider. Exits 1 when something every task needs is lacking.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.with(cmd, func(ctx context.Context, s *Services) error { return a.examine(ctx, s, asJSON) })
		}}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	return cmd
}

func (a *App) examine(ctx context.Context, s *Services, asJSON bool) error {
	broken := false
	out := []any{}
	for _, c := range s.Checks {
		f := c.Look(ctx)
		if ctx.Err() != nil {
			return context.Cause(ctx) // what a look that was broken off found says nothing
		}
		state := "ok"
		switch {
		case len(f.Lacks) > 0 && f.Needed:
			state, broken = "lacking", true
		case len(f.Lacks) > 0:
			state = "note"
		}
		lacks := []any{}
		for _, l := range f.Lacks {
			lacks = append(lacks, doc.Of("what", l.What, "remedy", l.Remedy))
		}
		out = append(out, doc.Of("name", c.Name, "state", state, "detail", f.Detail, "lacks", lacks))
		if asJSON {
			continue
		}
		fmt.Fprintf(a.Stdout, "%-8s %s: %s\n", state, c.Name, f.Detail)
		for _, l := range f.Lacks {
			fmt.Fprintf(a.Stdout, "         - %s\n           do: %s\n", l.What, l.Remedy)
		}
	}
	if asJSON {
		if err := a.printJSON(doc.Of("checks", out, "ok", !broken)); err != nil {
			return err
		}
	}
	if broken {
		return exit(exitError)
	}
	return nil
}
