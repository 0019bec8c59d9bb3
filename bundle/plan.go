package bundle

import (
	"context"
	"fmt"
	"log/slog"
	"sort"
	"strings"
	"time"

	"agentenv/artifact"
	"agentenv/fault"
	"agentenv/sandbox"
	"agentenv/store/doc"
	"agentenv/store/document"
	"agentenv/task"
)

// Providers is what is asked of the sandbox providers; the manager of sandboxes is one.
type Providers interface {
	// Resolve checks a provider spec ("" = the configured default) and returns its names.
	Resolve(spec string) ([]string, error)
	Provider(name string) (sandbox.Provider, error)
}

// ImageBuild is one image to build on this machine's engine.
type ImageBuild struct {
	ID         string                 // of the artifact
	Name       string                 // name:tag the image gets
	Sources    string                 // digest of the sources, the value of the label dev.agentenv.sources
	Context    *artifact.BuildContext // folder and Dockerfile
	Platform   string                 // "" = the engine's own
	Dockerfile string                 // slash path in the context
}

// SourcesLabel marks an image with the digest of the sources it was built from.
const SourcesLabel = "dev.agentenv.sources"

// ImageBuilder builds images on this machine's engine. It is safe for concurrent use.
type ImageBuilder interface {
	// Holds reports whether the engine has an image of this name whose sources label has this value.
	Holds(ctx context.Context, name, sources string) (bool, error)
	// Build builds the image and gives it its name and the sources label; progress gets a line at a time. A failed build is an Invalid
	// error that ends in the build's last output.
	Build(ctx context.Context, b ImageBuild, progress func(line string)) error
}

// Deps are what a Runner works with. Documents and Artifacts route @local ids to the per-user stores.
type Deps struct {
	Registry  *task.Registry
	Documents document.Store
	Artifacts *artifact.Store
	Providers Providers
	Images    ImageBuilder                                          // nil = no engine
	Pin       func(ctx context.Context, ref string) (string, error) // resolves a tag to name:tag@sha256:…; nil = cannot
	StateRoot string                                                // holds the locks
	Log       *slog.Logger                                          // nil = nothing is logged
	Now       func() time.Time                                      // nil = time.Now
}

// Runner plans and writes bundles. It keeps no state and is safe for concurrent use.
type Runner struct{ Deps }

// NewRunner returns a Runner over d.
func NewRunner(d Deps) *Runner {
	if d.Log == nil {
		d.Log = slog.New(slog.DiscardHandler)
	}
	if d.Now == nil {
		d.Now = time.Now
	}
	return &Runner{d}
}

// Selection says what of a bundle runs; with neither tasks nor evals every eval, or every task when there is no eval.
type Selection struct {
	Tasks   []string // names or ids
	Evals   []string
	Sandbox string // provider for every deploy, "" = each step's own
	Agent   string // --agent
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

	version int64
	reused  bool
	adopted bool
	reasons []string
	pinned  string // digest of a reference image, for its line
}

// Plan is what a run of a bundle will write and run. It belongs to one run and is not safe for concurrent use.
type Plan struct {
	p       *Runner
	b       *Bundle
	sel     Selection
	entries []*entry // artifacts and skills in write order
	tasks   []*entry
	evals   []*entry
	members map[*entry][]*entry // eval → its tasks
	unnamed []*Entity           // tasks that no selected eval names
	refs    []*seenRef          // store references, in order of appearance
	byRef   map[string]*seenRef
}

// seenRef is a store reference as the store answered it.
type seenRef struct {
	storeRef
	found int64 // version read
	typ   string
	err   error
}

// Plan resolves a selection of a bundle and checks all that can be checked before the first write: names, pins, references to the
// stores, step fields, TOML keys, folders, providers. It writes nothing. The error is Invalid and holds every problem, a line each.
func (pl *Runner) Plan(ctx context.Context, b *Bundle, sel Selection) (*Plan, error) {
	if sel.Agent != "" {
		return nil, fault.New(fault.Unsupported, "--agent %s: agents are not supported yet", shown(sel.Agent))
	}
	if sel.Sandbox != "" {
		if _, err := pl.Providers.Resolve(sel.Sandbox); err != nil {
			return nil, err
		}
	}
	p := &Plan{p: pl, b: b, sel: sel, members: map[*entry][]*entry{}, byRef: map[string]*seenRef{}}
	tasks, evals, err := p.choose()
	if err != nil {
		return nil, err
	}
	var found problems
	if err := p.gather(ctx, tasks, evals, &found, true); err != nil {
		return nil, err
	}
	if err := found.err(); err != nil {
		return nil, err
	}
	if err := p.preflight(ctx, &found); err != nil {
		return nil, err
	}
	return p, found.err()
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
	r := &resolver{b, reg, &found}
	for _, e := range b.Entities {
		switch {
		case planned[e]:
		case e.Store == StoreArtifact:
			if _, err := p.artifact(ctx, r, e, map[*Entity]*entry{}, &found); err != nil {
				return err
			}
		case e.Store == StoreEnv || e.Store == StoreAgent:
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
	r := &resolver{p.b, p.p.Registry, found}
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
	reached := map[*Entity]bool{}
	for _, en := range p.tasks {
		for _, e := range en.r.reaches {
			reached[e] = true
		}
	}
	for _, e := range p.b.Of(StoreArtifact) {
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
		en.files = p.b.walk(e, e.dockerfile(), found)
	}
	if err := p.content(ctx, en, found); err != nil {
		return nil, err
	}
	p.entries = append(p.entries, en)
	return en, nil
}

// content checks what each type wants in its folder.
func (p *Plan) content(ctx context.Context, en *entry, found *problems) error {
	e := en.e
	names := make([]string, len(en.files))
	for i, f := range en.files {
		names[i] = f.name
	}
	one := func() {
		if len(en.files) != 1 {
			found.add(e.Path, fmt.Sprintf("%s %s holds exactly one file, and this folder holds %d", article(e.Type), e.Type, len(en.files)))
		}
	}
	switch e.Type {
	case artifact.TypeFile:
		one()
	case artifact.TypeUniverse:
		if len(en.files) == 0 {
			found.add(e.Path, "a file_artifact_universe needs at least one file")
		}
	case artifact.TypeSkill:
		for _, f := range en.files {
			if f.name == artifact.SkillFile {
				text, err := readConfig(f.disk)
				if err == nil {
					_, _, err = artifact.ParseSkill(e.ID, text)
				}
				if err != nil {
					found.add(e.Path, printable(err.Error()))
				}
			}
		}
	case artifact.TypeCLI:
		spec := artifact.CLISpec{Command: e.config.Str("command_name"), Entrypoint: e.config.Str("entrypoint")}
		for _, why := range artifact.CheckCLI(spec, names) {
			found.add(e.Path, printable(why))
		}
	case artifact.TypeEnvironment:
		if e.config.Value("file") == nil {
			one()
		} else if len(en.files) > 0 {
			found.add(e.Path, "file names another artifact, so the folder holds only its artifact.toml")
		}
	case artifact.TypeEnvironmentUniverse:
		en.envs, en.meta = p.b.universeFolder(e, en.files, found)
		if len(en.envs)+len(e.config.Arr("environment_artifacts")) == 0 {
			found.add(e.Path, "an environment_universe needs at least one environment")
		}
		seen := map[string]bool{}
		for _, u := range en.envs {
			seen[u.name] = true
		}
		for _, need := range en.needs {
			if name := need.e.config.Str("environment_name"); seen[name] {
				found.add(e.Path, "two environments are named "+shown(name))
			} else {
				seen[name] = true
			}
		}
	case artifact.TypeDockerImage:
		return p.imageContent(ctx, en, found)
	}
	return nil
}

func (p *Plan) imageContent(ctx context.Context, en *entry, found *problems) error {
	e := en.e
	if ref := e.config.Value("ref"); ref != nil {
		if len(p.b.walk(e, false, found)) > 0 {
			found.add(e.Path, "ref names an image in a registry, so the folder holds only its artifact.toml; drop ref or the files")
		}
		if r, ok := ref.(string); ok && artifact.RegistryOf(r) == "" {
			found.add(e.Path, "ref "+shown(r)+" must spell out its registry, as docker.io/library/… does")
		}
		return nil
	}
	c, err := artifact.OpenContext(ctx, e.disk, "Dockerfile")
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		found.add(e.Path, printable(err.Error()))
		return nil
	}
	en.context = c
	return nil
}

// ask reads references to the stores, each once, and reports what is not there or does not fit.
func (p *Plan) ask(ctx context.Context, refs []storeRef, found *problems, stores bool) {
	if !stores {
		return
	}
	for _, r := range refs {
		if r.kind != "artifact" {
			found.add(r.where, r.kind+"s of the store are not supported yet")
			continue
		}
		key := fmt.Sprintf("%s %s %d", r.kind, r.id, r.version)
		s := p.byRef[key]
		if s == nil {
			s = &seenRef{storeRef: r}
			a, err := p.p.Artifacts.Get(ctx, artifact.Ref{ID: r.id, Version: r.version})
			if s.err = err; err == nil {
				s.found, s.typ = a.Version(), a.Type()
			}
			p.byRef[key] = s
			p.refs = append(p.refs, s)
		}
		switch {
		case fault.Is(s.err, fault.NotFound) && r.version > 0:
			found.add(r.where, fmt.Sprintf("there is no artifact %s v%d in the store", shown(r.id), r.version))
		case fault.Is(s.err, fault.NotFound):
			found.add(r.where, "there is no artifact "+shown(r.id)+" in the store")
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
			sources := img.context.SourceDigest("")
			name := artifact.BuildName(img.e.ID, sources)
			img.build = &ImageBuild{ID: img.e.ID, Name: name, Sources: sources, Context: img.context, Dockerfile: img.context.Dockerfile()}
			step.Set(use.field, name)
		}
		t, err := p.p.Registry.ParseSteps(en.e.ID, en.r.steps, task.ParseOptions{Where: en.e.Path})
		if err != nil {
			found.add("", printable(err.Error()))
			continue
		}
		en.r.task = t
	}
}

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
