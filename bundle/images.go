package bundle

import (
	"context"
	"strings"

	"agentenv/artifact"
	"agentenv/fault"
	"agentenv/store"
)

// build builds the images that selected tasks run here, each unless the engine holds one of the same sources.
func (p *Plan) build(ctx context.Context, note func(string)) error {
	for _, en := range p.entries {
		if en.build == nil {
			continue
		}
		if err := p.buildOne(ctx, en, note); err != nil {
			return fault.At(err, "%s", en.e.Label())
		}
	}
	return nil
}

func (p *Plan) buildOne(ctx context.Context, en *entry, note func(string)) error {
	if p.p.Images == nil {
		return fault.New(fault.Unavailable, "its image must be built, and there is no Docker Engine to build it; start one (agent-env doctor says what is missing)")
	}
	release, err := store.LockEntities(ctx, p.p.StateRoot, []string{"image-build:" + en.build.Sources}, func() {
		note("waiting for another run that builds " + en.e.Path)
	})
	if err != nil {
		return err
	}
	defer release()
	held, err := p.p.Images.Holds(ctx, en.build.Name, en.build.Sources)
	if err != nil || held {
		return err
	}
	note("building " + en.e.Label() + " as " + en.build.Name)
	return p.p.Images.Build(ctx, *en.build, note)
}

// writeImage stores an image artifact: its build context, or its reference pinned to a digest.
func (p *Plan) writeImage(ctx context.Context, en *entry) (int64, error) {
	e := en.e
	description := e.config.Str("description")
	if en.context != nil {
		if description == "" {
			description = "built from " + e.Path + "/" + en.context.Dockerfile()
		}
		a, err := p.p.Artifacts.PutContext(ctx, e.ID, artifact.ContextImage{Description: description, Context: en.context})
		return version(a, err)
	}
	ref := e.config.Str("ref")
	if description == "" {
		description = "the image " + ref
	}
	pinned := ref
	old, err := artifact.GetAs[*artifact.DockerImage](ctx, p.p.Artifacts, artifact.Ref{ID: e.ID})
	switch {
	case err == nil && (old.Image == ref || strings.HasPrefix(old.Image, ref+"@")):
		pinned = old.Image
	case strings.Contains(ref, "@sha256:"):
	case p.p.Pin == nil:
		return 0, fault.New(fault.Unsupported, "%s: its tag cannot be resolved to a digest here; write the digest into ref", ref)
	default:
		if pinned, err = p.p.Pin(ctx, ref); err != nil {
			return 0, err
		}
	}
	if _, d, ok := strings.Cut(pinned, "@sha256:"); ok {
		en.pinned = "sha256:" + d[:min(12, len(d))]
	}
	a, err := p.p.Artifacts.PutRef(ctx, e.ID, artifact.RefImage{Description: description, Ref: pinned})
	return version(a, err)
}
