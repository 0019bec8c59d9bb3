package cli

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"agentenv/store/doc"
	"agentenv/task"
)

func (a *App) runsDiff() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{Use: "diff INSTANCE INSTANCE", Short: "Compare two runs: outcome, steps, scores, failures and what they were given", Args: cobra.ExactArgs(2),
		Long: "Compares two runs line by line and marks with * what differs. Times are shown and never count as a difference. " +
			"Keys of context.metadata that differ are named, but for those that name a run.",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.with(cmd, func(ctx context.Context, s *Services) error {
				one, err := viewRun(ctx, s, args[0])
				if err != nil {
					return err
				}
				other, err := viewRun(ctx, s, args[1])
				if err != nil {
					return err
				}
				d := diffRuns(s, one, other)
				if asJSON {
					return a.printJSON(d.document())
				}
				return a.showDiff(d)
			})
		}}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	return cmd
}

// runDiff is what two runs have in common and what not.
type runDiff struct {
	runs     [2]*runView
	facts    []pair // of the runs as wholes
	steps    []pair
	scores   []pair
	failures []pair
	metadata []string // keys with unlike values
}

// pair is one thing in both runs; "" stands for one that a run does not have.
type pair struct {
	name  string
	in    [2]string
	notes [2]string // shown beside, and never a difference
}

func (p pair) same() bool { return p.in[0] == p.in[1] }

// volatile are the keys of context.metadata that name a run, or that the other parts show.
var volatile = []string{"run_group_id", "workflow_id", "instance_id", "runner", "verifications", "failed_steps", "torn_down_sandbox_ids"}

func diffRuns(s *Services, one, other *runView) *runDiff {
	d := &runDiff{runs: [2]*runView{one, other}}
	fact := func(name string, of func(*runView) string) {
		d.facts = append(d.facts, pair{name: name, in: [2]string{of(one), of(other)}})
	}
	fact("task", func(v *runView) string { return v.in.TaskID })
	fact("version", func(v *runView) string { return strconv.FormatInt(v.in.TaskVersion, 10) })
	fact("status", func(v *runView) string { return statusOf(s, v.in) })
	fact("class", func(v *runView) string { return string(v.in.Class) })
	fact("error", func(v *runView) string { return firstLine(v.in.Error) })
	for i, v := range d.runs {
		for _, step := range v.steps {
			p := entry(&d.steps, step.id)
			p.in[i], p.notes[i] = strings.TrimSpace(step.status+" "+string(step.class)), v.after(step.ended)
		}
		for _, score := range v.scores {
			entry(&d.scores, score.Label).in[i] = strconv.FormatFloat(score.Value, 'g', -1, 64)
		}
		for _, f := range task.Failures(v.in.Context) {
			p := entry(&d.failures, f.StepID)
			p.in[i] = strings.TrimPrefix(p.in[i]+"; "+f.ErrorType+": "+firstLine(f.Error), "; ")
		}
	}
	a, b := one.in.Context.Obj("metadata"), other.in.Context.Obj("metadata")
	for _, k := range slices.Concat(a.Keys(), b.Keys()) {
		if !slices.Contains(volatile, k) && !slices.Contains(d.metadata, k) && !doc.Equal(a.Value(k), b.Value(k)) {
			d.metadata = append(d.metadata, k)
		}
	}
	slices.Sort(d.metadata)
	return d
}

// entry returns the pair of a name, a new one at the end when there is none.
func entry(pairs *[]pair, name string) *pair {
	i := slices.IndexFunc(*pairs, func(p pair) bool { return p.name == name })
	if i < 0 {
		*pairs = append(*pairs, pair{name: name})
		i = len(*pairs) - 1
	}
	return &(*pairs)[i]
}

func (d *runDiff) same() bool {
	differs := func(p pair) bool { return !p.same() }
	return len(d.metadata) == 0 && !slices.ContainsFunc(slices.Concat(d.facts, d.steps, d.scores, d.failures), differs)
}

func (a *App) showDiff(d *runDiff) error {
	w := tabwriter.NewWriter(a.Stdout, 0, 4, 2, ' ', 0)
	fmt.Fprintf(w, "\tRUN\t%s\t%s\n", d.runs[0].in.ID, d.runs[1].in.ID)
	took := func(v *runView) string { return v.after(v.in.Document.Str("ended_at_precise_utc")) }
	fmt.Fprintf(w, "\ttook\t%s\t%s\n", took(d.runs[0]), took(d.runs[1]))
	for _, part := range []struct {
		title string
		pairs []pair
	}{{"", d.facts}, {"step ", d.steps}, {"score ", d.scores}, {"failure ", d.failures}} {
		for _, p := range part.pairs {
			mark := ""
			if !p.same() {
				mark = "*"
			}
			var cells [2]string
			for i := range cells {
				if cells[i] = brief(p.in[i], 60); cells[i] == "" {
					cells[i] = "–"
				}
				if p.notes[i] != "" {
					cells[i] += ", " + p.notes[i]
				}
			}
			if p.in[0]+p.in[1] != "" {
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", mark, part.title+p.name, cells[0], cells[1])
			}
		}
	}
	if len(d.metadata) > 0 {
		fmt.Fprintf(w, "*\tmetadata\t%s\t\n", strings.Join(d.metadata, ", "))
	}
	if d.same() {
		fmt.Fprintln(w, "\nThe runs are alike.")
	}
	return w.Flush()
}

func (d *runDiff) document() *doc.Object {
	list := func(pairs []pair) []any {
		out := []any{}
		for _, p := range pairs {
			out = append(out, doc.Of("name", p.name, "a", null(p.in[0]), "b", null(p.in[1]), "same", p.same()))
		}
		return out
	}
	return doc.Of("a", d.runs[0].in.ID, "b", d.runs[1].in.ID, "same", d.same(), "facts", list(d.facts), "steps", list(d.steps),
		"scores", list(d.scores), "failures", list(d.failures), "metadata", doc.MustFrom(append([]string{}, d.metadata...)))
}
