package proc

import (
	"os"
	"os/exec"
	"testing"
	"time"
)

// TestMarkedSince finds a process by its environment when it began after the moment, soon after it and when many numbers were given since,
// and looks at all there are when the moment tells nothing.
func TestMarkedSince(t *testing.T) {
	t.Parallel()
	before := Now()
	cmd := exec.Command("sleep", "60")
	cmd.Env = append(os.Environ(), "AGENTENV_PROC_TEST="+t.Name())
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	entry := "AGENTENV_PROC_TEST=" + t.Name()
	old := before
	old.at = old.at.Add(-time.Hour)
	turned := before
	turned.last = 1 << 30
	for name, m := range map[string]Moment{"soon": before, "long ago": old, "the numbers came round": turned, "nothing known": {}} {
		found := MarkedSince(m, entry)
		if len(found) != 1 || found[0].PID != cmd.Process.Pid {
			t.Errorf("%s: found %v, not %d", name, found, cmd.Process.Pid)
		}
	}
	if before.last == 0 || before.most < 1000 {
		t.Errorf("the moment is %+v", before)
	}
	if after := Now(); after.last >= cmd.Process.Pid {
		if found := MarkedSince(after, entry); after.last > before.last && time.Since(after.at) < 100*time.Millisecond && len(found) != 0 {
			t.Errorf("a process of before the moment was looked at: %v", found)
		}
	}
}
