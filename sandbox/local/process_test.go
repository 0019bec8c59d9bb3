package local_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"agentenv/fault"
	"agentenv/sandbox"
	"agentenv/sandbox/engine"
	"agentenv/sandbox/local"
	"agentenv/sandbox/place"
)

// ways are the two by which what a command starts is kept in reach: a cgroup for each command, where this machine has them, or
// a guard before each.
var ways = map[string]bool{"cgroups": false, "guards": true}

func bothWays(t *testing.T, f func(t *testing.T, guards bool)) {
	t.Parallel()
	for name, guards := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(t, guards)
		})
	}
}

func provider(t *testing.T, root, state string, guards bool) *local.Provider {
	t.Helper()
	p, err := local.New(local.Options{Root: root, StateRoot: state, Guards: guards, Engine: &engine.Lazy{Options: engine.Options{
		Getenv: func(k string) string { return map[string]string{"DOCKER_HOST": "unix:///nowhere"}[k] }}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// stubborn is a shell line that, out of everybody's sight, writes to file until it is killed.
func stubborn(file string) string {
	return `(env -i setsid sh -c 'trap "" TERM; while :; do echo x >> ` + file + `; sleep 0.02; done' >/dev/null 2>&1 &)`
}

// written waits until something was written to file.
func written(t *testing.T, file string) {
	t.Helper()
	for until := time.Now().Add(30 * time.Second); time.Now().Before(until); time.Sleep(20 * time.Millisecond) {
		if fi, err := os.Stat(file); err == nil && fi.Size() > 0 {
			return
		}
	}
	t.Fatalf("nothing writes to %s", file)
}

// silent fails the test when file is absent or still grows.
func silent(t *testing.T, file string) {
	t.Helper()
	first, err := os.ReadFile(file)
	if err != nil || len(first) == 0 {
		t.Fatalf("it never wrote: %v", err)
	}
	time.Sleep(200 * time.Millisecond)
	if later, err := os.ReadFile(file); err != nil || !bytes.Equal(first, later) {
		t.Errorf("it still writes: %d, then %d bytes (%v)", len(first), len(later), err)
	}
}

func TestTerminateEndsWhatWasLeftBehind(t *testing.T) {
	bothWays(t, terminateEndsWhatWasLeftBehind)
}

func terminateEndsWhatWasLeftBehind(t *testing.T, guards bool) {
	p := provider(t, t.TempDir(), t.TempDir(), guards)
	id := p.NewID()
	m, err := p.Create(t.Context(), id, sandbox.Spec{Mode: sandbox.VM})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "log")
	began := time.Now()
	if _, err := m.Host().Exec(t.Context(), place.Cmd{Script: stubborn(file)}); err != nil || time.Since(began) > 10*time.Second { // what it left behind never ends
		t.Fatal(err, time.Since(began))
	}
	written(t, file)
	began = time.Now()
	if err := p.Terminate(t.Context(), id); err != nil || time.Since(began) > 11*time.Second {
		t.Error(err, time.Since(began))
	}
	silent(t, file)
}

// The guard that a command is watched by is what keeps it from escaping. When that is told to end or killed, by the command itself even, the
// command's exit code says nothing about its work, and still nothing of it stays.
func TestGuardIsEnded(t *testing.T) {
	if runtime.GOOS != "linux" {
		return // commands have no guards
	}
	t.Parallel()
	for signal, stays := range map[string]bool{"TERM": false, "KILL": false, "STOP": true} {
		t.Run(signal, func(t *testing.T) {
			t.Parallel()
			p := provider(t, t.TempDir(), t.TempDir(), true)
			id := p.NewID()
			m, err := p.Create(t.Context(), id, sandbox.Spec{Mode: sandbox.VM})
			if err != nil {
				t.Fatal(err)
			}
			defer p.Terminate(context.Background(), id)
			file := filepath.Join(t.TempDir(), "log")
			script := stubborn(file) + "; while [ ! -s " + file + " ]; do sleep 0.1; done; kill -" + signal + " $PPID; sleep 60"
			limit := 40 * time.Second // far below the command's own end
			if stays {
				limit = 3 * time.Second
			}
			_, err = m.Host().Exec(t.Context(), place.Cmd{Script: script, Timeout: limit, Grace: 100 * time.Millisecond})
			want := fault.Unavailable
			if stays {
				want = fault.Timeout
			}
			if !fault.Is(err, want) {
				t.Errorf("error %v, want %s", err, want)
			}
			if err := p.Terminate(t.Context(), id); err != nil {
				t.Error(err)
			}
			silent(t, file)
		})
	}
}

// A folder where nothing can be kept means that commands run without the helper; what does not hide still ends.
func TestWithoutGuard(t *testing.T) {
	t.Parallel()
	p := provider(t, t.TempDir(), "/dev/null/state", false)
	id := p.NewID()
	m, err := p.Create(t.Context(), id, sandbox.Spec{Mode: sandbox.VM})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Terminate(context.Background(), id)
	if r, err := m.Host().Exec(t.Context(), place.Cmd{Script: "echo out; exit 3"}); err != nil || r.Code != 3 || string(r.Stdout) != "out\n" {
		t.Errorf("%+v, %v", r, err)
	}
	file := filepath.Join(t.TempDir(), "log")
	script := `(setsid sh -c 'trap "" TERM; while :; do echo x >> ` + file + `; sleep 0.02; done' &); sleep 60`
	if _, err := m.Host().Exec(t.Context(), place.Cmd{Script: script, Timeout: 2 * time.Second, Grace: 100 * time.Millisecond}); !fault.Is(err, fault.Timeout) {
		t.Errorf("error %v, want a timeout", err)
	}
	silent(t, file)
}
