package sandbox

import (
	"context"

	"agentenv/fault"
	"agentenv/sandbox/place"
	"agentenv/store/doc"
)

// Record is what a run recorded about a sandbox: the truth about its mode, whatever a live handle says.
type Record struct {
	Name string
	ID   string
	Type string // provider; "" = the configured default
	Mode Mode
	// Installed is the engine's name of a container on this sandbox that the record is about, as for an agent that was installed into
	// one; "" = none. It counts before Mode.
	Installed string
}

// AgentRecord returns where a deployed agent works, by an entry of a run's deployed_agents: on the host of its sandbox, in the
// container it was installed into, or, as every agent that was deployed by itself, in its sandbox's own container.
func AgentRecord(agent *doc.Object) Record {
	rec := Record{Name: agent.Str("agent_name"), ID: agent.Str("sandbox_id"), Type: agent.Str("sandbox_type"), Mode: Container}
	if agent.Bool("on_host") {
		rec.Mode = VM
	}
	rec.Installed = agent.Str("installed_container")
	return rec
}

// PlaceOf returns where a step acts that names the sandbox of rec, and optionally a container on it: the host when the
// recorded mode is vm, its own container when it is container (whether the machine is that container or is a host with the
// container beside it), a named container otherwise. It is the only place where this is decided.
func PlaceOf(ctx context.Context, rec Record, m Machine, container string) (place.Place, error) {
	host := m.Host()
	switch {
	case container != "":
		if host == nil {
			return nil, fault.New(fault.Invalid, "container %q: sandbox %q is itself a container and holds no others", container, rec.Name)
		}
		return m.Container(ctx, m.ScopedName(container))
	case rec.Installed != "":
		return m.Container(ctx, rec.Installed)
	case rec.Mode == Container:
		return m.Container(ctx, "")
	case rec.Mode == VM && host != nil:
		return host, nil
	case rec.Mode == VM:
		return nil, fault.New(fault.Conflict, "sandbox %q was recorded as a VM, but %s has no host to act on", rec.Name, m.Info().ID)
	}
	return nil, fault.New(fault.Invalid, "sandbox %q has the recorded mode %q, which is neither vm nor container", rec.Name, rec.Mode)
}
