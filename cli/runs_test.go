package cli

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"agentenv/store/doc"
	"agentenv/store/document"
	"agentenv/task"
)

// TestRunsList lists runs that ended, one that goes on and one whose process is gone.
func TestRunsList(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	open := b.app.Open
	b.app.Open = func(ctx context.Context, log *slog.Logger) (*Services, error) {
		s, err := open(ctx, log)
		if err == nil {
			s.OwnerAlive = func(in *task.Instance) bool { return in.Owner.Str("start") == "alive" }
		}
		return s, err
	}
	if code, out, _ := b.run("runs", "list"); code != 0 || out != "No runs.\n" {
		t.Fatalf("exit code %d: %q", code, out)
	}
	s, err := b.app.Open(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, one := range [][4]string{{"t-1", "t", "completed", "passed"}, {"t-2", "t", "failed", "timed_out"}, {"u-3", "u", "running", ""}, {"u-4", "u", "running", ""}} {
		d := doc.Of("instance_id", one[0], "task_id", one[1], "task_version", doc.Int(1), "status", one[2], "total_steps", doc.Int(3), "current_step", doc.Int(i),
			"created_at_utc", "2026-01-01 00:00 UTC", "created_at_precise_utc", "2026-01-01T00:00:0"+string(rune('0'+i)), "context", doc.Of("metadata", doc.Of("run_group_id", "g")))
		if one[3] != "" {
			d.Set("outcome_class", one[3]).Set("ended_at_precise_utc", "2026-01-01T00:01:00").Set("error", "it broke\nbadly")
		}
		if err := s.Documents.Insert(t.Context(), "task_instances", d); err != nil {
			t.Fatal(err)
		}
	}
	for id, start := range map[string]string{"u-3": "alive", "u-4": "gone"} {
		if err := s.Documents.Insert(t.Context(), "task_run_heads", doc.Of("instance_id", id, "owner", doc.Of("start", start))); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args  string
		lines []string // the first words of each
	}{
		{"", []string{"INSTANCE STATUS CLASS", "u-4 interrupted 3/3", "u-3 running 2/3", "t-2 failed timed_out 1/3 2026-01-01 00:00 UTC it broke", "t-1 completed passed 0/3"}},
		{"--task t", []string{"INSTANCE", "t-2", "t-1"}},
		{"--status running --limit 1", []string{"INSTANCE", "u-4"}},
		{"--class timed_out", []string{"INSTANCE", "t-2"}},
	} {
		_, out, _ := b.run(append([]string{"runs", "list"}, strings.Fields(c.args)...)...)
		got := strings.Split(strings.TrimSpace(out), "\n")
		if len(got) != len(c.lines) {
			t.Errorf("%s:\n%s", c.args, out)
			continue
		}
		for i, line := range got {
			if !strings.HasPrefix(strings.Join(strings.Fields(line), " "), c.lines[i]) {
				t.Errorf("%s: line %d is %q, want %q", c.args, i, line, c.lines[i])
			}
		}
	}
	_, out, _ := b.run("runs", "list", "--json", "--task", "u", "--limit", "1")
	got, err := doc.ParseObject([]byte(out), doc.Options{})
	want := doc.Of("runs", []any{doc.Of("run_id", "u-4", "instance_id", "u-4", "task_id", "u", "task_version", doc.Int(1), "run_group_id", "g", "status", "running",
		"interrupted", true, "outcome_class", nil, "created_at", "2026-01-01T00:00:03", "ended_at", nil, "steps_done", doc.Int(3), "steps_total", doc.Int(3), "error", nil)})
	if err != nil || !doc.Equal(got, want) {
		t.Errorf("%v\n%s", err, out)
	}
	if code, _, errs := b.run("runs", "list", "--limit", "-1"); code != 2 || !strings.Contains(errs, "--limit") {
		t.Errorf("exit code %d: %s", code, errs)
	}
}

// TestRunsShow shows a run that failed after a retry, whose task is stored, and one whose task is not there.
func TestRunsShow(t *testing.T) {
	t.Parallel()
	b := newBench(t, map[string]string{"t.json": `[{"id":"a","type":"plain"},{"id":"b","type":"checked"},{"id":"c","type":"fixed"}]`})
	b.run("task", "create", "@/t.json", "--id", "t")
	s, err := b.app.Open(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	record := `{"instance_id":"t-1","task_id":"t","task_version":1,"status":"failed","outcome_class":"failed","total_steps":3,"current_step":1,"error":"it broke\nbadly",
		"created_at_utc":"2026-01-01 00:00 UTC","created_at_precise_utc":"2026-01-01T00:00:00.000000+00:00","ended_at_precise_utc":"2026-01-01T00:00:02.500000+00:00","run_generation":0,
		"completed_steps":[{"step_id":"a","status":"success"},{"step_id":"b","status":"failure"}],"step_outcomes":{"a":"passed","b":"failed"},
		"context":{"deployed_sandboxes":[{"sandbox_name":"box","sandbox_id":"local-1","sandbox_mode":"vm","sandbox_type":"local"}],
			"metadata":{"verifications":{"v":{"score":0.5}},"failed_steps":[{"step_id":"b","step_type":"checked","error":"one\ntwo","error_type":"ValueError","is_fatal":true,"retried":true},
				{"step_id":"b","step_type":"checked","error":"it broke","error_type":"RuntimeError","is_fatal":true}]}}}`
	row := `{"instance_id":"t-1","step_id":"a","seq":2,"generation":0,"status":"success","recorded_at":"2026-01-01T00:00:01.000000+00:00","ops":{}}`
	for coll, text := range map[string]string{"task_instances": record, "task_step_journal": row} {
		d, err := doc.ParseObject([]byte(text), doc.Options{})
		if err == nil {
			err = s.Documents.Insert(t.Context(), coll, d)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Documents.Insert(t.Context(), "task_instances", doc.Of("instance_id", "gone-1", "task_id", "gone", "task_version", doc.Int(3), "status", "running")); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	_, out, _ := b.run("runs", "show", "t-1")
	want := `t-1: failed, failed
Task t v1, began 2026-01-01 00:00 UTC, took 2.5 s
Error: it broke
badly

STEP TYPE STATUS CLASS ENDED AFTER
a plain success passed 1.0 s
b checked failure failed
c fixed not ended

Scores:
v: 0.5

Failures:
b: ValueError: one (tried again)
b: RuntimeError: it broke

Sandboxes:
box local-1 vm
`
	var got strings.Builder
	for line := range strings.Lines(out) {
		got.WriteString(strings.Join(strings.Fields(line), " ") + "\n")
	}
	if got.String() != want {
		t.Errorf("got:\n%s\nwant:\n%s", got.String(), want)
	}
	_, out, _ = b.run("runs", "show", "t-1", "--json")
	d, err := doc.ParseObject([]byte(out), doc.Options{})
	if err != nil || len(d.Arr("steps")) != 3 || len(d.Arr("failures")) != 2 || d.Str("status") != "failed" || !doc.Equal(d.Value("scores"), []any{doc.Of("step", "v", "value", doc.Float(0.5))}) {
		t.Errorf("%v\n%s", err, out)
	}
	if code, out, errs := b.run("runs", "show", "gone-1"); code != 0 || !strings.Contains(out, "Task gone v3") {
		t.Errorf("exit code %d: %s%s", code, out, errs)
	}
	if code, _, errs := b.run("runs", "show", "none"); code != 1 || !strings.Contains(errs, "none") {
		t.Errorf("exit code %d: %s", code, errs)
	}
}

// TestRunsLogs prints the log of a run, and follows one until its record says that it has ended.
func TestRunsLogs(t *testing.T) {
	t.Parallel()
	b := newBench(t, map[string]string{"logs/t-1.log": "one\n"})
	open := b.app.Open
	b.app.Open = func(ctx context.Context, log *slog.Logger) (*Services, error) {
		s, err := open(ctx, log)
		if err == nil {
			s.LogDir, s.OwnerAlive = filepath.Join(b.dir, "logs"), func(*task.Instance) bool { return true }
		}
		return s, err
	}
	s, err := b.app.Open(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, d := range []*doc.Object{doc.Of("instance_id", "t-1", "task_id", "t", "status", "running"), doc.Of("instance_id", "t-2", "task_id", "t", "status", "failed")} {
		if err := s.Documents.Insert(t.Context(), "task_instances", d); err != nil {
			t.Fatal(err)
		}
	}
	if code, out, errs := b.run("runs", "logs", "t-1"); code != 0 || out != "one\n" {
		t.Errorf("exit code %d: %q %s", code, out, errs)
	}
	for id, why := range map[string]string{"t-2": "there is no log of t-2", "none": "none"} {
		if code, _, errs := b.run("runs", "logs", id); code != 1 || !strings.Contains(errs, why) {
			t.Errorf("exit code %d: %s", code, errs)
		}
	}
	var ended sync.WaitGroup
	ended.Go(func() {
		time.Sleep(300 * time.Millisecond)
		f, err := os.OpenFile(filepath.Join(b.dir, "logs", "t-1.log"), os.O_APPEND|os.O_WRONLY, 0)
		if err == nil {
			_, err = f.WriteString("two\n")
			f.Close()
		}
		if err == nil {
			_, err = s.Documents.Update(context.Background(), "task_instances", document.By("instance_id", "t-1"), document.Update{Set: doc.Of("status", "completed")}, false)
		}
		if err != nil {
			t.Error(err)
		}
	})
	if code, out, errs := b.run("runs", "logs", "--follow", "t-1"); code != 0 || out != "one\ntwo\n" {
		t.Errorf("exit code %d: %q %s", code, out, errs)
	}
	ended.Wait()
}
