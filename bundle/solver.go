package bundle

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"agentenv/store/doc"
)

// solver is the agent that takes the place of those that the tasks' solver steps name, for one run of the bundle.
type solver struct {
	id    string
	agent *Entity // of the bundle, nil for one of the store
}

// replaceSolver finds the agent of --agent and the steps that deploy it: those whose agent a prompt prompts and that plays no user.
func (p *Plan) replaceSolver(ctx context.Context, r *resolver, found *problems, stores bool) {
	if p.sel.Agent == "" {
		return
	}
	const where = "--agent"
	for _, en := range p.tasks {
		en.solvers = solvers(en.r.steps)
	}
	if !slices.ContainsFunc(p.tasks, func(en *entry) bool { return len(en.solvers) > 0 }) {
		found.add(where, "no task that is to run deploys an agent and prompts it, so "+shown(p.sel.Agent)+" would take nobody's place")
		return
	}
	e, ok := r.entity(StoreAgent, p.sel.Agent, 0, "", where)
	switch {
	case !ok:
	case e == nil:
		p.solver = &solver{id: p.sel.Agent}
		p.ask(ctx, []storeRef{{kind: StoreAgent, id: p.sel.Agent, where: where}}, found, stores)
	default:
		p.solver = &solver{id: e.ID, agent: e}
	}
}

// solvers returns the ids of a task's solver steps.
func solvers(steps []any) []string {
	prompted, users := map[string]bool{}, map[string]bool{}
	for _, v := range steps {
		if s := v.(*doc.Object); s.Str("type") == "prompt_agent" {
			prompted[cmp.Or(s.Str("agent_name"), "default-agent")] = true
			users[cmp.Or(s.Str("user_agent_name"), "human_agent")] = true
		}
	}
	var out []string
	for _, v := range steps {
		s := v.(*doc.Object)
		name := cmp.Or(s.Str("agent_name"), "default-agent")
		if (s.Str("type") == "deploy_agent" || s.Str("type") == "install_agent") && prompted[name] && !users[name] {
			out = append(out, s.Str("id"))
		}
	}
	return out
}

// solverLine says where the agent of --agent is deployed; "" when there is none.
func (p *Plan) solverLine() string {
	if p.solver == nil {
		return ""
	}
	n := 0
	for _, en := range p.tasks {
		if len(en.solvers) > 0 {
			n++
		}
	}
	return fmt.Sprintf("--agent %s: the solver deploys %s, in %d of %s", printable(p.sel.Agent), printable(p.solver.id), n, count(len(p.tasks), "task"))
}

// solverParams are the parameters of a task's solver steps, nil when it has none or they stay as they are.
func (p *Plan) solverParams(en *entry) *doc.Object {
	if p.solver == nil || len(en.solvers) == 0 {
		return nil
	}
	var version any
	for _, written := range p.entries {
		if p.solver.agent != nil && written.e == p.solver.agent {
			version = doc.Int(written.version)
		}
	}
	if s := p.byRef[fmt.Sprintf("%s %s 0", StoreAgent, p.solver.id)]; s != nil {
		version = doc.Int(s.found)
	}
	params := &doc.Object{}
	for _, id := range en.solvers {
		params.Set(id, doc.Of("a2a_agent_id", p.solver.id, "a2a_agent_version", version))
	}
	return params
}
