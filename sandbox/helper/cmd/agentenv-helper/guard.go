//go:build linux

package main

import (
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"agentenv/sandbox/helper/proc"
)

// The descriptors of a guard beside its command's standard streams: what it tells, and what it is told.
const (
	tellFD = 3
	toldFD = 4
)

// guard runs a program on a machine itself, as the process that all its descendants are left to: args are the program's path
// and its argument vector. It tells lines on descriptor 3: "begun", or "failed" and the system's error number; then
// "exit", the exit code and how many processes could not be ended. A line with nanoseconds on descriptor 4 asks to end
// everything within that grace; its end before the command's means that the client died. After the command the guard stays
// as long as anything below it lives, so that SIGTERM to it still ends that, whatever it made of its environment.
func guard(args []string) int {
	tell, told := os.NewFile(tellFD, "tell"), os.NewFile(toldFD, "told")
	syscall.CloseOnExec(tellFD)
	syscall.CloseOnExec(toldFD)
	if len(args) < 2 || tell == nil || told == nil {
		return 2
	}
	child := adopt()
	pid, err := syscall.ForkExec(args[0], args[1:], &syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{0, 1, 2},
		Sys: &syscall.SysProcAttr{Setsid: true}}) // so that a command which signals its group does not mean the guard
	if err != nil {
		no, _ := err.(syscall.Errno)
		io.WriteString(tell, "failed "+strconv.Itoa(int(no))+"\n")
		return 1
	}
	release()
	io.WriteString(tell, "begun\n")
	kills, later := make(chan time.Duration, 4), make(chan time.Duration, 1)
	go asked(told, kills)
	go signalled(kills, later)
	code, left := supervise(pid, child, kills)
	io.WriteString(tell, "exit "+strconv.Itoa(code)+" "+strconv.Itoa(len(left))+"\n")
	tell.Close()
	linger(child, later)
	return 0
}

// asked waits for the client's word, or its end.
func asked(told *os.File, kills chan<- time.Duration) {
	grace := deadGrace
	b, err := io.ReadAll(io.LimitReader(told, 64))
	if n, bad := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64); err == nil && bad == nil {
		grace = time.Duration(n)
	}
	kills <- grace
}

// signalled passes SIGTERM on, for now and for later.
func signalled(kills, later chan<- time.Duration) {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	for range stop {
		for _, c := range []chan<- time.Duration{kills, later} {
			select {
			case c <- deadGrace:
			default:
			}
		}
	}
}

// linger returns when nothing lives below this process any more.
func linger(child <-chan os.Signal, kills <-chan time.Duration) {
	for {
		for {
			var ws syscall.WaitStatus
			got, err := syscall.Wait4(-1, &ws, syscall.WNOHANG, nil)
			if err == syscall.ECHILD {
				return
			}
			if err != syscall.EINTR && got <= 0 {
				break
			}
		}
		select {
		case <-child:
		case grace := <-kills:
			proc.End(func() []proc.Process { return proc.Below(proc.All(), os.Getpid()) }, grace, patience)
		}
	}
}

// release lets go of the command's streams and folder, which are not this process's to hold.
func release() {
	if null, err := os.OpenFile("/dev/null", os.O_RDWR, 0); err == nil {
		for fd := range 3 {
			syscall.Dup3(int(null.Fd()), fd, 0)
		}
		null.Close()
	}
	os.Chdir("/")
}
