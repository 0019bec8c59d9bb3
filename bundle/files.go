package bundle

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"agentenv/fault"
)

// place returns where a file that a link may name is to be written, and makes sure that it can: its folder is there and takes files, and it
// is a regular file or not there yet.
func place(path string) (string, error) {
	at, err := filepath.Abs(path)
	if err == nil {
		if to, linked := filepath.EvalSymlinks(at); linked == nil {
			at = to
		}
	}
	info, statErr := os.Stat(at)
	switch {
	case err != nil:
		return "", fault.Wrap(fault.Invalid, fault.Reason(err), "%s has no path of its own", shown(path))
	case statErr == nil && !info.Mode().IsRegular():
		return "", fault.New(fault.Invalid, "%s is there already and is no regular file", shown(path))
	case statErr != nil && !errors.Is(statErr, fs.ErrNotExist):
		return "", fault.Wrap(fault.KindOf(statErr), fault.Reason(statErr), "%s cannot be written", shown(path))
	}
	probe, err := os.CreateTemp(filepath.Dir(at), ".agent-env-*")
	if err != nil {
		return "", fault.Wrap(fault.KindOf(err), fault.Reason(err), "%s cannot be written", shown(path))
	}
	return at, errors.Join(probe.Close(), os.Remove(probe.Name()))
}

// replace writes a file whole or not at all, in place of what was there.
func replace(path string, text []byte) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), ".agent-env-*")
	if err == nil {
		_, err = f.Write(text)
		err = errors.Join(err, f.Sync(), f.Chmod(0o644), f.Close())
		if err == nil {
			err = os.Rename(f.Name(), path)
		}
		if err != nil {
			os.Remove(f.Name())
		}
	}
	if err != nil {
		return fault.Wrap(fault.KindOf(err), fault.Reason(err), "%s could not be written", shown(path))
	}
	return nil
}
