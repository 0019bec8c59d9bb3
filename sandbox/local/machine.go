package local

import (
	"context"
	"strconv"
	"time"

	"agentenv/fault"
	"agentenv/sandbox"
	"agentenv/sandbox/place"
)

type machine struct {
	p       *Provider
	id, dir string
	mode    sandbox.Mode
	owned   bool // a container was made with it
	ports   map[int]int
	policy  *sandbox.NetworkPolicy
	expires time.Time
}

func (m *machine) Info() sandbox.Info {
	i := sandbox.Info{ID: m.id, Type: Name, Mode: m.mode, Policy: m.policy, ContainerName: containerName(m.id), WorkDir: m.dir, ExpiresAt: m.expires}
	for port, host := range m.ports {
		if i.TunnelURLs == nil {
			i.TunnelURLs = map[string]string{}
		}
		i.TunnelURLs[strconv.Itoa(port)] = "http://127.0.0.1:" + strconv.Itoa(host)
	}
	return i
}

func (m *machine) Host() place.Place {
	return &host{id: m.id, dir: m.dir, cgroups: m.p.cgroups, guards: m.p.guards}
}

func (m *machine) Container(ctx context.Context, name string) (place.Place, error) {
	if name == "" {
		name = containerName(m.id)
	}
	e, err := m.p.o.Engine.Get(ctx)
	if err != nil {
		return nil, err
	}
	c, err := e.Container(ctx, name)
	if err != nil {
		return nil, fault.At(err, "sandbox %s", m.id)
	}
	if of := c.Labels()[sandbox.LabelSandbox]; of != "" && of != m.id {
		return nil, fault.New(fault.NotFound, "container %s belongs to sandbox %s, not to %s", name, of, m.id)
	}
	return c, nil
}

func (m *machine) ScopedName(name string) string { return name + "-" + m.id }

func (m *machine) Close() error { return nil }
