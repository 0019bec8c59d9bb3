package task

import (
	"context"
	"fmt"

	"agentenv/fault"
	"agentenv/store/doc"
)

// StepError is the error with which a run ends when a step failed: it names the step, and its cause is the step's own error,
// whose text is what the instance records.
type StepError struct {
	StepID string
	Err    error
}

// Error returns one line: failed at step '<id>': <class>: <text>.
func (e *StepError) Error() string {
	return fmt.Sprintf("failed at step '%s': %s: %s", e.StepID, fault.ClassOf(e.Err), e.Err)
}

// Unwrap returns the step's own error.
func (e *StepError) Unwrap() error { return e.Err }

// Superseded is the error of a run whose instance was taken over by a later attempt.
type Superseded struct{ Instance, Step, Reason string }

// Error names the instance, the step whose result was refused, and why.
func (e *Superseded) Error() string {
	return fmt.Sprintf("instance %s: the result of step %q is refused, a later attempt owns the instance: %s", e.Instance, e.Step, e.Reason)
}

// Unwrap gives the error its kind, Conflict.
func (e *Superseded) Unwrap() error { return fault.New(fault.Conflict, "superseded") }

// ClassOf returns the outcome class of an error of a step or a run; nil is Passed.
func ClassOf(err error) Class {
	switch fault.KindOf(err) {
	case "":
		return Passed
	case fault.Timeout:
		return TimedOut
	case fault.Canceled:
		return Cancelled
	case fault.Unavailable:
		return Infrastructure
	case fault.Invalid, fault.NotFound, fault.Denied, fault.Unsupported, fault.Exists:
		return Configuration
	}
	return Failed
}

// cancelReason is the text recorded for a cancelled run.
func cancelReason(ctx context.Context) string {
	if err := context.Cause(ctx); err != nil && err != context.Canceled { //nolint:errorlint // only the bare error means that nobody gave a reason
		return err.Error()
	}
	return "cancelled"
}

// Failures returns the entries of metadata.failed_steps of a context. An entry that is no object, which old runs may hold,
// comes as a failure with its text alone.
func Failures(context *doc.Object) []Failure {
	var all []Failure
	for _, v := range context.Obj("metadata").Arr("failed_steps") {
		o, ok := v.(*doc.Object)
		if !ok {
			all = append(all, Failure{Error: plainText(v), Fatal: true, Class: Failed})
			continue
		}
		f := Failure{StepID: o.Str("step_id"), StepType: o.Str("step_type"), Error: o.Str("error"), ErrorType: o.Str("error_type"),
			Fatal: o.Bool("is_fatal"), Retried: o.Bool("retried"), Class: Failed, StartedAt: o.Str("started_at_utc")}
		if n, ok := o.Value("duration_seconds").(doc.Number); ok {
			f.Seconds = n.Float64()
		}
		all = append(all, f)
	}
	return all
}
