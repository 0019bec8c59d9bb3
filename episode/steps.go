package episode

import (
	"context"
	"time"

	"agentenv/fault"
	"agentenv/store/doc"
	"agentenv/task"
)

const (
	defaultTurnSeconds = 600
	maxTurnSeconds     = 1 << 32
)

// internalTypes returns the kinds of step that stand for the deploy steps and the prompts of an episode's outside agents: the first and the second.
// No other registry has them. Those of no episode can be checked and not run.
func internalTypes(e *Episode) []*task.StepType {
	original := []task.Field{{Name: "original", Kind: task.ObjectKind, Required: true, Doc: "the step that it stands for"}}
	return []*task.StepType{
		{Name: "episode_agent", Summary: "An agent that is played from outside", Family: "agents", FailsTask: true, Repeatable: true, Fields: original,
			Parse: func(_ string, f *doc.Object) (task.Action, *doc.Object, error) {
				o := f.Obj("original")
				return agentStep{agentOf(&task.Step{Fields: o}), o.Str("role")}, f, nil
			}},
		{Name: "episode_prompt", Summary: "A turn of an agent that is played from outside", Family: "agents", FailsTask: true, Fields: original,
			Parse: func(_ string, f *doc.Object) (task.Action, *doc.Object, error) {
				s, err := parsePrompt(f.Obj("original"))
				if err != nil {
					return nil, nil, err
				}
				s.episode = e
				return s, f, nil
			}},
	}
}

// agentStep puts an outside agent into the context, so that the steps after it find it there.
type agentStep struct{ name, role string }

// Execute implements task.Action. The record has no address and no sandbox.
func (s agentStep) Execute(_ context.Context, r *task.Run) error {
	var role any
	if s.role != "" {
		role = s.role
	}
	return r.AddAgent(doc.Of("agent_name", s.name, "api_url", "", "sandbox_id", nil, "sandbox_type", nil, "a2a_url", nil, "a2a_card", nil,
		"instance_id", nil, "role", role, "network_policy", nil, "on_host", false, "installed_container", nil))
}

// promptStep opens a turn and waits for its end.
type promptStep struct {
	Prompt
	promptID  string
	contextID any
	timeout   time.Duration
	episode   *Episode
}

// parsePrompt reads an outside prompt_agent step; errors are Invalid and name the field.
func parsePrompt(d *doc.Object) (*promptStep, error) {
	s := &promptStep{Prompt: Prompt{StepID: d.Str("id"), AgentName: agentOf(&task.Step{Fields: d}), SystemPrompt: d.Str("system_prompt")},
		promptID: d.Str("prompt_id"), contextID: d.Value("context_id"), timeout: defaultTurnSeconds * time.Second}
	text, ok := d.Value("prompt").(string)
	if !ok && d.Value("parts") == nil {
		return nil, fault.New(fault.Invalid, "field \"prompt\" needs a string, not %s", task.Brief(d.Value("prompt")))
	}
	s.Text = text
	if s.promptID == "" {
		s.promptID = randomHex()
	}
	if v := d.Value("timeout_seconds"); v != nil {
		n, ok := v.(doc.Number)
		if !ok || !n.Finite() || n.Float64() <= 0 {
			return nil, fault.New(fault.Invalid, "field \"timeout_seconds\" needs a number of seconds above 0, not %s", task.Brief(v))
		}
		s.timeout = time.Duration(min(n.Float64(), maxTurnSeconds) * float64(time.Second))
	}
	return s, nil
}

// Execute implements task.Action.
func (s *promptStep) Execute(ctx context.Context, r *task.Run) error {
	if s.episode == nil {
		return fault.New(fault.Internal, "step %s belongs to no episode", s.StepID)
	}
	deployed := false
	for _, a := range r.Agents() {
		deployed = deployed || a.Str("agent_name") == s.AgentName
	}
	if !deployed {
		return fault.New(fault.Invalid, "no agent named %q is deployed before this step", s.AgentName).WithClass("RuntimeError")
	}
	ctx, cancel := context.WithTimeoutCause(ctx, s.timeout, fault.New(fault.Timeout, "the agent %q, which is played from outside, did not end its turn within %g s (timeout_seconds)", s.AgentName, s.timeout.Seconds()))
	defer cancel()
	reply, err := s.episode.open(s, r).wait(ctx)
	if err != nil {
		return err
	}
	var model any
	if reply.model != "" {
		model = reply.model
	}
	r.Set(model, "models", "solver", s.StepID)
	r.AddPromptResponse(doc.Of("prompt_id", s.promptID, "response", reply.text, "prompt_text", s.Text, "agent_trajectory_file_path", nil,
		"source_agent_per_turn_prompt_parts", []any{nil}, "tool_call_count", doc.Int(reply.calls), "model", model,
		"error_type", nil, "error_code", nil, "error_message", nil, "agent_session_id", "", "a2a_context_id", s.contextID,
		"agent_name", s.AgentName, "step_id", s.StepID, "structured_output", nil,
		"agent_trajectory_object_url", nil, "agent_trajectory_s3_uri", nil, "agent_trajectory_object_prefix", nil, "agent_trajectory_s3_prefix", nil,
		"target_agent_per_turn_trajectory_object_urls", nil, "target_agent_per_turn_trajectory_s3_uris", nil))
	return nil
}
