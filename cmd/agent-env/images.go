package main

import (
	"context"
	"io"
	"os"

	"agentenv/artifact"
	"agentenv/bundle"
	"agentenv/fault"
	"agentenv/sandbox/engine"
	"agentenv/sandbox/imagebuild"
)

// images builds a bundle's images on this machine's engine.
type images struct {
	engine *engine.Lazy
}

// Holds implements bundle.ImageBuilder.
func (i images) Holds(ctx context.Context, name, sources string) (bool, error) {
	e, err := i.engine.Get(ctx)
	if err != nil {
		return false, err
	}
	img, err := e.Image(ctx, name)
	if fault.Is(err, fault.NotFound) {
		return false, nil
	}
	return err == nil && img.Labels[imagebuild.SourcesLabel] == sources, err
}

// Build implements bundle.ImageBuilder. The folder given to the engine is made of the context's archive, so that what is built
// is exactly what the sources' digest covers.
func (i images) Build(ctx context.Context, b bundle.ImageBuild, progress func(string)) error {
	e, err := i.engine.Get(ctx)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "agentenv-build-*")
	if err != nil {
		return fault.Wrap(fault.Unavailable, err, "a folder for the build of %s cannot be made", b.Name)
	}
	defer os.RemoveAll(dir)
	r, w := io.Pipe()
	packed := make(chan error, 1)
	go func() {
		err := b.Context.Tar(ctx, w)
		w.CloseWithError(err)
		packed <- err
	}()
	err = artifact.Extract(ctx, r, dir)
	r.CloseWithError(io.ErrClosedPipe)
	if perr := <-packed; err == nil {
		err = perr
	}
	if err != nil {
		return fault.At(err, "build context of %s", b.Name)
	}
	return imagebuild.Build(ctx, e.Client(), imagebuild.Request{Context: dir, Dockerfile: b.Dockerfile, Names: []string{b.Name},
		Labels: map[string]string{imagebuild.SourcesLabel: b.Sources}, Platform: b.Platform, Logins: e.Logins(), Progress: progress})
}
