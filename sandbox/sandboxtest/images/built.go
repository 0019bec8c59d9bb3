package images

import (
	"context"
	"os"
	"path/filepath"

	"agentenv/sandbox/engine"
	"agentenv/sandbox/imagebuild"
)

// Built gives the content of the image from the name tag, marked as built here from the sources of a bundle: a program that asks a
// registry for every image it did not build takes it as it is. A second call with the same names builds nothing anew. The caller
// removes the tag when it is done with it.
func Built(ctx context.Context, e *engine.Engine, from, tag string) error {
	dir, err := os.MkdirTemp("", "agentenv-image-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := os.WriteFile(filepath.Join(dir, "Dockerfile"), []byte("FROM "+from+"\n"), 0o644); err != nil {
		return err
	}
	return imagebuild.Build(ctx, e.Client(), imagebuild.Request{Context: dir, Dockerfile: "Dockerfile", Names: []string{tag},
		Labels: map[string]string{imagebuild.SourcesLabel: "sha256:0"}, Logins: e.Logins(), Progress: func(string) {}})
}
