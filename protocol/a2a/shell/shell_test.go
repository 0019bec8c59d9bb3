package shell_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"agentenv/protocol/a2a/shell"
)

func find(t *testing.T) *shell.Shell {
	t.Helper()
	s := shell.Find(t.TempDir())
	if s == nil {
		t.Fatal("this machine has no shell")
	}
	t.Cleanup(s.Close)
	return s
}

func TestCommands(t *testing.T) {
	t.Parallel()
	s := find(t)
	for command, want := range map[string]string{
		"echo 1": "0 1\n||", "echo a; echo b >&2; exit 3": "3 a\n|b\n|", "cat": "0 ||", "kill -9 $$": "137 ||", "printf '\\377'": "0 \uFFFD||",
	} {
		r := s.Run(t.Context(), command, time.Minute)
		if r.ExitCode == nil {
			t.Fatalf("%s: %+v", command, r)
		}
		if got := fmt.Sprintf("%d %s|%s|", *r.ExitCode, r.Stdout, r.Stderr); got != want {
			t.Errorf("%s: %q", command, got)
		}
	}
	big := s.Run(t.Context(), "head -c 3000000 /dev/zero | tr '\\0' x", time.Minute)
	if len(big.Stdout) > shell.MaxOutput+100 || !strings.HasSuffix(big.Stdout, "dropped]") {
		t.Errorf("%d bytes", len(big.Stdout))
	}
}

// TestWhatIsStopped kills all a command started.
func TestWhatIsStopped(t *testing.T) {
	t.Parallel()
	s := find(t)
	mark := filepath.Join(t.TempDir(), "mark")
	began := time.Now()
	r := s.Run(t.Context(), "echo first; (sleep 2; touch '"+mark+"') & sleep 60", 200*time.Millisecond)
	if r.ExitCode != nil || !r.TimedOut || r.Stdout != "first\n" || time.Since(began) > 30*time.Second {
		t.Errorf("%+v after %s", r, time.Since(began))
	}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(100*time.Millisecond, cancel)
	if r := s.Run(ctx, "sleep 60", time.Minute); r.ExitCode != nil || r.TimedOut {
		t.Errorf("%+v", r)
	}
	time.Sleep(time.Until(began.Add(3 * time.Second)))
	if _, err := os.Stat(mark); err == nil {
		t.Error("something of the command went on")
	}
}

// TestInTheBackground leaves what a command started running, and its output is read.
func TestInTheBackground(t *testing.T) {
	t.Parallel()
	s := find(t)
	mark := filepath.Join(t.TempDir(), "mark")
	began := time.Now()
	r := s.Run(t.Context(), "echo up; (for i in 1 2 3 4 5 6; do head -c 100000 /dev/zero; sleep 0.3; done; touch '"+mark+"') &", time.Minute)
	if r.ExitCode == nil || *r.ExitCode != 0 || !strings.HasPrefix(r.Stdout, "up\n") || time.Since(began) > 20*time.Second {
		t.Errorf("%v after %s", r.ExitCode, time.Since(began))
	}
	for range 600 {
		if _, err := os.Stat(mark); err == nil {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Error("what was left in the background did not get on")
}
