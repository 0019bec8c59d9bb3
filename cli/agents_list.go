package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"agentenv/agent"
	"agentenv/bundle"
	"agentenv/store/doc"
)

func (a *App) agentList() *cobra.Command {
	var limit int
	var asJSON bool
	cmd := a.command("list", "List the agents a task can name: those of installed bundles, then the store's, newest first", func(ctx context.Context, s *Services) error {
		l := s.Agents.list(ctx, limit)
		if asJSON {
			return a.printDocument(l.document())
		}
		return a.printAgents(l)
	})
	cmd.Flags().IntVar(&limit, "limit", 50, "how many of the store's to show at most (0 = all)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// agentList is what a task can name.
type agentList struct {
	installed []bundle.InstalledAgent
	shadowed  map[string]bool // aliases of which the store has an agent
	stored    []*agent.Agent  // without those of installed bundles
	more      int             // that the store has beside them
	failed    error           // why the store cannot be read
	refused   map[string]string
	broken    []string // what is wrong with installed bundles, a line each
	unread    int      // of them
}

// list reads the installed bundles and the store, whose failure is part of the answer.
func (g Agents) list(ctx context.Context, limit int) agentList {
	l := agentList{installed: g.Installed.Agents(), shadowed: map[string]bool{}, refused: g.Installed.AgentAliases().Refused()}
	l.unread, l.broken = g.Installed.Unreadable()
	l.stored, l.more, l.failed = g.stored(ctx, l.installed, limit)
	for _, in := range l.installed {
		for _, alias := range in.Aliases {
			version, err := g.Documents.Latest(ctx, alias)
			l.shadowed[alias] = err == nil && version > 0
		}
	}
	return l
}

// stored returns the store's agents that no installed bundle defines, at most limit (0 = all), and how many more there are.
func (g Agents) stored(ctx context.Context, installed []bundle.InstalledAgent, limit int) (list []*agent.Agent, more int, err error) {
	ask := limit
	if limit > 0 {
		ask += len(installed)
	}
	if list, err = g.Documents.List(ctx, ask); err != nil {
		return nil, 0, err
	}
	all, err := g.Documents.Count(ctx)
	if err != nil {
		return nil, 0, err
	}
	for _, in := range installed {
		version, err := g.Documents.Latest(ctx, in.ID)
		if err != nil {
			return nil, 0, err
		}
		if version > 0 {
			all--
		}
	}
	list = slices.DeleteFunc(list, func(one *agent.Agent) bool {
		return slices.ContainsFunc(installed, func(in bundle.InstalledAgent) bool { return in.ID == one.ID })
	})
	if limit == 0 {
		return list, 0, nil
	}
	list = list[:min(limit, len(list))]
	return list, max(0, all-len(list)), nil
}

// printAgents writes the list as a table, and what is to be said of it below.
func (a *App) printAgents(l agentList) error {
	w := tabwriter.NewWriter(a.Stdout, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "ID\tALIASES\tFROM")
	aliased, shadows := false, false
	for _, in := range l.installed {
		var names []string
		for _, name := range in.Aliases {
			aliased = true
			if l.shadowed[name] {
				shadows = true
				name += " (shadowed)"
			}
			names = append(names, name)
		}
		fmt.Fprintf(w, "%s\t%s\t%s %s, %s bundle\n", in.ID, strings.Join(names, ", "), in.Package, in.Version, in.Bundle)
	}
	for _, one := range l.stored {
		fmt.Fprintf(w, "%s\t\tthe store, v%d\n", lineOf(one.ID), one.Version)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	naming := "A task names an agent in a2a_agent_id by its id."
	if aliased {
		naming = "A task names an agent in a2a_agent_id by its id, or by an alias."
	}
	notes := []string{"", naming}
	if shadows {
		notes = append(notes, "A shadowed alias names the store's agent of that id.")
	}
	if l.more > 0 {
		what := "agents"
		if l.more == 1 {
			what = "agent"
		}
		notes = append(notes, fmt.Sprintf("The store has %d more %s: --limit 0 lists them all.", l.more, what))
	}
	if l.failed != nil {
		notes = append(notes, "The store cannot be read, so only the installed agents are listed: "+lineOf(l.failed.Error()))
	}
	for _, line := range l.broken {
		notes = append(notes, "An installed bundle is broken: "+line)
	}
	for _, name := range slices.Sorted(maps.Keys(l.refused)) {
		notes = append(notes, fmt.Sprintf("The alias %s names nothing: %s.", name, l.refused[name]))
	}
	for _, line := range notes {
		if _, err := fmt.Fprintln(a.Stdout, line); err != nil {
			return err
		}
	}
	return nil
}

// lineOf writes what somebody chose in one line: what breaks lines or cannot be seen is escaped.
func lineOf(s string) string {
	quoted := strconv.Quote(s)
	return strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
}

// document is the list as JSON.
func (l agentList) document() *doc.Object {
	agents := []any{}
	for _, in := range l.installed {
		names, shadowed := []any{}, []any{}
		for _, name := range in.Aliases {
			names = append(names, name)
			if l.shadowed[name] {
				shadowed = append(shadowed, name)
			}
		}
		agents = append(agents, doc.Of("id", in.ID, "source", "installed", "version", nil, "aliases", names, "shadowed_aliases", shadowed,
			"package", in.Package, "package_version", in.Version, "bundle", in.Bundle))
	}
	for _, one := range l.stored {
		agents = append(agents, doc.Of("id", one.ID, "source", "store", "version", doc.Int(one.Version), "aliases", []any{}, "shadowed_aliases", []any{},
			"package", nil, "package_version", nil, "bundle", nil))
	}
	refused := doc.Of()
	for _, name := range slices.Sorted(maps.Keys(l.refused)) {
		refused.Set(name, l.refused[name])
	}
	var failed any
	if l.failed != nil {
		failed = l.failed.Error()
	}
	return doc.Of("agents", agents, "refused_aliases", refused, "more_in_store", doc.Int(l.more), "store_error", failed, "unreadable_bundles", doc.Int(l.unread))
}
