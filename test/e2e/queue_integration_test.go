//go:build integration

package e2e_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"agentenv/test/kit"
)

// stored stores a task of the steps under an id.
func (k *user) stored(id string, task steps) {
	k.T.Helper()
	b, err := json.Marshal(task)
	if err != nil {
		k.T.Fatal(err)
	}
	k.ok("task", "create", "--id", id, filepath.Join(kit.Write(k.T, k.Home, kit.Files{"steps.json": string(b)}), "steps.json"))
}

// submitted submits a run to the queue and returns its ids.
func (k *user) submitted(id string) (run, instance string) {
	k.T.Helper()
	d := parse(k.T, k.ok("task", "run", "--id", id, "--detach", "--json"))
	return d.str("runs", 0, "run_id"), d.str("runs", 0, "instance_id")
}

// listedRun is a run as the list has it.
func (k *user) listedRun(run string) doc {
	k.T.Helper()
	all := parse(k.T, k.ok("runs", "list", "--json")).at("runs")
	for i := range all.len() {
		if all.str(i, "run_id") == run {
			return all.at(i)
		}
	}
	k.T.Fatalf("%s is not listed: %s", run, all)
	return doc{}
}

// slowTask counts how often each of two commands ran in a sandbox, the second of which waits until a file is there.
func (k *user) slowTask() (task steps, counted string) {
	counted, let := filepath.Join(k.Dir, "counted"), filepath.Join(k.Dir, "let")
	return steps{host("box"), verify("one", "box", "/app", sh("echo one >> "+counted)),
		verify("two", "box", "/app", sh("echo two >> "+counted+"; while ! test -e "+let+"; do sleep 0.05; done")),
		{"id": "end", "type": "teardown_sandboxes", "agent_names": []string{"ghost"}}}, counted
}

func (k *user) lines(file string) string {
	k.T.Helper()
	text, err := os.ReadFile(file)
	if err != nil && !os.IsNotExist(err) {
		k.T.Fatal(err)
	}
	return strings.Join(strings.Fields(string(text)), " ")
}

// TestAWorkerIsKilled in the middle of a run; the next one goes on with it, and does nothing twice that was done.
func TestAWorkerIsKilled(t *testing.T) {
	t.Parallel()
	k := newUser(t)
	task, counted := k.slowTask()
	k.stored("@local/slow", task)
	run, instance := k.submitted("@local/slow")
	if got := k.listedRun(run).str("status"); got != "queued" {
		t.Errorf("submitted, it is %s", got)
	}
	if r := k.run("runs", "show", run); r.Code != 1 || !strings.Contains(r.Stderr, "queued") {
		t.Errorf("shown before it began: %s", r)
	}
	p := k.start("runs", "work", "-j", "1")
	t.Cleanup(p.kill)
	p.until(func() bool { return k.lines(counted) == "one two" })
	if r := k.run("runs", "work", "--once"); r.Code != 0 || !strings.Contains(r.Stdout, "Ran nothing.") {
		t.Errorf("another worker beside one that lives: %s", r)
	}
	if r := k.run("runs", "rm", "--yes", run); r.Code != 1 || !strings.Contains(r.Stderr, "has not ended") {
		t.Errorf("removed while it runs: %s", r)
	}
	p.kill()
	if got := k.listedRun(run); got.at("interrupted").v != true {
		t.Errorf("killed, it is %s", got)
	}
	kit.Write(t, k.Dir, kit.Files{"let": ""})
	out := k.ok("runs", "work", "--once")
	if !strings.Contains(out, "["+instance+"] going on") || !strings.Contains(out, "Ran 1 run: 1 completed.") {
		t.Errorf("the next worker:\n%s", out)
	}
	if got := k.lines(counted); got != "one two two" {
		t.Errorf("the commands ran: %s", got)
	}
	if got := k.listedRun(run); got.str("status") != "completed" || got.str("instance_id") != instance {
		t.Errorf("in the end it is %s", got)
	}
	k.rowsWhole(instance, "box", "one", "two", "end")
	if left := k.leftovers(); left != "" {
		t.Errorf("left behind: %s", left)
	}
	// Everything of it goes.
	if out := k.ok("runs", "rm", "--dry-run", run); !strings.Contains(out, instance) {
		t.Errorf("what would go:\n%s", out)
	}
	k.ok("runs", "rm", "--yes", run)
	for _, coll := range []string{"runs", "task_instances", "task_step_journal", "task_run_heads"} {
		if n := k.countOf(coll, instance); n != "0" {
			t.Errorf("%s documents of it are left in %s", n, coll)
		}
	}
	if logs, _ := filepath.Glob(filepath.Join(k.State, "logs", "*")); len(logs) != 0 {
		t.Errorf("logs are left: %v", logs)
	}
}

func (k *user) countOf(coll, instance string) string {
	k.T.Helper()
	return k.Select(`SELECT count(*) FROM docs_`+coll+` WHERE json_extract(doc, '$.instance_id') = ?`, instance)[0]
}

// TestCancelWhatAnotherProcessRuns: a worker, a bundle run, and one whose process was killed.
func TestCancelWhatAnotherProcessRuns(t *testing.T) {
	for _, who := range []string{"worker", "bundle", "killed"} {
		t.Run(who, func(t *testing.T) {
			t.Parallel()
			k := newUser(t)
			task, counted := k.slowTask()
			var p *process
			if who == "bundle" {
				p = k.start("run", k.bundle("slow", task, nil))
			} else {
				k.stored("@local/slow", task)
				k.submitted("@local/slow")
				p = k.start("runs", "work", "--once")
			}
			t.Cleanup(p.kill)
			p.until(func() bool { return k.lines(counted) == "one two" })
			if who == "killed" {
				p.kill()
			}
			one := parse(t, k.ok("runs", "list", "--json")).at("runs", 0)
			began := time.Now()
			out := k.ok("runs", "cancel", "--reason", "not wanted", one.str("instance_id"))
			took := time.Since(began)
			in := k.instance(one.str("run_id"))
			if in.str("status") != "cancelled" || in.str("error") != "not wanted" || in.at("completed_steps").len() != 2 || took > 30*time.Second {
				t.Errorf("after %s: %s\n%s", took, out, in)
			}
			if got := k.listedRun(one.str("run_id")); got.str("status") != "cancelled" {
				t.Errorf("the record: %s", got)
			}
			if again := k.ok("runs", "cancel", one.str("run_id")); !strings.Contains(again, "had ended before") {
				t.Errorf("again: %s", again)
			}
			if who == "killed" {
				if !strings.Contains(out, "was gone") || !strings.Contains(out, "still up: ") || !strings.Contains(out, "sandbox prune") {
					t.Errorf("it says:\n%s", out)
				}
				k.ok("sandbox", "prune", "--yes")
			} else if code := p.wait(); code != map[string]int{"worker": 0, "bundle": 1}[who] {
				t.Errorf("the process ended with %d:\n%s", code, p.text())
			}
			if left := k.leftovers(); left != "" {
				t.Errorf("left behind: %s", left)
			}
		})
	}
}

// TestASignalHandsRunsBack stops a worker; its run is torn down, and the next worker goes on with it.
func TestASignalHandsRunsBack(t *testing.T) {
	for _, s := range stops {
		t.Run(s.sig.String(), func(t *testing.T) {
			t.Parallel()
			k := newUser(t)
			task, counted := k.slowTask()
			k.stored("@local/slow", task)
			run, instance := k.submitted("@local/slow")
			p := k.start("runs", "work")
			t.Cleanup(p.kill)
			p.until(func() bool { return k.lines(counted) == "one two" })
			p.signal(s.sig)
			if code := p.wait(); code != s.code || !strings.Contains(p.text(), "Ran 1 run: 1 handed back.") {
				t.Errorf("exit code %d:\n%s", code, p.text())
			}
			if left := k.leftovers(); left != "" {
				t.Errorf("left behind: %s", left)
			}
			kit.Write(t, k.Dir, kit.Files{"let": ""})
			k.ok("runs", "work", "--once")
			if got := k.listedRun(run); got.str("status") != "completed" || got.str("instance_id") != instance {
				t.Errorf("in the end it is %s", got)
			}
		})
	}
}
