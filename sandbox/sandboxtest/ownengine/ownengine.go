//go:build linux

// Package ownengine starts a Docker Engine for one test: with its own folders, in a network and process namespace of its own,
// so that it can be killed without harm. It needs root, dockerd, and the unshare, nsenter and ip commands.
package ownengine

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"agentenv/sandbox/engine"
)

// Engine is an engine of a test's own.
type Engine struct {
	Socket string
	dir    string
	outer  *exec.Cmd
}

const patience = 60 * time.Second

// Start starts an engine and waits until it answers. The test's clean-up ends it with every container it runs.
func Start(t *testing.T) *Engine {
	t.Helper()
	dir, err := os.MkdirTemp("", "agentenv-engine-")
	if err != nil {
		t.Fatal(err)
	}
	e := &Engine{dir: dir, Socket: filepath.Join(dir, "docker.sock")}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	// The shell stays process 1, so that killing the engine alone leaves its containers as they are.
	e.outer = exec.Command("unshare", "--net", "--pid", "--mount-proc", "--fork", "--kill-child", "--",
		"sh", "-c", `ip link set lo up; dockerd "$@" & wait; while :; do sleep 1000; done`, "sh",
		"--host", "unix://"+e.Socket, "--data-root", filepath.Join(dir, "data"), "--exec-root", filepath.Join(dir, "exec"),
		"--pidfile", filepath.Join(dir, "pid"), "--iptables=false", "--storage-driver", "overlay2")
	e.outer.Stdout, e.outer.Stderr = log, log
	if err := e.outer.Start(); err != nil {
		os.RemoveAll(dir)
		t.Fatal(err)
	}
	t.Cleanup(func() {
		e.outer.Process.Kill() // and with it process 1 of the namespaces, and everything else in them
		e.outer.Wait()
		var err error
		for range 50 { // until the last of them has let go of its mounts
			if err = os.RemoveAll(dir); err == nil {
				return
			}
			time.Sleep(100 * time.Millisecond)
		}
		t.Errorf("the engine's folder stays: %v", err)
	})
	for until := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		opened, err := engine.Open(t.Context(), e.Options())
		if err == nil {
			opened.Close()
			break
		}
		if time.Now().After(until) {
			text, _ := os.ReadFile(log.Name())
			t.Fatalf("the test's engine does not start: %v\n%s", err, text[max(0, len(text)-2000):])
		}
	}
	return e
}

// Options returns options by which this engine is opened, with no login and no context.
func (e *Engine) Options() engine.Options {
	host := "unix://" + e.Socket
	return engine.Options{Home: e.dir, Getenv: func(k string) string { return map[string]string{"DOCKER_HOST": host}[k] }}
}

// Kill kills the engine's daemon outright; its containers go on. Twice is an error.
func (e *Engine) Kill(ctx context.Context) error {
	pid, err := os.ReadFile(filepath.Join(e.dir, "pid"))
	if err != nil {
		return err
	}
	first, err := e.first()
	if err != nil {
		return err
	}
	return exec.CommandContext(ctx, "nsenter", "--target", first, "--pid", "--mount", "kill", "-9", strings.TrimSpace(string(pid))).Run()
}

// first returns the number of the namespaces' first process: the only child of unshare.
func (e *Engine) first() (string, error) {
	outer := strconv.Itoa(e.outer.Process.Pid)
	list, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return "", err
	}
	for _, f := range list {
		b, err := os.ReadFile(f)
		if err != nil {
			continue
		}
		text := string(b)
		rest := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
		if len(rest) > 1 && rest[1] == outer {
			return filepath.Base(filepath.Dir(f)), nil
		}
	}
	return "", errors.New("the engine's first process is gone")
}
