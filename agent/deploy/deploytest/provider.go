// Package deploytest lets tests deploy agents without an engine: a sandbox provider whose containers are HTTP handlers of the test's own
// process.
package deploytest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"

	"agentenv/agent/deploy"
	"agentenv/artifact"
	"agentenv/fault"
	"agentenv/sandbox"
	"agentenv/sandbox/place"
)

// Name is the provider's name in records.
const Name = "fake"

// Provider is a sandbox.Provider whose sandboxes of mode container are handlers, and whose sandboxes of mode vm run one beside a host
// that does not exist. Its methods are safe for concurrent use; Serve is set before the first sandbox.
type Provider struct {
	// Serve makes what answers in a container with this environment, and what ends it (may be nil). A nil handler is a container whose
	// command has ended at once.
	Serve func(env map[string]string) (http.Handler, func())
	// Output is what the command of each container wrote to its standard error.
	Output string

	mu    sync.Mutex
	specs []sandbox.Spec
	live  map[string]*machine
}

var (
	_ sandbox.Provider = (*Provider)(nil)
	_ sandbox.Housing  = (*Provider)(nil)
)

// Specs returns what was asked for so far, in order.
func (p *Provider) Specs() []sandbox.Spec {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]sandbox.Spec(nil), p.specs...)
}

// Live returns the ids of the sandboxes that are not terminated.
func (p *Provider) Live() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []string
	for id := range p.live {
		out = append(out, id)
	}
	return out
}

// Kill ends the command of a sandbox's container, which stays, as if it had crashed. An unknown id is a no-op.
func (p *Provider) Kill(id string) {
	p.mu.Lock()
	m := p.live[id]
	p.mu.Unlock()
	if m != nil {
		m.end()
	}
}

// Name returns "fake".
func (p *Provider) Name() string { return Name }

// Capabilities returns those of a provider on this machine.
func (p *Provider) Capabilities() sandbox.Capabilities {
	return sandbox.Capabilities{Modes: []sandbox.Mode{sandbox.Container, sandbox.VM}, OnThisMachine: true, IsContainer: true, DockerBeside: true}
}

// NewID returns a fresh id.
func (p *Provider) NewID() string {
	var b [4]byte
	rand.Read(b[:])
	return Name + "-" + hex.EncodeToString(b[:])
}

// Prepare does nothing.
func (p *Provider) Prepare(context.Context, sandbox.Spec, func(string)) error { return nil }

// Create starts to serve or, in mode vm, keeps an address for each port.
func (p *Provider) Create(ctx context.Context, id string, s sandbox.Spec) (sandbox.Machine, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s.Env = maps.Clone(s.Env)
	p.specs = append(p.specs, s)
	m := &machine{id: id, mode: s.Mode, urls: map[string]string{}}
	if s.Mode == sandbox.VM {
		for _, port := range s.ExposedPorts {
			at, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
			if err != nil {
				return nil, err
			}
			at.Close()
			m.urls[strconv.Itoa(port)] = "http://" + at.Addr().String()
		}
	} else if err := m.serve(ctx, p, s, "127.0.0.1:0"); err != nil {
		return nil, err
	}
	if p.live == nil {
		p.live = map[string]*machine{}
	}
	p.live[id] = m
	return m, nil
}

// RunBeside starts to serve at the address of the port.
func (p *Provider) RunBeside(ctx context.Context, id string, s sandbox.Spec) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	m := p.live[id]
	if m == nil {
		return fault.New(fault.NotFound, "there is no sandbox %s", id)
	}
	s.Env = maps.Clone(s.Env)
	p.specs = append(p.specs, s)
	return m.serve(ctx, p, s, strings.TrimPrefix(m.urls[strconv.Itoa(s.Port)], "http://"))
}

// EndBeside ends what is served there.
func (p *Provider) EndBeside(_ context.Context, id string) error {
	p.mu.Lock()
	m := p.live[id]
	p.mu.Unlock()
	if m != nil {
		m.end()
		m.mu.Lock()
		m.there = false
		m.mu.Unlock()
	}
	return nil
}

// Attach finds a sandbox again.
func (p *Provider) Attach(_ context.Context, id string) (sandbox.Machine, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if m := p.live[id]; m != nil {
		return m, nil
	}
	return nil, fault.New(fault.NotFound, "there is no sandbox %s", id)
}

// Terminate ends a sandbox; one that is gone is done.
func (p *Provider) Terminate(_ context.Context, id string) error {
	p.mu.Lock()
	m := p.live[id]
	delete(p.live, id)
	p.mu.Unlock()
	if m != nil {
		m.end()
	}
	return nil
}

// List returns nothing.
func (p *Provider) List(context.Context) ([]sandbox.Found, error) { return nil, nil }

// Remove does nothing.
func (p *Provider) Remove(context.Context, sandbox.Found) error { return nil }

// Check lacks nothing.
func (p *Provider) Check(context.Context) []sandbox.Lack { return nil }

// Close ends what is still served; a second call is a no-op.
func (p *Provider) Close() error {
	for _, id := range p.Live() {
		_ = p.Terminate(context.Background(), id)
	}
	return nil
}

type machine struct {
	id   string
	mode sandbox.Mode
	urls map[string]string

	mu             sync.Mutex
	there, running bool // its container
	output         string
	server         *httptest.Server
	stop           func()
}

// serve starts the container.
func (m *machine) serve(ctx context.Context, p *Provider, s sandbox.Spec, at string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	handler, stop := p.Serve(s.Env)
	m.there, m.output, m.stop = true, p.Output, stop
	if handler == nil {
		if m.mode == sandbox.Container {
			m.urls[strconv.Itoa(s.Port)] = "http://127.0.0.1:1"
		}
		return nil
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", at)
	if err != nil {
		return fault.Wrap(fault.Conflict, err, "port %d of %s", s.Port, m.id)
	}
	m.server, m.running = &httptest.Server{Listener: l, Config: &http.Server{Handler: handler}}, true //nolint:gosec // a server of tests
	m.server.Start()
	m.urls[strconv.Itoa(s.Port)] = m.server.URL
	return nil
}

func (m *machine) end() {
	m.mu.Lock()
	was := m.running
	m.running = false
	m.mu.Unlock()
	if !was {
		return
	}
	m.server.CloseClientConnections()
	m.server.Config.Close() // without a wait for handlers, as a process that is killed
	if m.stop != nil {
		m.stop()
	}
}

func (m *machine) Info() sandbox.Info {
	m.mu.Lock()
	defer m.mu.Unlock()
	return sandbox.Info{ID: m.id, Type: Name, Mode: m.mode, TunnelURLs: maps.Clone(m.urls)}
}

func (m *machine) Host() place.Place { return nil }

func (m *machine) Container(context.Context, string) (place.Place, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.there {
		return nil, fault.New(fault.NotFound, "sandbox %s has no container", m.id)
	}
	return container{output: m.output, running: m.running}, nil
}

func (m *machine) ScopedName(name string) string { return name }

func (m *machine) Close() error { return nil }

// container tells about its command, and holds no files.
type container struct {
	place.Place
	output  string
	running bool
}

func (c container) Running() bool { return c.running }

func (c container) Logs(context.Context, int) (stdout, stderr []byte, err error) {
	return nil, []byte(c.output), nil
}

// Images is a deploy.Images that finds every image ready, with these labels.
type Images map[string]string

// Ready returns the image's own name.
func (i Images) Ready(_ context.Context, img *artifact.DockerImage, _ func(string)) (deploy.Image, error) {
	return deploy.Image{Name: img.Image, Labels: i}, nil
}
