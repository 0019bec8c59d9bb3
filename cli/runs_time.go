package cli

import (
	"fmt"
	"slices"
	"text/tabwriter"
	"time"

	"agentenv/store/doc"
	"agentenv/task"
)

// spent is where the time of a run went.
type spent struct {
	began    time.Time
	total    time.Duration // 0 = not known
	attempts []timedAttempt
	between  time.Duration // no step ran: scheduling, commits, waiting before a retry or for a resume
}

// timedAttempt is one attempt of a step, as far as its times are on record.
type timedAttempt struct {
	step, how  string
	start, end time.Time
}

// spent works out the times of a run. A step that is under way, or was when the run was cancelled, has none.
func (v *runView) spent() *spent {
	s := &spent{}
	s.began, _ = time.Parse(time.RFC3339Nano, v.in.Document.Str("created_at_precise_utc"))
	var ended time.Time
	add := func(step, how, start string, end func(time.Time) (time.Time, error)) {
		from, err := time.Parse(time.RFC3339Nano, start)
		if err != nil {
			return
		}
		if to, err := end(from); err == nil && !to.Before(from) {
			s.attempts = append(s.attempts, timedAttempt{step, how, from, to})
			if to.After(ended) {
				ended = to
			}
		}
	}
	recorded := map[string]bool{} // failures that the run went on after have a row
	for i, row := range slices.Concat(v.rows, v.in.Undone()) {
		if row.StartedAt != "" {
			recorded[row.StepID+row.StartedAt] = true
			how := row.Status
			if i >= len(v.rows) {
				how += ", undone"
			}
			add(row.StepID, how, row.StartedAt, func(time.Time) (time.Time, error) { return time.Parse(time.RFC3339Nano, row.RecordedAt) })
		}
	}
	for _, f := range task.Failures(v.in.Context) {
		how := "failure"
		if f.Retried {
			how = "failure, tried again"
		}
		if !recorded[f.StepID+f.StartedAt] {
			add(f.StepID, how, f.StartedAt, func(from time.Time) (time.Time, error) {
				return from.Add(time.Duration(f.Seconds * float64(time.Second))), nil
			})
		}
	}
	slices.SortStableFunc(s.attempts, func(a, b timedAttempt) int { return a.start.Compare(b.start) })
	if at, err := time.Parse(time.RFC3339Nano, v.in.Document.Str("ended_at_precise_utc")); err == nil && at.After(ended) {
		ended = at
	}
	if s.began.IsZero() || ended.IsZero() {
		return s
	}
	s.total = ended.Sub(s.began)
	free := s.began // everything before it is accounted for
	for _, a := range s.attempts {
		if a.start.After(free) {
			s.between += a.start.Sub(free)
		}
		if a.end.After(free) {
			free = a.end
		}
	}
	if ended.After(free) {
		s.between += ended.Sub(free)
	}
	return s
}

func (a *App) showTimes(v *runView) error {
	s := v.spent()
	if s.total == 0 || len(s.attempts) == 0 {
		fmt.Fprintf(a.Stdout, "The record of %s holds no times of steps.\n", v.in.ID)
		return nil
	}
	share := func(d time.Duration) string {
		return fmt.Sprintf("%.1f s\t%.0f %%", d.Seconds(), 100*d.Seconds()/s.total.Seconds())
	}
	w := tabwriter.NewWriter(a.Stdout, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "STEP\tBEGAN AFTER\tTOOK\tOF THE RUN\t")
	for _, t := range s.attempts {
		fmt.Fprintf(w, "%s\t%.1f s\t%s\t%s\n", t.step, t.start.Sub(s.began).Seconds(), share(t.end.Sub(t.start)), t.how)
	}
	fmt.Fprintf(w, "between steps\t\t%s\t\n", share(s.between))
	fmt.Fprintf(w, "the run\t\t%s\t\n", share(s.total))
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(a.Stdout, "\nSteps that ran at the same time count each for itself. `agent-env --trace FILE run …` tells what a step did meanwhile.")
	return nil
}

func (s *spent) document() *doc.Object {
	list := []any{}
	for _, t := range s.attempts {
		list = append(list, doc.Of("step_id", t.step, "status", t.how, "began_after_seconds", doc.Float(t.start.Sub(s.began).Seconds()), "seconds", doc.Float(t.end.Sub(t.start).Seconds())))
	}
	return doc.Of("seconds", doc.Float(s.total.Seconds()), "between_steps_seconds", doc.Float(s.between.Seconds()), "attempts", list)
}
