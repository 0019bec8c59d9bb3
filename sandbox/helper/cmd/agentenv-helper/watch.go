//go:build linux

package main

import (
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"agentenv/sandbox/helper/proc"
)

const aliveFD = 3 // ends when the client does

// watch runs in the cgroup that a client makes its commands' below, and ends what still runs in those when the client is gone; what
// ended commands left behind stays. args are the folder of that cgroup and the file that tells of it; both are removed unless something stays.
func watch(args []string) int {
	syscall.CloseOnExec(aliveFD)
	if len(args) != 2 {
		return 2
	}
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT)
	release()
	var b [1]byte
	for {
		n, err := syscall.Read(aliveFD, b[:])
		if err != syscall.EINTR && n <= 0 {
			break
		}
	}
	dir, all := args[0], proc.Cgroups(args[0])
	var running []string
	for _, d := range all {
		if _, err := os.Stat(filepath.Join(d, proc.LeftBehind)); err != nil {
			running = append(running, d)
		}
	}
	if len(running) > 0 {
		proc.EndIn(running, func() []proc.Process { return nil }, deadGrace, patience)
	}
	for _, d := range all {
		proc.RemoveCgroup(d)
	}
	os.WriteFile(filepath.Join(filepath.Dir(dir), "cgroup.procs"), []byte("0"), 0) // out of it
	if proc.RemoveCgroup(dir) != nil {
		return 1
	}
	os.Remove(args[1])
	return 0
}
