package episode

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"agentenv/fault"
	"agentenv/store/doc"
)

// The bounds of the door.
const (
	maxBody      = 16 << 20 // of a request
	maxLive      = 1_000    // episodes at once
	maxEnded     = 100      // that are still answered for
	maxReason    = 2_000    // bytes
	bodyTime     = time.Minute
	longestWait  = 60 * time.Second
	ordinaryWait = 25 * time.Second
)

// Door serves the episodes of a plan over HTTP, JSON in and out, to whoever has its token. It is safe for concurrent use.
type Door struct {
	plan  *Plan
	token [sha256.Size]byte
	mux   *http.ServeMux

	starting sync.Mutex // one episode starts at a time
	closing  error      // why nothing is started any more

	mu       sync.Mutex
	episodes map[string]*Episode
	order    []string // of their ids, the oldest first
}

// NewDoor returns a door to the episodes of a plan; token is what every request must carry. Close it to end what it started.
func NewDoor(p *Plan, token string) *Door {
	d := &Door{plan: p, token: sha256.Sum256([]byte(token)), mux: http.NewServeMux(), episodes: map[string]*Episode{}}
	d.mux.HandleFunc("GET /v1/task", d.answer(d.task))
	d.mux.HandleFunc("POST /v1/episodes", d.answer(d.start))
	for path, h := range map[string]func(context.Context, *Episode, *doc.Object) (*doc.Object, error){
		"next": d.next, "result": d.result, "abandon": d.abandon} {
		d.mux.HandleFunc("POST /v1/episodes/{episode}/"+path, d.answer(func(r *http.Request, body *doc.Object) (*doc.Object, error) {
			e, err := d.episode(r)
			if err != nil {
				return nil, err
			}
			return h(r.Context(), e, body)
		}))
	}
	for path, h := range map[string]func(context.Context, *Turn, *doc.Object) (*doc.Object, error){
		"tools": listTools, "call": callTool, "record": record, "end": end} {
		d.mux.HandleFunc("POST /v1/episodes/{episode}/turns/{turn}/"+path, d.answer(func(r *http.Request, body *doc.Object) (*doc.Object, error) {
			e, err := d.episode(r)
			if err != nil {
				return nil, err
			}
			n, err := strconv.Atoi(r.PathValue("turn"))
			if err != nil {
				return nil, fault.New(fault.Invalid, "a turn is named by its number, not %.40q", r.PathValue("turn"))
			}
			t, err := e.Turn(n)
			if err != nil {
				return nil, refusal{http.StatusNotFound, "turn_over", err}
			}
			answer, err := h(r.Context(), t, body)
			if fault.Is(err, fault.NotFound) {
				err = refusal{http.StatusNotFound, "turn_over", err}
			}
			return answer, err
		}))
	}
	d.mux.HandleFunc("/", d.answer(func(r *http.Request, _ *doc.Object) (*doc.Object, error) {
		return nil, refusal{http.StatusNotFound, "no_such_path", fault.New(fault.NotFound, "nothing answers %s %.200s", r.Method, r.URL.Path)}
	}))
	return d
}

// ServeHTTP implements http.Handler.
func (d *Door) ServeHTTP(w http.ResponseWriter, r *http.Request) { d.mux.ServeHTTP(w, r) }

// Close abandons every episode that goes on, with a reason, and waits for their teardowns; when ctx ends, it stops the teardowns, and what they had left
// stays up. Nothing is started afterwards. A second call waits as well.
func (d *Door) Close(ctx context.Context, reason string) {
	d.starting.Lock()
	d.closing = fault.New(fault.Unavailable, "the door is closing: %s", reason)
	d.starting.Unlock()
	d.mu.Lock()
	var all []*Episode
	for _, e := range d.episodes {
		all = append(all, e)
	}
	d.mu.Unlock()
	var closing sync.WaitGroup
	for _, e := range all {
		closing.Go(func() {
			if e.Abandon(ctx, reason) != nil {
				e.halt()
				_ = e.await(context.WithoutCancel(ctx)) // a stopped teardown ends soon
			}
		})
	}
	closing.Wait()
}

// refusal is an error with its answer.
type refusal struct {
	status int
	name   string
	error
}

// Unwrap returns the error itself.
func (r refusal) Unwrap() error { return r.error }

// answerOf says how an error is told.
func answerOf(err error) refusal {
	var r refusal
	if errors.As(err, &r) {
		return r
	}
	for _, c := range []struct {
		kind   fault.Kind
		status int
		name   string
	}{
		{fault.Invalid, http.StatusBadRequest, "invalid"}, {fault.Unsupported, http.StatusBadRequest, "unsupported"}, {fault.Exists, http.StatusConflict, "conflict"},
		{fault.Conflict, http.StatusConflict, "conflict"}, {fault.NotFound, http.StatusNotFound, "not_found"}, {fault.Unavailable, http.StatusServiceUnavailable, "unavailable"},
		{fault.Timeout, http.StatusGatewayTimeout, "timeout"}, {fault.Canceled, http.StatusConflict, "cancelled"},
	} {
		if fault.Is(err, c.kind) {
			return refusal{c.status, c.name, err}
		}
	}
	return refusal{http.StatusInternalServerError, "internal", err}
}

// answer makes a handler of a function from a request's body to an answer.
func (d *Door) answer(h func(*http.Request, *doc.Object) (*doc.Object, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		answer, err := func() (*doc.Object, error) {
			if err := d.admit(r); err != nil {
				return nil, err
			}
			body, err := readBody(w, r)
			if err != nil {
				return nil, err
			}
			return h(r, body)
		}()
		status := http.StatusOK
		if err != nil {
			a := answerOf(err)
			status, answer = a.status, doc.Of("error", a.name, "detail", strings.ToValidUTF8(err.Error(), "\uFFFD"))
			if status == http.StatusUnauthorized {
				w.Header().Set("WWW-Authenticate", "Bearer")
			}
		}
		text, err := doc.Compact(answer)
		if err != nil { // a number that JSON does not have
			status, text = http.StatusInternalServerError, []byte(`{"error":"internal","detail":"the answer cannot be written as JSON"}`)
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		w.WriteHeader(status)
		_, _ = w.Write(text) // a client that has gone asks again
	}
}

// admit refuses whoever has not the token. A web page that has a name point here has not got it either, but is told no more than that.
func (d *Door) admit(r *http.Request) error {
	kind, given, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	sum := sha256.Sum256([]byte(strings.TrimSpace(given)))
	if !strings.EqualFold(kind, "Bearer") || subtle.ConstantTimeCompare(sum[:], d.token[:]) != 1 {
		return refusal{http.StatusUnauthorized, "unauthorized", fault.New(fault.Denied, "the request needs the header Authorization: Bearer and the token of this door")}
	}
	return nil
}

// readBody reads the JSON object of a request; no body is an empty one.
func readBody(w http.ResponseWriter, r *http.Request) (*doc.Object, error) {
	reads := http.NewResponseController(w)
	_ = reads.SetReadDeadline(time.Now().Add(bodyTime)) // not every connection has one
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return nil, refusal{http.StatusRequestEntityTooLarge, "too_large", fault.New(fault.Invalid, "the body has more than %d MiB", maxBody>>20)}
	case err != nil:
		return nil, fault.Wrap(fault.Invalid, err, "the body could not be read")
	}
	_ = reads.SetReadDeadline(time.Time{})
	return parseBody(text)
}

// parseBody reads the JSON object of a body.
func parseBody(text []byte) (*doc.Object, error) {
	if len(strings.TrimSpace(string(text))) == 0 {
		return &doc.Object{}, nil
	}
	body, err := doc.ParseObject(text, doc.Options{Strict: true})
	return body, fault.At(err, "the body")
}

// Listen opens a port for a door at an address of this machine alone, such as 127.0.0.1:0; anything else is an Invalid error.
func Listen(ctx context.Context, address string) (net.Listener, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fault.New(fault.Invalid, "%q is no address: it needs a host and a port, as 127.0.0.1:0", address)
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return nil, fault.New(fault.Invalid, "%q is not an address of this machine alone: use 127.0.0.1, ::1 or localhost", address)
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fault.Wrap(fault.Unavailable, fault.Reason(err), "no port at %s", address)
	}
	if a, ok := l.Addr().(*net.TCPAddr); !ok || !a.IP.IsLoopback() { // localhost can name anything
		l.Close()
		return nil, fault.New(fault.Invalid, "%q is not an address of this machine alone: it is %s", address, l.Addr())
	}
	return l, nil
}

// NewToken returns a new token for a door.
func NewToken() string { return randomHex() + randomHex() }
