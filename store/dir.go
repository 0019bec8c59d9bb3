package store

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

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
