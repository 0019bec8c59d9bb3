package local_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"agentenv/runner"
	"agentenv/runner/local"
	"agentenv/runner/runnertest"
	"agentenv/sandbox"
	"agentenv/store/doc"
	"agentenv/store/document"
	"agentenv/task"
)

// TestWhatTheReferenceLeft marks the reference's runs whose process is gone, however many ended ones lie before them, and begins none.
func TestWhatTheReferenceLeft(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.process(sandbox.Process{})
	id := p.task(runnertest.Nothing("a"))
	me := sandbox.ThisProcess()
	record := func(n int, status string, owner *doc.Object) *doc.Object {
		return doc.Of("run_id", fmt.Sprintf("local-%032x", n), "runner", "local", "task_id", id, "task_version", doc.Int(1), "instance_id", fmt.Sprintf("t-%08d", n), "status", status,
			"created_at_utc", fmt.Sprintf("2026-01-01T00:00:00.%06d+00:00", n), "started_at_utc", nil, "finished_at_utc", nil, "error", nil,
			"overrides", doc.Of("agent_model", nil, "agent_artifact_id", nil, "metadata", &doc.Object{}), "owner", owner)
	}
	owner := func(host string, pid int, ago time.Duration) *doc.Object {
		return doc.Of("host", host, "pid", doc.Int(pid), "seen", stampBefore(ago))
	}
	gone := owner(me.Host, 1<<22+1, 0)
	cases := []struct {
		status string
		owner  *doc.Object
		lost   bool
	}{
		{"RUNNING", gone, true}, {"QUEUED", gone, true}, {"RUNNING", owner("elsewhere", 1, 121*time.Second), true}, {"RUNNING", nil, true},
		{"RUNNING", owner(me.Host, me.PID, time.Hour), false}, {"QUEUED", owner("elsewhere", 1, 100*time.Second), false},
	}
	err := p.docs.Transact(t.Context(), func(tx document.Store) error {
		for n := range 600 {
			if err := tx.Insert(t.Context(), "runs", record(1000+n, "COMPLETED", gone)); err != nil {
				return err
			}
		}
		for n, c := range cases {
			if err := tx.Insert(t.Context(), "runs", record(n, c.status, c.owner)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	// One that the queue of this program holds is behind as many ended ones, and is taken up.
	left := runner.NewRecord(runner.LocalType, runner.Request{TaskID: id, TaskVersion: 1, Instance: "t-ours"})
	if err := w.process(dead()).records.Add(t.Context(), left, true); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		<-p.start(local.Config{Once: true}).Done()
	}
	p.until(left.ID, runner.Completed)
	for n, c := range cases {
		got, err := p.records.Get(t.Context(), fmt.Sprintf("local-%032x", n))
		if err != nil {
			t.Fatal(err)
		}
		want := record(n, c.status, c.owner)
		if c.lost {
			want.Set("status", "FAILED").Set("error", "interrupted by a hub restart").Set("outcome_class", string(task.Infrastructure)).Set("finished_at_utc", got.Finished)
		}
		if !doc.Equal(got.Document, want) || c.lost != (got.Finished != "") || w.times(got.Instance, "a") != 0 {
			t.Errorf("%s, %s: it is\n%s", c.status, doc.Canonical(c.owner), doc.Canonical(got.Document))
		}
	}
}

// TestFailuresOfAnEarlierRun continue with a run: an entry that names a step which does not run again says nothing about this run, one that
// nobody can read does.
func TestFailuresOfAnEarlierRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.process(sandbox.Process{})
	id := p.task(runnertest.Nothing("a"), runnertest.Nothing("b"))
	r := p.start(local.Config{Own: true})
	for name, c := range map[string]struct {
		entry any
		want  runner.Status
	}{
		"of a step that does not run again": {doc.Of("step_id", "a", "error", "old"), runner.Completed},
		"of a step that runs again":         {doc.Of("step_id", "b", "error", "old"), runner.Completed},
		"made good by a retry":              {doc.Of("step_id", "a", "error", "old", "retried", true), runner.Completed},
		"no object":                         {"a legacy line", runner.Failed},
	} {
		h := p.submit(r, runner.Request{TaskID: id, Metadata: doc.Of("start_step", doc.Int(1), "failed_steps", []any{c.entry})})
		rec := p.until(h.Run, c.want)
		if c.want == runner.Failed && !strings.Contains(rec.Error, "a legacy line") {
			t.Errorf("%s: the error is %q", name, rec.Error)
		}
		if in, err := p.instances.Get(t.Context(), h.Instance); err != nil || in.Status != "completed" {
			t.Errorf("%s: %+v, %v", name, in, err)
		}
	}
}
