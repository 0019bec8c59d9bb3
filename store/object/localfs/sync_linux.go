package localfs

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// syncMany makes all staged objects durable, in one call.
func (b *batch) syncMany() error { return unix.Syncfs(int(b.held.Fd())) }

// startFlush begins to write a part of a file to the disk and does not wait for it. It may fail: the sync at the end counts.
func startFlush(f *os.File, from, n int64) {
	conn, err := f.SyscallConn()
	if err == nil {
		_ = conn.Control(func(fd uintptr) { _ = unix.SyncFileRange(int(fd), from, n, unix.SYNC_FILE_RANGE_WRITE) })
	}
}

// renameNew renames a file to a name that must be free; errors.ErrUnsupported where the file system cannot.
func renameNew(from, to string) error {
	err := unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_NOREPLACE)
	if err == unix.EINVAL || errors.Is(err, errors.ErrUnsupported) {
		return errors.ErrUnsupported
	}
	if err != nil {
		return &os.LinkError{Op: "rename", Old: from, New: to, Err: err}
	}
	return nil
}
