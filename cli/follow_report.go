package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"agentenv/bundle"
	"agentenv/runner"
	"agentenv/store/doc"
	"agentenv/task"
)

// sumUp says at the end what became of the runs: where their contexts are, what they came to, what was torn down, and the verdict.
func (a *App) sumUp(w *watcher, f *launchFlags, junit *bundle.JUnit, logs *runLogs, out io.Writer) error {
	b := w.b
	say := func(line string) { fmt.Fprintln(out, line) }
	say("")
	lost := false
	if b.contexts != nil {
		for _, l := range b.launches {
			if l.ended.file != "" {
				say(l.tag + "Task context written to: " + l.ended.file)
			}
		}
		for _, line := range b.contexts.lost {
			lost = true
			fmt.Fprintln(a.Stderr, line)
		}
	}
	a.results(b, say)
	w.hold(say)
	sum := b.summary()
	down := sum.TeardownText()
	io.WriteString(out, down)
	if b.results && down == "" {
		say("")
	}
	if len(sum.Left) > 0 {
		fmt.Fprintln(a.Stderr, "`agent-env sandbox prune` removes what is still up once this process has ended")
	}
	a.hints(b, logs)
	if line := b.verdict(); line != "" {
		say(line)
	}
	if err := junit.Write(sum); err != nil {
		lost = true
		fmt.Fprintf(a.Stderr, "Error: --junit: %s\n", err)
	}
	code := b.code(lost)
	if f.asJSON {
		if err := a.printJSON(b.document(code)); err != nil {
			return err
		}
	}
	if code != 0 {
		return exit(code)
	}
	return nil
}

// known returns a batch as it stands now: of runs that are not waited for, which may end meanwhile, no more is told than that.
func (b *batch) known() *batch {
	k := &batch{group: b.group, what: b.what, signal: b.signal}
	for _, l := range b.launches {
		end := l.end()
		if end == nil {
			end = &ending{began: l.begun.Load(), status: runner.Canceled, class: task.Cancelled, err: "cancelled, and not waited for: how it ended is not known here", rollout: task.Rollout{TaskID: l.task.ID, Version: l.task.Version, Class: task.Cancelled}}
		}
		k.launches = append(k.launches, &launch{tag: l.tag, name: l.name, number: l.number, request: l.request, task: l.task, repeat: l.repeat, Handle: l.Handle, ended: end})
	}
	return k
}

// leave writes the reports of a batch that is not waited for.
func (a *App) leave(b *batch, f *launchFlags, junit *bundle.JUnit) error {
	code := signalCode(b.signal)
	if err := junit.Write(b.summary()); err != nil {
		fmt.Fprintf(a.Stderr, "Error: --junit: %s\n", err)
	}
	if f.asJSON {
		if err := a.printJSON(b.document(code)); err != nil {
			return err
		}
	}
	return exit(code)
}

// results says how each run of an eval did, and what several runs came to.
func (a *App) results(b *batch, say func(string)) {
	text := b.tally().Text(nil)
	if !b.results {
		if text != "" {
			say(strings.TrimSuffix(text, "\n"))
		}
		return
	}
	say("Results:")
	for _, failed := range []bool{false, true} {
		for _, l := range b.launches {
			switch end := l.ended; {
			case (end.status != runner.Completed) != failed:
			case failed && end.status == runner.Canceled:
				say(fmt.Sprintf("  %sCANCELED", l.tag))
			case failed:
				say(fmt.Sprintf("  %sFAILED: %s", l.tag, end.err))
			case len(end.scores) == 0:
				say(fmt.Sprintf("  %sPASSED", l.tag))
			default:
				say(fmt.Sprintf("  %sPASSED score=%s", l.tag, strconv.FormatFloat(meanScore(end.scores), 'g', -1, 64)))
			}
		}
	}
	if text = strings.TrimPrefix(text, "Results:\n"); text != "" {
		say(strings.TrimSuffix(text, "\n"))
	}
}

func meanScore(scores []task.Score) float64 {
	sum := 0.0
	for _, s := range scores {
		sum += s.Value
	}
	return sum / float64(len(scores))
}

// hints says where more is to be found about runs that did not complete, and how to go on with them.
func (a *App) hints(b *batch, logs *runLogs) {
	var classes []string // of those
	for _, l := range b.launches {
		if l.ended.status == runner.Completed {
			continue
		}
		if file := logs.of(l.Instance); file != "" {
			fmt.Fprintf(a.Stderr, "%slog: %s\n", l.tag, file)
		}
		if l.ended.resumes {
			fmt.Fprintf(a.Stderr, "%sgo on with it: agent-env task resume --id %s\n", l.tag, shellWord(l.Instance))
		}
		if l.repeat != "" {
			fmt.Fprintf(a.Stderr, "%srepeat it: %s\n", l.tag, l.repeat)
		}
		if class := string(l.ended.class); !slices.Contains(classes, class) {
			classes = append(classes, class)
		}
	}
	if b.again != "" && len(classes) > 0 {
		slices.Sort(classes)
		fmt.Fprintf(a.Stderr, "repeat what did not complete: %s --rerun %s\n", b.again, strings.Join(classes, ","))
	}
}

// hold shows what --keep left up, waits for a signal and tears it down; a second signal stops that.
func (w *watcher) hold(say func(string)) {
	h := bundle.Holding{Teardown: w.s.Teardown, Signals: w.sig.ch, Say: say, Note: func(line string) { fmt.Fprintln(w.app.Stderr, line) }}
	var kept []*launch
	asked := false
	for _, l := range w.b.launches {
		asked = asked || l.request.Metadata.Bool("keep")
		if len(l.ended.kept) > 0 {
			kept = append(kept, l)
			h.Runs = append(h.Runs, &bundle.Held{Name: l.tag + "instance " + l.Instance, Instance: l.Instance, Kept: l.ended.kept, Context: l.ended.context})
		}
	}
	switch {
	case !asked || w.b.signal != nil && len(kept) == 0:
		return
	case len(kept) == 0:
		say("Nothing that the runs deployed is still up; there is nothing to keep.")
		return
	case w.b.signal == nil:
		h.Wait()
	}
	h.End(context.Background(), false)
	for i, l := range kept {
		l.ended.tornDown = h.Runs[i].TornDown
	}
}

// verdict is the last line; a single run that failed has said so already.
func (b *batch) verdict() string {
	completed, n := 0, len(b.launches)
	for _, l := range b.launches {
		if l.ended.status == runner.Completed {
			completed++
		}
	}
	switch {
	case b.signal != nil:
		return "Task cancelled."
	case completed == n && n == 1 && b.what == "":
		return "Task completed!"
	case completed == n:
		return fmt.Sprintf("All %d %s completed!", n, b.noun())
	case n == 1 && b.what == "":
		return ""
	}
	return fmt.Sprintf("%d/%d %s completed, %d/%d failed.", completed, n, b.noun(), n-completed, n)
}

func (b *batch) noun() string {
	if b.what == "" {
		return "runs"
	}
	return b.what
}

// code is the exit code: that of the signal, else 1 unless every run completed and nothing was lost.
func (b *batch) code(lost bool) int {
	if b.signal != nil {
		return signalCode(b.signal)
	}
	for _, l := range b.launches {
		lost = lost || l.ended.status != runner.Completed
	}
	if lost {
		return exitError
	}
	return 0
}

func (b *batch) tally() task.Tally {
	rollouts := make([]task.Rollout, len(b.launches))
	for i, l := range b.launches {
		rollouts[i] = l.ended.rollout
	}
	return task.NewTally(rollouts)
}

// summary is the batch in the form that reports are written from.
func (b *batch) summary() *bundle.Summary {
	sum := &bundle.Summary{RunGroup: b.group, Signal: b.signal}
	for _, l := range b.launches {
		end := l.ended
		r := &bundle.Run{Path: l.name, Number: l.number, TaskID: l.task.ID, Version: l.task.Version, Class: end.class, Seconds: end.seconds, Instance: l.Instance,
			Started: end.began, Repeat: l.repeat, TornDown: end.tornDown, Outcome: outcomeOf(end), Failures: end.failures}
		for _, s := range end.scores {
			r.Scores = append(r.Scores, bundle.Score{Step: s.Label, Value: s.Value})
		}
		sum.Runs = append(sum.Runs, r)
		sum.Ended = append(sum.Ended, end.tornDown.Ended...)
		sum.Left = append(sum.Left, end.tornDown.Left...)
	}
	return sum
}

func outcomeOf(end *ending) bundle.Outcome {
	switch {
	case end.status == runner.Canceled:
		return bundle.Cancelled
	case end.status != runner.Completed:
		return bundle.Failed
	case len(end.scores) == 0:
		return bundle.Unscored
	case end.rollout.Passes():
		return bundle.Passed
	}
	return bundle.ScoredBelow
}

// document is the batch as --json prints it; runs that were submitted only have no ending.
func (b *batch) document(code int) *doc.Object {
	runs := make([]any, len(b.launches))
	ended := true
	for i, l := range b.launches {
		d := doc.Of("run_id", l.Run, "instance_id", l.Instance, "task_id", l.task.ID, "task_version", doc.Int(l.task.Version))
		if seed := l.request.Metadata.Obj("seed"); seed != nil {
			d.Set("seed", seed)
		}
		end := l.ended
		if end == nil {
			ended = false
			runs[i] = d.Set("status", string(runner.Queued))
			continue
		}
		scores := []any{}
		for _, s := range end.scores {
			scores = append(scores, doc.Of("step", s.Label, "value", doc.Float(s.Value)))
		}
		runs[i] = d.Set("status", string(end.status)).Set("outcome_class", null(string(end.class))).Set("scores", scores).Set("seconds", doc.Float(end.seconds)).
			Set("error", null(end.err)).Set("context_file", null(end.file))
	}
	d := doc.Of("format_version", doc.Int(1), "run_group_id", b.group, "exit_code", doc.Int(code), "runs", runs)
	if !ended {
		return d
	}
	sum := b.summary()
	var signal any
	if b.signal != nil {
		signal = bundle.SignalName(b.signal)
	}
	return d.Set("tally", b.tally().Document()).Set("torn_down", sandboxes(sum.Ended)).Set("still_up", sandboxes(sum.Left)).Set("signal", signal)
}

func sandboxes(list []task.SandboxReport) any {
	if list == nil {
		return []any{}
	}
	return doc.MustFrom(list)
}
