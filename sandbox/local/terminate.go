package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"agentenv/fault"
	"agentenv/sandbox"
	"agentenv/sandbox/engine"
	"agentenv/sandbox/helper/proc"
)

const (
	stopGrace      = 5 * time.Second
	enginePatience = 3 * time.Second // for an engine that most probably holds nothing of the sandbox
)

// Terminate ends the processes of a sandbox, removes its containers and staged files, and then its work folder. One that is
// gone is done. Whatever fails, the later parts are still tried; the folder stays when something is still up.
func (p *Provider) Terminate(ctx context.Context, id string) error {
	if !validID(id) {
		return nil
	}
	groups := p.cgroups.of(id)
	for _, g := range groups {
		if !exists(filepath.Join(g, proc.LeftBehind)) {
			_ = os.Mkdir(filepath.Join(g, proc.Ended), 0o755)
		}
	}
	began, _ := p.made.LoadAndDelete(id)
	since, _ := began.(proc.Moment)
	left := proc.EndIn(groups, func() []proc.Process {
		self := os.Getpid()
		var out []proc.Process
		for _, q := range proc.MarkedSince(since, markName+"="+id) {
			if q.PID != self {
				out = append(out, q)
			}
		}
		return out
	}, stopGrace, stopGrace)
	for _, g := range groups {
		_ = proc.RemoveCgroup(g) // one that stays is counted above
	}
	if len(groups) > 0 {
		p.cgroups.sweep()
	}
	if p.guards.killed.Load() {
		left = append(left, endOrphans(p.guards.helper(), 0)...)
	}
	var errs []error
	if len(left) > 0 {
		errs = append(errs, fault.New(fault.Unavailable, "sandbox %s: %d of its processes do not end", id, len(left)))
	} else {
		for _, d := range named("/tmp", "", "-"+id) {
			os.RemoveAll(d)
		}
	}
	dirs := p.dirs(id)
	errs = append(errs, p.endContainers(ctx, id, dirs))
	if err := errors.Join(errs...); err != nil {
		return fault.At(err, "terminate %s", id)
	}
	for _, d := range dirs {
		if err := p.removeDir(d); err != nil {
			return err
		}
	}
	return nil
}

// endContainers removes what an engine holds of the sandbox. Where the sandbox was not made with a container, an engine that
// does not answer soon is no error.
func (p *Provider) endContainers(ctx context.Context, id string, dirs []string) error {
	owned, composed, docker := len(dirs) == 0, "", false
	for _, d := range dirs {
		if _, err := os.Stat(filepath.Join(d, markerFile)); err == nil {
			owned = true
		}
		docker = docker || exists(filepath.Join(d, dockerFile))
		if _, err := os.Stat(filepath.Join(d, "docker-compose.yml")); err == nil {
			composed = d
		}
	}
	find, must := ctx, owned && len(dirs) > 0 || composed != "" || docker
	if !must {
		var stop context.CancelFunc
		find, stop = context.WithTimeout(ctx, enginePatience)
		defer stop()
	}
	e, err := p.o.Engine.Get(find)
	if err != nil {
		if must {
			return err
		}
		return nil
	}
	list, err := e.List(find, sandbox.LabelSandbox+"="+id)
	if err != nil && !must {
		p.o.Log.Warn("the engine does not tell whether it holds containers of a sandbox; `agent-env sandbox prune` removes them", "sandbox", id, "error", err)
		return nil
	}
	errs := []error{err}
	for _, c := range list {
		errs = append(errs, e.Remove(ctx, c.ID))
		docker = docker || c.Name == dockerName(id)
	}
	if docker {
		errs = append(errs, endDocker(ctx, e, id))
	}
	if owned {
		errs = append(errs, removeOwn(ctx, e, id, containerName(id)))
	}
	if composed != "" && !owned {
		errs = append(errs, p.composeDown(ctx, composed))
	}
	if !owned && (len(list) > 0 || composed != "") { // who labels networks and images runs containers too
		if err := e.Sweep(ctx, sandbox.LabelSandbox+"="+id); err != nil {
			p.o.Log.Warn("images or networks of a sandbox are left behind", "sandbox", id, "error", err)
		}
	}
	return errors.Join(errs...)
}

// composeDown ends what a compose file in a work folder brought up. Without the docker command nothing can have brought it up.
func (p *Provider) composeDown(ctx context.Context, dir string) error {
	cmd := exec.CommandContext(ctx, "docker", "compose", "down", "-v", "--remove-orphans")
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fault.At(context.Cause(ctx), "docker compose down in %s", dir)
	case errors.Is(err, exec.ErrNotFound):
		p.o.Log.Warn("there is no docker command to end a compose file with", "folder", dir)
		return nil
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return fault.Wrap(fault.Unavailable, err, "docker compose down in %s: %s", dir, lines[len(lines)-1])
}

// removeOwn removes a sandbox's container of a name, which another program may have made without a label; never one labelled for another.
func removeOwn(ctx context.Context, e *engine.Engine, id, name string) error {
	c, err := e.Container(ctx, name)
	if fault.Is(err, fault.NotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if of := c.Labels()[sandbox.LabelSandbox]; of != "" && of != id {
		return nil
	}
	return e.Remove(ctx, c.ID())
}

// removeDir removes a work folder, when it lies directly under the root and is no link.
func (p *Provider) removeDir(dir string) error {
	fi, err := os.Lstat(dir)
	if err != nil || !fi.IsDir() || filepath.Dir(dir) != p.o.Root {
		return nil //nolint:nilerr // a folder that is not there is gone
	}
	if err := os.RemoveAll(dir); err != nil {
		return fault.Wrap(fault.Unavailable, err, "the work folder %s cannot be removed", dir)
	}
	return nil
}

// List returns the containers and networks that carry this provider's label, and the work folders under the root. Without an engine only
// the folders.
func (p *Provider) List(ctx context.Context) ([]sandbox.Found, error) {
	var out []sandbox.Found
	folders, _ := filepath.Glob(filepath.Join(p.o.Root, "agent-env-"+Name+"-*"))
	for _, d := range folders {
		fi, err := os.Lstat(d)
		id := strings.TrimPrefix(filepath.Base(d), "agent-env-")
		if i := strings.LastIndexByte(id, '-'); err == nil && fi.IsDir() && i > 0 && validID(id[:i]) {
			out = append(out, sandbox.Found{Provider: Name, Kind: "folder", Ref: d, Name: filepath.Base(d), SandboxID: id[:i], State: "present", CreatedAt: fi.ModTime(), StateRoot: p.o.StateMark})
		}
	}
	e, err := p.o.Engine.Get(ctx)
	if err != nil {
		return out, nil //nolint:nilerr // without an engine there are only folders to list
	}
	list, err := e.List(ctx, sandbox.LabelManaged+"=true", sandbox.LabelProvider+"="+Name)
	if err != nil {
		return out, err
	}
	for _, c := range list {
		out = append(out, sandbox.FoundFrom("container", c.ID, c.Name, c.State, c.CreatedAt, c.Labels))
	}
	networks, err := e.Networks(ctx, sandbox.LabelManaged+"=true", sandbox.LabelProvider+"="+Name)
	for _, n := range networks {
		out = append(out, sandbox.FoundFrom("network", n.ID, n.Name, n.State, n.CreatedAt, n.Labels))
	}
	return out, err
}

// Remove removes one thing that List found; a thing that is gone is done.
func (p *Provider) Remove(ctx context.Context, f sandbox.Found) error {
	if f.Kind == "folder" {
		return p.removeDir(f.Ref)
	}
	e, err := p.o.Engine.Get(ctx)
	if err != nil {
		return err
	}
	if f.Kind == "network" {
		return e.RemoveNetwork(ctx, f.Ref)
	}
	return e.Remove(ctx, f.Ref)
}

// Check says what is missing for container mode, and for work folders.
func (p *Provider) Check(ctx context.Context) []sandbox.Lack {
	var out []sandbox.Lack
	if err := writable(p.o.Root); err != nil {
		out = append(out, sandbox.Lack{What: fmt.Sprintf("the folder of local sandboxes, %s, cannot be written: %v", p.o.Root, err), Remedy: "set AGENT_ENV_LOCAL_SANDBOX_DIR to a folder that can be written"})
	}
	if _, err := p.o.Engine.Get(ctx); err != nil {
		out = append(out, sandbox.Lack{What: "container mode: " + err.Error(), Remedy: "install and start a Docker Engine; VM mode works without one"})
	}
	return out
}

// writable says why a folder that is there, or the nearest one above it, cannot be written; it makes nothing.
func writable(dir string) error {
	for {
		err := unix.Access(dir, unix.W_OK)
		up := filepath.Dir(dir)
		if !errors.Is(err, fs.ErrNotExist) || up == dir {
			return err
		}
		dir = up
	}
}
