package bundle

import (
	"fmt"
	"strings"

	"golang.org/x/text/unicode/norm"

	"agentenv/artifact"
	"agentenv/store/doc"
	"agentenv/task"
)

// storeRef is a reference to something in a store that the bundle does not hold.
type storeRef struct {
	kind    string // artifact, env, agent, task
	id      string
	version int64  // the pin, 0 = the latest
	typ     string // the type it must have, "" = any
	where   string // "tasks/t.json: step 'l': artifact_id"
}

// resolved is a task or an artifact whose references are ids.
type resolved struct {
	steps   []any       // of a task
	config  any         // what the ledger hashes
	reaches []*Entity   // entities of the bundle that it names, each once
	refs    []storeRef  // everything else that it names
	images  []imageUse  // steps that run an image of the bundle
	agents  []agentUse  // steps that deploy an agent of the bundle
	task    *task.Task  // parsed; nil where it cannot be
	toml    *doc.Object // of an artifact, with ids for names
}

// imageUse is a field of a step that names an image of the bundle.
type imageUse struct {
	step   int
	field  string
	image  *Entity
	deploy task.Deploy
}

// resolver turns names into ids.
type resolver struct {
	b    *Bundle
	reg  *task.Registry
	p    *problems
	pull pull
}

// pull looks a name that the bundle does not define up in the installed bundles: nil when it is a reference to a store, ok false when it can be neither.
// A nil one leaves all such names to the stores.
type pull func(kind, value string, pin int64, typ, where string) (e *Entity, ok bool)

// of returns the resolver of names in the bundle that defines e.
func (r *resolver) of(e *Entity) *resolver {
	other := *r
	other.b = e.b
	return &other
}

var storeOfKind = map[string]string{"env": StoreEnv, "agent": StoreAgent, "artifact": StoreArtifact, "task": StoreTask}

// entity looks a name up in the bundle: nil when it is a reference to a store; ok is false when it can be neither.
func (r *resolver) entity(kind, value string, pin int64, typ, where string) (e *Entity, ok bool) {
	name := norm.NFC.String(value)
	store := storeOfKind[kind]
	var near string
	for _, c := range r.b.Of(store) {
		if c.Name == name || c.ID == name {
			switch {
			case pin != 0:
				r.p.add(where, shown(value)+" is defined in this bundle, so it has no fixed version; drop the pin")
				return c, false
			case typ != "" && c.Type != typ:
				r.p.add(where, shown(value)+" is "+article(c.Type)+" "+c.Type+" ("+c.Path+"), and "+article(typ)+" "+typ+" is needed")
				return c, false
			}
			return c, true
		}
		if fold(c.Name) == fold(name) {
			near = c.Name
		}
	}
	if near != "" {
		r.p.add(where, shown(value)+" isn't in this bundle, but "+shown(near)+" is; names are case-sensitive")
		return nil, false
	}
	for _, k := range kinds {
		if k.store != store {
			continue
		}
		for _, ignored := range r.b.Ignored {
			if ignored == k.dir+"/"+value {
				r.p.add(where, shown(value)+" is a file in "+k.dir+"/, which holds folders; make it "+k.dir+"/<name>/"+printable(value))
				return nil, false
			}
		}
	}
	if value == r.b.Root || strings.HasPrefix(value, r.b.Root+"/") {
		r.p.add(where, shown(value)+" isn't in this bundle")
		return nil, false
	}
	if r.pull == nil || store == StoreTask {
		return nil, true
	}
	return r.pull(kind, value, pin, typ, where)
}

// task resolves a task's steps and parses them.
func (r *resolver) task(e *Entity) *resolved {
	out := &resolved{}
	reached := map[*Entity]bool{}
	steps := make([]*doc.Object, len(e.steps))
	for i, v := range e.steps {
		steps[i] = doc.DeepClone(v).(*doc.Object)
		out.steps = append(out.steps, steps[i])
	}
	clean := len(r.p.lines)
	line := edges(steps, func(i int, name string) {
		r.p.add(stepWhere(e, steps[i]), "depends_on "+shown(name)+" names no step in this task")
	})
	outputs := r.outputs(e, steps)
	for i, s := range steps {
		typ := r.reg.Get(s.Str("type"))
		where := stepWhere(e, s)
		if typ == nil {
			if s.Str("type") != "" {
				r.p.add(where, shown(s.Str("type"))+" is not a known step type")
			}
			continue
		}
		if typ.Pending {
			r.p.add(where, "steps of the type "+typ.Name+" are not supported yet")
			continue
		}
		for _, pos := range references(s, typ.Refs) {
			if pos.ref.Output {
				continue
			}
			at := where + ": " + pos.path
			if o, ok := outputs[norm.NFC.String(pos.value)]; ok {
				switch {
				case !line.after(i, o.step):
					r.p.add(at, shown(pos.value)+" is written by the step "+shown(steps[o.step].Str("id"))+", which this step does not depend on")
				case pos.version != 0:
					r.p.add(at, shown(pos.value)+" is written by this task, so it has no fixed version; drop the pin")
				default:
					pos.set(o.id)
				}
				continue
			}
			found, ok := r.entity(pos.ref.Kind, pos.value, pos.version, pos.ref.ArtifactType, at)
			switch {
			case !ok:
			case pos.ref.Kind == "env":
				r.p.add(at, "it names the "+pos.ref.Kind+" "+shown(pos.value)+"; "+pos.ref.Kind+"s are not supported yet")
			case found == nil:
				out.refs = append(out.refs, storeRef{pos.ref.Kind, pos.value, pos.version, pos.ref.ArtifactType, at})
			default:
				if found.Type == artifact.TypeCLI && steps[i].Str("type") == "load_artifact" && (steps[i].Str("agent_name") == "" || steps[i].Str("env_id") == "") {
					r.p.add(at, "the cli "+shown(pos.value)+" is installed into an agent, so the step needs agent_name and env_id")
				}
				pos.set(found.ID)
				if found.Store == StoreAgent {
					out.agents = append(out.agents, agentUse{i, found})
				}
				if !reached[found] {
					reached[found] = true
					out.reaches = append(out.reaches, found)
				}
			}
		}
	}
	if len(r.p.lines) == clean {
		r.parse(e, out, reached)
	}
	out.config = out.steps
	if e.extra != nil {
		out.config = e.extra.Clone().Set("steps", out.steps)
	}
	return out
}

func stepWhere(e *Entity, s *doc.Object) string {
	if id := s.Str("id"); id != "" {
		return e.Path + ": step " + shown(id)
	}
	return e.Path + ": a step without an id"
}

type output struct {
	step int
	id   string
}

// outputs renames what steps write to ids below the task's and returns them by name.
func (r *resolver) outputs(e *Entity, steps []*doc.Object) map[string]output {
	out := map[string]output{}
	for i, s := range steps {
		typ := r.reg.Get(s.Str("type"))
		if typ == nil {
			continue
		}
		for _, pos := range references(s, typ.Refs) {
			if !pos.ref.Output {
				continue
			}
			name := norm.NFC.String(pos.value)
			at := stepWhere(e, s) + ": " + pos.path
			if _, dup := out[name]; dup {
				r.p.add(at, shown(pos.value)+" is written by two steps")
			}
			for _, c := range r.b.Of(storeOfKind[pos.ref.Kind]) {
				if c.Name == name || c.ID == name {
					r.p.add(at, shown(pos.value)+" is the name of "+c.Path)
				}
			}
			id := name
			if !strings.HasPrefix(name, "@local/") {
				id = e.ID + "/" + name
				pos.set(id)
			}
			out[name] = output{i, id}
		}
	}
	return out
}

// parse builds the task to see that its steps are sound, and finds the images of the bundle that they run.
func (r *resolver) parse(e *Entity, out *resolved, reached map[*Entity]bool) {
	t, err := r.reg.ParseTask(e.document(out.steps), task.ParseOptions{Where: e.Path})
	if err != nil {
		r.eachStep(e, out.steps, err)
		return
	}
	out.task = t
	for i, s := range t.Steps {
		if s.Kind.Unsupported != nil {
			if what := s.Kind.Unsupported(s); what != "" {
				r.p.add(stepWhere(e, out.steps[i].(*doc.Object)), "not supported yet: "+what)
			}
		}
		for _, why := range t.Static(i) {
			r.p.add(stepWhere(e, out.steps[i].(*doc.Object)), printable(why))
		}
		if s.Kind.Deploys == nil {
			continue
		}
		for _, d := range s.Kind.Deploys(s) {
			if d.ImageField == "" || d.Image == "" || d.Mode != "container" {
				continue
			}
			img := r.image(d.Image, stepWhere(e, out.steps[i].(*doc.Object))+": "+d.ImageField)
			if img == nil {
				continue
			}
			out.images = append(out.images, imageUse{i, d.ImageField, img, d})
			if !reached[img] {
				reached[img] = true
				out.reaches = append(out.reaches, img)
			}
		}
	}
}

// image returns the bundle's image of a name, nil when the name is one of a registry.
func (r *resolver) image(name, where string) *Entity {
	nfc := norm.NFC.String(name)
	for _, c := range r.b.Of(StoreArtifact) {
		if c.Type != artifact.TypeDockerImage {
			continue
		}
		if c.Name == nfc || c.ID == nfc {
			return c
		}
		if fold(c.Name) == fold(nfc) {
			r.p.add(where, shown(name)+" isn't in this bundle, but "+shown(c.Name)+" is; names are case-sensitive")
		}
	}
	return nil
}

// eachStep reports every step that cannot be built; whole is the first problem of the task as a whole.
func (r *resolver) eachStep(e *Entity, steps []any, whole error) {
	before := len(r.p.lines)
	for _, v := range steps {
		s := v.(*doc.Object).Clone()
		s.Delete("depends_on")
		s.Delete("retry_config")
		if _, err := r.reg.ParseSteps(e.ID, []any{s}, task.ParseOptions{}); err != nil {
			why := err.Error()
			if _, after, ok := strings.Cut(why, "position 0): "); ok {
				why = after
			} else if _, after, ok := strings.Cut(why, "position 0: "); ok {
				why = after
			}
			r.p.add(stepWhere(e, v.(*doc.Object)), printable(why))
		}
	}
	if len(r.p.lines) == before {
		r.p.add("", printable(whole.Error()))
	}
}

// artifact resolves the references in an artifact's TOML.
func (r *resolver) artifact(e *Entity) *resolved {
	out := &resolved{}
	if e.config != nil {
		out.toml = doc.DeepClone(e.config).(*doc.Object)
	}
	for _, k := range typeKeys[e.Store+" "+e.Type] {
		var holders []any
		switch k.kind {
		case refValue:
			if v := e.config.Value(k.name); v != nil {
				holders = []any{v}
			}
		case refList:
			holders = e.config.Arr(k.name)
		}
		list := make([]any, len(holders))
		for i, v := range holders {
			list[i] = v
			id, version, why := tomlRef(k.ref, v)
			if why != "" {
				continue
			}
			where := e.Path + ": " + k.name
			if k.kind == refList {
				where += fmt.Sprintf("[%d]", i)
			}
			found, ok := r.entity("artifact", id, version, k.typ, where)
			switch {
			case !ok:
			case found == nil:
				out.refs = append(out.refs, storeRef{"artifact", id, version, k.typ, where})
			default:
				list[i] = found.ID
				out.reaches = append(out.reaches, found)
			}
		}
		switch {
		case len(holders) == 0:
		case k.kind == refValue:
			out.toml.Set(k.name, list[0])
		default:
			out.toml.Set(k.name, list)
		}
	}
	switch {
	case e.kind.dir == "skills":
		out.config = nil
	case e.dockerfile():
		c := doc.Of("dockerfile", "Dockerfile")
		if d := e.config.Str("description"); d != "" {
			c.Set("description", d)
		}
		out.config = c
	case e.Type == artifact.TypeDockerImage:
		c := doc.Of("ref", e.config.Str("ref"))
		if d := e.config.Str("description"); d != "" {
			c.Set("description", d)
		}
		out.config = c
	case out.toml == nil:
		out.config = &doc.Object{}
	default:
		out.config = out.toml
	}
	return out
}

// eval resolves the tasks of an eval.
func (r *resolver) eval(e *Entity) (*resolved, []*Entity) {
	out := &resolved{toml: e.config.Clone()}
	var tasks []*Entity
	seen := map[*Entity]bool{}
	ids := make([]any, len(e.tasks))
	for i, v := range e.tasks {
		ids[i] = v
		where := fmt.Sprintf("%s: tasks[%d]", e.Path, i)
		id, version, why := tomlRef(StoreTask, v)
		if why != "" {
			r.p.add(where, why)
			continue
		}
		t, ok := r.entity("task", id, version, "", where)
		switch {
		case !ok:
		case t == nil:
			r.p.add(where, shown(id)+" is no task of this bundle; an eval here names tasks of its own bundle")
		case seen[t]:
			r.p.add(where, shown(id)+" is listed twice; run an eval several times with agent-env eval run --k")
		default:
			seen[t] = true
			ids[i] = t.ID
			tasks = append(tasks, t)
		}
	}
	out.toml.Set("tasks", ids)
	out.config = out.toml
	out.reaches = tasks
	return out, tasks
}
