package agent

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"agentenv/fault"
	"agentenv/protocol/a2a/sse"
)

// stream hands the message over by message/stream, follows the events to the end of the turn, and polls where they end too soon. An agent that
// offers streams but has none gets the message by message/send.
func (f *follower) stream(ctx context.Context, params []byte) error {
	over, err := f.streamed(ctx, params)
	switch {
	case hasCode(err, codeNoMethod, codeUnsupported) && f.taskID == "":
		f.client.log.Info("the agent's card offers streaming, but the agent has none", "agent", f.endpoint.where(), "error", err.Error())
		return f.send(ctx, params)
	case over || err != nil:
		return err
	}
	return f.poll(ctx)
}

// streamed takes what the agent answers to message/stream, as long as it goes on.
func (f *follower) streamed(ctx context.Context, params []byte) (over bool, err error) {
	open, stop := context.WithCancel(ctx)
	defer stop()
	const method, id = "message/stream", "1"
	var resp *http.Response
	err = withConnection(ctx, func() (err error) {
		resp, err = f.client.open(open, f.endpoint, http.MethodPost, f.rpc, sse.ContentType+", application/json", request(method, id, params)) //nolint:bodyclose // closed below, when the tries are over
		return err
	})
	if err != nil {
		return false, err
	}
	defer resp.Body.Close()
	if !sse.Is(resp.Header.Get("Content-Type")) || resp.StatusCode != http.StatusOK {
		a, err := f.client.read(resp)
		if err != nil {
			return false, err
		}
		result, err := f.endpoint.result(method, id, a)
		if err != nil {
			return false, err
		}
		return f.take(method, result)
	}
	events := make(chan event)
	read := make(chan struct{})
	go func() {
		defer close(read)
		readEvents(open, sse.NewReader(resp.Body, int(f.client.maxBody)), events)
	}()
	defer func() {
		stop()
		<-read
	}()
	if over, err = f.events(ctx, method, id, events); over {
		settle(events)
	}
	return over, err
}

// settleLimit is how long a stream may go on after its turn.
const settleLimit = 50 * time.Millisecond

// settle waits a moment for the end of a stream whose turn is over: only then its connection can be used again.
func settle(events <-chan event) {
	limit := time.NewTimer(settleLimit)
	defer limit.Stop()
	for {
		select {
		case ev := <-events:
			if ev.err != nil {
				return
			}
		case <-limit.C:
			return
		}
	}
}

// event is one event of a stream, or why there is no further one.
type event struct {
	data []byte
	err  error
}

func readEvents(ctx context.Context, r *sse.Reader, out chan<- event) {
	for {
		data, err := r.Next()
		if err == nil && len(data) == 0 {
			continue
		}
		select {
		case out <- event{data, err}:
		case <-ctx.Done():
			return
		}
		if err != nil {
			return
		}
	}
}

// events takes events until the turn is over. Neither over nor an error means that the stream broke off, and that polls go on from here.
// While the stream is silent a poll looks after the task now and then: what lies between may hold events back, and an agent may be gone
// without a sign.
func (f *follower) events(ctx context.Context, method, id string, events <-chan event) (over bool, err error) {
	quiet := time.NewTimer(f.pause(quietPolls * f.turn.Poll))
	defer quiet.Stop()
	for {
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case <-quiet.C:
			if f.taskID != "" {
				if over, err := f.look(ctx); over || err != nil {
					return over, err
				}
			}
		case ev := <-events:
			if ev.err != nil {
				return false, f.broke(ctx, ev.err)
			}
			f.answered()
			result, err := f.endpoint.response(method, id, ev.data)
			if err != nil {
				return false, err
			}
			if over, err := f.take(method, result); over || err != nil {
				return over, err
			}
			if ended(f.state) {
				return false, nil
			}
		}
		quiet.Reset(f.pause(quietPolls * f.turn.Poll))
	}
}

// broke says what the end of a stream means: nothing, when polls can go on from it.
func (f *follower) broke(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case fault.Is(err, fault.Invalid):
		return &sizeError{limit: f.client.maxBody}
	case f.taskID != "":
		f.broken = err
		f.client.log.Info("the agent's stream broke off; polling goes on", "agent", f.endpoint.where(), "task", f.taskID, "error", err.Error())
		return nil
	case errors.Is(err, io.EOF):
		return &shapeError{"message/stream ended before it named a task"}
	}
	return &transportError{err: err}
}
