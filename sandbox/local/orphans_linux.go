package local

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"agentenv/sandbox/helper/proc"
)

// adoptOrphans leaves to this process what descends from its commands when a guard is killed.
func adoptOrphans() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// endOrphans ends what was left to this process by guards that were killed and carries no mark of a sandbox, with all below it. It
// returns what could not be ended.
func endOrphans(helper string, grace time.Duration) []proc.Process {
	self := os.Getpid()
	session, _ := unix.Getsid(0)
	own, _ := os.Executable()
	ended := map[int]bool{}
	left := proc.End(func() []proc.Process {
		all := proc.All()
		var out []proc.Process
		for _, p := range all {
			sid, err := unix.Getsid(p.PID)
			if p.PPID != self || err != nil || sid == session { // commands are in sessions of their own, our other children in ours
				continue
			}
			exe, _ := os.Readlink(filepath.Join("/proc", strconv.Itoa(p.PID), "exe"))
			if exe != "" && (exe == helper || exe == own) || proc.Carries(p.PID, markName+"=") || inCommand(p.PID) {
				continue
			}
			out = append(append(out, p), proc.Below(all, p.PID)...)
		}
		for _, p := range out {
			ended[p.PID] = true
		}
		return out
	}, grace, killPatience)
	for pid := range ended {
		_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil)
	}
	return left
}

// inCommand reports whether a process is in a command's cgroup, which no guard stands before.
func inCommand(pid int) bool {
	own, _ := os.ReadFile("/proc/self/cgroup")
	its, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cgroup"))
	below, ok := strings.CutPrefix(unified(string(its)), strings.TrimSuffix(unified(string(own)), "/"))
	return ok && strings.HasPrefix(below, "/"+groupPrefix)
}
