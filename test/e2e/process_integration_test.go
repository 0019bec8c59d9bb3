//go:build integration

package e2e_test

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

// process is a run of the program that goes on while the test looks.
type process struct {
	t    testing.TB
	cmd  *exec.Cmd
	done chan struct{}

	mu  sync.Mutex
	out bytes.Buffer
}

// Write collects what the process prints.
func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.Write(b)
}

func (k *user) start(args ...string) *process {
	k.T.Helper()
	p := &process{t: k.T, cmd: k.command(args...), done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = p, p
	if err := p.cmd.Start(); err != nil {
		k.T.Fatal(err)
	}
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait()
	}()
	return p
}

// text is what the process printed so far.
func (p *process) text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.String()
}

// waitFor waits until the process has printed a text.
func (p *process) waitFor(text string) {
	p.t.Helper()
	deadline := time.After(60 * time.Second)
	for !strings.Contains(p.text(), text) {
		select {
		case <-p.done:
			if strings.Contains(p.text(), text) {
				return
			}
			p.t.Fatalf("the program ended before it printed %q:\n%s", text, p.text())
		case <-deadline:
			p.kill()
			p.t.Fatalf("the program never printed %q:\n%s", text, p.text())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// until waits until something is so.
func (p *process) until(so func() bool) {
	p.t.Helper()
	for deadline := time.Now().Add(60 * time.Second); !so(); time.Sleep(10 * time.Millisecond) {
		select {
		case <-p.done:
			p.t.Fatalf("the program ended too early:\n%s", p.text())
		default:
		}
		if time.Now().After(deadline) {
			p.kill()
			p.t.Fatalf("it never came to that:\n%s", p.text())
		}
	}
}

func (p *process) signal(sig os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		p.t.Errorf("%v: %v\n%s", sig, err, p.text())
	}
}

// wait waits for the end and returns the exit code, -1 for a process that a signal ended.
func (p *process) wait() int {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(90 * time.Second):
		p.kill()
		p.t.Fatalf("the program does not end:\n%s", p.text())
	}
	return p.cmd.ProcessState.ExitCode()
}

// kill ends the process at once; one that has ended is done.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}
