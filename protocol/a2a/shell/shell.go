// Package shell runs the command lines of an agent's model on the machine the agent lives on.
package shell

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// MaxOutput is how many bytes of each stream are kept.
	MaxOutput = 1 << 20
	// settle is how long output is waited for once the shell has ended.
	settle = time.Second
	// cannotRun is the exit code where no shell can be started.
	cannotRun = 126
)

// Result is how a command ended.
type Result struct {
	ExitCode       *int // nil when it was stopped
	Stdout, Stderr string
	TimedOut       bool
}

// Shell runs commands with bash, else sh. Safe for concurrent use.
type Shell struct {
	path string
	dir  string

	draining sync.WaitGroup
	mu       sync.Mutex
	pipes    map[*os.File]bool
	closed   bool
}

// Find returns the shell of this machine, nil when it has none. dir is the folder commands run in, "" = the current one.
func Find(dir string) *Shell {
	for _, name := range []string{"bash", "sh"} {
		if path, err := exec.LookPath(name); err == nil {
			return &Shell{path: path, dir: dir, pipes: map[*os.File]bool{}}
		}
	}
	return nil
}

// Name returns "bash" or "sh".
func (s *Shell) Name() string { return s.path[strings.LastIndexByte(s.path, '/')+1:] }

// Run runs a command line in a process group of its own, its input empty, and returns when its shell has ended and at most a second after:
// what it left in the background lives on, its output unread. At the limit, and when ctx ends, the group is killed. Output beyond MaxOutput
// bytes is dropped, with a note.
func (s *Shell) Run(ctx context.Context, command string, limit time.Duration) Result {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	cmd := exec.Command(s.path, "-c", command) //nolint:gosec,noctx // running what the model says is what this is for; the end of ctx kills the whole group
	cmd.Dir = s.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err1 := s.open()
	errs, err2 := s.open()
	if err := errors.Join(err1, err2); err != nil {
		return failed(err)
	}
	cmd.Stdout, cmd.Stderr = out.w, errs.w
	err := cmd.Start()
	out.w.Close()
	errs.w.Close()
	s.drain(out)
	s.drain(errs)
	if err != nil {
		return failed(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // how it ended is in its state
		close(ended)
	}()
	stopped := false
	select {
	case <-ended:
	case <-ctx.Done():
		stopped = true
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		<-ended
	}
	patience := time.After(settle)
	for _, st := range []*stream{out, errs} {
		select {
		case <-st.end:
		case <-patience:
			patience = time.After(0)
		}
	}
	r := Result{Stdout: out.text(), Stderr: errs.text()}
	if stopped {
		r.TimedOut = errors.Is(ctx.Err(), context.DeadlineExceeded)
		return r
	}
	code := cmd.ProcessState.ExitCode()
	if w, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		code = 128 + int(w.Signal())
	}
	r.ExitCode = &code
	return r
}

func failed(err error) Result {
	code := cannotRun
	return Result{ExitCode: &code, Stderr: err.Error()}
}

// Close stops reading what background processes still write, and waits for its readers; a second call is a no-op.
func (s *Shell) Close() {
	s.mu.Lock()
	s.closed = true
	for f := range s.pipes {
		f.Close()
	}
	s.mu.Unlock()
	s.draining.Wait()
}

// stream is one output of a command.
type stream struct {
	r, w *os.File
	end  chan struct{}

	mu      sync.Mutex
	kept    bytes.Buffer
	dropped int64
}

func (s *Shell) open() (*stream, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	return &stream{r: r, w: w, end: make(chan struct{})}, nil
}

// drain reads a stream to its end, so that nobody who writes to it is held up.
func (s *Shell) drain(st *stream) {
	s.mu.Lock()
	if s.closed {
		st.r.Close()
	}
	s.pipes[st.r] = true
	s.mu.Unlock()
	s.draining.Go(func() {
		_, _ = io.Copy(st, st.r)
		close(st.end)
		s.mu.Lock()
		delete(s.pipes, st.r)
		s.mu.Unlock()
		st.r.Close()
	})
}

func (st *stream) Write(p []byte) (int, error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	n := min(len(p), MaxOutput-st.kept.Len())
	st.kept.Write(p[:n])
	st.dropped += int64(len(p) - n)
	return len(p), nil
}

func (st *stream) text() string {
	st.mu.Lock()
	defer st.mu.Unlock()
	text := strings.ToValidUTF8(st.kept.String(), "\uFFFD")
	if st.dropped > 0 {
		text += "\n[the rest of the output was dropped]"
	}
	return text
}
