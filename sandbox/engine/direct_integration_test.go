//go:build integration

package engine_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"agentenv/fault"
	"agentenv/sandbox/engine"
	"agentenv/sandbox/place"
	"agentenv/sandbox/sandboxtest/images"
)

// relay passes on what is said to the engine, and counts the calls of its archive API that move files.
type relay struct {
	moved atomic.Int64
	conns sync.WaitGroup
}

func (r *relay) serve(t *testing.T, network, address string) string {
	t.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	r.conns.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			r.conns.Go(func() { r.pass(c) })
		}
	})
	t.Cleanup(func() { l.Close(); r.conns.Wait() })
	return network + "://" + l.Addr().String()
}

func (r *relay) pass(c net.Conn) {
	defer c.Close()
	to, err := net.Dial("unix", "/var/run/docker.sock")
	if err != nil {
		return
	}
	defer to.Close()
	back := make(chan struct{})
	go func() {
		defer close(back)
		io.Copy(c, to)
		c.Close()
	}()
	buf := make([]byte, 256<<10)
	for {
		n, err := c.Read(buf)
		for line := range bytes.Lines(buf[:n]) {
			if f := bytes.Fields(line); len(f) == 3 && bytes.Contains(f[1], []byte("/archive?")) && string(f[0]) != "HEAD" {
				r.moved.Add(1)
			}
		}
		if _, werr := to.Write(buf[:n]); err != nil || werr != nil {
			break
		}
	}
	if h, ok := to.(*net.UnixConn); ok {
		h.CloseWrite()
	}
	<-back
}

func through(t *testing.T, r *relay, network, address string) *engine.Engine {
	t.Helper()
	at := r.serve(t, network, address)
	e, err := engine.Open(t.Context(), engine.Options{Getenv: func(k string) string { return map[string]string{"DOCKER_HOST": at}[k] }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

// A big file of a container on this machine moves past the engine; one of an engine that may be elsewhere through its archive API.
func TestBigFilePaths(t *testing.T) {
	content := bytes.Repeat([]byte("0123456789abcdef"), 17<<16)
	sum := sha256.Sum256(content)
	for _, way := range []struct {
		network, address string
		archive          bool
	}{
		{"unix", filepath.Join(t.TempDir(), "engine.sock"), false},
		{"tcp", "127.0.0.1:0", true},
	} {
		t.Run(way.network, func(t *testing.T) {
			r := &relay{}
			c := start(t, through(t, r, way.network, way.address), images.BusyBox, nil)
			took := func(what string) {
				t.Helper()
				if n := r.moved.Swap(0); n > 0 != way.archive {
					t.Errorf("%s: %d calls of the archive API", what, n)
				}
			}
			if _, err := c.Exec(t.Context(), place.Cmd{Script: "mkdir -p /d/sub && ln -s /d /link && umask 077 && mkdir /link/closed", User: place.Root}); err != nil {
				t.Fatal(err)
			}
			placed, err := place.Put(t.Context(), c, "/link/closed", []place.Source{place.Bytes("sub/f", 0o755, content)}, nil)
			if err != nil || len(placed) != 1 || placed[0].SHA256 != hex.EncodeToString(sum[:]) {
				t.Fatal(placed, err)
			}
			took("write")
			res, err := c.Exec(t.Context(), place.Cmd{Script: "stat -c '%a %u %g %s' /d/closed/sub/f; ls -a /d/closed/sub", User: place.Root})
			if err != nil || string(res.Stdout) != "755 0 0 17825792\n.\n..\nf\n" {
				t.Errorf("%s%s, %v", res.Stdout, res.Stderr, err)
			}
			if got, err := get(t, c, "/link/closed/sub/f"); err != nil || got != string(content) {
				t.Errorf("%d bytes, %v", len(got), err)
			}
			took("read")
			if _, err := place.Put(t.Context(), c, "/d", []place.Source{{Name: "bad", Size: int64(len(content)), SHA256: hex.EncodeToString(sum[:]), Body: func(context.Context) (io.ReadCloser, error) {
				return io.NopCloser(io.MultiReader(bytes.NewReader(content[:len(content)-1]), strings.NewReader("?"))), nil
			}}}, nil); !fault.Is(err, fault.Conflict) {
				t.Errorf("other content than announced: %v", err)
			}
		})
	}
}

// A file that changes while it is read past the engine is told of as on every other way, and what follows it still comes.
func TestBigFileChanges(t *testing.T) {
	r := &relay{}
	c := start(t, through(t, r, "unix", filepath.Join(t.TempDir(), "engine.sock")), images.BusyBox, nil)
	for name, change := range map[string]string{"grows": "echo x >> /c/f", "shrinks": ": > /c/f", "same size": "sleep 0.01; printf x | dd of=/c/f conv=notrunc", "replaced": ""} {
		t.Run(name, func(t *testing.T) {
			sh := func(script string) {
				t.Helper()
				if res, err := c.Exec(t.Context(), place.Cmd{Script: script, User: place.Root}); err != nil || res.Code != 0 {
					t.Fatalf("%+v, %v", res, err)
				}
			}
			sh("rm -rf /c; mkdir /c; head -c 20000000 /dev/zero > /c/f; echo last > /c/g; rm -rf /c2; mkdir /c2; echo other > /c2/f")
			g, err := c.Get(t.Context(), place.GetRequest{Roots: []string{"/c/f", "/c/g"}})
			if err != nil {
				t.Fatal(err)
			}
			defer g.Close()
			if _, err := g.Next(); err != nil {
				t.Fatal(err)
			}
			if _, err := io.CopyN(io.Discard, g, 1<<20); err != nil {
				t.Fatal(err)
			}
			want := fault.Conflict
			if change == "" { // what was opened is read on
				change, want = "mv /c2/f /c/f", ""
			}
			sh(change)
			_, err = io.Copy(io.Discard, g)
			if want == "" && err != nil || want != "" && !fault.Is(err, want) {
				t.Errorf("error %v, want %q", err, want)
			}
			e, err := g.Next()
			if err != nil || e.Root != 1 || e.Err != nil {
				t.Fatalf("what follows: %+v, %v", e, err)
			}
			if b, err := io.ReadAll(g); string(b) != "last\n" {
				t.Errorf("%q, %v", b, err)
			}
			if _, err := g.Next(); !errors.Is(err, io.EOF) {
				t.Errorf("the end: %v", err)
			}
		})
	}
	if n := r.moved.Load(); n > 0 {
		t.Errorf("%d calls of the archive API", n)
	}
}

// A read that is cancelled half way ends, and a write leaves nothing.
func TestBigFileCanceled(t *testing.T) {
	r := &relay{}
	c := start(t, through(t, r, "unix", filepath.Join(t.TempDir(), "engine.sock")), images.BusyBox, nil)
	ctx, cancel := context.WithCancel(t.Context())
	body := func(context.Context) (io.ReadCloser, error) {
		n := 0
		return io.NopCloser(readerFunc(func(p []byte) (int, error) {
			if n += len(p); n > 8<<20 {
				cancel()
			}
			return len(p), nil
		})), nil
	}
	if _, err := place.Put(ctx, c, "/d", []place.Source{{Name: "f", Size: 32 << 20, Body: body}}, nil); !fault.Is(err, fault.Canceled) {
		t.Errorf("write: %v", err)
	}
	for until := time.Now().Add(10 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		res, err := c.Exec(t.Context(), place.Cmd{Script: "ls -A /d", User: place.Root})
		if err == nil && len(res.Stdout) == 0 {
			break
		}
		if time.Now().After(until) {
			t.Fatalf("left behind: %s, %v", res.Stdout, err)
		}
	}
	if _, err := c.Exec(t.Context(), place.Cmd{Script: "head -c 20000000 /dev/zero > /d/f", User: place.Root}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel = context.WithCancel(t.Context())
	defer cancel()
	g, err := c.Get(ctx, place.GetRequest{Roots: []string{"/d/f"}})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	if _, err = g.Next(); err == nil {
		_, err = io.CopyN(io.Discard, g, 1<<20)
	}
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err := io.Copy(io.Discard, g); !fault.Is(err, fault.Canceled) {
		t.Errorf("read: %v", err)
	}
	if n := r.moved.Load(); n > 0 {
		t.Errorf("%d calls of the archive API", n)
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }
