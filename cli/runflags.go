package cli

import (
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
	if err := checkGiven(cmd, []string{"jobs", "k", "max-parallel-steps"}, []string{"junit", "output-dir", "rerun", "group"}); err != nil {
		return err
	}
	if f.dryRun && (given("junit") || given("output-dir")) {
		return usagef(cmd, "--dry-run runs nothing; it does not go with --junit or --output-dir")
	}
	return f.rerunFlags.check(cmd)
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
	return bundle.RunOptions{Parallel: f.parallel, Times: f.times, Again: f.again, Keep: f.keep, Model: f.model, UserModel: f.user, JudgeModel: f.judge,
		Limits: f.limits(cmd)}
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
