package cli

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"agentenv/bundle"
	"agentenv/task"
)

// jobsFlag adds the flag that says how many runs go on at once, under the names that it has had.
func jobsFlag(fl *pflag.FlagSet, jobs *int) {
	fl.IntVarP(jobs, "jobs", "j", task.DefaultParallel(), "runs at a time (also --concurrency, --max-concurrency)")
	fl.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if name == "concurrency" || name == "max-concurrency" {
			name = "jobs"
		}
		return pflag.NormalizedName(name)
	})
}

// check refuses values that mean nothing, and options that contradict each other.
func (f *runFlags) check(cmd *cobra.Command) error {
	given := cmd.Flags().Changed
	for _, n := range []struct {
		name  string
		value int
	}{{"jobs", f.parallel}, {"k", f.times}, {"max-parallel-steps", f.maxParallelSteps}} {
		if given(n.name) && n.value < 1 {
			return usagef(cmd, "--%s must be at least 1, not %d", n.name, n.value)
		}
	}
	for _, class := range f.rerun {
		if !slices.Contains(task.Classes(), task.Class(class)) {
			return usagef(cmd, "--rerun %q: no such class; there are %s", class, classNames())
		}
	}
	for _, name := range []string{"junit", "output-dir", "rerun", "group"} {
		if given(name) && cmd.Flags().Lookup(name).Value.String() == "" {
			return usagef(cmd, "--%s is empty", name)
		}
	}
	switch {
	case given("group") && !given("rerun"):
		return usagef(cmd, "--group goes with --rerun")
	case given("rerun") && len(f.rerun) == 0:
		return usagef(cmd, "--rerun names no class; there are %s", classNames())
	case given("rerun") && given("k"):
		return usagef(cmd, "--rerun runs each run that it finds once more; it does not go with --k")
	case f.dryRun && (given("junit") || given("output-dir")):
		return usagef(cmd, "--dry-run runs nothing; it does not go with --junit or --output-dir")
	}
	return nil
}

func classNames() string {
	var names []string
	for _, c := range task.Classes() {
		names = append(names, string(c))
	}
	return strings.Join(names, ", ")
}

// options are what the flags say about the runs.
func (f *runFlags) options(cmd *cobra.Command) bundle.RunOptions {
	o := bundle.RunOptions{Parallel: f.parallel, Times: f.times, Again: f.again, Keep: f.keep, Model: f.model, UserModel: f.user, JudgeModel: f.judge,
		Limits: bundle.Limits{MaxParallelSteps: f.maxParallelSteps}}
	if cmd.Flags().Changed("fail-fast") {
		o.Limits.FailFast = &f.failFast
	}
	return o
}

// repeat returns the command that runs one task of a bundle as these flags do.
func (f *runFlags) repeat(cmd *cobra.Command, text, name string) string {
	line := "agent-env run"
	add := func(flag, value string) {
		if value != "" {
			line += " --" + flag + " " + shellWord(value)
		}
	}
	add("task", name)
	for _, flag := range []string{"model", "user-model", "judge-model", "agent", "sandbox", "max-parallel-steps", "fail-fast"} {
		switch value := cmd.Flags().Lookup(flag); {
		case !value.Changed:
		case flag == "fail-fast":
			line += " --fail-fast=" + value.Value.String()
		default:
			add(flag, value.Value.String())
		}
	}
	if strings.HasPrefix(text, "-") {
		line += " --"
	}
	return line + " " + shellWord(text)
}
