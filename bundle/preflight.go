package bundle

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"agentenv/sandbox"
	"agentenv/store/doc"
	"agentenv/task"
)

// preflight checks every deploy of the selected tasks on the provider that it will go to.
func (p *Plan) preflight(ctx context.Context, found *problems) error {
	said := map[string]int{}
	order := []string{}
	where := map[string]string{}
	say := func(at, why string) {
		if said[why]++; said[why] == 1 {
			order, where[why] = append(order, why), at
		}
	}
	lacks := map[string]string{}
	for _, en := range p.tasks {
		local := map[int]bool{}
		for _, use := range en.r.images {
			local[use.step] = true
		}
		for _, use := range en.r.agents {
			local[use.step] = local[use.step] || p.builtHere(use.agent)
		}
		for i, v := range en.r.steps {
			if p.solver != nil && slices.Contains(en.solvers, v.(*doc.Object).Str("id")) {
				local[i] = p.solver.agent != nil && p.builtHere(p.solver.agent)
			}
		}
		for i, s := range en.r.task.Steps {
			if s.Kind.Deploys == nil {
				continue
			}
			at := stepWhere(en.e, en.r.steps[i].(*doc.Object))
			for _, d := range s.Kind.Deploys(s) {
				why, err := p.deployProblem(ctx, d, local[i], lacks)
				if err != nil {
					return err
				}
				if why != "" {
					say(at, why)
				}
			}
		}
	}
	for _, why := range order {
		line := why
		if n := said[why] - 1; n > 0 {
			line += fmt.Sprintf(" (and %d more)", n)
		}
		found.add(where[why], line)
	}
	return nil
}

// deployProblem says why no provider of the deploy's chain takes it, "" when one does.
func (p *Plan) deployProblem(ctx context.Context, d task.Deploy, built bool, lacks map[string]string) (string, error) {
	spec := p.sel.Sandbox
	if spec == "" {
		spec = d.Provider
	}
	names, err := p.p.Providers.Resolve(spec)
	if err != nil {
		return printable(err.Error()), nil
	}
	var whys []string
	for _, name := range names {
		prov, err := p.p.Providers.Provider(name)
		if err != nil {
			whys = append(whys, printable(err.Error()))
			continue
		}
		c := prov.Capabilities()
		takes := false
		for _, m := range c.Modes {
			takes = takes || string(m) == d.Mode
		}
		switch {
		case !takes && d.Mode == string(sandbox.VM):
			whys = append(whys, "the provider "+name+" has no VMs; use container mode, or --sandbox local")
		case !takes:
			whys = append(whys, "the provider "+name+" takes no sandbox of the mode "+shown(d.Mode))
		case built && !c.OnThisMachine:
			whys = append(whys, "the image is built on this machine, which the provider "+name+" cannot reach; use --sandbox local, or push the image and name it by its registry")
		case d.Mode == string(sandbox.Container) && c.OnThisMachine:
			why, known := lacks[name]
			if !known {
				var parts []string
				for _, l := range prov.Check(ctx) {
					parts = append(parts, l.What+": "+l.Remedy)
				}
				if len(parts) > 0 {
					why = "the provider " + name + " is not ready: " + printable(strings.Join(parts, "; "))
				}
				lacks[name] = why
			}
			if why == "" {
				return "", ctx.Err()
			}
			whys = append(whys, why)
		default:
			return "", ctx.Err()
		}
	}
	return strings.Join(whys, "; "), ctx.Err()
}
