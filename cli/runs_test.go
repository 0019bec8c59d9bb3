package cli

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	"agentenv/store/doc"
)

// TestRunsList lists runs that ended, one that goes on and one whose process is gone.
func TestRunsList(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	open := b.app.Open
	b.app.Open = func(ctx context.Context, log *slog.Logger) (*Services, error) {
		s, err := open(ctx, log)
		if err == nil {
			s.OwnerAlive = func(o *doc.Object) bool { return o.Str("start") == "alive" }
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
