package runner

import (
	"time"

	"agentenv/store/doc"
	"agentenv/task"
)

// LocalType is the runner of the records of our own queue. It is not the reference's `local`: a hub of the reference marks records
// of that type as failed for good when the process in them is gone.
const LocalType = "agent-env-local"

// ReferenceType is the runner of the reference's own records. Its runs live in the memory of their process: nobody goes on with them.
const ReferenceType = "local"

// stamp is how times stand in records.
func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000000+00:00") }

func textOrNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// overrides is what a request asked for beside its task, as it may be stored.
func overrides(req Request) *doc.Object {
	meta := req.Metadata
	if meta == nil {
		meta = &doc.Object{}
	}
	return doc.Of("agent_model", textOrNull(req.AgentModel), "agent_artifact_id", textOrNull(req.AgentArtifactID), "metadata", task.Redact(meta))
}

// document is a new record in its stored form: the reference's fields, then ours where they say something.
func (r *Record) document() *doc.Object {
	d := doc.Of("run_id", r.ID, "runner", r.Runner, "task_id", r.TaskID, "task_version", nil, "instance_id", r.Instance, "status", string(r.Status),
		"created_at_utc", r.Created, "started_at_utc", textOrNull(r.Started), "finished_at_utc", textOrNull(r.Finished), "error", textOrNull(r.Error),
		"overrides", r.Overrides, "owner", nil)
	if r.TaskVersion > 0 {
		d.Set("task_version", doc.Int(r.TaskVersion))
	}
	if r.Owner != nil {
		d.Set("owner", r.Owner)
	}
	if r.Continues {
		d.Set("continues", true)
	}
	if limits := r.Limits.Document(); limits != nil {
		d.Set("limits", limits)
	}
	if r.Withheld {
		d.Set("secrets_withheld", true)
	}
	if r.Context != nil {
		d.Set("initial_context", task.Redact(r.Context))
	}
	return d
}

func recordFrom(d *doc.Object) *Record {
	if d == nil {
		return nil
	}
	r := &Record{ID: d.Str("run_id"), Runner: d.Str("runner"), TaskID: d.Str("task_id"), Instance: d.Str("instance_id"), Status: Status(d.Str("status")),
		Class: task.Class(d.Str("outcome_class")), Created: d.Str("created_at_utc"), Started: d.Str("started_at_utc"), Finished: d.Str("finished_at_utc"),
		Error: d.Str("error"), Overrides: d.Obj("overrides"), Owner: d.Obj("owner"), Cancel: d.Str("cancel"), Continues: d.Bool("continues"),
		Withheld: d.Bool("secrets_withheld"), Context: d.Obj("initial_context"), Limits: task.LimitsFrom(d.Obj("limits")), Document: d}
	r.TaskVersion, _ = d.Int("task_version")
	return r
}
