package cli

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"agentenv/bundle"
)

func (a *App) bundleCommand() *cobra.Command {
	var container bool
	create := &cobra.Command{Use: "new FOLDER", Short: "Make a bundle folder that runs at once, to begin from", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			template := "hello"
			if container {
				template = "container-files"
			}
			return a.with(cmd, func(_ context.Context, s *Services) error {
				files, err := s.Catalog.New(args[0], template, a.Env("HOME"))
				if err != nil {
					return err
				}
				for _, f := range files {
					fmt.Fprintf(a.Stdout, "  %s/%s\n", args[0], f)
				}
				fmt.Fprintf(a.Stdout, "Run it: agent-env run %s\n", shellWord(args[0]))
				return nil
			})
		}}
	create.Flags().BoolVar(&container, "container", false, "a task that works in a container of an image of its own (needs Docker)")
	check := &cobra.Command{Use: "check FOLDER", Short: "Check a bundle without stores, an engine or a run", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.with(cmd, func(ctx context.Context, s *Services) error {
				b, release, err := s.Catalog.Open(args[0], a.Env("HOME"))
				if err != nil {
					return err
				}
				defer release()
				for _, name := range b.Ignored {
					fmt.Fprintf(a.Stderr, "ignored: %s means nothing in a bundle\n", name)
				}
				for _, w := range bundle.Warnings(s.Registry, b) {
					fmt.Fprintf(a.Stderr, "warning: %s\n", w)
				}
				if err := bundle.Check(ctx, s.Registry, b); err != nil {
					return err
				}
				_, err = io.WriteString(a.Stdout, "No problems found.\n")
				return err
			})
		}}
	return newGroup("bundle", "Bundles: folders of tasks and what they need", create, check)
}

// shellWord quotes a word for a line that people may paste into a shell.
func shellWord(s string) string {
	if s != "" && strings.IndexFunc(s, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("/._-", r))
	}) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
