package main

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"agentenv/fault"
	"agentenv/sandbox"
	"agentenv/store/doc"
	"agentenv/task"
)

// teardown ends what runs deployed: what their context records, and what the ledger knows beyond it (a sandbox whose step was
// cancelled or failed before its record was committed).
type teardown struct {
	sandboxes *sandbox.Manager
	// drain saves what the agents in a sandbox hold for a run with this context; nil = nothing.
	drain func(ctx context.Context, recorded *doc.Object, sandboxID string)
}

// target is one sandbox to end.
type target struct {
	rec  sandbox.Record
	slot string
	dir  string
}

func (t teardown) targets(ctx context.Context, instance string, recorded *doc.Object) []target {
	gone := task.TornDownIDs(recorded)
	var out []target
	seen := map[string]bool{}
	add := func(x target) {
		if x.rec.ID != "" && !seen[x.rec.ID] && !gone[x.rec.ID] {
			seen[x.rec.ID] = true
			out = append(out, x)
		}
	}
	rows, _ := t.sandboxes.Of(ctx, instance)
	dirs := map[string]string{}
	for _, r := range rows {
		dirs[r.ID] = r.WorkDir
	}
	for _, r := range task.Recorded(recorded) {
		typ := r.Type
		if slices.Contains(t.sandboxes.Known(), r.Key) {
			typ = r.Key
		}
		add(target{rec: sandbox.Record{Name: r.Name, ID: r.ID, Type: typ, Mode: sandbox.VM}, slot: r.Slot, dir: dirs[r.ID]})
	}
	for _, r := range rows {
		if house, beside := sandbox.HouseOf(r.ID); !beside || !seen[house] { // a container beside a host ends with it
			add(target{rec: r.Record(), slot: "sandbox", dir: r.WorkDir})
		}
	}
	return out
}

// Teardown implements task.Teardown.
func (t teardown) Teardown(ctx context.Context, instance string, recorded *doc.Object) task.TeardownReport {
	// Which sandboxes there are is asked also when the teardown was stopped: what is left must be named.
	look, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	targets := t.targets(look, instance, recorded)
	errs := make([]error, len(targets))
	var all sync.WaitGroup
	for i, x := range targets {
		all.Go(func() {
			if errs[i] = ctx.Err(); errs[i] == nil {
				if t.drain != nil {
					box, _ := sandbox.HouseOf(x.rec.ID)
					t.drain(ctx, recorded, box)
				}
				errs[i] = t.sandboxes.Terminate(ctx, x.rec)
			}
		})
	}
	all.Wait()
	var out task.TeardownReport
	for i, x := range targets {
		s := task.SandboxReport{ID: x.rec.ID, Provider: x.rec.Type, Folder: x.dir}
		if errs[i] == nil {
			out.Ended = append(out.Ended, s)
			continue
		}
		if s.Why = errs[i].Error(); ctx.Err() != nil {
			s.Why = "the teardown was stopped"
		}
		out.Left = append(out.Left, s)
	}
	return out
}

// Alive implements task.SandboxKeeper.
func (t teardown) Alive(ctx context.Context, s task.Sandbox) (bool, error) {
	return t.sandboxes.Alive(ctx, sandbox.Record{Name: s.Name, ID: s.ID, Type: s.Type, Mode: sandbox.Mode(s.Mode)})
}

// Adopt implements task.SandboxKeeper.
func (t teardown) Adopt(ctx context.Context, instance string) error {
	return t.sandboxes.Adopt(ctx, instance)
}

// Discard implements task.SandboxKeeper.
func (t teardown) Discard(ctx context.Context, instance string, steps []string) error {
	rows, err := t.sandboxes.Of(ctx, instance)
	if err != nil {
		return err
	}
	rows = slices.DeleteFunc(rows, func(r sandbox.Row) bool { return !slices.Contains(steps, r.Owner.Step) })
	errs := make([]error, len(rows))
	var all sync.WaitGroup
	for i, r := range rows {
		all.Go(func() {
			errs[i] = fault.At(t.sandboxes.Terminate(ctx, r.Record()), "sandbox %q (%s)", r.Name, r.ID)
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// Describe implements task.Teardown. A sandbox that its provider does not know any more is not up, whatever the record says: it was pruned.
func (t teardown) Describe(ctx context.Context, instance string, recorded *doc.Object) []task.KeptSandbox {
	urls, modes := map[string]map[string]string{}, map[string]sandbox.Mode{}
	for _, s := range task.Sandboxes(recorded) {
		urls[s.ID], modes[s.ID] = s.TunnelURLs, sandbox.Mode(s.Mode)
	}
	var out []task.KeptSandbox
	for _, x := range t.targets(ctx, instance, recorded) {
		machine, err := t.sandboxes.Attach(ctx, x.rec)
		if fault.Is(err, fault.NotFound) {
			continue
		}
		k := task.KeptSandbox{SandboxReport: task.SandboxReport{ID: x.rec.ID, Provider: x.rec.Type, Folder: x.dir}, Record: x.slot + " " + x.rec.Name}
		if x.dir != "" {
			k.Endpoints = append(k.Endpoints, [2]string{"folder", x.dir})
		}
		if err == nil && modes[x.rec.ID] != sandbox.VM {
			if name := machine.Info().ContainerName; name != "" {
				k.Endpoints = append(k.Endpoints, [2]string{"container", name + "  (docker exec -it " + name + " sh)"})
			}
		}
		var ports []string
		for p := range urls[x.rec.ID] {
			ports = append(ports, p)
		}
		slices.Sort(ports)
		for _, p := range ports {
			k.Endpoints = append(k.Endpoints, [2]string{"port " + p, urls[x.rec.ID][p]})
		}
		out = append(out, k)
	}
	return out
}
