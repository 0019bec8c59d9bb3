package agents

import (
	"context"
	"fmt"
	"slices"
	"time"

	"agentenv/agent"
	"agentenv/fault"
	"agentenv/protocol/card"
	"agentenv/protocol/triggers"
	"agentenv/store/doc"
)

// firingsLimit is how long the log of what fired may take at the end.
const firingsLimit = 10 * time.Second

// triggered reports whether triggers were registered on the agent that plays the user.
func (t *talk) triggered() bool {
	list, _ := t.r.Metadata("agent_trigger_registrations").([]any)
	return t.peer.simulated && slices.ContainsFunc(list, func(v any) bool {
		o, _ := v.(*doc.Object)
		return o.Str("agent_name") == t.user
	})
}

// decide asks the user's triggers what comes after turn n: the next prompt, the end of the conversation, or, with decided false, nothing, so
// that the user itself answers.
func (t *talk) decide(ctx context.Context, n int64) (parts []*doc.Object, over, decided bool, err error) {
	if len(t.r.Envs()) > 0 {
		return nil, false, false, fault.New(fault.Unsupported, "prompt_agent %q: the triggers of the agent %q cannot be decided on, since the triggers of envs are not read in this version", t.r.StepID, t.user)
	}
	envs := doc.Of()
	t.r.Append(doc.Of("turn", doc.Int(n), "envs", envs), "env_trigger_snapshots", t.r.StepID)
	// Triggers take no longer text; what begins a reply is what they are told of.
	said := cut(t.turns[len(t.turns)-1].reply.Text, triggers.MaxMessage)
	answer, err := t.deps.Client.Call(ctx, t.peer.endpoint, agent.Call{URI: card.Triggers, Op: "decide", Timeout: triggersLimit,
		Body: doc.Of("turn", doc.Int(n), "solver_message", said, "context_id", t.id, "env_triggers", envs)})
	if err != nil {
		return nil, false, false, fault.At(err, "prompt_agent %q: the triggers of the agent %q, turn %d", t.r.StepID, t.user, n)
	}
	fired := answer.Arr("fired")
	if fired == nil {
		fired = []any{}
	}
	t.r.Append(doc.Of("turn", doc.Int(n), "fired", fired), "agent_trigger_firings", t.r.StepID)
	if answer.Arr("parts") != nil {
		if parts, err = agent.ParseParts(answer.Value("parts")); err != nil {
			return nil, false, false, fault.New(fault.Unavailable, "prompt_agent %q: the triggers of the agent %q, turn %d: %v", t.r.StepID, t.user, n, err)
		}
	}
	if !answer.Bool("done") {
		return parts, false, len(fired) > 0 && len(parts) > 0, nil
	}
	if len(parts) > 0 {
		err = t.deps.Conversations.AddMessage(ctx, t.id, "user", parts, "")
	}
	return nil, true, true, fault.At(err, "prompt_agent %q", t.r.StepID)
}

// keepFirings records what fired in the conversation, as the agent logged it; a step does not fail for it.
func (t *talk) keepFirings(ctx context.Context) {
	if ctx.Err() != nil {
		return
	}
	answer, err := t.deps.Client.Call(ctx, t.peer.endpoint, agent.Call{URI: card.Triggers, Op: "state", Timeout: firingsLimit})
	if err != nil {
		warn(t.r, fmt.Sprintf("prompt_agent %q: the log of the triggers of the agent %q was not kept: %v", t.r.StepID, t.user, err))
		return
	}
	log := answer.Arr("firing_log")
	if log == nil {
		log = []any{}
	}
	t.r.Set(log, "agent_trigger_state", t.r.StepID)
}
