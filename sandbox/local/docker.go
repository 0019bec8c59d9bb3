package local

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"agentenv/fault"
	"agentenv/sandbox"
	"agentenv/sandbox/engine"
	"agentenv/sandbox/place"
)

// This file gives a container a Docker Engine of its own, in a container beside it: the socket of this machine's engine is handed to nobody. Both are in
// a network that nothing else is in, where the engine answers without a key, and nothing of it is published.

const (
	dockerAlias  = "agent-dind" // as in sandbox.DockerHost
	dockerPort   = "2375"
	dockerFile   = ".docker-beside"  // in the work folder: there may be such an engine, and its network
	dockerLimit  = 120 * time.Second // until it answers
	dockerPause  = 2 * time.Second   // between two questions whether it does
	dockerAnswer = 10 * time.Second  // for one answer
	dockerLines  = 20                // of output that are shown of one that does not come
)

func dockerName(id string) string { return dockerAlias + "-" + id }

func dockerNetwork(id string) string { return "agent-docker-net-" + id }

// startDocker starts the engine that s asks for, and returns once it answers, with the name of the network; "" when s asks for none. When it fails,
// nothing of it is left.
func (p *Provider) startDocker(ctx context.Context, e *engine.Engine, m *machine, s sandbox.Spec) (network string, err error) {
	if s.Docker == "" {
		return "", nil
	}
	if err := os.WriteFile(filepath.Join(m.dir, dockerFile), nil, 0o600); err != nil {
		return "", fault.Wrap(fault.Unavailable, err, "write into the work folder of %s", m.id)
	}
	labels := sandbox.Labels(Name, m.id, p.o.StateMark, s)
	network = dockerNetwork(m.id)
	if err := e.MakeNetwork(ctx, network, labels); err != nil {
		return "", err
	}
	// An empty folder of certificates is what has the image listen on the port without TLS.
	c, err := e.Run(ctx, engine.RunSpec{Name: dockerName(m.id), Image: s.Docker, Env: map[string]string{"DOCKER_TLS_CERTDIR": ""}, Labels: labels, End: true,
		Network: network, Aliases: []string{dockerAlias}, Privileged: true})
	if err == nil {
		err = p.awaitDocker(ctx, e, c)
	}
	if err != nil {
		return "", p.undoDocker(ctx, e, m, network, fault.At(err, "the container's own Docker Engine (image %s)", s.Docker))
	}
	return network, nil
}

// awaitDocker asks the engine in a container, by that container's own docker command, until it answers.
func (p *Provider) awaitDocker(ctx context.Context, e *engine.Engine, c *engine.Container) error {
	said := "it was not asked"
	waiting, stop := context.WithTimeout(ctx, p.dockerLimit)
	defer stop()
	for waiting.Err() == nil {
		r, err := c.Exec(waiting, place.Cmd{Argv: []string{"docker", "--host", "tcp://127.0.0.1:" + dockerPort, "version"}, Timeout: dockerAnswer, Keep: 1 << 10})
		switch {
		case err == nil && r.Code == 0:
			return nil
		case err == nil:
			said = place.Text(r.Stderr)
		case waiting.Err() != nil: // what it said before tells more
		case fault.Is(err, fault.Timeout):
			said = err.Error()
		default:
			if now, gone := e.Container(ctx, c.ID()); gone == nil && !now.Running() {
				return fault.New(fault.Unavailable, "it has ended; its last output: %s", lastOutput(ctx, now))
			}
			return err
		}
		t := time.NewTimer(dockerPause)
		select {
		case <-waiting.Done():
		case <-t.C:
		}
		t.Stop()
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return fault.New(fault.Timeout, "it did not answer on port %s within %s (%s); its last output: %s", dockerPort, p.dockerLimit, oneLine(said), lastOutput(ctx, c))
}

func lastOutput(ctx context.Context, c *engine.Container) string {
	stdout, stderr, err := c.Logs(ctx, dockerLines)
	if err != nil {
		return fmt.Sprintf("none that can be read (%v)", err)
	}
	const most = 1000
	text := oneLine(place.Text(bytes.Join([][]byte{stdout, stderr}, []byte(" "))))
	return text[max(0, len(text)-most):]
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// undoDocker ends the engine of a container that is not to be, and adds to err what stayed; network "" = there is none.
func (p *Provider) undoDocker(ctx context.Context, e *engine.Engine, m *machine, network string, err error) error {
	if network == "" {
		return err
	}
	clean, stop := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer stop()
	if left := endDocker(clean, e, m.id); left != nil {
		return fault.Wrap(fault.KindOf(err), left, "%s; container %s or network %s is left behind (remove them with docker rm -f -v and docker network rm)", err, dockerName(m.id), network)
	}
	_ = os.Remove(filepath.Join(m.dir, dockerFile)) // one that stays makes the end of the sandbox look again
	return err
}

// endDocker removes a container's own engine, with what it holds, and its network.
func endDocker(ctx context.Context, e *engine.Engine, id string) error {
	if err := removeOwn(ctx, e, id, dockerName(id)); err != nil {
		return err
	}
	return e.RemoveNetwork(ctx, dockerNetwork(id))
}
