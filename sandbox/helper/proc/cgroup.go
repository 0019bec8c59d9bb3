package proc

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// Names of cgroups that are made inside the cgroup of a command to tell others about it, whichever process they are.
const (
	LeftBehind = "left"  // the command has ended; what is in it lives on until its sandbox ends
	Ended      = "ended" // who ends the sandbox ends the command too
)

// Cgroups returns the folders of the cgroups directly below one.
func Cgroups(dir string) []string {
	list, _ := os.ReadDir(dir)
	var out []string
	for _, e := range list {
		if e.IsDir() {
			out = append(out, filepath.Join(dir, e.Name()))
		}
	}
	return out
}

// EndIn ends every process in the cgroups, and what more finds beside them, as End does; after the grace the system kills each
// cgroup at once, so that nothing forks out of reach. It returns those that are left after patience more.
func EndIn(dirs []string, more func() []Process, grace, patience time.Duration) []Process {
	find := func() []Process {
		out := more()
		seen := map[int]bool{}
		for _, p := range out {
			seen[p.PID] = true
		}
		for _, d := range dirs {
			for _, p := range In(d) {
				if !seen[p.PID] {
					seen[p.PID] = true
					out = append(out, p)
				}
			}
		}
		return out
	}
	left := End(find, grace, 0)
	if len(left) == 0 {
		return nil
	}
	for _, d := range dirs {
		_ = os.WriteFile(filepath.Join(d, "cgroup.kill"), []byte("1"), 0) // absent before Linux 5.14
	}
	return End(find, 0, patience)
}

// RemoveCgroup removes a cgroup with those below it. One that is gone is done; one that holds processes stays, with an error.
func RemoveCgroup(dir string) error {
	err := syscall.Rmdir(dir)
	if errors.Is(err, syscall.EBUSY) || errors.Is(err, syscall.ENOTEMPTY) {
		for _, sub := range Cgroups(dir) {
			_ = RemoveCgroup(sub) // what stays keeps dir, too
		}
		err = syscall.Rmdir(dir)
	}
	if errors.Is(err, syscall.ENOENT) {
		return nil
	}
	return err
}
