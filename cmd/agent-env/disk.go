package main

import "golang.org/x/sys/unix"

// freeBytes returns the room that this user may still fill on the filesystem of a folder.
func freeBytes(dir string) (uint64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, err
	}
	return st.Bavail * uint64(st.Bsize), nil //nolint:unconvert // the block size has another type on other systems
}
