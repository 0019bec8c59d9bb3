package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"agentenv/fault"
)

// LockEntities takes the locks of the entities ids under stateRoot and holds them against every other process, and every
// other call in this one, until release is called. They are taken in one order everywhere, so two callers cannot wait for
// each other. onWait (may be nil) runs once, the first time a lock is busy. Waiting ends with ctx; whatever was taken is
// then let go. release may be called again. Lock files stay behind on purpose: deleting one would split the lock.
func LockEntities(ctx context.Context, stateRoot string, ids []string, onWait func()) (release func(), err error) {
	dir := filepath.Join(stateRoot, "locks")
	if err := MakeDir(dir); err != nil {
		return nil, err
	}
	var paths []string
	for _, id := range ids {
		sum := sha256.Sum256([]byte(id))
		paths = append(paths, filepath.Join(dir, "entity-"+hex.EncodeToString(sum[:8])+".lock"))
	}
	slices.Sort(paths)
	paths = slices.Compact(paths)

	var held []*os.File
	release = func() {
		for _, f := range held {
			f.Close()
		}
		held = nil
	}
	for _, p := range paths {
		f, err := os.OpenFile(p, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
		if err != nil {
			release()
			return nil, fault.Wrap(fault.KindOf(err), err, "cannot open the lock file %s", p)
		}
		held = append(held, f)
		if err := lockFile(ctx, f, &onWait); err != nil {
			release()
			return nil, err
		}
	}
	return release, nil
}

func lockFile(ctx context.Context, f *os.File, onWait *func()) error {
	wait := 5 * time.Millisecond
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, unix.EINTR):
			continue
		case !errors.Is(err, unix.EWOULDBLOCK):
			return fault.Wrap(fault.Unavailable, err, "cannot lock %s", f.Name())
		}
		if *onWait != nil {
			(*onWait)()
			*onWait = nil
		}
		select {
		case <-ctx.Done():
			return fault.Wrap(fault.KindOf(ctx.Err()), context.Cause(ctx), "waiting for the lock %s", f.Name())
		case <-time.After(wait):
		}
		wait = min(wait*2, 100*time.Millisecond)
	}
}
