package agent

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"time"

	"agentenv/store/doc"
)

const (
	pollLimit    = 30 * time.Second      // for one tasks/get
	firstPause   = 50 * time.Millisecond // before the first poll
	failurePause = 5 * time.Second       // more before the next poll for each failure in a row
	longestPause = 60 * time.Second
	lostPolls    = 3 // so many polls in a row without an answer, over at least lostAfter, mean that the agent's sandbox is gone
	lostAfter    = 60 * time.Second
	forgotten    = 3 // so many answers in a row that the task is not known mean that it is not
	quietPolls   = 5 // a stream silent for so many pauses is looked after by a poll
)

// follower is one turn under way. It belongs to one goroutine.
type follower struct {
	client   *Client
	endpoint Endpoint
	turn     Turn
	rpc      string

	taskID, contextID string
	state             string
	final             *doc.Object // the message of the last status
	artifacts         []any
	missing           bool // the stream showed artifacts, which only the task itself has whole
	progress          progress

	failures   int // polls in a row that failed
	unanswered int // of those, without any answer
	unknown    int // of those, with the answer that there is no such task
	heard      time.Time
	lastErr    error
	broken     error // why the stream ended before the turn
}

// lostError is an agent that does not answer any more.
type lostError struct{ text string }

func (l *lostError) Error() string { return l.text }

// send hands the message over and polls for the end.
func (f *follower) send(ctx context.Context, params []byte) error {
	var result *doc.Object
	err := withConnection(ctx, func() (err error) {
		result, err = f.client.call(ctx, f.endpoint, f.rpc, "message/send", "1", params)
		return err
	})
	if err != nil {
		return err
	}
	if over, err := f.take("message/send", result); over || err != nil {
		return err
	}
	return f.poll(ctx)
}

// withConnection repeats a request that found no connection, which the agent therefore never saw.
func withConnection(ctx context.Context, try func() error) error {
	for _, d := range sendDelays {
		err := try()
		var t *transportError
		if !errors.As(err, &t) || !t.unsent || !sleep(ctx, d) {
			return err
		}
	}
	return try()
}

// poll asks for the task until it has ended: at first often, then less and less.
func (f *follower) poll(ctx context.Context) error {
	for pause := min(firstPause, f.turn.Poll); ; pause = min(pause*3/2, f.turn.Poll) {
		if !sleep(ctx, f.pause(pause)) {
			return ctx.Err()
		}
		if over, err := f.look(ctx); over || err != nil {
			return err
		}
	}
}

// pause lengthens the time to the next poll by the failures so far.
func (f *follower) pause(d time.Duration) time.Duration {
	return min(d+time.Duration(f.failures)*failurePause, longestPause)
}

// look asks for the task once. It reports whether the turn is over; an error is one that no further poll mends.
func (f *follower) look(ctx context.Context) (over bool, err error) {
	params, err := doc.Compact(doc.Of("id", f.taskID))
	if err != nil {
		return false, err
	}
	try, stop := context.WithTimeout(ctx, pollLimit)
	defer stop()
	result, err := f.client.call(try, f.endpoint, f.rpc, "tasks/get", "poll", params)
	if err == nil {
		f.answered()
		return f.take("tasks/get", result)
	}
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	return false, f.failed(err)
}

func (f *follower) answered() {
	f.failures, f.unanswered, f.unknown, f.heard = 0, 0, 0, f.client.now()
}

// failed counts a failed poll; it returns an error when there is nothing more to wait for.
func (f *follower) failed(err error) error {
	f.lastErr = err
	if hasCode(err, codeTaskNotFound) {
		f.unanswered, f.heard = 0, f.client.now()
		if f.unknown++; f.unknown == forgotten {
			return &shapeError{fmt.Sprintf("it does not know task %s any more (%s): it was started anew, or drops its tasks too soon", f.taskID, err)}
		}
		return nil
	}
	f.failures++
	f.unknown = 0
	var status *statusError
	var transport *transportError
	var size *sizeError
	switch {
	case errors.As(err, &size):
		return err
	case errors.As(err, &transport), errors.As(err, &status) && gatewayFailure(status.status):
		f.unanswered++
		if silence := f.client.now().Sub(f.heard); f.endpoint.Sandbox != "" && f.unanswered >= lostPolls && silence >= lostAfter {
			return &lostError{fmt.Sprintf("sandbox %s is unreachable: %d polls of task %s in a row, over %.0f s, got no answer (the last: %s)",
				f.endpoint.Sandbox, f.unanswered, f.taskID, silence.Seconds(), err)}
		}
		return nil
	case errors.As(err, &status) && status.status >= 300 && status.status < 500 && !passing(status.status):
		return err
	}
	f.unanswered, f.heard = 0, f.client.now()
	return nil
}

// gatewayFailure is an answer not of the agent but of what stands before it.
func gatewayFailure(status int) bool {
	return status == http.StatusBadGateway || status == http.StatusServiceUnavailable || status == http.StatusGatewayTimeout
}

// passing is a refusal that a later poll may not meet.
func passing(status int) bool {
	return status == http.StatusRequestTimeout || status == http.StatusTooEarly || status == http.StatusTooManyRequests
}

func randomHex(n int) string {
	b := make([]byte, n)
	rand.Read(b)
	return hex.EncodeToString(b)
}
