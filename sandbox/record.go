package sandbox

import (
	"context"

	"agentenv/fault"
	"agentenv/sandbox/place"
)

// Record is what a run recorded about a sandbox: the truth about its mode, whatever a live handle says.
type Record struct {
	Name string
	ID   string
	Type string // provider; "" = the configured default
	Mode Mode
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
	case rec.Mode == Container:
		return m.Container(ctx, "")
	case rec.Mode == VM && host != nil:
		return host, nil
	case rec.Mode == VM:
		return nil, fault.New(fault.Conflict, "sandbox %q was recorded as a VM, but %s has no host to act on", rec.Name, m.Info().ID)
	}
	return nil, fault.New(fault.Invalid, "sandbox %q has the recorded mode %q, which is neither vm nor container", rec.Name, rec.Mode)
}
