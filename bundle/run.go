package bundle

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"agentenv/artifact"
	"agentenv/fault"
	"agentenv/store"
	"agentenv/store/doc"
	"agentenv/task"
)

// RunOptions say how a plan's tasks run.
type RunOptions struct {
	Runs       task.Runs
	Teardown   task.Teardown
	Tracker    task.Tracker // keeps a record of each run; nil = none
	Parallel   int          // runs at once, 0 = task.DefaultParallel()
	Times      int          // how often each task runs, 0 = once
	Again      *Again       // what of an earlier invocation runs again, in place of Times; nil = nothing
	Limits     task.Limits
	Keep       bool
	Model      string
	UserModel  string
	JudgeModel string
	Progress   Progress
	Output     *Output // gets each run's final context; nil = none
	// Repeat returns the command that repeats a run of the task of this name; nil = there is none.
	Repeat func(task string) string
	// Signals stops the runs: the first one cancels what runs and tears down, a second one stops the teardown too. nil = none.
	Signals <-chan os.Signal
}

// session runs the tasks of one plan.
type session struct {
	p     *Plan
	o     RunOptions
	group string

	stop     context.CancelCauseFunc // of the runs
	halt     context.CancelFunc      // of the teardown
	teardown context.Context

	mu      sync.Mutex
	signal  os.Signal
	halted  bool  // a second signal came
	refused error // why a run does not go on
	active  int
	kept    []*Run
}

// Run runs the plan's tasks, each as often as the options say, at most Parallel at a time, tears down what each deployed as it ends, and
// sums up. Of several runs of each task, the first ones of all tasks begin before the second ones, so that a stop halfway leaves as much of each. A run that
// fails does not stop the others. Materialize must have been called. ctx ending cancels the runs as a signal does. It returns when
// everything has ended.
func (p *Plan) Run(ctx context.Context, o RunOptions) *Summary {
	if o.Parallel <= 0 {
		o.Parallel = task.DefaultParallel()
	}
	if o.Progress == nil {
		o.Progress = silent{}
	}
	r := &session{p: p, o: o, group: p.group}
	if r.group == "" {
		r.group = newGroup()
	}
	sum := &Summary{RunGroup: r.group}
	run, stop := context.WithCancelCause(ctx)
	r.stop = stop
	defer stop(nil)
	down, halt := context.WithCancel(context.WithoutCancel(ctx))
	r.teardown, r.halt = down, halt
	defer halt()
	ended := make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() { r.watch(ended) })

	runs := p.launches(o)
	p.remember(ctx, r.group, runs, o.Progress)
	turn := make(chan struct{}, o.Parallel)
	var all sync.WaitGroup
	for _, one := range rounds(runs) {
		select {
		case turn <- struct{}{}:
		case <-run.Done():
		}
		if run.Err() != nil {
			break
		}
		all.Go(func() {
			defer func() { <-turn }()
			r.one(run, one)
		})
	}
	all.Wait()
	close(ended)
	watch.Wait()
	sum.Runs = runs
	sum.Signal, sum.Refused = r.signal, r.refused
	for _, en := range p.evals {
		sum.Evals = append(sum.Evals, evalOf(en, p.members[en], runs))
	}
	for _, e := range p.unnamed {
		sum.Unnamed = append(sum.Unnamed, Unnamed{Path: e.Path, Name: e.Name})
	}
	for _, run := range runs {
		sum.add(run)
	}
	if len(r.kept) > 0 {
		sum.keep = func(say func(string)) { r.hold(sum, say) }
	}
	return sum
}

// watch turns signals into cancellation until the runs have ended.
func (r *session) watch(ended <-chan struct{}) {
	for {
		select {
		case <-ended:
			return
		case sig := <-r.o.Signals:
			r.mu.Lock()
			first := r.signal == nil
			if first {
				r.signal = sig
			}
			r.halted = !first
			n := r.active
			r.mu.Unlock()
			if !first {
				r.halt()
				continue
			}
			r.o.Progress.Note(fmt.Sprintf("Cancelling: tearing down %s (Ctrl-C again to stop now)", count(n, "run")))
			r.stop(Cancelling(sig))
		}
	}
}

// one runs one task to its end and tears it down.
func (r *session) one(ctx context.Context, out *Run) {
	en := out.of
	r.mu.Lock()
	r.active++
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		r.active--
		r.mu.Unlock()
	}()
	start := time.Now()
	res, err := r.execute(store.WithRunScope(ctx, en.e.ID), en, out.Label())
	if en.resumes+en.verifies != "" && res == nil {
		r.refused = err
		return
	}
	out.Started = true
	out.take(res, err, time.Since(start), ctx.Err() != nil)
	var context *doc.Object
	if res != nil {
		context = res.Context
	}
	r.o.Output.keep(out, context)
	if en.verifies != "" { // what stands is the verified run's
		out.Resumes = false
		if res != nil && len(res.LeftOut) > 0 {
			r.o.Progress.Note("verifiers that did not run: " + strings.Join(res.LeftOut, "; "))
		}
		r.o.Progress.RunEnded(out)
		return
	}
	r.mu.Lock()
	keep := r.o.Keep && r.signal == nil && ctx.Err() == nil
	r.mu.Unlock()
	if keep && out.Instance != "" {
		if out.keptUp = r.o.Teardown.Describe(r.teardown, out.Instance, context); len(out.keptUp) > 0 {
			out.context = context
			r.mu.Lock()
			r.kept = append(r.kept, out)
			r.mu.Unlock()
			r.o.Progress.RunEnded(out)
			return
		}
	}
	if out.Instance != "" {
		out.TornDown = r.o.Teardown.Teardown(r.teardown, out.Instance, context)
	}
	r.o.Progress.RunEnded(out)
}

func (r *session) execute(ctx context.Context, en *entry, label string) (res *task.Result, err error) {
	o := task.Options{Observer: observer{label, r.o.Progress}, Log: r.p.p.Log, Keeper: r.o.Teardown, Limits: r.o.Limits}
	if o.Instance = en.resumes; o.Instance == "" {
		// Under an id of ours the run starts only if it can be recorded: what it deploys is found again through its record.
		o.Instance, o.Metadata, o.AgentModel = task.NewInstanceID(en.r.task.ID), r.metadata(en), r.o.Model
	}
	if r.o.Tracker != nil {
		t := en.r.task
		tracked, end, notBegun := r.o.Tracker.Begin(ctx, task.Tracked{Instance: o.Instance, TaskID: t.ID, TaskVersion: t.Version, AgentModel: o.AgentModel, Metadata: o.Metadata, Limits: o.Limits})
		if notBegun != nil {
			return nil, notBegun
		}
		defer func() { end(res, err) }()
		ctx = tracked
	}
	if en.verifies != "" {
		return r.o.Runs.Verify(ctx, en.r.task, en.verifies, o)
	}
	if en.resumes != "" {
		return r.o.Runs.Resume(ctx, en.r.task, en.resumes, o)
	}
	return r.o.Runs.Run(ctx, en.r.task, o)
}

// metadata is the initial context.metadata of a run.
func (r *session) metadata(en *entry) *doc.Object {
	m := doc.Of("run_group_id", r.group, "task_id", en.e.ID)
	over := &doc.Object{}
	if s := r.p.sel.Sandbox; s != "" {
		over.Set("env_sandbox", s).Set("agent_sandbox", s).Set("sandbox", s)
	}
	if r.o.UserModel != "" {
		over.Set("user_model", r.o.UserModel)
	}
	if r.o.JudgeModel != "" {
		over.Set("judge_model", r.o.JudgeModel)
	}
	if params := r.p.solverParams(en); params != nil {
		over.Set("step_params", params)
	}
	if over.Len() > 0 {
		m.Set("user_overrides", over)
	}
	return m
}

// observer hands a run's events on under the task's path.
type observer struct {
	path string
	p    Progress
}

func (o observer) StepStarted(e task.Event)  { o.p.StepStarted(o.path, e) }
func (o observer) StepProgress(e task.Event) { o.p.StepProgress(o.path, e) }
func (o observer) StepEnded(e task.Event)    { o.p.StepEnded(o.path, e) }

// Cancelling returns the reason that runs ended by a signal are recorded with: "cancelled by Ctrl-C", "cancelled by SIGTERM".
func Cancelling(sig os.Signal) error {
	name := SignalName(sig)
	if name == "SIGINT" {
		name = "Ctrl-C"
	}
	return fault.New(fault.Canceled, "cancelled by %s", name)
}

// SignalName returns a signal's name as records and lines have it: SIGINT, SIGTERM, SIGHUP.
func SignalName(sig os.Signal) string {
	switch sig.String() {
	case "interrupt":
		return "SIGINT"
	case "terminated":
		return "SIGTERM"
	case "hangup":
		return "SIGHUP"
	}
	return strings.ToUpper(sig.String())
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	if strings.HasSuffix(what, "x") {
		return fmt.Sprintf("%d %ses", n, what)
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func newGroup() string { return artifact.RandomHex(16) }
