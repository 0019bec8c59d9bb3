package cli

import (
	"bytes"
	"testing"
)

func TestOutcomesAreColouredOnATerminalOnly(t *testing.T) {
	const text = "[tasks/a.json] passed in 1.0s\n[tasks/a.json] step 1/2 failed (deploy_sandbox)\n\nTasks:\n  tasks/a.json v1: passed (a: 1), 0.1s\n" +
		"  tasks/b.json v2: failed at step 'x': RuntimeError: y\n  tasks/c.json v1: scored below 1 (v: 0), 1.0s\n" +
		"Run RUNNING\nRun COMPLETED\n[run 2] Run FAILED: E: y\n[seed 1: x] Run CANCELED\n  [t] PASSED score=1\n  [t run 2] FAILED: E\n"
	const want = "[tasks/a.json] \x1b[32mpassed\x1b[0m in 1.0s\n[tasks/a.json] step 1/2 failed (deploy_sandbox)\n\nTasks:\n  tasks/a.json v1: \x1b[32mpassed\x1b[0m (a: 1), 0.1s\n" +
		"  tasks/b.json v2: \x1b[31mfailed\x1b[0m at step 'x': RuntimeError: y\n  tasks/c.json v1: \x1b[33mscored below 1\x1b[0m (v: 0), 1.0s\n" +
		"Run RUNNING\nRun \x1b[32mCOMPLETED\x1b[0m\n[run 2] Run \x1b[31mFAILED\x1b[0m: E: y\n[seed 1: x] Run \x1b[33mCANCELED\x1b[0m\n  [t] \x1b[32mPASSED\x1b[0m score=1\n" +
		"  [t run 2] \x1b[31mFAILED\x1b[0m: E\n"
	env := map[string]string{}
	a := &App{StdoutTerminal: true, Env: func(k string) string { return env[k] }}
	var out bytes.Buffer
	if n, err := a.coloured(&out).Write([]byte(text)); n != len(text) || err != nil || out.String() != want {
		t.Errorf("wrote %d, %v:\n%q", n, err, out.String())
	}
	env["NO_COLOR"] = "1"
	out.Reset()
	a.coloured(&out).Write([]byte(text))
	if out.String() != text {
		t.Errorf("with NO_COLOR: %q", out.String())
	}
	a.StdoutTerminal, env["NO_COLOR"] = false, ""
	out.Reset()
	a.coloured(&out).Write([]byte(text))
	if out.String() != text {
		t.Errorf("without a terminal: %q", out.String())
	}
}
