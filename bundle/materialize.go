package bundle

import (
	"context"
	"fmt"
	"strings"

	"agentenv/artifact"
	"agentenv/fault"
	"agentenv/store"
	"agentenv/store/doc"
	"agentenv/store/document"
	"agentenv/task"
)

// inputsOf collects what an entry is made of now. The entries it needs must have their versions.
func (p *Plan) inputsOf(ctx context.Context, en *entry) (inputs, error) {
	in := inputs{typ: en.e.Type, config: digestOf(en.r.config), files: &doc.Object{}, needs: &doc.Object{}, storeRefs: &doc.Object{}}
	var err error
	if in.files, err = hashes(ctx, en.files, en.context != nil); err != nil {
		return in, fault.At(err, "%s", en.e.Path)
	}
	if en.e.Store != StoreArtifact && en.e.Store != StoreAgent {
		return in, nil
	}
	for _, need := range en.needs {
		in.needs.Set(StoreArtifact+" "+need.e.ID, fmt.Sprint(need.version))
	}
	for _, r := range en.r.refs {
		if s := p.byRef[fmt.Sprintf("%s %s %d", r.kind, r.id, r.version)]; s != nil && r.version == 0 {
			in.storeRefs.Set(r.kind+" "+r.id, fmt.Sprint(s.found))
		}
	}
	return in, nil
}

// Materialize writes what changed: images are built first, then artifacts and skills in their order, then, when every task passes
// its last checks, the tasks, then the evals. say gets one line for each entry and for waiting; note lines of builds. A second call
// finds everything unchanged. It holds the locks of all its ids meanwhile. The first failing write ends it; what was
// written before stays and is used by the next run.
func (p *Plan) Materialize(ctx context.Context, say, note func(line string)) error {
	release, err := store.LockEntities(ctx, p.p.StateRoot, p.ids(), func() { say("waiting for another run that writes the same entities") })
	if err != nil {
		return err
	}
	defer release()
	for _, line := range p.nameLines() {
		say(line)
	}
	if err := p.build(ctx, note); err != nil {
		return err
	}
	l := newLedger(ctx, p.p.Deps)
	for _, en := range p.entries {
		do := p.writeArtifact
		if en.e.Store == StoreAgent {
			do = p.writeAgent
		}
		if err := p.write(ctx, l, en, do); err != nil {
			return err
		}
		say(en.line())
	}
	if err := p.settle(ctx); err != nil {
		return err
	}
	var found problems
	for _, en := range p.tasks {
		for i, s := range en.r.task.Steps {
			for _, why := range p.stepProblems(ctx, s) {
				found.add(stepWhere(en.e, en.r.steps[i].(*doc.Object)), printable(why))
			}
		}
	}
	if err := found.err(); err != nil {
		return err
	}
	for _, en := range p.tasks {
		if err := p.write(ctx, l, en, p.writeTask); err != nil {
			return err
		}
		if err := p.stored(ctx, en); err != nil {
			return err
		}
		say(en.line())
	}
	for _, en := range p.evals {
		if err := p.write(ctx, l, en, p.writeEval); err != nil {
			return err
		}
		say(en.line())
	}
	return nil
}

// stepProblems asks a step for what is wrong with it as far as the stores tell; what shows without them stopped the plan.
func (p *Plan) stepProblems(ctx context.Context, s *task.Step) []string {
	if s.Kind.Preflight == nil {
		return nil
	}
	return s.Kind.Preflight(store.WithRunScope(ctx, p.b.Root), s)
}

// settle puts the pinned names of images that lie in a registry into the steps that run them.
func (p *Plan) settle(ctx context.Context) error {
	for _, en := range p.tasks {
		changed := false
		for _, use := range en.r.images {
			if use.image.dockerfile() {
				continue
			}
			img, err := artifact.GetAs[*artifact.DockerImage](ctx, p.p.Artifacts, artifact.Ref{ID: use.image.ID})
			if err != nil {
				return err
			}
			en.r.steps[use.step].(*doc.Object).Set(use.field, img.Image)
			changed = true
		}
		if !changed {
			continue
		}
		t, err := p.p.Registry.ParseTask(en.e.document(en.r.steps), task.ParseOptions{Where: en.e.Path})
		if err != nil {
			return err
		}
		en.r.task = t
	}
	return nil
}

// write runs the protocol of one write: what it will be made of is recorded before, its version right after, and at the end that the
// inputs are still the same.
func (p *Plan) write(ctx context.Context, l *ledger, en *entry, do func(context.Context, *entry) (int64, error)) error {
	where := func(err error) error {
		if err == nil {
			return nil
		}
		return fault.Wrap(fault.KindOf(err), nil, "%s: not written: %s", en.e.Path, strings.TrimPrefix(err.Error(), en.e.Path+": "))
	}
	in, err := p.inputsOf(ctx, en)
	if err != nil {
		return where(err)
	}
	if err := p.decide(ctx, l, en, in); err != nil {
		return where(err)
	}
	if en.adopted {
		return where(l.finish(ctx, en.e.b.Root, en.e, in.object(), en.version))
	}
	if en.reused {
		return nil
	}
	if err := l.begin(ctx, en.e.b.Root, en.e, in.object()); err != nil {
		return where(err)
	}
	if en.version, err = do(ctx, en); err != nil {
		return where(err)
	}
	if len(en.files) == 0 {
		return where(l.finish(ctx, en.e.b.Root, en.e, in.object(), en.version))
	}
	if err := l.wrote(ctx, en.e, en.version); err != nil {
		return where(err)
	}
	now, err := p.inputsOf(ctx, en)
	if err != nil || canonical(now.object()) != canonical(in.object()) {
		return where(l.finish(ctx, en.e.b.Root, en.e, nil, en.version))
	}
	return where(l.finish(ctx, en.e.b.Root, en.e, in.object(), en.version))
}

// line says what became of an entry.
func (en *entry) line() string {
	s := fmt.Sprintf("%s: v%d", en.e.Label(), en.version)
	if en.reused {
		s += ", unchanged"
	} else {
		s += " (" + strings.Join(en.reasons, "; ") + ")"
	}
	if en.pinned != "" {
		s += ", pinned to " + en.pinned
	}
	return s
}

func (p *Plan) writeArtifact(ctx context.Context, en *entry) (int64, error) {
	s, e, c := p.p.Artifacts, en.e, en.e.config
	switch e.Type {
	case artifact.TypeFile:
		a, err := s.PutFile(ctx, e.ID, c.Str("description"), base(en.files[0]))
		return version(a, err)
	case artifact.TypeUniverse:
		a, err := s.PutUniverse(ctx, e.ID, sources(en.files))
		return version(a, err)
	case artifact.TypeSkill:
		a, err := s.PutSkill(ctx, e.ID, sources(en.files))
		return version(a, err)
	case artifact.TypeCLI:
		a, err := s.PutCLI(ctx, e.ID, artifact.CLISpec{Command: c.Str("command_name"), Entrypoint: c.Str("entrypoint")}, sources(en.files))
		return version(a, err)
	case artifact.TypeEnvironment:
		if c.Value("file") == nil {
			a, err := s.PutEnvironment(ctx, e.ID, "", c.Str("environment_name"), c.Str("description"), base(en.files[0]))
			return version(a, err)
		}
		id, pin, _ := tomlRef(StoreArtifact, en.r.toml.Value("file"))
		a, err := s.PutEnvironmentOver(ctx, e.ID, c.Str("environment_name"), p.pinned(en, id, pin))
		return version(a, err)
	case artifact.TypeEnvironmentUniverse:
		set := artifact.EnvironmentSet{}
		for _, u := range en.envs {
			id := partID(e.ID, u.name)
			set.New = append(set.New, artifact.NewEnvironment{ID: id, Name: u.name, Source: base(u.file)})
		}
		for _, v := range en.r.toml.Arr("environment_artifacts") {
			id, pin, _ := tomlRef(StoreArtifact, v)
			set.Existing = append(set.Existing, p.pinned(en, id, pin))
		}
		for _, m := range en.meta {
			set.Metadata = append(set.Metadata, artifact.NewMetadata{ID: partID(e.ID+"__metadata", m.name), Key: m.name, Source: base(m.file)})
		}
		a, err := s.PutEnvironmentUniverse(ctx, e.ID, set)
		return version(a, err)
	case artifact.TypeDockerImage:
		return p.writeImage(ctx, en)
	}
	return 0, fault.New(fault.Unsupported, "artifacts of the type %s are not supported yet", e.Type)
}

// pinned is the version that a reference of an artifact records: the one just written, the pin, or the one that the plan read.
func (p *Plan) pinned(en *entry, id string, pin int64) artifact.Ref {
	for _, need := range en.needs {
		if need.e.ID == id {
			return artifact.Ref{ID: id, Version: need.version}
		}
	}
	if s := p.byRef[fmt.Sprintf("artifact %s %d", id, pin)]; s != nil {
		return artifact.Ref{ID: id, Version: s.found}
	}
	return artifact.Ref{ID: id, Version: pin}
}

// base is a file published under its last name alone.
func base(f file) artifact.Source {
	s := f.source()
	s.Name = s.Name[strings.LastIndexByte(s.Name, '/')+1:]
	return s
}

func version[T artifact.Artifact](a T, err error) (int64, error) {
	if err != nil {
		return 0, err
	}
	return a.Version(), nil
}

func (p *Plan) writeTask(ctx context.Context, en *entry) (int64, error) {
	t := *en.r.task
	t.Version = 0
	return p.put(ctx, "tasks", []document.Index{{Fields: []string{"type"}}}, t.Document())
}

// stored makes a task the one that the store holds: what a step drew when it was first built (a verifier's id) stays.
func (p *Plan) stored(ctx context.Context, en *entry) error {
	if !en.reused {
		en.r.task.Version = en.version
		return nil
	}
	d, err := document.Versioned{Store: p.p.Documents, Collection: "tasks"}.Get(ctx, en.e.ID, en.version)
	if err == nil && d == nil {
		err = fault.New(fault.NotFound, "Task %s version=%d not found", en.e.ID, en.version)
	}
	if err != nil {
		return fault.At(err, "%s", en.e.Path)
	}
	t, err := p.p.Registry.ParseTask(d, task.ParseOptions{Where: en.e.Path})
	if err != nil {
		return err
	}
	en.r.task = t
	return nil
}

func (p *Plan) writeEval(ctx context.Context, en *entry) (int64, error) {
	var tasks []any
	for _, t := range p.members[en] {
		tasks = append(tasks, doc.Of("task_id", t.e.ID, "task_version", nil))
	}
	return p.put(ctx, "evals", []document.Index{{Fields: []string{"type"}}},
		doc.Of("id", en.e.ID, "type", "eval", "version", nil, "tasks", tasks))
}

func (p *Plan) put(ctx context.Context, coll string, ix []document.Index, d *doc.Object) (int64, error) {
	v := document.Versioned{Store: p.p.Documents, Collection: coll, Indexes: ix}
	out, err := v.Put(ctx, d.Clone().Set("created_at_utc", artifact.Timestamp(p.p.Now())))
	if err != nil {
		return 0, err
	}
	n, _ := out.Int("version")
	return n, nil
}
