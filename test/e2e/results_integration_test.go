//go:build integration

package e2e_test

import (
	"encoding/xml"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"agentenv/test/kit"
)

// junit is the report as a CI system reads it.
type junit struct {
	Tests    int `xml:"tests,attr"`
	Failures int `xml:"failures,attr"`
	Errors   int `xml:"errors,attr"`
	Skipped  int `xml:"skipped,attr"`
}

func readJUnit(t *testing.T, file string) junit {
	t.Helper()
	var r junit
	text, err := os.ReadFile(file)
	if err == nil {
		err = xml.Unmarshal(text, &r)
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return r
}

func readDoc(t *testing.T, file string) doc {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return parse(t, string(text))
}

// TestSeveralRuns runs the shipped bundle five times and looks at everything that comes of it.
func TestSeveralRuns(t *testing.T) {
	t.Parallel()
	k := newUser(t)
	report, folder := filepath.Join(k.Home, "x.xml"), filepath.Join(k.Home, "d")
	r := k.run("run", "hello", "--k", "5", "-j", "3", "--junit", report, "--output-dir", folder, "--json")
	d := parse(t, r.Stdout)
	total := d.at("tally", "total")
	if r.Code != 0 || total.num("runs") != 5 || total.num("counted") != 5 || total.num("passes") != 5 || total.at("pass_at_k").len() != 5 || total.num("pass_at_k", 4) != 1 || total.num("time", "sum_seconds") <= 0 {
		t.Errorf("%s\n%s", total, r)
	}
	if j := readJUnit(t, report); j != (junit{Tests: 5}) {
		t.Errorf("%+v", j)
	}
	if s := readDoc(t, filepath.Join(folder, "summary.json")); s.at("ended").v != true || s.at("tasks").len() != 5 {
		t.Errorf("%s", s)
	}
	for i := range 5 {
		c := readDoc(t, filepath.Join(folder, d.str("tasks", i, "context_file")))
		if c.str("metadata", "run_group_id") != d.str("run_group_id") || c.at("deployed_sandboxes").len() != 1 {
			t.Errorf("run %d ended with %s", i+1, c)
		}
	}
}

// TestReportsOfStoppedRuns stops runs in the middle: the reports are written and say so, and what was stopped or never began runs again.
func TestReportsOfStoppedRuns(t *testing.T) {
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, syscall.SIGHUP)
	t.Cleanup(func() { signal.Stop(caught) })
	for _, by := range stops {
		t.Run(by.sig.String(), func(t *testing.T) {
			t.Parallel()
			k := newUser(t)
			let := filepath.Join(k.Home, "let")
			dir := k.bundle("slow", steps{host("box"), verify("v", "box", "/", sh("test -e "+let+" || sleep 1000"))}, nil)
			report, folder := filepath.Join(k.Home, "x.xml"), filepath.Join(k.Home, "d")
			p := k.start("run", dir, "--k", "3", "-j", "1", "--junit", report, "--output-dir", folder)
			t.Cleanup(p.kill)
			p.waitFor("v (verify_sandbox)")
			if s := readDoc(t, filepath.Join(folder, "summary.json")); s.at("ended").v != false {
				t.Errorf("while it runs: %s", s)
			}
			p.signal(by.sig)
			if code := p.wait(); code != by.code {
				t.Errorf("exit code %d\n%s", code, p.text())
			}
			if !strings.Contains(p.text(), "Results:\n  no run counts\n  runs: 3; left out: 3 cancelled\n") {
				t.Error(p.text())
			}
			if j := readJUnit(t, report); j != (junit{Tests: 3, Skipped: 3}) {
				t.Errorf("%+v", j)
			}
			s := readDoc(t, filepath.Join(folder, "summary.json"))
			if s.at("ended").v != true || s.num("exit_code") != float64(by.code) || s.num("tally", "total", "excluded") != 3 || s.str("tasks", 0, "context_file") == "" || s.str("tasks", 1, "context_file") != "" {
				t.Errorf("%s", s)
			}
			kit.Write(t, k.Home, kit.Files{"let": ""})
			out := k.ok("run", dir, "--rerun", "cancelled")
			if !strings.Contains(out, "Rerunning 3 of 3 runs in group ") || !strings.Contains(out, "3 of 3 counted runs passed") {
				t.Error(out)
			}
			if out = k.ok("run", dir, "--rerun", "cancelled"); !strings.HasPrefix(out, "Nothing to rerun: ") {
				t.Error(out)
			}
		})
	}
}

// TestRepeatCommand has a shell run the command that is printed for a failed run, names and all.
func TestRepeatCommand(t *testing.T) {
	t.Parallel()
	k := newUser(t)
	dir := filepath.Join(k.Home, "a b")
	kit.Write(t, dir, kit.Files{"tasks/it is.json": `[{"id":"l","type":"load_artifact","sandbox_name":"gone","urls":["http://127.0.0.1:9/x"],"destination_path":"/a"}]`, "tasks/other.json": `[{"id":"box","type":"deploy_sandbox","sandbox_name":"box","sandbox_mode":"vm"}]`})
	r := k.run("run", dir, "--user-model", "it's $HOME", "--max-parallel-steps", "2")
	m := regexp.MustCompile(`(?m)^    repeat: agent-env (.*)$`).FindStringSubmatch(r.Stdout)
	if r.Code != 1 || m == nil {
		t.Fatal(r)
	}
	sh := exec.Command("sh", "-c", fmt.Sprintf("exec %q %s --json", program, m[1]))
	sh.Env, sh.Dir = k.command().Env, k.command().Dir
	out, err := sh.Output()
	d := parse(t, string(out))
	if err == nil || d.at("tasks").len() != 1 || d.str("tasks", 0, "task") != "tasks/it is.json" {
		t.Fatalf("%v\n%s\n%s", err, m[1], out)
	}
	if got := k.instance(d.str("tasks", 0, "instance")).str("context", "metadata", "user_overrides", "user_model"); got != "it's $HOME" {
		t.Errorf("it ran with the user model %q", got)
	}
}
