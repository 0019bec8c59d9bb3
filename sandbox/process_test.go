package sandbox_test

import (
	"os/exec"
	"testing"
	"time"

	"agentenv/sandbox"
)

func TestAProcessThatEndedAndWasNotWaitedForIsGone(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := sandbox.ThisProcess()
	p.PID, p.Start = cmd.Process.Pid, ""
	if !p.Alive() {
		t.Error("a running process counts as gone")
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(5 * time.Second); p.Alive(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("a killed process that nobody waited for counts as alive")
		}
	}
	_ = cmd.Wait()
	if p.Alive() {
		t.Error("a process that is gone counts as alive")
	}
	if p = sandbox.ThisProcess(); !p.Alive() {
		t.Error("this process counts as gone")
	}
	if p.Start = "1"; p.Alive() {
		t.Error("another process with the number of a gone one counts as that one")
	}
}
