//go:build integration

package local_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/moby/moby/client"
	"golang.org/x/sys/unix"

	"agentenv/fault"
	"agentenv/sandbox"
	"agentenv/sandbox/engine"
	"agentenv/sandbox/local"
	"agentenv/sandbox/place"
	"agentenv/sandbox/sandboxtest/images"
	"agentenv/sandbox/sandboxtest/ownengine"
)

// On a fresh engine, whose default bridge need not report a gateway, containers start, and a number that the engine has given
// away already is left for the next.
func TestFreshEngine(t *testing.T) {
	own := ownengine.Start(t)
	lazy := &engine.Lazy{Options: own.Options()}
	t.Cleanup(func() { lazy.Close() })
	e, err := lazy.Get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	bridge, err := e.Client().NetworkInspect(t.Context(), "bridge", client.NetworkInspectOptions{})
	if err != nil {
		t.Fatal(err)
	}
	version, err := e.Client().ServerVersion(t.Context(), client.ServerVersionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	gateway, err := e.Bridge(t.Context())
	if err != nil || len(bridge.Network.IPAM.Config) == 0 || strings.HasPrefix(version.Version, "20.10.") && gateway != "" {
		t.Fatalf("the default bridge reports the gateway %q (%v, %+v); it was to report a subnet alone", gateway, err, bridge.Network.IPAM.Config)
	}
	ref, err := images.Scratch(t.Context(), e)
	if err != nil {
		t.Fatal(err)
	}
	var numbers []int
	for range 2 { // two state folders that begin at the same number know nothing of each other
		state := t.TempDir()
		if err := os.Mkdir(filepath.Join(state, "locks"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(state, "locks", "host-ports"), []byte("24440"), 0o600); err != nil {
			t.Fatal(err)
		}
		p, err := local.New(local.Options{Root: t.TempDir(), StateRoot: state, Engine: lazy, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		id := p.NewID()
		m, err := p.Create(t.Context(), id, sandbox.Spec{Mode: sandbox.Container, Image: ref, Port: 8000})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Terminate(context.WithoutCancel(t.Context()), id)
		c, err := e.Container(t.Context(), "agent-"+id)
		if err != nil {
			t.Fatal(err)
		}
		number := 0
		for _, a := range c.Ports()[8000] {
			if _, err := fmt.Sscanf(a[strings.LastIndexByte(a, ':')+1:], "%d", &number); err != nil {
				t.Fatal(a, err)
			}
		}
		if url := m.Info().TunnelURLs["8000"]; url != fmt.Sprintf("http://127.0.0.1:%d", number) {
			t.Errorf("URL %s, published on %v", url, c.Ports())
		}
		numbers = append(numbers, number)
		list, err := e.List(t.Context())
		if err != nil || len(list) != len(numbers) {
			t.Errorf("an attempt left something behind: %+v, %v", list, err)
		}
	}
	if numbers[0] <= 24440 || numbers[1] <= numbers[0] {
		t.Errorf("numbers %v, want two that follow 24440", numbers)
	}
}

func TestFullDiskOfThisMachine(t *testing.T) {
	root := filepath.Join(t.TempDir(), "small")
	if err := os.Mkdir(root, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", root, "tmpfs", 0, "size=1m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(root, unix.MNT_DETACH) })
	p := provider(t, root, t.TempDir(), false)
	id := p.NewID()
	m, err := p.Create(t.Context(), id, sandbox.Spec{Mode: sandbox.VM})
	if err != nil {
		t.Fatal(err)
	}
	big := func(n int64) place.Source {
		return place.Source{Name: "f", Size: n, Body: func(context.Context) (io.ReadCloser, error) {
			return io.NopCloser(strings.NewReader(strings.Repeat("x", int(n)))), nil
		}}
	}
	if _, err := place.Put(t.Context(), m.Host(), "/app", []place.Source{place.Bytes("f", 0, []byte("before"))}, nil); err != nil {
		t.Fatal(err)
	}
	for _, n := range []int64{2 << 20, 20 << 20} {
		_, err = place.Put(t.Context(), m.Host(), "/app", []place.Source{big(n)}, nil)
		if !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "no space left") || strings.Contains(err.Error(), "\n") {
			t.Errorf("a full disk: %v", err)
		}
	}
	if b, err := os.ReadFile(filepath.Join(m.Info().WorkDir, "f")); string(b) != "before" {
		t.Errorf("what was there: %q, %v", b, err)
	}
	if left, _ := filepath.Glob(filepath.Join(m.Info().WorkDir, ".agentenv-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	if err := os.WriteFile(filepath.Join(root, "filler"), make([]byte, 1<<20), 0o600); err == nil {
		t.Fatal("the disk is not full")
	}
	if _, err := p.Create(t.Context(), p.NewID(), sandbox.Spec{Mode: sandbox.VM}); !fault.Is(err, fault.Unavailable) {
		t.Errorf("create on a full disk: %v", err)
	}
	if dirs, _ := filepath.Glob(filepath.Join(root, "agent-env-*")); len(dirs) != 1 {
		t.Errorf("folders %v, want one", dirs)
	}
	if err := p.Terminate(t.Context(), id); err != nil {
		t.Error(err)
	}
}
