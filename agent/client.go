// Package agent is the client side of A2A agents: how they are reached, asked and followed, and what is stored about them.
// Source: A2A 0.3 (https://a2a-protocol.org/v0.3.0/specification/), JSON-RPC over HTTP, and the urn:agentenv extensions.
package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"time"

	"agentenv/fault"
	"agentenv/protocol/card"
	"agentenv/telemetry"
)

// DefaultMaxBody is the size up to which a message is sent and an answer is read, in bytes.
const DefaultMaxBody = 64 << 20

// Options say how a Client works; the zero value is good.
type Options struct {
	HTTP    *http.Client     // nil = a pooled one of the client's own; its CheckRedirect and Timeout are not used
	Log     *slog.Logger     // nil = nothing is logged
	Now     func() time.Time // nil = time.Now
	MaxBody int64            // the most bytes of a message sent, an answer read, or one event of a stream; 0 = DefaultMaxBody
}

// Client speaks to agents over one pool of connections. It follows no redirect: where an agent answers is said by its record.
// It is safe for concurrent use.
type Client struct {
	http    *http.Client
	own     *http.Transport // nil when the caller gave a client
	log     *slog.Logger
	now     func() time.Time
	maxBody int64
}

const (
	connectLimit = 10 * time.Second
	idlePerHost  = 256 // many agents may stand behind one address
)

// idleLife is how long an idle connection is kept. It is below the 5 seconds after which common Python servers close theirs, so that no
// message goes out on a connection that the agent is just closing.
const idleLife = 4 * time.Second

// NewClient returns a client. Close it when its work is done.
func NewClient(o Options) *Client {
	c := &Client{log: o.Log, now: o.Now, maxBody: o.MaxBody}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	if c.now == nil {
		c.now = time.Now
	}
	if c.maxBody <= 0 {
		c.maxBody = DefaultMaxBody
	}
	pooled := http.Client{}
	if o.HTTP != nil {
		pooled = *o.HTTP
	} else {
		c.own = &http.Transport{Proxy: http.ProxyFromEnvironment, DialContext: (&net.Dialer{Timeout: connectLimit}).DialContext, ForceAttemptHTTP2: true,
			TLSHandshakeTimeout: connectLimit, MaxIdleConnsPerHost: idlePerHost, IdleConnTimeout: idleLife}
		pooled.Transport = c.own
	}
	pooled.Timeout = 0
	pooled.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	c.http = &pooled
	return c
}

// Close drops the idle connections of the client's own pool; those in use end with their calls. A second call is a no-op.
func (c *Client) Close() {
	if c.own != nil {
		c.own.CloseIdleConnections()
	}
}

// Endpoint is where an agent answers, and what is known about it.
type Endpoint struct {
	URL                  string            // base URL (the a2a_url of its record)
	Card                 *card.Card        // nil = unknown
	Token                string            // bearer token, "" = none; never logged
	Sandbox, SandboxType string            // where it runs, for messages and for the rule of unreachability; "" = nobody here runs it
	Headers              map[string]string // request headers that the sandbox's provider needs; nil = none
}

// RPC returns the URL that takes JSON-RPC: the path of the card's url, "/a2a" without one, below the endpoint's own URL. The card's host is
// passed over, since an agent does not know under which address it is reached.
func (e Endpoint) RPC() string {
	base := strings.TrimRight(e.URL, "/")
	path := "/a2a"
	if e.Card != nil && e.Card.URL != "" {
		u, err := url.Parse(e.Card.URL)
		if err == nil {
			path = "/" + strings.TrimPrefix(u.EscapedPath(), "/")
		}
	}
	at, err := url.Parse(base)
	if err != nil {
		return base + path
	}
	if own := at.EscapedPath(); own != "" && (path == own || strings.HasPrefix(path, own+"/")) {
		return strings.TrimSuffix(base, own) + path
	} else if own != "" && strings.HasSuffix(own, path) {
		return base
	}
	return base + path
}

// where names the endpoint for messages.
func (e Endpoint) where() string {
	s := "the agent at " + e.URL
	switch u, err := url.Parse(e.URL); {
	case err == nil:
		if u.RawQuery != "" {
			u.RawQuery = "***"
		}
		if _, password := u.User.Password(); u.User != nil && !password { // a token
			u.User = url.User("xxxxx")
		}
		s = "the agent at " + u.Redacted()
	case strings.ContainsAny(e.URL, "@?"): // a password may be in it
		s = "the agent at an address that cannot be read"
	}
	if e.Sandbox != "" {
		s += " (sandbox " + e.Sandbox + ")"
	}
	return s
}

// String names the endpoint for messages; no secret is in it.
func (e Endpoint) String() string { return e.where() }

// transportError is a request that got no answer.
type transportError struct {
	err    error
	unsent bool // no connection came about, so the agent saw nothing of it
}

func (t *transportError) Error() string { return t.err.Error() }
func (t *transportError) Unwrap() error { return t.err }

// open sends one request and returns its answer, whatever the status; the caller closes the body. The error is a *transportError, or
// Invalid for what is no URL.
func (c *Client) open(ctx context.Context, e Endpoint, method, target, accept string, body []byte) (*http.Response, error) {
	connected := false
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected = true }})
	var payload io.Reader
	if body != nil {
		payload = bytes.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, method, target, payload)
	if err != nil {
		return nil, fault.New(fault.Invalid, "%s: its address is no URL", e.where())
	}
	for k, v := range e.Headers {
		req.Header.Set(k, v)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	req.Header.Set("Accept", accept)
	if e.Token != "" {
		req.Header.Set("Authorization", "Bearer "+e.Token)
	}
	telemetry.Hand(ctx, req.Header)
	resp, err := c.http.Do(req)
	if err != nil {
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err
		}
		return nil, &transportError{err: err, unsent: !connected}
	}
	return resp, nil
}

// answer is a whole answer.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// do sends one request and reads the whole answer. The error is a *transportError, or a *sizeError.
func (c *Client) do(ctx context.Context, e Endpoint, method, target, accept string, body []byte) (*answer, error) {
	resp, err := c.open(ctx, e, method, target, accept, body)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	return c.read(resp)
}

func (c *Client) read(resp *http.Response) (*answer, error) {
	if resp.ContentLength > c.maxBody {
		return nil, &sizeError{limit: c.maxBody}
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, c.maxBody+1))
	if err != nil {
		return nil, &transportError{err: err}
	}
	if int64(len(text)) > c.maxBody {
		return nil, &sizeError{limit: c.maxBody}
	}
	return &answer{resp.StatusCode, resp.Header, text}, nil
}

// sizeError is an answer beyond the limit.
type sizeError struct{ limit int64 }

func (s *sizeError) Error() string { return "its answer is larger than " + bytesText(s.limit) }

func bytesText(n int64) string {
	if n >= 1<<20 && n%(1<<20) == 0 {
		return fmt.Sprintf("%d MiB", n>>20)
	}
	return fmt.Sprintf("%d bytes", n)
}

// quoteLimit is how much of an answer a message quotes, in bytes.
const quoteLimit = 500

// quote returns the start of an answer's text for a message, without the token should the agent have sent it back.
func (e Endpoint) quote(body []byte) string {
	s := string(body)
	if len(s) > quoteLimit+len(e.Token) {
		s = s[:quoteLimit+len(e.Token)]
	}
	if e.Token != "" {
		s = strings.ReplaceAll(s, e.Token, "***")
	}
	if len(s) > quoteLimit {
		s = s[:quoteLimit]
	}
	return strings.ToValidUTF8(strings.Join(strings.Fields(s), " "), "")
}

// refusal says, for a message, how an HTTP status other than 200 answers a request; "" when the status is a success.
func (e Endpoint) refusal(a *answer) string {
	switch {
	case a.status >= 200 && a.status < 300:
		return ""
	case a.status >= 300 && a.status < 400:
		return fmt.Sprintf("answered HTTP %d, a redirect, which is not followed: give the address that the agent itself answers on", a.status)
	case a.status == http.StatusUnauthorized || a.status == http.StatusForbidden:
		return fmt.Sprintf("answered HTTP %d: it does not take the credentials of this request", a.status)
	}
	if text := e.quote(a.body); text != "" {
		return fmt.Sprintf("answered HTTP %d: %s", a.status, text)
	}
	return fmt.Sprintf("answered HTTP %d", a.status)
}

// sleep waits for d or the end of ctx, and reports whether ctx still goes on.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return ctx.Err() == nil
	}
}
