package cli

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"agentenv/bundle"
	"agentenv/runner"
	"agentenv/runner/local"
	"agentenv/task"
)

func (a *App) runsWork() *cobra.Command {
	var jobs int
	var once bool
	cmd := &cobra.Command{Use: "work", Short: "Run what is queued, and go on with runs whose process is gone", Args: cobra.NoArgs,
		Long: "Takes runs from the queue, several at a time, until a signal comes. Several workers may share a queue: each run is taken by one of them. " +
			"A run whose process died is gone on with, from what its journal holds. A signal cancels what runs, tears it down and hands it back to the queue; " +
			"a second one stops the teardown too. With --once it ends when nothing is left to run, and exits 1 when a run failed.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if jobs < 1 {
				return usagef(cmd, "--jobs must be at least 1, not %d", jobs)
			}
			return a.work(cmd, jobs, once)
		}}
	jobsFlag(cmd.Flags(), &jobs)
	cmd.Flags().BoolVar(&once, "once", false, "end when nothing is left to run")
	return cmd
}

func (a *App) work(cmd *cobra.Command, jobs int, once bool) error {
	sig, stop := watchSignals()
	defer stop()
	show := a.newDisplay(a.Stdout)
	defer show.close()
	logs := newRunLogs(a, show)
	defer logs.close()
	s, err := a.Open(cmd.Context(), logs.logger())
	if err != nil {
		return err
	}
	defer s.Close()
	logs.dir = s.LogDir
	w := &worker{show: show, ended: map[runner.Status]int{}}
	r := s.Runner(local.Config{Once: once, Workers: jobs, Begun: w.begin, Ended: w.end})
	if err := r.Start(cmd.Context()); err != nil {
		return err
	}
	if !once {
		show.Note("Waiting for runs; Ctrl-C ends it.")
	}
	err = sig.during(cmd.Context(), func(ctx context.Context) error {
		select {
		case <-r.Done():
		case <-ctx.Done():
		}
		return nil
	})
	if sig.code() != 0 {
		show.Note("Stopping: what runs is handed back to the queue and torn down (Ctrl-C again to stop now)")
	}
	halted, halt := context.WithCancel(context.WithoutCancel(cmd.Context()))
	defer halt()
	if second := sig.second(halt, func() { err = r.Stop(halted) }); second {
		show.Note("The teardown was stopped; `agent-env sandbox prune` removes what is still up")
	}
	show.close()
	fmt.Fprintln(a.Stdout, w.summary())
	if code := sig.code(); code != 0 {
		return exit(code)
	}
	if err == nil && once && w.ended[runner.Failed] > 0 {
		return exit(exitError)
	}
	return err
}

// worker shows and counts what a runner does.
type worker struct {
	show *display

	mu     sync.Mutex
	ended  map[runner.Status]int
	handed int
}

func (w *worker) begin(b *local.Begun) {
	if b.Resumed {
		w.show.lines.Say(fmt.Sprintf("[%s] going on", b.Record.Instance))
	}
	b.Observer = labelled{b.Record.Instance, w.show}
}

func (w *worker) end(e *local.Ended) {
	outcome := strings.ToLower(string(e.Record.Status))
	if e.Record.Status == runner.Canceled {
		outcome = "cancelled"
	}
	if e.HandedBack {
		outcome = "handed back"
	}
	var seconds float64
	if e.Result != nil {
		seconds = e.Result.Seconds
	}
	w.show.RunEnded(&bundle.Run{Path: e.Record.Instance, Outcome: bundle.Outcome(outcome), Seconds: seconds})
	if e.Record.Error != "" && e.Record.Status == runner.Failed {
		w.show.Note(fmt.Sprintf("[%s] %s", e.Record.Instance, firstLine(e.Record.Error)))
	}
	for _, left := range e.TornDown.Left {
		w.show.Note(fmt.Sprintf("[%s] still up: %s (%s): %s", e.Record.Instance, left.ID, left.Provider, left.Why))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if e.HandedBack {
		w.handed++
	} else {
		w.ended[e.Record.Status]++
	}
}

func (w *worker) summary() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.handed
	var parts []string
	for _, c := range []struct {
		status runner.Status
		word   string
	}{{runner.Completed, "completed"}, {runner.Failed, "failed"}, {runner.Canceled, "cancelled"}} {
		if k := w.ended[c.status]; k > 0 {
			n += k
			parts = append(parts, fmt.Sprintf("%d %s", k, c.word))
		}
	}
	if w.handed > 0 {
		parts = append(parts, fmt.Sprintf("%d handed back", w.handed))
	}
	if n == 0 {
		return "Ran nothing."
	}
	return fmt.Sprintf("Ran %s: %s.", plural(n, "run", "runs"), strings.Join(parts, ", "))
}

// labelled shows the steps of a run under a label.
type labelled struct {
	label string
	show  *display
}

func (l labelled) StepStarted(e task.Event)  { l.show.StepStarted(l.label, e) }
func (l labelled) StepProgress(e task.Event) { l.show.StepProgress(l.label, e) }
func (l labelled) StepEnded(e task.Event)    { l.show.StepEnded(l.label, e) }
