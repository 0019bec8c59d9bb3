// Package deploytest lets tests deploy agents without an engine: a sandbox provider whose containers are HTTP handlers of the test's own
// process.
package deploytest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"maps"
	"net/http"
	"net/http/httptest"
	"sync"

	"agentenv/agent/deploy"
	"agentenv/artifact"
	"agentenv/fault"
	"agentenv/sandbox"
	"agentenv/sandbox/place"
)

// Name is the provider's name in records.
const Name = "fake"

// Provider is a sandbox.Provider of container mode. Its methods are safe for concurrent use; Serve is set before the first sandbox.
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

var _ sandbox.Provider = (*Provider)(nil)

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

// Capabilities returns those of a container provider on this machine.
func (p *Provider) Capabilities() sandbox.Capabilities {
	return sandbox.Capabilities{Modes: []sandbox.Mode{sandbox.Container}, OnThisMachine: true, IsContainer: true}
}

// NewID returns a fresh id.
func (p *Provider) NewID() string {
	var b [4]byte
	rand.Read(b[:])
	return Name + "-" + hex.EncodeToString(b[:])
}

// Prepare does nothing.
func (p *Provider) Prepare(context.Context, sandbox.Spec, func(string)) error { return nil }

// Create starts to serve.
func (p *Provider) Create(_ context.Context, id string, s sandbox.Spec) (sandbox.Machine, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s.Env = maps.Clone(s.Env)
	p.specs = append(p.specs, s)
	m := &machine{id: id}
	handler, stop := p.Serve(s.Env)
	m.output = p.Output
	if m.stop = stop; handler != nil {
		m.server, m.running = httptest.NewServer(handler), true
		m.url = m.server.URL
	} else {
		m.url = "http://127.0.0.1:1"
	}
	if p.live == nil {
		p.live = map[string]*machine{}
	}
	p.live[id] = m
	return m, nil
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
	id, url, output string
	server          *httptest.Server
	stop            func()

	mu      sync.Mutex
	running bool
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
	return sandbox.Info{ID: m.id, Type: Name, Mode: sandbox.Container, TunnelURLs: map[string]string{"8000": m.url}}
}

func (m *machine) Host() place.Place { return nil }

func (m *machine) Container(context.Context, string) (place.Place, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return container{machine: m, running: m.running}, nil
}

func (m *machine) ScopedName(name string) string { return name }

func (m *machine) Close() error { return nil }

// container tells about its command, and holds no files.
type container struct {
	place.Place
	machine *machine
	running bool
}

func (c container) Running() bool { return c.running }

func (c container) Logs(context.Context, int) (stdout, stderr []byte, err error) {
	return nil, []byte(c.machine.output), nil
}

// Images is a deploy.Images that finds every image ready, with these labels.
type Images map[string]string

// Ready returns the image's own name.
func (i Images) Ready(_ context.Context, img *artifact.DockerImage, _ func(string)) (deploy.Image, error) {
	return deploy.Image{Name: img.Image, Labels: i}, nil
}
