package local

import (
	"context"
	"os"
	"path/filepath"

	"agentenv/fault"
	"agentenv/sandbox"
	"agentenv/sandbox/engine"
)

var _ sandbox.Housing = (*Provider)(nil)

// RunBeside runs the container agent-<id> beside the host of a sandbox that was made without one, with its port where the sandbox
// exposes it. See sandbox.Housing.
func (p *Provider) RunBeside(ctx context.Context, id string, s sandbox.Spec) error {
	if err := check(s); err != nil {
		return err
	}
	found, err := p.Attach(ctx, id)
	if err != nil {
		return err
	}
	m := found.(*machine)
	if m.owned {
		return fault.New(fault.Exists, "sandbox %s was made with a container of its own", id)
	}
	if err := sandbox.Exposes(id, m.Info().TunnelURLs, s.Port); err != nil {
		return err
	}
	e, err := p.o.Engine.Get(ctx)
	if err != nil {
		return err
	}
	if _, err := e.Container(ctx, containerName(id)); !fault.Is(err, fault.NotFound) {
		if err == nil {
			err = fault.New(fault.Exists, "a container runs beside the host of sandbox %s already", id)
		}
		return err
	}
	ips, err := hostIPs(ctx, e)
	if err != nil {
		return err
	}
	docker, err := p.startDocker(ctx, e, m, s)
	if err != nil {
		return err
	}
	if _, err = e.Run(ctx, p.containerOf(m, s, docker, ips, m.ports[s.Port])); err != nil {
		err = p.undoDocker(ctx, e, m, docker, err)
	}
	switch {
	case fault.Is(err, fault.Conflict):
		return fault.Wrap(fault.Conflict, err, "port %d of sandbox %s is taken: something listens on port %d of this machine already", s.Port, id, m.ports[s.Port])
	case fault.Is(err, fault.Exists):
		return fault.Wrap(fault.Exists, err, "a container runs beside the host of sandbox %s already", id)
	}
	return err
}

// containerOf is the container of a sandbox, in a network ("" = the default one), with its port published on a number of this machine.
func (p *Provider) containerOf(m *machine, s sandbox.Spec, network string, ips []string, hostPort int) engine.RunSpec {
	run := engine.RunSpec{Name: containerName(m.id), Image: s.Image, Env: s.Env, Labels: sandbox.Labels(Name, m.id, p.o.StateMark, s), End: s.ServesItsCommand, Files: s.Files,
		Network: network}
	for _, ip := range ips {
		run.Publish = append(run.Publish, engine.Publish{HostIP: ip, HostPort: hostPort, ContainerPort: s.Port})
	}
	if onLinux {
		run.ExtraHosts = []string{"host.docker.internal:host-gateway"}
	}
	return run
}

// EndBeside removes agent-<id>, never one that is labelled for another sandbox, with its own Docker Engine. See sandbox.Housing.
func (p *Provider) EndBeside(ctx context.Context, id string) error {
	if !validID(id) {
		return nil
	}
	e, err := p.o.Engine.Get(ctx)
	if err != nil {
		return err
	}
	if err := removeOwn(ctx, e, id, containerName(id)); err != nil {
		return err
	}
	if err := endDocker(ctx, e, id); err != nil {
		return err
	}
	for _, dir := range p.dirs(id) {
		_ = os.Remove(filepath.Join(dir, dockerFile)) // one that stays makes the end of the sandbox look again
	}
	return nil
}
