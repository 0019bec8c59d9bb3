//go:build linux

package main

import (
	"os"
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
// "exit", the exit code, how many processes could not be ended, and whether SIGTERM came (1) or not (0). A line with
// nanoseconds on descriptor 4 asks to end
// everything within that grace; its end before the command's means that the client died. After the command the guard stays
// as long as anything below it lives, so that SIGTERM to it still ends that, whatever it made of its environment.
func guard(args []string) int {
	syscall.CloseOnExec(tellFD)
	syscall.CloseOnExec(toldFD)
	if len(args) < 2 {
		return 2
	}
	signals := adopt(syscall.SIGTERM)
	pid, err := syscall.ForkExec(args[0], args[1:], &syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{0, 1, 2},
		Sys: &syscall.SysProcAttr{Setsid: true}}) // so that a command which signals its group does not mean the guard
	if err != nil {
		no, _ := err.(syscall.Errno)
		tell("failed " + strconv.Itoa(int(no)))
		return 1
	}
	release()
	tell("begun")
	kills := make(chan time.Duration, 4)
	go asked(kills)
	code, left, asked := supervise(pid, signals, kills)
	tell("exit " + strconv.Itoa(code) + " " + strconv.Itoa(len(left)) + " " + map[bool]string{false: "0", true: "1"}[asked])
	syscall.Close(tellFD)
	linger(signals)
	return 0
}

// A guard stands before every command, so it keeps to system calls where package os would set up its poller first.

func tell(line string) {
	for b := []byte(line + "\n"); len(b) > 0; {
		n, err := syscall.Write(tellFD, b)
		if err != nil && err != syscall.EINTR {
			return
		}
		b = b[max(n, 0):]
	}
}

// asked waits for the client's word, or its end.
func asked(kills chan<- time.Duration) {
	var word [64]byte
	got := 0
	for got < len(word) {
		n, err := syscall.Read(toldFD, word[got:])
		if err == syscall.EINTR {
			continue
		}
		if n <= 0 {
			break
		}
		got += n
	}
	grace := deadGrace
	if n, err := strconv.ParseInt(strings.TrimSpace(string(word[:got])), 10, 64); err == nil {
		grace = time.Duration(n)
	}
	kills <- grace
}

// linger returns when nothing lives below this process any more.
func linger(signals <-chan os.Signal) {
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
		if <-signals == syscall.SIGTERM {
			proc.End(below, deadGrace, patience)
		}
	}
}

// release lets go of the command's streams and folder, which are not this process's to hold.
func release() {
	if null, err := syscall.Open("/dev/null", syscall.O_RDWR|syscall.O_CLOEXEC, 0); err == nil {
		for fd := range 3 {
			syscall.Dup3(null, fd, 0)
		}
		syscall.Close(null)
	}
	syscall.Chdir("/")
}
