// Package proc finds and ends process trees.
package proc

import (
	"syscall"
	"time"
)

// Process is a live process. Start tells it from a later one with the same number.
type Process struct {
	PID, PPID int
	Start     string
}

// Below returns those of all that descend from any of roots, without the roots themselves.
func Below(all []Process, roots ...int) []Process {
	in := map[int]bool{}
	for _, r := range roots {
		in[r] = true
	}
	children := map[int][]Process{}
	for _, p := range all {
		children[p.PPID] = append(children[p.PPID], p)
	}
	var out []Process
	for todo := roots; len(todo) > 0; todo = todo[1:] {
		for _, c := range children[todo[0]] {
			if !in[c.PID] {
				in[c.PID] = true
				out = append(out, c)
				todo = append(todo, c.PID)
			}
		}
	}
	return out
}

// End ends every process that find returns, called again and again until it returns none: SIGTERM, after grace SIGKILL
// (stopped first, so that nothing forks meanwhile). It gives up after patience more and returns those that are left.
func End(find func() []Process, grace, patience time.Duration) []Process {
	told := map[Process]bool{}
	left := find()
	for until := time.Now().Add(grace); len(left) > 0 && time.Now().Before(until); left = find() {
		for _, p := range left {
			if !told[p] {
				told[p] = true
				syscall.Kill(p.PID, syscall.SIGTERM)
				syscall.Kill(p.PID, syscall.SIGCONT)
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
	for until := time.Now().Add(patience); len(left) > 0 && time.Now().Before(until); left = find() {
		for _, p := range left {
			syscall.Kill(p.PID, syscall.SIGSTOP)
		}
		for _, p := range left {
			syscall.Kill(p.PID, syscall.SIGKILL)
		}
		time.Sleep(5 * time.Millisecond)
	}
	return left
}
