package cli

import (
	"cmp"
	"context"

	"github.com/spf13/cobra"

	"agentenv/runner"
	"agentenv/store/doc"
	"agentenv/task"
)

func (a *App) runsCommand() *cobra.Command {
	return newGroup("runs", "The runs on record, and the queue", a.runsList(), a.runsShow(), a.runsDiff(), a.runsLogs(), a.runsWork(), a.runsCancel(), a.runsRm())
}

// interruptedStatus is what is shown of a run whose process is gone, beside the statuses on record.
const interruptedStatus = "interrupted"

// interrupted reports whether the process that ran a run is gone, although the record says that it goes on. A process that is gone may have ended
// its run since the record was read.
func interrupted(s *Services, in *task.Instance) bool {
	_, limited := in.Document.Get("end_step")
	if in.Status != "running" || limited || s.OwnerAlive(in) {
		return false
	}
	now, err := s.Instances.Get(context.Background(), in.ID)
	return err != nil || now.Status == "running"
}

// statusOf is a run's status for people.
func statusOf(s *Services, in *task.Instance) string {
	if interrupted(s, in) {
		return interruptedStatus
	}
	return in.Status
}

func brief(text string, most int) string {
	if r := []rune(text); len(r) > most {
		return string(r[:most]) + "…"
	}
	return text
}

// null is a text, or JSON's null for an empty one.
func null(text string) any {
	if text == "" {
		return nil
	}
	return text
}

// runDocument is a run as the commands print it; rec may be nil. The reference keeps the times of instances to the minute only.
func runDocument(s *Services, in *task.Instance, rec *runner.Record) *doc.Object {
	began := cmp.Or(in.Document.Str("created_at_precise_utc"), in.CreatedAt)
	ended := cmp.Or(in.Document.Str("ended_at_precise_utc"), in.CompletedAt)
	id := in.ID
	if rec != nil {
		id = rec.ID
	}
	return doc.Of("run_id", id, "instance_id", in.ID, "task_id", in.TaskID, "task_version", doc.Int(in.TaskVersion),
		"run_group_id", null(in.Context.Obj("metadata").Str("run_group_id")), "status", in.Status, "interrupted", interrupted(s, in),
		"outcome_class", null(string(in.Class)), "created_at", began, "ended_at", null(ended),
		"steps_done", doc.Int(in.CurrentStep), "steps_total", doc.Int(in.TotalSteps), "error", null(in.Error))
}
