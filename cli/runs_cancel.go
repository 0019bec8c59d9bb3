package cli

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"agentenv/fault"
	"agentenv/runner"
	"agentenv/runner/local"
	"agentenv/store/doc"
	"agentenv/task"
)

// awaitedAtOnce bounds how many runs are looked at side by side, until they have ended.
const awaitedAtOnce = 16

// answerWait is how long cancel waits for the process that runs a run: it hears of the request within a second, then the run has to unwind.
const answerWait = 90 * time.Second

func (a *App) runsCancel() *cobra.Command {
	var reason string
	var asJSON bool
	var group string
	cmd := &cobra.Command{Use: "cancel RUN|INSTANCE...", Short: "Cancel runs, whichever process runs them",
		Long: "Asks the process that runs a run to end it, and waits until it has; a request that it does not answer stays and is obeyed later. A queued run never begins. A run whose " +
			"process is gone is recorded as cancelled at once, and what it left up is named. A run that has ended stays as it is. With --group, all runs of a run group that have not ended " +
			"are cancelled, those that wait first. Exits 1 when one could not be cancelled.",
		Args: func(cmd *cobra.Command, args []string) error {
			given := cmd.Flags().Changed("group")
			switch {
			case given && group == "":
				return usagef(cmd, "--group is empty")
			case given && len(args) > 0:
				return usagef(cmd, "--group names the runs; it does not go with RUN or INSTANCE")
			case !given:
				return cobra.MinimumNArgs(1)(cmd, args)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.with(cmd, func(ctx context.Context, s *Services) error {
				if group != "" {
					var err error
					if args, err = openOf(ctx, s, group); err != nil {
						return err
					}
				}
				return a.cancelRuns(ctx, s, args, reason, asJSON)
			})
		}}
	cmd.Flags().StringVar(&group, "group", "", "cancel the runs of this run group")
	cmd.Flags().StringVar(&reason, "reason", "cancelled by `agent-env runs cancel`", "why, as the run's record will say")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	return cmd
}

// cancellation is what became of one request.
type cancellation struct {
	id       string // as it was asked for
	rec      *runner.Record
	instance string
	asked    bool // it had not ended
	gone     bool // its process was
	asking   time.Time
	up       []task.KeptSandbox
	err      error
}

func (a *App) cancelRuns(ctx context.Context, s *Services, ids []string, reason string, asJSON bool) error {
	r := s.Runner(local.Config{})
	all := make([]*cancellation, len(ids))
	for i, id := range ids {
		all[i] = askToCancel(ctx, s, r, id, reason)
	}
	var wait sync.WaitGroup
	turn := make(chan struct{}, awaitedAtOnce)
	for _, c := range all {
		wait.Go(func() {
			turn <- struct{}{}
			defer func() { <-turn }()
			c.await(ctx, s)
		})
	}
	wait.Wait()
	failed := false
	out := []any{}
	for _, c := range all {
		failed = failed || c.err != nil
		if asJSON {
			out = append(out, c.document())
			continue
		}
		a.sayCancelled(c)
	}
	if len(all) == 0 && !asJSON {
		fmt.Fprintln(a.Stdout, "Nothing to cancel: the runs of this group have ended.")
	}
	if asJSON {
		if err := a.printJSON(doc.Of("runs", out)); err != nil {
			return err
		}
	}
	if failed {
		return exit(exitError)
	}
	return nil
}

// openOf returns the runs of a group that have not ended, those that wait first, so that none of them takes the place of one that ends.
func openOf(ctx context.Context, s *Services, group string) ([]string, error) {
	all, err := findRuns(ctx, s, task.ListQuery{Group: group})
	if err == nil && len(all) == 0 {
		err = fault.New(fault.NotFound, "no run of the group %s is on record; `agent-env runs list --json` shows each run's run_group_id", group)
	}
	if err != nil {
		return nil, err
	}
	var waiting, running []string
	for _, l := range all {
		switch {
		case l.waits():
			waiting = append(waiting, l.rec.ID)
		case l.rec != nil && !l.rec.Status.Terminal():
			running = append(running, l.rec.ID)
		case l.in != nil && l.in.Status == "running":
			running = append(running, l.in.ID)
		}
	}
	return append(waiting, running...), nil
}

// askToCancel asks for the end of one run.
func askToCancel(ctx context.Context, s *Services, r *local.Runner, id, reason string) *cancellation {
	c := &cancellation{id: id, instance: id, asking: time.Now()}
	if c.rec, c.err = recordOf(ctx, s, id); c.err != nil {
		return c
	}
	if c.rec == nil {
		c.unrecorded(ctx, s, reason)
		return c
	}
	c.instance = c.rec.Instance
	if c.rec.Runner != runner.LocalType && !c.rec.Status.Terminal() {
		c.err = fault.New(fault.Unsupported, "run %s belongs to the runner %q: cancel it with the program that runs it", c.rec.ID, c.rec.Runner)
		return c
	}
	c.gone = c.rec.Status == runner.Running && !s.Records.Alive(c.rec.Owner)
	c.asked, c.err = r.Cancel(ctx, c.rec.ID, reason)
	return c
}

// await waits until a run that was asked to end has ended.
func (c *cancellation) await(ctx context.Context, s *Services) {
	if c.err != nil || c.rec == nil {
		return
	}
	for {
		rec, err := s.Records.Get(ctx, c.rec.ID)
		if err == nil && rec == nil {
			err = fault.New(fault.NotFound, "the record of run %s was removed meanwhile", c.rec.ID)
		}
		if err != nil {
			c.err = err
			return
		}
		if c.rec = rec; rec.Status.Terminal() {
			break
		}
		if time.Since(c.asking) > answerWait {
			c.err = fault.New(fault.Timeout, "%s has not ended run %s within %s; the request stays", runner.OwnerName(rec.Owner), rec.ID, answerWait)
			return
		}
		if c.err = rest(ctx); c.err != nil {
			return
		}
	}
	if c.gone {
		c.leftUp(ctx, s)
	}
}

// recordOf returns the newest record of a run, nil when it has an instance alone. NotFound: it has neither.
func recordOf(ctx context.Context, s *Services, id string) (*runner.Record, error) {
	if runner.IsRunID(id) {
		r, err := s.Records.Get(ctx, id)
		if err == nil && r == nil {
			err = fault.New(fault.NotFound, "run %s not found; `agent-env runs list` shows the runs there are", id)
		}
		return r, err
	}
	r, err := s.Records.OfInstance(ctx, id)
	if err != nil || r != nil {
		return r, err
	}
	_, err = s.Instances.Get(ctx, id)
	return nil, err
}

// unrecorded cancels a run that has an instance alone, which can be done only when nobody runs it.
func (c *cancellation) unrecorded(ctx context.Context, s *Services, reason string) {
	in, err := s.Instances.Get(ctx, c.id)
	switch {
	case err != nil:
		c.err = err
		return
	case in.Status != "running":
		return
	case !interrupted(s, in):
		c.err = fault.New(fault.Unsupported, "run %s has no run record by which its process could be asked; send that process a signal", c.id)
		return
	}
	if c.err = s.Instances.Cancel(ctx, in, reason, time.Now()); c.err == nil {
		c.asked, c.gone = true, true
		c.leftUp(ctx, s)
	}
}

func (c *cancellation) leftUp(ctx context.Context, s *Services) {
	in, err := s.Instances.Find(ctx, c.instance)
	if err != nil {
		c.err = err
		return
	}
	var recorded *doc.Object
	if in != nil {
		recorded = in.Context
	}
	c.up = s.Teardown.Describe(ctx, c.instance, recorded)
}

// outcome is how it stands with the run now.
func (c *cancellation) outcome() string {
	switch {
	case c.rec != nil:
		return recordStatus[c.rec.Status]
	case c.asked:
		return "cancelled"
	}
	return ""
}

func (a *App) sayCancelled(c *cancellation) {
	switch {
	case c.err != nil:
		fmt.Fprintf(a.Stderr, "Error: %s\n", c.err)
	case !c.asked && c.rec != nil:
		fmt.Fprintf(a.Stdout, "%s: had ended before (%s)\n", c.instance, c.outcome())
	case !c.asked:
		fmt.Fprintf(a.Stdout, "%s: had ended before\n", c.instance)
	case c.outcome() != "cancelled":
		fmt.Fprintf(a.Stdout, "%s: %s, before the request reached it\n", c.instance, c.outcome())
	case c.gone:
		fmt.Fprintf(a.Stdout, "%s: cancelled; the process that ran it was gone\n", c.instance)
		for _, k := range c.up {
			fmt.Fprintf(a.Stdout, "  still up: %s  %s\n", k.ID, k.Provider)
		}
		if len(c.up) > 0 {
			fmt.Fprintln(a.Stdout, "  `agent-env sandbox prune` removes what is still up")
		}
	default:
		fmt.Fprintf(a.Stdout, "%s: cancelled\n", c.instance)
	}
}

func (c *cancellation) document() *doc.Object {
	up := []any{}
	for _, k := range c.up {
		up = append(up, doc.Of("id", k.ID, "provider", k.Provider))
	}
	d := doc.Of("run_id", nil, "instance_id", c.instance, "task_id", nil, "status", null(c.outcome()), "asked", c.asked, "owner_gone", c.gone, "still_up", up, "error", nil)
	if c.rec != nil {
		d.Set("run_id", c.rec.ID).Set("task_id", c.rec.TaskID)
	}
	if c.err != nil {
		d.Set("error", c.err.Error())
	}
	return d
}
