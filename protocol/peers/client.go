package peers

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"agentenv/fault"
)

// The bounds of a call.
const (
	sendLimit = 60 * time.Second
	getLimit  = 30 * time.Second
	maxAnswer = 16 << 20
	connects  = 5 // attempts to connect
	firstPoll = 50 * time.Millisecond
)

func pathOf(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return u.Path
}

// statusError is an answer with an HTTP error.
type statusError struct {
	status int
	text   string
}

func (e *statusError) Error() string { return fmt.Sprintf("it answered %d: %s", e.status, e.text) }

// call makes one JSON-RPC call of a peer and returns its result.
func (t *Tools) call(ctx context.Context, p Peer, method string, params map[string]any, limit time.Duration) (map[string]any, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": "1", "method": method, "params": params})
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "the message")
	}
	text, err := t.fetch(ctx, p, http.MethodPost, p.rpc(), body)
	if err != nil {
		return nil, err
	}
	var answer struct {
		Result map[string]any
		Error  *struct {
			Code    int
			Message string
		}
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	switch err := d.Decode(&answer); {
	case err != nil:
		return nil, fault.New(fault.Unavailable, "peer %q answered no JSON-RPC", p.Name)
	case answer.Error != nil:
		return nil, fault.New(fault.Unavailable, "peer %q refused %s: %s (%d)", p.Name, method, answer.Error.Message, answer.Error.Code)
	case answer.Result == nil:
		return nil, fault.New(fault.Unavailable, "peer %q answered %s without a result", p.Name, method)
	}
	return answer.Result, nil
}

func (t *Tools) fetch(ctx context.Context, p Peer, method, address string, body []byte) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, method, address, bytes.NewReader(body))
	if err != nil {
		return nil, fault.New(fault.Invalid, "the url of peer %q cannot be used", p.Name)
	}
	r.Header.Set("Content-Type", "application/json")
	if p.Token != "" {
		r.Header.Set("Authorization", "Bearer "+p.Token)
	}
	resp, err := t.http.Do(r) //nolint:gosec // whom an agent may talk to is what its table says
	if err != nil {
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err
		}
		return nil, fault.Wrap(fault.Unavailable, err, "peer %q could not be reached", p.Name)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		return nil, fault.Wrap(fault.Unavailable, err, "peer %q broke off its answer", p.Name)
	case len(text) > maxAnswer:
		return nil, fault.New(fault.Unavailable, "peer %q answered more than %d MiB", p.Name, maxAnswer>>20)
	case resp.StatusCode != http.StatusOK:
		return nil, fault.Wrap(fault.Unavailable, &statusError{resp.StatusCode, string(text[:min(len(text), 200)])}, "peer %q", p.Name)
	}
	return text, nil
}

// send starts a task; only a connection that could not be made is tried again, since a message must not be sent twice.
func (t *Tools) send(ctx context.Context, p Peer, parts []any, contextID string) (map[string]any, error) {
	var id [16]byte
	_, _ = rand.Read(id[:])
	message := map[string]any{"kind": "message", "role": "user", "messageId": hex.EncodeToString(id[:]), "parts": parts}
	if contextID != "" {
		message["contextId"] = contextID
	}
	for i := 1; ; i++ {
		result, err := t.call(ctx, p, "message/send", map[string]any{"message": message, "configuration": map[string]any{"blocking": false}}, sendLimit)
		if dial := new(net.OpError); err == nil || i == connects || !errors.As(err, &dial) || dial.Op != "dial" {
			return result, err
		}
		if err := t.pause(ctx, []time.Duration{2, 4, 8, 15}[i-1]*time.Second); err != nil {
			return nil, err
		}
	}
}

func (t *Tools) get(ctx context.Context, p Peer, task string, history int) (map[string]any, error) {
	params := map[string]any{"id": task}
	if history >= 0 {
		params["historyLength"] = history
	}
	return t.call(ctx, p, "tasks/get", params, getLimit)
}

// settle waits for a task to end or to ask for something, until the deadline; it then returns the last that is known.
func (t *Tools) settle(ctx context.Context, p Peer, task map[string]any, deadline time.Time) (map[string]any, error) {
	id, _ := task["id"].(string)
	failed := 0
	for pause := min(firstPoll, t.poll); !settled(stateOf(task)); pause = min(2*pause, t.poll) {
		wait := min(pause+t.poll*time.Duration(failed), time.Minute)
		if time.Now().Add(wait).After(deadline.Add(t.poll)) {
			return task, nil
		}
		if err := t.pause(ctx, wait); err != nil {
			return nil, err
		}
		next, err := t.get(ctx, p, id, 0)
		refused := new(statusError)
		switch {
		case err == nil:
			task, failed = next, 0
		case errors.As(err, &refused) && refused.status/100 == 4:
			return nil, err
		default:
			failed++
		}
	}
	return task, nil
}

func (t *Tools) pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}

func stateOf(task map[string]any) string {
	status, _ := task["status"].(map[string]any)
	s, _ := status["state"].(string)
	return s
}

func terminal(state string) bool {
	switch state {
	case "completed", "failed", "canceled", "rejected":
		return true
	}
	return false
}

func settled(state string) bool {
	return terminal(state) || state == "input-required" || state == "auth-required"
}
