package cli

import (
	"strings"
	"testing"

	"agentenv/store/doc"
)

// TestRunsShowTime shows where the time of a run went: two steps at once, an attempt that was undone, a failure that was tried again, and what lies between.
func TestRunsShowTime(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	s, err := b.app.Open(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	row := func(id, step, start, end string) string {
		return `{"instance_id":"` + id + `","step_id":"` + step + `","seq":2,"generation":0,"status":"success","recorded_at":"2026-01-01T00:00:` + end + `+00:00","ops":{"started_at":"2026-01-01T00:00:` + start + `+00:00"}}`
	}
	for _, text := range [][2]string{
		{"task_instances", `{"instance_id":"t-1","task_id":"t","task_version":1,"status":"completed","run_generation":0,"created_at_precise_utc":"2026-01-01T00:00:00.000000+00:00",
			"ended_at_precise_utc":"2026-01-01T00:00:10.000000+00:00","undone_attempts":[{"step_id":"b","status":"success","started_at":"2026-01-01T00:00:01.000000+00:00","recorded_at":"2026-01-01T00:00:01.500000+00:00"}],
			"completed_steps":[{"step_id":"a","status":"success"},{"step_id":"b","status":"success"},{"step_id":"c","status":"success"}],
			"context":{"metadata":{"failed_steps":[{"step_id":"c","error":"boom","started_at_utc":"2026-01-01T00:00:06.000000+00:00","duration_seconds":1.0,"retried":true}]}}}`},
		{"task_instances", `{"instance_id":"t-2","task_id":"t","task_version":1,"status":"running"}`},
		{"task_step_journal", row("t-1", "a", "01.000000", "05.000000")},
		{"task_step_journal", row("t-1", "b", "02.000000", "06.000000")},
		{"task_step_journal", row("t-1", "c", "08.000000", "09.500000")},
	} {
		d, err := doc.ParseObject([]byte(text[1]), doc.Options{})
		if err == nil {
			err = s.Documents.Insert(t.Context(), text[0], d)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	code, out, errs := b.run("runs", "show", "--time", "t-1")
	var got strings.Builder
	for line := range strings.Lines(out) {
		got.WriteString(strings.Join(strings.Fields(line), " ") + "\n")
	}
	want := `STEP BEGAN AFTER TOOK OF THE RUN
a 1.0 s 4.0 s 40 % success
b 1.0 s 0.5 s 5 % success, undone
b 2.0 s 4.0 s 40 % success
c 6.0 s 1.0 s 10 % failure, tried again
c 8.0 s 1.5 s 15 % success
between steps 2.5 s 25 %
the run 10.0 s 100 %
`
	if code != 0 || !strings.HasPrefix(got.String(), want) {
		t.Errorf("exit code %d: %s\ngot:\n%s\nwant:\n%s", code, errs, got.String(), want)
	}
	_, out, _ = b.run("runs", "show", "--time", "--json", "t-1")
	d, err := doc.ParseObject([]byte(out), doc.Options{})
	if err != nil || len(d.Obj("time").Arr("attempts")) != 5 || !doc.Equal(d.Obj("time").Value("between_steps_seconds"), doc.Float(2.5)) {
		t.Errorf("%v\n%s", err, out)
	}
	if code, out, _ := b.run("runs", "show", "--time", "t-2"); code != 0 || !strings.Contains(out, "holds no times") {
		t.Errorf("a run without times: exit code %d: %s", code, out)
	}
}
