//go:build integration

package e2e_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/moby/moby/client"

	"agentenv/test/kit"
)

// changing serves answers one after another, the last one on and on. An empty answer never ends.
func changing(t *testing.T, answers ...string) (url string, asked *atomic.Int32) {
	t.Helper()
	asked = &atomic.Int32{}
	end := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := int(asked.Add(1))
		answer := answers[min(n, len(answers))-1]
		fmt.Fprint(w, answer)
		if answer == "" {
			w.(http.Flusher).Flush()
			select {
			case <-end:
			case <-r.Context().Done():
			}
		}
	}))
	t.Cleanup(func() { close(end); s.Close() })
	return s.URL + "/answer.txt", asked
}

// boxOn deploys a sandbox named box on a target.
func boxOn(t *testing.T, target string) map[string]any {
	t.Helper()
	if target == "vm" {
		return host("box")
	}
	b := box(withVolume(t))
	b["sandbox_type"] = target
	return b
}

func fetch(id, url string) map[string]any {
	return map[string]any{"id": id, "type": "load_artifact", "sandbox_name": "box", "urls": []string{url}, "destination_path": "/app/in"}
}

// TestRetryFromTheDeployStep has a check fail until the third attempt: each begins in a sandbox of its own, and all of them are gone
// at the end.
func TestRetryFromTheDeployStep(t *testing.T) {
	for _, target := range targets {
		t.Run(target, func(t *testing.T) {
			t.Parallel()
			k := newUser(t)
			url, asked := changing(t, "bad", "bad", "good")
			check := verify("check", "box", "/app/in", sh("echo x >> lines; test $(wc -l < lines) = 1"), sh("grep -q good answer.txt"))
			// A score below 1 is no failure; a step that cannot use its input is one.
			stop := map[string]any{"id": "stop", "type": "collect_artifacts", "sandbox_name": "box", "base_path": "/app/in", "artifact_paths": []string{"only-when-good"},
				"retry_config": map[string]any{"retry_from_step_id": "box", "max_retries": 5}}
			mark := verify("mark", "box", "/app/in", sh("! grep -q good answer.txt || touch only-when-good"))
			record := k.passesLast("check", "run", "--json", k.bundle("again", steps{boxOn(t, target), fetch("in", url), check, mark, stop}, nil))
			if n := asked.Load(); n != 3 {
				t.Errorf("it was fetched %d times", n)
			}
			resets := record.at("context", "metadata", "retry_resets")
			if resets.len() != 2 || resets.at(1, "attempt").v != float64(3) || record.at("context", "deployed_sandboxes").len() != 1 {
				t.Errorf("resets %s, sandboxes %s", resets, record.at("context", "deployed_sandboxes"))
			}
			if lost := resets.at(0, "rolled_back_sandboxes", "deployed_sandboxes"); lost.len() != 1 || lost.str(0, "sandbox_id") == record.str("context", "deployed_sandboxes", 0, "sandbox_id") {
				t.Errorf("the first reset lost %s", lost)
			}
			if left := k.leftovers(); left != "" {
				t.Errorf("left behind: %s", left)
			}
		})
	}
}

// passesLast runs a command that prints a summary with one passed task, whose check has score 1, and returns the record.
func (k *user) passesLast(check string, args ...string) doc {
	k.T.Helper()
	r := k.run(args...)
	s := parse(k.T, r.Stdout)
	one := s.at("tasks", 0)
	if r.Code != 0 || s.at("tasks").len() != 1 || one.str("outcome") != "passed" || s.at("still_up").len() != 0 {
		k.T.Fatalf("%s", r)
	}
	scores, there := one.at("scores"), false
	for i := range scores.len() {
		there = there || scores.str(i, "step") == check && scores.num(i, "value") == 1
	}
	if !there {
		k.T.Errorf("the scores are %s", scores)
	}
	return k.instance(one.str("instance"))
}

// TestResume kills a run while a step waits, and goes on: in the sandbox that still lives, and, after it was pruned or stopped, in a new one.
func TestResume(t *testing.T) {
	for _, target := range targets {
		for _, sandbox := range []string{"alive", "pruned", "stopped"} {
			if target == "vm" && sandbox == "stopped" {
				continue // a folder does not stop
			}
			t.Run(target+" "+sandbox, func(t *testing.T) {
				t.Parallel()
				k := newUser(t)
				url, asked := changing(t, "", "good")
				dir := k.bundle("killed", steps{boxOn(t, target), load("first", "box", "one", "/app/in"),
					verify("once", "box", "/app/in", sh("echo x >> lines")), fetch("wait", url),
					verify("check", "box", "/app/in", sh("test $(wc -l < lines) = 1"), sh("grep -q good answer.txt"), sh("test -f one.txt"))},
					kit.Files{"artifacts/one/one.txt": "1"})
				p := k.start("run", dir)
				t.Cleanup(p.kill)
				p.waitFor("wait (load_artifact)")
				p.until(func() bool { return asked.Load() > 0 })
				id := k.Select(`SELECT json_extract(doc, '$.instance_id') FROM docs_task_instances`)[0]
				if r := k.run("run", "--resume", id); r.Code != 1 || !strings.Contains(r.Stderr, "still running") || asked.Load() != 1 {
					t.Errorf("resumed while it runs: %s", r)
				}
				p.kill()
				if list := k.ok("runs", "list"); !strings.Contains(list, id+"  interrupted") {
					t.Errorf("the killed run is not listed as interrupted:\n%s", list)
				}
				if shown := k.ok("runs", "show", id); !strings.Contains(shown, id+": interrupted") || strings.Count(shown, "not ended") != 2 {
					t.Errorf("the killed run is shown so:\n%s", shown)
				}
				if logs := k.ok("runs", "logs", "--follow", id); !strings.Contains(logs, "step=wait") && !strings.Contains(logs, "Step once") {
					t.Errorf("its log:\n%s", logs)
				}
				switch sandbox {
				case "pruned":
					k.ok("sandbox", "prune", "--yes")
				case "stopped": // as a restart of the machine leaves it
					for _, c := range k.containers() {
						if _, err := docker(t).Client().ContainerKill(t.Context(), strings.Fields(c)[0], client.ContainerKillOptions{Signal: "KILL"}); err != nil {
							t.Fatal(err)
						}
					}
				}
				record := k.passesLast("check", "run", "--json", "--resume", id)
				ran := map[string]bool{}
				for _, name := range []string{"box", "first", "once", "wait", "check"} {
					ran[name] = false
				}
				done := record.at("completed_steps")
				for i := range done.len() {
					ran[done.str(i, "step_id")] = true
				}
				for name, there := range ran {
					if !there {
						t.Errorf("%s is not recorded as done", name)
					}
				}
				if record.str("outcome_class") != "passed" || record.num("attempt_epoch") != 1 || done.len() != 5 {
					t.Errorf("class %q, epoch %v, done %s", record.str("outcome_class"), record.num("attempt_epoch"), done)
				}
				k.rowsHeld(id, 5)
				if left := k.leftovers(); left != "" && !onlyTmp(k, left) {
					t.Errorf("left behind: %s", left)
				}
				if r := k.run("task", "resume", "--id", id); r.Code != 1 || !strings.Contains(r.Stderr, "complete") {
					t.Errorf("resumed after its end: %s", r)
				}
			})
		}
	}
}

// rowsHeld checks that the journal of a run has a row of each of so many steps beside its seed, in an order without twins.
func (k *user) rowsHeld(id string, steps int) {
	k.T.Helper()
	rows := k.Select(`SELECT json_extract(doc, '$.step_id') FROM docs_task_step_journal WHERE json_extract(doc, '$.instance_id') = ? AND json_extract(doc, '$.status') = 'success'`, id)
	if len(rows) != steps {
		k.T.Errorf("the journal holds %v", rows)
	}
}

// TestOneOfManyResumes starts several resumes of a killed run at once: one goes on, the others say why not.
func TestOneOfManyResumes(t *testing.T) {
	t.Parallel()
	k := newUser(t)
	url, asked := changing(t, "", "good")
	p := k.start("run", k.bundle("killed", steps{host("box"), fetch("wait", url), verify("check", "box", "/app/in", sh("sleep 1; grep -q good answer.txt"))}, nil))
	t.Cleanup(p.kill)
	p.waitFor("wait (load_artifact)")
	p.until(func() bool { return asked.Load() > 0 })
	p.kill()
	id := k.Select(`SELECT json_extract(doc, '$.instance_id') FROM docs_task_instances`)[0]
	var all []*process
	for range 4 {
		all = append(all, k.start("run", "--resume", id))
	}
	won := 0
	for _, r := range all {
		switch code := r.wait(); {
		case code == 0:
			won++
		case code != 1 || !strings.Contains(r.text(), "Error: resume") && !strings.Contains(r.text(), "is complete"):
			t.Errorf("exit code %d\n%s", code, r.text())
		}
	}
	if won != 1 || asked.Load() != 2 {
		t.Errorf("%d went on, it was fetched %d times", won, asked.Load())
	}
	if left := k.leftovers(); left != "" && !onlyTmp(k, left) {
		t.Errorf("left behind: %s", left)
	}
}

// TestPruneBesideResume prunes while a killed run is resumed: whoever comes first, the run ends as if it had not been disturbed.
func TestPruneBesideResume(t *testing.T) {
	for _, target := range targets {
		for _, wait := range []time.Duration{0, 20 * time.Millisecond, 60 * time.Millisecond, 150 * time.Millisecond} {
			t.Run(fmt.Sprint(target, " ", wait), func(t *testing.T) {
				t.Parallel()
				k := newUser(t)
				url, asked := changing(t, "", "good")
				p := k.start("run", k.bundle("killed", steps{boxOn(t, target), load("first", "box", "one", "/app/in"), verify("mark", "box", "/app/in", sh("echo x > mark")),
					fetch("wait", url), verify("check", "box", "/app/in", sh("sleep 1; test -f mark && grep -q good answer.txt"))}, kit.Files{"artifacts/one/one.txt": "1"}))
				t.Cleanup(p.kill)
				p.waitFor("wait (load_artifact)")
				p.until(func() bool { return asked.Load() > 0 })
				p.kill()
				id := k.Select(`SELECT json_extract(doc, '$.instance_id') FROM docs_task_instances`)[0]
				resume := k.start("run", "--resume", id)
				time.Sleep(wait)
				prune := k.run("sandbox", "prune", "--yes")
				if code := resume.wait(); code != 0 || !strings.Contains(resume.text(), "check: 1") {
					t.Errorf("exit code %d\n%s\nprune: %s", code, resume.text(), prune)
				}
				k.ok("sandbox", "prune", "--yes")
				if left := k.leftovers(); left != "" && !onlyTmp(k, left) {
					t.Errorf("left behind: %s", left)
				}
			})
		}
	}
}

// TestPrunedWhileItWorks prunes a sandbox whose time is over while a step uses it: nothing is graded.
func TestPrunedWhileItWorks(t *testing.T) {
	for _, target := range targets {
		t.Run(target, func(t *testing.T) {
			t.Parallel()
			k := newUser(t)
			b := boxOn(t, target)
			b["ttl_seconds"] = 1
			p := k.start("run", k.bundle("late", steps{b, verify("check", "box", "/", sh("sleep 6; true"))}, nil))
			t.Cleanup(p.kill)
			p.waitFor("check (verify_sandbox)")
			time.Sleep(2 * time.Second)
			k.ok("sandbox", "prune", "--yes")
			if code := p.wait(); code != 1 || !strings.Contains(p.text(), "failed at step 'check'") {
				t.Errorf("exit code %d\n%s", code, p.text())
			}
			if record := k.instance(k.only(p.text())); record.str("outcome_class") != "infrastructure" {
				t.Errorf("class %q\n%s", record.str("outcome_class"), p.text())
			}
		})
	}
}

// TestVerifyAgain grades a run again while its sandbox is kept up, and after it is gone.
func TestVerifyAgain(t *testing.T) {
	t.Parallel()
	k := newUser(t)
	p := k.start("run", "--keep", k.bundle("graded", steps{host("box"), verify("work", "box", "/app", sh("echo x >> lines")), verify("grade", "box", "/app", sh("test -f good"))}, nil))
	t.Cleanup(p.kill)
	p.waitFor("Holding 1 sandbox up")
	id := k.Select(`SELECT json_extract(doc, '$.instance_id') FROM docs_task_instances`)[0]
	boxes, _ := filepath.Glob(filepath.Join(k.Sandboxes, "agent-env-local-*"))
	if len(boxes) != 1 {
		t.Fatalf("the sandboxes are %v", boxes)
	}
	if err := os.WriteFile(filepath.Join(boxes[0], "good"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	record := k.passesLast("grade", "task", "verify", "--json", "--id", id)
	if record.str("context", "metadata", "verifies") != id || record.str("instance_id") == id {
		t.Errorf("the record is %s", record)
	}
	if old := k.instance(id); old.num("context", "metadata", "verifications", "grade", "score") != 0 {
		t.Error("the verdict of the first run changed")
	}
	if r := k.run("run", "--resume", record.str("instance_id")); r.Code != 1 || !strings.Contains(r.Stderr, "is complete") {
		t.Errorf("a verification resumed: %s", r)
	}
	p.signal(os.Interrupt)
	if code := p.wait(); code != 0 && code != 130 {
		t.Errorf("exit code %d:\n%s", code, p.text())
	}
	if r := k.run("task", "verify", "--id", id); r.Code != 1 || !strings.Contains(r.Stderr, `needs the sandbox "box", which lives no longer`) {
		t.Errorf("verified without its sandbox: %s", r)
	}
	if n := len(k.Select(`SELECT 1 FROM docs_task_instances`)); n != 2 {
		t.Errorf("there are %d instances", n)
	}
	if left := k.leftovers(); left != "" {
		t.Errorf("left behind: %s", left)
	}
}
