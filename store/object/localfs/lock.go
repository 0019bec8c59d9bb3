package localfs

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"agentenv/fault"
)

// sweepAge is how old a staged file must be before a sweep may take it.
const sweepAge = 60 * time.Second

func lockName(p string) string {
	sum := sha256.Sum256([]byte(p))
	return fmt.Sprintf("lock-%02x", sum[3])
}

// noLocks reports errors of file systems without flock, where the atomic renames alone must do.
func noLocks(err error) bool {
	return errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.ENOTSUP) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOLCK)
}

func flock(ctx context.Context, fd int, name string, how int) error {
	pause := 100 * time.Microsecond
	for {
		err := unix.Flock(fd, how|unix.LOCK_NB)
		switch {
		case err == nil || noLocks(err):
			return nil
		case errors.Is(err, unix.EINTR):
			continue
		case !errors.Is(err, unix.EWOULDBLOCK):
			return fault.Wrap(fault.Unavailable, err, "cannot lock %s", name)
		}
		select {
		case <-ctx.Done():
			return fault.Wrap(fault.KindOf(ctx.Err()), context.Cause(ctx), "waiting for %s", name)
		case <-time.After(pause):
		}
		pause = min(pause*2, 10*time.Millisecond)
	}
}

// lock takes the exclusive lock of the key stored at p.
func (w *writer) lock(ctx context.Context, p string) (release func(), err error) {
	name := lockName(p)
	fd, open := w.locks[name]
	if !open {
		if fd, err = unix.Open(filepath.Join(w.temp, name), unix.O_RDWR|unix.O_CREAT|unix.O_NOFOLLOW|unix.O_CLOEXEC, fileMode); err != nil {
			return nil, w.failed(err)
		}
		w.locks[name] = fd
	}
	if err := flock(ctx, fd, filepath.Join(w.temp, name), unix.LOCK_EX); err != nil {
		return nil, err
	}
	return func() { unix.Flock(fd, unix.LOCK_UN) }, nil
}

// lockShared waits for a write to the key stored at p. Without a lock file there is none to wait for.
func (s *Store) lockShared(ctx context.Context, p string) (release func(), err error) {
	f, err := os.OpenFile(filepath.Join(s.root, tempDir, lockName(p)), os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.ENOTDIR) {
			return func() {}, nil
		}
		return nil, fault.Wrap(fault.KindOf(err), err, "object store %s", s.root)
	}
	if err := flock(ctx, int(f.Fd()), f.Name(), unix.LOCK_SH); err != nil {
		f.Close()
		return nil, err
	}
	return func() { f.Close() }, nil
}

// sweepStaged removes what writers that died left behind: old staged files and batches that nobody holds locked.
func sweepStaged(temp string) {
	entries, err := os.ReadDir(temp)
	if err != nil {
		return
	}
	for _, e := range entries {
		if !isBatch(e) && !(strings.HasPrefix(e.Name(), "staged-") && e.Type().IsRegular()) {
			continue
		}
		info, err := e.Info()
		if err != nil || time.Since(info.ModTime()) < sweepAge {
			continue
		}
		f, err := os.OpenFile(filepath.Join(temp, e.Name()), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
		if err != nil {
			continue
		}
		if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			os.RemoveAll(f.Name())
		}
		f.Close()
	}
}
