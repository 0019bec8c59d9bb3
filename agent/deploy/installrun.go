package deploy

import (
	"context"
	"fmt"
	"io"
	"path"
	"strings"

	"agentenv/agent"
	"agentenv/artifact"
	"agentenv/fault"
	"agentenv/sandbox"
	"agentenv/sandbox/place"
)

// run stages the build context and runs the commands, one after the other.
func (in *installation) run(ctx context.Context, img *artifact.DockerImage) error {
	host := in.m.Host()
	if err := in.remove(ctx); err != nil {
		return err
	}
	if err := in.exec(ctx, place.Cmd{Argv: []string{"mkdir", "-m", "700", in.dir}}, "make the work folder"); err != nil {
		return err
	}
	err := in.stage(ctx, img)
	for i, c := range in.commands {
		if err != nil {
			break
		}
		in.r.Progress(fmt.Sprintf("install command %d of %d: %s", i+1, len(in.commands), c.title))
		cmd := place.Cmd{Script: c.text, Timeout: commandTime}
		if c.secret {
			cmd, err = handed(ctx, host, c.text)
		}
		if err == nil {
			err = in.exec(ctx, cmd, fmt.Sprintf("install command %d (%s)", i+1, c.title))
		}
	}
	if in.container == "" && err == nil {
		return nil // the agent runs from there
	}
	clean, stop := context.WithTimeout(context.WithoutCancel(ctx), sandbox.TerminateLimit)
	defer stop()
	if left := in.remove(clean); err == nil {
		err = left
	}
	return err
}

// handed is a command whose text no list of processes shows: it comes as a variable that the shell forgets before it begins.
func handed(ctx context.Context, host place.Place, text string) (place.Cmd, error) {
	const name = "AGENTENV_INSTALL_COMMAND"
	shell, err := place.Shell(ctx, host)
	return place.Cmd{Argv: []string{shell, "-c", "eval \"unset " + name + "\n$" + name + "\""}, Env: map[string]string{name: text}, Timeout: commandTime}, err
}

func (in *installation) remove(ctx context.Context) error {
	return in.exec(ctx, place.Cmd{Argv: []string{"rm", "-rf", "--", in.dir}}, "remove the work folder")
}

// exec runs a command on the host, whose failure is an error with the end of its output.
func (in *installation) exec(ctx context.Context, c place.Cmd, what string) error {
	if c.Timeout == 0 {
		c.Timeout = sandbox.TerminateLimit
	}
	c.Keep = outputShown
	r, err := in.m.Host().Exec(ctx, c)
	if err != nil {
		return fault.At(err, "%s", what)
	}
	if r.Code == 0 {
		return nil
	}
	out := strings.TrimSpace(place.Text(r.Stdout) + "\n" + place.Text(r.Stderr))
	return fault.New(fault.Unavailable, "%s ended with exit code %d: %s", what, r.Code, in.hide(in.m.Host().Restore(out)))
}

// stage puts the build context into the work folder, and the certificates where the agent finds them.
func (in *installation) stage(ctx context.Context, img *artifact.DockerImage) error {
	members := []artifact.Member{{Name: contextName, URL: img.ContextURL, Size: -1}}
	if err := in.d.o.Artifacts.Measure(ctx, members); err != nil {
		return err
	}
	source := place.Source{Name: contextName, Size: members[0].Size, SHA256: members[0].SHA256,
		Body: func(ctx context.Context) (io.ReadCloser, error) { return in.d.o.Artifacts.OpenContext(ctx, img) }}
	if _, err := place.Put(ctx, in.m.Host(), in.dir, []place.Source{source}, nil); err != nil {
		return fault.At(err, "stage the build context of the agent")
	}
	if len(in.trust) == 0 {
		return nil
	}
	at := in.m.Host()
	if in.container != "" {
		var err error
		if at, err = in.m.Container(ctx, in.container); err != nil {
			return err
		}
	}
	_, err := place.Put(ctx, at, path.Dir(in.trustFile()), []place.Source{place.Bytes(path.Base(trustFile), 0o644, in.trust)}, nil)
	return fault.At(err, "stage the certificates for the agent")
}

// register waits for the agent's card and makes it an instance.
func (in *installation) register(ctx context.Context) (*Installed, error) {
	d, r := in.d, in.r
	info := in.m.Info()
	e := agent.Endpoint{URL: in.url, Sandbox: info.ID, SandboxType: info.Type}
	found, err := d.o.Client.AwaitCard(ctx, e, readiness)
	if err != nil {
		return nil, fault.At(err, "the agent %q was installed", r.Name)
	}
	e.Card = found
	document, err := cardDocument(found)
	if err != nil {
		return nil, err
	}
	now := d.o.Now().UTC()
	ttl := DefaultTTL
	if !r.Expires.IsZero() {
		ttl = max(r.Expires.Sub(now), leastTTL)
	}
	i := agent.Instance{InstanceID: agent.NewInstanceID(r.Agent.ID), AgentID: r.Agent.ID, AgentVersion: r.Agent.Version, URL: in.url, SandboxID: info.ID, SandboxType: info.Type,
		Card: document, NetworkPolicy: r.Policy, CreatedAt: now, ExpiresAt: now.Add(ttl)}
	return &Installed{Endpoint: e, Card: document, InstanceID: i.InstanceID, Container: in.container}, d.o.Instances.Put(ctx, i)
}
