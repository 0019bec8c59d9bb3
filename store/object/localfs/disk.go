package localfs

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"agentenv/fault"
)

func diskFull(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }

func diskKind(err error) fault.Kind {
	if diskFull(err) {
		return fault.Unavailable
	}
	return fault.KindOf(err)
}

// remedy says what to do about a full disk.
func remedy(err error) string {
	if diskFull(err) {
		return " (free some space there, or keep the state elsewhere with XDG_STATE_HOME)"
	}
	return ""
}

func (w *writer) failed(err error) error {
	return fault.Wrap(diskKind(err), err, "cannot write to the object store %s%s", w.s.root, remedy(err)).WithClass("ConfigError")
}

// noLinks reports errors of file systems without hard links.
func noLinks(err error) bool {
	return errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOTSUP) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EXDEV) || errors.Is(err, unix.EMLINK)
}

func syncFile(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}

// syncFolders makes the names that were written durable.
func (w *writer) syncFolders() error {
	for d := range w.changed {
		if err := syncFile(d); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOTSUP) {
			return fault.Wrap(diskKind(err), err, "syncing %s%s", d, remedy(err))
		}
	}
	return nil
}
