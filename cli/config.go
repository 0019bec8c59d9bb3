package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"agentenv/config"
	"agentenv/store/doc"
)

func (a *App) configCommand() *cobra.Command {
	const terms = "Reads the file and the environment only: no store is built, nothing is created, and secrets are never printed."
	return newGroup("config", "What is configured, and where it comes from",
		a.configReport("show", "Show the config file in use and what every section resolves to", terms, func(c *config.Config, _ []string) (*doc.Object, string) {
			r := c.Show()
			return r.JSON(), r.Text()
		}),
		a.configReport("explain PATH", "Show where the value of one section or key comes from", "PATH is the name of a section or a TOML path: document and stores.document are the same. "+terms,
			func(c *config.Config, args []string) (*doc.Object, string) {
				e := c.Explain(args[0])
				return e.JSON(), e.Text()
			}),
		a.configReport("sources", "List every place settings come from, lowest precedence first", terms, func(c *config.Config, _ []string) (*doc.Object, string) {
			s := c.Sources()
			return config.SourcesJSON(s), config.SourcesText(s)
		}),
		a.configReport("debug", "List where the config file is looked for, and whether it is there", terms, func(c *config.Config, _ []string) (*doc.Object, string) {
			d := c.Debug()
			return config.DebugJSON(d), config.DebugText(d)
		}),
		a.configCheckCommand(),
	)
}

// configReport is a command that prints one report. It exits 0 even when the file is broken: the report says so.
func (a *App) configReport(use, short, long string, report func(c *config.Config, args []string) (*doc.Object, string)) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{Use: use, Short: short, Long: long, Args: cobra.NoArgs,
		RunE: func(_ *cobra.Command, args []string) error {
			object, text := report(a.Config(), args)
			if asJSON {
				return a.printJSON(object)
			}
			_, err := fmt.Fprint(a.Stdout, text)
			return err
		}}
	if cmd.Name() != use { // it takes an argument
		cmd.Args = cobra.ExactArgs(1)
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	return cmd
}

func (a *App) configCheckCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{Use: "check", Short: "Check the configuration; exits 1 when there is anything to mend", Args: cobra.NoArgs,
		Long: "Lists what is wrong with the configuration, warnings included, and exits 1 when there is anything. Nothing is built, and references are not resolved.",
		RunE: func(*cobra.Command, []string) error { return a.checkConfig(asJSON) }}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	return cmd
}

func (a *App) checkConfig(asJSON bool) error {
	c := a.Config()
	problems := c.Check()
	list := []any{}
	for _, p := range problems {
		kind := "error"
		if p.Warning {
			kind = "warning"
		}
		list = append(list, doc.Of("kind", kind, "section", p.Section, "text", p.Text))
		if !asJSON {
			if p.Section != "" {
				kind += " " + p.Section
			}
			fmt.Fprintf(a.Stdout, "%s: %s\n", kind, p.Text)
		}
	}
	switch {
	case asJSON:
		if err := a.printJSON(doc.Of("ok", len(problems) == 0, "problems", list)); err != nil {
			return err
		}
	case len(problems) == 0 && c.Path() == "":
		fmt.Fprintln(a.Stdout, "ok: no config file; the built-in defaults hold")
	case len(problems) == 0:
		fmt.Fprintf(a.Stdout, "ok: %s\n", c.Path())
	}
	if len(problems) > 0 {
		return exit(exitError)
	}
	return nil
}
