package cli

import (
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"agentenv/task"
)

// limitFlags are the flags that stand in place of the limits of the tasks that a command runs.
type limitFlags struct {
	maxParallelSteps int
	failFast         bool
}

func (f *limitFlags) add(fl *pflag.FlagSet) {
	fl.IntVar(&f.maxParallelSteps, "max-parallel-steps", 0, "steps of a run at a time, for these runs in place of the task's own max_parallel_steps")
	fl.BoolVar(&f.failFast, "fail-fast", false, "end a run's other steps as soon as one has failed for good, for these runs in place of the task's own fail_fast")
}

// limits are what was given of them.
func (f *limitFlags) limits(cmd *cobra.Command) task.Limits {
	l := task.Limits{MaxParallelSteps: f.maxParallelSteps}
	if cmd.Flags().Changed("fail-fast") {
		l.FailFast = &f.failFast
	}
	return l
}

// rerunFlags are the flags that run again only what ended in some way.
type rerunFlags struct {
	rerun []string // classes
	group string
}

// add takes what the default of --group is a part of: "that the bundle ran".
func (f *rerunFlags) add(fl *pflag.FlagSet, last string) {
	fl.StringSliceVar(&f.rerun, "rerun", nil, "run again only what ended in one of these classes, separated by commas, the last time "+last+": "+classNames())
	fl.StringVar(&f.group, "group", "", "with --rerun: the run group to look at, in place of the last one")
}

// check refuses what means nothing; what runs again is counted already, so --k has no place.
func (f *rerunFlags) check(cmd *cobra.Command) error {
	given := cmd.Flags().Changed
	for _, class := range f.rerun {
		if !slices.Contains(task.Classes(), task.Class(class)) {
			return usagef(cmd, "--rerun %q: no such class; there are %s", class, classNames())
		}
	}
	switch {
	case given("group") && !given("rerun"):
		return usagef(cmd, "--group goes with --rerun")
	case given("rerun") && len(f.rerun) == 0:
		return usagef(cmd, "--rerun names no class; there are %s", classNames())
	case given("rerun") && given("k"):
		return usagef(cmd, "--rerun runs each run that it finds once more; it does not go with --k")
	}
	return nil
}

func (f *rerunFlags) classes() []task.Class {
	classes := make([]task.Class, len(f.rerun))
	for i, c := range f.rerun {
		classes[i] = task.Class(c)
	}
	return classes
}

// checkGiven refuses counts below 1 and texts that are empty, of the flags that were given.
func checkGiven(cmd *cobra.Command, counts, texts []string) error {
	for _, name := range counts {
		if fl := cmd.Flags().Lookup(name); fl != nil && fl.Changed && belowOne(fl.Value.String()) {
			return usagef(cmd, "--%s must be at least 1, not %s", name, fl.Value)
		}
	}
	for _, name := range texts {
		if fl := cmd.Flags().Lookup(name); fl != nil && fl.Changed && fl.Value.String() == "" {
			return usagef(cmd, "--%s is empty", name)
		}
	}
	return nil
}

// belowOne reports whether the text of a number is that of 0 or a negative one.
func belowOne(n string) bool { return n == "0" || n[0] == '-' }
