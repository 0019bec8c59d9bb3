package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"agentenv/fault"
	"agentenv/sandbox"
	"agentenv/store/doc"
)

// removalsAtOnce is how many dead sandboxes prune removes at a time.
const removalsAtOnce = 8

func (a *App) sandboxCommand() *cobra.Command {
	var asJSON, yes bool
	list := &cobra.Command{Use: "list", Short: "List the sandboxes that are up, or that the ledger takes for up", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.with(cmd, func(ctx context.Context, s *Services) error { return a.listSandboxes(ctx, s, asJSON) })
		}}
	list.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	prune := &cobra.Command{Use: "prune", Short: "Remove sandboxes whose run is gone or whose time to live has passed",
		Long: "Shows what would be removed and asks. Only what carries our labels, or stands in our ledger, is ever removed: never something that merely has a similar name.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.with(cmd, func(ctx context.Context, s *Services) error { return a.prune(ctx, s, yes) })
		}}
	prune.Flags().BoolVarP(&yes, "yes", "y", false, "remove without asking (needed when standard input is no terminal)")
	return newGroup("sandbox", "Sandboxes that runs have made", list, prune)
}

func (a *App) listSandboxes(ctx context.Context, s *Services, asJSON bool) error {
	items, problems, err := s.Sandboxes.List(ctx, s.StateMark)
	if err != nil {
		return err
	}
	a.report(problems)
	if asJSON {
		out := []any{}
		for _, l := range items {
			out = append(out, listedDocument(l))
		}
		return a.printJSON(doc.Of("sandboxes", out))
	}
	if len(items) == 0 {
		fmt.Fprintln(a.Stdout, "No sandboxes.")
		return nil
	}
	w := tabwriter.NewWriter(a.Stdout, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "ID\tPROVIDER\tSTATE\tAGE\tEXPIRES\tOWNER\tRUN")
	for _, l := range items {
		d := describe(l)
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", l.ID, d.provider, d.state, since(d.created), until(d.expires), d.owner, d.run)
	}
	return w.Flush()
}

// report prints what could not be asked.
func (a *App) report(problems []error) {
	for _, p := range problems {
		fmt.Fprintf(a.Stderr, "not asked: %s\n", p)
	}
}

type description struct {
	provider, state, owner, run string
	created, expires            time.Time
}

func describe(l sandbox.Listed) description {
	var d description
	if r := l.Row; r != nil {
		d = description{provider: r.Type, state: string(r.State), run: r.Owner.Instance, created: r.CreatedAt, expires: r.ExpiresAt}
		d.owner = r.Process.String()
		if !l.OwnerAlive {
			d.owner += " (gone)"
		}
	}
	for _, f := range l.Found {
		if l.Row == nil {
			d = description{provider: f.Provider, state: f.State, run: f.Instance, created: f.CreatedAt, expires: f.ExpiresAt, owner: "not in this ledger"}
			if f.SandboxID == "" {
				d.owner = "shared"
			}
		} else if f.Kind == "container" && f.State != "" {
			d.state = f.State
		}
	}
	return d
}

func listedDocument(l sandbox.Listed) *doc.Object {
	d := describe(l)
	found := []any{}
	for _, f := range l.Found {
		found = append(found, doc.Of("kind", f.Kind, "ref", f.Ref, "name", f.Name, "state", f.State))
	}
	return doc.Of("id", l.ID, "provider", d.provider, "state", d.state, "instance", d.run, "created_at_utc", isoOrNull(d.created),
		"expires_at_utc", isoOrNull(d.expires), "owner", d.owner, "owner_alive", l.OwnerAlive, "found", found)
}

func isoOrNull(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UTC().Format(time.RFC3339)
}

func since(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return span(time.Since(t))
}

func until(t time.Time) string {
	switch left := time.Until(t); {
	case t.IsZero():
		return "-"
	case left < 0:
		return span(-left) + " ago"
	default:
		return "in " + span(left)
	}
}

func span(d time.Duration) string {
	switch {
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

func (a *App) prune(ctx context.Context, s *Services, yes bool) error {
	doomed, problems, err := s.Sandboxes.Prune(ctx, s.StateMark)
	if err != nil {
		return err
	}
	a.report(problems)
	if len(doomed) == 0 {
		fmt.Fprintln(a.Stdout, "Nothing to remove.")
		if len(problems) > 0 {
			return exit(exitError)
		}
		return nil
	}
	for _, d := range doomed {
		fmt.Fprintf(a.Stdout, "%s: %s%s\n", d.ID, d.Why, behind(d))
	}
	if !yes {
		if !a.StdinTerminal {
			return fault.New(fault.Invalid, "nothing was removed: standard input is no terminal to ask at; say --yes to remove what is listed")
		}
		if !a.confirm(ctx, fmt.Sprintf("Remove %s?", plural(len(doomed), "entry", "entries"))) {
			fmt.Fprintln(a.Stdout, "Nothing was removed.")
			return exit(exitError)
		}
	}
	errs := make([]error, len(doomed))
	turns := make(chan struct{}, removalsAtOnce)
	var wg sync.WaitGroup
	for i, d := range doomed {
		wg.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			errs[i] = s.Sandboxes.Remove(ctx, d)
		})
	}
	wg.Wait()
	removed := 0
	for i, err := range errs {
		switch {
		case err == nil:
			removed++
		case fault.Is(err, fault.Conflict):
			fmt.Fprintf(a.Stdout, "%s\n", err)
			errs[i] = nil
		}
	}
	fmt.Fprintf(a.Stdout, "Removed %d.\n", removed)
	return errors.Join(errs...)
}

func behind(d sandbox.Doomed) string {
	var names []string
	for _, f := range d.Found {
		names = append(names, f.Kind+" "+f.Name)
	}
	if len(names) == 0 {
		return ""
	}
	return " (" + strings.Join(names, ", ") + ")"
}

// confirm asks a yes-or-no question; anything but a yes is a no.
func (a *App) confirm(ctx context.Context, question string) bool {
	fmt.Fprintf(a.Stdout, "%s [y/N] ", question)
	answer := make(chan string, 1)
	go func() { // nothing can end a read of a terminal, so it is left to end with the process
		line, _ := bufio.NewReader(a.Stdin).ReadString('\n')
		answer <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case <-ctx.Done():
		return false
	case said := <-answer:
		return said == "y" || said == "yes"
	}
}

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
