package agents

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"agentenv/agent"
	"agentenv/config"
	"agentenv/fault"
	"agentenv/protocol/card"
	"agentenv/store/doc"
	"agentenv/task"
)

// peer is who answers the agent between two turns.
type peer struct {
	endpoint  agent.Endpoint
	simulated bool // a deployed agent that plays the user; else a person's endpoint
	person    bool // it was deployed as a person, who need not answer as a simulated user is told to
}

// whoAnswers finds the user: the address the step gives, a deployed agent, or the configured address of people.
func (t *talk) whoAnswers() (*peer, error) {
	if t.userURL != "" {
		address, err := t.deps.Config.ResolveText(t.userURL)
		return &peer{endpoint: agent.Endpoint{URL: strings.TrimRight(address, "/")}}, fault.At(err, "user_a2a_url")
	}
	for _, record := range t.r.Agents() {
		if record.Str("agent_name") == t.user {
			e, err := t.deps.endpoint(record)
			return &peer{endpoint: e, simulated: true, person: isHuman(t.r, t.user)}, err
		}
	}
	url, err := humanURL(t.deps.Config, t.r.Instance)
	if err != nil {
		return nil, fault.At(err, "max_conversation_turns is %d, the agent %q that plays the user is not deployed, and there is no person to ask", t.promptAgent.turns, t.user)
	}
	return &peer{endpoint: agent.Endpoint{URL: url}}, nil
}

// isHuman reports whether a deployed agent stands for a person.
func isHuman(r *task.Run, name string) bool {
	people, _ := r.Metadata("human_agents").([]any)
	return slices.ContainsFunc(people, func(v any) bool {
		o, _ := v.(*doc.Object)
		return o.Str("agent_name") == name
	})
}

// humanURL is the configured address of people, for one run.
func humanURL(c *config.Config, instance string) (string, error) {
	section, err := c.Conversations()
	if err != nil {
		return "", err
	}
	base := strings.TrimRight(section.HumanURL, "/")
	if instance == "" {
		return base, nil
	}
	return base + "/instance/" + instance, nil
}

// configurePeer tells a simulated user how to answer, and which model to use.
func (t *talk) configurePeer(ctx context.Context) error {
	format := t.fields.Value("user_output_format")
	if format == nil {
		format = doc.Of("type", "object", "properties", doc.Of("message", doc.Of("type", "string"), "done", doc.Of("type", "boolean")), "required", []any{"message", "done"})
	}
	body := doc.Of("output_format", format)
	model, err := t.userModel()
	if err != nil {
		return err
	}
	if model != "" {
		body.Set("model", model)
	}
	taken, _ := agent.Negotiate(t.peer.endpoint, card.AgentConfig, "set", body)
	if taken.Len() > 0 {
		_, err = t.deps.Client.Call(ctx, t.peer.endpoint, agent.Call{URI: card.AgentConfig, Op: "set", Body: taken, Timeout: configLimit, Retry: true})
	}
	t.r.Set(taken.Value("model"), "models", "user simulator", t.r.StepID)
	return fault.At(err, "configure the agent %q, which plays the user", t.user)
}

// userModel returns the simulated user's model: the step's override, the run's, the step's, the configured one.
func (t *talk) userModel() (string, error) {
	v, _ := t.r.Param("user_model")
	for _, s := range []string{text(v), text(t.r.Override("user_model")), t.fields.Str("user_model")} {
		if s != "" {
			return s, nil
		}
	}
	m, err := t.deps.Config.Model()
	if err != nil {
		return "", err
	}
	return m.ForRole("user"), nil
}

// answer gives the agent's reply of turn n to the user and returns the next prompt; over says that the conversation ends here. A user that
// gives no answer ends the conversation, not the step.
func (t *talk) answer(ctx context.Context, n int64) (parts []*doc.Object, over bool, err error) {
	shared := t.shared
	if shared == nil {
		shared = map[string]bool{}
	}
	said, release, err := t.deps.Mover.Readable(ctx, t.peer.endpoint, t.turns[len(t.turns)-1].reply.Parts, t.userTimeout, shared)
	if err != nil {
		return nil, true, fault.At(err, "prompt_agent %q: for the user", t.r.StepID)
	}
	defer release(context.WithoutCancel(ctx))
	reply, err := t.deps.Client.Send(ctx, t.peer.endpoint, agent.Turn{ContextID: t.id, Parts: said, Timeout: t.userTimeout, Poll: t.poll})
	switch {
	case ctx.Err() != nil:
		return nil, true, context.Cause(ctx)
	case err != nil && !tookTooLong(err):
		return nil, true, &fault.Error{Kind: fault.Unavailable, Class: "RuntimeError", Msg: t.hide(fmt.Sprintf("prompt_agent %q: the user cannot be asked after turn %d: %v", t.r.StepID, n, err))}
	case err != nil:
		t.cutOff(n, err.Error())
		return nil, true, nil
	case reply.State != agent.Completed || len(reply.Parts) == 0:
		t.cutOff(n, "its turn ended in the state "+reply.State)
		return nil, true, nil
	case !t.peer.simulated:
		return reply.Parts, false, nil
	}
	return t.simulated(n, reply)
}

// tookTooLong reports whether a user was reached and did not answer in its time.
func tookTooLong(err error) bool {
	var turn *agent.TurnError
	return errors.As(err, &turn) && turn.Kind == agent.TurnTimeout
}

// cutOff notes, for people and in the record, that the conversation ends because the user gave no answer.
func (t *talk) cutOff(n int64, why string) {
	warn(t.r, t.hide(fmt.Sprintf("prompt_agent %q: the conversation ends after turn %d, since the user gave no answer: %s", t.r.StepID, n, why)))
	t.r.Set(doc.Of("after_turn", doc.Int(n), "reason", t.hide(why)), "conversations_cut_off", t.r.StepID)
}

// simulated reads a simulated user's answer: an object with message and done, as it was told. A text that is no JSON at all is the message itself; JSON
// of another shape is an error that shows it, since no guess at its meaning is safe. What a person answers otherwise is the next prompt as it is.
func (t *talk) simulated(n int64, reply *agent.Reply) (parts []*doc.Object, over bool, err error) {
	raw := firstText(reply.Parts)
	a, why := parseAnswer(raw)
	if t.peer.person && (why != "" || a.message == raw) {
		return reply.Parts, false, nil
	}
	if why != "" {
		return nil, true, fault.New(fault.Unavailable, "prompt_agent %q: the agent %q, which plays the user, answered turn %d with %s: %s", t.r.StepID, t.user, n, why, cut(raw, quoted))
	}
	if a.fields.Len() > 0 {
		t.r.Append(doc.Of("turn", doc.Int(n), "fields", a.fields), "usersim_turn_outputs", t.r.StepID)
	}
	return []*doc.Object{agent.Text(a.message)}, a.done, nil
}

func firstText(parts []*doc.Object) string {
	for _, p := range parts {
		if p.Str("kind") == agent.KindText {
			return p.Str("text")
		}
	}
	return ""
}

// userAnswer is what a simulated user said.
type userAnswer struct {
	message string
	done    bool
	fields  *doc.Object // all else that it said
}

// parseAnswer reads the text of a simulated user; why says what is wrong with it, "" when nothing is.
func parseAnswer(raw string) (a userAnswer, why string) {
	v, err := doc.Parse([]byte(unfenced(raw)), doc.Options{})
	if err != nil {
		if strings.TrimSpace(raw) == "" {
			return a, "no text"
		}
		return userAnswer{message: raw}, ""
	}
	o, ok := v.(*doc.Object)
	if !ok {
		return a, "a JSON " + doc.TypeName(v) + " where an object with message and done is needed"
	}
	done, _ := o.Get("done")
	if a.done, ok = done.(bool); !ok && done != nil {
		return a, "a done that is no boolean"
	}
	message, _ := o.Get("message")
	if a.message, ok = message.(string); !ok && !(a.done && message == nil) {
		return a, "no message that is a text"
	}
	a.fields = o.Clone()
	a.fields.Delete("message")
	a.fields.Delete("done")
	return a, ""
}

// unfenced takes a code fence around a text off.
func unfenced(s string) string {
	s = strings.TrimSpace(s)
	inner, ok := strings.CutPrefix(s, "```")
	if !ok {
		return s
	}
	inner, closed := strings.CutSuffix(inner, "```")
	_, body, lines := strings.Cut(inner, "\n")
	if !closed || !lines {
		return s
	}
	return strings.TrimSpace(body)
}
