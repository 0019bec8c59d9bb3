package localfs

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"io/fs"
	mathrand "math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"agentenv/fault"
	"agentenv/store"
	"agentenv/store/object"
)

// batch is one write of one or many objects. It keeps what the objects share: open lock files, resolved and made folders.
type batch struct {
	s       *Store
	temp    string
	buf     []byte
	hash    hash.Hash
	folders map[string]string   // folder as written → resolved
	made    map[string]bool     // folders known to be there
	locks   map[string]*os.File // lock files by name
	synced  bool                // each object is synced as it lands; otherwise commit syncs the file system
	dirs    map[string]bool     // folders that changed
}

func (s *Store) newBatch(synced bool) (*batch, error) {
	if err := store.MakeDir(s.root); err != nil {
		return nil, err
	}
	b := &batch{
		s: s, temp: filepath.Join(s.root, tempDir), hash: sha256.New(), synced: synced,
		folders: map[string]string{}, made: map[string]bool{}, locks: map[string]*os.File{}, dirs: map[string]bool{},
	}
	if err := os.Mkdir(b.temp, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fault.Wrap(fault.KindOf(err), err, "cannot write to the object store %s", s.root).WithClass("ConfigError")
	}
	s.sweep.Do(func() { sweepStaged(b.temp) })
	return b, nil
}

func (b *batch) close() {
	for _, f := range b.locks {
		f.Close()
	}
}

// Put writes one object.
func (s *Store) Put(ctx context.Context, it object.Item, overwrite bool) (object.Written, error) {
	p, err := s.file(it.Key, nil)
	if err != nil {
		return object.Written{}, err
	}
	if _, err := os.Lstat(p); err == nil && !overwrite {
		return object.Written{}, taken(it.Key)
	}
	b, err := s.newBatch(true)
	if err != nil {
		return object.Written{}, err
	}
	defer b.close()
	w, err := b.put(ctx, it, overwrite)
	if err != nil {
		return object.Written{}, err
	}
	return w, b.commit()
}

// PutAll writes many objects with one sync of the file system at the end.
func (s *Store) PutAll(ctx context.Context, next func() (object.Item, error)) ([]object.Written, error) {
	var b *batch
	var out []object.Written
	for {
		it, err := next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
		if b == nil {
			if b, err = s.newBatch(false); err != nil {
				return nil, err
			}
			defer b.close()
		}
		w, err := b.put(ctx, it, false)
		if err != nil {
			return nil, err
		}
		out = append(out, w)
	}
	if b == nil {
		return nil, nil
	}
	return out, b.commit()
}

func taken(key string) error {
	return fault.Wrap(fault.Exists, fs.ErrExist, "object key %q is taken; objects are written once", short(key))
}

func (b *batch) put(ctx context.Context, it object.Item, overwrite bool) (object.Written, error) {
	p, err := b.s.file(it.Key, b.folders)
	if err != nil {
		return object.Written{}, err
	}
	st, sum, err := b.stage(ctx, it)
	if err != nil {
		return object.Written{}, err
	}
	defer st.discard()
	if err := b.parents(it.Key, filepath.Dir(p)); err != nil {
		return object.Written{}, err
	}
	r := record{ContentType: it.ContentType, Object: [2]int64{st.size, st.mtime}, SHA256: sum}
	if err := b.land(ctx, it.Key, p, st, r, overwrite); err != nil {
		return object.Written{}, err
	}
	b.dirs[filepath.Dir(p)] = true
	return object.Written{URL: scheme + p, Size: st.size, SHA256: sum}, nil
}

// staged is a file under a temporary name. It is locked while its writer lives, so that no sweep takes it.
type staged struct {
	f           *os.File
	size, mtime int64
	moved       bool
}

func (st *staged) discard() {
	if !st.moved {
		os.Remove(st.f.Name())
	}
	st.f.Close()
}

func (b *batch) newStaged() (*staged, error) {
	f, err := os.OpenFile(filepath.Join(b.temp, "staged-"+rand.Text()), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return nil, fault.Wrap(fault.KindOf(err), err, "cannot write to the object store %s", b.s.root)
	}
	st := &staged{f: f}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil && !noLocks(err) {
		st.discard()
		return nil, fault.Wrap(fault.Unavailable, err, "cannot lock %s", f.Name())
	}
	// The mode must not depend on this process's umask.
	if err := f.Chmod(0o644); err != nil {
		st.discard()
		return nil, fault.Wrap(fault.KindOf(err), err, "object store %s", b.s.root)
	}
	return st, nil
}

// stage writes an item's bytes to a temporary file, hashing on the way.
func (b *batch) stage(ctx context.Context, it object.Item) (*staged, string, error) {
	st, err := b.newStaged()
	if err != nil {
		return nil, "", err
	}
	fail := func(err error) (*staged, string, error) {
		st.discard()
		return nil, "", err
	}
	b.hash.Reset()
	if b.buf == nil {
		b.buf = make([]byte, 256<<10)
	}
	for {
		if err := ctx.Err(); err != nil {
			return fail(fault.Wrap(fault.KindOf(err), context.Cause(ctx), "writing the object %q", short(it.Key)))
		}
		n, rerr := it.Body.Read(b.buf)
		if n > 0 {
			b.hash.Write(b.buf[:n])
			if _, err := st.f.Write(b.buf[:n]); err != nil {
				return fail(fault.Wrap(diskKind(err), err, "writing the object %q to %s", short(it.Key), b.s.root))
			}
			st.size += int64(n)
		}
		if rerr == io.EOF {
			break
		}
		if rerr != nil {
			return fail(fault.At(rerr, "reading what is to be stored as %q", short(it.Key)))
		}
		if it.Size >= 0 && st.size > it.Size {
			break
		}
	}
	if it.Size >= 0 && st.size != it.Size {
		more := ""
		if st.size > it.Size {
			more = "more than "
		}
		return fail(fault.New(fault.Invalid, "object %q: %d bytes were announced, %s%d came", short(it.Key), it.Size, more, min(st.size, it.Size)))
	}
	// The modification time, made unique, ties the bytes to their record.
	now := time.Now().UnixMilli()*int64(time.Millisecond) + mathrand.Int64N(1e6)
	if err := os.Chtimes(st.f.Name(), time.Unix(0, now), time.Unix(0, now)); err != nil {
		return fail(fault.Wrap(fault.KindOf(err), err, "object store %s", b.s.root))
	}
	info, err := st.f.Stat() // a file system with coarser times keeps less
	if err != nil {
		return fail(fault.Wrap(fault.KindOf(err), err, "object store %s", b.s.root))
	}
	st.mtime = info.ModTime().UnixNano()
	if b.synced {
		if err := st.f.Sync(); err != nil {
			return fail(fault.Wrap(diskKind(err), err, "writing the object %q", short(it.Key)))
		}
	}
	return st, hex.EncodeToString(b.hash.Sum(nil)), nil
}

func diskKind(err error) fault.Kind {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return fault.Unavailable
	}
	return fault.KindOf(err)
}

// parents makes the folders of a target.
func (b *batch) parents(key, dir string) error {
	if b.made[dir] {
		return nil
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		if errors.Is(err, unix.ENOTDIR) || errors.Is(err, fs.ErrExist) {
			return badKey(key, "lies below an existing object")
		}
		return fault.Wrap(fault.KindOf(err), err, "object key %q", short(key))
	}
	b.made[dir] = true
	for d := dir; within(b.s.root, d) && !b.dirs[d]; d = filepath.Dir(d) {
		b.dirs[d] = true
	}
	return nil
}

// land puts a staged file and its record in place under the key's lock.
func (b *batch) land(ctx context.Context, key, p string, st *staged, r record, overwrite bool) error {
	release, err := b.lock(ctx, p)
	if err != nil {
		return err
	}
	defer release()
	if overwrite {
		err = b.replace(key, p, st)
	} else {
		err = b.create(key, p, st)
	}
	if err != nil {
		return err
	}
	// The object is in place: without a record its type is unknown, which is no reason to fail.
	b.writeRecord(p, r)
	return nil
}

func (b *batch) create(key, p string, st *staged) error {
	err := os.Link(st.f.Name(), p)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrExist):
		if info, err := os.Lstat(p); err == nil && info.IsDir() {
			return badKey(key, "names a folder of other objects")
		}
		return taken(key)
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.ENOTSUP), errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EXDEV), errors.Is(err, unix.EMLINK):
		if _, err := os.Lstat(p); err == nil {
			return taken(key)
		}
		return b.move(key, p, st)
	}
	return fault.Wrap(diskKind(err), err, "object key %q", short(key))
}

func (b *batch) move(key, p string, st *staged) error {
	if err := os.Rename(st.f.Name(), p); err != nil {
		if info, serr := os.Lstat(p); serr == nil && info.IsDir() {
			return badKey(key, "names a folder of other objects")
		}
		return fault.Wrap(diskKind(err), err, "object key %q", short(key))
	}
	st.moved = true
	return nil
}

// replace overwrites: the old record is set aside first, so that it never describes the new bytes, and comes back when
// the bytes do not land.
func (b *batch) replace(key, p string, st *staged) error {
	meta := b.s.recordPath(p)
	aside := filepath.Join(b.temp, "staged-aside-"+randomHex())
	had := os.Rename(meta, aside) == nil
	if had {
		now := time.Now()
		os.Chtimes(aside, now, now)
	}
	if err := b.move(key, p, st); err != nil {
		if had {
			os.Rename(aside, meta)
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

// commit makes everything the batch wrote durable.
func (b *batch) commit() error {
	if !b.synced {
		if err := syncAll(b.s.root, b.dirs); err != nil {
			return fault.Wrap(diskKind(err), err, "syncing the object store %s", b.s.root)
		}
		return nil
	}
	for d := range b.dirs {
		if err := syncDir(d); err != nil {
			return fault.Wrap(diskKind(err), err, "syncing %s", d)
		}
	}
	return nil
}

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Sync(); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOTSUP) {
		return err
	}
	return nil
}
