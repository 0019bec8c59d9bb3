package engine

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"agentenv/fault"
	"agentenv/sandbox/helper/wire"
	"agentenv/sandbox/place"
)

// Container is one container as a place.Place. While it runs, everything goes through the helper inside, which sees what
// its processes see; when it is stopped, files move through the engine's archive API. Safe for concurrent use.
type Container struct {
	e    *Engine
	info container.InspectResponse // as it was found
	name string

	mu     sync.Mutex
	helper string // path of the helper inside; "" = not known yet
	bare   error  // why the helper cannot be brought in; nil = not known
}

var _ place.Place = (*Container)(nil)
var _ place.TarPlacer = (*Container)(nil)

// Container finds a container by id or name, running or not; NotFound when there is none.
func (e *Engine) Container(ctx context.Context, ref string) (*Container, error) {
	r, err := e.cli.ContainerInspect(ctx, ref, client.ContainerInspectOptions{})
	if err != nil {
		if errdefs.IsNotFound(err) && ctx.Err() == nil {
			return nil, fault.New(fault.NotFound, "there is no container %s on the engine", ref)
		}
		return nil, wrap(ctx, err, "inspect container %s", ref)
	}
	c := &Container{e: e, info: r.Container, name: strings.TrimPrefix(r.Container.Name, "/")}
	for _, m := range c.info.Mounts {
		if m.Destination == helperDir && strings.HasPrefix(m.Name, "agentenv-helper-") {
			c.helper = helperPath
		}
	}
	return c, nil
}

// ID returns the engine's id of the container.
func (c *Container) ID() string { return c.info.ID }

// Name returns the container's name.
func (c *Container) Name() string { return c.name }

// Labels returns the labels it was made with.
func (c *Container) Labels() map[string]string {
	return c.info.Config.Labels
}

// Ports returns the addresses that each container port is published on now, as "ip:port", by container port.
func (c *Container) Ports() map[int][]string {
	out := map[int][]string{}
	if c.info.NetworkSettings == nil {
		return out
	}
	for p, list := range c.info.NetworkSettings.Ports {
		for _, b := range list {
			out[int(p.Num())] = append(out[int(p.Num())], b.HostIP.String()+":"+b.HostPort)
		}
	}
	return out
}

// Running reports whether the container ran when it was found.
func (c *Container) Running() bool { return c.info.State != nil && c.info.State.Running }

// String names the container in messages.
func (c *Container) String() string { return "container " + c.name }

// Restore returns text as it is: a container keeps paths as they were written.
func (c *Container) Restore(text string) string { return text }

// Ended tells how the image's own command fares: whether it still runs, and its exit code when not. The helper must be
// process 1.
func (c *Container) Ended(ctx context.Context) (running bool, code int, err error) {
	if err := c.gone(ctx); err != nil {
		return false, 0, err
	}
	t, err := c.talk(ctx, "", "/", wire.Request{Mode: wire.ModeStatus})
	if err != nil {
		return false, 0, err
	}
	defer t.close()
	_, b, err := t.next(wire.Exit)
	if err != nil {
		return false, 0, t.explain(ctx, err, "ask how the command of %s fares", c)
	}
	var s wire.ExitStatus
	err = json.Unmarshal(b, &s)
	return s.Running, s.Code, err
}

// gone returns an error when the container is not there or does not run.
func (c *Container) gone(ctx context.Context) error {
	now, err := c.e.Container(ctx, c.info.ID)
	if fault.Is(err, fault.NotFound) {
		return fault.New(fault.Unavailable, "%s is gone from the engine", c)
	}
	if err != nil {
		return err
	}
	s := now.info.State
	switch {
	case s == nil:
		return nil
	case s.Paused:
		return fault.New(fault.Unavailable, "%s is paused; docker unpause %s", c, c.name)
	case s.Restarting:
		return fault.New(fault.Unavailable, "%s is restarting", c)
	case !s.Running:
		return fault.Wrap(fault.Unavailable, errStopped, "%s is not running (%s, exit code %d)", c, s.Status, s.ExitCode)
	}
	return nil
}

type stopped struct{}

func (stopped) Error() string { return "only its files can be reached" }

var errStopped error = stopped{}

// noHelper is why the helper cannot be brought into a running container.
type noHelper struct{ error }

// withoutHelper reports whether only the engine's own means reach the container.
func withoutHelper(err error) bool {
	var none *noHelper
	return errors.Is(err, errStopped) || errors.As(err, &none)
}

// prepare returns the path of the helper inside, bringing it in where the container was made by somebody else.
func (c *Container) prepare(ctx context.Context) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.helper != "" || c.bare != nil {
		return c.helper, c.bare
	}
	program, digest, err := c.e.binary()
	if err != nil {
		return "", err
	}
	dir := ".agentenv-" + digest[:12]
	at := "/" + dir + "/" + helperName
	if !c.e.helperAt(ctx, c.info.ID, at, len(program)) {
		if err := c.e.putHelper(ctx, c.info.ID, "/", dir+"/"+helperName, program); err != nil {
			if gone := c.gone(ctx); gone != nil {
				return "", gone
			}
			c.bare = fault.Wrap(fault.Unsupported, &noHelper{err}, "%s was not made by agent-env and its helper cannot be put in", c)
			return "", c.bare
		}
	}
	c.helper = at
	return at, nil
}

// talk is one conversation with the helper.
type talk struct {
	conn client.HijackedResponse
	in   *wire.Reader
	out  *wire.Writer
	mux  *demux
	c    *Container
	id   string
	stop func() bool
}

// talk starts the helper in the container as user, in dir, with a request. The conversation breaks when ctx ends.
func (c *Container) talk(ctx context.Context, user, dir string, q wire.Request) (*talk, error) {
	program, err := c.prepare(ctx)
	if err != nil {
		return nil, err
	}
	r, err := c.e.cli.ExecCreate(ctx, c.info.ID, client.ExecCreateOptions{User: user, WorkingDir: dir,
		AttachStdin: true, AttachStdout: true, AttachStderr: true, Cmd: []string{program, "serve"}})
	if err != nil {
		return nil, c.unreachable(ctx, err)
	}
	a, err := c.e.cli.ExecAttach(ctx, r.ID, client.ExecAttachOptions{})
	if err != nil {
		return nil, c.unreachable(ctx, err)
	}
	m := &demux{r: a.Reader}
	t := &talk{conn: a.HijackedResponse, in: wire.NewReader(m), out: wire.NewWriter(a.Conn), mux: m, c: c, id: r.ID}
	t.stop = context.AfterFunc(ctx, func() { a.Conn.Close() })
	if err := t.out.SendJSON(wire.Ask, q); err != nil {
		t.close()
		return nil, t.explain(ctx, err, "ask the helper in %s", c)
	}
	return t, nil
}

func (c *Container) unreachable(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		if e := c.gone(ctx); e != nil {
			return e
		}
	}
	return wrap(ctx, err, "reach into %s", c)
}

func (t *talk) close() {
	t.stop()
	t.conn.Close()
}

// next returns the next frame, which must be of type want; a Failed frame becomes its error.
func (t *talk) next(want wire.Type) (wire.Type, []byte, error) {
	got, b, err := t.in.Next()
	switch {
	case err != nil:
		return 0, nil, err
	case got == wire.Failed:
		return got, nil, fromWire(wire.ParseFailure(b))
	case want != 0 && got != want:
		return got, nil, fault.New(fault.Internal, "the helper sent %q where %q was due", byte(got), byte(want))
	}
	return got, b, nil
}

// explain says what broke a conversation.
func (t *talk) explain(ctx context.Context, err error, format string, args ...any) error {
	if ctx.Err() != nil {
		return fault.At(context.Cause(ctx), format, args...)
	}
	if fault.KindOf(err) != fault.Internal {
		return fault.At(err, format, args...)
	}
	if said := strings.Join(strings.Fields(string(t.mux.said())), " "); said != "" {
		kind := fault.Unavailable
		switch {
		case strings.Contains(said, "chdir to cwd") || strings.Contains(said, "cwd"):
			kind = fault.NotFound
		case strings.Contains(said, "unable to find user") || strings.Contains(said, "no matching entries in passwd"):
			kind = fault.Invalid
		}
		return fault.New(kind, "%s: %s", fmt.Sprintf(format, args...), strings.ToValidUTF8(said, "\uFFFD"))
	}
	if e := t.c.gone(ctx); e != nil {
		return fault.At(e, format, args...)
	}
	return fault.Wrap(fault.Unavailable, err, "%s: the connection broke", fmt.Sprintf(format, args...))
}

func fromWire(err error) error {
	var f *wire.Failure
	if errors.As(err, &f) {
		return fault.New(fault.Kind(f.Kind), "%s", f.Msg)
	}
	return err
}

// demux reads what a command writes to its standard output out of the engine's stream, and keeps the beginning of that and
// of its standard error, where the engine puts its own errors.
type demux struct {
	r     *bufio.Reader
	left  int
	isErr bool
	mu    sync.Mutex
	text  bytes.Buffer
	heard bool // a frame has come: what follows on standard output is no text
}

const maxSaid = 2048

func (d *demux) Read(p []byte) (int, error) {
	for {
		if d.left == 0 {
			var head [8]byte
			if _, err := io.ReadFull(d.r, head[:]); err != nil {
				if err == io.ErrUnexpectedEOF {
					err = io.EOF
				}
				return 0, err
			}
			d.isErr, d.left = head[0] == 2, int(binary.BigEndian.Uint32(head[4:]))
			continue
		}
		if len(p) > d.left {
			p = p[:d.left]
		}
		n, err := d.r.Read(p)
		d.left -= n
		if n > 0 && (d.isErr || !d.heard) {
			d.keep(p[:n])
		}
		if !d.isErr {
			d.heard = true
			return n, err
		}
		if err != nil {
			return 0, err
		}
	}
}

func (d *demux) keep(p []byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if room := maxSaid - d.text.Len(); room > 0 {
		d.text.Write(p[:min(room, len(p))])
	}
}

// said returns what the engine or the helper said in plain words, nothing when all that came were frames.
func (d *demux) said() []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	b := d.text.Bytes()
	for _, c := range b {
		if c < ' ' && c != '\n' && c != '\r' && c != '\t' {
			return nil
		}
	}
	return b
}
