package local

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"agentenv/fault"
	"agentenv/runner"
	"agentenv/store/doc"
	"agentenv/task"
)

// teardownWait is how long the teardown of one run may take.
const teardownWait = 240 * time.Second

// one runs a claimed run to its end, tears it down and records how it ended. orphan tells that another process had begun it.
func (r *Runner) one(h *held, orphan bool) {
	e := &Ended{Record: h.rec}
	began := r.d.Now()
	var context *doc.Object
	e.Result, context, e.Err = r.execute(h, orphan)
	if e.Result != nil {
		context = e.Result.Context
	}
	cause := causeOf(h)
	if !r.enter(h, tearing) {
		return // it did not stop in time: Stop has seen to it
	}
	taken := r.takenOver(h, e.Err, cause)
	e.HandedBack = !taken && errors.Is(cause, errStopped) && fault.Is(e.Err, fault.Canceled) && !r.c.Own
	e.Kept = cause == nil && e.Result != nil && e.Result.Class != task.Cancelled && e.Result.Context.Obj("metadata").Bool("keep")
	if !taken && !e.Kept {
		e.TornDown = r.tearDown(h.rec.Instance, context)
		for _, left := range e.TornDown.Left {
			r.d.Log.Warn("a sandbox is still up; `agent-env sandbox prune` removes it once this process has ended", "instance", h.rec.Instance, "sandbox", left.ID, "error", left.Why)
		}
	}
	r.close(h, e, taken, r.d.Now().Sub(began))
	if r.c.Ended != nil {
		r.c.Ended(e)
	}
}

// causeOf returns why a run was to end early, nil when it was not.
func causeOf(h *held) error {
	if h.ctx.Err() == nil {
		return nil
	}
	return context.Cause(h.ctx)
}

// takenOver reports whether another process runs the instance now, which then sees to what it deployed.
func (r *Runner) takenOver(h *held, err, cause error) bool {
	var superseded *task.Superseded
	if errors.As(err, &superseded) {
		return true
	}
	if !errors.Is(cause, errLost) {
		return false
	}
	rec, err := r.d.Records.Get(context.Background(), h.rec.ID)
	return err != nil || rec != nil && !rec.Status.Terminal()
}

func (r *Runner) tearDown(instance string, recorded *doc.Object) task.TeardownReport {
	ctx, stop := context.WithTimeout(r.teardown, teardownWait)
	defer stop()
	return r.d.Teardown.Teardown(ctx, instance, recorded)
}

// close writes the end of a run into its record; three times when the store does not take it.
func (r *Runner) close(h *held, e *Ended, taken bool, took time.Duration) {
	log := r.d.Log.With("run", h.rec.ID, "instance", h.rec.Instance)
	status, class, text := Outcome(e.Result, e.Err)
	err := insist(func() (err error) {
		if e.HandedBack {
			_, err = r.d.Records.Release(context.Background(), h.rec, nil)
		} else {
			_, err = r.d.Records.End(context.Background(), h.rec, status, class, text)
		}
		return err
	})
	switch {
	case err != nil:
		log.Error("the end of the run could not be written into its record; whoever drains the queue sees to it once this process is gone", "error", err)
	case e.HandedBack:
		log.Info("the run was handed back to the queue")
	case taken:
		log.Warn("another process goes on with the run", "error", e.Err)
	default:
		log.Info("the run ended", "status", string(status), "seconds", took.Seconds())
	}
}

// insist tries a write three times when the store does not take it.
func insist(write func() error) (err error) {
	for _, wait := range []time.Duration{500 * time.Millisecond, time.Second, 0} {
		if err = write(); err == nil {
			return nil
		}
		time.Sleep(wait)
	}
	return err
}

// Outcome is how a run record ends for what became of the run: class and text are the record's. A run that went on after a failure has
// failed, although its instance is complete; a failure that an earlier run left in the context does not count.
func Outcome(res *task.Result, err error) (status runner.Status, class task.Class, text string) {
	class = task.ClassOf(err)
	if res != nil {
		class = res.Class
	}
	var step *task.StepError
	switch {
	case fault.Is(err, fault.Canceled) && (res == nil || res.Status == "cancelled"):
		return runner.Canceled, task.Cancelled, err.Error()
	case errors.As(err, &step):
		return runner.Failed, class, fault.ClassOf(step.Err) + ": " + step.Err.Error()
	case err != nil:
		return runner.Failed, class, fault.ClassOf(err) + ": " + err.Error()
	case res == nil:
		return runner.Completed, class, ""
	}
	if text := failures(res); text != "" {
		return runner.Failed, class, text
	}
	return runner.Completed, class, ""
}

// failures tells of the failures of this run that were not made good by a retry, and of entries that nobody can read.
func failures(res *task.Result) string {
	var lines []string
	for _, f := range res.Failures {
		_, ran := res.Steps[f.StepID]
		switch {
		case f.Retried, f.StepID != "" && !ran:
		case f.StepID == "":
			lines = append(lines, "a failure of an earlier run: "+f.Error)
		default:
			lines = append(lines, fmt.Sprintf("failed at step '%s': %s: %s", f.StepID, f.ErrorType, f.Error))
		}
	}
	return strings.Join(lines, "; ")
}

// execute begins a run, or goes on with it, and returns how it went, and what is recorded of what it deployed when there is no result.
func (r *Runner) execute(h *held, orphan bool) (*task.Result, *doc.Object, error) {
	if h.ctx.Err() != nil && !orphan {
		return nil, nil, fault.New(fault.Canceled, "%s", context.Cause(h.ctx))
	}
	in, err := r.d.Instances.Find(context.WithoutCancel(h.ctx), h.rec.Instance)
	if err != nil {
		return nil, nil, err
	}
	req := asked(h)
	if h.rec.Withheld && h.request == nil {
		return nil, recordedOf(in), fault.New(fault.Invalid, "the run was given secrets that are not stored, and the process that had them is gone; run the task again")
	}
	if in != nil && orphan && (!h.rec.Continues || in.Context.Obj("metadata").Str("workflow_id") == h.rec.ID) {
		return r.goOn(h, in)
	}
	res, err := r.begin(h, req, in)
	return res, nil, err
}

func recordedOf(in *task.Instance) *doc.Object {
	if in == nil {
		return nil
	}
	return in.Context
}

// begin runs a task from its first step, or continues an instance that was there.
func (r *Runner) begin(h *held, req runner.Request, in *task.Instance) (*task.Result, error) {
	o := task.Options{Instance: h.rec.Instance, AgentModel: req.AgentModel, AgentArtifactID: req.AgentArtifactID, Context: req.Context, Limits: req.Limits, Log: r.d.Log, Keeper: r.d.Teardown}
	version := h.rec.TaskVersion
	if h.rec.Continues {
		if in == nil {
			return nil, fault.New(fault.NotFound, "TaskInstance '%s' not found", h.rec.Instance)
		}
		if version == 0 {
			version = in.TaskVersion
		}
		if in.TaskID != h.rec.TaskID || in.TaskVersion != version {
			return nil, fault.New(fault.Conflict, "Instance %s is a run of %s v%d, not of %s v%d", in.ID, in.TaskID, in.TaskVersion, h.rec.TaskID, version)
		}
		o.Context = in.Context
	}
	o.Metadata = req.Metadata.Clone().Set("workflow_id", h.rec.ID).Set("instance_id", h.rec.Instance).Set("runner", runner.LocalType)
	var err error
	if o.StartStep, err = startStep(o.Metadata, o.Context.Obj("metadata")); err != nil {
		return nil, err
	}
	t, err := r.d.Tasks.Get(h.ctx, h.rec.TaskID, version)
	if err != nil {
		return nil, err
	}
	o.Observer = r.announce(h, req.Observer, false)
	return r.d.Engine.Run(h.ctx, t, o)
}

// startStep reads metadata.start_step: that of the request, else that of the context it begins with.
func startStep(layers ...*doc.Object) (int, error) {
	for _, meta := range layers {
		v, there := meta.Get("start_step")
		if !there || v == nil {
			continue
		}
		if n, ok := meta.Int("start_step"); ok {
			return int(n), nil
		}
		if s, ok := v.(string); ok {
			if n, err := strconv.Atoi(strings.TrimSpace(s)); err == nil {
				return n, nil
			}
		}
		return 0, fault.New(fault.Invalid, "metadata.start_step must be the position of a step, not %s", doc.Canonical(v))
	}
	return 0, nil
}

// goOn goes on with a run that another process began. One whose instance had ended before the record could say so ends as the instance did.
func (r *Runner) goOn(h *held, in *task.Instance) (*task.Result, *doc.Object, error) {
	if cause := causeOf(h); cause != nil {
		if err := r.d.Instances.Cancel(context.WithoutCancel(h.ctx), in, cause.Error(), r.d.Now()); err != nil {
			return nil, in.Context, err
		}
		return nil, in.Context, fault.New(fault.Canceled, "%s", cause)
	}
	switch in.Status {
	case "completed":
		res := &task.Result{Instance: in.ID, Status: in.Status, Class: in.Class, Context: in.Context, Failures: task.Failures(in.Context), Recorded: true, Steps: map[string]task.Class{}}
		for _, c := range in.Completed {
			if c.Class != "" { // else it counted as completed from the beginning
				res.Steps[c.StepID] = c.Class
			}
		}
		return res, in.Context, nil
	case "cancelled":
		if in.Error != errStopped.Error() { // asked for, and not only a worker that stopped
			return nil, in.Context, fault.New(fault.Canceled, "%s", in.Error)
		}
	case "failed":
		err := fault.New(fault.Internal, "%s", in.Error)
		if f := task.Failures(in.Context); len(f) > 0 {
			err = err.WithClass(f[len(f)-1].ErrorType)
		}
		return &task.Result{Instance: in.ID, Status: in.Status, Class: in.Class, Context: in.Context, Err: err, Recorded: true}, in.Context, err
	}
	t, err := r.d.Tasks.Get(h.ctx, in.TaskID, in.TaskVersion)
	if err != nil {
		return nil, in.Context, err
	}
	res, err := r.d.Engine.Resume(h.ctx, t, in.ID, task.Options{Observer: r.announce(h, nil, true), Log: r.d.Log, Keeper: r.d.Teardown})
	if res == nil && fault.Is(err, fault.Conflict, fault.Invalid, fault.Unsupported) {
		// It can never go on, and what stands in its record would say for ever that it does. If somebody else took it up, nothing changes.
		if bad := r.d.Instances.Cancel(context.WithoutCancel(h.ctx), in, err.Error(), r.d.Now()); bad != nil {
			r.d.Log.Warn("a run that cannot go on could not be recorded as such", "instance", in.ID, "error", bad)
		}
	}
	return res, in.Context, err
}

func (r *Runner) announce(h *held, o task.Observer, resumed bool) task.Observer {
	b := &Begun{Record: h.rec, Resumed: resumed, Observer: o}
	if r.c.Begun != nil {
		r.c.Begun(b)
	}
	if o != nil {
		return o
	}
	return b.Observer
}
