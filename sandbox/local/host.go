package local

import (
	"context"
	"errors"
	"io"
	"iter"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"crypto/rand"

	"agentenv/fault"
	"agentenv/sandbox/helper/tree"
	"agentenv/sandbox/helper/wire"
	"agentenv/sandbox/place"
	"agentenv/store"
)

// host is this machine as a place: the work folder behind /app, everything else as it is. It acts as this process's user,
// also where root is asked for.
type host struct {
	id, dir string
	cgroups *cgroups
	guards  *guards
}

var _ place.Place = (*host)(nil)
var _ place.TarPlacer = (*host)(nil)

const (
	markName     = "AGENTENV_SANDBOX"
	defaultGrace = 2 * time.Second
	killPatience = 5 * time.Second
)

func (h *host) String() string { return "host of " + h.id }

func (h *host) Restore(text string) string { return restore(text, h.dir) }

func (h *host) at(p string) (string, error) {
	if err := place.CheckPath(p); err != nil {
		return "", err
	}
	return mapArg(path.Clean(p), h.dir), nil
}

// Exec runs a command in a session of its own; see place.Place.
func (h *host) Exec(ctx context.Context, c place.Cmd) (*place.Result, error) {
	if err := place.CheckCmd(c); err != nil {
		return nil, err
	}
	argv, shell := mapArgv(withoutSudo(c.Argv), h.dir), ""
	if len(c.Argv) == 0 {
		var err error
		if shell, err = place.Shell(ctx, h); err != nil {
			return nil, err
		}
		argv = mapArgv([]string{shell, "-c", c.Script}, h.dir)
	}
	if len(argv) == 0 {
		return nil, fault.New(fault.Invalid, "there is no command behind sudo")
	}
	limited, stop := ctx, context.CancelFunc(func() {})
	if c.Timeout > 0 {
		limited, stop = context.WithTimeoutCause(ctx, c.Timeout, fault.New(fault.Timeout, "it took longer than %s", c.Timeout))
	}
	defer stop()
	if limited.Err() != nil {
		return nil, fault.At(context.Cause(limited), "run a command on the %s", h)
	}
	mark := rand.Text()
	cmd := &exec.Cmd{Args: argv, Env: append(os.Environ(), markName+"="+h.id, wire.MarkName+"="+mark), SysProcAttr: &syscall.SysProcAttr{Setsid: true}}
	for k, v := range c.Env {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	var err error
	if cmd.Path, err = lookIn(argv[0], cmd.Environ()); err != nil {
		return nil, fault.At(err, "the %s", h)
	}
	if c.Dir != "" {
		cmd.Dir = mapArg(c.Dir, h.dir)
		if fi, err := os.Stat(cmd.Dir); err != nil || !fi.IsDir() {
			return nil, fault.New(fault.NotFound, "run a command on the %s: the working folder %s does not exist", h, c.Dir)
		}
	}
	return h.run(limited, cmd, c, mark, shell)
}

func (h *host) run(ctx context.Context, cmd *exec.Cmd, c place.Cmd, mark, shell string) (*place.Result, error) {
	began := time.Now()
	sinks := place.NewSinks(c)
	o, err := newOutputs(cmd, c.Stdin)
	if err != nil {
		return nil, fault.Wrap(fault.Unavailable, err, "run a command on the %s", h)
	}
	defer o.close()
	p, err := h.begin(cmd, mark)
	if err != nil {
		return nil, h.notStarted(err)
	}
	o.started(c.Stdin, sinks)
	type end struct {
		code, left int
		err        error
	}
	ended := make(chan end, 1)
	go func() {
		code, left, err := p.wait()
		ended <- end{code, left, err}
	}()
	var last end
	killed := false
	select {
	case last = <-ended:
	case <-ctx.Done():
		killed = true
	case <-o.broken: // nobody takes the output
		killed = true
	}
	if killed {
		grace := c.Grace
		if grace <= 0 {
			grace = defaultGrace
		}
		left := p.end(grace)
		last = <-ended
		last.left += left
	}
	open, outErr := o.finish()
	r := sinks.Result()
	r.Duration, r.Shell, r.BackgroundLeftOpen, r.Code = time.Since(began), shell, open, last.code
	switch {
	case last.left > 0:
		return r, fault.New(fault.Unavailable, "run a command on the %s: %d processes of it do not end", h, last.left)
	case last.err != nil && !killed:
		return r, fault.Wrap(fault.Unavailable, last.err, "run a command on the %s", h)
	case killed && ctx.Err() != nil:
		return r, fault.At(context.Cause(ctx), "run a command on the %s", h)
	case outErr != nil:
		return r, fault.At(outErr, "take the output of a command on the %s", h)
	}
	return r, nil
}

// begin starts cmd in a cgroup of its own, else below a guard where this machine can have one.
func (h *host) begin(cmd *exec.Cmd, mark string) (process, error) {
	if p, err := h.cgroups.start(h.id, cmd, mark); err == nil {
		return p, nil
	}
	if h.guards.ready() {
		g, err := newGuarded(h.guards, cmd, mark)
		if err == nil {
			err = g.start()
		}
		var none errNoGuard
		if !errors.As(err, &none) {
			return g, err
		}
	}
	d := &direct{cmd: cmd, mark: mark}
	return d, d.start()
}

func lookIn(name string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		fi, err := os.Stat(name)
		if err == nil && (fi.IsDir() || fi.Mode()&0o111 == 0) {
			return "", fault.New(fault.Denied, "cannot run %s: permission denied", name)
		}
		if err != nil {
			return "", fault.New(fault.NotFound, "cannot run %s: no such file or directory", name)
		}
		return name, nil
	}
	search := ""
	for _, kv := range env {
		if v, ok := strings.CutPrefix(kv, "PATH="); ok {
			search = v
		}
	}
	for _, d := range filepath.SplitList(search) {
		p := filepath.Join(d, name)
		if fi, err := os.Stat(p); d != "" && err == nil && !fi.IsDir() && fi.Mode()&0o111 != 0 {
			return p, nil
		}
	}
	return "", fault.New(fault.NotFound, "there is no program %s on PATH", name)
}

func (h *host) LookPath(_ context.Context, names ...string) (string, error) {
	for _, n := range names {
		if p, err := lookIn(n, os.Environ()); err == nil {
			return p, nil
		}
	}
	return "", fault.New(fault.NotFound, "there is no %s on PATH of the %s", strings.Join(names, " and no "), h)
}

func (h *host) PutTar(ctx context.Context, dir string, r io.Reader) error {
	_, err := h.PutTarPlaced(ctx, dir, r)
	return err
}

func (h *host) PutTarPlaced(ctx context.Context, dir string, r io.Reader) ([]place.Placed, error) {
	at, err := h.at(dir)
	if err != nil {
		return nil, err
	}
	files, err := tree.Unpack(at, store.ReaderUntil(ctx, r))
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		} else if fault.KindOf(err) == fault.Internal {
			err = fault.Wrap(fault.Kind(wire.KindOf(err)), err, "on the %s", h)
		}
		return nil, err
	}
	var out []place.Placed
	for _, e := range files {
		out = append(out, place.Placed{Name: e.Name, Size: e.Size, SHA256: e.SHA256})
	}
	return out, nil
}

func (h *host) Stat(ctx context.Context, p string, follow bool) (place.Entry, error) {
	at, err := h.at(p)
	if err != nil {
		return place.Entry{}, err
	}
	var found place.Entry
	err = tree.Walk([]string{at}, tree.Options{Follow: follow}, func(e wire.Entry, _ func() (*tree.Body, error)) error {
		found = place.FromWire(e)
		return ctx.Err()
	})
	if err == nil && found.Err != nil {
		err = fault.At(found.Err, "%s on the %s", p, h)
	}
	return found, err
}

var errStop = errors.New("stop")

func (h *host) Walk(ctx context.Context, root string, hash bool) iter.Seq2[place.Entry, error] {
	return func(yield func(place.Entry, error) bool) {
		at, err := h.at(root)
		if err != nil {
			yield(place.Entry{}, err)
			return
		}
		err = tree.Walk([]string{at}, tree.Options{Follow: true, Recurse: true, Hash: hash}, func(w wire.Entry, _ func() (*tree.Body, error)) error {
			e := place.FromWire(w)
			switch {
			case ctx.Err() != nil:
				return fault.At(context.Cause(ctx), "list %s on the %s", root, h)
			case e.Name == "" && e.Err != nil:
				return fault.At(e.Err, "%s on the %s", root, h)
			case e.Name == "" && e.Kind != place.Dir:
				return fault.New(fault.Invalid, "%s on the %s is no folder", root, h)
			case e.Name != "" && !yield(e, nil):
				return errStop
			}
			return nil
		})
		if err != nil && !errors.Is(err, errStop) {
			yield(place.Entry{}, err)
		}
	}
}

func (h *host) Get(ctx context.Context, req place.GetRequest) (place.Tree, error) {
	roots := make([]string, len(req.Roots))
	for i, r := range req.Roots {
		at, err := h.at(r)
		if err != nil {
			return nil, err
		}
		roots[i] = at
	}
	return newReader(ctx, h, roots, req), nil
}
