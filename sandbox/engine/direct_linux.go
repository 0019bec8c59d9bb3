package engine

import (
	"context"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"agentenv/sandbox/helper/wire"
)

const maxProcFile = 64 << 10

// openDirect opens the file that the helper offers, past the engine: on the engine's own machine root sees what a container's
// processes see. It returns nil where this is not that machine, or anything is not as it has to be.
func (c *Container) openDirect(ctx context.Context, o wire.Offer, flags int) *os.File {
	if o.Ino == 0 || os.Geteuid() != 0 || c.e.desktop || !strings.HasPrefix(c.e.Host(), "unix://") || !c.Running() || c.info.State.Pid <= 0 {
		return nil
	}
	root, err := c.rootOf(c.info.State.Pid)
	if err != nil {
		return nil
	}
	defer unix.Close(root)
	now, err := c.e.Container(ctx, c.info.ID) // the process's number may have been another's by now
	if err != nil || !now.Running() || now.info.State.Pid != c.info.State.Pid || now.info.State.StartedAt != c.info.State.StartedAt {
		return nil
	}
	// Not to be read or written yet: in a container that works against us it may be anything by now.
	fd, err := unix.Openat2(root, o.Path, &unix.OpenHow{Flags: unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS})
	if err != nil {
		return nil
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG || uint64(st.Dev) != o.Dev || st.Ino != o.Ino { //nolint:unconvert // its type differs between architectures
		return nil
	}
	if !sameFilesystem(root, fd) {
		return nil
	}
	f, err := os.OpenFile("/proc/self/fd/"+strconv.Itoa(fd), flags, 0)
	if err != nil {
		return nil
	}
	return f
}

// sameFilesystem reports whether a file lies on the file system of a folder itself: what looks like a file on another one, /proc say, may do
// anything when it is opened.
func sameFilesystem(folder, file int) bool {
	var a, b unix.Statfs_t
	return unix.Fstatfs(folder, &a) == nil && unix.Fstatfs(file, &b) == nil && a.Type == b.Type && a.Fsid == b.Fsid
}

// rootOf opens the root folder of a process of this machine that is in the container's cgroup and has this process's users.
func (c *Container) rootOf(pid int) (int, error) {
	const folder = unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC
	proc, err := unix.Open("/proc/"+strconv.Itoa(pid), folder, 0)
	if err != nil {
		return -1, err
	}
	defer unix.Close(proc) // what is opened below it is of one process, also when its number is given to another
	groups, err := readBelow(proc, "cgroup")
	if err != nil {
		return -1, err
	}
	its, own := make([]byte, 64), make([]byte, 64)
	n, err := unix.Readlinkat(proc, "ns/user", its)
	if err != nil {
		return -1, err
	}
	m, err := unix.Readlink("/proc/self/ns/user", own)
	if err != nil {
		return -1, err
	}
	if !strings.Contains(groups, c.info.ID) || string(its[:n]) != string(own[:m]) {
		return -1, unix.ESRCH
	}
	return unix.Openat(proc, "root", folder, 0)
}

func readBelow(dir int, name string) (string, error) {
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxProcFile))
	return string(b), err
}
