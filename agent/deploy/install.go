package deploy

import (
	"context"
	"fmt"
	"time"

	"agentenv/agent"
	"agentenv/artifact"
	"agentenv/fault"
	"agentenv/sandbox"
	"agentenv/store/doc"
)

const (
	commandTime = 30 * time.Minute // of one install command
	leastTTL    = time.Minute
	outputShown = 2000 // bytes of a failed command's output in its error
	titleShown  = 140  // characters of a command's template in messages
	contextName = "agent-ctx.tar.gz"
)

// InstallRequest says which agent to put onto which machine, and how.
type InstallRequest struct {
	Agent     *agent.Agent
	Name      string            // of the agent in its run
	Sandbox   sandbox.Record    // of mode vm
	Tunnels   map[string]string // its ports, as recorded: port → URL
	Container string            // name in the task of a container on the sandbox; "" = the sandbox's host
	Port      int               // where the agent listens; 0 = as its card says
	Workspace string            // the folder it is to work in, "" = none given
	APIKey    string            // model key for this run; "" = the configured one
	BaseURL   string            // model endpoint for this run, as this machine reaches it; "" = the configured one
	Taken     map[string]string // URLs that agents of the run answer on, with the agents' names
	Expires   time.Time         // of the sandbox; zero = unknown
	Policy    *doc.Object       // of the sandbox, as recorded; nil = unknown
	Progress  func(line string) // may be nil
}

// Installed is an agent that was put onto a machine.
type Installed struct {
	Endpoint   agent.Endpoint
	Card       *doc.Object // as served
	InstanceID string
	Container  string // the engine's name of the container it is in; "" = the host
}

// Installable returns why an agent of this image can never be installed, "" when nothing speaks against it: its build context is what is
// handed to the machine.
func Installable(img *artifact.DockerImage) string {
	if img.ContextURL == "" {
		return fmt.Sprintf("the image %s v%d has no build context, from which an agent is installed; store the agent from a folder with a Dockerfile", img.ID(), img.Version())
	}
	return ""
}

// Install puts an agent into a container on a sandbox, or onto its host, by the commands that its install extension gives, and returns once it serves
// its card. Its image must have a build context, and its card on a label (CardLabel) or as AGENT_CARD of a Python module a2a_server in /app. What
// cannot be is refused before the first command: Invalid for what the request or the card lacks, Unsupported for a sandbox without a host, and
// for an agent that has no install extension. A command that fails is Unavailable, with the end of its output; secrets are hidden in it. What
// commands did by then stays until the sandbox ends. A second call installs a second time, and is refused where the first agent answers
// (Taken). Safe for concurrent use, but not for one name on one sandbox.
func (d *Deployer) Install(ctx context.Context, r InstallRequest) (*Installed, error) {
	if r.Progress == nil {
		r.Progress = func(string) {}
	}
	m, err := d.machine(ctx, r)
	if err != nil {
		return nil, err
	}
	in := &installation{d: d, r: r, m: m, here: d.capabilities(r.Sandbox.Type).OnThisMachine}
	if r.Container != "" {
		in.container = m.ScopedName(r.Container)
		if _, err := m.Container(ctx, in.container); err != nil {
			return nil, fault.At(err, "container %q", r.Container)
		}
	}
	img, err := artifact.GetAs[*artifact.DockerImage](ctx, d.o.Artifacts, artifact.Ref{ID: r.Agent.Image.ID, Version: r.Agent.Image.Version})
	if err == nil {
		if why := Installable(img); why != "" {
			err = fault.New(fault.Invalid, "%s", why)
		}
	}
	if err == nil {
		err = in.prepare(ctx, img)
	}
	if err != nil {
		return nil, fault.At(err, "the agent %s v%d", r.Agent.ID, r.Agent.Version)
	}
	if err := in.run(ctx, img); err != nil {
		return nil, err
	}
	return in.register(ctx)
}

// machine attaches the sandbox, which must have been recorded as a machine.
func (d *Deployer) machine(ctx context.Context, r InstallRequest) (sandbox.Machine, error) {
	if r.Sandbox.Mode != sandbox.VM {
		return nil, fault.New(fault.Unsupported, "sandbox %q is of the mode %s: agents are installed on sandboxes of the mode vm", r.Sandbox.Name, r.Sandbox.Mode)
	}
	m, err := d.o.Sandboxes.Attach(ctx, r.Sandbox)
	if err == nil && m.Host() == nil {
		return nil, fault.New(fault.Unsupported, "sandbox %q has no host to install an agent on", r.Sandbox.Name)
	}
	return m, err
}
