package local

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"agentenv/fault"
)

func ownCgroup() (string, error) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", err
	}
	groups, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", err
	}
	dir, err := cgroupOf(string(mounts), string(groups))
	if err == nil {
		err = unix.Access(dir, unix.W_OK)
	}
	return dir, err
}

// startIn starts cmd as a process in a cgroup, without a moment outside of it.
func startIn(cmd *exec.Cmd, dir string) error {
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	attr := *cmd.SysProcAttr
	attr.UseCgroupFD, attr.CgroupFD = true, fd
	cmd.SysProcAttr = &attr
	return cmd.Start()
}

// cgroupOf returns the folder of the version 2 cgroup that a process is in, from what the system says about the process's
// mounts and cgroups.
func cgroupOf(mounts, groups string) (string, error) {
	path := unified(groups)
	for line := range strings.Lines(mounts) {
		f := strings.Fields(line) // id, parent, device, root, mount point, options, …, "-", type, …
		for i := range f {
			if i > 5 && f[i] == "-" && i+1 < len(f) && f[i+1] == "cgroup2" {
				below, ok := strings.CutPrefix(path, strings.TrimSuffix(f[3], "/"))
				if path != "" && !strings.Contains(path, "..") && ok && (below == "" || below[0] == '/') && !strings.Contains(f[4], `\`) {
					return filepath.Join(f[4], below), nil
				}
			}
		}
	}
	return "", fault.New(fault.Unsupported, "this process sees no version 2 cgroup of its own")
}

// unified returns the version 2 cgroup in what the system says about a process's cgroups, "" where there is none.
func unified(groups string) string {
	for line := range strings.Lines(groups) {
		if p, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "0::"); ok {
			return p
		}
	}
	return ""
}
