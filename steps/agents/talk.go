package agents

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"agentenv/agent"
	"agentenv/fault"
	"agentenv/protocol/card"
	"agentenv/store/doc"
	"agentenv/task"
)

// closing is how long the end of a conversation may take once the step is over.
const closing = 10 * time.Second

// talk is one run of a prompt_agent step.
type talk struct {
	*promptAgent
	r       *task.Run
	record  *doc.Object // of the agent
	agent   agent.Endpoint
	model   string // that was asked for; "" = none
	context string // the agent's conversation
	id      string // the stored conversation
	prefix  string // object URL of the trajectories, no slash at its end
	peer    *peer  // who answers the agent; nil = nobody
	turns   []turn

	shared    map[string]bool // URIs of files that the agent was given, which the user may read too
	hidden    secrets         // what the agent knows and must not be kept
	keepsLive bool
	live      *live // of the turn before; nil = there is none, or it is not kept
}

// turn is one prompt and what came of it.
type turn struct {
	prompt     []*doc.Object
	reply      *agent.Reply
	trajectory string // object URL, "" = none
}

// Execute prompts the agent, records its answer as the step's last effect, and then judges it.
func (a *promptAgent) Execute(ctx context.Context, r *task.Run) error {
	err := a.execute(ctx, r)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

func (a *promptAgent) execute(ctx context.Context, r *task.Run) error {
	t := &talk{promptAgent: a, r: r}
	if err := t.prepare(ctx); err != nil {
		return t.hidden.error(fault.At(err, "prompt_agent %q", r.StepID))
	}
	end := t.deps.keepDrained(ctx, r, t.promptAgent.agent, t.agent)
	failure := t.converse(ctx)
	end()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if len(t.turns) > 0 {
		r.AddPromptResponse(t.hidden.value(t.response(failure)).(*doc.Object))
	}
	return t.explain(ctx, failure)
}

// prepare finds the agent and who answers it, and tells both what they are to be. What is missing is an error before the agent is asked anything.
func (t *talk) prepare(ctx context.Context) error {
	var err error
	if t.record, err = t.r.Agent(t.promptAgent.agent); err != nil {
		return err
	}
	if t.agent, err = t.deps.endpoint(t.record); err != nil {
		return err
	}
	if err := t.deps.resumeRecording(ctx, t.r.Context(), t.promptAgent.agent, t.agent); err != nil {
		return err
	}
	t.hidden = t.secrets()
	if t.prefix, err = t.trajectories(); err != nil {
		return err
	}
	t.keepsLive = t.wantsLive()
	settings, err := t.settings(t.r)
	if err != nil {
		return err
	}
	if t.promptAgent.turns > 1 {
		if t.peer, err = t.whoAnswers(); err != nil {
			return err
		}
	}
	t.model = settings.Str("model")
	var sent *doc.Object
	gone := t.whileAlive(ctx, func(ctx context.Context) error {
		sent, err = t.configure(ctx, t.agent, settings)
		return err
	})
	if gone != nil {
		err = gone
	}
	if err != nil {
		return fault.At(err, "configure the agent %q", t.promptAgent.agent)
	}
	t.r.Set(sent.Value("model"), "models", "solver", t.r.StepID)
	if t.peer != nil && t.peer.simulated {
		if err := t.configurePeer(ctx); err != nil {
			return err
		}
	}
	return t.open(ctx)
}

// configure sends what the card takes of the settings, and returns that.
func (t *talk) configure(ctx context.Context, e agent.Endpoint, settings *doc.Object) (*doc.Object, error) {
	taken, dropped := agent.Negotiate(e, card.AgentConfig, "set", settings)
	for _, k := range dropped {
		asked := k == "model" && (text(t.r.Override("agent_model")) != "" || t.fields.Str("model") != "")
		if k == "system_prompt" || k == "output_format" || asked {
			warn(t.r, fmt.Sprintf("prompt_agent %q: the agent takes no %s (its card lists none in agent-config), so it gets none", t.r.StepID, k))
		}
	}
	if taken.Len() == 0 {
		return taken, nil
	}
	// An agent that refuses the parameters may repeat them, and what a reference in them stands for is a secret.
	_, err := t.deps.Client.Call(ctx, e, agent.Call{URI: card.AgentConfig, Op: "set", Body: taken, Timeout: configLimit, Retry: true, Secrets: taken.Value("model_params") != nil})
	return taken, err
}

// open makes the stored conversation, or goes on with the one of the same id.
func (t *talk) open(ctx context.Context) error {
	t.context = t.fields.Str("context_id")
	if t.id = t.context; t.context == "" {
		t.context = randomHex()
		t.id = t.context
	} else {
		run := t.r.Instance
		if run == "" {
			run = randomHex()
		}
		// The length keeps a context that ends in a run's id apart from that run's own.
		t.id = fmt.Sprintf("%s-%s-%d", t.context, run, len(run))
	}
	if err := t.stopEarlier(ctx); err != nil {
		return err
	}
	c := agent.Conversation{ID: t.id, InstanceID: t.r.Instance, StepID: t.r.StepID, Source: t.user, Target: t.promptAgent.agent}
	if err := t.deps.Conversations.Open(ctx, c); err != nil {
		return err
	}
	t.r.Set(t.id, "a2a_conversations", t.r.StepID)
	return nil
}

// stopEarlier ends what an attempt of this step left that died with its process: its agent may still work on the same files.
func (t *talk) stopEarlier(ctx context.Context) error {
	if t.r.Instance == "" {
		return nil
	}
	left, err := t.deps.Conversations.LeftOpen(ctx, t.r.Instance, t.r.StepID)
	if err != nil {
		return err
	}
	for _, c := range left {
		for _, one := range c.Tasks {
			if one.State != agent.Working || one.AgentTask == "" {
				continue
			}
			if err := t.deps.Client.Cancel(ctx, t.agent, one.AgentTask); err != nil {
				t.r.Log.Info("a task of an earlier attempt was not stopped", "task", one.AgentTask, "error", err)
			}
		}
		if err := t.deps.Conversations.Close(ctx, c.ID); err != nil {
			return err
		}
	}
	return nil
}

// converse runs turn after turn, and closes the conversation however it ends. The error says why the step fails.
func (t *talk) converse(ctx context.Context) (err error) {
	snapshots := t.startSeries(ctx)
	defer func() {
		if lost := snapshots.end(ctx); err == nil {
			err = lost
		}
		t.live.followedBy(ctx, "")
		if t.peer != nil && t.triggered() {
			t.keepFirings(ctx)
		}
		end, stop := context.WithTimeout(context.WithoutCancel(ctx), closing)
		defer stop()
		if cerr := t.deps.Conversations.Close(end, t.id); cerr != nil && err == nil {
			err = fault.At(cerr, "close the conversation %s", t.id)
		}
	}()
	parts := t.parts
	for n := int64(1); ; n++ {
		if err := t.turn(ctx, parts); err != nil {
			return err
		}
		if n >= t.promptAgent.turns {
			return nil
		}
		if active, err := t.active(ctx); err != nil || !active {
			return err
		}
		snapshots.afterTurn(ctx, n)
		answer, over, err := t.next(ctx, n)
		if err != nil || over {
			return err
		}
		parts = answer
	}
}

// next returns what the agent is told after turn n: what the triggers of its user say, else what the user says.
func (t *talk) next(ctx context.Context, n int64) (parts []*doc.Object, over bool, err error) {
	if t.triggered() {
		parts, over, decided, err := t.decide(ctx, n)
		if err != nil || decided {
			return parts, over, err
		}
	}
	return t.answer(ctx, n)
}

func (t *talk) active(ctx context.Context) (bool, error) {
	status, err := t.deps.Conversations.Status(ctx, t.id)
	return status == agent.ConversationActive, err
}

// turn sends one prompt and keeps what came of it, also of a turn that failed.
func (t *talk) turn(ctx context.Context, parts []*doc.Object) error {
	message := randomHex()
	given, release, err := t.deps.Mover.Readable(ctx, t.agent, parts, t.timeout, nil)
	if err != nil {
		return fault.At(err, "prompt_agent %q", t.r.StepID)
	}
	defer release(context.WithoutCancel(ctx))
	t.share(parts)
	if err := t.deps.Conversations.AddMessage(ctx, t.id, "user", parts, message); err != nil {
		return fault.At(err, "prompt_agent %q", t.r.StepID)
	}
	t.live.followedBy(ctx, message)
	t.live = t.followLive(ctx, message)
	reply, err := t.send(ctx, agent.Turn{MessageID: message, ContextID: t.context, Parts: given, Timeout: t.timeout, Poll: t.poll,
		OnTask: func(id string) {
			t.r.Log.Info("the agent works", "agent", t.promptAgent.agent, "task", id)
			t.live.begun(id)
			if err := t.deps.Conversations.NoteAgentTask(ctx, t.id, message, id); err != nil {
				t.r.Log.Warn("the agent's task is not on record, so a process that goes on with this run cannot stop it", "task", id, "error", err)
			}
		}})
	t.live.end(ctx, stateOf(reply))
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	t.hidden.reply(reply)
	failure := turnFailure(reply, err)
	if failure != nil {
		reply = failure.reply
		t.hidden.reply(reply)
	}
	t.turns = append(t.turns, turn{prompt: parts, reply: reply})
	if err == nil {
		if cerr := t.deps.Conversations.Complete(ctx, t.id, reply.Parts); cerr != nil {
			return fault.At(cerr, "prompt_agent %q", t.r.StepID)
		}
	}
	t.turns[len(t.turns)-1].trajectory = t.keepTrajectory(ctx, reply.TaskID, message)
	if failure != nil {
		return failure
	}
	return nil
}

// secrets are those of the agent and of this run.
func (t *talk) secrets() secrets {
	var out secrets
	for _, other := range t.r.Agents() { // one may have told another what it knows
		if box := other.Str("sandbox_id"); box != "" {
			for _, v := range t.deps.Deployer.Secrets(box) {
				if !slices.Contains(out, v) {
					out = append(out, v)
				}
			}
		}
	}
	if key, _ := t.r.Override("litellm_api_key").(string); len(key) > len("secret:") {
		if v, err := t.deps.Config.ResolveText(key); err == nil && v != "" {
			out = append(out, v)
		}
	}
	return out
}

// hide takes secrets out of a text.
func (t *talk) hide(s string) string { return t.hidden.text(s) }

// share notes the files of a prompt.
func (t *talk) share(parts []*doc.Object) {
	for _, p := range parts {
		if uri := p.Obj("file").Str("uri"); uri != "" {
			if t.shared == nil {
				t.shared = map[string]bool{}
			}
			t.shared[uri] = true
		}
	}
}

// stateOf is the state a turn ended in, "" when it came to no end.
func stateOf(r *agent.Reply) string {
	if r == nil {
		return ""
	}
	return r.State
}

// send runs one turn, and no longer than the agent lives.
func (t *talk) send(ctx context.Context, one agent.Turn) (reply *agent.Reply, err error) {
	var turn *agent.TurnError
	gone := t.whileAlive(ctx, func(ctx context.Context) error {
		reply, err = t.deps.Client.Send(ctx, t.agent, one)
		return err
	})
	if broken := errors.As(err, &turn) && turn.Kind == agent.TurnUnreachable; broken && gone == nil && ctx.Err() == nil {
		gone = t.deps.Deployer.Fate(ctx, t.record) // the connection breaks before anybody sees the container end
	}
	if gone != nil && errors.As(err, &turn) {
		return nil, &agent.TurnError{Kind: agent.TurnUnreachable, TaskID: turn.TaskID, Partial: turn.Partial, Err: gone}
	}
	return reply, err
}

// whileAlive has something asked of the agent, and no longer than its container lives: when that has ended and the question failed,
// the error says so. It is nil otherwise, whatever became of the question.
func (t *talk) whileAlive(ctx context.Context, ask func(context.Context) error) error {
	living, stop := context.WithCancelCause(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		if err := t.deps.Deployer.Watch(living, t.record); err != nil {
			stop(err)
		}
	}()
	err := ask(living)
	ended := context.Cause(living)
	stop(nil)
	<-watched
	if err != nil && ctx.Err() == nil && fault.Is(ended, fault.Unavailable, fault.Internal) {
		return ended
	}
	return nil
}

// failed is a turn that ended in no completed task.
type failed struct {
	state string // the state, or the kind of a turn that came to no end
	reply *agent.Reply
	err   error // nil where the agent itself ended the turn
}

// Error names the state.
func (f *failed) Error() string { return "A2A task " + f.state }

// turnFailure returns nil for a completed turn.
func turnFailure(reply *agent.Reply, err error) *failed {
	if err == nil {
		if reply.State == agent.Completed {
			return nil
		}
		return &failed{state: reply.State, reply: reply}
	}
	var turn *agent.TurnError
	if errors.As(err, &turn) {
		return &failed{state: turn.Kind, reply: turn.Partial, err: err}
	}
	return &failed{state: "unsent", reply: &agent.Reply{}, err: err}
}

// kind is the error type that a response records where the agent gave none.
func (f *failed) kind() string { return strings.ReplaceAll(f.state, "-", "_") }
