package cli

import (
	"context"
	"fmt"
	"io"
	"time"

	"agentenv/fault"
	"agentenv/runner"
	"agentenv/task"
)

// watchPause is how often a run that another process may run is looked at.
const watchPause = 200 * time.Millisecond

// whileRunning calls look with what is known of a run, again and again until it has ended or nobody runs it any more; the last call sees that.
// Whether it goes on is told by what look was given, so that nothing which came before the end is missed.
func whileRunning(ctx context.Context, s *Services, in *task.Instance, look func(*task.Instance) error) error {
	for {
		if err := look(in); err != nil {
			return err
		}
		if in.Status != "running" || interrupted(s, in) {
			return nil
		}
		if err := rest(ctx); err != nil {
			return err
		}
		var err error
		if in, err = s.Instances.Get(ctx, in.ID); err != nil {
			return err
		}
	}
}

func rest(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(watchPause):
		return nil
	}
}

// begun returns a run once it has begun; one that is queued is waited for.
func begun(ctx context.Context, s *Services, id string, say func(string)) (*task.Instance, error) {
	for waits := false; ; waits = true {
		in, err := instance(ctx, s, id)
		if !fault.Is(err, fault.NotFound) {
			return in, err
		}
		rec, bad := recordOf(ctx, s, id)
		if bad != nil || rec == nil || rec.Status.Terminal() {
			return nil, err
		}
		if !waits && rec.Status == runner.Queued {
			say(fmt.Sprintf("%s: queued", rec.Instance))
		}
		if err := rest(ctx); err != nil {
			return nil, err
		}
	}
}

// followRun says how a run goes until it ends: a line for each step that ended, again when it ended again after it was undone.
func followRun(ctx context.Context, s *Services, id string, out io.Writer) error {
	say := func(line string) { fmt.Fprintln(out, line) }
	in, err := begun(ctx, s, id, say)
	if err != nil {
		return err
	}
	say(fmt.Sprintf("%s: %s, task %s v%d, %d steps", in.ID, statusOf(s, in), in.TaskID, in.TaskVersion, in.TotalSteps))
	told := map[string]bool{}
	return whileRunning(ctx, s, in, func(in *task.Instance) error {
		done := map[string]bool{}
		for _, c := range in.Completed {
			done[c.StepID] = true
			if told[c.StepID] {
				continue
			}
			line := fmt.Sprintf("[%d/%d] %s: %s", len(done), in.TotalSteps, c.StepID, c.Status)
			if c.Class != "" {
				line += ", " + string(c.Class)
			}
			say(line)
		}
		for id := range told {
			if !done[id] {
				say(id + ": undone, it runs again")
			}
		}
		told = done
		return nil
	})
}
