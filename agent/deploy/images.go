package deploy

import (
	"context"
	"io"
	"os"
	"sync"

	"agentenv/artifact"
	"agentenv/fault"
	"agentenv/sandbox/engine"
	"agentenv/sandbox/imagebuild"
	"agentenv/store"
)

// Image is an image that can be run by its name.
type Image struct {
	Name   string
	Labels map[string]string
}

// Images makes stored images runnable.
type Images interface {
	// Ready brings an image where sandboxes of this machine can run it. progress gets one line at a time.
	Ready(ctx context.Context, img *artifact.DockerImage, progress func(line string)) (Image, error)
}

// EngineImages makes images runnable on one container engine. It is safe for concurrent use.
type EngineImages struct {
	Engine    *engine.Lazy
	Artifacts *artifact.Store
	StateRoot string // holds the locks

	loaded sync.Map // object URLs of archives that this process loaded, with the image's id on the engine
}

// Ready builds an image from its stored sources unless the engine holds one of the same, loads a saved one, and pulls one of a registry
// unless it is there. A second call for the same image does nothing again. An image that this machine cannot run is Invalid.
func (i *EngineImages) Ready(ctx context.Context, img *artifact.DockerImage, progress func(string)) (Image, error) {
	e, err := i.Engine.Get(ctx)
	if err != nil {
		return Image{}, err
	}
	platform := "linux/" + e.Arch()
	if why := img.LoadProblem(true, platform); why != "" {
		return Image{}, fault.New(fault.Invalid, "%s", why)
	}
	name := img.Image
	switch {
	case img.ContextOnly() || img.RebuiltFor(platform):
		err = i.once(ctx, "image-build:"+img.SourceDigest, func() error { return i.build(ctx, e, img, platform, progress) })
	case img.TarURL != "":
		err = i.once(ctx, "image-load:"+img.TarURL, func() error { return i.load(ctx, e, img, progress) })
	default:
		if img.ImageDigest != "" {
			name += "@" + img.ImageDigest
		}
		_, err = e.Ensure(ctx, name, progress)
	}
	if err != nil {
		return Image{}, err
	}
	held, err := e.Image(ctx, name)
	if err != nil {
		return Image{}, err
	}
	return Image{Name: name, Labels: held.Labels}, nil
}

// once holds a lock against every other process that would do the same.
func (i *EngineImages) once(ctx context.Context, what string, do func() error) error {
	release, err := store.LockEntities(ctx, i.StateRoot, []string{what}, nil)
	if err != nil {
		return err
	}
	defer release()
	return do()
}

func (i *EngineImages) build(ctx context.Context, e *engine.Engine, img *artifact.DockerImage, platform string, progress func(string)) error {
	held, err := e.Image(ctx, img.Image)
	if err == nil && img.SourceDigest != "" && held.Labels[imagebuild.SourcesLabel] == img.SourceDigest {
		return nil
	}
	if err != nil && !fault.Is(err, fault.NotFound) {
		return err
	}
	dir, err := os.MkdirTemp("", "agentenv-build-*")
	if err != nil {
		return fault.Wrap(fault.Unavailable, err, "a folder for the build of %s cannot be made", img.Image)
	}
	defer os.RemoveAll(dir)
	sources, err := i.Artifacts.OpenContext(ctx, img)
	if err != nil {
		return err
	}
	err = artifact.Extract(ctx, sources, dir)
	sources.Close()
	if err != nil {
		return fault.At(err, "build context of %s", img.ID())
	}
	if img.Platform != "" && !img.RebuiltFor(platform) {
		platform = img.Platform
	}
	progress("building " + img.Image)
	return imagebuild.Build(ctx, e.Client(), imagebuild.Request{Context: dir, Dockerfile: img.Dockerfile, Names: []string{img.Image},
		Labels: map[string]string{imagebuild.SourcesLabel: img.SourceDigest}, Platform: platform, Logins: e.Logins(), Progress: progress})
}

func (i *EngineImages) load(ctx context.Context, e *engine.Engine, img *artifact.DockerImage, progress func(string)) error {
	held, err := e.Image(ctx, img.Image)
	if err == nil {
		if id, mine := i.loaded.Load(img.TarURL); mine && id == held.ID {
			return nil
		}
	}
	archive, err := i.Artifacts.OpenImage(ctx, img)
	if err != nil {
		return err
	}
	defer archive.Close()
	progress("loading " + img.Image)
	r, err := e.Client().ImageLoad(ctx, archive)
	if err == nil {
		_, err = io.Copy(io.Discard, r)
		r.Close()
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return fault.Wrap(fault.Unavailable, err, "load image %s", img.Image)
	}
	held, err = e.Image(ctx, img.Image)
	if err != nil {
		return fault.At(err, "the saved archive of %s holds no image of its name", img.ID())
	}
	i.loaded.Store(img.TarURL, held.ID)
	return nil
}
