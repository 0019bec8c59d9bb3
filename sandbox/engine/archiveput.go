package engine

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path"
	"strings"

	"github.com/moby/moby/client"

	"agentenv/fault"
	"agentenv/sandbox/place"
)

// archivePut hands the stream on with the names below the deepest folder that exists, and reads every file back.
func (c *Container) archivePut(ctx context.Context, dir string, in io.Reader) ([]place.Placed, error) {
	dir = clean(dir)
	base, missing := dir, []string(nil)
	for {
		at, e, err := c.lookup(ctx, base, true)
		if err == nil {
			if e.Kind != place.Dir {
				return nil, fault.New(fault.Invalid, "%s in %s is no folder", base, c)
			}
			base = at
			break
		}
		if !fault.Is(err, fault.NotFound) || base == "/" {
			return nil, err
		}
		missing = append([]string{path.Base(base)}, missing...)
		base = path.Dir(base)
	}
	// The engine answers nothing about a container while it unpacks into it, so the stream is made whole first.
	spool, err := os.CreateTemp("", "agentenv-put-")
	if err != nil {
		return nil, fault.Wrap(fault.Unavailable, err, "hold the files for %s", c)
	}
	defer os.Remove(spool.Name())
	defer spool.Close()
	var files []string
	err = c.rewrite(spool, in, missing, &files, func(name string) bool {
		_, e, err := c.lookup(ctx, path.Join(dir, name), false)
		return err == nil && e.Kind == place.Dir
	})
	if err == nil {
		_, err = spool.Seek(0, io.SeekStart)
	}
	if err != nil {
		return nil, err
	}
	_, err = c.e.cli.CopyToContainer(ctx, c.info.ID, client.CopyToContainerOptions{DestinationPath: base, Content: spool})
	if err != nil {
		return nil, wrap(ctx, err, "write below %s in %s", dir, c)
	}
	return c.readBack(ctx, dir, files)
}

func (c *Container) rewrite(w io.Writer, in io.Reader, missing []string, files *[]string, isFolder func(string) bool) error {
	tw, tr := tar.NewWriter(w), tar.NewReader(in)
	prefix := strings.Join(missing, "/")
	made := map[string]bool{}
	for i := range missing {
		if err := tw.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: path.Join(missing[:i+1]...) + "/", Mode: 0o755}); err != nil {
			return err
		}
	}
	var folder func(name string, mode int64) error
	folder = func(name string, mode int64) error {
		if name == "." || made[name] {
			return nil
		}
		if err := folder(path.Dir(name), 0o755); err != nil {
			return err
		}
		made[name] = true
		if len(missing) == 0 && isFolder(name) {
			return nil
		}
		return tw.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: path.Join(prefix, name) + "/", Mode: mode})
	}
	for {
		h, err := tr.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		if err := place.CheckName(strings.TrimSuffix(h.Name, "/")); err != nil {
			return err
		}
		name := path.Clean(h.Name)
		if h.Typeflag == tar.TypeDir {
			if err := folder(name, h.Mode&0o777); err != nil {
				return err
			}
			continue
		}
		if err := folder(path.Dir(name), 0o755); err != nil {
			return err
		}
		out := &tar.Header{Typeflag: h.Typeflag, Name: path.Join(prefix, name), Linkname: h.Linkname, Mode: h.Mode & 0o777, Size: h.Size, ModTime: h.ModTime}
		switch h.Typeflag {
		case tar.TypeReg:
			*files = append(*files, name)
		case tar.TypeSymlink:
		default:
			return fault.New(fault.Unsupported, "%s: only files, folders and symlinks can be written", name)
		}
		if err := tw.WriteHeader(out); err != nil {
			return err
		}
		if _, err := io.Copy(tw, tr); err != nil {
			return err
		}
	}
	return tw.Close()
}

func (c *Container) readBack(ctx context.Context, dir string, files []string) ([]place.Placed, error) {
	if len(files) == 0 {
		return nil, nil
	}
	var roots []string
	for _, f := range files {
		roots = append(roots, path.Join(dir, f))
	}
	g := c.archiveGet(ctx, place.GetRequest{Roots: roots})
	defer g.Close()
	var out []place.Placed
	for {
		e, err := g.Next()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err == nil {
			err = e.Err
		}
		h := sha256.New()
		if err == nil {
			_, err = io.Copy(h, g)
		}
		if err != nil {
			return nil, fault.At(err, "read back below %s in %s", dir, c)
		}
		out = append(out, place.Placed{Name: files[e.Root], Size: e.Size, SHA256: hex.EncodeToString(h.Sum(nil))})
	}
}
