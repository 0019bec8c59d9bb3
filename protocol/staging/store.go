// Package staging is the small private object store of an agent: where an object store cannot be reached from the agent's sandbox, objects
// are put here over the agent's own address, under a path nobody can guess. Store keeps the files; Handler speaks the agent extension
// urn:agentenv:staging/v1.
package staging

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"agentenv/fault"
	"agentenv/protocol/transfer"
)

// DefaultMaxBytes is how much a store holds when nothing else is said.
const DefaultMaxBytes = 16 << 30

// MaxPath is how many bytes the path of an object may have.
const MaxPath = 1024

// Object is one stored object.
type Object struct {
	Path string
	Size int64
	ETag string
}

// Store keeps objects in files below a folder, within a number of bytes. Readers see whole objects. Safe for concurrent use by one process.
type Store struct {
	root  string
	own   bool // the folder goes with the store
	limit int64

	mu       sync.Mutex
	used     int64 // stored and reserved bytes
	lastTime time.Time
}

// errFull and errDiskFull are told apart by Handler.
var (
	errFull     = fault.New(fault.Unavailable, "staging is full")
	errDiskFull = fault.New(fault.Unavailable, "the disk of staging is full")
)

// Open returns the store in a folder, "" for a fresh temporary one that Close removes. Folders that others can read are closed to them. What
// is there already counts.
func Open(dir string, maxBytes int64) (_ *Store, err error) {
	s := &Store{root: dir, limit: maxBytes}
	if dir == "" {
		if s.root, err = os.MkdirTemp("", "agentenv-staging-"); err != nil {
			return nil, fault.Wrap(fault.Unavailable, err, "the folder for staging cannot be made")
		}
		s.own = true
	}
	for _, sub := range []string{"", "incoming", "objects"} {
		at := filepath.Join(s.root, sub)
		if err = os.MkdirAll(at, 0o700); err == nil && sub != "" {
			err = os.Chmod(at, 0o700)
		}
		if err != nil {
			return nil, fault.Wrap(fault.Unavailable, err, "the folder for staging cannot be used")
		}
	}
	// Nothing of an earlier process is still on its way.
	left, _ := filepath.Glob(filepath.Join(s.root, "incoming", "*"))
	for _, f := range left {
		_ = os.Remove(f)
	}
	err = filepath.WalkDir(s.file(""), func(_ string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		info, err := e.Info()
		if err == nil {
			s.used += info.Size()
			s.lastTime = maxTime(s.lastTime, info.ModTime())
		}
		return err
	})
	if err != nil {
		return nil, fault.Wrap(fault.Unavailable, err, "the folder for staging cannot be read")
	}
	return s, nil
}

func maxTime(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// Close removes the folder if it was made by Open; a second call is a no-op.
func (s *Store) Close() error {
	if s.own {
		return os.RemoveAll(s.root)
	}
	return nil
}

// MaxBytes returns what the store holds at most.
func (s *Store) MaxBytes() int64 { return s.limit }

func (s *Store) file(p string) string { return filepath.Join(s.root, "objects", filepath.FromSlash(p)) }

// plain reports whether p names an object: no empty, . or .. segment, no backslash, no NUL, at most MaxPath bytes.
func plain(p string) bool { return len(p) <= MaxPath && transfer.Relative(p) }

func badPath() error {
	return fault.New(fault.Invalid, "the path is not a plain relative one of at most %d bytes", MaxPath)
}

// take counts bytes as used; room for them must be there.
func (s *Store) take(n int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n > s.limit-s.used {
		return errFull
	}
	s.used += n
	return nil
}

func (s *Store) release(n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used -= n
}

// Put stores an object over one that is there: size is its announced length, -1 when unknown. While it lands, room for the old and the new one
// is needed. A body that is shorter or longer than announced, and a path that is no plain one, are Invalid; a path that is a folder, or lies
// below an object, is a Conflict; Unavailable when there is no room. Nothing is stored then.
func (s *Store) Put(p string, body io.Reader, size int64) (Object, error) {
	if !plain(p) {
		return Object{}, badPath()
	}
	taken := int64(0)
	kept := false
	defer func() {
		if !kept {
			s.release(taken)
		}
	}()
	if size > 0 {
		if err := s.take(size); err != nil {
			return Object{}, err
		}
		taken = size
	}
	f, err := os.CreateTemp(filepath.Join(s.root, "incoming"), "")
	if err != nil {
		return Object{}, s.failed(err)
	}
	defer os.Remove(f.Name())
	defer f.Close()
	n, err := s.copy(f, body, size, &taken)
	if err != nil {
		return Object{}, err
	}
	if err := f.Close(); err != nil {
		return Object{}, s.failed(err)
	}
	o, before, err := s.land(f.Name(), p, n)
	if err != nil {
		return Object{}, err
	}
	kept = true
	s.release(before)
	return o, nil
}

// copy writes the body, reserving bytes as they come where no length was announced.
func (s *Store) copy(f *os.File, body io.Reader, size int64, taken *int64) (n int64, err error) {
	buf := make([]byte, 64<<10)
	for {
		m, rerr := body.Read(buf)
		n += int64(m)
		switch {
		case size >= 0 && n > size:
			return n, fault.New(fault.Invalid, "the body is longer than its Content-Length")
		case size < 0 && m > 0:
			if err := s.take(int64(m)); err != nil {
				return n, err
			}
			*taken += int64(m)
		}
		if _, err := f.Write(buf[:m]); err != nil {
			return n, s.failed(err)
		}
		switch {
		case errors.Is(rerr, io.EOF) && size >= 0 && n < size, errors.Is(rerr, io.ErrUnexpectedEOF):
			return n, fault.New(fault.Invalid, "the body is shorter than its Content-Length")
		case errors.Is(rerr, io.EOF):
			return n, nil
		case rerr != nil:
			return n, fault.Wrap(fault.Invalid, rerr, "the body could not be read")
		}
	}
}

func (s *Store) failed(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return errDiskFull
	}
	var p *fs.PathError
	if errors.As(err, &p) {
		err = p.Err // without this machine's path
	}
	return fault.Wrap(fault.Internal, err, "staging could not be written")
}

// land puts a whole file under its path and returns how large what was there before was.
func (s *Store) land(file, p string, size int64) (o Object, before int64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	target := s.file(p)
	if info, err := os.Lstat(target); err == nil {
		if info.IsDir() {
			return o, 0, both(p)
		}
		before = info.Size()
	}
	if err := os.MkdirAll(filepath.Dir(target), 0o700); err != nil {
		if errors.Is(err, syscall.ENOTDIR) || errors.Is(err, fs.ErrExist) {
			return o, 0, both(p)
		}
		return o, 0, s.failed(err)
	}
	// Tags tell contents apart, so no two objects get one time.
	now := time.Now()
	if !now.After(s.lastTime) {
		now = s.lastTime.Add(time.Nanosecond)
	}
	s.lastTime = now
	if err = os.Chtimes(file, now, now); err == nil {
		err = os.Rename(file, target)
	}
	if err != nil {
		s.prune(p)
		return o, 0, s.failed(err)
	}
	info, err := os.Lstat(target)
	if err != nil {
		return o, 0, s.failed(err)
	}
	return Object{Path: p, Size: size, ETag: tag(info)}, before, nil
}

func both(p string) error {
	return fault.New(fault.Conflict, "%q is an object and a folder of objects", p)
}

func tag(info fs.FileInfo) string {
	return fmt.Sprintf(`"%x-%x"`, info.ModTime().UnixNano(), info.Size())
}

func missing(p string) error { return fault.New(fault.NotFound, "there is no object %q", p) }

// Get opens an object. The reader must be closed. NotFound when there is none.
func (s *Store) Get(p string) (io.ReadSeekCloser, Object, error) {
	if !plain(p) {
		return nil, Object{}, badPath()
	}
	f, err := os.Open(s.file(p))
	if err != nil {
		return nil, Object{}, missing(p)
	}
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		f.Close()
		return nil, Object{}, missing(p)
	}
	return f, Object{Path: p, Size: info.Size(), ETag: tag(info)}, nil
}

// List returns the objects below a folder, by their path relative to it, sorted.
func (s *Store) List(prefix string) ([]Object, error) {
	if !plain(prefix) {
		return nil, badPath()
	}
	root := s.file(prefix)
	list := []Object{}
	err := filepath.WalkDir(root, func(at string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // it went meanwhile
		}
		if err != nil || !e.Type().IsRegular() || at == root {
			return err
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil {
			list = append(list, Object{Path: filepath.ToSlash(strings.TrimPrefix(at, root+string(filepath.Separator))), Size: info.Size(), ETag: tag(info)})
		}
		return err
	})
	slices.SortFunc(list, func(a, b Object) int { return strings.Compare(a.Path, b.Path) })
	if err != nil {
		return nil, s.failed(err)
	}
	return list, nil
}

// Delete removes an object; match, if not "", must be its tag, else it is a Conflict and the object stays. NotFound when there is none.
func (s *Store) Delete(p, match string) error {
	if !plain(p) {
		return badPath()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	info, err := os.Lstat(s.file(p))
	switch {
	case err != nil || !info.Mode().IsRegular():
		return missing(p)
	case match != "" && match != tag(info):
		return fault.New(fault.Conflict, "the object %q is another one by now", p)
	}
	if err := os.Remove(s.file(p)); err != nil {
		return s.failed(err)
	}
	s.used -= info.Size()
	s.prune(p)
	return nil
}

// DeleteAll removes everything below a folder; one that is not there is done.
func (s *Store) DeleteAll(prefix string) error {
	list, err := s.List(prefix)
	if err != nil {
		return err
	}
	for _, o := range list {
		if err := s.Delete(prefix+"/"+o.Path, o.ETag); err != nil && !fault.Is(err, fault.NotFound) && !fault.Is(err, fault.Conflict) {
			return err
		}
	}
	return nil
}

// prune removes the folders above a path that have become empty.
func (s *Store) prune(p string) {
	for dir := path.Dir(p); dir != "."; dir = path.Dir(dir) {
		if os.Remove(s.file(dir)) != nil {
			return
		}
	}
}
