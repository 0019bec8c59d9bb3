package sandbox

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"agentenv/fault"
	"agentenv/telemetry"
)

// Housing is a Provider whose machines of mode vm run a container of their own beside the host, which Machine.Container finds as "".
// Its methods are safe for concurrent use.
type Housing interface {
	// RunBeside starts that container on a live sandbox: of s.Image, which Prepare saw to, with s.Port published where the sandbox exposes it.
	// A sandbox that does not expose it is Invalid, a container that is there already Exists, a port that something else
	// listens on Conflict. When it fails or ctx ends, nothing of it is left; what could not be removed is named in the error.
	RunBeside(ctx context.Context, id string, s Spec) error
	// EndBeside removes that container, and leaves the sandbox; one that is gone is done, as is a sandbox that is.
	EndBeside(ctx context.Context, id string) error
}

const besideSuffix = "/agent"

// BesideID returns the id by which the ledger knows, and Manager.Terminate ends, the container beside the host of a sandbox.
func BesideID(sandboxID string) string { return sandboxID + besideSuffix }

// HouseOf returns the sandbox of an id that BesideID made; of any other id the id itself, and false.
func HouseOf(id string) (sandboxID string, beside bool) { return strings.CutSuffix(id, besideSuffix) }

// RunBeside starts a container beside the host of a recorded sandbox, with a ledger row of its own that names the owner in s, so that it can be ended by itself:
// Terminate with BesideID. It ends with the sandbox at the latest. What is wrong is said before anything is started: a sandbox of another mode than vm,
// or one that does not expose s.Port, is Invalid, a provider that runs no containers beside a host Unsupported, and a second container on
// one sandbox Exists. s.TTL defaults to what is left of the sandbox's. The handle that is returned is the sandbox's.
func (m *Manager) RunBeside(ctx context.Context, rec Record, s Spec, progress func(string)) (_ Machine, err error) {
	ctx, span := telemetry.Start(ctx, "container beside", attribute.String("agentenv.sandbox.id", rec.ID))
	defer func() { span.End(err) }()
	p, houses, err := m.housing(rec)
	if err != nil {
		return nil, err
	}
	if s.Docker != "" && !p.Capabilities().DockerBeside {
		return nil, fault.New(fault.Unsupported, "sandbox %q: %s can give a container no Docker Engine of its own", rec.Name, p.Name())
	}
	if rec.Mode != VM {
		return nil, fault.New(fault.Invalid, "sandbox %q is of the mode %s: only on one of the mode vm a container runs beside the host", rec.Name, rec.Mode)
	}
	machine, err := m.Attach(ctx, rec)
	if err != nil {
		return nil, err
	}
	if err := Exposes(rec.Name, machine.Info().TunnelURLs, s.Port); err != nil {
		return nil, err
	}
	s.Mode = Container
	if err := p.Prepare(ctx, s, progress); err != nil {
		return nil, err
	}
	if s, err = m.enlist(ctx, p, rec, s); err != nil {
		return nil, err
	}
	id := BesideID(rec.ID)
	err = houses.RunBeside(ctx, rec.ID, s)
	made := err == nil
	if made && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	after, cancel := context.WithTimeout(context.WithoutCancel(ctx), TerminateLimit)
	defer cancel()
	if err == nil {
		err = m.ledger.Mark(after, id, Live)
	}
	if err == nil {
		return machine, nil
	}
	if made {
		if left := houses.EndBeside(after, rec.ID); left != nil {
			m.mark(after, id, Ending)
			return nil, fault.At(err, "sandbox %q (its container %s may still be up: %v; `agent-env sandbox prune` removes it)", rec.Name, id, left)
		}
	}
	m.mark(after, id, Gone)
	return nil, err
}

// housing returns the provider of a record, which must run containers beside hosts.
func (m *Manager) housing(rec Record) (Provider, Housing, error) {
	p, err := m.of(rec)
	if err != nil {
		return nil, nil, err
	}
	houses, ok := p.(Housing)
	if !ok {
		return nil, nil, fault.New(fault.Unsupported, "sandbox %q: %s runs no container beside a host", rec.Name, p.Name())
	}
	return p, houses, nil
}

// enlist writes the row of a container that is to run beside a host, and gives it the time that its sandbox has left.
func (m *Manager) enlist(ctx context.Context, p Provider, rec Record, s Spec) (Spec, error) {
	now := time.Now().UTC()
	house, err := m.ledger.Get(ctx, rec.ID)
	if err != nil {
		return s, err
	}
	if s.TTL <= 0 && house != nil && house.ExpiresAt.After(now) {
		s.TTL = house.ExpiresAt.Sub(now)
	}
	s.TTL = cmp.Or(s.TTL, defaultTTL)
	id := BesideID(rec.ID)
	if err := m.ledger.Forget(ctx, id); err != nil {
		return s, err
	}
	err = m.ledger.Add(ctx, Row{ID: id, Type: p.Name(), Name: s.Name, Mode: Container, Owner: s.Owner, State: Creating,
		CreatedAt: now, ExpiresAt: now.Add(s.TTL), Process: m.self})
	if fault.Is(err, fault.Exists) {
		other := "another"
		if row, rerr := m.ledger.Get(ctx, id); rerr == nil && row != nil {
			other = row.Name
		}
		err = fault.New(fault.Exists, "sandbox %q is taken: %q runs on it, and port %d serves one; end that first, or deploy another sandbox", rec.Name, other, s.Port)
	}
	return s, err
}

// Exposes returns an Invalid error unless a port is among those that a sandbox was deployed with, given as URLs by port.
func Exposes(name string, tunnels map[string]string, port int) error {
	if tunnels[strconv.Itoa(port)] != "" {
		return nil
	}
	var have []string
	for p := range tunnels {
		have = append(have, p)
	}
	slices.Sort(have)
	return fault.New(fault.Invalid, "sandbox %q exposes %s, and port %d is needed: add it to exposed_ports of its deploy_sandbox", name, cmp.Or(strings.Join(have, ", "), "no port"), port)
}

// Beside reports whether a container runs beside the host of a sandbox, or did, as the ledger knows it.
func (m *Manager) Beside(ctx context.Context, sandboxID string) (bool, error) {
	row, err := m.ledger.Get(ctx, BesideID(sandboxID))
	return row != nil, err
}

// end ends a sandbox with the container beside its host, or that container alone.
func (m *Manager) end(ctx context.Context, p Provider, id string) error {
	houses, ok := p.(Housing)
	if house, beside := HouseOf(id); beside {
		if !ok {
			return fault.New(fault.Unsupported, "%s: %s runs no container beside a host", id, p.Name())
		}
		return houses.EndBeside(ctx, house)
	}
	if !ok {
		return p.Terminate(ctx, id)
	}
	row, err := m.ledger.Get(ctx, BesideID(id))
	if err != nil || row == nil || row.State == Gone { // a ledger that cannot be read keeps nothing up
		return p.Terminate(ctx, id)
	}
	if err = houses.EndBeside(ctx, id); err == nil {
		m.mark(context.WithoutCancel(ctx), BesideID(id), Gone)
	}
	if failed := p.Terminate(ctx, id); failed != nil {
		return failed
	}
	return err
}
