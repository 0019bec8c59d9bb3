package cli

import (
	"bytes"
	"testing"

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

func TestTaskLines(t *testing.T) {
	t.Parallel()
	b := newBench(t, map[string]string{"t.json": `[{"type":"plain","id":"a"},{"type":"fixed","id":"b"},{"type":"checked","id":"c"}]`})
	b.prints("task create @/t.json --id t", "Reading steps from @/t.json...\n  Step 1/3: plain id=a version=1\n  Step 2/3: fixed id=b version=1\n"+
		"  Step 3/3: checked id=c version=1\nCreating task 't' with 3 steps...\nCreated task: id=t version=1 steps=3\n")
	b.prints("task validate --id t", "Task t version=1: 1 of 3 steps have preflight checks, none found a problem.\n")
}
