package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"agentenv/fault"
)

// Credentials give the login material of a registry host. Safe for concurrent use.
type Credentials interface {
	// For returns the login for a normalised host, nil when there is none. Errors never hold a password.
	For(ctx context.Context, host string) (*Auth, error)
}

// Registry is the Store of one OCI registry, whose repositories need no making.
type Registry struct {
	host, prefix string
	creds        Credentials
}

var _ Store = (*Registry)(nil)

// NewRegistry returns the store of a registry host (with optional port). Repositories get the prefix, "" for none. creds
// may be nil. The error is Invalid: a bad host.
func NewRegistry(host, prefix string, creds Credentials) (*Registry, error) {
	h, err := NormalizeHost(host)
	if err != nil {
		return nil, err
	}
	return &Registry{host: h, prefix: strings.Trim(prefix, "/"), creds: creds}, nil
}

// Host returns the normalised registry host.
func (r *Registry) Host() string { return r.host }

// Ref returns `<host>/<prefix/><repository>:<tag>`.
func (r *Registry) Ref(repository, tag string) string {
	if r.prefix != "" {
		repository = r.prefix + "/" + repository
	}
	return r.host + "/" + repository + ":" + tag
}

// Owns reports whether ref names this registry.
func (r *Registry) Owns(ref string) bool { return RefHost(ref) == r.host }

// Auth returns the login for ref, nil for a foreign ref or without credentials.
func (r *Registry) Auth(ctx context.Context, ref string) (*Auth, error) {
	if r.creds == nil || !r.Owns(ref) {
		return nil, nil
	}
	return r.creds.For(ctx, r.host)
}

// EnsureRepository is a no-op: the registry makes repositories as they are pushed to.
func (r *Registry) EnsureRepository(context.Context, string) error { return nil }

// StartRegistry makes a registry container of the given name listen on a loopback port of this machine, starting the one
// that is there when it publishes that very port. It removes nothing.
type StartRegistry func(ctx context.Context, name string, port int) error

// Local is the store of a registry on this machine, started on first need.
type Local struct {
	*Registry
	port  int
	start StartRegistry
	http  *http.Client
}

var _ Store = (*Local)(nil)

// LocalHost is where the local registry is unless configured otherwise.
const LocalHost = "localhost:5000"

// NewLocal returns the store over a registry on this machine; start may be nil, then one must be running. The error is
// Invalid when the registry's host has no port.
func NewLocal(r *Registry, start StartRegistry) (*Local, error) {
	_, p, err := net.SplitHostPort(r.host)
	port := 0
	if err == nil {
		port, err = net.DefaultResolver.LookupPort(context.Background(), "tcp", p)
	}
	if err != nil {
		return nil, fault.New(fault.Invalid, "local registry host %q: a port is needed, such as %s", r.host, LocalHost)
	}
	return &Local{Registry: r, port: port, start: start, http: &http.Client{Timeout: 2 * time.Second}}, nil
}

// Timing of the wait for a registry that was started.
const (
	registryWait = 30 * time.Second
	registryPoll = 500 * time.Millisecond
)

// EnsureRepository returns once the registry answers, starting it when it does not: 30 s at most. A second call with a
// running registry costs one request.
func (l *Local) EnsureRepository(ctx context.Context, _ string) error {
	if l.answers(ctx) {
		return nil
	}
	if l.start == nil {
		return fault.New(fault.Unavailable, "no registry answers at %s", l.host)
	}
	name := "agentenv-registry"
	if l.port != 5000 {
		name = fmt.Sprintf("agentenv-registry-%d", l.port)
	}
	if err := l.start(ctx, name, l.port); err != nil {
		return fault.At(err, "starting the local registry %s", l.host)
	}
	wait, cancel := context.WithTimeout(ctx, registryWait)
	defer cancel()
	for !l.answers(wait) {
		select {
		case <-wait.Done():
			if err := ctx.Err(); err != nil {
				return fault.Wrap(fault.KindOf(err), context.Cause(ctx), "waiting for the local registry %s", l.host)
			}
			return fault.New(fault.Unavailable, "the registry container %s does not answer at %s after %s; see its log", name, l.host, registryWait)
		case <-time.After(registryPoll):
		}
	}
	return nil
}

func (l *Local) answers(ctx context.Context) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://localhost:%d/v2/", l.port), nil)
	if err != nil {
		return false
	}
	resp, err := l.http.Do(req)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	_, err = io.CopyN(io.Discard, resp.Body, 4096)
	return (err == nil || errors.Is(err, io.EOF)) && (resp.StatusCode == http.StatusOK || resp.StatusCode == http.StatusUnauthorized)
}
