// Package local is the provider of this machine: a sandbox is a work folder and processes here, with, in container mode, a
// container beside it on this machine's Docker Engine. VM mode never looks for an engine.
package local

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"agentenv/fault"
	"agentenv/sandbox"
	"agentenv/sandbox/engine"
	"agentenv/sandbox/helper"
	"agentenv/sandbox/helper/proc"
)

// Name is the provider's name in records.
const Name = "local"

// Options configure the provider.
type Options struct {
	StateRoot string       // the state folder, where the port file lives; required
	StateMark string       // mark of the state folder on labels
	Root      string       // of the work folders; "" = ~/.agent-env-sandboxes (a caller passes AGENT_ENV_LOCAL_SANDBOX_DIR)
	Engine    *engine.Lazy // for container mode; required
	Guards    bool         // commands run below a guard each, also where they could have cgroups
	Log       *slog.Logger // nil = discard
}

// Provider implements sandbox.Provider on this machine.
type Provider struct {
	o           Options
	cgroups     *cgroups
	guards      *guards
	dockerLimit time.Duration // until a container's own engine answers
	made        sync.Map      // by id: the proc.Moment before a sandbox of this process was made, so before any process of it
}

// guards is the helper that commands run below where they get no cgroups.
type guards struct {
	helper func() string // its path, "" where there is none; the first call installs it
	adopts sync.Once
	killed atomic.Bool // one of them was killed, so what it watched over may be this process's now
}

// ready reports whether there can be guards.
func (g *guards) ready() bool {
	if g.helper() == "" {
		return false
	}
	g.adopts.Do(adoptOrphans)
	return true
}

var _ sandbox.Provider = (*Provider)(nil)

// New returns the provider. A root that shell scripts could not hold unquoted is Invalid, since the folder replaces /app in
// them. Nothing is created.
func New(o Options) (*Provider, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Root == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return nil, fault.Wrap(fault.Invalid, err, "no place for the work folders of local sandboxes; set AGENT_ENV_LOCAL_SANDBOX_DIR")
		}
		o.Root = filepath.Join(home, ".agent-env-sandboxes")
	}
	root, err := filepath.Abs(o.Root)
	if err != nil {
		return nil, err
	}
	if strings.ContainsAny(root, " \t\n\"'`$&|;<>()*?[]{}\\!#~") {
		return nil, fault.New(fault.Invalid, "the folder of local sandboxes %q holds characters that mean something to a shell; set AGENT_ENV_LOCAL_SANDBOX_DIR to a plain path", root)
	}
	o.Root = root
	helper := sync.OnceValue(o.helper)
	c := &cgroups{helper: helper, index: filepath.Join(o.StateRoot, "cgroups"), log: o.Log, opened: o.Guards}
	return &Provider{o: o, cgroups: c, guards: &guards{helper: helper}, dockerLimit: dockerLimit}, nil
}

// helper returns the path of the helper in the state folder, which watches over commands; "" where this machine cannot have it.
func (o Options) helper() string {
	if !onLinux {
		return ""
	}
	at, err := helper.Install(filepath.Join(o.StateRoot, "helper"))
	if err != nil {
		o.Log.Warn("commands on this machine run unguarded: one that hides may outlive its deadline", "error", err)
	}
	return at
}

// Name returns "local".
func (p *Provider) Name() string { return Name }

// Capabilities returns what the provider can do: both modes, on this machine. A VM is this machine itself, so an image given for
// one means nothing to it and is passed over.
func (p *Provider) Capabilities() sandbox.Capabilities {
	return sandbox.Capabilities{Modes: []sandbox.Mode{sandbox.Container, sandbox.VM}, OnThisMachine: true, CustomImageVM: true, DockerBeside: true}
}

// NewID returns "local-" and eight hexadecimal digits.
func (p *Provider) NewID() string {
	var b [4]byte
	rand.Read(b[:])
	return Name + "-" + hex.EncodeToString(b[:])
}

// Prepare pulls the image of a container-mode sandbox unless the engine holds it, and before it that of its own Docker Engine.
func (p *Provider) Prepare(ctx context.Context, s sandbox.Spec, progress func(string)) error {
	if s.Mode != sandbox.Container {
		return nil
	}
	if err := check(s); err != nil {
		return err
	}
	e, err := p.o.Engine.Get(ctx)
	if err != nil {
		return err
	}
	if s.Docker != "" {
		if _, err := e.Ensure(ctx, s.Docker, progress); err != nil {
			return fault.Wrap(fault.KindOf(err), err, "the image of the container's own Docker Engine cannot be had; bring %s onto this machine, or name another in AGENT_ENV_AGENT_DOCKER_IMAGE", s.Docker)
		}
	}
	_, err = e.Ensure(ctx, s.Image, progress)
	return err
}

func check(s sandbox.Spec) error {
	switch {
	case s.Policy != nil && s.Policy.Mode == "allowlist":
		return fault.New(fault.Unsupported, "local cannot enforce network policy mode 'allowlist'").WithClass("ValueError")
	case s.Mode == sandbox.VM:
	case s.Mode != sandbox.Container:
		return fault.New(fault.Invalid, "sandbox mode %q is neither container nor vm", s.Mode)
	case s.Image == "":
		return fault.New(fault.Invalid, "container mode needs an image")
	case s.Port < 1 || s.Port > 65535:
		return fault.New(fault.Invalid, "container mode needs a port between 1 and 65535")
	}
	for _, port := range s.ExposedPorts {
		if port < 1 || port > 65535 {
			return fault.New(fault.Invalid, "exposed port %d is not between 1 and 65535", port)
		}
	}
	return nil
}

const (
	portMapFile = ".port-map.json"
	markerFile  = ".agent-container-mode"
	startTries  = 20
	defaultTTL  = 2 * time.Hour
)

// Create makes the work folder and, in container mode, the container agent-<id>. When it fails, both are gone.
func (p *Provider) Create(ctx context.Context, id string, s sandbox.Spec) (_ sandbox.Machine, err error) {
	if err := check(s); err != nil {
		return nil, err
	}
	if !validID(id) {
		return nil, fault.New(fault.Invalid, "%q is no id of a local sandbox", id)
	}
	p.made.Store(id, proc.Now())
	dir, err := p.makeDir(id)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			os.RemoveAll(dir)
		}
	}()
	m := &machine{p: p, id: id, dir: dir, mode: s.Mode, policy: &sandbox.NetworkPolicy{Mode: "allow_all", AllowHosts: []string{}, AllowCIDRs: []string{}}, expires: time.Now().Add(ttl(s))}
	if s.Mode == sandbox.Container {
		if err := p.startContainer(ctx, m, s); err != nil {
			return nil, err
		}
		return m, nil
	}
	want := slices.Compact(slices.Sorted(slices.Values(s.ExposedPorts)))
	got, err := drawPorts(ctx, p.o.StateRoot, len(want))
	if err != nil {
		return nil, err
	}
	m.ports = map[int]int{}
	for i, port := range want {
		m.ports[port] = got[i]
	}
	return m, m.writePorts()
}

func ttl(s sandbox.Spec) time.Duration {
	if s.TTL > 0 {
		return s.TTL
	}
	return defaultTTL
}

func (p *Provider) startContainer(ctx context.Context, m *machine, s sandbox.Spec) (err error) {
	e, err := p.o.Engine.Get(ctx)
	if err != nil {
		return err
	}
	ips, err := hostIPs(ctx, e)
	if err != nil {
		return err
	}
	name := containerName(m.id)
	// The marker comes first: a process that dies in between leaves a folder that says what to remove.
	if err := os.WriteFile(filepath.Join(m.dir, markerFile), []byte(name), 0o600); err != nil {
		return fault.Wrap(fault.Unavailable, err, "write into the work folder of %s", m.id)
	}
	docker, err := p.startDocker(ctx, e, m, s)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = p.undoDocker(ctx, e, m, docker, err)
		}
	}()
	for try := 1; ; try++ {
		ports, err := drawPorts(ctx, p.o.StateRoot, 1)
		if err != nil {
			return err
		}
		_, err = e.Run(ctx, p.containerOf(m, s, docker, ips, ports[0]))
		if err == nil {
			m.ports, m.owned = map[int]int{s.Port: ports[0]}, true
			break
		}
		if !fault.Is(err, fault.Conflict) || try == startTries {
			return err
		}
	}
	if err := m.writePorts(); err != nil {
		clean, stop := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer stop()
		if gone := e.Remove(clean, name); gone != nil {
			return fault.Wrap(fault.KindOf(err), gone, "%s; container %s is left behind (remove it with docker rm -f -v %s)", err, name, name)
		}
		return err
	}
	return nil
}

func containerName(id string) string { return "agent-" + id }

func validID(id string) bool {
	hexes, ok := strings.CutPrefix(id, Name+"-")
	if !ok || len(hexes) != 8 {
		return false
	}
	_, err := hex.DecodeString(hexes)
	return err == nil
}

func (p *Provider) makeDir(id string) (string, error) {
	if err := os.MkdirAll(p.o.Root, 0o700); err != nil {
		return "", fault.Wrap(fault.Unavailable, err, "the folder of local sandboxes cannot be made; set AGENT_ENV_LOCAL_SANDBOX_DIR to one that can")
	}
	dir, err := os.MkdirTemp(p.o.Root, "agent-env-"+id+"-")
	if err != nil {
		return "", fault.Wrap(fault.Unavailable, err, "the work folder of %s cannot be made", id)
	}
	return dir, nil
}

func (m *machine) writePorts() error {
	text := map[string]int{}
	for k, v := range m.ports {
		text[strconv.Itoa(k)] = v
	}
	b, err := json.Marshal(text)
	if err == nil {
		err = os.WriteFile(filepath.Join(m.dir, portMapFile), b, 0o600)
	}
	if err != nil {
		return fault.Wrap(fault.Unavailable, err, "write into the work folder of %s", m.id)
	}
	return nil
}

// dirs returns the work folders of a sandbox, the newest naming last; under the root, or where older versions put them.
func (p *Provider) dirs(id string) []string {
	for _, root := range []string{p.o.Root, os.TempDir()} {
		found := named(root, "agent-env-"+id+"-", "")
		found = slices.DeleteFunc(found, func(d string) bool {
			fi, err := os.Lstat(d)
			return err != nil || !fi.IsDir()
		})
		if len(found) > 0 {
			slices.Sort(found)
			return found
		}
	}
	return nil
}

// named returns the paths of the entries of a folder whose names begin and end so. It is asked for at the end of every sandbox, also of
// folders that hold much else.
func named(dir, prefix, suffix string) (paths []string) {
	d, err := os.Open(dir)
	if err != nil {
		return nil
	}
	defer d.Close()
	names, _ := d.Readdirnames(-1)
	for _, name := range names {
		if strings.HasPrefix(name, prefix) && strings.HasSuffix(name, suffix) {
			paths = append(paths, filepath.Join(dir, name))
		}
	}
	return paths
}

const maxPortMap = 1 << 20

// Attach finds a sandbox by its work folder. The handle is always of mode vm, whatever the sandbox was made as.
func (p *Provider) Attach(ctx context.Context, id string) (sandbox.Machine, error) {
	if !validID(id) {
		return nil, fault.New(fault.NotFound, "%q is no id of a local sandbox", id)
	}
	dirs := p.dirs(id)
	if len(dirs) == 0 {
		return nil, fault.New(fault.NotFound, "Local sandbox work directory not found for sandbox_id='%s'", id)
	}
	m := &machine{p: p, id: id, dir: dirs[len(dirs)-1], mode: sandbox.VM}
	file := filepath.Join(m.dir, portMapFile)
	fi, err := os.Stat(file)
	if err == nil && fi.Size() <= maxPortMap {
		b, err := os.ReadFile(file)
		if err != nil {
			return nil, fault.Wrap(fault.Unavailable, err, "sandbox %s", id)
		}
		if m.ports, err = parsePorts(b); err != nil {
			return nil, fault.Wrap(fault.Conflict, err, "%s is broken", file)
		}
	}
	if _, err := os.Stat(filepath.Join(m.dir, markerFile)); err == nil {
		m.owned = true
	}
	return m, nil
}

func parsePorts(b []byte) (map[int]int, error) {
	var text map[string]int
	if err := json.Unmarshal(b, &text); err != nil {
		return nil, err
	}
	out := map[int]int{}
	for k, v := range text {
		n, err := strconv.Atoi(k)
		if err != nil || n < 1 || n > 65535 || v < 1 || v > 65535 {
			return nil, fmt.Errorf("%q: %d is no pair of ports", k, v)
		}
		out[n] = v
	}
	return out, nil
}

// Close ends commands that still run, and lets go of this machine's means to end them. The engine belongs to who gave it. A second call
// does nothing.
func (p *Provider) Close() error {
	p.cgroups.close()
	return nil
}
