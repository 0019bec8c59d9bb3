package artifact

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"agentenv/fault"
)

// Limits of an archive that Extract unpacks.
const (
	maxArchiveEntries = 1 << 20
	maxArchiveBytes   = 64 << 30
)

// Archive writes the context as a tar.gz whose bytes depend on the sources alone: sorted, no times, no owners. A file that changed
// since the context was opened is a Conflict error.
func (c *BuildContext) Archive(ctx context.Context, w io.Writer) error {
	z := gzip.NewWriter(w)
	if err := c.Tar(ctx, z); err != nil {
		return err
	}
	return z.Close()
}

// Tar is Archive without the compression.
func (c *BuildContext) Tar(ctx context.Context, w io.Writer) error {
	t := tar.NewWriter(w)
	for _, e := range c.entries {
		if err := ctx.Err(); err != nil {
			return err
		}
		h := &tar.Header{Format: tar.FormatPAX, Name: e.Name, Mode: int64(e.Mode.Perm()), ModTime: time.Unix(0, 0)}
		switch {
		case e.Mode.IsDir():
			h.Typeflag, h.Name = tar.TypeDir, e.Name+"/"
		case e.Mode&fs.ModeSymlink != 0:
			h.Typeflag, h.Linkname = tar.TypeSymlink, e.Link
		default:
			h.Typeflag, h.Size = tar.TypeReg, e.Size
		}
		if err := t.WriteHeader(h); err != nil {
			return fault.Wrap(fault.Invalid, err, "build context %s: %q", c.dir, e.Name)
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		if err := copyUnchanged(t, e); err != nil {
			return fault.At(err, "build context %s", c.dir)
		}
	}
	return t.Close()
}

// copyUnchanged writes a file's bytes and makes sure that they are the ones that were listed.
func copyUnchanged(w io.Writer, e ContextEntry) error {
	f, err := os.Open(e.disk)
	if err != nil {
		return fault.New(fault.Conflict, "%q went away while it was read: %s", e.Name, fault.Reason(err))
	}
	defer f.Close()
	h := sha256.New()
	n, err := io.Copy(io.MultiWriter(w, h), io.LimitReader(f, e.Size))
	if err != nil {
		return err
	}
	more, _ := io.ReadFull(f, make([]byte, 1))
	if n != e.Size || more > 0 || hex.EncodeToString(h.Sum(nil)) != e.SHA256 {
		return fault.New(fault.Conflict, "%q changed while it was read; try again", e.Name)
	}
	return nil
}

// Extract unpacks a tar, gzipped or not, into an existing folder. Nothing can land outside it: absolute names, "..", hard links to
// the outside and device files are Invalid errors, links that lead outside are left out. What is there already is replaced.
func Extract(ctx context.Context, r io.Reader, dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fault.Wrap(fault.KindOf(err), err, "unpack into %s", dir)
	}
	defer root.Close()
	b := bufio.NewReader(r)
	if head, _ := b.Peek(2); len(head) == 2 && head[0] == 0x1f && head[1] == 0x8b {
		z, err := gzip.NewReader(b)
		if err != nil {
			return fault.Wrap(fault.Invalid, err, "the archive is no gzip")
		}
		b = bufio.NewReader(z)
	}
	var total int64
	t := tar.NewReader(b)
	for n := 0; ; n++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fault.Wrap(fault.Invalid, err, "the archive cannot be read")
		}
		total += max(h.Size, 0)
		if n == maxArchiveEntries || total > maxArchiveBytes {
			return fault.New(fault.Invalid, "the archive is larger than %d entries or %d GiB", maxArchiveEntries, maxArchiveBytes>>30)
		}
		if err := extractEntry(root, h, t); err != nil {
			return fault.At(err, "archive entry %q", h.Name)
		}
	}
}

func extractEntry(root *os.Root, h *tar.Header, body io.Reader) error {
	name := strings.TrimSuffix(h.Name, "/")
	if name == "." || name == "" {
		return nil
	}
	if err := CheckRelative(name); err != nil {
		return err
	}
	name = filepath.FromSlash(path.Clean(name))
	mode := fs.FileMode(h.Mode).Perm()
	if h.Typeflag == tar.TypeDir {
		if err := root.MkdirAll(name, 0o755); err != nil {
			return err
		}
		return root.Chmod(name, mode|0o700)
	}
	if err := root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	switch h.Typeflag {
	case tar.TypeReg:
		if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode|0o600)
		if err != nil {
			return err
		}
		if _, err := io.Copy(f, body); err != nil {
			f.Close()
			return err
		}
		return f.Close()
	case tar.TypeSymlink:
		target := path.Join(path.Dir(filepath.ToSlash(name)), h.Linkname)
		if path.IsAbs(h.Linkname) || target == ".." || strings.HasPrefix(target, "../") {
			return nil
		}
		if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return root.Symlink(h.Linkname, name)
	case tar.TypeLink:
		if err := CheckRelative(h.Linkname); err != nil {
			return err
		}
		if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return root.Link(filepath.FromSlash(path.Clean(h.Linkname)), name)
	}
	return fault.New(fault.Invalid, "it is neither a file, a folder nor a link")
}
