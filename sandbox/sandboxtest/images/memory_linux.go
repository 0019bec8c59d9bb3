package images

import "golang.org/x/sys/unix"

const (
	rootSize = "1500m" // of the memory that a root is made in
	spare    = 4 << 30 // what this machine must have free for that
)

// inMemory mounts memory at the folder dir, where that is allowed and there is enough; release gives it back.
func inMemory(dir string) (release func()) {
	var s unix.Sysinfo_t
	if unix.Sysinfo(&s) != nil || (uint64(s.Freeram)+uint64(s.Bufferram))*uint64(s.Unit) < spare || //nolint:unconvert // these fields have other types on other systems
		unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=755,size="+rootSize) != nil {
		return func() {}
	}
	return func() { unix.Unmount(dir, unix.MNT_DETACH) }
}
