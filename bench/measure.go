package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"time"
)

// measure is one figure; the zero value is none.
type measure struct {
	value float64
	unit  string // "s" or "MiB"
}

func (m measure) String() string {
	switch {
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
	rss       float64 // MiB, the largest single process
	out       []byte
}

// command runs a program to its end.
func command(ctx context.Context, env []string, name string, args ...string) (usage, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), env...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	start := time.Now()
	err := cmd.Run()
	u := usage{wall: time.Since(start).Seconds(), out: out.Bytes()}
	if err != nil {
		return u, fmt.Errorf("%s %v: %w\n%s%s", name, args, err, tail(out.Bytes()), tail(errs.Bytes()))
	}
	u.cpu = cmd.ProcessState.UserTime().Seconds() + cmd.ProcessState.SystemTime().Seconds()
	if ru, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		u.rss = float64(ru.Maxrss) / 1024
	}
	return u, nil
}

func tail(b []byte) []byte { return b[max(0, len(b)-2000):] }

// repeat runs fn n times and returns the median of each figure.
func repeat(n int, fn func() (usage, error)) (usage, error) {
	var walls, cpus, rss []float64
	var last usage
	for range n {
		u, err := fn()
		if err != nil {
			return u, err
		}
		walls, cpus, rss, last = append(walls, u.wall), append(cpus, u.cpu), append(rss, u.rss), u
	}
	return usage{median(walls), median(cpus), median(rss), last.out}, nil
}

func median(v []float64) float64 {
	slices.Sort(v)
	return v[len(v)/2]
}

func seconds(v float64) measure { return measure{v, "s"} }
