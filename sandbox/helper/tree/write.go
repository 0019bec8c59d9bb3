package tree

import (
	"archive/tar"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"

	"agentenv/sandbox/helper/wire"
)

// Unpack writes a tar stream below dir, which is made with its parents (0755) where absent, and returns every file as it was
// read back afterwards, with its size and sha256, in the order of the stream. Files take the modes of the stream and, for
// root, the owner root; each appears whole, by a rename. Existing files and links are replaced; links on the way to a name
// are replaced by folders; existing folders keep their modes. Names that leave dir, and kinds of entries other than files,
// folders and symlinks, are errors. What was written before an error stays.
func Unpack(dir string, r io.Reader) ([]wire.Entry, error) {
	if err := mkdirAll(dir); err != nil {
		return nil, fmt.Errorf("make the folder %s: %w", dir, err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	u := newUnpacker(dir, root)
	tr := tar.NewReader(r)
	for {
		h, err := tr.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("the tar stream for %s: %w", dir, err)
		}
		if err := u.entry(h, tr); err != nil {
			return nil, err
		}
	}
	// What the stream holds after its end marker is read, so that its writer never meets a closed pipe.
	if _, err := io.Copy(io.Discard, r); err != nil {
		return nil, fmt.Errorf("the tar stream for %s: %w", dir, err)
	}
	return u.readBack()
}

type unpacker struct {
	dir   string
	root  *os.Root
	made  map[string]bool
	files []string
	buf   []byte
}

func (u *unpacker) buffer() []byte {
	if u.buf == nil {
		u.buf = make([]byte, 256<<10)
	}
	return u.buf
}

func newUnpacker(dir string, root *os.Root) *unpacker {
	return &unpacker{dir: dir, root: root, made: map[string]bool{".": true}}
}

func (u *unpacker) entry(h *tar.Header, body io.Reader) error {
	name, err := u.inside(h.Name)
	if err != nil {
		return err
	}
	fail := func(err error) error { return u.failed(name, err) }
	perm := fs.FileMode(h.Mode & 0o777)
	if err := u.folder(path.Dir(name), 0o755); err != nil {
		return fail(err)
	}
	switch h.Typeflag {
	case tar.TypeDir:
		if err := u.folder(name, perm); err != nil {
			return fail(err)
		}
	case tar.TypeReg:
		if err := u.file(name, perm, body); err != nil {
			return fail(err)
		}
		u.files = append(u.files, name)
	case tar.TypeSymlink:
		tmp := u.temp(name)
		err := u.root.Symlink(h.Linkname, tmp)
		if err == nil {
			err = u.place(tmp, name)
		}
		if err != nil {
			return fail(err)
		}
	default:
		return &wire.Failure{Kind: "unsupported", Msg: fmt.Sprintf("%s: only files, folders and symlinks can be written", path.Join(u.dir, name))}
	}
	return nil
}

// inside returns the clean form of a name that stays below the folder.
func (u *unpacker) inside(given string) (string, error) {
	name := path.Clean(strings.TrimSuffix(given, "/"))
	if name == "" || strings.HasPrefix(name, "/") || name == ".." || strings.HasPrefix(name, "../") || strings.ContainsRune(name, 0) {
		return "", &wire.Failure{Kind: "invalid", Msg: fmt.Sprintf("the name %q leads out of %s", given, u.dir)}
	}
	return name, nil
}

func (u *unpacker) failed(name string, err error) error {
	if pe := (*fs.PathError)(nil); errors.As(err, &pe) {
		err = pe.Err
	} else if le := (*os.LinkError)(nil); errors.As(err, &le) {
		err = le.Err
	}
	return fmt.Errorf("write %s: %w", path.Join(u.dir, name), err)
}

func (u *unpacker) folder(name string, perm fs.FileMode) error {
	if u.made[name] {
		return nil
	}
	if err := u.folder(path.Dir(name), 0o755); err != nil {
		return err
	}
	fi, err := u.root.Lstat(name)
	if err == nil && !fi.IsDir() {
		if err = u.root.Remove(name); err != nil {
			return err
		}
		err = fs.ErrNotExist
	}
	if errors.Is(err, fs.ErrNotExist) {
		if err = u.root.Mkdir(name, 0o700); err == nil || errors.Is(err, fs.ErrExist) {
			err = u.root.Chmod(name, perm)
		}
		if err == nil && os.Geteuid() == 0 {
			err = u.root.Lchown(name, 0, 0)
		}
	}
	if err == nil {
		u.made[name] = true
	}
	return err
}

func (u *unpacker) file(name string, perm fs.FileMode, body io.Reader) error {
	tmp := u.temp(name)
	f, err := u.root.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.CopyBuffer(struct{ io.Writer }{f}, struct{ io.Reader }{body}, u.buffer())
	if err == nil && os.Geteuid() == 0 {
		err = f.Chown(0, 0)
	}
	if err == nil {
		err = f.Chmod(perm)
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err != nil {
		u.root.Remove(tmp)
		return err
	}
	return u.place(tmp, name)
}

func (u *unpacker) temp(name string) string {
	return path.Join(path.Dir(name), ".agentenv-"+rand.Text()[:12])
}

func (u *unpacker) place(tmp, name string) error {
	delete(u.made, name)
	err := u.root.Rename(tmp, name)
	if err != nil {
		u.root.Remove(tmp)
		if fi, e := u.root.Lstat(name); e == nil && fi.IsDir() {
			return &wire.Failure{Kind: "invalid", Msg: "a folder is in the way"}
		}
	}
	return err
}

func (u *unpacker) readBack() ([]wire.Entry, error) {
	var out []wire.Entry
	for _, name := range u.files {
		f, err := u.root.OpenFile(name, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
		if err != nil {
			return nil, fmt.Errorf("read back %s: %w", path.Join(u.dir, name), err)
		}
		fi, err := f.Stat()
		h := sha256.New()
		if err == nil {
			_, err = io.CopyBuffer(h, struct{ io.Reader }{f}, u.buffer())
		}
		f.Close()
		if err != nil {
			return nil, fmt.Errorf("read back %s: %w", path.Join(u.dir, name), err)
		}
		e := wire.Entry{Name: name, SHA256: hex.EncodeToString(h.Sum(nil))}
		describe(&e, fi)
		out = append(out, e)
	}
	return out, nil
}

// mkdirAll makes dir and its parents with mode 0755 whatever the umask; existing folders stay as they are.
func mkdirAll(dir string) error {
	if fi, err := os.Stat(dir); err == nil {
		if !fi.IsDir() {
			return &wire.Failure{Kind: "invalid", Msg: dir + " is not a folder"}
		}
		return nil
	}
	if up := path.Dir(dir); up != dir {
		if err := mkdirAll(up); err != nil {
			return err
		}
	}
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return os.Chmod(dir, 0o755)
}
