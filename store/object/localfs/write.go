package localfs

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"agentenv/fault"
	"agentenv/store"
	"agentenv/store/object"
)

// fileMode is the mode of every file, whatever the umask of this process.
const fileMode = 0o644

// writer is what the writes of one or many objects share: open lock files, resolved and made folders. It is used by one
// goroutine.
type writer struct {
	copier
	s       *Store
	temp    string
	folders map[string]string // folder as written → resolved
	made    map[string]bool   // folders known to be there
	locks   map[string]int    // open lock files by name
	changed map[string]bool   // folders to sync
}

func (s *Store) newWriter() (*writer, error) {
	if err := store.MakeDir(s.root); err != nil {
		return nil, err
	}
	w := &writer{s: s, temp: filepath.Join(s.root, tempDir), folders: map[string]string{}, made: map[string]bool{}, locks: map[string]int{},
		changed: map[string]bool{}}
	if err := os.Mkdir(w.temp, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, w.failed(err)
	}
	s.sweep.Do(func() { sweepStaged(w.temp) })
	return w, nil
}

func (w *writer) close() {
	for _, fd := range w.locks {
		unix.Close(fd)
	}
}

// Put writes one object.
func (s *Store) Put(ctx context.Context, it object.Item, overwrite bool) (object.Written, error) {
	p, err := s.file(it.Key)
	if err != nil {
		return object.Written{}, err
	}
	if _, err := os.Lstat(p); err == nil && !overwrite {
		return object.Written{}, taken(it.Key)
	}
	w, err := s.newWriter()
	if err != nil {
		return object.Written{}, err
	}
	defer w.close()
	st, err := w.newStaged()
	if err != nil {
		return object.Written{}, err
	}
	defer st.discard()
	size, sum, err := w.copy(ctx, st.f, it)
	if err != nil {
		return object.Written{}, err
	}
	identity, err := w.mark(st.f, size)
	if err != nil {
		return object.Written{}, err
	}
	if err := st.f.Sync(); err != nil {
		return object.Written{}, fault.Wrap(diskKind(err), err, "writing the object %q to %s%s", short(it.Key), s.root, remedy(err))
	}
	if err := w.parents(it.Key, filepath.Dir(p)); err != nil {
		return object.Written{}, err
	}
	if err := w.land(ctx, it.Key, p, st, record{ContentType: it.ContentType, Object: identity, SHA256: sum}, overwrite); err != nil {
		return object.Written{}, err
	}
	w.changed[filepath.Dir(p)] = true
	return object.Written{URL: scheme + p, Size: size, SHA256: sum}, w.syncFolders()
}

func taken(key string) error {
	return fault.Wrap(fault.Exists, fs.ErrExist, "object key %q is taken; objects are written once", short(key))
}

// staged is a file under a temporary name. It is locked while its writer lives, so that no sweep takes it.
type staged struct {
	f     *os.File
	moved bool
}

func (st *staged) discard() {
	if !st.moved {
		os.Remove(st.f.Name())
	}
	st.f.Close()
}

func (w *writer) newStaged() (*staged, error) {
	f, err := os.OpenFile(filepath.Join(w.temp, "staged-"+rand.Text()), os.O_RDWR|os.O_CREATE|os.O_EXCL, fileMode)
	if err != nil {
		return nil, w.failed(err)
	}
	st := &staged{f: f}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil && !noLocks(err) {
		st.discard()
		return nil, fault.Wrap(fault.Unavailable, err, "cannot lock %s", f.Name())
	}
	return st, nil
}

// mark gives a written file its final mode and times and returns its identity. The modification time, made unique, ties the
// bytes to their record.
func (w *writer) mark(f *os.File, size int64) (identity [2]int64, err error) {
	at := time.Unix(0, time.Now().UnixMilli()*int64(time.Millisecond)+randomNanos())
	if err := os.Chtimes(f.Name(), at, at); err != nil {
		return identity, w.failed(err)
	}
	info, err := f.Stat() // a file system with coarser times keeps less
	if err == nil && info.Mode().Perm() != fileMode {
		err = f.Chmod(fileMode)
	}
	if err != nil {
		return identity, w.failed(err)
	}
	return [2]int64{size, info.ModTime().UnixNano()}, nil
}

// parents makes the folders of a target.
func (w *writer) parents(key, dir string) error {
	if w.made[dir] {
		return nil
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		if errors.Is(err, unix.ENOTDIR) || errors.Is(err, fs.ErrExist) {
			return badKey(key, "lies below an existing object")
		}
		return fault.Wrap(diskKind(err), err, "object key %q%s", short(key), remedy(err))
	}
	w.made[dir] = true
	for d := dir; within(w.s.root, d) && !w.changed[d]; d = filepath.Dir(d) {
		w.changed[d] = true
	}
	return nil
}

// land puts a staged file and its record in place under the key's lock.
func (w *writer) land(ctx context.Context, key, p string, st *staged, r record, overwrite bool) error {
	release, err := w.lock(ctx, p)
	if err != nil {
		return err
	}
	defer release()
	if overwrite {
		err = w.replace(key, p, st)
	} else {
		err = w.create(key, p, st)
	}
	if err == nil {
		w.writeRecord(p, r)
	}
	return err
}

func (w *writer) create(key, p string, st *staged) error {
	err := os.Link(st.f.Name(), p)
	if noLinks(err) {
		if _, serr := os.Lstat(p); serr == nil {
			return taken(key)
		}
		return w.move(key, p, st)
	}
	return w.landed(key, p, err)
}

func (w *writer) move(key, p string, st *staged) error {
	err := os.Rename(st.f.Name(), p)
	st.moved = err == nil
	return w.landed(key, p, err)
}

// landed turns the result of naming an object into an error that names the key.
func (w *writer) landed(key, p string, err error) error {
	if err == nil {
		return nil
	}
	if info, serr := os.Lstat(p); serr == nil && info.IsDir() {
		return badKey(key, "names a folder of other objects")
	}
	if errors.Is(err, fs.ErrExist) {
		return taken(key)
	}
	return fault.Wrap(diskKind(err), err, "object key %q%s", short(key), remedy(err))
}

// replace overwrites: the old record is set aside first, so that it never describes the new bytes, and comes back when
// the bytes do not land.
func (w *writer) replace(key, p string, st *staged) error {
	meta := w.s.recordPath(p)
	aside := filepath.Join(w.temp, "staged-aside-"+randomHex())
	had := os.Rename(meta, aside) == nil
	if had {
		now := time.Now()
		_ = os.Chtimes(aside, now, now)
	}
	if err := w.move(key, p, st); err != nil {
		if had {
			_ = os.Rename(aside, meta)
		}
		return err
	}
	if had {
		os.Remove(aside)
	}
	return nil
}

func randomHex() string {
	var b [8]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}
