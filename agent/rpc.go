package agent

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"agentenv/fault"
	"agentenv/store/doc"
)

// The error codes of JSON-RPC and A2A that matter to a client. Source: A2A 0.3, section 8.
const (
	codeNoMethod     = -32601
	codeTaskNotFound = -32001
	codeUnsupported  = -32004
	codeBadRequest   = -32600
	codeBadParams    = -32602
	codeContentType  = -32005
)

// rpcError is an answer that holds a JSON-RPC error.
type rpcError struct {
	method  string
	code    int64
	message string
}

func (r *rpcError) Error() string {
	return fmt.Sprintf("%s was answered with the error %d: %s", r.method, r.code, r.message)
}

// kind tells a message that the agent will never take from an agent in trouble.
func (r *rpcError) kind() fault.Kind {
	switch r.code {
	case codeBadRequest, codeBadParams:
		return fault.Invalid
	case codeNoMethod, codeUnsupported, codeContentType:
		return fault.Unsupported
	}
	return fault.Unavailable
}

// statusError is an answer with an HTTP status that is no success.
type statusError struct {
	method string
	status int
	text   string
}

func (s *statusError) Error() string { return s.method + " " + s.text }

// shapeError is an answer that is no A2A.
type shapeError struct{ text string }

func (s *shapeError) Error() string { return s.text }

// request returns the text of a JSON-RPC request around params that are JSON already.
func request(method, id string, params []byte) []byte {
	head := fmt.Sprintf(`{"jsonrpc":"2.0","id":%q,"method":%q,"params":`, id, method)
	out := make([]byte, 0, len(head)+len(params)+1)
	return append(append(append(out, head...), params...), '}')
}

// call runs one JSON-RPC method and returns its result.
func (c *Client) call(ctx context.Context, e Endpoint, rpc, method, id string, params []byte) (*doc.Object, error) {
	a, err := c.do(ctx, e, http.MethodPost, rpc, "application/json", request(method, id, params))
	if err != nil {
		return nil, err
	}
	return e.result(method, id, a)
}

// result reads the answer to the request of this id.
func (e Endpoint) result(method, id string, a *answer) (*doc.Object, error) {
	if why := e.refusal(a); why != "" {
		return nil, &statusError{method, a.status, why}
	}
	return e.response(method, id, a.body)
}

// response reads one JSON-RPC response object to the request of this id. One that has no id, or null, is taken as well: nothing else is asked over
// its connection, and an agent that could not read a request does not know its id.
func (e Endpoint) response(method, id string, text []byte) (*doc.Object, error) {
	o, err := doc.ParseObject(text, doc.Options{})
	if err != nil {
		return nil, &shapeError{fmt.Sprintf("%s was answered with what is no JSON object: %s", method, e.quote(text))}
	}
	if v := o.Value("id"); v != nil && v != id {
		return nil, &shapeError{fmt.Sprintf("%s was answered for another request (id %s, not %q)", method, e.quoteValue(v), id)}
	}
	if v := o.Value("error"); v != nil {
		told, _ := v.(*doc.Object)
		code, _ := told.Int("code")
		if said := told.Str("message"); said != "" {
			v = said
		}
		return nil, &rpcError{method, code, e.quoteValue(v)}
	}
	result, ok := o.Value("result").(*doc.Object)
	if !ok {
		return nil, &shapeError{fmt.Sprintf("%s was answered without a result: %s", method, e.quote(text))}
	}
	return result, nil
}

// quoteValue quotes a text as it is, anything else as JSON.
func (e Endpoint) quoteValue(v any) string {
	said, isText := v.(string)
	if !isText {
		written, err := doc.Compact(v)
		if err != nil {
			return "…"
		}
		said = string(written)
	}
	return e.quote([]byte(said))
}

func hasCode(err error, codes ...int64) bool {
	var r *rpcError
	if errors.As(err, &r) {
		for _, c := range codes {
			if r.code == c {
				return true
			}
		}
	}
	return false
}

// Cancel asks an agent to stop a task, for 10 seconds at most. An agent that does not know it, or cannot stop it, gives an Unavailable error; a
// second call asks again.
func (c *Client) Cancel(ctx context.Context, e Endpoint, taskID string) error {
	_, err := c.cancel(ctx, e, taskID)
	return fault.Wrap(fault.Unavailable, err, "cancel task %s of %s", taskID, e.where())
}

// cancel asks an agent to stop a task and returns the task.
func (c *Client) cancel(ctx context.Context, e Endpoint, taskID string) (*doc.Object, error) {
	ctx, stop := context.WithTimeout(ctx, cancelLimit)
	defer stop()
	params, err := doc.Compact(doc.Of("id", taskID))
	if err != nil {
		return nil, err
	}
	return c.call(ctx, e, e.RPC(), "tasks/cancel", "cancel", params)
}

// sendDelays are the pauses after a message/send that found no connection.
var sendDelays = []time.Duration{2 * time.Second, 4 * time.Second, 8 * time.Second, 15 * time.Second}
