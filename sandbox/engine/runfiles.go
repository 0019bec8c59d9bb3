package engine

import (
	"archive/tar"
	"bytes"
	"context"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/moby/moby/client"

	"agentenv/fault"
)

// bring puts a spec's files into a container that has not started. Folders that are missing are made by the engine; nothing is asked of the
// image.
func (e *Engine) bring(ctx context.Context, id string, s RunSpec) error {
	if len(s.Files) == 0 {
		return nil
	}
	var b bytes.Buffer
	tw := tar.NewWriter(&b)
	for _, name := range slices.Sorted(maps.Keys(s.Files)) {
		if !strings.HasPrefix(name, "/") || path.Clean(name) != name || name == "/" {
			return fault.New(fault.Invalid, "%q is no plain absolute path of a file for container %s", name, s.Name)
		}
		text := s.Files[name]
		err := tw.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name[1:], Mode: 0o644, Size: int64(len(text)), ModTime: helperTime})
		if err == nil {
			_, err = tw.Write(text)
		}
		if err != nil {
			return fault.Wrap(fault.Internal, err, "pack %s for container %s", name, s.Name)
		}
	}
	if err := tw.Close(); err != nil {
		return fault.Wrap(fault.Internal, err, "pack files for container %s", s.Name)
	}
	_, err := e.cli.CopyToContainer(ctx, id, client.CopyToContainerOptions{DestinationPath: "/", Content: &b})
	return wrap(ctx, err, "put files into container %s before its start", s.Name)
}
