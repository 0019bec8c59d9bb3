//go:build linux

package main

import (
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"agentenv/sandbox/helper/wire"
)

const endedName = "aenv-exit-" // the name process 1 takes when its command ended, followed by the exit code

// runInit is process 1: it runs the image's own command, forwards signals to it and reaps what is left to it. When the
// command ends it stays, unless -end was given or a stop signal came.
func runInit(args []string) int {
	end := len(args) > 0 && args[0] == "-end"
	if end {
		args = args[1:]
	}
	if len(args) > 0 && args[0] == "--" {
		args = args[1:]
	}
	signals := make(chan os.Signal, 64)
	signal.Notify(signals)
	pid, code := 0, 0
	if len(args) > 0 {
		program, err := find(args[0], os.Getenv("PATH"))
		if err == nil {
			pid, err = syscall.ForkExec(program, args, &syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{0, 1, 2}})
		}
		if err != nil {
			os.Stderr.WriteString("agentenv: the image's command " + strconv.Quote(args[0]) + " cannot run: " + err.Error() + "\n")
			pid, code = 0, 127
		}
	}
	rename := func() { setName(endedName + strconv.Itoa(code)) }
	if pid == 0 {
		rename()
		if end {
			return code
		}
	}
	stopping := false
	for s := range signals {
		switch s {
		case syscall.SIGCHLD:
			for {
				var ws syscall.WaitStatus
				got, err := syscall.Wait4(-1, &ws, syscall.WNOHANG, nil)
				if err != nil || got <= 0 {
					break
				}
				if got == pid {
					pid, code = 0, codeOf(ws)
					rename()
					if end || stopping {
						return code
					}
				}
			}
		case syscall.SIGURG, syscall.SIGPIPE: // the first is the Go runtime's own
		default:
			stop := s == syscall.SIGTERM || s == syscall.SIGINT || s == syscall.SIGQUIT || s == syscall.SIGHUP
			if pid == 0 {
				if stop {
					return code
				}
				continue
			}
			stopping = stopping || s == syscall.SIGTERM || s == syscall.SIGINT || s == syscall.SIGQUIT
			syscall.Kill(pid, s.(syscall.Signal))
		}
	}
	return code
}

func codeOf(ws syscall.WaitStatus) int {
	if ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return ws.ExitStatus()
}

func setName(name string) {
	b := append([]byte(name), 0)
	syscall.RawSyscall(syscall.SYS_PRCTL, syscall.PR_SET_NAME, uintptr(unsafe.Pointer(&b[0])), 0)
}

// status tells how the command of process 1 fares, from the name that process 1 bears.
func status(out *wire.Writer) error {
	b, err := os.ReadFile("/proc/1/comm")
	if err != nil {
		return err
	}
	name := strings.TrimSpace(string(b))
	code, ended := strings.CutPrefix(name, endedName)
	n, _ := strconv.Atoi(code)
	return out.SendJSON(wire.Exit, wire.ExitStatus{Code: n, Running: !ended})
}
