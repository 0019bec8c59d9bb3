package bundle

import (
	"context"
	"fmt"
	"sort"

	"agentenv/artifact"
	"agentenv/fault"
	"agentenv/store/doc"
	"agentenv/task"
)

// Selection says what of a bundle runs; with neither tasks nor evals every eval, or every task when there is no eval.
type Selection struct {
	Tasks   []string // names or ids
	Evals   []string
	Sandbox string // provider for every deploy, "" = each step's own
	Agent   string // put in the place of those who are deployed and prompted: a name, id or alias, "" = nobody
}

// entry is one write of a plan.
type entry struct {
	e     *Entity
	r     *resolved
	files []file
	needs []*entry // entries whose versions it records

	context *artifact.BuildContext // of an image built here
	build   *ImageBuild            // set when a selected task runs it
	envs    []universeFile
	meta    []universeFile

	solvers  []string // steps of a task that deploy who is prompted, where --agent is given
	version  int64
	resumes  string // the run that goes on; "" = a new one
	verifies string // the run whose verifiers run again; "" = none
	reused   bool
	adopted  bool
	reasons  []string
	pinned   string // digest of a reference image, for its line
}

// Plan is what a run of a bundle will write and run. It belongs to one run and is not safe for concurrent use.
type Plan struct {
	p       *Runner
	b       *Bundle
	sel     Selection
	entries []*entry // artifacts, skills and agents in write order
	tasks   []*entry
	group   string // run group of what goes on; "" = a new one
	evals   []*entry
	members map[*entry][]*entry // eval → its tasks
	solver  *solver             // who takes the solvers' place; nil = nobody
	unnamed []*Entity           // tasks that no selected eval names
	refs    []*seenRef          // store references, in order of appearance
	byRef   map[string]*seenRef
	pulls   pulls
}

// seenRef is a store reference as the store answered it.
type seenRef struct {
	storeRef
	found int64 // version read
	typ   string
	err   error
}

// Plan resolves a selection of a bundle and checks all that can be checked before the first write: names, pins, references to the
// stores, step fields, TOML keys, folders, providers. What tasks name of installed bundles becomes part of it. It writes nothing; Release
// ends the plan's hold on temporary files. The error is Invalid and holds every problem, a line each.
func (pl *Runner) Plan(ctx context.Context, b *Bundle, sel Selection) (*Plan, error) {
	if sel.Sandbox != "" {
		if _, err := pl.Providers.Resolve(sel.Sandbox); err != nil {
			return nil, err
		}
	}
	p := &Plan{p: pl, b: b, sel: sel, members: map[*entry][]*entry{}, byRef: map[string]*seenRef{}}
	if err := p.make(ctx); err != nil {
		p.Release()
		return nil, err
	}
	return p, nil
}

func (p *Plan) make(ctx context.Context) error {
	tasks, evals, err := p.choose()
	if err != nil {
		return err
	}
	var found problems
	if err := p.gather(ctx, tasks, evals, &found, true); err != nil {
		return err
	}
	if err := found.err(); err != nil {
		return err
	}
	if err := p.preflight(ctx, &found); err != nil {
		return err
	}
	return found.err()
}

// Check does what Plan does for everything in a bundle, as far as it goes without stores, providers and an engine.
func Check(ctx context.Context, reg *task.Registry, b *Bundle) error {
	p := &Plan{p: NewRunner(Deps{Registry: reg}), b: b, members: map[*entry][]*entry{}, byRef: map[string]*seenRef{}}
	var found problems
	if err := p.gather(ctx, b.Of(StoreTask), b.Of(StoreEval), &found, false); err != nil {
		return err
	}
	planned := map[*Entity]bool{}
	for _, en := range p.entries {
		planned[en.e] = true
	}
	r := &resolver{b: b, reg: reg, p: &found}
	for _, e := range b.Entities {
		switch {
		case planned[e]:
		case e.Store == StoreArtifact:
			if _, err := p.artifact(ctx, r, e, map[*Entity]*entry{}, &found); err != nil {
				return err
			}
		case e.Store == StoreAgent:
			if err := p.agent(ctx, r, e, map[*Entity]*entry{}, &found); err != nil {
				return err
			}
		case e.Store == StoreEnv:
			checkKeys(e, &found)
		}
	}
	return found.err()
}

// choose applies the selection.
func (p *Plan) choose() (tasks, evals []*Entity, err error) {
	var found problems
	pick := func(option, store, what string, wanted []string) []*Entity {
		var out []*Entity
		seen := map[*Entity]bool{}
		for _, w := range wanted {
			var hit *Entity
			for _, e := range p.b.Of(store) {
				if e.Name == w || e.ID == w {
					hit = e
				}
			}
			if hit == nil {
				var names []string
				for _, e := range p.b.Of(store) {
					names = append(names, e.Name)
				}
				why := option + " " + shown(w) + ": this bundle has no " + what + " with that name or id"
				if len(names) > 0 {
					why += "; its " + what + "s are " + quoteAll(names)
				}
				found.add("", why)
			} else if !seen[hit] {
				seen[hit] = true
				out = append(out, hit)
			}
		}
		return out
	}
	tasks = pick("--task", StoreTask, "task", p.sel.Tasks)
	evals = pick("--eval", StoreEval, "eval", p.sel.Evals)
	if err := found.err(); err != nil {
		return nil, nil, err
	}
	if len(p.sel.Tasks)+len(p.sel.Evals) == 0 {
		evals = p.b.Of(StoreEval)
		if len(evals) == 0 {
			tasks = p.b.Of(StoreTask)
		}
	}
	if len(tasks)+len(evals) == 0 {
		return nil, nil, fault.New(fault.Invalid, "this bundle has no tasks or evals to run")
	}
	return tasks, evals, nil
}

// gather resolves the selected tasks and evals and everything they reach.
func (p *Plan) gather(ctx context.Context, tasks, evals []*Entity, found *problems, stores bool) error {
	r := &resolver{b: p.b, reg: p.p.Registry, p: found}
	if stores {
		r.pull = p.puller(ctx, found)
	}
	chosen := map[*Entity]bool{}
	for _, t := range tasks {
		chosen[t] = true
	}
	var evalEntries []*entry
	evalTasks := map[*entry][]*Entity{}
	for _, e := range evals {
		res, named := r.eval(e)
		en := &entry{e: e, r: res}
		evalEntries = append(evalEntries, en)
		evalTasks[en] = named
		for _, t := range named {
			chosen[t] = true
		}
	}
	done := map[*Entity]*entry{}
	byTask := map[*Entity]*entry{}
	for _, e := range p.b.Of(StoreTask) {
		if !chosen[e] {
			p.unnamed = append(p.unnamed, e)
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		en := &entry{e: e, r: r.task(e)}
		p.tasks = append(p.tasks, en)
		byTask[e] = en
		p.ask(ctx, en.r.refs, found, stores)
	}
	p.replaceSolver(ctx, r, found, stores)
	if stores {
		if err := p.defaultAgent(ctx, r, found); err != nil {
			return err
		}
	}
	reached := map[*Entity]bool{}
	for _, en := range p.tasks {
		for _, e := range en.r.reaches {
			reached[e] = true
		}
	}
	if p.solver != nil && p.solver.agent != nil {
		reached[p.solver.agent] = true
	}
	for _, e := range p.defined(StoreAgent) {
		if !reached[e] {
			continue
		}
		if err := p.agent(ctx, r, e, done, found); err != nil {
			return err
		}
	}
	for _, e := range p.defined(StoreArtifact) {
		if !reached[e] {
			continue
		}
		if _, err := p.artifact(ctx, r, e, done, found); err != nil {
			return err
		}
	}
	for _, en := range p.entries {
		p.ask(ctx, en.r.refs, found, stores)
	}
	if len(p.sel.Tasks)+len(p.sel.Evals) > 0 {
		p.unnamed = nil
	}
	for _, en := range evalEntries {
		for _, t := range evalTasks[en] {
			p.members[en] = append(p.members[en], byTask[t])
		}
		p.evals = append(p.evals, en)
	}
	p.writers(found)
	if len(found.lines) == 0 {
		p.images(done, found)
	}
	return nil
}

// artifact resolves an artifact after what it refers to, and adds both to the plan in that order.
func (p *Plan) artifact(ctx context.Context, r *resolver, e *Entity, done map[*Entity]*entry, found *problems) (*entry, error) {
	if en := done[e]; en != nil {
		return en, nil
	}
	r = r.of(e)
	before := len(found.lines)
	checkKeys(e, found)
	en := &entry{e: e}
	done[e] = en
	if len(found.lines) > before {
		en.r = &resolved{}
		p.entries = append(p.entries, en)
		return en, nil
	}
	en.r = r.artifact(e)
	for _, d := range en.r.reaches {
		need, err := p.artifact(ctx, r, d, done, found)
		if err != nil {
			return nil, err
		}
		en.needs = append(en.needs, need)
	}
	if e.Type != artifact.TypeDockerImage || e.dockerfile() {
		en.files = e.b.walk(e, e.dockerfile(), found)
	}
	if len(found.lines) > before {
		p.entries = append(p.entries, en)
		return en, nil
	}
	if err := p.content(ctx, en, found); err != nil {
		return nil, err
	}
	p.entries = append(p.entries, en)
	return en, nil
}

// ask reads references to the stores, each once, and reports what is not there or does not fit.
func (p *Plan) ask(ctx context.Context, refs []storeRef, found *problems, stores bool) {
	if !stores {
		return
	}
	for _, r := range refs {
		if r.kind != StoreArtifact && r.kind != StoreAgent {
			found.add(r.where, r.kind+"s of the store are not supported yet")
			continue
		}
		key := fmt.Sprintf("%s %s %d", r.kind, r.id, r.version)
		s := p.byRef[key]
		if s == nil {
			s = &seenRef{storeRef: r}
			s.found, s.typ, s.err = p.lookUp(ctx, r)
			p.byRef[key] = s
			p.refs = append(p.refs, s)
		}
		switch {
		case fault.Is(s.err, fault.NotFound) && r.version > 0:
			found.add(r.where, fmt.Sprintf("there is no %s %s v%d in the store", r.kind, shown(r.id), r.version))
		case fault.Is(s.err, fault.NotFound):
			hint := ""
			if r.kind == StoreAgent {
				hint = "; `agent-env a2a-agent list` lists the agents a task can name"
			}
			found.add(r.where, "there is no "+r.kind+" "+shown(r.id)+" in this bundle or in the store"+hint)
		case s.err != nil:
			found.add(r.where, printable(s.err.Error()))
		case r.typ != "" && s.typ != r.typ:
			found.add(r.where, shown(r.id)+" is "+article(s.typ)+" "+s.typ+" in the store, and "+article(r.typ)+" "+r.typ+" is needed")
		}
	}
}

// writers makes sure that no two entries write one id.
func (p *Plan) writers(found *problems) {
	owner := map[string]string{}
	claim := func(id, path string) {
		if other, taken := owner[id]; taken && other != path {
			found.add(path, "writes the id "+shown(id)+", which "+other+" writes too")
		}
		owner[id] = path
	}
	for _, en := range p.entries {
		claim(en.e.ID, en.e.Path)
		switch en.e.Type {
		case artifact.TypeSkill, artifact.TypeCLI:
			claim(en.e.ID+"__files", en.e.Path)
		case artifact.TypeEnvironment:
			claim(en.e.ID+"__file", en.e.Path)
		}
		for _, u := range en.envs {
			claim(partID(en.e.ID, u.name), en.e.Path)
		}
		for _, m := range en.meta {
			claim(partID(en.e.ID+"__metadata", m.name), en.e.Path)
		}
	}
}

// images puts the names of builds into the steps that run images of the bundle.
func (p *Plan) images(done map[*Entity]*entry, found *problems) {
	p.agentBuilds()
	for _, en := range p.tasks {
		if len(en.r.images) == 0 {
			continue
		}
		for _, use := range en.r.images {
			img := done[use.image]
			step := en.r.steps[use.step].(*doc.Object)
			if img.context == nil {
				step.Set(use.field, use.image.config.Str("ref"))
				continue
			}
			step.Set(use.field, img.mustBuild())
		}
		t, err := p.p.Registry.ParseTask(en.e.document(en.r.steps), task.ParseOptions{Where: en.e.Path})
		if err != nil {
			found.add("", printable(err.Error()))
			continue
		}
		en.r.task = t
	}
}

// ids returns every id that the plan may write.
func (p *Plan) ids() []string {
	var out []string
	for _, list := range [][]*entry{p.entries, p.tasks, p.evals} {
		for _, en := range list {
			out = append(out, en.e.ID)
		}
	}
	sort.Strings(out)
	return out
}
