package agent

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"agentenv/fault"
	"agentenv/store/doc"
)

// DefaultCall is how long one try of a Call may take when it says nothing.
const DefaultCall = 60 * time.Second

// callAttempts is how often a Call with Retry is tried.
const callAttempts = 10

// Call is one request to an operation of an extension.
type Call struct {
	URI, Op string
	Body    *doc.Object   // nil = no body; of an operation that is a GET the query
	Timeout time.Duration // for one try; 0 = DefaultCall
	Grants  bool          // the body holds grants, which are secrets: what an error quotes of the answer is without them
	Secrets bool          // the body holds other secrets: of an error only its code may be quoted
	Retry   bool          // an agent that does not answer or does not serve the route yet (404) is asked up to 10 times, over about 100 seconds
}

// CallError is an operation that failed. Its fault kind follows the status: NotFound for 404, Conflict for 409, Denied for 401 and 403, Timeout
// for 408 and 504, Invalid for other 4xx but 425 and 429, Unavailable for everything else and for an agent that does not answer.
type CallError struct {
	Status int    // 0 = there was no answer
	Code   string // the error's code, where the answer has one
	Detail string // what the message quotes of the answer
	Err    error
}

// Error returns one line.
func (e *CallError) Error() string { return e.Err.Error() }

// Unwrap returns the cause, which carries the fault kind.
func (e *CallError) Unwrap() error { return e.Err }

// Call runs an operation at the route that the card gives it and returns the answer's object; an empty answer is an empty object. The error
// is Unsupported, with nothing sent, when the card does not name the extension or nothing gives the route, and a *CallError otherwise. With Retry
// a request may reach the agent more than once.
func (c *Client) Call(ctx context.Context, e Endpoint, call Call) (*doc.Object, error) {
	r, err := e.route(call)
	if err != nil {
		return nil, err
	}
	for attempt := 1; ; attempt++ {
		out, err := c.tryCall(ctx, e, r)
		if err == nil || !call.Retry || attempt == callAttempts || !again(err) || !sleep(ctx, callDelay(attempt)) {
			return out, err
		}
	}
}

// route is a call and where it goes.
type route struct {
	Call
	name, method, target string
	body                 []byte
}

func (e Endpoint) route(call Call) (route, error) {
	op := e.Card.Extension(call.URI).Operation(call.Op)
	r := route{Call: call, name: fmt.Sprintf("%s of %s", call.Op, call.URI), method: op.Method}
	if op.Path == "" {
		return r, fault.New(fault.Unsupported, "%s: the card of %s does not offer it", r.name, e.where())
	}
	if r.method == "" {
		r.method = http.MethodPost
	}
	r.target = strings.TrimRight(e.URL, "/") + "/" + strings.TrimPrefix(op.Path, "/")
	if r.method == http.MethodGet {
		r.target += query(call.Body)
	} else if call.Body != nil {
		var err error
		if r.body, err = doc.Compact(call.Body); err != nil {
			return r, fault.At(err, "%s of %s", r.name, e.where())
		}
	}
	if r.Timeout <= 0 {
		r.Timeout = DefaultCall
	}
	return r, nil
}

// callDelay is the pause after a failed try: 2, 4, 8, 15, 15, … seconds.
func callDelay(attempt int) time.Duration {
	if attempt > len(sendDelays) {
		attempt = len(sendDelays)
	}
	return sendDelays[attempt-1]
}

// again reports whether a later try may go better: no answer, or no such route yet.
func again(err error) bool {
	var e *CallError
	return errors.As(err, &e) && (e.Status == 0 && !fault.Is(err, fault.Canceled) || e.Status == http.StatusNotFound)
}

func (c *Client) tryCall(ctx context.Context, e Endpoint, r route) (*doc.Object, error) {
	try, stop := context.WithTimeout(ctx, r.Timeout)
	defer stop()
	a, err := c.do(try, e, r.method, r.target, "application/json", r.body)
	if err != nil {
		return nil, e.unanswered(ctx, try, r, err)
	}
	if a.status < 200 || a.status > 299 {
		return nil, e.callError(r, a)
	}
	if len(strings.TrimSpace(string(a.body))) == 0 {
		return doc.Of(), nil
	}
	out, err := doc.ParseObject(a.body, doc.Options{})
	if err != nil {
		text := ""
		if !r.Grants && !r.Secrets {
			text = ": " + e.quote(a.body)
		}
		return nil, &CallError{Status: a.status, Err: fault.New(fault.Unavailable, "%s: %s answered with what is no JSON object%s", r.name, e.where(), text)}
	}
	return out, nil
}

// unanswered is the error of a try within ctx that got no whole answer.
func (e Endpoint) unanswered(ctx, try context.Context, r route, err error) error {
	kind := fault.Unavailable
	switch {
	case ctx.Err() != nil:
		kind = fault.KindOf(ctx.Err())
	case try.Err() != nil:
		return &CallError{Err: fault.New(fault.Timeout, "%s: %s did not answer within %g s", r.name, e.where(), r.Timeout.Seconds())}
	}
	return &CallError{Err: fault.Wrap(kind, err, "%s: %s did not answer", r.name, e.where())}
}

var errorCode = regexp.MustCompile(`^[a-z][a-z0-9_]{0,63}$`)

func (e Endpoint) callError(r route, a *answer) *CallError {
	out := &CallError{Status: a.status}
	if o, err := doc.ParseObject(a.body, doc.Options{}); err == nil {
		for _, code := range []string{o.Obj("error").Str("code"), o.Str("code")} {
			if out.Code == "" && errorCode.MatchString(code) {
				out.Code = code
			}
		}
	}
	out.Detail = out.Code
	if said := r.withoutGrants(a.body); !r.Secrets && !(r.Grants && bytes.Contains(said, []byte("://"))) { // a URL may open something by itself
		out.Detail = e.quote(said)
	}
	kind := fault.Unavailable
	switch {
	case a.status == http.StatusNotFound:
		kind = fault.NotFound
	case a.status == http.StatusConflict:
		kind = fault.Conflict
	case a.status == http.StatusUnauthorized || a.status == http.StatusForbidden:
		kind = fault.Denied
	case a.status == http.StatusRequestTimeout || a.status == http.StatusGatewayTimeout:
		kind = fault.Timeout
	case a.status >= 400 && a.status < 500 && !passing(a.status):
		kind = fault.Invalid
	}
	text := fmt.Sprintf("%s failed with HTTP %d", r.name, a.status)
	switch {
	case a.status >= 300 && a.status < 400:
		text += ", a redirect, which is not followed"
	case out.Detail != "":
		text += ": " + out.Detail
	case a.status == http.StatusNotFound:
		text += ": the route is not served"
	}
	out.Err = fault.New(kind, "%s (%s)", text, e.where())
	return out
}

// minSecret is from how many bytes on a word of a request may be one that opens something.
const minSecret = 12

// withoutGrants takes out of an answer what the request gave away for this one call: every longer word of its values, so that no part of a URL or
// header is repeated either.
func (r route) withoutGrants(answer []byte) []byte {
	if !r.Grants {
		return answer
	}
	words := map[string]bool{}
	var collect func(v any)
	collect = func(v any) {
		switch v := v.(type) {
		case string:
			for _, w := range strings.FieldsFunc(v, func(c rune) bool { return strings.ContainsRune("/?&=:;, \"'", c) }) {
				if len(w) >= minSecret {
					words[w] = true
				}
			}
		case []any:
			for _, x := range v {
				collect(x)
			}
		case *doc.Object:
			for _, k := range v.Keys() {
				collect(v.Value(k))
			}
		}
	}
	collect(r.Body)
	text := string(answer)
	for _, w := range slices.SortedFunc(maps.Keys(words), func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) }) {
		text = strings.ReplaceAll(text, w, "***")
	}
	return []byte(text)
}

// query writes an object as the query of a URL, "" for none; what is no text is written as JSON.
func query(o *doc.Object) string {
	q := url.Values{}
	for _, k := range o.Keys() {
		switch v := o.Value(k).(type) {
		case string:
			q.Set(k, v)
		default:
			text, err := doc.Compact(v)
			if err == nil {
				q.Set(k, string(text))
			}
		}
	}
	if len(q) == 0 {
		return ""
	}
	return "?" + q.Encode()
}

// Negotiate returns the fields of body that the card's operation declares, in their order, and the names of the others. Where the card does not
// list the operation, or declares no request for it, every field is dropped.
func Negotiate(e Endpoint, uri, op string, body *doc.Object) (taken *doc.Object, dropped []string) {
	declared := map[string]bool{}
	if o := e.Card.Extension(uri).Operation(op); o.Listed {
		for _, f := range o.Request.Supported(body.Keys()...) {
			declared[f] = true
		}
	}
	taken = doc.Of()
	for _, k := range body.Keys() {
		if declared[k] {
			taken.Set(k, body.Value(k))
		} else {
			dropped = append(dropped, k)
		}
	}
	return taken, dropped
}
