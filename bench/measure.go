package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// measure is one figure; the zero value is none. One without a unit has a note instead of a figure, or nothing to say.
type measure struct {
	value float64
	unit  string // "s", "MiB", "%" or "commits"
	note  string
}

func (m measure) String() string {
	switch {
	case m.note != "":
		return m.note
	case m.unit == "":
		return "-"
	case m.unit == "s" && m.value < 0.1:
		return fmt.Sprintf("%.1f ms", m.value*1000)
	}
	return fmt.Sprintf("%.2f %s", m.value, m.unit)
}

func (m measure) named(what string) string {
	if m.unit == "" {
		return "-"
	}
	return m.String() + " " + what
}

// ratio is how many times b goes into a.
func ratio(a, b measure) string {
	if a.unit == "" || b.unit == "" || b.value == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f", a.value/b.value)
}

// usage is what one finished process took.
type usage struct {
	wall, cpu float64 // seconds, children included
	rss       float64 // MiB, the process itself
	out       []byte
}

// command runs a program to its end. One that must stop before is asked first, so that it can take away what it made.
func command(ctx context.Context, env []string, name string, args ...string) (usage, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Cancel, cmd.WaitDelay = func() error { return cmd.Process.Signal(os.Interrupt) }, time.Minute
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	start := time.Now()
	err := cmd.Start()
	ended, held := make(chan struct{}), make(chan float64, 1)
	if err == nil {
		go func() { held <- peak(cmd.Process.Pid, ended) }()
		err = cmd.Wait()
	} else {
		held <- 0
	}
	u := usage{wall: time.Since(start).Seconds(), out: out.Bytes()}
	close(ended)
	u.rss = <-held
	if err != nil {
		return u, fmt.Errorf("%s %v: %w\n%s%s", name, args, err, tail(out.Bytes()), tail(errs.Bytes()))
	}
	u.cpu = cmd.ProcessState.UserTime().Seconds() + cmd.ProcessState.SystemTime().Seconds()
	return u, nil
}

// peak returns the largest memory, in MiB, that a process held until ended. What the system counts for a child begins with what its
// parent held.
func peak(pid int, ended <-chan struct{}) (most float64) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ended:
			return most
		case <-tick.C:
			status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
			for line := range strings.Lines(string(status)) {
				var kib float64
				if _, err := fmt.Sscanf(line, "VmHWM: %f kB", &kib); err == nil {
					most = kib / 1024
				}
			}
		}
	}
}

func tail(b []byte) []byte { return b[max(0, len(b)-2000):] }

// repeat runs fn n times and returns the median of each figure.
func repeat(n int, fn func() (usage, error)) (usage, error) {
	var all []usage
	for range n {
		u, err := fn()
		if err != nil {
			return u, err
		}
		all = append(all, u)
	}
	return middle(all), nil
}

// turns runs each of fns once unmeasured, so that stores and caches are filled, then n times one after the other in turns, and returns
// the median of each figure for each of them.
func turns(ctx context.Context, n int, fns ...func(context.Context) (usage, error)) ([]usage, error) {
	all := make([][]usage, len(fns))
	for i := range n + 1 {
		for j, fn := range fns {
			u, err := fn(ctx)
			if err != nil {
				return nil, err
			}
			if i > 0 {
				all[j] = append(all[j], u)
			}
		}
	}
	out := make([]usage, len(fns))
	for j := range fns {
		out[j] = middle(all[j])
	}
	return out, nil
}

// middle is the median of each figure, with the output of the last.
func middle(all []usage) usage {
	var walls, cpus, rss []float64
	for _, u := range all {
		walls, cpus, rss = append(walls, u.wall), append(cpus, u.cpu), append(rss, u.rss)
	}
	return usage{median(walls), median(cpus), median(rss), all[len(all)-1].out}
}

func median(v []float64) float64 {
	slices.Sort(v)
	return v[len(v)/2]
}

func seconds(v float64) measure { return measure{value: v, unit: "s"} }
