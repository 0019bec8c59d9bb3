package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"agentenv/artifact"
	"agentenv/fault"
	"agentenv/runner"
	"agentenv/store"
	"agentenv/store/doc"
	"agentenv/task"
)

func (a *App) taskRunBatch() *cobra.Command {
	f := &launchFlags{k: 1}
	cmd := &cobra.Command{Use: "run-batch", Short: "Run a stored task once for each row of a CSV file",
		Long: "Each row is the seed of one run: every `<column>` in a text of a step is replaced by the row's value. The first row names the columns; rows without any value " +
			"are left out. A row with an id or a name gives what the run collects the id TASK__vVERSION-THAT. Otherwise as `agent-env task run`.",
		Args: cobra.NoArgs}
	fl := cmd.Flags()
	f.add(fl, "task", "that all these rows ran together")
	fl.StringVar(&f.seeds, "seeds", "", "CSV file with a row for each run (required)")
	fl.StringVar(&f.outputDir, "output-dir", "", "folder for the final contexts")
	f.filterFlags(fl)
	f.override(fl, keyOverrides...)
	f.override(fl, stateOverrides...)
	_ = cmd.MarkFlagRequired("id")
	_ = cmd.MarkFlagRequired("seeds")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if f.seeds != "" {
			if err := needFile(cmd, f.seeds); err != nil {
				return err
			}
		}
		return a.follow(cmd, f, func(ctx context.Context, s *Services, say func(string)) (*batch, error) {
			return a.taskBatch(ctx, cmd, s, f, say)
		})
	}
	return cmd
}

func (a *App) taskBatch(ctx context.Context, cmd *cobra.Command, s *Services, f *launchFlags, say func(string)) (*batch, error) {
	if err := f.check(cmd, s); err != nil {
		return nil, err
	}
	text, err := readLimited(f.seeds, maxSeedBytes)
	if err != nil {
		return nil, err
	}
	seeds, err := parseSeeds(f.seeds, text)
	if err != nil {
		return nil, err
	}
	say(fmt.Sprintf("Loaded %d seeds from %s", len(seeds), f.seeds))
	t, err := foundTask(ctx, s, f, say)
	if err != nil {
		return nil, err
	}
	if !usesColumns(s, t, seeds[0]) {
		fmt.Fprintf(a.Stderr, "warning: no step of %s uses a column of %s (%s); a text of a step uses one as `<%s>`\n", t.ID, f.seeds, strings.Join(seeds[0].Keys(), ", "), seeds[0].Keys()[0])
	}
	b := &batch{group: artifact.RandomHex(16), what: "seeds", jobs: f.jobs, detach: f.detach}
	b.again = f.repeat(cmd, "task run-batch", t.ID, t.Version) + " --group " + b.group
	meta := f.metadata(b.group, t.ID, nil, callerOf(ctx, a.Dir))
	templates := make([]template, len(seeds))
	for i, seed := range seeds {
		templates[i] = template{t, seed}
	}
	counts, err := f.repeats(ctx, s, templates, say)
	if err != nil {
		return nil, err
	}
	for i, seed := range seeds {
		where := fmt.Sprintf("seed %d", i+1)
		seeded, err := s.Registry.Substitute(t, seed)
		if err != nil {
			return nil, fault.At(err, "%s", where)
		}
		if err := runnable(seeded); err != nil {
			return nil, fault.At(err, "%s", where)
		}
		own := meta.Clone().Set("seed", seed)
		if universe := universeID(t, seed); universe != "" {
			if err := validUniverse(s, seeded, universe); err != nil {
				return nil, fault.At(err, "%s", where)
			}
			own.Set("universe_id", universe)
		}
		for range counts[i] {
			b.launches = append(b.launches, &launch{tag: fmt.Sprintf("[seed %d: %s] ", i+1, seedName(seed, i+1)), name: t.ID, number: i + 1,
				file: fileSafe(fmt.Sprintf("%s-seed%d", t.ID, i+1)), task: seeded,
				request: runner.Request{TaskID: t.ID, TaskVersion: t.Version, AgentModel: f.agentModel, AgentArtifactID: f.agentArtifact, Limits: f.limits(cmd), Metadata: own.Clone()}})
		}
	}
	if !f.detach && len(b.launches) > 0 {
		if b.contexts, err = openContexts(f.outputDir, t.ID, "batch"); err != nil {
			return nil, err
		}
		say(fmt.Sprintf("Running %d seeds with concurrency=%d...", len(b.launches), f.jobs))
	}
	return b, nil
}

// usesColumns reports whether a step of a task has a place for a value of a row.
func usesColumns(s *Services, t *task.Task, seed *doc.Object) bool {
	probe := &doc.Object{}
	for _, name := range seed.Keys() {
		probe.Set(name, "\uFFFF")
	}
	seeded, err := s.Registry.Substitute(t, probe)
	// A place that only some values fit is one.
	return err != nil || doc.Canonical(seeded.StepDocuments()) != doc.Canonical(t.StepDocuments())
}

// universeID is the id that what a row's run collects gets; "" when the row has neither an id nor a name.
func universeID(t *task.Task, seed *doc.Object) string {
	for _, name := range []string{"id", "name"} {
		if v := seed.Str(name); v != "" {
			return fmt.Sprintf("%s__v%d-%s", t.ID, t.Version, v)
		}
	}
	return ""
}

// suffixField is the field of the steps that collect files: what they add to the id of what they collect.
const suffixField = "universe_id_suffix"

// validUniverse refuses a row of an @local task whose collected files would get an id that cannot be.
func validUniverse(s *Services, t *task.Task, universe string) error {
	if !store.IsLocal(t.ID) {
		return nil
	}
	for _, step := range t.Steps {
		if !slices.ContainsFunc(step.Kind.Fields, func(f task.Field) bool { return f.Name == suffixField }) {
			continue
		}
		if err := s.Documents.CheckID(universe + step.Fields.Str(suffixField)); err != nil {
			return fault.At(err, "the id of what step %q collects", step.ID)
		}
	}
	return nil
}

// seedName names a row in lines.
func seedName(seed *doc.Object, number int) string {
	for _, name := range []string{"name", "repo_url"} {
		if v := seed.Str(name); v != "" {
			if r := []rune(v); len(r) > 50 {
				v = string(r[:50])
			}
			return oneWord(v)
		}
	}
	return fmt.Sprintf("seed-%d", number)
}

// oneWord is a text on one line.
func oneWord(s string) string {
	out := []rune(s)
	for i, r := range out {
		if r < ' ' || r == 0x7f {
			out[i] = ' '
		}
	}
	return string(out)
}
