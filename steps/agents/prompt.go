package agents

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	"agentenv/agent"
	"agentenv/fault"
	"agentenv/store/doc"
	"agentenv/task"
)

func promptType(d Deps) *task.StepType {
	field := func(name string, kind task.FieldKind, what string) task.Field {
		return task.Field{Name: name, Kind: kind, Doc: what}
	}
	user := func(name string, kind task.FieldKind, what string) task.Field {
		return task.Field{Name: name, Kind: kind, User: true, Doc: what}
	}
	return &task.StepType{
		Name:    "prompt_agent",
		Summary: "Prompt an agent and keep its reply and trajectory",
		Family:  "agents",
		Doc: "Sends `prompt`, or `parts`, to a deployed agent and waits until it has answered. The reply becomes a prompt response of the run; a trajectory is kept where the " +
			"agent offers one. A turn that ends in any other state than completed fails the step, as does one that takes too long; what the agent had said is kept. With " +
			"`max_conversation_turns` above 1 the reply goes to a user (a deployed agent that answers `{\"message\", \"done\"}`, or a person), whose answer is the next prompt. " +
			"`snapshot_config` keeps the agent's state while it works, and what of it is kept is in the run's record under `agent_snapshots`: every `interval_seconds`, after each " +
			"turn that has another (`per_turn`), and at the end (`at_end`, true when not given; the step fails without it); `timeout_seconds` (300) limits one, `max_snapshots` (24) those before the end.",
		FailsTask:  true,
		Repeatable: true,
		Fields: []task.Field{
			field("prompt_id", task.String, "names the prompt for verifiers; drawn when not given"),
			field("prompt", task.String, "what the agent is told; this or parts"),
			{Name: "parts", Kind: task.List, Doc: "what the agent is given, as A2A parts: text, file or data"},
			{Name: "agent_name", Kind: task.String, Default: defaultAgent, Doc: "the agent to prompt"},
			{Name: "timeout_seconds", Kind: task.NumberKind, Default: doc.Int(600), Doc: "limit of each turn, in seconds"},
			user("trajectory_output_prefix", task.String, "object URL below which trajectories are kept"),
			user("model", task.String, "model the agent is to use"),
			user("model_params", task.ObjectKind, "further parameters of its model calls; references such as secret:NAME are resolved when they are sent"),
			field("system_prompt", task.String, "system prompt of this step"),
			field("max_turns", task.Integer, "how many steps the agent may take"),
			field("output_format", task.Any, "JSON schema that the reply is to follow"),
			user("max_thinking_tokens", task.Integer, "budget of the model's thinking"),
			user("effort", task.String, "effort of the model"),
			user("harness", task.String, "harness the agent is to use"),
			field("agentenv_tools", task.Any, "tools of agent-env that the agent gets"),
			{Name: "poll_interval_seconds", Kind: task.NumberKind, Default: doc.Int(2), Doc: "longest pause between two looks at the agent"},
			field("context_id", task.String, "the agent's conversation to go on with; a new one when not given"),
			{Name: "max_conversation_turns", Kind: task.Integer, Default: doc.Int(1), Doc: "how many turns at most"},
			{Name: "user_agent_name", Kind: task.String, Default: defaultHuman, Doc: "deployed agent that plays the user"},
			field("user_a2a_url", task.String, "address of a person's A2A endpoint, instead of user_agent_name"),
			{Name: "user_agent_timeout_seconds", Kind: task.NumberKind, Default: doc.Int(600), Doc: "limit of each answer of the user, in seconds"},
			field("user_output_format", task.Any, "JSON schema of the simulated user's answers; an object with message and done when not given"),
			user("user_model", task.String, "model of the simulated user"),
			field("snapshot_config", task.ObjectKind, "snapshots to take while the agent works: interval_seconds, per_turn, at_end, timeout_seconds, max_snapshots"),
			field("live_trajectory", task.Boolean, "keep the trajectory while the agent works"),
		},
		Refs:  []task.Ref{{Path: "snapshot_config.env_id", Kind: "env"}},
		Parse: func(_ string, f *doc.Object) (task.Action, *doc.Object, error) { return parsePrompt(d, f) },
		Given: givenPrompt,
		Warn:  func(s *task.Step) []string { return s.Action.(*promptAgent).warnings() },
		Unsupported: func(s *task.Step) string {
			if s.Fields.Obj("snapshot_config").Str("env_id") != "" {
				return "prompt_agent with the state of an env in its snapshots (snapshot_config.env_id)"
			}
			return ""
		},
	}
}

// givenPrompt refuses amounts that are none.
func givenPrompt(f *doc.Object) error {
	if err := checkPromptID(f.Str("prompt_id")); err != nil {
		return err
	}
	if err := openAddress("user_a2a_url", f.Str("user_a2a_url")); err != nil {
		return err
	}
	for _, key := range []string{"timeout_seconds", "poll_interval_seconds", "user_agent_timeout_seconds"} {
		if positive(f.Value(key)) == 0 {
			return fault.New(fault.Invalid, "%s must be greater than 0, not %s", key, task.Brief(f.Value(key)))
		}
	}
	return givenSeries(f.Obj("snapshot_config"))
}

type promptAgent struct {
	deps              Deps
	fields            *doc.Object
	id, prompt, agent string
	hasPrompt         bool
	parts             []*doc.Object
	turns             int64
	timeout, poll     time.Duration
	user, userURL     string
	userTimeout       time.Duration
	series            *seriesPlan // nil = no snapshots
}

const (
	defaultSeconds = 600
	defaultPoll    = 2
)

func parsePrompt(d Deps, f *doc.Object) (task.Action, *doc.Object, error) {
	a := &promptAgent{deps: d, fields: f, id: f.Str("prompt_id"), prompt: f.Str("prompt"), agent: f.Str("agent_name"), user: f.Str("user_agent_name"), userURL: f.Str("user_a2a_url"),
		timeout: seconds(f.Value("timeout_seconds")), poll: seconds(f.Value("poll_interval_seconds")), userTimeout: seconds(f.Value("user_agent_timeout_seconds"))}
	bad := func(format string, args ...any) (task.Action, *doc.Object, error) {
		return nil, nil, fault.New(fault.Invalid, format, args...)
	}
	given := f.Value("parts")
	_, a.hasPrompt = f.Value("prompt").(string)
	switch {
	case a.hasPrompt && given != nil:
		return bad("prompt_agent takes prompt or parts, not both")
	case a.hasPrompt:
		a.parts = []*doc.Object{agent.Text(a.prompt)}
	case given == nil:
		return bad("prompt_agent needs prompt, a text, or parts, a list of A2A parts")
	default:
		var err error
		if a.parts, err = agent.ParseParts(given); err != nil {
			return nil, nil, err
		}
	}
	if a.turns, _ = f.Int("max_conversation_turns"); a.turns < 1 {
		return bad("max_conversation_turns must be at least 1, not %d", a.turns)
	}
	reserved := []string{"model", "messages", "api_key", "api_base", "user", "metadata", "timeout", "response_format"}
	for _, k := range f.Obj("model_params").Keys() {
		if slices.Contains(reserved, k) {
			return bad("model_params may not hold %q, which each call sets by itself", k)
		}
	}
	for limit, unset := range map[*time.Duration]time.Duration{&a.timeout: defaultSeconds, &a.poll: defaultPoll, &a.userTimeout: defaultSeconds} {
		if *limit == 0 { // of a stored task, which may hold anything
			*limit = unset * time.Second
		}
	}
	if a.id == "" {
		a.id = randomHex()
	}
	plan, kept, err := parseSeries(f.Value("snapshot_config"))
	if err != nil {
		return nil, nil, err
	}
	a.series = plan
	stored := f.Clone().Set("prompt_id", a.id)
	if plan == nil {
		stored.Delete("snapshot_config")
	} else {
		stored.Set("snapshot_config", kept)
	}
	if v := f.Value("live_trajectory"); v == nil || v == false {
		stored.Delete("live_trajectory")
	}
	return a, stored, nil
}

func randomHex() string {
	var b [16]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// trajectoryName is the file of a turn's trajectory.
func trajectoryName(messageID string) string { return fmt.Sprintf("trajectory-%s.json", messageID) }
