//go:build integration

package e2e_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// terminal is a run of the program whose standard streams are a terminal.
type terminal struct {
	*process
	screen *os.File
}

// startOnTerminal starts the program on a terminal of 80 columns.
func (k *user) startOnTerminal(args ...string) *terminal {
	k.T.Helper()
	screen, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		k.T.Fatal(err)
	}
	raw, err := screen.SyscallConn() // Fd would make the file block, and so its Close
	if err != nil {
		k.T.Fatal(err)
	}
	n := 0
	var bad error
	err = raw.Control(func(fd uintptr) {
		if n, bad = unix.IoctlGetInt(int(fd), unix.TIOCGPTN); bad == nil {
			bad = unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0)
		}
		if bad == nil {
			bad = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 80})
		}
	})
	if err := errors.Join(err, bad); err != nil {
		k.T.Fatal(err)
	}
	tty, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		k.T.Fatal(err)
	}
	defer tty.Close()
	p := &process{t: k.T, cmd: k.command(args...), done: make(chan struct{})}
	p.cmd.Env = append(p.cmd.Env, "TERM=xterm")
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = tty, tty, tty
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := p.cmd.Start(); err != nil {
		k.T.Fatal(err)
	}
	go func() {
		b := make([]byte, 4096)
		for {
			n, err := screen.Read(b)
			_, _ = p.Write(b[:n])
			if err != nil {
				return
			}
		}
	}()
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait()
	}()
	return &terminal{p, screen}
}

// TestTerminal shows the steps on a terminal as they begin and end, and live lines below them.
func TestTerminal(t *testing.T) {
	t.Parallel()
	k := newUser(t)
	p := k.startOnTerminal("run", k.bundle("shown", steps{host("box"), verify("wait", "box", "/app", sh("sleep 1"))}, nil))
	t.Cleanup(p.kill)
	defer p.screen.Close()
	if code := p.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	text := p.text()
	for _, want := range []string{"[tasks/t.json] step 1/2 box (deploy_sandbox)", "[tasks/t.json] step 1/2 box done in ", "step 2/2 wait  ", "] passed in ", "Tore down 1 sandbox."} {
		if !strings.Contains(strings.ReplaceAll(text, "\x1b[32mpassed\x1b[0m", "passed"), want) {
			t.Errorf("the terminal does not show %q:\n%q", want, text)
		}
	}
}

// TestClosedTerminal closes the terminal of a run: it is recorded as cancelled, nothing is left, and the exit code is that of the signal.
func TestClosedTerminal(t *testing.T) {
	t.Parallel()
	k := newUser(t)
	p := k.startOnTerminal("run", k.bundle("closed", steps{host("box"), verify("wait", "box", "/app", sh("sleep 60"))}, nil))
	t.Cleanup(p.kill)
	p.waitFor("wait (verify_sandbox)")
	time.Sleep(300 * time.Millisecond)
	if err := p.screen.Close(); err != nil {
		t.Fatal(err)
	}
	if code := p.wait(); code != 129 {
		t.Errorf("exit code %d", code)
	}
	if got := k.Select(`SELECT json_extract(doc, '$.status') || ', ' || json_extract(doc, '$.error') FROM docs_task_instances`); len(got) != 1 || got[0] != "cancelled, cancelled by SIGHUP" {
		t.Errorf("recorded as %q", got)
	}
	if left := k.leftovers(); left != "" {
		t.Errorf("left behind: %s", left)
	}
}
