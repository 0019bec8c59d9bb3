package agents

import (
	"context"
	"strings"

	"agentenv/agent"
	"agentenv/fault"
	"agentenv/protocol/card"
	"agentenv/store/doc"
	"agentenv/task"
)

// configure gives a live agent what the step says of it, and returns the identity that it took. What cannot be delivered is an error before
// the first request.
func (a *deployAgent) configure(ctx context.Context, r *task.Run, e agent.Endpoint, b *beginning) (*doc.Object, error) {
	identity := doc.Of("name", a.name)
	if a.description != "" {
		identity.Set("description", a.description)
	}
	if a.role != "" {
		identity.Set("role", a.role)
	}
	identity, dropped := agent.Negotiate(e, card.AgentConfig, "set", identity)
	if _, taken := identity.Get("role"); a.role != "" && !taken {
		return nil, fault.New(fault.Unsupported, "the agent %q takes no role: its card lists no role in agent-config; drop role, or use an agent that takes one", a.name).WithClass("RuntimeError")
	}
	if err := a.deliverable(e, b); err != nil {
		return nil, err
	}
	for _, s := range b.skills { // in their order, in which the agent tells its model of them
		if err := a.deps.Mover.AddSkill(ctx, e, s); err != nil {
			return nil, err
		}
	}
	if err := a.systemPrompt(ctx, r, e); err != nil {
		return nil, err
	}
	if len(dropped) > 0 {
		r.Log.Info("the agent is not told what its card does not list: "+strings.Join(dropped, ", "), "agent", a.name)
	}
	if identity.Len() == 0 {
		return identity, nil
	}
	_, err := a.deps.Client.Call(ctx, e, agent.Call{URI: card.AgentConfig, Op: "set", Body: identity, Timeout: configLimit, Retry: true})
	return identity, fault.At(err, "tell the agent %q who it is", a.name)
}

func (a *deployAgent) systemPrompt(ctx context.Context, r *task.Run, e agent.Endpoint) error {
	if a.prompt == "" {
		return nil
	}
	body, _ := agent.Negotiate(e, card.AgentConfig, "set", doc.Of("system_prompt", a.prompt))
	if body.Len() == 0 {
		warn(r, "the agent \""+a.name+"\" takes no system prompt (its card lists none in agent-config), so it gets none")
		return nil
	}
	_, err := a.deps.Client.Call(ctx, e, agent.Call{URI: card.AgentConfig, Op: "set", Body: body, Timeout: configLimit, Retry: true})
	return fault.At(err, "give the agent %q its system prompt", a.name)
}

// warn tells people and the log of something that does not stop the step.
func warn(r *task.Run, line string) {
	r.Log.Warn(line)
	r.Report(task.Progress{Note: line})
}
