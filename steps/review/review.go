// Package review is the step that waits for a person: an operator looks at what there is so far and lets the run go on, or ends it.
package review

import (
	"context"
	"time"

	"agentenv/fault"
	"agentenv/store/doc"
	"agentenv/task"
)

// How much of a reply is shown to whoever decides.
const (
	maxStructured = 16_000
	maxText       = 4_000
)

const (
	defaultTimeout = 3 * time.Hour
	defaultPoll    = 5 * time.Second
)

// Deps are what the step works with.
type Deps struct{ Reviews *task.Reviews }

// Types returns the step type review.
func Types(d Deps) []*task.StepType {
	return []*task.StepType{{
		Name:    "review",
		Summary: "Wait until an operator lets the run go on or ends it",
		Family:  "agents",
		Doc: "`agent-env review list` shows what waits, with the newest reply of an agent; `agent-env review continue` and `abort` decide, from any " +
			"process on the same state folder. A decision to continue stays through retries and resumes; after an abort, a resume asks anew.",
		FailsTask:  true,
		Repeatable: true,
		Fields: []task.Field{
			{Name: "label", Kind: task.String, Doc: "what is to be decided, for whoever decides"},
			{Name: "timeout_seconds", Kind: task.NumberKind, Default: doc.Int(10800), Doc: "how long it waits before it fails"},
			{Name: "poll_interval_seconds", Kind: task.NumberKind, Default: doc.Int(5), Doc: "how often it looks; 0 or less means 5"},
		},
		Parse: func(_ string, f *doc.Object) (task.Action, *doc.Object, error) {
			a := &action{reviews: d.Reviews, label: f.Str("label"), timeout: seconds(f, "timeout_seconds", defaultTimeout), poll: seconds(f, "poll_interval_seconds", defaultPoll)}
			if a.poll <= 0 {
				a.poll = defaultPoll
			}
			return a, nil, nil
		},
	}}
}

func seconds(f *doc.Object, name string, unset time.Duration) time.Duration {
	n, ok := f.Value(name).(doc.Number)
	if !ok {
		return unset
	}
	return time.Duration(min(n.Float64(), float64(1<<32)) * float64(time.Second))
}

type action struct {
	reviews       *task.Reviews
	label         string
	timeout, poll time.Duration
}

// Execute registers the review and waits for its decision.
func (a *action) Execute(ctx context.Context, r *task.Run) error {
	if r.Instance == "" {
		return fault.New(fault.Invalid, "review needs a run that is recorded: nobody could find it otherwise")
	}
	stands, err := a.reviews.Register(ctx, task.Review{Instance: r.Instance, StepID: r.StepID, Label: a.label, Upstream: upstream(r)}, r.Epoch)
	if err != nil {
		return fault.At(err, "register the review")
	}
	if stands.State == task.Awaiting {
		r.Report(task.Progress{What: "waiting", Note: "waits for a decision: agent-env review continue|abort " + r.Instance + " " + r.StepID})
	}
	if stands.State == task.Awaiting {
		tooLong := fault.New(fault.Timeout, "nobody decided within %s", a.timeout)
		ctx, cancel := context.WithTimeoutCause(ctx, a.timeout, tooLong)
		defer cancel()
		stands, err = a.reviews.Wait(ctx, r.Instance, r.StepID, a.poll)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			return fault.At(err, "look for the decision")
		}
	}
	if stands.State != task.Continue {
		return fault.New(fault.Internal, "the review was aborted by %s", who(stands))
	}
	r.Set(doc.Of("decision", stands.State, "decided_by", nullable(stands.DecidedBy)), "review_decisions", r.StepID)
	return nil
}

func who(r task.Review) string {
	if r.DecidedBy == "" {
		return "somebody who gave no name"
	}
	return r.DecidedBy
}

func nullable(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// upstream is what there is to decide on: the newest structured reply, else the newest reply's text, else nothing.
func upstream(r *task.Run) *doc.Object {
	all := r.PromptResponses()
	for i := len(all) - 1; i >= 0; i-- {
		v := all[i].Value("structured_output")
		if v == nil {
			continue
		}
		o := doc.Of("step_id", all[i].Value("step_id"), "structured_output", v)
		text, err := doc.Marshal(o)
		if err == nil && len([]rune(string(text))) > maxStructured {
			return doc.Of("_truncated", true, "note", "the reply is too long to be shown whole; the run's record holds it", "preview", string([]rune(string(text))[:maxStructured]))
		}
		return o
	}
	if len(all) == 0 {
		return &doc.Object{}
	}
	last := all[len(all)-1]
	text := []rune(last.Str("response"))
	return doc.Of("step_id", last.Value("step_id"), "response", string(text[:min(len(text), maxText)]))
}
