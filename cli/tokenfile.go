package cli

import (
	"errors"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"agentenv/fault"
)

// tokenFile is a file with the token of a server that runs, which its user alone can read. It is locked as long as the server lives, so that
// the file of one that was killed is known by its lock, and not by a number that somebody else may have by now.
type tokenFile struct {
	path string
	held *os.File
}

// newTokenFile writes a token to a file of this name in a folder, whole or not at all, in place of one that is there, and removes those of servers
// that are gone.
func newTokenFile(dir, name, token string) (*tokenFile, error) {
	path := filepath.Join(dir, name)
	release := alone(dir)
	defer release()
	f, err := writeToken(dir, path, token)
	if err != nil {
		return nil, fault.Wrap(fault.KindOf(err), fault.Reason(err), "the token cannot be written to %s", path)
	}
	others, _ := filepath.Glob(filepath.Join(dir, "*.token*"))
	for _, other := range others {
		if other != path {
			removeUnowned(other)
		}
	}
	return &tokenFile{path, f}, nil
}

// alone waits until nobody else writes into the folder: a file between its making and its lock would be taken for one that was left. Where the folder
// cannot be locked, and when somebody holds it for longer than a write takes, it goes on all the same.
func alone(dir string) (release func()) {
	_ = os.MkdirAll(dir, 0o700) // what is wrong is said by the write
	f, err := os.Open(dir)
	if err != nil {
		return func() {}
	}
	for range 100 {
		if err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); !errors.Is(err, unix.EWOULDBLOCK) {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	return func() { _ = f.Close() }
}

func writeToken(dir, path, token string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	f, err := os.CreateTemp(dir, filepath.Base(path)+"-*")
	if err != nil {
		return nil, err
	}
	if err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err == nil {
		if _, err = f.WriteString(token + "\n"); err == nil {
			err = os.Rename(f.Name(), path)
		}
	}
	if err != nil {
		return nil, errors.Join(err, os.Remove(f.Name()), f.Close())
	}
	return f, nil
}

// removeUnowned removes a file that no process has locked.
func removeUnowned(path string) {
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW, 0)
	if err != nil {
		return
	}
	defer f.Close()
	if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
		_ = os.Remove(path) // somebody else may have done it
	}
}

// remove removes the file, unless another server has put its own in its place.
func (t *tokenFile) remove() {
	mine, err := t.held.Stat()
	if now, bad := os.Stat(t.path); err == nil && bad == nil && os.SameFile(mine, now) {
		_ = os.Remove(t.path)
	}
	_ = t.held.Close()
}
