package cli

import (
	"strings"
	"testing"

	"agentenv/store/doc"
	"agentenv/task"
)

// TestReview lists what waits and decides it, once.
func TestReview(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	if code, out, _ := b.run("review", "list"); code != 0 || out != "Nothing waits for a decision.\n" {
		t.Fatalf("exit code %d: %q", code, out)
	}
	s, err := b.app.Open(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []string{"one", "two"} {
		if _, err := s.Reviews.Register(t.Context(), task.Review{Instance: "t-1", StepID: step, Label: "ship " + step + "?", Upstream: doc.Of("n", doc.Int(1))}, 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, out, _ := b.run("review", "list", "t-1"); !strings.Contains(out, "ship one?") || !strings.Contains(out, "ship two?") {
		t.Error(out)
	}
	if code, out, errs := b.run("review", "continue", "t-1", "one", "--by", "me"); code != 0 || !strings.Contains(out, "continue") {
		t.Errorf("exit code %d: %s%s", code, out, errs)
	}
	_, out, _ := b.run("review", "list", "--json")
	d, err := doc.ParseObject([]byte(out), doc.Options{})
	if err != nil || len(d.Arr("reviews")) != 1 {
		t.Errorf("%v\n%s", err, out)
	}
	if code, _, errs := b.run("review", "list", "t-none"); code != 1 || !strings.Contains(errs, "'t-none' not found") {
		t.Errorf("a run that is not there: exit code %d: %s", code, errs)
	}
	b.fill([]fixture{{"t-quiet", "completed", day, nil}})
	if code, out, errs := b.run("review", "list", "t-quiet"); code != 0 || out != "Nothing waits for a decision.\n" {
		t.Errorf("exit code %d: %s%s", code, out, errs)
	}
	for _, c := range [][]string{{"review", "abort", "t-1", "one"}, {"review", "abort", "t-1", "none"}} {
		code, _, errs := b.run(c...)
		if code != 1 || !strings.Contains(errs, "decided before: continue by me") && !strings.Contains(errs, `no review of step "none"`) {
			t.Errorf("%v: exit code %d: %s", c, code, errs)
		}
	}
	if code, _, _ := b.run("review", "perhaps", "t-1", "two"); code != 2 {
		t.Errorf("another decision: exit code %d", code)
	}
}
