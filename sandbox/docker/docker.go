// Package docker is the provider whose sandboxes are containers of a Docker Engine: there is no host, commands run inside.
package docker

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"strconv"
	"strings"
	"time"

	"agentenv/fault"
	"agentenv/sandbox"
	"agentenv/sandbox/engine"
	"agentenv/sandbox/place"
)

// Name is the provider's name in records.
const Name = "docker"

const (
	loopback      = "127.0.0.1"
	defaultCPU    = 1.0
	defaultMemory = 8192 // MiB
)

// Options configure the provider.
type Options struct {
	StateMark string       // mark of the state folder on labels
	Engine    *engine.Lazy // required
}

// Provider implements sandbox.Provider on a Docker Engine.
type Provider struct{ o Options }

var _ sandbox.Provider = (*Provider)(nil)

// New returns the provider; no engine is looked for yet.
func New(o Options) *Provider { return &Provider{o: o} }

// Name returns "docker".
func (p *Provider) Name() string { return Name }

// Capabilities returns what the provider can do: container mode only; the sandbox is the container.
func (p *Provider) Capabilities() sandbox.Capabilities {
	return sandbox.Capabilities{Modes: []sandbox.Mode{sandbox.Container}, OnThisMachine: true, IsContainer: true}
}

// NewID returns "docker-" and eight hexadecimal digits, which is also the container's name.
func (p *Provider) NewID() string {
	var b [4]byte
	rand.Read(b[:])
	return Name + "-" + hex.EncodeToString(b[:])
}

func validID(id string) bool {
	h, ok := strings.CutPrefix(id, Name+"-")
	_, err := hex.DecodeString(h)
	return ok && len(h) == 8 && err == nil
}

func check(s sandbox.Spec) error {
	switch {
	case s.Mode == sandbox.VM:
		return fault.New(fault.Unsupported, "docker has containers only; use sandbox_mode container, or another provider (local) for vm")
	case s.Mode != sandbox.Container:
		return fault.New(fault.Invalid, "sandbox mode %q is not container", s.Mode)
	case s.Policy != nil && s.Policy.Mode == "allowlist":
		return fault.New(fault.Unsupported, "docker cannot enforce network policy mode 'allowlist'").WithClass("ValueError")
	case s.Image == "":
		return fault.New(fault.Invalid, "container mode needs an image")
	case s.Port < 1 || s.Port > 65535:
		return fault.New(fault.Invalid, "container mode needs a port between 1 and 65535")
	}
	return nil
}

// Prepare pulls the image unless the engine holds it.
func (p *Provider) Prepare(ctx context.Context, s sandbox.Spec, progress func(string)) error {
	if err := check(s); err != nil {
		return err
	}
	e, err := p.o.Engine.Get(ctx)
	if err != nil {
		return err
	}
	_, err = e.Ensure(ctx, s.Image, progress)
	return err
}

// Create runs the container, published on loopback only under a number that the engine chooses. CPU and memory are limited
// only where they differ from the defaults, which every task carries.
func (p *Provider) Create(ctx context.Context, id string, s sandbox.Spec) (sandbox.Machine, error) {
	if err := check(s); err != nil {
		return nil, err
	}
	if !validID(id) {
		return nil, fault.New(fault.Invalid, "%q is no id of a docker sandbox", id)
	}
	e, err := p.o.Engine.Get(ctx)
	if err != nil {
		return nil, err
	}
	run := engine.RunSpec{Name: id, Image: s.Image, Env: s.Env, Labels: sandbox.Labels(Name, id, p.o.StateMark, s),
		Publish: []engine.Publish{{HostIP: loopback, ContainerPort: s.Port}}, End: s.ServesItsCommand, Files: s.Files}
	if s.ServesItsCommand {
		run.ExtraHosts = []string{"host.docker.internal:host-gateway"}
	}
	if s.CPU != 0 && s.CPU != defaultCPU {
		run.CPU = s.CPU
	}
	if s.MemoryMB != 0 && s.MemoryMB != defaultMemory {
		run.MemoryMB = s.MemoryMB
	}
	c, err := e.Run(ctx, run)
	if err != nil {
		return nil, err
	}
	return &machine{e: e, id: id, c: c}, nil
}

// Attach finds the container of a sandbox, running or not.
func (p *Provider) Attach(ctx context.Context, id string) (sandbox.Machine, error) {
	if !validID(id) {
		return nil, fault.New(fault.NotFound, "%q is no id of a docker sandbox", id)
	}
	e, err := p.o.Engine.Get(ctx)
	if err != nil {
		return nil, err
	}
	c, err := own(ctx, e, id)
	if err != nil {
		return nil, err
	}
	return &machine{e: e, id: id, c: c}, nil
}

func own(ctx context.Context, e *engine.Engine, id string) (*engine.Container, error) {
	c, err := e.Container(ctx, id)
	if err != nil {
		return nil, fault.At(err, "sandbox %s", id)
	}
	if c.Labels()[sandbox.LabelSandbox] != id || c.Name() != id {
		return nil, fault.New(fault.NotFound, "sandbox %s is gone; a container with its name is not ours", id)
	}
	return c, nil
}

// Terminate removes the container with its anonymous volumes; one that is gone is done.
func (p *Provider) Terminate(ctx context.Context, id string) error {
	if !validID(id) {
		return nil
	}
	e, err := p.o.Engine.Get(ctx)
	if err != nil {
		return err
	}
	list, err := e.List(ctx, sandbox.LabelSandbox+"="+id)
	if err != nil {
		return err
	}
	for _, c := range list {
		if err := e.Remove(ctx, c.ID); err != nil {
			return err
		}
	}
	return nil
}

// List returns the containers that carry this provider's label, and the volumes of the helper, which all providers on the
// engine share and which have no sandbox id.
func (p *Provider) List(ctx context.Context) ([]sandbox.Found, error) {
	e, err := p.o.Engine.Get(ctx)
	if err != nil {
		return nil, err
	}
	var out []sandbox.Found
	list, err := e.List(ctx, sandbox.LabelManaged+"=true", sandbox.LabelProvider+"="+Name)
	if err != nil {
		return nil, err
	}
	fillers, err := e.List(ctx, engine.LabelManaged+"=true", engine.LabelHelper+"=true")
	if err != nil {
		return nil, err
	}
	for _, c := range append(list, fillers...) {
		f := sandbox.FoundFrom("container", c.ID, c.Name, c.State, c.CreatedAt, c.Labels)
		f.Provider = Name
		out = append(out, f)
	}
	volumes, err := e.Volumes(ctx, engine.LabelManaged+"=true")
	for _, v := range volumes {
		f := sandbox.FoundFrom("volume", v.ID, v.Name, v.State, v.CreatedAt, v.Labels)
		f.Provider = Name
		out = append(out, f)
	}
	return out, err
}

// Remove removes one thing that List found; a thing that is gone is done. The helper volume is refused (Conflict) while a
// container uses it.
func (p *Provider) Remove(ctx context.Context, f sandbox.Found) error {
	e, err := p.o.Engine.Get(ctx)
	if err != nil {
		return err
	}
	if f.Kind == "volume" {
		return e.RemoveVolume(ctx, f.Ref)
	}
	return e.Remove(ctx, f.Ref)
}

// Check says whether an engine answers.
func (p *Provider) Check(ctx context.Context) []sandbox.Lack {
	if _, err := p.o.Engine.Get(ctx); err != nil {
		return []sandbox.Lack{{What: err.Error(), Remedy: "install and start a Docker Engine, or point DOCKER_HOST at one"}}
	}
	return nil
}

// Close does nothing: the engine belongs to who gave it.
func (p *Provider) Close() error { return nil }

type machine struct {
	e  *engine.Engine
	id string
	c  *engine.Container
}

func (m *machine) Info() sandbox.Info {
	i := sandbox.Info{ID: m.id, Type: Name, Mode: sandbox.Container, Policy: &sandbox.NetworkPolicy{Mode: "allow_all", AllowHosts: []string{}, AllowCIDRs: []string{}}}
	i.ExpiresAt, _ = time.Parse(time.RFC3339, m.c.Labels()[sandbox.LabelExpires])
	for port, at := range m.c.Ports() {
		for _, a := range at {
			if strings.HasPrefix(a, loopback+":") {
				if i.TunnelURLs == nil {
					i.TunnelURLs = map[string]string{}
				}
				i.TunnelURLs[strconv.Itoa(port)] = "http://" + a
			}
		}
	}
	return i
}

func (m *machine) Host() place.Place { return nil }

func (m *machine) Container(ctx context.Context, name string) (place.Place, error) {
	if name != "" && name != m.id {
		return nil, fault.New(fault.NotFound, "sandbox %s is itself a container and holds no container %s", m.id, name)
	}
	return own(ctx, m.e, m.id)
}

func (m *machine) ScopedName(name string) string { return name }

func (m *machine) Close() error { return nil }
