package transfer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// The bounds of one transfer.
const (
	connectLimit = 30 * time.Second
	idleLimit    = 60 * time.Second // without a byte either way
	attempts     = 3
	// StagingPath is the header of a grant for the staging store of the agent that uses it: the path on its own server.
	StagingPath = "AgentEnv-Staging-Path"
)

// Client moves objects by grants. It follows no redirects. Safe for concurrent use.
type Client struct {
	http *http.Client
	log  *slog.Logger
	now  func() time.Time
	idle time.Duration
	wait func(attempt int) time.Duration
}

// Options is what a Client is made of; every field may be zero.
type Options struct {
	HTTP *http.Client     // nil = one of its own
	Log  *slog.Logger     // nil = none; grants show in it by their host alone
	Now  func() time.Time // nil = time.Now
	Idle time.Duration    // how long a transfer may stand still; 0 = 60 s
}

// NewClient returns a client.
func NewClient(o Options) *Client {
	c := &Client{log: o.Log, now: o.Now, idle: o.Idle, wait: backoff}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	if c.now == nil {
		c.now = time.Now
	}
	if c.idle == 0 {
		c.idle = idleLimit
	}
	h := http.Client{}
	if o.HTTP != nil {
		h = *o.HTTP
	} else {
		t := http.DefaultTransport.(*http.Transport).Clone()
		t.DialContext = (&net.Dialer{Timeout: connectLimit}).DialContext
		t.DisableCompression = true
		h.Transport = t
	}
	h.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	c.http = &h
	return c
}

// Close releases idle connections; a second call is a no-op.
func (c *Client) Close() { c.http.CloseIdleConnections() }

func backoff(attempt int) time.Duration {
	d := time.Second << attempt
	return d/2 + rand.N(d/2+1)
}

type portKey struct{}

// WithPort returns a context that knows the port of this process's own server, so that a grant for its own staging store is used over
// loopback.
func WithPort(ctx context.Context, port int) context.Context {
	return context.WithValue(ctx, portKey{}, port)
}

// repeat makes up to three attempts, only after errors that may pass and only before the grant expires.
func (c *Client) repeat(ctx context.Context, expires time.Time, attempt func() *Error) error {
	for i := range attempts {
		if !c.now().Before(expires) {
			return expired()
		}
		err := attempt()
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case !err.Retryable:
			return err
		}
		last := i == attempts-1
		if !last {
			pause := time.NewTimer(c.wait(i))
			select {
			case <-ctx.Done():
				pause.Stop()
				return context.Cause(ctx)
			case <-pause.C:
			}
		}
		if over := !c.now().Before(expires); over || last {
			if over && err.Code == "transfer_timeout" {
				err.Retryable = false
			}
			return err
		}
	}
	return nil
}

// request is one HTTP request by a grant.
type request struct {
	method, url string
	headers     map[string]string
	defaults    map[string]string // headers unless the grant sets them
	body        func() (io.Reader, func(), error)
	length      int64
	// take reads the answer of a request that succeeded.
	take func(http.Header, io.Reader) *Error
}

var errStalled = errors.New("no byte went through")

// send makes one attempt. A grant for the process's own staging store goes over loopback first; only a connection that cannot be made
// there leads to its URL.
func (c *Client) send(ctx context.Context, r request) *Error {
	if own := c.loopback(ctx, r); own != "" {
		local := r
		local.url = own
		err := c.once(ctx, local)
		if dial := new(net.OpError); err == nil || !errors.As(err.cause, &dial) || dial.Op != "dial" {
			return err
		}
	}
	return c.once(ctx, r)
}

func (c *Client) loopback(ctx context.Context, r request) string {
	port, _ := ctx.Value(portKey{}).(int)
	u, err := url.Parse(r.url)
	if port == 0 || err != nil {
		return ""
	}
	for k, v := range r.headers {
		if strings.EqualFold(k, StagingPath) && strings.HasPrefix(v, "/") && strings.HasSuffix(u.Path, v) {
			own := url.URL{Scheme: "http", Host: fmt.Sprintf("127.0.0.1:%d", port), Path: v, RawQuery: u.RawQuery}
			return own.String()
		}
	}
	return ""
}

func (c *Client) once(ctx context.Context, r request) *Error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	w := &watch{timer: time.AfterFunc(c.idle, func() { cancel(errStalled) }), limit: c.idle}
	defer w.timer.Stop()
	var body io.Reader
	if r.body != nil {
		b, done, err := r.body()
		if err != nil {
			return failed(ctx, err)
		}
		defer done()
		body = &watched{b, w}
	}
	req, err := http.NewRequestWithContext(ctx, r.method, r.url, body)
	if err != nil {
		return invalid("The grant holds no usable URL.")
	}
	if r.body != nil {
		req.ContentLength = r.length
		if r.length == 0 {
			req.Body = http.NoBody
		}
	}
	for k, v := range r.headers {
		req.Header.Set(k, v)
	}
	for k, v := range r.defaults {
		if req.Header.Get(k) == "" {
			req.Header.Set(k, v)
		}
	}
	c.log.Debug("transfer", "method", r.method, "to", req.URL.Scheme+"://"+req.URL.Host+"/<redacted>", "bytes", r.length)
	resp, err := c.http.Do(req) //nolint:gosec // a grant names where to go
	if err != nil {
		return failed(ctx, err)
	}
	defer resp.Body.Close()
	answer := &watched{resp.Body, w}
	if resp.StatusCode/100 != 2 {
		return refused(resp.StatusCode, answer)
	}
	if r.take == nil {
		return nil
	}
	terr := r.take(resp.Header, answer)
	if terr != nil && ctx.Err() != nil {
		return failed(ctx, terr)
	}
	return terr
}

func refused(status int, answer io.Reader) *Error {
	head, _ := io.ReadAll(io.LimitReader(answer, 1024))
	cause := &answeredError{status}
	if status == 408 || status == 429 || status >= 500 || status == 400 && bytes.Contains(head, []byte("<Code>RequestTimeout</Code>")) {
		return unavailable(cause)
	}
	return rejected(cause)
}

// answeredError is an answer that is no success.
type answeredError struct{ status int }

func (a *answeredError) Error() string { return fmt.Sprintf("it answered %d", a.status) }

// failed tells why a request came to no answer.
func failed(ctx context.Context, err error) *Error {
	ours := new(Error)
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err // without the URL
	}
	switch {
	case errors.As(err, &ours):
		return ours
	case errors.Is(context.Cause(ctx), errStalled), isTimeout(err):
		return stalled(err)
	}
	return unavailable(err)
}

func isTimeout(err error) bool {
	var t net.Error
	return errors.As(err, &t) && t.Timeout()
}

// watch ends a request that stands still.
type watch struct {
	timer *time.Timer
	limit time.Duration
}

type watched struct {
	r io.Reader
	w *watch
}

func (r *watched) Read(p []byte) (int, error) {
	n, err := r.r.Read(p)
	if n > 0 {
		r.w.timer.Reset(r.w.limit)
	}
	return n, err
}
