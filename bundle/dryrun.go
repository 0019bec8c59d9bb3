package bundle

import (
	"context"
	"fmt"
	"strings"

	"agentenv/artifact"
	"agentenv/store/doc"
)

const dryRunLine = "Dry run: nothing is written or run."

// DryRun says what Materialize would write, at which versions and why, and what would run. It reads the stores and writes nothing.
func (p *Plan) DryRun(ctx context.Context) (string, error) {
	l := newLedger(ctx, p.p.Deps)
	var b strings.Builder
	fmt.Fprintln(&b, dryRunLine)
	for _, line := range p.nameLines() {
		fmt.Fprintln(&b, line)
	}
	for _, list := range [][]*entry{p.entries, p.tasks, p.evals} {
		for _, en := range list {
			in, err := p.inputsOf(ctx, en)
			if err != nil {
				return "", err
			}
			if err := p.decide(ctx, l, en, in); err != nil {
				return "", err
			}
			fmt.Fprintln(&b, en.line())
		}
	}
	unchecked, err := p.preflightUnwritten(ctx)
	if err != nil {
		return "", err
	}
	b.WriteByte('\n')
	p.refSection(&b)
	p.imageSection(ctx, &b)
	fmt.Fprintln(&b, "Would run:")
	for _, en := range p.tasks {
		fmt.Fprintf(&b, "  %s v%d\n", en.e.Path, en.version)
	}
	if len(p.evals) > 0 {
		fmt.Fprintln(&b, "Evals:")
		for _, en := range p.evals {
			var names []string
			for _, t := range p.members[en] {
				names = append(names, t.e.Path)
			}
			fmt.Fprintf(&b, "  %s v%d: %s\n", en.e.Path, en.version, strings.Join(names, ", "))
		}
	}
	for _, e := range p.unnamed {
		fmt.Fprintf(&b, "%s isn't named by any eval, so it wouldn't run; run it with --task %s\n", e.Path, printable(e.Name))
	}
	if len(unchecked) > 0 {
		fmt.Fprintln(&b, "Not preflighted, since each reads what the run would write first:")
		for _, s := range unchecked {
			fmt.Fprintln(&b, "  "+s)
		}
	}
	fmt.Fprintln(&b, dryRunLine)
	return b.String(), nil
}

func (p *Plan) refSection(b *strings.Builder) {
	if len(p.refs) == 0 {
		return
	}
	fmt.Fprintln(b, "Store refs:")
	for _, r := range p.refs {
		latest := ""
		if r.version == 0 {
			latest = ", the latest"
		}
		fmt.Fprintf(b, "  %s %s v%d%s\n", r.kind, printable(r.id), r.found, latest)
	}
}

func (p *Plan) imageSection(ctx context.Context, b *strings.Builder) {
	first := true
	for _, en := range p.entries {
		if en.e.Type != artifact.TypeDockerImage {
			continue
		}
		if first {
			fmt.Fprintln(b, "Images:")
			first = false
		}
		what := "a build context, which each deploy builds where it runs, for its sandbox's platform"
		switch {
		case en.context == nil:
			what = "pulled from its registry, its tag pinned to a digest when it's written"
		case en.build != nil:
			what = "built here as " + en.build.Name + " before the run"
			if p.p.Images != nil {
				if held, err := p.p.Images.Holds(ctx, en.build.Name, en.build.Sources); err == nil && held {
					what = "built here already, as " + en.build.Name
				}
			}
		}
		fmt.Fprintf(b, "  %s v%d: %s\n", en.e.Label(), en.version, what)
	}
}

// preflightUnwritten preflights the steps whose references are all stored already, and names the others that have a preflight.
func (p *Plan) preflightUnwritten(ctx context.Context) ([]string, error) {
	changes := map[string]bool{}
	for _, en := range p.entries {
		if !en.reused {
			changes[en.e.ID] = true
		}
	}
	var later []string
	var found problems
	for _, en := range p.tasks {
		for i, s := range en.r.task.Steps {
			d := en.r.steps[i].(*doc.Object)
			where := stepWhere(en.e, d)
			if s.Kind.Preflight == nil {
				continue
			}
			waits := false
			for _, pos := range references(d, s.Kind.Refs) {
				waits = waits || changes[pos.value]
			}
			if waits {
				later = append(later, where+" ("+s.Type+")")
				continue
			}
			for _, why := range s.Kind.Preflight(ctx, s) {
				found.add(where, printable(why))
			}
		}
	}
	return later, found.err()
}
