//go:build !linux

package sandbox

import (
	"errors"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

func bootID() string { return "" }

func processStart(pid int) string {
	out, err := exec.Command("ps", "-o", "lstart=", "-p", strconv.Itoa(pid)).Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

func processExists(pid int) bool {
	err := syscall.Kill(pid, 0)
	return err == nil || errors.Is(err, syscall.EPERM)
}
