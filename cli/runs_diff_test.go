package cli

import (
	"strings"
	"testing"

	"agentenv/store/doc"
)

// TestRunsDiff compares a run with one that went otherwise, and with itself.
func TestRunsDiff(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	s, err := b.app.Open(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{
		`{"instance_id":"t-1","task_id":"t","task_version":1,"status":"completed","outcome_class":"passed","total_steps":2,"current_step":2,
			"created_at_precise_utc":"2026-01-01T00:00:00.000000+00:00","ended_at_precise_utc":"2026-01-01T00:00:02.500000+00:00",
			"completed_steps":[{"step_id":"a","status":"success"},{"step_id":"b","status":"success"}],"step_outcomes":{"a":"passed","b":"passed"},
			"context":{"metadata":{"run_group_id":"g1","seed":{"n":1},"verifications":{"v":{"score":1}}}}}`,
		`{"instance_id":"t-2","task_id":"t","task_version":2,"status":"failed","outcome_class":"infrastructure","total_steps":2,"current_step":1,"error":"no engine\nat all",
			"completed_steps":[{"step_id":"a","status":"success"},{"step_id":"b","status":"failure"}],"step_outcomes":{"a":"passed","b":"infrastructure"},
			"context":{"metadata":{"run_group_id":"g2","seed":{"n":2},"failed_steps":[{"step_id":"b","error":"no engine","error_type":"RuntimeError","is_fatal":true}]}}}`} {
		d, err := doc.ParseObject([]byte(text), doc.Options{})
		if err == nil {
			err = s.Documents.Insert(t.Context(), "task_instances", d)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	code, out, errs := b.run("runs", "diff", "t-1", "t-2")
	var got strings.Builder
	for line := range strings.Lines(out) {
		got.WriteString(strings.Join(strings.Fields(line), " ") + "\n")
	}
	want := `RUN t-1 t-2
took 2.5 s
task t t
* version 1 2
* status completed failed
* class passed infrastructure
* error – no engine
step a success passed success passed
* step b success passed failure infrastructure
* score v 1 –
* failure b – RuntimeError: no engine
* metadata seed
`
	if code != 0 || got.String() != want {
		t.Errorf("exit code %d: %s\ngot:\n%s\nwant:\n%s", code, errs, got.String(), want)
	}
	_, out, _ = b.run("runs", "diff", "t-1", "t-2", "--json")
	d, err := doc.ParseObject([]byte(out), doc.Options{})
	if err != nil || d.Bool("same") || len(d.Arr("steps")) != 2 || !doc.Equal(d.Value("metadata"), []any{"seed"}) ||
		!doc.Equal(d.Value("scores"), []any{doc.Of("name", "v", "a", "1", "b", nil, "same", false)}) {
		t.Errorf("%v\n%s", err, out)
	}
	if _, out, _ := b.run("runs", "diff", "t-1", "t-1"); !strings.Contains(out, "The runs are alike.") || strings.Contains(out, "*") {
		t.Errorf("a run with itself:\n%s", out)
	}
	if code, _, errs := b.run("runs", "diff", "t-1", "none"); code != 1 || !strings.Contains(errs, "none") {
		t.Errorf("exit code %d: %s", code, errs)
	}
	if code, _, _ := b.run("runs", "diff", "t-1"); code != 2 {
		t.Errorf("one run alone: exit code %d", code)
	}
}
