package deploy

import (
	"agentenv/agent"
	"agentenv/fault"
	"agentenv/sandbox"
	"agentenv/store/doc"
)

// Reach returns the URL under which the agent of one record reaches another agent that this process reaches at to.URL. Both are entries of a
// run's deployed_agents. An agent in a container of this machine knows this machine's loopback addresses by another name; everyone else is
// given the URL as it is. A container whose port is published on this machine's loopback alone is Unsupported for another container.
// Safe for concurrent use.
func (d *Deployer) Reach(from *doc.Object, to agent.Endpoint) (string, error) {
	rec := sandbox.AgentRecord(from)
	if rec.ID == "" || rec.Mode == sandbox.VM && rec.Installed == "" || !d.capabilities(rec.Type).OnThisMachine {
		return to.URL, nil
	}
	url := fromContainer(to.URL)
	if peer := d.capabilities(to.SandboxType); url != to.URL && to.Sandbox != "" && peer.OnThisMachine && peer.IsContainer {
		return "", fault.New(fault.Unsupported, "sandbox %s is reached from this machine alone, not from another container; deploy its agent on the sandbox type local", to.Sandbox)
	}
	return url, nil
}

// capabilities returns those of a recorded provider, "" being the default; the zero value for one that is not known here.
func (d *Deployer) capabilities(provider string) sandbox.Capabilities {
	names, err := d.o.Sandboxes.Resolve(provider)
	if err != nil {
		return sandbox.Capabilities{}
	}
	p, err := d.o.Sandboxes.Provider(names[0])
	if err != nil {
		return sandbox.Capabilities{}
	}
	return p.Capabilities()
}
