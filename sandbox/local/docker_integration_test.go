//go:build integration

package local_test

import (
	"context"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/client"

	"agentenv/fault"
	"agentenv/sandbox"
	"agentenv/sandbox/engine"
	"agentenv/sandbox/local"
	"agentenv/sandbox/place"
	"agentenv/sandbox/sandboxtest/images"
)

// dock is a provider, and what its containers with an engine of their own are made of.
type dock struct {
	t     *testing.T
	e     *engine.Engine
	lazy  *engine.Lazy
	dir   string
	image string
}

func newDock(t *testing.T) *dock {
	t.Helper()
	d := &dock{t: t, lazy: &engine.Lazy{}, dir: t.TempDir()}
	t.Cleanup(func() { d.lazy.Close() })
	var err error
	if d.e, err = d.lazy.Get(t.Context()); err != nil {
		t.Fatal(err)
	}
	if d.image, err = images.Docker(t.Context(), d.e, images.Deaf); err != nil {
		t.Fatal(err)
	}
	return d
}

// provider is the same provider in another process.
func (d *dock) provider() *local.Provider {
	d.t.Helper()
	p, err := local.New(local.Options{Root: filepath.Join(d.dir, "boxes"), StateRoot: d.dir, StateMark: "mark-" + filepath.Base(filepath.Dir(d.dir)), Engine: d.lazy})
	if err != nil {
		d.t.Fatal(err)
	}
	return p
}

// spec asks for a container whose own engine does so.
func (d *dock) spec(does string) sandbox.Spec {
	d.t.Helper()
	image, err := images.Docker(d.t.Context(), d.e, does)
	if err != nil {
		d.t.Fatal(err)
	}
	return sandbox.Spec{Name: "agent", Mode: sandbox.Container, Image: d.image, Port: 8000, ServesItsCommand: true, Docker: image}
}

// there returns what the engine holds of a sandbox: containers, networks and anonymous volumes of the engine beside.
func (d *dock) there(id string) []string {
	d.t.Helper()
	ctx := context.WithoutCancel(d.t.Context())
	list, err := d.e.List(ctx, sandbox.LabelSandbox+"="+id)
	if err != nil {
		d.t.Fatal(err)
	}
	networks, err := d.e.Networks(ctx, sandbox.LabelSandbox+"="+id)
	if err != nil {
		d.t.Fatal(err)
	}
	var out []string
	for _, s := range append(list, networks...) {
		out = append(out, s.Name)
	}
	return out
}

// works checks that a sandbox's container reaches its own engine, which nobody else does, and returns the engine's volumes.
func (d *dock) works(m sandbox.Machine) []string {
	d.t.Helper()
	id := m.Info().ID
	c, err := m.Container(d.t.Context(), "")
	if err != nil {
		d.t.Fatal(err)
	}
	ping := []string{"docker", "--host", sandbox.DockerHost, "version"}
	if r, err := c.Exec(d.t.Context(), place.Cmd{Argv: ping, Timeout: time.Minute}); err != nil || place.Text(r.Stdout) != "OK" {
		d.t.Fatalf("%+v, %v", r, err)
	}
	if got := d.there(id); len(got) != 3 {
		d.t.Errorf("there are %v", got)
	}
	side, err := d.e.Client().ContainerInspect(d.t.Context(), "agent-dind-"+id, client.ContainerInspectOptions{})
	if err != nil {
		d.t.Fatal(err)
	}
	if h := side.Container.HostConfig; !h.Privileged || len(h.PortBindings) != 0 || len(h.Binds) != 0 || len(side.Container.NetworkSettings.Networks) != 1 || side.Container.NetworkSettings.Networks["agent-docker-net-"+id] == nil {
		d.t.Errorf("%+v, %+v", h, side.Container.NetworkSettings)
	}
	var volumes []string
	for _, v := range side.Container.Mounts {
		if v.Source == "/var/run/docker.sock" {
			d.t.Error("it has the socket of this machine's engine")
		}
		if v.Name != "" && !strings.HasPrefix(v.Name, "agentenv-helper-") {
			volumes = append(volumes, v.Name)
		}
	}
	return volumes
}

func (d *dock) gone(id string, volumes []string) {
	d.t.Helper()
	if left := d.there(id); len(left) != 0 {
		d.t.Errorf("left: %v", left)
	}
	for _, v := range volumes {
		if _, err := d.e.Client().VolumeInspect(context.WithoutCancel(d.t.Context()), v, client.VolumeInspectOptions{}); err == nil {
			d.t.Errorf("volume %s is left", v)
		}
	}
}

func TestOwnDockerEngine(t *testing.T) {
	t.Parallel()
	d := newDock(t)
	s, p := d.spec(images.Serves), d.provider()
	id := p.NewID()
	if err := p.Prepare(t.Context(), s, func(string) {}); err != nil {
		t.Fatal(err)
	}
	m, err := p.Create(t.Context(), id, s)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Terminate(context.WithoutCancel(t.Context()), id)
	volumes := d.works(m)
	if len(volumes) == 0 {
		t.Error("the stand-in has no volume")
	}
	// Another process lists all of it, and ends it.
	other := d.provider()
	list, err := other.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]int{}
	for _, f := range list {
		if f.SandboxID == id {
			kinds[f.Kind]++
		}
	}
	if kinds["container"] != 2 || kinds["network"] != 1 || kinds["folder"] != 1 {
		t.Errorf("listed %v", kinds)
	}
	for range 2 {
		if err := other.Terminate(t.Context(), id); err != nil {
			t.Error(err)
		}
	}
	d.gone(id, volumes)
}

func TestOwnDockerEngineBesideAHost(t *testing.T) {
	t.Parallel()
	d := newDock(t)
	s, p := d.spec(images.Serves), d.provider()
	id := p.NewID()
	m, err := p.Create(t.Context(), id, sandbox.Spec{Mode: sandbox.VM, ExposedPorts: []int{8000}})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Terminate(context.WithoutCancel(t.Context()), id)
	for range 2 {
		if err := p.RunBeside(t.Context(), id, s); err != nil {
			t.Fatal(err)
		}
		volumes := d.works(m)
		if err := p.RunBeside(t.Context(), id, s); !fault.Is(err, fault.Exists) {
			t.Errorf("a second one: %v", err)
		}
		d.works(m)
		for range 2 {
			if err := d.provider().EndBeside(t.Context(), id); err != nil {
				t.Error(err)
			}
		}
		d.gone(id, volumes)
	}
	if r, err := m.Host().Exec(t.Context(), place.Cmd{Argv: []string{"true"}, Timeout: time.Minute}); err != nil || r.Code != 0 {
		t.Errorf("the host: %+v, %v", r, err)
	}
	// What was started beside ends with the sandbox, also when a network is all there was time for.
	if err := p.RunBeside(t.Context(), id, s); err != nil {
		t.Fatal(err)
	}
	for _, c := range []string{"agent-" + id, "agent-dind-" + id} {
		if err := d.e.Remove(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Terminate(t.Context(), id); err != nil {
		t.Error(err)
	}
	d.gone(id, nil)
}

func TestOwnDockerEngineThatDoesNotCome(t *testing.T) {
	t.Parallel()
	d := newDock(t)
	for name, c := range map[string]struct {
		does  string
		kind  fault.Kind
		wants []string
	}{
		"it answers nobody":    {images.Deaf, fault.Timeout, []string{"did not answer on port 2375 within", "cannot connect", "I hear nobody", "agentenv-test/docker-deaf"}},
		"it ends":              {images.Ends, fault.Unavailable, []string{"has ended", "no subordinate ids"}},
		"it has no command":    {"bare", fault.NotFound, []string{"docker"}},
		"the port is taken":    {images.Serves, fault.Conflict, []string{"port 8000", "is taken"}},
		"cancelled meanwhile":  {images.Deaf, fault.Canceled, []string{"enough"}},
		"an image that is not": {"none", fault.NotFound, []string{"docker-engine-of-nobody", "AGENT_ENV_AGENT_DOCKER_IMAGE"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := &dock{t: t, e: d.e, lazy: d.lazy, dir: t.TempDir(), image: d.image}
			p := d.provider()
			id := p.NewID()
			m, err := p.Create(t.Context(), id, sandbox.Spec{Mode: sandbox.VM, ExposedPorts: []int{8000}})
			if err != nil {
				t.Fatal(err)
			}
			defer p.Terminate(context.WithoutCancel(t.Context()), id)
			ctx, stop := context.WithCancelCause(t.Context())
			defer stop(nil)
			s := sandbox.Spec{Name: "agent", Mode: sandbox.Container, Image: d.image, Port: 8000, Docker: d.image}
			switch {
			case c.does == "none":
				s.Docker = "127.0.0.1:1/docker-engine-of-nobody:1"
			case c.does == "bare":
				if s.Docker, err = images.BusyBox(t.Context(), d.e); err != nil {
					t.Fatal(err)
				}
			default:
				s = d.spec(c.does)
			}
			if c.kind == fault.Conflict {
				l, err := net.Listen("tcp", strings.TrimPrefix(m.Info().TunnelURLs["8000"], "http://"))
				if err != nil {
					t.Fatal(err)
				}
				defer l.Close()
			}
			if c.kind == fault.Timeout {
				p.DockerWithin(6 * time.Second)
			}
			if c.kind == fault.Canceled {
				time.AfterFunc(time.Second, func() { stop(fault.New(fault.Canceled, "enough")) })
			}
			if c.does == "none" {
				err = p.Prepare(ctx, s, func(string) {})
			} else {
				err = p.RunBeside(ctx, id, s)
			}
			if err == nil || c.does != "none" && !fault.Is(err, c.kind) {
				t.Fatal(err)
			}
			for _, want := range c.wants {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("no %q in %v", want, err)
				}
			}
			d.gone(id, nil)
		})
	}
}
