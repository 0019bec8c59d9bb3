package task

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"agentenv/fault"
	"agentenv/store"
	"agentenv/store/doc"
)

// Verify runs the verifier steps of the run id of a task once more, on what that run recorded and on those of its sandboxes that
// still live, as a run of its own: the one that is verified stays as it is, and so does what it deployed. The new instance begins
// with the context of the old one but the verdicts, names it in metadata.verifies, and has the steps that the old one completed. Verifiers are tried
// once, also where the task retries them. A verifier that depends on a step which the run never completed, or whose sandbox lives no longer, is
// left out, has no verdict, and stands with the reason in Result.LeftOut and metadata.verifiers_left_out. Of o, Instance (a fresh id; "" = mint
// one), Limits, Metadata (laid over that of the run: secrets to give again), Keeper (nil: all sandboxes live), Observer and Log count.
//
// Conflict: the run is still going on, or of another task. Invalid: it has no verifier that could run. NotFound: there is no such run.
// The result is nil then, and nothing was recorded. Otherwise the result and its error are those of Run. A verification is not to be resumed:
// Resume refuses it, since verifying again costs no work of an agent.
func (e *Engine) Verify(ctx context.Context, t *Task, id string, o Options) (*Result, error) {
	ctx = store.WithRunScope(ctx, t.ID)
	in, err := NewInstances(e.docs).Get(ctx, id)
	if err != nil {
		return nil, err
	}
	if err := in.isRunOf(t); err != nil {
		return nil, err
	}
	if _, limited := in.Document.Get("end_step"); in.Status == "running" && !limited {
		return nil, fault.New(fault.Conflict, "instance %s has not ended: wait for it, or `agent-env run --resume` or `agent-env runs cancel` it", id)
	}
	seeded, err := e.runnable(t, in.Context.Obj("metadata").Obj("seed"))
	if err != nil {
		return nil, err
	}
	seeded = o.Limits.over(seeded)
	x := &execution{engine: e, limits: o.Limits, end: len(seeded.Steps), log: e.runLog(o, in.Context.Obj("metadata")), began: e.now(), classes: map[string]Class{}}
	x.task, x.scheduler = seeded, NewScheduler(seeded, 0, len(seeded.Steps))
	again, leftOut, err := x.verifiers(ctx, in, o.Keeper)
	if err != nil {
		return nil, fault.At(err, "verify %s", id)
	}
	if !slices.Contains(again, true) {
		return nil, fault.New(fault.Invalid, "instance %s has no verifier step that could run%s", id, because(leftOut))
	}
	once := *seeded
	once.Steps = slices.Clone(seeded.Steps)
	for i, s := range seeded.Steps {
		switch {
		case again[i] && s.Retry != nil:
			copied := *s
			copied.Retry, once.Steps[i] = nil, &copied
		case !again[i]:
			x.classes[s.ID] = Class(in.Document.Obj("step_outcomes").Str(s.ID))
		}
	}
	x.task = &once
	x.scheduler.done = make([]bool, x.end)
	for i := range again {
		x.scheduler.done[i] = !again[i]
	}
	verdicts := map[string]bool{}
	for _, s := range seeded.Steps {
		verdicts[s.ID] = s.Kind.IsVerifier
	}
	x.carried = slices.DeleteFunc(slices.Clone(in.Completed), func(c Completion) bool { return verdicts[c.StepID] })
	x.watch = &watch{observer: o.Observer, log: x.log}
	initial := unverified(in, x.task, o.Metadata)
	if len(leftOut) > 0 {
		initial.Obj("metadata").Set("verifiers_left_out", doc.MustFrom(leftOut))
	}
	if err := x.register(ctx, o.Instance, initial); err != nil {
		return nil, err
	}
	res := x.run(ctx)
	res.LeftOut = leftOut
	return res, res.Err
}

func because(leftOut []string) string {
	if len(leftOut) == 0 {
		return ""
	}
	return ": " + strings.Join(leftOut, "; ")
}

// verifiers says which steps run again, and which verifiers cannot, with the reason.
func (x *execution) verifiers(ctx context.Context, in *Instance, keeper SandboxKeeper) (again []bool, leftOut []string, err error) {
	ended := map[string]string{}
	for _, c := range in.Completed {
		ended[c.StepID] = c.Status
	}
	steps := x.task.Steps
	lacking := x.scheduler.spread(func(i int) bool {
		status := ended[steps[i].ID] // a failure that ended the run is among the completions
		return !steps[i].Kind.IsVerifier && status != "success" && (status == "" || steps[i].FailsTask)
	})
	gone, err := goneSandboxes(ctx, in.Context, keeper)
	if err != nil {
		return nil, nil, err
	}
	again = make([]bool, len(steps))
	for i, s := range steps {
		switch box := s.Fields.Str("sandbox_name"); {
		case !s.Kind.IsVerifier:
		case lacking[i]:
			leftOut = append(leftOut, s.ID+" depends on a step that the run never completed")
		case gone[box] && box != "":
			leftOut = append(leftOut, fmt.Sprintf("%s needs the sandbox %q, which lives no longer", s.ID, box))
		default:
			again[i] = true
		}
	}
	return again, leftOut, nil
}

// goneSandboxes returns the names of recorded sandboxes that live no longer.
func goneSandboxes(ctx context.Context, context *doc.Object, keeper SandboxKeeper) (map[string]bool, error) {
	lost := map[string]bool{}
	ended := TornDownIDs(context)
	for _, s := range Sandboxes(context) {
		lives := !ended[s.ID]
		if lives && keeper != nil {
			var err error
			if lives, err = keeper.Alive(ctx, s); err != nil {
				return nil, fault.At(err, "sandbox %q (%s)", s.Name, s.ID)
			}
		}
		lost[s.Name] = !lives
	}
	return lost, nil
}

// unverified returns the context of a run without its verdicts.
func unverified(in *Instance, t *Task, more *doc.Object) *doc.Object {
	initial := in.Context.Clone()
	meta := initial.Obj("metadata").Clone()
	verdicts := meta.Obj("verifications")
	if verdicts != nil {
		verdicts = verdicts.Clone()
		meta.Set("verifications", verdicts)
	}
	var verifiers []*Step
	for _, s := range t.Steps {
		if s.Kind.IsVerifier {
			verifiers = append(verifiers, s)
			verdicts.Delete(s.Fields.Str("verifier_id"))
		}
	}
	dropOldFailures(meta, verifiers)
	meta.Set("run_group_id", randomHex()).Set("verifies", in.ID)
	for _, k := range more.Keys() {
		meta.Set(k, more.Value(k))
	}
	return initial.Set("metadata", meta)
}
