package agents

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"agentenv/agent"
	"agentenv/fault"
	"agentenv/store/doc"
)

// quoted is how much of what an agent said an error carries, in characters.
const quoted = 2000

// explain makes the step's error of a failed turn: what the agent said, what was known about it, and the end of its container's output.
func (t *talk) explain(ctx context.Context, err error) error {
	var f *failed
	if !errors.As(err, &f) {
		return err
	}
	if f.err != nil && f.state == "unsent" {
		return fault.At(f.err, "prompt_agent %q", t.r.StepID)
	}
	var about []string
	say := func(key, value string) {
		if value != "" {
			about = append(about, key+"="+value)
		}
	}
	say("error_type", f.reply.ErrorType)
	say("error_code", f.reply.ErrorCode)
	say("exception", f.reply.ErrorClass)
	say("task_id", f.reply.TaskID)
	say("agent_sandbox", t.agent.Sandbox)
	msg := f.Error()
	if len(about) > 0 {
		msg += " (" + strings.Join(about, ", ") + ")"
	}
	kind, named := t.kindOf(f)
	if f.err != nil {
		msg += ": " + f.err.Error()
	} else {
		msg += f.words()
	}
	if logs := t.deps.Deployer.Logs(ctx, t.record); logs != "" {
		msg += "\n" + logs
	}
	return &fault.Error{Kind: kind, Class: named, Msg: t.hide(msg)}
}

// kindOf says whose fault a failed turn is. What an agent that was deployed does is its own: it failed, or took too long. What it says
// was not there for it, and an agent that was taken away or stands elsewhere and cannot be reached, are the infrastructure's.
func (t *talk) kindOf(f *failed) (kind fault.Kind, named string) {
	named = "RuntimeError"
	var turn *agent.TurnError
	switch {
	case f.err == nil && f.reply.ErrorType == infraError:
		return fault.Unavailable, named
	case f.err == nil:
		return fault.Internal, named
	case !errors.As(f.err, &turn):
		return fault.KindOf(f.err), named
	}
	kind = fault.KindOf(turn.Err)
	switch turn.Kind {
	case agent.TurnTimeout:
		named = "TimeoutError"
	case agent.TurnUnreachable:
		named = "TimeoutError"
		if kind == fault.Timeout { // nothing more is known
			kind = fault.Unavailable
			if t.agent.Sandbox != "" {
				kind = fault.Internal
			}
		}
	case agent.TurnRPC, agent.TurnProtocol:
		if kind == fault.Unavailable && t.agent.Sandbox != "" {
			kind = fault.Internal
		}
	}
	return kind, named
}

// blame says whose fault a failed request to a recorded agent is. Of one that was deployed, an answer that is none is its own, and so is every refusal
// where nothing of the request is of the user's making; so is its end, when it ended by itself. The end of its container's output then goes with the
// error. What it could not bring to the store or fetch there stays as it is, and so does an agent that does not answer in time.
func (d Deps) blame(ctx context.Context, record *doc.Object, err error, refusals bool) error {
	var call *agent.CallError
	if record.Str("sandbox_id") == "" || ctx.Err() != nil || !errors.As(err, &call) {
		return err
	}
	switch kind := fault.KindOf(err); {
	case call.Code == "transfer_unavailable" || call.Code == "transfer_timeout" || call.Code == "transfer_rejected" || kind == fault.Timeout:
		return err
	case call.Status == 0:
		gone := d.Deployer.Fate(ctx, record)
		if !fault.Is(gone, fault.Internal) {
			return err
		}
		err = fmt.Errorf("%w: %w", err, gone)
	case !refusals && kind != fault.Unavailable:
		return err
	}
	msg := err.Error()
	if logs := d.Deployer.Logs(ctx, record); logs != "" {
		msg += "\n" + logs
	}
	return &fault.Error{Kind: fault.Internal, Class: "RuntimeError", Msg: msg}
}

// infraError is the type of error by which an agent says that something it needs was not there.
const infraError = "infra_error"

// words are what the agent said to its end.
func (f *failed) words() string {
	said := f.reply.ErrorMessage
	if said == "" {
		said = f.reply.Text
	}
	said = cut(said, quoted)
	switch f.state {
	case agent.InputRequired:
		return fmt.Sprintf(": the agent asks, and nobody is there to answer: %s", said)
	case agent.AuthRequired:
		return fmt.Sprintf(": the agent asks for credentials: %s", said)
	}
	return ": " + said
}

// cut returns the first n characters of a text.
func cut(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n])
	}
	return s
}
