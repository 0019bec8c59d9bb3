//go:build integration

package e2e_test

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"agentenv/test/kit"
)

// stubborn is a shell line whose processes ignore SIGTERM, one of them in a session of its own, and write for ever.
const stubborn = `trap '' TERM HUP INT; setsid sh -c 'trap "" TERM HUP INT; while :; do echo x >>FILE; sleep 0.05; done' & while :; do echo y >>FILE; sleep 0.05; done`

// still is a shell line that succeeds when something wrote to the file and nothing does any more.
const still = `a=$(wc -c <FILE); sleep 1; test "$a" -gt 0 && test "$a" = "$(wc -c <FILE)"`

func at(line, file string) string { return strings.ReplaceAll(line, "FILE", file) }

// deadlineTargets are the places in which a deadline must end everything, with a folder that the place's own user can write to.
func deadlineTargets(t testing.TB) map[string]struct {
	deploy map[string]any
	folder string
} {
	out := map[string]struct {
		deploy map[string]any
		folder string
	}{"vm": {host("box"), "/app"}}
	for name, image := range map[string]string{"debian": debian(t), "busybox": busybox(t)} {
		for _, provider := range providers {
			b := box(image)
			b["sandbox_type"] = provider
			out[name+" "+provider] = struct {
				deploy map[string]any
				folder string
			}{b, "/tmp"}
		}
	}
	return out
}

// TestProbeDeadline ends a shell probe with everything it started; nothing of it writes afterwards.
func TestProbeDeadline(t *testing.T) {
	for name, c := range deadlineTargets(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := newUser(t)
			file := c.folder + "/w"
			slow := verify("slow", "box", c.folder, sh(at(stubborn, file)))
			slow["shell_timeout_seconds"] = 1
			dir := k.bundle("late", steps{c.deploy, slow, verify("quiet", "box", c.folder, sh(at(still, file)))}, nil)
			s, r := k.summed(dir)
			record := k.instance(s.Tasks[0].Instance)
			rows := record.at("context", "metadata", "verifications")
			if r.Code != 0 || rows.str("slow", "results", 0, "justification") != "timed out after 1s" || rows.at("quiet", "score").v != 1.0 {
				t.Errorf("%s\n%s", rows, r)
			}
			if left := k.leftovers(); left != "" {
				t.Errorf("left behind: %s", left)
			}
		})
	}
}

// TestStepDeadline ends a step by its own limit.
func TestStepDeadline(t *testing.T) {
	for name, c := range deadlineTargets(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := newUser(t)
			file := c.folder + "/w"
			slow := verify("slow", "box", c.folder, sh(at(stubborn, file)))
			slow["step_timeout_seconds"] = 1
			slow["fail_task_on_error"] = false
			dir := k.bundle("late", steps{c.deploy, slow, verify("quiet", "box", c.folder, sh(at(still, file)))}, nil)
			s, r := k.summed(dir)
			record := k.instance(s.Tasks[0].Instance)
			failed := record.at("context", "metadata", "failed_steps", 0)
			if failed.str("step_id") != "slow" || failed.str("error_type") != "TimeoutError" || record.str("step_outcomes", "slow") != "timed_out" || r.Code != 1 {
				t.Errorf("%s\n%s\n%s", failed, record.at("step_outcomes"), r)
			}
			if record.at("context", "metadata", "verifications", "quiet", "score").v != 1.0 {
				t.Errorf("%s", record.at("context", "metadata", "verifications"))
			}
		})
	}
}

// TestScriptDeadline ends a script of run_code with a child in a session of its own.
func TestScriptDeadline(t *testing.T) {
	debian(t)
	const script = `import signal, subprocess, time
def run(input):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    subprocess.Popen(["sh", "-c", input["args"]["line"]], start_new_session=True)
    time.sleep(600)
`
	for _, target := range targets {
		t.Run(target, func(t *testing.T) {
			t.Parallel()
			k := newUser(t)
			file := "/w"
			if target == "vm" {
				file = k.Dir + "/w"
			}
			run := code("late", "box", "late", map[string]any{"line": at(stubborn, file)})
			run["timeout_seconds"] = 1
			run["fail_task_on_error"] = false
			dir := k.bundle("late", steps{on(t, target), run, verify("quiet", "box", "/", sh(at(still, file)))},
				kit.Files{"artifacts/late/late.py": script})
			begin := time.Now()
			s, r := k.summed(dir)
			record := k.instance(s.Tasks[0].Instance)
			failed := record.at("context", "metadata", "failed_steps", 0)
			if failed.str("error_type") != "RunCodeExecutionError" || !strings.Contains(failed.str("error"), "timed out after 1s") || record.str("step_outcomes", "late") != "timed_out" {
				t.Errorf("%s\n%s\n%s", failed, record.at("step_outcomes"), r)
			}
			if record.at("context", "metadata", "verifications", "quiet", "score").v != 1.0 {
				t.Errorf("%s", record.at("context", "metadata", "verifications"))
			}
			if took := time.Since(begin); took > 60*time.Second {
				t.Errorf("it took %s", took)
			}
			if left := k.leftovers(); left != "" || len(s.TornDown) != 1 || len(scripts(s.TornDown[0].ID)) != 0 {
				t.Errorf("left behind: %s %v", left, scripts(s.TornDown[0].ID))
			}
		})
	}
}

// TestCommandOutput has commands that leave a child behind, read standard input, print much, and print what is no text.
func TestCommandOutput(t *testing.T) {
	for name, c := range deadlineTargets(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := newUser(t)
			probes := verify("out", "box", c.folder,
				sh("sleep 600 & exit 0"),
				sh(`test -z "$(cat)"`),
				sh("head -c 60000000 /dev/zero; head -c 3000000 /dev/zero >&2; exit 3"),
				sh(`printf 'caf\303\251 \377\376' >&2; exit 4`))
			begin := time.Now()
			s, r := k.summed(k.bundle("out", steps{c.deploy, probes}, nil))
			if took := time.Since(begin); took > 60*time.Second {
				t.Errorf("it took %s", took)
			}
			rows := k.instance(s.Tasks[0].Instance).at("context", "metadata", "verifications", "out", "results")
			for i, want := range []struct {
				score float64
				why   string
			}{{1, "exit=0"}, {1, "exit=0"}, {0, "exit=3"}, {0, "exit=4; stderr=café \uFFFD"}} {
				row := rows.at(i)
				why := row.str("justification")
				if row.num("score") != want.score || !strings.HasPrefix(why, want.why) || !utf8.ValidString(why) || len(why) > 2000 {
					t.Errorf("row %d: %.300s\n%s", i, row, r)
				}
			}
			if left := k.leftovers(); left != "" {
				t.Errorf("left behind: %s", left)
			}
		})
	}
}

// TestScriptOutputIsCapped has a failing script that prints more than is kept.
func TestScriptOutputIsCapped(t *testing.T) {
	t.Parallel()
	k := newUser(t)
	s, r := k.summed(k.bundle("loud", steps{host("box"), code("loud", "box", "loud", nil)}, kit.Files{"artifacts/loud/l.py": `import sys
def run(input):
    sys.stderr.write("x" * 3000000)
    raise ValueError("the end")
`}))
	if len(s.Tasks[0].Failures) != 1 {
		t.Fatal(r)
	}
	f := s.Tasks[0].Failures[0]
	if f.Class != "RunCodeExecutionError" || !strings.Contains(f.Error, "bytes of stderr cut]") || !strings.Contains(f.Error, "ValueError: the end") || len(f.Error) > 2<<20 {
		t.Errorf("%s: %d bytes: %.200s", f.Class, len(f.Error), f.Error)
	}
}

// TestACommandThatCannotStart is a failure of the machine, not of the work: there is no score.
func TestACommandThatCannotStart(t *testing.T) {
	t.Parallel()
	k := newUser(t)
	dir := k.bundle("long", steps{host("box"), verify("check", "box", "/app", sh("true "+strings.Repeat("x", 3<<20)))}, nil)
	sum, r := k.summed(dir)
	if r.Code != 1 || len(sum.Tasks) != 1 {
		t.Fatalf("%.2000s", r)
	}
	record := k.instance(sum.Tasks[0].Instance)
	if record.str("outcome_class") != "infrastructure" || record.at("context", "metadata", "verifications", "check", "score").v != nil {
		t.Errorf("it ended as %s: %.300s", record.str("outcome_class"), record.str("error"))
	}
}
