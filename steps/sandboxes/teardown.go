package sandboxes

import (
	"context"
	"slices"
	"strings"
	"sync"

	"agentenv/fault"
	"agentenv/sandbox"
	"agentenv/store/doc"
	"agentenv/task"
)

func teardownType(d Deps) *task.StepType {
	list := func(name, what string) task.Field {
		return task.Field{Name: name, Kind: task.List, Items: task.String, Default: []any{}, Loose: true, Doc: what}
	}
	return &task.StepType{
		Name:    "teardown_sandboxes",
		Summary: "End the sandboxes of named agents, envs or sandboxes in the middle of a run, best effort",
		Family:  "sandboxes",
		Doc: "Names that are not deployed are only logged, as is a sandbox that cannot be ended: the step itself never fails the task, so " +
			"`fail_task_on_error` may only be false.",
		FailsTask:  false,
		Repeatable: true,
		Fields: []task.Field{
			list("agent_names", "agents whose sandboxes end; of one that was deployed onto a sandbox of the run, its container"),
			list("env_ids", "envs whose sandboxes end"),
			list("sandbox_names", "sandboxes that end"),
		},
		Refs: []task.Ref{{Path: "env_ids[]", Kind: "env"}},
		Parse: func(id string, f *doc.Object) (task.Action, *doc.Object, error) {
			a := &teardown{deps: d, agents: strs(f.Arr("agent_names")), envs: strs(f.Arr("env_ids")), sandboxes: strs(f.Arr("sandbox_names"))}
			if len(f.Arr("agent_names"))+len(f.Arr("env_ids"))+len(f.Arr("sandbox_names")) == 0 {
				return nil, nil, fault.New(fault.Invalid, "teardown_sandboxes needs at least one of agent_names, env_ids, sandbox_names")
			}
			return a, nil, nil
		},
		Check: func(s *task.Step) []string {
			if s.FailsTask {
				return []string{"teardown_sandboxes is best effort: fail_task_on_error may only be false"}
			}
			return nil
		},
	}
}

func strs(in []any) []string {
	var out []string
	for _, v := range in {
		if s, ok := task.Adapt(v, task.String).(string); ok {
			out = append(out, s)
		}
	}
	return out
}

type teardown struct {
	deps                    Deps
	agents, envs, sandboxes []string
}

// Execute ends all targets at once and records the ids of those that ended.
func (a *teardown) Execute(ctx context.Context, r *task.Run) error {
	done := map[string]bool{}
	if ids, ok := r.Metadata("torn_down_sandbox_ids").([]any); ok {
		for _, id := range strs(ids) {
			done[id] = true
		}
	}
	targets, missing := a.targets(r)
	if len(missing) > 0 {
		r.Log.Warn("teardown_sandboxes: not deployed in this run, skipping: " + strings.Join(missing, ", "))
	}
	targets = slices.DeleteFunc(targets, func(t sandbox.Record) bool {
		if house, beside := sandbox.HouseOf(t.ID); beside {
			return done[house] // else there may be another agent since
		}
		return done[t.ID]
	})
	errs := make([]error, len(targets))
	var wg sync.WaitGroup
	recorded := r.Context()
	for i, t := range targets {
		wg.Go(func() {
			if a.deps.Drain != nil {
				box, _ := sandbox.HouseOf(t.ID)
				a.deps.Drain(ctx, recorded, box)
			}
			errs[i] = a.deps.Sandboxes.Terminate(ctx, t)
		})
	}
	wg.Wait()
	for i, t := range targets {
		if errs[i] != nil {
			text := errs[i].Error()
			r.Log.Warn("teardown_sandboxes: " + t.ID + " was not ended: " + text[:min(len(text), 300)])
			continue
		}
		if !done[t.ID] {
			r.Append(t.ID, "torn_down_sandbox_ids")
		}
	}
	return ctx.Err()
}

// targets returns the sandboxes to end, each id once, and the names that are not deployed.
func (a *teardown) targets(r *task.Run) (out []sandbox.Record, missing []string) {
	seen := map[string]bool{}
	add := func(rec sandbox.Record) {
		if rec.ID != "" && !seen[rec.ID] {
			seen[rec.ID] = true
			out = append(out, rec)
		}
	}
	for _, name := range a.agents {
		found := false
		for _, ag := range r.Agents() {
			if ag.Str("agent_name") == name {
				found = true
				add(sandbox.Record{Name: name, ID: endOf(r, ag), Type: ag.Str("sandbox_type")})
			}
		}
		if !found {
			missing = append(missing, "agent '"+name+"'")
		}
	}
	for _, name := range a.sandboxes {
		found := false
		for _, s := range r.Sandboxes() {
			if s.Name == name {
				found = true
				add(RecordOf(s))
			}
		}
		if !found {
			missing = append(missing, "sandbox '"+name+"'")
		}
	}
	for _, id := range a.envs {
		found := false
		for _, env := range r.Envs() {
			if env.Str("env_id") == id {
				found = true
				a.envTargets(env, add)
			}
		}
		if !found {
			missing = append(missing, "env '"+id+"'")
		}
	}
	return out, missing
}

// endOf returns what ends with an agent: its sandbox or, where it was deployed onto a sandbox of the run, its container there.
func endOf(r *task.Run, agent *doc.Object) string {
	id := agent.Str("sandbox_id")
	if agent.Bool("on_host") || agent.Str("installed_container") != "" {
		return id
	}
	for _, s := range r.Sandboxes() {
		if s.ID == id && s.Mode == string(sandbox.VM) {
			return sandbox.BesideID(id)
		}
	}
	return id
}

// envTargets adds an env's own sandbox and its further ones, whose value is an id or a map of service to id; a key that names
// a provider gives the type, else the env's own does.
func (a *teardown) envTargets(env *doc.Object, add func(sandbox.Record)) {
	typ := env.Str("sandbox_type")
	add(sandbox.Record{Name: env.Str("env_id"), ID: env.Str("sandbox_id"), Type: typ})
	extra := env.Obj("sandbox_ids")
	known := a.deps.Sandboxes.Known()
	for _, key := range extra.Keys() {
		t := typ
		if slices.Contains(known, key) {
			t = key
		}
		switch v := extra.Value(key).(type) {
		case string:
			add(sandbox.Record{Name: env.Str("env_id"), ID: v, Type: t})
		case *doc.Object:
			for _, service := range v.Keys() {
				add(sandbox.Record{Name: env.Str("env_id"), ID: v.Str(service), Type: t})
			}
		}
	}
}
