package store

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"agentenv/fault"
)

// MakeDir makes a store's folder: parents with the usual modes, the folder itself for its owner alone, with a .gitignore
// that hides everything, which only the process that created the folder writes. A folder that is there is left as it is.
// The error is of class ConfigError and names the path and the way out.
func MakeDir(path string) error {
	err := os.MkdirAll(filepath.Dir(path), 0o777)
	if err == nil {
		err = os.Mkdir(path, 0o700)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(path, ".gitignore"), []byte("*\n"), 0o666)
	} else if errors.Is(err, fs.ErrExist) {
		if info, serr := os.Stat(path); serr == nil && info.IsDir() {
			return nil
		}
	}
	if err != nil {
		return fault.Wrap(fault.KindOf(err), err, "cannot make the store folder %s (set XDG_STATE_HOME to a folder you may write, or configure the store elsewhere)", path).WithClass("ConfigError")
	}
	return nil
}

// making keeps the close of a new file from dropping the locks of a connection that another goroutine opened meanwhile.
var making sync.Mutex

// MakeFile makes an empty file for its owner alone unless something is there already, which is left untouched. It never opens
// a file that exists: closing a database file drops every lock that this process holds on it (POSIX advisory locks,
// https://sqlite.org/howtocorrupt.html section 2.2), so it is only safe before the first connection. Safe for concurrent use.
func MakeFile(path string) error {
	making.Lock()
	defer making.Unlock()
	if _, err := os.Lstat(path); err == nil {
		return nil
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return f.Close()
}
