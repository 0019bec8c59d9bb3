package cli

import (
	"bytes"
	"context"
	"os/exec"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"agentenv/fault"
	"agentenv/store/doc"
	"agentenv/task"
)

// launchFlags are what the commands that submit runs of stored tasks take.
type launchFlags struct {
	id                string
	version           int64
	k                 int
	jobs              int
	outputDir         string
	agentModel        string
	agentArtifact     string
	startStep         int
	contextFile       string
	seeds             string
	keep, detach      bool
	asJSON            bool
	junit             string
	filter, noFilter  bool
	overrides         map[string]*string // by the key of metadata.user_overrides
	overrideFlagNames map[string]string
	limitFlags
	rerunFlags
}

// override is a flag whose value goes into metadata.user_overrides.
type override struct{ flag, key, usage string }

var (
	modelOverrides = []override{{"user-model", "user_model", "model of the user simulator"}, {"judge-model", "judge_model", "model of the judges"}}
	keyOverrides   = []override{
		{"litellm-api-key", "litellm_api_key", "key of the model endpoint; give a reference (secret:KEY or env:NAME), which is resolved where it is used"},
		{"judge-litellm-api-key", "judge_litellm_api_key", "key of the judges' model endpoint; a reference as above"},
	}
	sandboxOverrides = []override{
		{"agent-sandbox", "agent_sandbox", "provider of agents' sandboxes, or several separated by commas"},
		{"env-sandbox", "env_sandbox", "provider of environments' sandboxes, or several separated by commas"},
		{"sandbox", "sandbox", "provider of every sandbox, or several separated by commas"},
	}
	stateOverrides = []override{{"env-state-type", "env_state_type", "kind of environment state"}, {"env-state-instance-id", "env_state_instance_id", "attach environments to this state"}}
	agentOverrides = []override{{"a2a-agent-id", "a2a_agent_id", "agent that deploy steps deploy"}}
	infraOverrides = []override{{"gateway-env-id", "gateway_env_id", "environment that serves as gateway"}, {"service-db-env-id", "service_db_env_id", "environment that serves as service database"}}
)

func (f *launchFlags) add(fl *pflag.FlagSet, what, last string) {
	fl.StringVar(&f.id, "id", "", "id of the "+what+" (required)")
	fl.Int64Var(&f.version, "version", 0, "version (the latest when not given)")
	jobsFlag(fl, &f.jobs)
	f.limitFlags.add(fl)
	f.rerunFlags.add(fl, last)
	fl.StringVar(&f.agentModel, "agent-model", "", "model of the agents that are prompted")
	fl.StringVar(&f.agentArtifact, "agent-artifact-id", "", "image artifact that deploy steps of agents use")
	fl.BoolVar(&f.keep, "keep", false, "leave what finished runs deployed up until a signal comes")
	fl.BoolVar(&f.detach, "detach", false, "submit only; agent-env runs work runs what waits in the queue")
	fl.BoolVar(&f.asJSON, "json", false, "print one JSON document on standard output, progress on standard error")
	fl.StringVar(&f.junit, "junit", "", "write a report as JUnit XML to this file")
	f.override(fl, modelOverrides...)
	f.override(fl, sandboxOverrides...)
}

func (f *launchFlags) override(fl *pflag.FlagSet, all ...override) {
	if f.overrides == nil {
		f.overrides, f.overrideFlagNames = map[string]*string{}, map[string]string{}
	}
	for _, o := range all {
		f.overrides[o.key], f.overrideFlagNames[o.key] = fl.String(o.flag, "", o.usage), o.flag
	}
}

func (f *launchFlags) filterFlags(fl *pflag.FlagSet) {
	fl.BoolVar(&f.filter, "apply-trajectory-filter", false, "filter trajectories for rubric judges, whatever the step says")
	fl.BoolVar(&f.noFilter, "no-trajectory-filter", false, "filter no trajectories for rubric judges, whatever the step says")
}

// check refuses values that mean nothing, and options that contradict each other.
func (f *launchFlags) check(cmd *cobra.Command, s *Services) error {
	given := cmd.Flags().Changed
	if err := checkGiven(cmd, []string{"jobs", "k", "max-parallel-steps"}, []string{"junit", "output-dir", "context-json", "seeds", "rerun", "group"}); err != nil {
		return err
	}
	if err := f.rerunFlags.check(cmd); err != nil {
		return err
	}
	switch {
	case f.filter && f.noFilter:
		return usagef(cmd, "--apply-trajectory-filter and --no-trajectory-filter exclude each other")
	case f.detach && (f.keep || f.junit != "" || given("output-dir") || given("jobs")):
		return usagef(cmd, "--detach only submits; it does not go with --keep, --junit, --output-dir or -j")
	}
	for _, key := range []string{"agent_sandbox", "env_sandbox", "sandbox"} {
		if spec := *f.overrides[key]; spec != "" {
			if _, err := s.Sandboxes.Resolve(spec); err != nil {
				return fault.At(err, "--%s", f.overrideFlagNames[key])
			}
		}
	}
	return nil
}

// userOverrides lays what the flags say over the overrides that a run has already; nil when there is nothing.
func (f *launchFlags) userOverrides(before *doc.Object) *doc.Object {
	over := before.Clone()
	if all := f.overrides["sandbox"]; *all != "" {
		over.Set("env_sandbox", *all).Set("agent_sandbox", *all)
	}
	for _, group := range [][]override{keyOverrides, agentOverrides, modelOverrides, sandboxOverrides, stateOverrides, infraOverrides} {
		for _, o := range group {
			if v := f.overrides[o.key]; v != nil && *v != "" {
				over.Set(o.key, *v)
			}
		}
	}
	if f.filter || f.noFilter {
		over.Set("apply_trajectory_filter", f.filter)
	}
	if over.Len() == 0 {
		return nil
	}
	return over
}

// metadata is the initial context.metadata of every run of a command; before is what its context holds already.
func (f *launchFlags) metadata(group, taskID string, before *doc.Object, caller string) *doc.Object {
	m := &doc.Object{}
	if before.Str("run_group_id") == "" {
		m.Set("run_group_id", group)
	}
	m.Set("keep", f.keep).Set("task_id", taskID)
	if over := f.userOverrides(before.Obj("user_overrides")); over != nil {
		m.Set("user_overrides", over)
	}
	if hub := before.Obj("agent_env_hub"); caller != "" && hub.Str("caller") == "" {
		m.Set("agent_env_hub", hub.Clone().Set("caller", caller))
	}
	return m
}

// callerOf names who submits runs, for their records: the user's name as git has it; "" when there is none.
func callerOf(ctx context.Context, dir string) string {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	git := exec.CommandContext(ctx, "git", "config", "--get", "user.name")
	git.Dir, git.WaitDelay = dir, time.Second
	name, err := git.Output()
	if err != nil {
		return ""
	}
	if name = callerName(name); len(name) == 0 {
		return ""
	}
	return "agent-env-cli/" + string(name)
}

// callerName is a name in small letters, each run of other characters a dash.
func callerName(name []byte) []byte {
	var out []byte
	for _, c := range bytes.ToLower(name) {
		if c >= 'a' && c <= 'z' || c >= '0' && c <= '9' {
			out = append(out, c)
		} else if len(out) > 0 && out[len(out)-1] != '-' {
			out = append(out, '-')
		}
	}
	return bytes.Trim(out, "-")
}

// repeat is the command that repeats one run, without the keys to anything and what only says what is printed where.
func (f *launchFlags) repeat(cmd *cobra.Command, command, id string, version int64) string {
	line := "agent-env " + command + " --id " + shellWord(id) + " --version " + string(doc.Int(version))
	cmd.Flags().Visit(func(fl *pflag.Flag) {
		switch fl.Name {
		case "id", "version", "k", "jobs", "output-dir", "keep", "detach", "json", "junit", "litellm-api-key", "judge-litellm-api-key", "verbose", "trace", "rerun", "group":
		case "fail-fast", "apply-trajectory-filter", "no-trajectory-filter":
			line += " --" + fl.Name + "=" + fl.Value.String()
		default:
			line += " --" + fl.Name + " " + shellWord(fl.Value.String())
		}
	})
	return line
}

// runnable makes sure that a task can run as it stands, so that a batch costs nothing when it cannot.
func runnable(t *task.Task) error {
	for i, step := range t.Steps {
		if step.Problem != nil {
			return fault.At(step.Problem, "task %s, step %q (position %d)", t.ID, step.ID, i)
		}
	}
	if missing := task.Supported(t); len(missing) > 0 {
		return fault.New(fault.Unsupported, "%s", strings.Join(missing, "; "))
	}
	return nil
}
