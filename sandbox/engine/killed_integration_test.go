//go:build integration

package engine_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"agentenv/fault"
	"agentenv/sandbox/engine"
	"agentenv/sandbox/place"
	"agentenv/sandbox/sandboxtest/images"
	"agentenv/sandbox/sandboxtest/ownengine"
)

// An engine that is killed under a creation, a command and two copies fails each of them soon, in one line.
func TestKilledEngine(t *testing.T) {
	own := ownengine.Start(t)
	e, err := engine.Open(t.Context(), own.Options())
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	ref, err := images.Scratch(t.Context(), e)
	if err != nil {
		t.Fatal(err)
	}
	c, err := e.Run(t.Context(), engine.RunSpec{Name: "box", Image: ref})
	if err != nil {
		t.Fatal(err)
	}
	other, err := e.Run(t.Context(), engine.RunSpec{Name: "other", Image: ref})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := place.Put(t.Context(), c, "/in", []place.Source{place.Bytes("f", 0, []byte("x"))}, nil); err != nil {
		t.Fatal(err)
	}
	endless := func(size int64) []place.Source {
		return []place.Source{{Name: "x", Size: size, Body: func(context.Context) (io.ReadCloser, error) { return io.NopCloser(io.LimitReader(slow{}, size)), nil }}}
	}
	work := map[string]func() error{
		"create": func() error {
			for i := range 1000 {
				if _, err := e.Run(t.Context(), engine.RunSpec{Name: fmt.Sprint("new", i), Image: ref}); err != nil {
					return err
				}
			}
			return nil
		},
		"exec": func() error { _, err := c.Exec(t.Context(), place.Cmd{Argv: []string{"/probe", "sleep"}}); return err },
		"copy": func() error { // too small for the archive API, and through an exec
			for i := range 1000 {
				if _, err := place.Put(t.Context(), c, fmt.Sprint("/copy", i), endless(8<<20), nil); err != nil {
					return err
				}
			}
			return nil
		},
		"big copy": func() error { _, err := place.Put(t.Context(), other, "/big", endless(1<<40), nil); return err },
	}
	type end struct {
		name string
		err  error
	}
	ends := make(chan end, len(work))
	for name, f := range work {
		go func() { ends <- end{name, f()} }()
	}
	time.Sleep(1500 * time.Millisecond)
	select {
	case early := <-ends:
		t.Fatalf("%s ended before: %v", early.name, early.err)
	default:
	}
	if err := own.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range work {
		select {
		case x := <-ends:
			if !fault.Is(x.err, fault.Unavailable) || strings.Contains(x.err.Error(), "\n") {
				t.Errorf("%s: %v", x.name, x.err)
			}
		case <-time.After(30 * time.Second):
			t.Fatal("something hangs")
		}
	}
	for name, f := range map[string]func() error{
		"find": func() error { _, err := e.Container(t.Context(), "box"); return err },
		"get":  func() error { _, err := get(t, c, "/in/f"); return err },
		"list": func() error { _, err := e.List(t.Context(), "x"); return err },
		"open": func() error { _, err := engine.Open(t.Context(), own.Options()); return err },
	} {
		if err := f(); !fault.Is(err, fault.Unavailable) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s afterwards: %v", name, err)
		}
	}
}

type slow struct{}

func (slow) Read(p []byte) (int, error) {
	time.Sleep(time.Millisecond)
	clear(p)
	return len(p), nil
}

const killedClient = "AGENTENV_TEST_CONTAINER"

// A client that is killed outright takes the command inside the container with it.
func TestKilledClient(t *testing.T) {
	if name := os.Getenv(killedClient); name != "" { // this is the client
		c, err := open(t).Container(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		c.Exec(t.Context(), place.Cmd{User: place.Root, Script: `(env -i setsid sh -c 'trap "" TERM; while :; do echo x >> /log; sleep 0.02; done' &); sleep 100`})
		return
	}
	c := start(t, open(t), images.BusyBox, nil)
	cmd := exec.Command(os.Args[0], "-test.run=^TestKilledClient$")
	cmd.Env = append(os.Environ(), killedClient+"="+c.Name())
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	size := func() int64 {
		e, err := c.Stat(t.Context(), "/log", false)
		if err != nil && !fault.Is(err, fault.NotFound) {
			t.Fatal(err)
		}
		return e.Size
	}
	for until := time.Now().Add(20 * time.Second); size() == 0 && time.Now().Before(until); time.Sleep(50 * time.Millisecond) {
	}
	cmd.Process.Kill()
	cmd.Wait()
	time.Sleep(4 * time.Second) // the grace of a dead client's command is 2 s
	first := size()
	time.Sleep(300 * time.Millisecond)
	if later := size(); first == 0 || later != first {
		t.Errorf("it wrote %d bytes, then %d", first, later)
	}
}

func TestStartedAgain(t *testing.T) {
	e := open(t)
	c := start(t, e, images.BusyBox, func(s *engine.RunSpec) {
		s.Publish = []engine.Publish{{HostIP: "127.0.0.1", ContainerPort: 8000}}
	})
	docker := func(args ...string) {
		t.Helper()
		if out, err := exec.Command("docker", append(args, c.Name())...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	docker("kill")
	if _, err := c.Exec(t.Context(), place.Cmd{Script: "true"}); !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "not running") {
		t.Errorf("killed: %v", err)
	}
	if err := put(t, c, "/x", "while it is stopped"); err != nil {
		t.Errorf("killed: %v", err)
	}
	docker("start")
	if got, err := get(t, c, "/x/f"); got != "while it is stopped" || err != nil {
		t.Errorf("started again: %q, %v", got, err)
	}
	if r, err := c.Exec(t.Context(), place.Cmd{Script: "id -u"}); err != nil || string(r.Stdout) != "65534\n" {
		t.Errorf("started again: %+v, %v", r, err)
	}
	now, err := e.Container(t.Context(), c.ID())
	if err != nil || len(now.Ports()[8000]) != 1 || !strings.HasPrefix(now.Ports()[8000][0], "127.0.0.1:") {
		t.Errorf("started again: published on %v, %v", now.Ports(), err)
	}
	docker("pause")
	if _, err := c.Exec(t.Context(), place.Cmd{Script: "true"}); !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "unpause") {
		t.Errorf("paused: %v", err)
	}
}
