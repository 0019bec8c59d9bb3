package a2a

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"agentenv/fault"
	"agentenv/protocol/trajectory"
	"agentenv/protocol/transfer"
)

// Server serves one agent. It is safe for concurrent use.
type Server struct {
	agent    Agent
	settings Settings
	rpcPath  string
	logs     *trajectory.Store
	tasks    *tasks
	transfer *transfer.Client
	config   *config // nil: the agent takes none
	mcp      mcpTable
	skills   skillTable
	entries  []*entry // the extensions, as on the card
	routes   routes
	closers  []func(context.Context) error // of the extensions
	stop     func(context.Context) error
}

// New checks an agent, runs its Start, and returns the server that answers for it; it listens nowhere yet. What is wrong with the agent is
// an Invalid error that names it; the extensions are closed then. The caller must Close the server.
func New(ctx context.Context, agent Agent, settings Settings) (*Server, error) {
	s := &Server{agent: agent, settings: settings.filled(), stop: func(context.Context) error { return nil }}
	s.logs = trajectory.NewStore(s.settings.Log, s.settings.Contexts)
	for _, ext := range agent.Extensions {
		if ext.Close != nil {
			s.closers = append(s.closers, ext.Close)
		}
	}
	s.transfer = transfer.NewClient(transfer.Options{Log: s.settings.Log, Now: s.settings.Now})
	if err := s.assemble(); err != nil {
		return nil, errors.Join(err, s.release(ctx))
	}
	if agent.Start != nil {
		stop, err := agent.Start(ctx)
		if err != nil {
			return nil, errors.Join(fault.At(err, "the agent %q cannot start", agent.Identity.Name), s.release(ctx))
		}
		if stop != nil {
			s.stop = stop
		}
	}
	s.tasks = newTasks(s.run, s.logs, s.settings.Now, s.settings.Contexts)
	if err := s.keep(); err != nil {
		return nil, errors.Join(err, s.Close(ctx))
	}
	return s, nil
}

// keep takes up what the journal knows, if there is to be one.
func (s *Server) keep() error {
	if s.settings.JournalDir == "" {
		return nil
	}
	j, err := openJournal(s.settings.JournalDir, s.settings.Log)
	if err != nil {
		return err
	}
	s.closers = append(s.closers, func(context.Context) error { return j.close() })
	return s.tasks.restore(j)
}

// Handler returns what serves the agent over HTTP: messages, the card, extensions and /health.
func (s *Server) Handler() http.Handler { return http.HandlerFunc(s.serve) }

// Close cancels the tasks that go on, waits for their code until the context ends, closes the extensions in the opposite order of the
// card, and stops the agent. It returns all that went wrong. Requests that come later are refused. Close it once.
func (s *Server) Close(ctx context.Context) error {
	return errors.Join(s.tasks.close(ctx), s.release(ctx), s.stop(ctx))
}

func (s *Server) release(ctx context.Context) error {
	var all []error
	for _, f := range slices.Backward(s.closers) {
		all = append(all, f(ctx))
	}
	s.transfer.Close()
	return errors.Join(all...)
}

// Serve answers on the listener until the context ends, then lets requests finish for at most the grace, and closes the server. It returns
// nil after an orderly end.
func (s *Server) Serve(ctx context.Context, l net.Listener, grace time.Duration) error {
	h := &http.Server{Handler: s.Handler(), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		BaseContext: func(net.Listener) context.Context { return context.WithoutCancel(ctx) }}
	ended := make(chan error, 1)
	go func() { ended <- h.Serve(l) }()
	var failed error
	select {
	case failed = <-ended:
	case <-ctx.Done():
	}
	last, done := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer done()
	closed := s.Close(last)
	if err := h.Shutdown(last); err != nil {
		closed = errors.Join(closed, h.Close())
	}
	if failed == nil {
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			closed = errors.Join(closed, err)
		}
		return closed
	}
	return errors.Join(fault.Wrap(fault.Unavailable, failed, "the agent cannot answer on %s", l.Addr()), closed)
}

// Main makes a server of the agent, as the settings say, and serves it until the context ends: what the program of an agent calls.
func Main(ctx context.Context, agent Agent, settings Settings) error {
	s, err := New(ctx, agent, settings)
	if err != nil {
		return err
	}
	address := net.JoinHostPort(s.settings.Host, strconv.Itoa(s.settings.Port))
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return errors.Join(fault.Wrap(fault.Unavailable, err, "the agent cannot listen on %s", address), s.Close(ctx))
	}
	s.settings.Log.Info("the agent listens", "agent", agent.Identity.Name, "address", l.Addr().String())
	return s.Serve(ctx, l, 10*time.Second)
}

// run calls the agent's code; whatever goes wrong there is a result that shows nothing of it.
func (s *Server) run(ctx context.Context, t *task) (r Result) {
	defer func() {
		if p := recover(); p != nil {
			r = s.unexpected(t, fmt.Errorf("panic: %v\n%s", p, debug.Stack()))
		}
	}()
	var err error
	if s.agent.Stream != nil {
		r, err = s.agent.Stream(ctx, t.request, t.emit)
	} else {
		r, err = s.agent.Run(ctx, t.request)
	}
	if ctx.Err() != nil {
		return Result{Trajectory: r.Trajectory, SessionRef: r.SessionRef}
	}
	if err == nil {
		err = r.check()
	}
	if err == nil {
		r.Parts, err = copyParts(r.message())
	}
	if err != nil {
		return s.unexpected(t, err)
	}
	return r
}

func (s *Server) unexpected(t *task, err error) Result {
	id := correlation()
	s.settings.Log.Error("the agent's code failed", "task", t.id, "correlation_id", id, "error", err)
	r := Result{Parts: []Part{Text(opaque(id))}, Failure: &Failure{Code: "framework.unhandled_exception", Message: opaque(id), Type: InfraError}}
	r.Parts = r.message()
	return r
}

// opaque is all that a client gets to see of an unexpected error.
func opaque(id string) string {
	return "An unexpected error occurred; the agent's log has it under this id. Correlation ID: " + id
}

// correlation returns 32 random hexadecimal digits.
func correlation() string {
	var b [16]byte
	_, _ = rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// allowed reports whether a request carries the token, if one is asked.
func (s *Server) allowed(r *http.Request) bool {
	if s.settings.Token == "" {
		return true
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	got, want := sha256.Sum256([]byte(strings.TrimSpace(token))), sha256.Sum256([]byte(s.settings.Token))
	return strings.EqualFold(scheme, "bearer") && subtle.ConstantTimeCompare(got[:], want[:]) == 1
}

type portKey struct{}

func withPort(ctx context.Context, port int) context.Context {
	return transfer.WithPort(context.WithValue(ctx, portKey{}, port), port)
}

// LocalPort returns the port of this machine on which the request that ctx belongs to was taken: in handlers of extensions and in the
// agent's code. 0 when it is not known.
func LocalPort(ctx context.Context) int {
	if p, ok := ctx.Value(portKey{}).(int); ok {
		return p
	}
	if a, ok := ctx.Value(http.LocalAddrContextKey).(*net.TCPAddr); ok {
		return a.Port
	}
	return 0
}

// port is LocalPort, or the port that the settings name.
func (s *Server) port(ctx context.Context) int {
	if p := LocalPort(ctx); p != 0 {
		return p
	}
	return s.settings.Port
}
