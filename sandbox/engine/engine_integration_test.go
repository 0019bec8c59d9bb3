//go:build integration

package engine_test

import (
	"context"
	"crypto/rand"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/client"

	"agentenv/fault"
	"agentenv/sandbox/engine"
	"agentenv/sandbox/place"
	"agentenv/sandbox/sandboxtest/images"
)

func open(t *testing.T) *engine.Engine {
	t.Helper()
	e, err := engine.Open(t.Context(), engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

func start(t *testing.T, e *engine.Engine, image func(context.Context, *engine.Engine) (string, error), change func(*engine.RunSpec)) *engine.Container {
	t.Helper()
	ref, err := image(t.Context(), e)
	if err != nil {
		t.Fatal(err)
	}
	s := engine.RunSpec{Name: "agentenv-test-" + strings.ToLower(rand.Text()[:10]), Image: ref}
	if change != nil {
		change(&s)
	}
	c, err := e.Run(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Remove(context.Background(), c.ID()); err != nil {
			t.Error(err)
		}
	})
	return c
}

func put(t *testing.T, p place.Place, dir string, content string) error {
	t.Helper()
	_, err := place.Put(t.Context(), p, dir, []place.Source{place.Bytes("f", 0, []byte(content)), place.Bytes("sub/g", 0o755, []byte("x"))}, nil)
	return err
}

func get(t *testing.T, p place.Place, root string) (string, error) {
	t.Helper()
	g, err := p.Get(t.Context(), place.GetRequest{Roots: []string{root}, Follow: true})
	if err != nil {
		return "", err
	}
	defer g.Close()
	e, err := g.Next()
	if err == nil {
		err = e.Err
	}
	if err != nil {
		return "", err
	}
	b, err := io.ReadAll(g)
	return string(b), err
}

func TestStopped(t *testing.T) {
	e := open(t)
	for name, image := range map[string]func(context.Context, *engine.Engine) (string, error){"busybox": images.BusyBox, "scratch": images.Scratch, "volume": images.Volume} {
		t.Run(name, func(t *testing.T) {
			c := start(t, e, image, func(s *engine.RunSpec) { s.Tmpfs = map[string]string{"/fast": ""} })
			if err := put(t, c, "/data", "before"); err != nil {
				t.Fatal(err)
			}
			one := 1
			if _, err := e.Client().ContainerStop(t.Context(), c.ID(), client.ContainerStopOptions{Timeout: &one}); err != nil {
				t.Fatal(err)
			}
			c, err := e.Container(t.Context(), c.ID())
			if err != nil {
				t.Fatal(err)
			}
			if got, err := get(t, c, "/data/f"); got != "before" || err != nil {
				t.Errorf("%q, %v", got, err)
			}
			for _, dir := range []string{"/data", "/new/deep", "/secret"} {
				for _, content := range []string{"first", "second"} {
					if err := put(t, c, dir, content); err != nil {
						t.Fatal(err)
					}
				}
				if got, err := get(t, c, dir+"/f"); got != "second" || err != nil {
					t.Errorf("%s: %q, %v", dir, got, err)
				}
			}
			var names []string
			for e, err := range c.Walk(t.Context(), "/new", true) {
				if err != nil {
					t.Fatal(err)
				}
				names = append(names, e.Name)
			}
			if got := strings.Join(names, " "); got != "deep deep/f deep/sub deep/sub/g" {
				t.Errorf("walk: %s", got)
			}
			for _, dir := range []string{"/fast/x", "/dev/shm", "/proc/1"} {
				if err := put(t, c, dir, "x"); !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), dir) {
					t.Errorf("put %s: %v", dir, err)
				}
				if _, err := get(t, c, dir); !fault.Is(err, fault.Unavailable) {
					t.Errorf("get %s: %v", dir, err)
				}
			}
			if _, err := c.Stat(t.Context(), "/absent", true); !fault.Is(err, fault.NotFound) {
				t.Errorf("absent: %v", err)
			}
			if _, err := c.Exec(t.Context(), place.Cmd{Argv: []string{"/bin/true"}}); !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "not running") {
				t.Errorf("exec: %v", err)
			}
		})
	}
}

func TestMounts(t *testing.T) {
	e := open(t)
	c := start(t, e, images.Scratch, func(s *engine.RunSpec) {
		s.ReadOnly = true
		s.Tmpfs = map[string]string{"/small": "size=1m"}
		s.Mounts = []mount.Mount{{Type: mount.TypeVolume, Target: "/vol"}}
	})
	for _, dir := range []string{"/small", "/dev/shm/x", "/vol/a/b"} {
		if err := put(t, c, dir, "here"); err != nil {
			t.Fatal(err)
		}
		if got, err := get(t, c, dir+"/f"); got != "here" || err != nil {
			t.Errorf("%s: %q, %v", dir, got, err)
		}
	}
	if err := put(t, c, "/small", strings.Repeat("x", 2<<20)); !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "/small/f") || !strings.Contains(err.Error(), "no space") {
		t.Errorf("a full tmpfs: %v", err)
	}
	if got, err := get(t, c, "/small/f"); got != "here" || err != nil {
		t.Errorf("after that: %q, %v", got, err)
	}
	if err := put(t, c, "/root-fs", "x"); !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "/root-fs") || !strings.Contains(err.Error(), "read-only") {
		t.Errorf("a read-only root: %v", err)
	}
	if got, err := get(t, c, "/proc/self/comm"); err != nil || got == "" {
		t.Errorf("/proc: %q, %v", got, err)
	}
}

func TestChangingFile(t *testing.T) {
	e := open(t)
	c := start(t, e, images.BusyBox, nil)
	run := func(script string) {
		t.Helper()
		if r, err := c.Exec(t.Context(), place.Cmd{Script: script, User: place.Root}); err != nil || r.Code != 0 {
			t.Fatal(err, r)
		}
	}
	for name, change := range map[string]string{"grows": "head -c 1000 /dev/zero >> /f", "shrinks": "head -c 1000 /dev/zero > /f"} {
		t.Run(name, func(t *testing.T) {
			run("head -c 60000000 /dev/zero > /f")
			g, err := c.Get(t.Context(), place.GetRequest{Roots: []string{"/f"}})
			if err != nil {
				t.Fatal(err)
			}
			defer g.Close()
			if _, err := g.Next(); err != nil {
				t.Fatal(err)
			}
			run(change)
			if _, err := io.Copy(io.Discard, g); !fault.Is(err, fault.Conflict) {
				t.Errorf("error %v, want a conflict", err)
			}
			if _, err := g.Next(); err != io.EOF {
				t.Errorf("after it: %v", err)
			}
		})
	}
}

func TestHowTheCommandEnded(t *testing.T) {
	e := open(t)
	c := start(t, e, images.BusyBox, func(s *engine.RunSpec) { s.Command = []string{"sh", "-c", "sleep 0.3; exit 7"} })
	if running, _, err := c.Ended(t.Context()); !running || err != nil {
		t.Errorf("at first: %v %v", running, err)
	}
	time.Sleep(700 * time.Millisecond)
	if running, code, err := c.Ended(t.Context()); running || code != 7 || err != nil {
		t.Errorf("then: %v %d %v", running, code, err)
	}
	none := start(t, e, images.BusyBox, func(s *engine.RunSpec) { s.Command = []string{"absent"} })
	if running, code, err := none.Ended(t.Context()); running || code != 127 || err != nil {
		t.Errorf("a command that is not there: %v %d %v", running, code, err)
	}
	if err := put(t, none, "/x", "works"); err != nil {
		t.Error(err)
	}
}

func TestForeignContainer(t *testing.T) {
	e := open(t)
	ref, err := images.BusyBox(t.Context(), e)
	if err != nil {
		t.Fatal(err)
	}
	for _, readOnly := range []bool{false, true} {
		r, err := e.Client().ContainerCreate(t.Context(), client.ContainerCreateOptions{Config: &container.Config{Image: ref},
			HostConfig: &container.HostConfig{ReadonlyRootfs: readOnly}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { e.Remove(context.Background(), r.ID) })
		if _, err := e.Client().ContainerStart(t.Context(), r.ID, client.ContainerStartOptions{}); err != nil {
			t.Fatal(err)
		}
		c, err := e.Container(t.Context(), r.ID)
		if err != nil {
			t.Fatal(err)
		}
		out, err := c.Exec(t.Context(), place.Cmd{Script: "id -u; echo $A >&2; exit 3", Env: map[string]string{"A": "b c"}})
		if err != nil || out.Code != 3 || string(out.Stdout) != "65534\n" || string(out.Stderr) != "b c\n" || out.Shell != "sh" {
			t.Errorf("read-only %v: %+v, %v", readOnly, out, err)
		}
		if out, err := c.Exec(t.Context(), place.Cmd{Argv: []string{"cat"}, Stdin: strings.NewReader("in"), User: place.Root}); err != nil || string(out.Stdout) != "in" {
			t.Errorf("read-only %v: input: %+v, %v", readOnly, out, err)
		}
		if _, err := c.Exec(t.Context(), place.Cmd{Argv: []string{"absent"}}); !fault.Is(err, fault.NotFound) {
			t.Errorf("read-only %v: no program: %v", readOnly, err)
		}
		if got, err := get(t, c, "/etc/group"); !strings.HasPrefix(got, "root:x:0:") || err != nil {
			t.Errorf("read-only %v: %q, %v", readOnly, got, err)
		}
		if _, err := c.LookPath(t.Context(), "bash", "sh"); err != nil {
			t.Errorf("read-only %v: %v", readOnly, err)
		}
		began := time.Now()
		_, err = c.Exec(t.Context(), place.Cmd{Script: "echo x; sleep 3", Timeout: 300 * time.Millisecond})
		if !fault.Is(err, fault.Timeout) || time.Since(began) > 3*time.Second || strings.Contains(err.Error(), "still runs") != readOnly {
			t.Errorf("read-only %v: deadline: %v", readOnly, err)
		}
		err = put(t, c, "/tmp/x", "y")
		if readOnly && (!fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "/tmp/x") || !strings.Contains(err.Error(), "read-only")) || !readOnly && err != nil {
			t.Errorf("read-only %v: put: %v", readOnly, err)
		}
		if _, err := c.Stat(t.Context(), "/dev/shm", false); readOnly && !fault.Is(err, fault.Unsupported) || !readOnly && err != nil {
			t.Errorf("read-only %v: /dev/shm: %v", readOnly, err)
		}
	}
}

func TestVanished(t *testing.T) {
	e := open(t)
	c := start(t, e, images.BusyBox, nil)
	ended := make(chan error, 1)
	go func() {
		_, err := c.Exec(t.Context(), place.Cmd{Script: "sleep 60"})
		ended <- err
	}()
	time.Sleep(500 * time.Millisecond)
	if err := e.Remove(t.Context(), c.ID()); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if !fault.Is(err, fault.Unavailable) || strings.Contains(err.Error(), "\n") {
			t.Errorf("exec: %v", err)
		}
	case <-time.After(15 * time.Second):
		t.Fatal("exec does not return")
	}
	if err := put(t, c, "/x", "y"); !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "gone") {
		t.Errorf("put: %v", err)
	}
}

func TestPull(t *testing.T) {
	e := open(t)
	if err := e.Pull(t.Context(), "Not A Name", nil); !fault.Is(err, fault.Invalid) {
		t.Errorf("bad name: %v", err)
	}
	ctx, stop := context.WithTimeout(t.Context(), 2*time.Second)
	defer stop()
	err := e.Pull(ctx, "127.0.0.1:1/nobody/nothing:x", nil)
	if err == nil || strings.Contains(err.Error(), "\n") {
		t.Errorf("no registry: %v", err)
	}
	ref, err := images.BusyBox(t.Context(), e)
	if err != nil {
		t.Fatal(err)
	}
	if i, err := e.Ensure(t.Context(), ref, nil); err != nil || i.User != "nobody" {
		t.Errorf("%+v, %v", i, err)
	}
}

func TestManyAtOnce(t *testing.T) {
	ref, err := images.BusyBox(t.Context(), open(t))
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 8 {
		e := open(t) // each like a process of its own, with nothing known about the helper's volume
		all.Go(func() {
			c, err := e.Run(t.Context(), engine.RunSpec{Name: "agentenv-test-" + strings.ToLower(rand.Text()[:10]), Image: ref,
				Publish: []engine.Publish{{HostIP: "127.0.0.1", ContainerPort: 8000}}})
			if err != nil {
				t.Error(err)
				return
			}
			defer e.Remove(context.Background(), c.ID())
			if p := c.Ports()[8000]; len(p) != 1 || !strings.HasPrefix(p[0], "127.0.0.1:") {
				t.Errorf("published on %v", p)
			}
			if _, err := c.Exec(t.Context(), place.Cmd{Script: "true"}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	_, err = open(t).Run(t.Context(), engine.RunSpec{Name: "x", Image: ref, Publish: []engine.Publish{{HostIP: "0.0.0.0", ContainerPort: 1}}})
	if !fault.Is(err, fault.Invalid) {
		t.Errorf("all interfaces: %v", err)
	}
}
