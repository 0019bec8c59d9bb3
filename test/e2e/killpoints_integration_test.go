//go:build integration

package e2e_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"agentenv/test/kit"
)

// killPoint is when a run is killed: some time after the line that a step begins, or ends, is printed.
type killPoint struct {
	step  int // 1 … 20
	ended bool
	after time.Duration
}

func (p killPoint) String() string {
	when := "in"
	if p.ended {
		when = "after"
	}
	return fmt.Sprintf("%s step %d, %d ms on", when, p.step, p.after.Milliseconds())
}

// chosen are a point in every step or at its end, at all distances from its beginning.
func chosen() (points []killPoint) {
	for i := range 20 {
		points = append(points, killPoint{i + 1, i%4 == 3 && i < 19, []time.Duration{0, 30 * time.Millisecond, 70 * time.Millisecond, 0}[i%4]})
	}
	return points
}

// random are 100 points anywhere.
func random() (points []killPoint) {
	r := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 0))
	for range 100 {
		points = append(points, killPoint{1 + r.IntN(20), r.IntN(3) == 0, time.Duration(r.IntN(150)) * time.Millisecond})
	}
	return points
}

// work is the step that must not be done twice once it is done: what stands for an agent's.
const work = "s06"

// killable is a task of 20 steps. Each of those in the middle leaves half of its output for a moment, and the other half after it.
func killable(t *testing.T, target string) steps {
	all := steps{boxOn(t, target), load("in", "box", "one", "/app/in")}
	for i := 3; i <= 18; i++ {
		id := fmt.Sprintf("s%02d", i)
		line := fmt.Sprintf("echo half > out-%[1]s; sleep 0.08; echo whole >> out-%[1]s; test $(grep -c whole out-%[1]s) = 1", id)
		if id == work {
			line = "sleep 0.05; echo x >> work; sleep 0.05"
		}
		all = append(all, verify(id, "box", "/app/in", sh(line)))
	}
	return append(all, collect("out", "box", "/app/in", "out-*", "work", "one.txt"), verify("check", "box", "/app/in", sh("test $(ls out-* | wc -l) = 15"), sh("cat work one.txt > /dev/null")))
}

// TestKilledAnywhere kills a run of 20 steps at each of 20 points on a bare machine and in a container, and goes on with it: the end is that of
// an undisturbed run, and nothing is left. AGENT_ENV_TEST_LONG=1 takes 100 random points in each mode instead.
func TestKilledAnywhere(t *testing.T) {
	points := chosen()
	if os.Getenv("AGENT_ENV_TEST_LONG") != "" {
		points = random()
	}
	turns := make(chan struct{}, 6)
	for _, mode := range []string{"vm", "container"} {
		for i, point := range points {
			target := mode
			if mode == "container" {
				target = []string{"local", "docker"}[i%2]
			}
			t.Run(fmt.Sprintf("%s %d %s", target, i, point), func(t *testing.T) {
				t.Parallel()
				turns <- struct{}{}
				defer func() { <-turns }()
				killedAt(t, target, point)
			})
		}
	}
}

func killedAt(t *testing.T, target string, point killPoint) {
	k := newUser(t)
	p := k.start("run", k.bundle("killable", killable(t, target), kit.Files{"artifacts/one/one.txt": "1"}))
	t.Cleanup(p.kill)
	line := fmt.Sprintf("step %d/20 ", point.step)
	p.waitFor(line)
	if point.ended {
		p.until(func() bool {
			_, rest, _ := strings.Cut(p.text(), line)
			return strings.Contains(rest, " done in ")
		})
	}
	time.Sleep(point.after)
	p.kill()
	id := k.Select(`SELECT json_extract(doc, '$.instance_id') FROM docs_task_instances`)[0]
	before := k.Select(`SELECT json_extract(doc, '$.step_id') FROM docs_task_step_journal WHERE json_extract(doc, '$.status') = 'success'`)
	if k.instance(id).str("status") != "completed" {
		r := k.run("run", "--json", "--resume", id)
		if r.Code != 0 {
			t.Fatalf("it does not go on: %s", r)
		}
	}
	record := k.instance(id)
	if record.str("status") != "completed" || record.str("outcome_class") != "passed" {
		t.Errorf("it ended as %s, %s: %s", record.str("status"), record.str("outcome_class"), record.str("error"))
	}
	k.rowsHeld(id, 20)
	verdicts := record.at("context", "metadata", "verifications")
	for _, name := range verdicts.keys() {
		if verdicts.num(name, "score") != 1 {
			t.Errorf("%s scores %s", name, verdicts.at(name))
		}
	}
	if n := len(verdicts.keys()); n != 17 {
		t.Errorf("there are %d verdicts", n)
	}
	want := kit.Files{"one.txt": "1"}
	for i := 3; i <= 18; i++ {
		if id := fmt.Sprintf("s%02d", i); id != work {
			want["out-"+id] = "half\nwhole\n"
		}
	}
	files := k.collected(record.str("context", "metadata", "file_artifact_universe", "id"))
	if worked := files["work"]; worked != "x\n" && (slices.Contains(before, work) || worked != "x\nx\n") {
		t.Errorf("the work was done so: %q", worked)
	}
	delete(files, "work")
	same(t, files, want)
	for _, done := range before {
		if again := k.Select(`SELECT count(*) FROM docs_task_step_journal WHERE json_extract(doc, '$.step_id') = ?`, done); again[0] != "1" {
			t.Errorf("the row of %s is there %s times", done, again[0])
		}
	}
	k.ok("sandbox", "prune", "--yes")
	eventually(t, func() string {
		if left := k.leftovers(); left != "" && !onlyTmp(k, left) {
			return "left behind: " + left
		}
		return ""
	})
}
