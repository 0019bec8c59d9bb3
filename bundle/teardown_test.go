package bundle_test

import (
	"bytes"
	"context"
	"os"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"agentenv/bundle"
	"agentenv/store/doc"
	"agentenv/task"
)

// slowDown ends nothing before it is let, or stopped.
type slowDown struct {
	*ledgerOfDeployed
	began chan string // the task whose teardown begins
	let   chan struct{}
}

func (d *slowDown) Teardown(ctx context.Context, instance string, c *doc.Object) task.TeardownReport {
	if ctx.Err() == nil {
		d.began <- instance
		select {
		case <-d.let:
			return d.ledgerOfDeployed.Teardown(ctx, instance, c)
		case <-ctx.Done():
		}
	}
	var out task.TeardownReport
	for _, r := range task.Recorded(c) {
		out.Left = append(out.Left, task.SandboxReport{ID: r.ID, Provider: r.Type, Why: "the teardown was stopped"})
	}
	return out
}

// notes is what a run says beside its progress; safe for concurrent use.
type notes struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (n *notes) Write(p []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.b.Write(p)
}

func (n *notes) until(t *testing.T, s string) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		n.mu.Lock()
		there := strings.Contains(n.b.String(), s)
		n.mu.Unlock()
		if there {
			return
		}
	}
	t.Fatalf("it never said %q", s)
}

// TestASignalDuringATeardown lets a finished run's teardown end; a second one stops it, and what is left is named.
func TestASignalDuringATeardown(t *testing.T) {
	t.Parallel()
	for name, second := range map[string]bool{"one": false, "two": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := newKit(t)
			p, _ := k.write(t, k.files(t, "p", map[string]string{"tasks/a.json": "[" + vm + "," + score("1") + "]"}), bundle.Selection{})
			down := &slowDown{k.down, make(chan string, 9), make(chan struct{})}
			signals := make(chan os.Signal, 2)
			var said notes
			o := k.options(bundle.RunOptions{Signals: signals, Progress: bundle.NewLines(&said, &said)})
			o.Teardown = down
			done := make(chan *bundle.Summary)
			go func() { done <- p.Run(t.Context(), o) }()
			<-down.began
			signals <- syscall.SIGTERM
			said.until(t, "Cancelling: tearing down 1 run")
			if second {
				signals <- syscall.SIGINT
			} else {
				close(down.let)
			}
			sum := <-done
			if sum.ExitCode() != 143 || !strings.Contains(sum.Text(), "passed") {
				t.Errorf("exit code %d\n%s", sum.ExitCode(), sum.Text())
			}
			if text := sum.TeardownText(); second != strings.Contains(text, "(the teardown was stopped)") || second != (len(k.down.ended) == 0) {
				t.Errorf("ended %v, it says %s", k.down.ended, text)
			}
		})
	}
}

// TestTwoSignalsLeaveKeptRunsUp: the first tears down what runs, the second stops that; what was kept by then stays up and is named.
func TestTwoSignalsLeaveKeptRunsUp(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	p, _ := k.write(t, k.files(t, "p", map[string]string{"tasks/a.json": "[" + vm + "]", "tasks/b.json": "[" + vm + `,{"id":"w","type":"wait"}]`}), bundle.Selection{})
	down := &slowDown{k.down, make(chan string, 9), make(chan struct{})}
	signals := make(chan os.Signal, 2)
	var said notes
	o := k.options(bundle.RunOptions{Keep: true, Parallel: 2, Signals: signals, Progress: bundle.NewLines(&said, &said)})
	o.Teardown = down
	done := make(chan *bundle.Summary)
	go func() { done <- p.Run(t.Context(), o) }()
	said.until(t, "w (wait)")
	said.until(t, "[tasks/a.json] unscored in ")
	signals <- syscall.SIGINT
	if id := <-down.began; !strings.Contains(id, "/p/b-") {
		t.Errorf("torn down first: %s", id)
	}
	signals <- syscall.SIGINT
	sum := <-done
	if !sum.Hold(func(string) {}) || len(k.down.ended) != 0 || sum.ExitCode() != 130 {
		t.Errorf("ended %v, exit code %d", k.down.ended, sum.ExitCode())
	}
	if text := sum.TeardownText(); !regexp.MustCompile(`^\nStill up, 2 sandboxes:\n(  local-\w+  local  +\(the teardown was stopped\)\n){2}$`).MatchString(text) {
		t.Errorf("it says %q", text)
	}
}
