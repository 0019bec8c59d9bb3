package agents

import (
	"context"
	"fmt"
	"slices"
	"time"

	"agentenv/artifact"
	"agentenv/fault"
	"agentenv/protocol/card"
	"agentenv/store/doc"
	"agentenv/task"
)

const snapshotLimit = 120 * time.Second

func snapshotType(d Deps) *task.StepType {
	return &task.StepType{
		Name:    "snapshot_agent_state",
		Summary: "Keep an agent's conversation state as an artifact",
		Family:  "agents",
		Doc: "Asks the agent to write the state of the conversation that answered `prompt_id`, its trajectory and its workspace, and stores both as a file_artifact_universe. A deploy_agent " +
			"step can begin from it. Without `artifact_id` the artifact is named after the run and the step, and an agent that keeps no state is passed over with a warning.",
		FailsTask:  true,
		Repeatable: true,
		Fields: []task.Field{
			{Name: "artifact_id", Kind: task.String, Doc: "name of the artifact; the run's and the step's when not given"},
			{Name: "prompt_id", Kind: task.String, Required: true, Doc: "the prompt whose conversation is kept"},
			{Name: "agent_name", Kind: task.String, Default: defaultAgent, Doc: "the agent that was prompted"},
			{Name: "env_id", Kind: task.String, Doc: "keep the state of this env too"},
			{Name: "universe_artifact_id", Kind: task.String, Doc: "the environment universe that says which state that is"},
			{Name: "timeout_seconds", Kind: task.NumberKind, Default: doc.Int(int64(snapshotLimit / time.Second)), Doc: "limit, in seconds"},
		},
		Refs: []task.Ref{
			{Path: "artifact_id", Kind: "artifact", Output: true, ArtifactType: artifact.TypeUniverse},
			{Path: "env_id", Kind: "env"},
			{Path: "universe_artifact_id", Kind: "artifact", ArtifactType: artifact.TypeEnvironmentUniverse},
		},
		Parse: func(_ string, f *doc.Object) (task.Action, *doc.Object, error) {
			a := &snapshotAgent{deps: d, artifact: f.Str("artifact_id"), prompt: f.Str("prompt_id"), agent: f.Str("agent_name"), limit: seconds(f.Value("timeout_seconds"))}
			if a.limit == 0 { // of a stored task, which may hold anything
				a.limit = snapshotLimit
			}
			return a, nil, nil
		},
		Given: func(f *doc.Object) error {
			if positive(f.Value("timeout_seconds")) == 0 {
				return fault.New(fault.Invalid, "timeout_seconds must be greater than 0, not %s", task.Brief(f.Value("timeout_seconds")))
			}
			return nil
		},
		Unsupported: func(s *task.Step) string {
			if s.Fields.Str("env_id") != "" && s.Fields.Str("universe_artifact_id") != "" {
				return "snapshot_agent_state with the state of an env (env_id and universe_artifact_id)"
			}
			return ""
		},
	}
}

type snapshotAgent struct {
	deps                    Deps
	artifact, prompt, agent string
	limit                   time.Duration
}

// Execute keeps the state and records the artifact.
func (a *snapshotAgent) Execute(ctx context.Context, r *task.Run) error {
	limited, stop := context.WithTimeoutCause(ctx, a.limit, fault.New(fault.Timeout, "the agent %q did not write its state within %s", a.agent, a.limit))
	defer stop()
	err := a.execute(limited, r)
	if err != nil && limited.Err() != nil {
		err = context.Cause(limited)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return fault.At(err, "snapshot_agent_state %q", r.StepID)
}

func (a *snapshotAgent) execute(ctx context.Context, r *task.Run) error {
	record, e, err := a.deps.find(r, a.agent)
	if err != nil {
		return err
	}
	id := a.artifact
	if id == "" {
		if id = stateID(r.Instance, r.StepID, "-agent-state"); e.Card != nil && e.Card.Extension(card.Snapshot) == nil {
			warn(r, fmt.Sprintf("snapshot_agent_state %q: the agent %q keeps no state (its card offers no snapshot), so there is nothing to store", r.StepID, a.agent))
			return nil
		}
	}
	conversation, err := a.conversation(r)
	if err != nil {
		return err
	}
	kept, err := a.deps.keepState(ctx, e, id, conversation)
	if err != nil {
		hidden := secrets(a.deps.Deployer.Secrets(e.Sandbox))
		return hidden.error(fault.At(a.deps.blame(ctx, record, err, true), "the agent %q", a.agent))
	}
	r.Log.Info("the agent's state is kept", "agent", a.agent, "artifact", kept.id, "version", kept.version)
	r.Append(doc.Of("id", kept.id, "version", doc.Int(kept.version), "bundle_object_url", kept.at, "source_agent_name", a.agent, "source_context_id", conversation, "capture_step_id", r.StepID), "agent_snapshots")
	return nil
}

// conversation is the agent's own name of the conversation that answered the prompt last.
func (a *snapshotAgent) conversation(r *task.Run) (string, error) {
	for _, one := range slices.Backward(r.PromptResponses()) {
		if one.Str("prompt_id") == a.prompt && one.Str("a2a_context_id") != "" {
			return one.Str("a2a_context_id"), nil
		}
	}
	return "", fault.New(fault.Invalid, "no prompt_agent step of this run has recorded a conversation under the prompt_id %q", a.prompt).WithClass("RuntimeError")
}
