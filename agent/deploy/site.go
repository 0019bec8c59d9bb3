package deploy

import (
	"context"
	"maps"

	"agentenv/fault"
	"agentenv/sandbox"
)

// Site is a sandbox that is there already, of mode vm and with Port exposed, beside whose host an agent runs in a container. It serves one agent.
type Site struct {
	sandbox.Record
	Policy *sandbox.NetworkPolicy // as the sandbox was made; nil = allow all
}

// takes refuses a network policy that would have to be put on a sandbox that others use already.
func (s *Site) takes(p *sandbox.NetworkPolicy) error {
	if p.Restrictive() {
		return fault.New(fault.Invalid, "network policy mode '%s' cannot be put on sandbox %q, which is there already: give it to its deploy_sandbox", p.Mode, s.Name).WithClass("NetworkPolicyUnsupportedError")
	}
	return nil
}

// apply puts what a run recorded about the sandbox over what its handle tells; on nil it changes nothing.
func (s *Site) apply(info sandbox.Info) sandbox.Info {
	if s != nil && s.Policy != nil {
		info.Policy = s.Policy
	}
	return info
}

// beside starts the agent's container on the sandbox.
func (d *Deployer) beside(ctx context.Context, s Site, spec sandbox.Spec, progress func(string)) (sandbox.Machine, error) {
	spec.Policy, spec.TTL = nil, 0 // the sandbox has them
	if spec.EnvOf != nil {
		more, err := spec.EnvOf(s.ID)
		if err != nil {
			return nil, err
		}
		maps.Copy(spec.Env, more)
	}
	return d.o.Sandboxes.RunBeside(ctx, s.Record, spec, progress)
}
