package engine

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"time"

	"agentenv/fault"
	"agentenv/sandbox/helper/wire"
	"agentenv/sandbox/place"
)

const (
	defaultGrace = 2 * time.Second
	killPatience = 8 * time.Second // what the helper gets beyond the grace to end a tree and say so
	stdinChunk   = 64 << 10
)

// Exec runs a command in the container; see place.Place. The reader of c.Stdin is not read any more after the command
// ended, except for a call that is under way.
func (c *Container) Exec(ctx context.Context, cmd place.Cmd) (*place.Result, error) {
	began := time.Now()
	if err := place.CheckCmd(cmd); err != nil {
		return nil, err
	}
	q := wire.Request{Mode: wire.ModeExec, Mark: rand.Text(), Script: []byte(cmd.Script), Env: map[string][]byte{}}
	for _, a := range cmd.Argv {
		q.Argv = append(q.Argv, []byte(a))
	}
	for k, v := range cmd.Env {
		q.Env[k] = []byte(v)
	}
	limited, stop := ctx, context.CancelFunc(func() {})
	if cmd.Timeout > 0 {
		limited, stop = context.WithTimeoutCause(ctx, cmd.Timeout, fault.New(fault.Timeout, "it took longer than %s", cmd.Timeout))
	}
	defer stop()
	if limited.Err() != nil {
		return nil, fault.At(context.Cause(limited), "run a command in %s", c)
	}
	// The conversation outlives ctx, so that the tree can be ended through it.
	life, hangUp := context.WithCancel(context.WithoutCancel(ctx))
	defer hangUp()
	t, err := c.talk(life, cmd.User, cmd.Dir, q)
	var none *noHelper
	if errors.As(err, &none) {
		return c.plainExec(limited, cmd)
	}
	if err != nil {
		return nil, err
	}
	defer t.close()

	r := &run{c: c, t: t, q: q, grace: cmd.Grace, hangUp: hangUp}
	if r.grace <= 0 {
		r.grace = defaultGrace
	}
	done := make(chan struct{})
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		r.watch(limited, done)
	}()
	go feed(t.out, cmd.Stdin)
	sinks := place.NewSinks(cmd)
	status, err := r.collect(life, sinks)
	close(done)
	<-watched
	res := sinks.Result()
	res.Duration, res.Shell = time.Since(began), r.start.Shell
	if status != nil {
		res.Code, res.BackgroundLeftOpen = status.Code, status.Background
	}
	if limited.Err() != nil && (r.killed || status == nil) {
		if status == nil || status.Left > 0 || r.stuck {
			if left := r.force(ctx); left != nil {
				return res, fault.Wrap(fault.KindOf(context.Cause(limited)), left, "run a command in %s: %s; not everything it started could be ended", c, context.Cause(limited))
			}
		}
		return res, fault.At(context.Cause(limited), "run a command in %s", c)
	}
	if err != nil {
		if r.start.PID != 0 { // it began, and nobody watches it any more
			_ = r.force(ctx)
		}
		return res, err
	}
	return res, nil
}

// run is one command under way.
type run struct {
	c      *Container
	t      *talk
	q      wire.Request
	grace  time.Duration
	hangUp func()
	start  wire.Start
	killed bool
	stuck  bool
}

// watch ends the command when ctx ends before done closes.
func (r *run) watch(ctx context.Context, done <-chan struct{}) {
	select {
	case <-done:
		return
	case <-ctx.Done():
	}
	r.killed = true
	sent := make(chan struct{})
	go func() { // blocks where the command does not read its input; ends when the connection is closed
		defer close(sent)
		_ = r.t.out.SendJSON(wire.Kill, wire.KillRequest{Grace: r.grace})
	}()
	timer := time.NewTimer(r.grace + killPatience)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
		r.stuck = true
		r.hangUp()
	}
	r.t.conn.Close()
	<-sent
}

func feed(out *wire.Writer, in io.Reader) {
	if in != nil {
		buf := make([]byte, stdinChunk)
		for {
			n, err := in.Read(buf)
			if n > 0 && out.Send(wire.Data, buf[:n]) != nil {
				return
			}
			if err != nil {
				break
			}
		}
	}
	_ = out.Send(wire.End, nil)
}

// collect takes the output until the command ended. The status is nil when no word of its end came.
func (r *run) collect(ctx context.Context, sinks *place.Sinks) (*wire.ExitStatus, error) {
	_, b, err := r.t.next(wire.Begun)
	if err != nil {
		return nil, r.t.explain(ctx, err, "run a command in %s", r.c)
	}
	if err := json.Unmarshal(b, &r.start); err != nil {
		return nil, err
	}
	for {
		t, b, err := r.t.next(0)
		if err != nil {
			return nil, r.t.explain(ctx, err, "run a command in %s", r.c)
		}
		switch t {
		case wire.Out:
			err = sinks.Out(b)
		case wire.Err:
			err = sinks.Err(b)
		case wire.Exit:
			var s wire.ExitStatus
			err := json.Unmarshal(b, &s)
			return &s, err
		}
		if err != nil {
			return nil, fault.At(err, "take the output of a command in %s", r.c)
		}
	}
}

// force ends, as uid 0, what the command's own user could not, or what nobody answers for any more.
func (r *run) force(ctx context.Context) error {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), killPatience+defaultGrace)
	defer stop()
	t, err := r.c.talk(ctx, place.Root, "/", wire.Request{Mode: wire.ModeKill, Mark: r.q.Mark, PID: r.start.PID})
	if err != nil {
		if fault.Is(r.c.gone(ctx), fault.Unavailable) { // with the container everything in it has ended
			return nil
		}
		return err
	}
	defer t.close()
	_, b, err := t.next(wire.Exit)
	if err != nil {
		return t.explain(ctx, err, "end a command in %s", r.c)
	}
	var s wire.ExitStatus
	if err := json.Unmarshal(b, &s); err != nil {
		return err
	}
	if s.Left > 0 {
		return fault.New(fault.Unavailable, "%d processes in %s do not end", s.Left, r.c)
	}
	return nil
}
