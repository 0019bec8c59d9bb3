package cli

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/spf13/cobra"

	"agentenv/bundle"
	"agentenv/fault"
	"agentenv/runner"
	"agentenv/runner/local"
	"agentenv/store/doc"
	"agentenv/task"
)

// batch is what a command submits and follows: the runs, and what is done with them.
type batch struct {
	group     string // run group
	launches  []*launch
	what      string // the runs' name in the verdict: runs, seeds
	again     string // the command that runs some of them again, but for --rerun; "" = each has its own
	detail    bool   // show what each step wrote, not its scores alone
	results   bool   // a line for each run at the end
	contexts  *contexts
	jobs      int
	detach    bool // submit only
	signal    os.Signal
	abandoned bool // a second signal came: nothing is waited for any more
}

// launch is one run of a batch.
type launch struct {
	tag     string // in front of its lines: "", "[run 1] ", "[seed 2: x] "
	name    string // in reports
	number  int    // of several runs with this name, from 1; 0 = the only one
	file    string // base of the name of its context file
	request runner.Request
	task    *task.Task // as it runs, with its seed put in
	repeat  string     // the command that repeats it, "" = none

	runner.Handle
	seen  map[string]bool // steps that were told of, by id and how they ended
	begun atomic.Bool

	mu    sync.Mutex
	ended *ending
}

// ending is how a run ended.
type ending struct {
	status   runner.Status
	class    task.Class
	err      string
	scores   []task.Score
	seconds  float64
	rollout  task.Rollout
	began    bool
	resumes  bool // it can go on from where it ended
	failures []bundle.Failure
	kept     []task.KeptSandbox
	context  *doc.Object // of a run whose sandboxes stay up
	tornDown task.TeardownReport
	file     string // where its context was written
}

// follow submits what prepare returns, runs it in this process and shows how it goes, until everything has ended. The first signal cancels the
// runs, a second one stops waiting for them.
func (a *App) follow(cmd *cobra.Command, f *launchFlags, prepare func(ctx context.Context, s *Services, say func(string)) (*batch, error)) error {
	sig, stop := watchSignals()
	defer stop()
	out := a.Stdout
	if f.asJSON {
		out = a.Stderr
	}
	lines := bundle.NewLines(a.coloured(out), a.Stderr)
	logs := newRunLogs(a, &display{lines: lines, notes: a.Stderr, live: map[string]*liveLine{}})
	defer logs.close()
	s, err := a.Open(cmd.Context(), logs.logger())
	if err != nil {
		return err
	}
	var b *batch
	defer func() {
		if b == nil || !b.abandoned { // what still runs uses the stores
			s.Close()
		}
	}()
	logs.dir = s.LogDir
	var junit *bundle.JUnit
	if f.junit != "" {
		if junit, err = bundle.OpenJUnit(f.junit); err != nil {
			return fault.At(err, "--junit")
		}
	}
	err = sig.during(cmd.Context(), func(ctx context.Context) (err error) {
		b, err = prepare(ctx, s, lines.Say)
		return err
	})
	if code := sig.code(); code != 0 {
		fmt.Fprintln(a.Stderr, "Cancelled before any run was submitted.")
		return exit(code)
	}
	if err != nil {
		return err
	}
	if len(b.launches) == 0 { // nothing ended in a way that is run again
		if f.asJSON {
			return a.printJSON(b.document(0))
		}
		return nil
	}
	if b.detach {
		err = sig.during(cmd.Context(), func(ctx context.Context) error { return a.detach(ctx, s, b, f, lines.Say) })
		if code := sig.code(); code != 0 && err != nil {
			fmt.Fprintln(a.Stderr, "Cancelled: nothing was submitted.")
			return exit(code)
		}
		return err
	}
	w := &watcher{app: a, s: s, b: b, say: lines.Say, sig: sig}
	if err := w.run(cmd.Context()); err != nil {
		return err
	}
	if b.abandoned {
		return a.leave(b.known(), f, junit)
	}
	return a.sumUp(w, f, junit, logs, out)
}

// detach submits a batch for whoever drains the queue.
func (a *App) detach(ctx context.Context, s *Services, b *batch, f *launchFlags, say func(string)) error {
	if err := b.submit(ctx, s.Runner(local.Config{})); err != nil {
		return fault.At(err, "nothing was submitted")
	}
	for _, l := range b.launches {
		say(l.tag + submitted(l.Handle))
	}
	if f.asJSON {
		return a.printJSON(b.document(0))
	}
	say("`agent-env runs work` runs what waits in the queue.")
	return nil
}

// submit submits all runs, or none.
func (b *batch) submit(ctx context.Context, r *local.Runner) error {
	requests := make([]runner.Request, len(b.launches))
	for i, l := range b.launches {
		requests[i] = l.request
	}
	handles, err := r.SubmitAll(ctx, requests)
	for i, h := range handles {
		b.launches[i].Handle = h
	}
	return err
}

func submitted(h runner.Handle) string {
	return fmt.Sprintf("Submitted run %s (instance %s)", h.Run, h.Instance)
}

// watcher follows the runs of a batch. What there is to tell goes through a queue to one goroutine, so that no run waits for the output, and
// lines come in the order in which things happened.
type watcher struct {
	app *App
	s   *Services
	b   *batch
	say func(string)
	sig *signals
	r   *local.Runner

	queue lineQueue
}

// run submits the batch, runs it and returns when it has ended, or is no longer waited for.
func (w *watcher) run(ctx context.Context) error {
	byRun := map[string]*launch{}
	w.r = w.s.Runner(local.Config{Own: true, Once: true, Workers: w.b.jobs,
		Begun: func(b *local.Begun) {
			l := byRun[b.Record.ID]
			l.begun.Store(true)
			w.queue.add(func() { w.say(l.tag + "Run " + string(runner.Running)) })
		},
		Ended: func(e *local.Ended) { w.took(byRun[e.Record.ID], e) },
	})
	err := w.sig.during(ctx, func(ctx context.Context) error {
		for _, l := range w.b.launches {
			l.seen = map[string]bool{}
			l.request.Observer = follower{w, l}
		}
		err := w.b.submit(ctx, w.r)
		for _, l := range w.b.launches {
			byRun[l.Run] = l
		}
		return fault.At(err, "nothing was run")
	})
	if err != nil {
		_ = w.r.Stop(ctx) // which withdraws those that were submitted
		if code := w.sig.code(); code != 0 {
			fmt.Fprintln(w.app.Stderr, "Cancelled: nothing was run.")
			return exit(code)
		}
		return err
	}
	for _, l := range w.b.launches {
		w.say(l.tag + submitted(l.Handle))
	}
	var printed sync.WaitGroup
	printed.Go(w.queue.work)
	err = w.r.Start(ctx)
	if err == nil {
		w.wait(ctx)
	}
	if !w.b.abandoned {
		if stopped := w.r.Stop(ctx); err == nil {
			err = stopped
		}
		w.others(ctx)
	}
	w.queue.close()
	printed.Wait()
	return err
}

// wait waits until all runs have ended. The first signal cancels them, a second one ends the waiting.
func (w *watcher) wait(ctx context.Context) {
	var cancelling sync.WaitGroup
	defer cancelling.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	for {
		select {
		case <-w.r.Done():
			return
		case sig := <-w.sig.ch:
			if w.b.signal != nil {
				w.queue.add(func() { w.say("Stopped waiting; what the runs deployed may still be up") })
				w.b.abandoned = true
				return
			}
			w.b.signal = sig
			w.queue.add(func() { w.say("Cancelling the runs (Ctrl-C again to stop waiting for them)") })
			cancelling.Go(func() { w.cancel(ctx, bundle.Cancelling(sig).Error()) })
		}
	}
}

// cancel cancels what has not ended: first what waits, so that nothing more begins.
func (w *watcher) cancel(ctx context.Context, reason string) {
	for i := len(w.b.launches) - 1; i >= 0; i-- {
		l := w.b.launches[i]
		if l.end() != nil {
			continue
		}
		if _, err := w.r.Cancel(ctx, l.Run, reason); err != nil && ctx.Err() == nil {
			w.queue.add(func() { fmt.Fprintf(w.app.Stderr, "%s%s\n", l.tag, err) })
		}
	}
}

// took notes how a run of this process ended.
func (w *watcher) took(l *launch, e *local.Ended) {
	end := &ending{tornDown: e.TornDown}
	end.status, end.class, end.err = local.Outcome(e.Result, e.Err)
	end.rollout = task.Rollout{TaskID: l.task.ID, Version: l.task.Version, Class: end.class}
	if res := e.Result; res != nil {
		end.began, end.resumes = res.Recorded, res.Recorded && (res.Status == "failed" || res.Status == "cancelled")
		end.rollout = res.Rollout(l.task)
		end.rollout.Class = end.class
		end.scores, end.seconds, end.failures = res.Scores, res.Seconds, failuresOf(res)
		if e.Kept {
			end.context = res.Context
			end.kept = w.s.Teardown.Describe(context.Background(), l.Instance, res.Context)
		}
	}
	if e.Err != nil && len(end.failures) == 0 {
		end.failures = []bundle.Failure{{Class: fault.ClassOf(e.Err), Error: e.Err.Error(), Fatal: true}}
	}
	w.finish(l, end)
}

// failuresOf are the failures that were not made good by a retry.
func failuresOf(res *task.Result) []bundle.Failure {
	var all []bundle.Failure
	for _, f := range res.Failures {
		if !f.Retried {
			all = append(all, bundle.Failure{Step: f.StepID, Type: f.StepType, Error: f.Error, Class: f.ErrorType, Fatal: f.Fatal})
		}
	}
	return all
}

// others looks up the runs that ended elsewhere: withdrawn while they waited, or taken over by another process.
func (w *watcher) others(ctx context.Context) {
	for _, l := range w.b.launches {
		if l.end() != nil {
			continue
		}
		end := &ending{status: runner.Failed, class: task.Infrastructure, err: "it is not known how it ended"}
		rec, err := w.r.Status(ctx, l.Run)
		switch {
		case err != nil:
			end.err += ": " + err.Error()
		case rec != nil && rec.Status.Terminal():
			end.status, end.class, end.err = rec.Status, rec.Class, rec.Error
		case rec != nil:
			end.err = "another process goes on with it"
		}
		end.rollout = task.Rollout{TaskID: l.task.ID, Version: l.task.Version, Class: end.class}
		if end.status == runner.Failed {
			class, text, _ := strings.Cut(end.err, ": ")
			end.failures = []bundle.Failure{{Class: class, Error: text, Fatal: true}}
		}
		w.finish(l, end)
	}
}

func (w *watcher) finish(l *launch, end *ending) {
	l.mu.Lock()
	l.ended = end
	l.mu.Unlock()
	w.queue.add(func() {
		line := l.tag + "Run " + string(end.status)
		if end.err != "" {
			line += ": " + end.err
		}
		w.say(line)
		if end.began {
			w.b.contexts.write(w.s, l, end)
		}
	})
}

func (l *launch) end() *ending {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ended
}

// follower hears the steps of one run.
type follower struct {
	w *watcher
	l *launch
}

// StepStarted implements task.Observer.
func (follower) StepStarted(task.Event) {}

// StepProgress implements task.Observer.
func (f follower) StepProgress(e task.Event) {
	if e.Progress.Note != "" {
		f.w.queue.add(func() { fmt.Fprintf(f.w.app.Stderr, "%s%s: %s\n", f.l.tag, e.StepID, e.Progress.Note) })
	}
}

// StepEnded implements task.Observer.
func (f follower) StepEnded(e task.Event) {
	if e.Err != nil && task.ClassOf(e.Err) == task.Cancelled {
		return
	}
	f.w.queue.add(func() { f.told(e) })
}

// told writes the lines about a step that ended, each way of ending once.
func (f follower) told(e task.Event) {
	word := "Completed"
	if e.Err != nil {
		word = "Failed"
	}
	if f.l.seen[word+e.StepID] {
		return
	}
	f.l.seen[word+e.StepID] = true
	f.w.say(fmt.Sprintf("%s%s step [%d/%d]: %s (id=%s)", f.l.tag, word, e.Index+1, e.Total, e.Type, e.StepID))
	verifier := f.l.task.Steps[e.Index].Fields.Str("verifier_id")
	if e.Err != nil && !e.Tolerated || verifier == "" && !f.w.b.detail {
		return
	}
	out, err := f.w.s.Instances.Output(context.Background(), f.l.Instance, e.StepID)
	if err != nil {
		fmt.Fprintf(f.w.app.Stderr, "%s%s: what it wrote cannot be read: %s\n", f.l.tag, e.StepID, err)
		return
	}
	for _, line := range outputLines(out, verifier, f.w.b.detail) {
		f.w.say(f.l.tag + line)
	}
}
