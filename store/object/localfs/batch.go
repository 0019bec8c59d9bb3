package localfs

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"agentenv/fault"
	"agentenv/store/object"
)

// syncOneByOne is up to how many objects a batch syncs each by itself. Syncing the whole file system is one call for any
// number, but it also waits for what other programs have written there.
const syncOneByOne = 16

// batchPrefix names the folders that hold a batch until it is whole. The reference sweeps only staged files, so it leaves
// them alone.
const batchPrefix = "batch-"

// pending is an object of a batch that lies in the batch's folder under its number.
type pending struct {
	key    string
	target string
}

// batch is one PutAll: everything is staged and synced before the first name appears, so that neither an error nor a power
// cut leaves part of an object under a key.
type batch struct {
	writer
	dir     string   // of the staged files
	held    *os.File // dir, locked while the batch lives
	objects []pending
	types   *typeRecords
}

// PutAll writes many objects: first all of them are staged, then they are synced, then they get their names, in the order in
// which they came.
func (s *Store) PutAll(ctx context.Context, next func() (object.Item, error)) ([]object.Written, error) {
	var b *batch
	var out []object.Written
	for {
		it, err := next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil && b == nil {
			if b, err = s.newBatch(); err == nil {
				defer b.close()
			}
		}
		if err != nil {
			return nil, err
		}
		w, err := b.add(ctx, it)
		if err != nil {
			return nil, err
		}
		out = append(out, w)
	}
	if b == nil {
		return nil, nil
	}
	if err := b.sync(); err != nil {
		return nil, fault.Wrap(diskKind(err), err, "syncing the object store %s%s", s.root, remedy(err))
	}
	for i := range b.objects {
		if err := b.publish(ctx, i); err != nil {
			return nil, err
		}
	}
	return out, b.syncFolders()
}

func (s *Store) newBatch() (*batch, error) {
	w, err := s.newWriter()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(w.temp, batchPrefix)
	if err != nil {
		return nil, w.failed(err)
	}
	b := &batch{writer: *w, dir: dir}
	if b.held, err = os.Open(dir); err == nil {
		if err = unix.Flock(int(b.held.Fd()), unix.LOCK_EX|unix.LOCK_NB); noLocks(err) {
			err = nil
		}
	}
	if err == nil {
		b.types, err = stageRecords(dir + "/types")
	}
	if err != nil {
		b.close()
		return nil, w.failed(err)
	}
	return b, nil
}

func (b *batch) close() {
	if b.types != nil {
		b.types.wait()
	}
	os.RemoveAll(b.dir)
	if b.held != nil {
		b.held.Close()
	}
	b.writer.close()
}

func (b *batch) staged(i int) string { return b.dir + "/" + strconv.Itoa(i) }

// add stages one object and its record.
func (b *batch) add(ctx context.Context, it object.Item) (object.Written, error) {
	target, err := b.s.target(it.Key, b.folders)
	if err != nil {
		return object.Written{}, err
	}
	name := b.staged(len(b.objects))
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fileMode)
	if err != nil {
		return object.Written{}, b.failed(err)
	}
	defer f.Close()
	n, sum, err := b.copy(ctx, f, it)
	if err != nil {
		return object.Written{}, err
	}
	identity, err := b.mark(f, n)
	if err != nil {
		return object.Written{}, err
	}
	r := record{ContentType: it.ContentType, Object: identity, SHA256: sum}
	b.types.add(r)
	b.objects = append(b.objects, pending{it.Key, target})
	return object.Written{URL: scheme + target, Size: n, SHA256: sum}, nil
}

// sync makes the staged bytes durable.
func (b *batch) sync() error {
	b.types.wait()
	if len(b.objects) > syncOneByOne {
		return b.syncMany()
	}
	for i := range b.objects {
		if err := syncFile(b.staged(i)); err != nil {
			return err
		}
	}
	return nil
}

// publish gives a staged object its name, if that is free, and its record.
func (b *batch) publish(ctx context.Context, i int) error {
	o := b.objects[i]
	if err := b.parents(o.key, filepath.Dir(o.target)); err != nil {
		return err
	}
	release, err := b.lock(ctx, o.target)
	if err != nil {
		return err
	}
	defer release()
	if err := b.name(o.key, b.staged(i), o.target); err != nil {
		return err
	}
	b.changed[filepath.Dir(o.target)] = true
	if staged, ok := b.types.staged(i); ok {
		b.placeRecord(staged, o.target)
	}
	return nil
}

// name moves a staged file to a target that must be free.
func (b *batch) name(key, staged, target string) error {
	err := renameNew(staged, target)
	if errors.Is(err, errors.ErrUnsupported) {
		if err = os.Link(staged, target); noLinks(err) {
			// The key's lock is held, so no other writer comes between.
			if _, serr := os.Lstat(target); serr == nil {
				err = fs.ErrExist
			} else {
				err = os.Rename(staged, target)
			}
		}
	}
	return b.landed(key, target, err)
}

// isBatch reports whether an entry of the temporary folder holds a batch.
func isBatch(e fs.DirEntry) bool { return e.IsDir() && strings.HasPrefix(e.Name(), batchPrefix) }
