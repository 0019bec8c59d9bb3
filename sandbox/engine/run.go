package engine

import (
	"context"
	"maps"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"

	"agentenv/fault"
)

// Publish says on which address of the engine's machine a container port listens. HostPort 0 lets the engine choose.
type Publish struct {
	HostIP        string
	HostPort      int
	ContainerPort int
}

// RunSpec says what container to run.
type RunSpec struct {
	Name       string
	Image      string // must be present
	Env        map[string]string
	Labels     map[string]string
	Publish    []Publish
	ExtraHosts []string // "name:address"
	CPU        float64  // cores; 0 = no limit
	MemoryMB   int      // 0 = no limit
	Command    []string // nil = the image's own
	End        bool     // the container ends with its command; else process 1 stays
	ReadOnly   bool
	Tmpfs      map[string]string // folder → mount options
	Mounts     []mount.Mount     // beside the helper's
	Files      map[string][]byte // by absolute path: put there before the start, owned by root, for everybody to read
	Network    string            // name of the network it is in; "" = the default bridge
	Aliases    []string          // its further names in Network
	Privileged bool              // for a container that runs containers
}

const startPatience = 3 * time.Minute

// Run creates and starts a container with the helper as process 1. When it fails or ctx ends, the container and its
// anonymous volumes are gone again; one that could not be removed is named in the error. A name that is taken gives an
// Exists error, a port that is taken a Conflict error, an image that is not there NotFound.
func (e *Engine) Run(ctx context.Context, s RunSpec) (*Container, error) {
	img, err := e.Image(ctx, s.Image)
	if err != nil {
		return nil, err
	}
	if strings.HasPrefix(img.Platform, "windows") {
		return nil, fault.New(fault.Unsupported, "image %s is for Windows; agent-env runs Linux images", s.Image)
	}
	opts, err := e.createOptions(s, img)
	if err != nil {
		return nil, err
	}
	// The engine finishes what it was asked for even when the asker hangs up, so its answer is waited for: else nobody would
	// know what to remove.
	sure, stop := context.WithTimeout(context.WithoutCancel(ctx), startPatience)
	defer stop()
	r, err := e.cli.ContainerCreate(sure, opts)
	if err != nil {
		err = wrap(sure, err, "create container %s", s.Name)
		if fault.Is(err, fault.Conflict) {
			return nil, fault.Wrap(fault.Exists, oneLine(err), "container name %s is taken", s.Name)
		}
		return nil, err
	}
	if err = e.checkHelper(ctx, r.ID, s.Image); err == nil && ctx.Err() == nil {
		err = e.bring(ctx, r.ID, s)
	}
	if err == nil && ctx.Err() == nil {
		err = e.start(sure, r.ID, s)
	}
	if err == nil && ctx.Err() != nil {
		err = fault.At(context.Cause(ctx), "start container %s", s.Name)
	}
	if err != nil {
		return nil, e.undo(ctx, r.ID, err)
	}
	c, err := e.Container(ctx, r.ID)
	if err != nil {
		return nil, e.undo(ctx, r.ID, err)
	}
	return c, nil
}

func (e *Engine) createOptions(s RunSpec, img *Image) (client.ContainerCreateOptions, error) {
	m, err := e.helperMount(true)
	if err != nil {
		return client.ContainerCreateOptions{}, err
	}
	labels := map[string]string{LabelManaged: "true"}
	maps.Copy(labels, s.Labels)
	var env []string
	for k, v := range s.Env {
		env = append(env, k+"="+v)
	}
	command := s.Command
	if command == nil {
		command = commandOf(img)
	}
	entry := []string{helperPath, "init"}
	if s.End {
		entry = append(entry, "-end")
	}
	exposed, bindings := network.PortSet{}, network.PortMap{}
	for _, p := range s.Publish {
		port, ok := network.PortFrom(uint16(p.ContainerPort), network.TCP)
		if !ok || p.ContainerPort < 1 || p.ContainerPort > 65535 {
			return client.ContainerCreateOptions{}, fault.New(fault.Invalid, "container port %d is not between 1 and 65535", p.ContainerPort)
		}
		ip, err := netip.ParseAddr(p.HostIP)
		if err != nil || ip.IsUnspecified() {
			return client.ContainerCreateOptions{}, fault.New(fault.Invalid, "port %d of container %s is to be published on %q, which is no single address", p.ContainerPort, s.Name, p.HostIP)
		}
		number := ""
		if p.HostPort != 0 {
			number = strconv.Itoa(p.HostPort)
		}
		exposed[port] = struct{}{}
		bindings[port] = append(bindings[port], network.PortBinding{HostIP: ip, HostPort: number})
	}
	var networking *network.NetworkingConfig
	if s.Network != "" {
		networking = &network.NetworkingConfig{EndpointsConfig: map[string]*network.EndpointSettings{s.Network: {Aliases: s.Aliases}}}
	}
	return client.ContainerCreateOptions{
		Name:             s.Name,
		NetworkingConfig: networking,
		Config: &container.Config{Image: s.Image, Env: env, Labels: labels, ExposedPorts: exposed,
			Entrypoint: append(entry, "--"), Cmd: command},
		HostConfig: &container.HostConfig{PortBindings: bindings, ExtraHosts: s.ExtraHosts, ReadonlyRootfs: s.ReadOnly, Tmpfs: s.Tmpfs,
			NetworkMode: container.NetworkMode(s.Network), Privileged: s.Privileged,
			Mounts:    append([]mount.Mount{m}, s.Mounts...),
			Resources: container.Resources{NanoCPUs: int64(s.CPU * 1e9), Memory: int64(s.MemoryMB) << 20}},
	}, nil
}

func (e *Engine) start(ctx context.Context, id string, s RunSpec) error {
	_, err := e.cli.ContainerStart(ctx, id, client.ContainerStartOptions{})
	if err != nil && strings.Contains(err.Error(), helperPath) { // the volume was emptied since it was verified
		e.markHelper(false)
		if err := e.checkHelper(ctx, id, s.Image); err != nil {
			return err
		}
		_, err = e.cli.ContainerStart(ctx, id, client.ContainerStartOptions{})
	}
	if err == nil {
		return nil
	}
	t := err.Error()
	if strings.Contains(t, "address already in use") || strings.Contains(t, "port is already allocated") {
		return fault.Wrap(fault.Conflict, oneLine(err), "start container %s: a host port is taken", s.Name)
	}
	return wrap(ctx, err, "start container %s", s.Name)
}

// undo removes what was created before err, even when ctx has ended, and adds what could not be removed.
func (e *Engine) undo(ctx context.Context, ref string, err error) error {
	clean, stop := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer stop()
	if gone := e.Remove(clean, ref); gone != nil {
		return fault.Wrap(fault.KindOf(err), gone, "%s; container %s is left behind (remove it with docker rm -f -v)", err, ref)
	}
	return err
}

// Remove ends and removes a container with its anonymous volumes; one that is gone, or being removed by another, is done.
func (e *Engine) Remove(ctx context.Context, ref string) error {
	for {
		_, err := e.cli.ContainerRemove(ctx, ref, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
		switch {
		case err == nil, errdefs.IsNotFound(err):
			return nil
		case strings.Contains(err.Error(), "already in progress"):
			if sleep(ctx, 50*time.Millisecond) == nil {
				continue
			}
		}
		return wrap(ctx, err, "remove container %s", ref)
	}
}

// RemoveVolume removes a volume; one that is gone is done, one in use is a Conflict error.
func (e *Engine) RemoveVolume(ctx context.Context, name string) error {
	_, err := e.cli.VolumeRemove(ctx, name, client.VolumeRemoveOptions{})
	if err == nil || errdefs.IsNotFound(err) {
		return nil
	}
	return wrap(ctx, err, "remove volume %s", name)
}

// Summary is one line of a list of containers or volumes.
type Summary struct {
	ID, Name  string
	Labels    map[string]string
	State     string
	CreatedAt time.Time
}

// List returns all containers, running or not, that carry every given label ("key" or "key=value").
func (e *Engine) List(ctx context.Context, labels ...string) ([]Summary, error) {
	r, err := e.cli.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: make(client.Filters).Add("label", labels...)})
	if err != nil {
		return nil, wrap(ctx, err, "list containers")
	}
	var out []Summary
	for _, c := range r.Items {
		name := ""
		if len(c.Names) > 0 {
			name = strings.TrimPrefix(c.Names[0], "/")
		}
		s := Summary{ID: c.ID, Name: name, Labels: c.Labels, State: string(c.State), CreatedAt: time.Unix(c.Created, 0)}
		if hasLabels(s.Labels, labels) {
			out = append(out, s)
		}
	}
	return out, nil
}

// Volumes returns the volumes that carry every given label.
func (e *Engine) Volumes(ctx context.Context, labels ...string) ([]Summary, error) {
	r, err := e.cli.VolumeList(ctx, client.VolumeListOptions{Filters: make(client.Filters).Add("label", labels...)})
	if err != nil {
		return nil, wrap(ctx, err, "list volumes")
	}
	var out []Summary
	for _, v := range r.Items {
		at, _ := time.Parse(time.RFC3339, v.CreatedAt)
		if hasLabels(v.Labels, labels) {
			out = append(out, Summary{ID: v.Name, Name: v.Name, Labels: v.Labels, State: "present", CreatedAt: at})
		}
	}
	return out, nil
}

func hasLabels(have map[string]string, want []string) bool {
	for _, l := range want {
		k, v, valued := strings.Cut(l, "=")
		got, ok := have[k]
		if !ok || valued && got != v {
			return false
		}
	}
	return true
}

// Bridge returns the gateway address of the default bridge, "" when it reports none or there is no such bridge.
func (e *Engine) Bridge(ctx context.Context) (string, error) {
	r, err := e.cli.NetworkInspect(ctx, "bridge", client.NetworkInspectOptions{})
	if errdefs.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", wrap(ctx, err, "inspect the default bridge")
	}
	for _, c := range r.Network.IPAM.Config {
		if c.Gateway.IsValid() && c.Gateway.Is4() {
			return c.Gateway.String(), nil
		}
	}
	return "", nil
}

// Desktop reports whether the engine is Docker Desktop, whose containers run in a virtual machine.
func (e *Engine) Desktop() bool { return e.desktop }
