package bundle

import (
	"context"
	"fmt"

	"agentenv/agent"
	"agentenv/artifact"
	"agentenv/store"
	"agentenv/store/doc"
)

// agentUse is a step that deploys an agent of the bundle.
type agentUse struct {
	step  int
	agent *Entity
}

// agent adds an agent to the plan after the image that it runs from.
func (p *Plan) agent(ctx context.Context, r *resolver, e *Entity, done map[*Entity]*entry, found *problems) error {
	r = r.of(e)
	before := len(found.lines)
	checkKeys(e, found)
	en := &entry{e: e, r: &resolved{config: &doc.Object{}}}
	done[e] = en
	if len(found.lines) > before {
		p.entries = append(p.entries, en)
		return nil
	}
	if e.config != nil {
		en.r.toml = doc.DeepClone(e.config).(*doc.Object)
		en.r.config = en.r.toml
	}
	if err := p.agentImage(ctx, r, en, done, found); err != nil {
		return err
	}
	p.entries = append(p.entries, en)
	return nil
}

// agentImage resolves what an agent's image key says: an image artifact by name or id, else one that belongs to the agent alone.
func (p *Plan) agentImage(ctx context.Context, r *resolver, en *entry, done map[*Entity]*entry, found *problems) error {
	e := en.e
	v := e.config.Value("image")
	table, _ := v.(*doc.Object)
	if name, isName := v.(string); isName || table.Value("artifact") != nil {
		var pin int64
		if !isName {
			name, pin, _ = tomlRef(StoreArtifact, v)
		}
		where := e.Path + ": image"
		switch held, ok := r.entity("artifact", name, pin, artifact.TypeDockerImage, where); {
		case !ok:
		case held == nil:
			en.r.refs = append(en.r.refs, storeRef{"artifact", name, pin, artifact.TypeDockerImage, where})
		default:
			need, err := p.artifact(ctx, r, held, done, found)
			if err != nil {
				return err
			}
			en.needs = append(en.needs, need)
			en.r.toml.Set("image", held.ID)
		}
		return nil
	}
	own := &Entity{b: e.b, Store: StoreArtifact, Name: e.Name, ID: store.DerivedID(e.ID, "agent_image"), Type: artifact.TypeDockerImage, Path: e.Path, kind: e.kind, disk: e.disk}
	image := &entry{e: own}
	if ref := table.Str("ref"); ref != "" {
		own.config = doc.Of("ref", ref)
		image.r = &resolved{config: own.config, toml: own.config}
	} else {
		own.config = doc.Of("dockerfile", "Dockerfile")
		if d := table.Str("dockerfile"); d != "" {
			own.config.Set("dockerfile", d)
		}
		image.r = &resolved{config: own.config, toml: own.config}
		image.files = e.b.walk(own, true, found)
		if err := p.imageContent(ctx, image, found); err != nil {
			return err
		}
	}
	done[own] = image
	en.needs = append(en.needs, image)
	p.entries = append(p.entries, image)
	return nil
}

// agentBuilds has the images built that the selected tasks' agents run from.
func (p *Plan) agentBuilds() {
	for _, en := range p.entries {
		if en.e.Store == StoreAgent && len(en.needs) > 0 {
			en.needs[0].mustBuild()
		}
	}
}

// mustBuild has an image's sources built before the run; that of a registry is pulled where it runs.
func (en *entry) mustBuild() (name string) {
	if en.context == nil {
		return ""
	}
	sources := en.context.SourceDigest("")
	name = artifact.BuildName(en.e.ID, sources)
	en.build = &ImageBuild{ID: en.e.ID, Name: name, Sources: sources, Context: en.context, Dockerfile: en.context.Dockerfile()}
	return name
}

// builtHere reports whether an agent's image is one that is built on this machine.
func (p *Plan) builtHere(e *Entity) bool {
	for _, en := range p.entries {
		if en.e == e {
			return len(en.needs) > 0 && en.needs[0].context != nil
		}
	}
	return false
}

// writeAgent stores an agent over the version of its image.
func (p *Plan) writeAgent(ctx context.Context, en *entry) (int64, error) {
	var ref artifact.Ref
	if len(en.needs) > 0 {
		ref = artifact.Ref{ID: en.needs[0].e.ID, Version: en.needs[0].version}
	} else {
		named := en.r.refs[0]
		ref = artifact.Ref{ID: named.id, Version: named.version}
		if s := p.byRef[fmt.Sprintf("artifact %s %d", named.id, named.version)]; s != nil {
			ref.Version = s.found
		}
	}
	stored, err := agent.NewDocuments(p.p.Documents, p.p.Now, p.p.Log).Put(ctx, agent.NewAgent{ID: en.e.ID,
		Image: agent.ArtifactRef{ID: ref.ID, Version: ref.Version, Type: artifact.TypeDockerImage}, DefaultEnv: en.r.toml.Obj("default_env_vars"), Metadata: en.r.toml.Obj("metadata")})
	if err != nil {
		return 0, err
	}
	return stored.Version, nil
}

// lookUp answers a reference to a store.
func (p *Plan) lookUp(ctx context.Context, r storeRef) (version int64, typ string, err error) {
	if r.kind == StoreAgent {
		a, err := agent.NewDocuments(p.p.Documents, p.p.Now, p.p.Log).Get(ctx, r.id, r.version)
		if err != nil {
			return 0, "", err
		}
		return a.Version, agent.DocumentType, nil
	}
	a, err := p.p.Artifacts.Get(ctx, artifact.Ref{ID: r.id, Version: r.version})
	if err != nil {
		return 0, "", err
	}
	return a.Version(), a.Type(), nil
}
