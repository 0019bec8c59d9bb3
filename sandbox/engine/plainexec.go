package engine

import (
	"context"
	"io"
	"strings"
	"time"

	"github.com/moby/moby/api/pkg/stdcopy"
	"github.com/moby/moby/client"

	"agentenv/fault"
	"agentenv/sandbox/place"
)

const (
	askEach   = 50 * time.Millisecond
	lateWords = time.Second // what output may come in after a command's end
)

// plainExec runs a command by the engine alone, where the helper cannot be brought in. It differs from Exec in one thing, and
// says so when it matters: a deadline or cancellation leaves the command running, since the engine cannot end it.
func (c *Container) plainExec(ctx context.Context, cmd place.Cmd) (*place.Result, error) {
	began := time.Now()
	argv, shell := cmd.Argv, ""
	if len(argv) == 0 {
		at, err := c.archiveLook(ctx, []string{"bash", "sh"})
		if err != nil {
			return nil, fault.At(err, "run a command in %s", c)
		}
		shell = at[strings.LastIndexByte(at, '/')+1:]
		argv = []string{at, "-c", cmd.Script}
	} else if _, err := c.archiveLook(ctx, argv[:1]); !strings.Contains(argv[0], "/") && fault.Is(err, fault.NotFound) {
		return nil, fault.At(err, "run a command in %s", c)
	}
	var env []string
	for k, v := range cmd.Env {
		env = append(env, k+"="+v)
	}
	x, err := c.e.cli.ExecCreate(ctx, c.info.ID, client.ExecCreateOptions{User: cmd.User, WorkingDir: cmd.Dir, Env: env, Cmd: argv,
		AttachStdin: cmd.Stdin != nil, AttachStdout: true, AttachStderr: true})
	if err != nil {
		return nil, c.unreachable(ctx, err)
	}
	a, err := c.e.cli.ExecAttach(ctx, x.ID, client.ExecAttachOptions{})
	if err != nil {
		return nil, c.unreachable(ctx, err)
	}
	defer a.Close()
	sinks := place.NewSinks(cmd)
	read := make(chan error, 1)
	go func() {
		_, err := stdcopy.StdCopy(writer(sinks.Out), writer(sinks.Err), a.Reader)
		read <- err
	}()
	if cmd.Stdin != nil {
		go func() { // ends with its reader, or at the first write after the connection was closed
			_, _ = io.Copy(a.Conn, cmd.Stdin)
			_ = a.CloseWrite()
		}()
	}
	code, err := c.plainEnd(ctx, x.ID)
	if err != nil {
		a.Close()
		<-read //nolint:errcheck // the command already failed
		r := sinks.Result()
		r.Duration, r.Shell = time.Since(began), shell
		return r, err
	}
	late := time.AfterFunc(lateWords, a.Close)
	readErr := <-read
	r := sinks.Result()
	r.Duration, r.Shell, r.Code, r.BackgroundLeftOpen = time.Since(began), shell, code, !late.Stop()
	if readErr != nil && !r.BackgroundLeftOpen {
		return r, fault.At(readErr, "take the output of a command in %s", c)
	}
	if said := string(r.Stdout) + string(r.Stderr); (code == 126 || code == 127) && strings.Contains(said, "OCI runtime exec failed") {
		kind := fault.Unavailable
		switch {
		case strings.Contains(said, "no such file or directory"), strings.Contains(said, "not found"):
			kind = fault.NotFound
		case strings.Contains(said, "not a directory"):
			kind = fault.Invalid
		case strings.Contains(said, "permission denied"):
			kind = fault.Denied
		}
		return nil, fault.New(kind, "run a command in %s: %s", c, place.Text([]byte(strings.Join(strings.Fields(said), " "))))
	}
	return r, nil
}

// plainEnd waits for the end of an exec, of which the engine sends no word.
func (c *Container) plainEnd(ctx context.Context, id string) (code int, err error) {
	for {
		if err := sleep(ctx, askEach); err != nil {
			return 0, fault.At(err, "run a command in %s, which has no helper (it is not ours and its root is read-only or full), so the command still runs there", c)
		}
		s, err := c.e.cli.ExecInspect(ctx, id, client.ExecInspectOptions{})
		if err != nil && ctx.Err() == nil {
			return 0, c.unreachable(ctx, err)
		}
		if err == nil && !s.Running {
			return s.ExitCode, nil
		}
	}
}

type writer func([]byte) error

func (w writer) Write(p []byte) (int, error) {
	if err := w(p); err != nil {
		return 0, err
	}
	return len(p), nil
}
