package modelagent

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"agentenv/fault"
)

// What a workspace that is loaded may hold at most.
const (
	maxWorkspace = 5 << 30 // bytes of its files
	maxFiles     = 1 << 20
)

// pack writes the files, folders and links below a folder as a compressed tar; what is none of them is left out, as is what goes meanwhile.
func pack(ctx context.Context, dir string, to io.Writer) error {
	if dir == "" {
		dir = "."
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	zip := gzip.NewWriter(to)
	out := tar.NewWriter(zip)
	err = fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || name == "." {
			return err
		}
		return packOne(root, name, out)
	})
	return errors.Join(err, out.Close(), zip.Close())
}

func packOne(root *os.Root, name string, out *tar.Writer) error {
	info, err := root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	link := ""
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		if link, err = root.Readlink(name); err != nil {
			return err
		}
	case !info.IsDir() && !info.Mode().IsRegular():
		return nil
	}
	h, err := tar.FileInfoHeader(info, link)
	if err != nil {
		return err
	}
	h.Name, h.Uname, h.Gname = name, "", ""
	if !info.Mode().IsRegular() {
		return out.WriteHeader(h)
	}
	f, err := root.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if err := out.WriteHeader(h); err != nil {
		return err
	}
	// A file that shrinks while it is read is filled up: its size has been told.
	n, err := io.Copy(out, io.LimitReader(f, h.Size))
	if err == nil && n < h.Size {
		_, err = io.CopyN(out, zeros{}, h.Size-n)
	}
	return err
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

// unpack makes what a compressed tar holds below a folder, over what is there and never outside of it. An archive that is none, and one that holds
// too much, is Invalid; what was made by then stays.
func unpack(from io.Reader, dir string) error {
	if dir == "" {
		dir = "."
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fault.Wrap(fault.Unavailable, err, "the workspace cannot be written")
	}
	defer root.Close()
	zip, err := gzip.NewReader(from)
	if err != nil {
		return fault.Wrap(fault.Invalid, err, "the workspace is no compressed tar")
	}
	in, left := tar.NewReader(zip), int64(maxWorkspace)
	for range maxFiles {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fault.Wrap(fault.Invalid, err, "the workspace is no compressed tar")
		}
		if left -= h.Size; left < 0 {
			return fault.New(fault.Invalid, "the workspace holds more than %d bytes", int64(maxWorkspace))
		}
		if err := unpackOne(root, h, in); err != nil {
			return err
		}
	}
	return fault.New(fault.Invalid, "the workspace holds more than %d files", maxFiles)
}

func unpackOne(root *os.Root, h *tar.Header, body io.Reader) error {
	name := path.Clean(h.Name)
	if name == "." {
		return nil
	}
	if !fs.ValidPath(name) || strings.ContainsRune(name, 0) {
		return fault.New(fault.Invalid, "the workspace holds the name %q, which leads elsewhere", h.Name)
	}
	mode := fs.FileMode(h.Mode).Perm()
	err := root.MkdirAll(path.Dir(name), 0o755)
	switch {
	case err != nil:
	case h.Typeflag == tar.TypeDir:
		if err = root.MkdirAll(name, 0o755); err == nil {
			err = root.Chmod(name, mode|0o700)
		}
	case h.Typeflag == tar.TypeSymlink:
		if err = remove(root, name); err == nil {
			err = root.Symlink(h.Linkname, name)
		}
	case h.Typeflag == tar.TypeReg:
		err = write(root, name, mode, body)
	}
	if err != nil {
		return fault.Wrap(fault.Invalid, err, "the workspace's %s cannot be made", name)
	}
	return nil
}

// remove makes room for a file or link: a link that is there must not be followed.
func remove(root *os.Root, name string) error {
	info, err := root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil && info.IsDir() {
		return fault.New(fault.Exists, "there is a folder of this name")
	}
	return errors.Join(err, root.Remove(name))
}

func write(root *os.Root, name string, mode fs.FileMode, body io.Reader) error {
	if err := remove(root, name); err != nil {
		return err
	}
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, body)
	return errors.Join(err, f.Close())
}
