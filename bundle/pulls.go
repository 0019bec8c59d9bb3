package bundle

import (
	"context"
	"slices"
	"strings"

	"agentenv/agent"
	"agentenv/fault"
	"agentenv/store"
	"agentenv/store/doc"
	"agentenv/task"
)

// pulls is what a plan takes from installed bundles.
type pulls struct {
	bundles []*Bundle // in the order in which they were first named
	release []func()
	aliases []store.Alias // in use, in the order in which they were first named
}

// Release removes the files of installed bundles that the plan was made from. Once the plan is materialized nothing reads them any more. A second call
// is a no-op.
func (p *Plan) Release() {
	for _, release := range p.pulls.release {
		release()
	}
	p.pulls.release = nil
}

// defined returns the entities of one store that may be planned: those of the installed bundles in use, then the bundle's own.
func (p *Plan) defined(store string) []*Entity {
	var out []*Entity
	for _, b := range p.pulls.bundles {
		out = append(out, b.Of(store)...)
	}
	return append(out, p.b.Of(store)...)
}

// nameLines say what the aliases in use stand for, and where the agent of --agent is deployed.
func (p *Plan) nameLines() []string {
	var out []string
	for _, a := range p.pulls.aliases {
		out = append(out, printable(a.Note()))
	}
	if line := p.solverLine(); line != "" {
		out = append(out, line)
	}
	return out
}

// puller looks names up in the installed bundles: by id, and agents also by alias.
func (p *Plan) puller(ctx context.Context, found *problems) pull {
	return func(kind, value string, pin int64, typ, where string) (*Entity, bool) {
		id := value
		var by store.Alias
		if kind == StoreAgent {
			var ok bool
			if by, ok = p.alias(ctx, value, where, found); !ok {
				return nil, false
			}
			if by.ID != "" {
				id = by.ID
			}
		}
		h, ok := p.p.Installed.home(storeOfKind[kind], id)
		if !ok || h.c.root(h.name) == p.b.Root && by.ID == "" {
			return nil, true
		}
		if pin != 0 {
			if by.ID != "" {
				found.add(where, printable(by.Unpinned().Error()))
			} else {
				found.add(where, shown(value)+" comes with "+h.c.bundleOf(h.name)+", so it has no fixed version; drop the pin")
			}
			return nil, false
		}
		e, err := p.take(h, storeOfKind[kind], id)
		if err != nil {
			found.add(where, oneLine(err.Error()))
			return nil, false
		}
		if typ != "" && e.Type != typ {
			found.add(where, shown(value)+" is "+article(e.Type)+" "+e.Type+" ("+e.Path+"), and "+article(typ)+" "+typ+" is needed")
			return nil, false
		}
		if by.ID != "" && !slices.Contains(p.pulls.aliases, by) {
			p.pulls.aliases = append(p.pulls.aliases, by)
		}
		return e, true
	}
}

// alias returns what a name stands for, the zero Alias when it is none or the store has an agent of that id. ok is false when it can be nothing.
func (p *Plan) alias(ctx context.Context, name, where string, found *problems) (a store.Alias, ok bool) {
	if strings.HasPrefix(name, "@") || strings.Contains(name, "/") {
		return store.Alias{}, true
	}
	version, err := agent.NewDocuments(p.p.Documents, p.p.Now, p.p.Log).Latest(ctx, name)
	if version > 0 || err != nil { // an error is reported where the reference is read
		return store.Alias{}, true
	}
	aliases := p.p.Installed.AgentAliases()
	a, known, err := aliases.Find(name)
	switch near := aliases.Near(name); {
	case err != nil:
		found.add(where, printable(err.Error()))
		return store.Alias{}, false
	case !known && len(near) > 0:
		found.add(where, "there is no agent "+shown(name)+" in this bundle, an installed bundle or the store; did you mean the alias "+strings.ReplaceAll(quoteAll(near), ", ", " or ")+
			"? `agent-env a2a-agent list` lists the agents a task can name")
		return store.Alias{}, false
	}
	return a, true
}

// take returns an entity of an installed bundle, whose files are laid out when the plan first takes something of it.
func (p *Plan) take(h home, kind, id string) (*Entity, error) {
	root := h.c.root(h.name)
	if root == p.b.Root {
		return entityOf(p.b, kind, id)
	}
	for _, b := range p.pulls.bundles {
		if b.Root == root {
			return entityOf(b, kind, id)
		}
	}
	b, release, err := h.c.open(h.name)
	if err != nil {
		return nil, err
	}
	for _, e := range b.Entities {
		e.Path = h.c.qualified(h.name) + ":" + e.Path
	}
	p.pulls.bundles, p.pulls.release = append(p.pulls.bundles, b), append(p.pulls.release, release)
	return entityOf(b, kind, id)
}

func entityOf(b *Bundle, kind, id string) (*Entity, error) {
	for _, e := range b.Of(kind) {
		if e.ID == id {
			return e, nil
		}
	}
	return nil, fault.New(fault.NotFound, "%s is no longer in the bundle %s", id, b.Root)
}

// defaultAgent makes the configured default agent part of the plan, for the steps that name none. Steps whose agent --agent replaces need no default.
func (p *Plan) defaultAgent(ctx context.Context, r *resolver, found *problems) error {
	if p.p.DefaultAgent == nil {
		return nil
	}
	for _, en := range p.tasks {
		for i, v := range en.r.steps {
			s := v.(*doc.Object)
			if slices.Contains(en.solvers, s.Str("id")) || !namesNoAgent(s, p.p.Registry.Get(s.Str("type"))) {
				continue
			}
			id, err := p.p.DefaultAgent()
			if err != nil {
				return err
			}
			where := stepWhere(en.e, s) + ": it names no agent, and of the configured default ([agents] default_a2a_agent_id)"
			switch e, ok := r.entity(StoreAgent, id, 0, "", where); {
			case !ok:
			case e == nil:
				p.ask(ctx, []storeRef{{kind: StoreAgent, id: id, where: where}}, found, true)
			default:
				en.r.agents = append(en.r.agents, agentUse{i, e})
				en.r.reaches = append(en.r.reaches, e)
			}
		}
	}
	return nil
}

// namesNoAgent reports whether a step works with an agent that it does not name.
func namesNoAgent(s *doc.Object, typ *task.StepType) bool {
	return typ != nil && slices.ContainsFunc(typ.Refs, func(ref task.Ref) bool {
		return ref.Kind == StoreAgent && ref.Walk == "" && !ref.Output && !strings.ContainsAny(ref.Path, ".[") && s.Str(ref.Path) == ""
	})
}
