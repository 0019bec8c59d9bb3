package sandbox

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"syscall"
)

func bootID() string {
	b, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return string(bytes.TrimSpace(b))
}

// processStat returns the fields of a process's stat line after its name: the state first, the start time at index 19. It
// returns nil when there is no such process.
func processStat(pid int) [][]byte {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil
	}
	// The command name may hold spaces and parentheses, so the fields are counted from the last one.
	return bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
}

// processStart returns the start time of a process in clock ticks since boot.
func processStart(pid int) string {
	if f := processStat(pid); len(f) >= 20 {
		return string(f[19])
	}
	return ""
}

// processExists reports whether a process runs; one that has ended and was not waited for yet does not.
func processExists(pid int) bool {
	if f := processStat(pid); len(f) > 0 {
		return f[0][0] != 'Z' && f[0][0] != 'X'
	}
	err := syscall.Kill(pid, 0)
	return err == nil || errors.Is(err, syscall.EPERM)
}
