package agent

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"agentenv/fault"
	"agentenv/store/doc"
)

// fail makes the error of a turn that came to no end, after cancelling its task.
func (f *follower) fail(ctx, limited context.Context, err error) error {
	givenUp, late := ctx.Err() != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded), limited.Err() != nil
	out := &TurnError{Partial: f.partial(ctx), TaskID: f.taskID}
	var lost *lostError
	var status *statusError
	var rpc *rpcError
	var shape *shapeError
	var size *sizeError
	kind, text := fault.Unavailable, err.Error()
	switch {
	case givenUp:
		out.Kind, out.Err = TurnCanceled, fault.Wrap(fault.Canceled, context.Cause(ctx), "%s was given up", f.task())
		return out
	case late && f.taskID == "" && neverReached(err): // it was not slow: it was not there
		out.Kind, kind, text = TurnUnreachable, fault.Timeout, "it could not be reached in its time: "+text
	case late:
		out.Kind, kind, text = TurnTimeout, fault.Timeout, f.late(err)
	case errors.As(err, &lost):
		out.Kind, kind = TurnUnreachable, fault.Timeout
	case errors.As(err, &status):
		if out.Kind = TurnRPC; status.status == http.StatusUnauthorized || status.status == http.StatusForbidden {
			kind = fault.Denied
		}
	case errors.As(err, &rpc):
		out.Kind, kind = TurnRPC, rpc.kind()
	case errors.As(err, &shape), errors.As(err, &size):
		out.Kind = TurnProtocol
	default:
		out.Kind, kind = TurnUnreachable, fault.Timeout
		if neverReached(err) {
			text = "it could not be reached: " + text
		} else {
			text = "the connection broke off: " + text
		}
	}
	out.Err = fault.New(kind, "%s failed: %s", f.task(), text)
	return out
}

// neverReached reports whether no connection came about.
func neverReached(err error) bool {
	var transport *transportError
	return errors.As(err, &transport) && transport.unsent
}

// task names the turn for messages.
func (f *follower) task() string {
	if f.taskID == "" {
		return "the turn with " + f.endpoint.where()
	}
	return fmt.Sprintf("task %s of %s", f.taskID, f.endpoint.where())
}

// late says that the time is over, and what went wrong until then.
func (f *follower) late(err error) string {
	text := "it did not end in its time"
	if f.turn.Timeout > 0 {
		text = fmt.Sprintf("it did not end within %g s", f.turn.Timeout.Seconds())
	}
	if f.taskID == "" {
		text += "; the agent never named a task"
	} else if f.state != "" {
		text += "; its last state was " + f.state
	}
	if f.broken != nil {
		text += fmt.Sprintf("; its stream had ended before (%s)", f.broken)
	}
	if f.failures > 0 {
		text += fmt.Sprintf("; the last %d polls failed (%s)", f.failures, f.lastErr)
	} else if !errors.Is(err, context.DeadlineExceeded) {
		text += " (" + err.Error() + ")"
	}
	return text
}

// partial cancels the task, as far as it is known and may still run, and returns what the agent has said.
func (f *follower) partial(ctx context.Context) *Reply {
	if f.taskID != "" && f.unknown < forgotten {
		state := f.state
		task, err := f.client.cancel(context.WithoutCancel(ctx), f.endpoint, f.taskID)
		if err == nil {
			_, err = f.take("tasks/cancel", task)
			f.state = state
		}
		if err != nil {
			f.client.log.Info("the agent did not confirm the cancel", "agent", f.endpoint.where(), "task", f.taskID, "error", err.Error())
		}
	}
	r := f.head()
	r.fill(append(f.progress.parts, artifactParts(f.artifacts)...))
	return r
}

// reply is how the turn ended: its last message, or where that says nothing the artifacts.
func (f *follower) reply() *Reply {
	r := f.head()
	parts := partsOf(f.final)
	if len(parts) == 0 {
		parts = artifactParts(f.artifacts)
	}
	r.fill(parts)
	return r
}

func (f *follower) head() *Reply {
	r := &Reply{TaskID: f.taskID, ContextID: f.contextID, State: f.state, Metadata: f.progress.metadata}
	if f.turn.ContextID != "" {
		r.ContextID = f.turn.ContextID
	}
	return r
}

func artifactParts(artifacts []any) []*doc.Object {
	var out []*doc.Object
	for _, v := range artifacts {
		if a, ok := v.(*doc.Object); ok {
			out = append(out, partsOf(a)...)
		}
	}
	return out
}
