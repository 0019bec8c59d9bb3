// Package tree reads and writes file trees with names, modes, links and sizes as they are. The helper uses it inside
// containers, the local provider on this machine. It follows no link below a root.
package tree

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"agentenv/sandbox/helper/wire"
)

// Options says what Walk visits.
type Options struct {
	Follow  bool // a root that is a link is resolved
	Recurse bool
	Hash    bool                             // fill in SHA256 of regular files
	Skip    func(root int, name string) bool // left out, folders with everything below them; nil = none
}

// Walk calls visit for every root and, with Recurse, everything below it: sorted, parents before children. open opens the
// body of a regular file and is nil for other kinds; it is valid during the call only. An entry that cannot be read carries
// ErrKind and Err, and the walk goes on. The error is visit's.
func Walk(roots []string, o Options, visit func(e wire.Entry, open func() (*Body, error)) error) error {
	for i, root := range roots {
		at := root
		if o.Follow {
			to, err := filepath.EvalSymlinks(root)
			if err != nil {
				if err := visit(failed(wire.Entry{Root: i}, err), nil); err != nil {
					return err
				}
				continue
			}
			at = to
		}
		if err := walk(i, at, "", o, visit); err != nil {
			return err
		}
	}
	return nil
}

func walk(root int, at, name string, o Options, visit func(wire.Entry, func() (*Body, error)) error) error {
	if o.Skip != nil && o.Skip(root, name) {
		return nil
	}
	e := wire.Entry{Root: root, Name: name}
	fi, err := os.Lstat(at)
	if err != nil {
		return visit(failed(e, err), nil)
	}
	describe(&e, fi)
	switch e.Kind {
	case wire.KindSymlink:
		if e.Link, err = os.Readlink(at); err != nil {
			e = failed(e, err)
		}
		return visit(e, nil)
	case wire.KindFile:
		return file(at, e, o, visit)
	case wire.KindOther:
		return visit(e, nil)
	}
	if !o.Recurse {
		return visit(e, nil)
	}
	list, err := os.ReadDir(at)
	if err != nil {
		e = failed(e, err)
	}
	if err := visit(e, nil); err != nil {
		return err
	}
	for _, c := range list {
		below := c.Name()
		if name != "" {
			below = name + "/" + below
		}
		if err := walk(root, at+"/"+c.Name(), below, o, visit); err != nil {
			return err
		}
	}
	return nil
}

func file(at string, e wire.Entry, o Options, visit func(wire.Entry, func() (*Body, error)) error) error {
	var first *Body
	if e.Size == 0 || o.Hash {
		// A file that claims to be empty may be generated (/proc, /sys): its size is what it gives.
		b, err := open(at)
		if err != nil {
			return visit(failed(e, err), nil)
		}
		defer b.Close()
		if e.Size == 0 {
			if err := b.generated(); err != nil {
				return visit(failed(e, err), nil)
			}
		}
		e.Size = b.Size
		first = b
	}
	if o.Hash {
		h := sha256.New()
		if _, err := io.Copy(h, first); err != nil {
			return visit(failed(e, err), nil)
		}
		e.SHA256 = hex.EncodeToString(h.Sum(nil))
		return visit(e, func() (*Body, error) { return open(at) })
	}
	return visit(e, func() (*Body, error) {
		if first != nil {
			return first, nil
		}
		return open(at)
	})
}

func failed(e wire.Entry, err error) wire.Entry {
	e.ErrKind = wire.KindOf(err)
	if pe, ok := err.(*fs.PathError); ok {
		err = pe.Err
	}
	e.Err = err.Error()
	return e
}

func describe(e *wire.Entry, fi fs.FileInfo) {
	m := fi.Mode()
	e.Mode = uint32(m.Perm())
	for bit, v := range map[fs.FileMode]uint32{fs.ModeSetuid: 0o4000, fs.ModeSetgid: 0o2000, fs.ModeSticky: 0o1000} {
		if m&bit != 0 {
			e.Mode |= v
		}
	}
	switch {
	case m.IsRegular():
		e.Kind, e.Size = wire.KindFile, fi.Size()
	case m.IsDir():
		e.Kind = wire.KindDir
	case m&fs.ModeSymlink != 0:
		e.Kind = wire.KindSymlink
	default:
		e.Kind = wire.KindOther
	}
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		e.UID, e.GID = int(st.Uid), int(st.Gid)
	}
}

// Body reads one regular file and notices when its length is not Size, the one it had when it was opened.
type Body struct {
	Size int64
	at   time.Time // of its last change when it was opened
	f    *os.File
	held *bytes.Reader // a generated file's content
	n    int64
}

func open(at string) (*Body, error) {
	// Not blocking, in case a named pipe took the file's place since it was looked at.
	f, err := os.OpenFile(at, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	fi, err := f.Stat()
	if err == nil && !fi.Mode().IsRegular() {
		err = &wire.Failure{Kind: "conflict", Msg: "is no longer a regular file"}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return &Body{Size: fi.Size(), at: fi.ModTime(), f: f}, nil
}

const maxGenerated = 1 << 20

func (b *Body) generated() error {
	all, err := io.ReadAll(io.LimitReader(b.f, maxGenerated+1))
	if err != nil {
		return err
	}
	if len(all) > maxGenerated {
		return &wire.Failure{Kind: "unsupported", Msg: fmt.Sprintf("a file without a size gave more than %d bytes", maxGenerated)}
	}
	b.held, b.Size = bytes.NewReader(all), int64(len(all))
	return nil
}

// Read reads the body; where it is shorter or longer than Size the error is a wire.Failure of kind conflict.
func (b *Body) Read(p []byte) (int, error) {
	if b.held != nil {
		return b.held.Read(p)
	}
	n, err := b.f.Read(p)
	if b.n+int64(n) > b.Size {
		keep := int(b.Size - b.n)
		b.n = b.Size
		return keep, &wire.Failure{Kind: "conflict", Msg: fmt.Sprintf("grew beyond %d bytes while it was read", b.Size)}
	}
	b.n += int64(n)
	if err == io.EOF && b.n < b.Size {
		err = &wire.Failure{Kind: "conflict", Msg: fmt.Sprintf("shrank from %d to %d bytes while it was read", b.Size, b.n)}
	}
	return n, err
}

// Close closes the file; a second call is an error that can be ignored.
func (b *Body) Close() error { return b.f.Close() }
