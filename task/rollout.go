package task

import (
	"slices"
	"time"

	"agentenv/store/doc"
)

// Rollout returns a run that this process ran as a Tally counts it. t is the task that ran, for its id and version.
func (r *Result) Rollout(t *Task) Rollout {
	return Rollout{TaskID: t.ID, Version: t.Version, Class: classWith(r.Class, r.Failures), Scores: r.Scores, Seconds: r.Seconds, Usage: UsageOf(r.Context)}
}

// Rollout returns a stored run as a Tally counts it. t is the task as it ran, for the names of its scores; nil is allowed. The seconds are
// from the run's beginning to its end on record, with the time that it lay idle before a resume; 0 when the record has them to the minute
// only, as the reference writes it. A run recorded without a class gets one from its status and its failures; one that has not ended
// has none.
func (in *Instance) Rollout(t *Task) Rollout {
	return Rollout{TaskID: in.TaskID, Version: in.TaskVersion, Class: in.EndClass(), Scores: Scores(t, in.Context), Seconds: in.seconds(), Usage: UsageOf(in.Context)}
}

// EndClass returns the outcome class of a stored run: the one on record, else, for a record without one, what its status and its
// failures say. "" for a run that has not ended.
func (in *Instance) EndClass() Class {
	class := in.Class
	if class == "" {
		class = map[string]Class{"completed": Passed, "failed": Failed, "cancelled": Cancelled}[in.Status]
	}
	return classWith(class, Failures(in.Context))
}

// classWith is the class of a run with these failures: one that was not retried, such as a resume carries over, leaves no run passed.
func classWith(class Class, failures []Failure) Class {
	if class == Passed && slices.ContainsFunc(failures, func(f Failure) bool { return !f.Retried }) {
		return Failed
	}
	return class
}

func (in *Instance) seconds() float64 {
	at := func(key string) time.Time {
		t, _ := time.Parse(time.RFC3339Nano, in.Document.Str(key))
		return t
	}
	began, ended := at("created_at_precise_utc"), at("ended_at_precise_utc")
	if began.IsZero() || ended.IsZero() {
		return 0
	}
	return max(ended.Sub(began).Seconds(), 0)
}

// Document returns the tally as it is printed and stored.
func (t Tally) Document() *doc.Object { return doc.MustFrom(t).(*doc.Object) }
