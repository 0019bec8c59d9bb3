package cli

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"agentenv/store/doc"
	"agentenv/task"
)

func TestInstanceLines(t *testing.T) {
	var out bytes.Buffer
	a := &App{Stdout: &out}
	err := a.printInstance(&task.Instance{ID: "t-1", TaskID: "t", TaskVersion: 2, TotalSteps: 3, CurrentStep: 3, Status: "completed", Class: "passed",
		CreatedAt: "2026-11-30 23:50 UTC", CompletedAt: "2026-11-30 23:51 UTC"})
	want := "Instance ID: t-1\nTask ID: t\nTask Version: 2\nStatus: completed\nProgress: 3/3\n" +
		"Created At (UTC): 2026-11-30 23:50 UTC\nCompleted At (UTC): 2026-11-30 23:51 UTC\n"
	if err != nil || out.String() != want {
		t.Errorf("%v\n%s\nwant\n%s", err, out.String(), want)
	}
}

func parseIdle(string, *doc.Object) (task.Action, *doc.Object, error) { return idle{}, nil, nil }

// TestStoredTaskIsShownAsItIs prints and checks what another program stored without a look at it.
func TestStoredTaskIsShownAsItIs(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	reg, err := task.NewRegistry(&task.StepType{Name: "plain", Parse: parseIdle}, &task.StepType{Name: "counted", Parse: parseIdle, Fields: []task.Field{{Name: "count", Kind: task.Integer}}})
	if err != nil {
		t.Fatal(err)
	}
	open := b.app.Open
	b.app.Open = func(ctx context.Context, log *slog.Logger) (*Services, error) {
		s, err := open(ctx, log)
		if err == nil {
			s.Registry, s.Tasks = reg, task.NewTasks(reg, s.Documents, nil, nil)
		}
		return s, err
	}
	steps := `[
  {
    "type": "plain",
    "id": "a",
    "version": "1",
    "project_id": 7
  },
  {
    "id": "b",
    "type": "counted",
    "count": "many"
  },
  {
    "id": "b",
    "type": "nobody knows"
  }
]`
	s, err := b.app.Open(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for id, text := range map[string]string{"all": steps, "first": steps[:strings.LastIndex(steps, ",\n  {")] + "\n]"} {
		d, err := doc.ParseObject([]byte(`{"id":"`+id+`","type":"task","version":1,"steps":`+text+`}`), doc.Options{})
		if err == nil {
			err = s.Documents.Insert(t.Context(), "tasks", d)
		}
		if err != nil {
			t.Fatal(err)
		}
		b.prints("task get --id "+id, text+"\n")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if code, _, errs := b.run("task", "validate", "--id", "all"); code != 1 || !strings.Contains(errs, "nobody knows") {
		t.Errorf("a type that is not known: exit code %d, %s", code, errs)
	}
	code, _, errs := b.run("task", "validate", "--id", "first")
	want := "  step \"b\" (position 1, counted): field \"count\" needs an integer, not string \"many\"\nError: task first version=1 has 1 problem\n"
	if code != 1 || errs != want {
		t.Errorf("exit code %d\n%s\nwant\n%s", code, errs, want)
	}
	b.prints("task get --id first", steps[:strings.LastIndex(steps, ",\n  {")]+"\n]\n")
}

func TestTaskLines(t *testing.T) {
	t.Parallel()
	b := newBench(t, map[string]string{"t.json": `[{"type":"plain","id":"a"},{"type":"fixed","id":"b"},{"type":"checked","id":"c"}]`})
	b.prints("task create @/t.json --id t", "Reading steps from @/t.json...\n  Step 1/3: plain id=a version=1\n  Step 2/3: fixed id=b version=1\n"+
		"  Step 3/3: checked id=c version=1\nCreating task 't' with 3 steps...\nCreated task: id=t version=1 steps=3\n")
	b.prints("task validate --id t", "Task t version=1: 1 of 3 steps have preflight checks, none found a problem.\nLimits: none\n")
	// Limits come with bundles and stored tasks; the reference's `task create` takes no task in object form.
	s, err := b.app.Open(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	d, err := doc.ParseObject([]byte(`{"id":"lim","type":"task","version":1,"max_parallel_steps":2,"fail_fast":true,"steps":[{"type":"plain","id":"a","version":1,"step_timeout_seconds":30},
		{"type":"plain","id":"b","version":1},{"type":"plain","id":"c","version":1,"step_timeout_seconds":1.5}]}`), doc.Options{})
	if err == nil {
		err = s.Documents.Insert(t.Context(), "tasks", d)
	}
	if err = errors.Join(err, s.Close()); err != nil {
		t.Fatal(err)
	}
	b.prints("task validate --id lim", "Task lim version=1: 0 of 3 steps have preflight checks, none found a problem.\nLimits: max_parallel_steps 2; fail_fast true; step_timeout_seconds of a 30, c 1.5\n")
}
