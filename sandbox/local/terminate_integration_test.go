//go:build integration

package local_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"agentenv/fault"
	"agentenv/sandbox"
	"agentenv/sandbox/engine"
	"agentenv/sandbox/local"
	"agentenv/sandbox/sandboxtest/images"
)

// What runs in a vm-mode sandbox may bring containers, networks and images of its own; all that bears its label goes.
func TestTerminateRemovesWhatIsLabelled(t *testing.T) {
	lazy := &engine.Lazy{}
	t.Cleanup(func() { lazy.Close() })
	e, err := lazy.Get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ref, err := images.Volume(t.Context(), e)
	if err != nil {
		t.Fatal(err)
	}
	p, err := local.New(local.Options{Root: t.TempDir(), StateRoot: t.TempDir(), Engine: lazy})
	if err != nil {
		t.Fatal(err)
	}
	id := p.NewID()
	m, err := p.Create(t.Context(), id, sandbox.Spec{Mode: sandbox.VM})
	if err != nil {
		t.Fatal(err)
	}
	label := map[string]string{sandbox.LabelSandbox: id}
	cli := e.Client()
	network, err := cli.NetworkCreate(t.Context(), "net-"+id, client.NetworkCreateOptions{Labels: label})
	if err != nil {
		t.Fatal(err)
	}
	other, err := cli.NetworkCreate(t.Context(), "net-"+id+"-other", client.NetworkCreateOptions{Labels: map[string]string{sandbox.LabelSandbox: id + "0"}})
	if err != nil {
		t.Fatal(err)
	}
	defer cli.NetworkRemove(t.Context(), other.ID, client.NetworkRemoveOptions{})
	c, err := cli.ContainerCreate(t.Context(), client.ContainerCreateOptions{Config: &container.Config{Image: ref, Labels: label}})
	if err != nil {
		t.Fatal(err)
	}
	seen, err := cli.ContainerInspect(t.Context(), c.ID, client.ContainerInspectOptions{})
	if err != nil || len(seen.Container.Mounts) != 1 {
		t.Fatal(seen.Container.Mounts, err)
	}
	volume := seen.Container.Mounts[0].Name
	if _, err := cli.ContainerCommit(t.Context(), c.ID, client.ContainerCommitOptions{Reference: "agentenv-test/" + id + ":1"}); err != nil {
		t.Fatal(err)
	}

	// A stand-in for the docker command, which this test needs to see being called.
	bin, log := t.TempDir(), filepath.Join(t.TempDir(), "log")
	fake := func(code string) {
		script := "#!/bin/sh\necho \"$PWD $*\" >> " + log + "\necho first; echo network is in use >&2\nexit " + code + "\n"
		if err := os.WriteFile(filepath.Join(bin, "docker"), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	dir := m.Info().WorkDir
	if err := os.WriteFile(filepath.Join(dir, "docker-compose.yml"), []byte("services: {}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	fake("1")
	if err := p.Terminate(t.Context(), id); !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "network is in use") || strings.Contains(err.Error(), "\n") {
		t.Errorf("compose down fails: %v", err)
	}
	if _, err := os.Stat(dir); err != nil {
		t.Errorf("the work folder, which the next attempt needs: %v", err)
	}
	fake("0")
	if err := p.Terminate(t.Context(), id); err != nil {
		t.Error(err)
	}
	called, err := os.ReadFile(log)
	if want := dir + " compose down -v --remove-orphans\n"; string(called) != want+want {
		t.Errorf("called %q, %v", called, err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the work folder: %v", err)
	}
	if _, err := e.Container(t.Context(), c.ID); !fault.Is(err, fault.NotFound) {
		t.Errorf("the container: %v", err)
	}
	if _, err := cli.VolumeInspect(t.Context(), volume, client.VolumeInspectOptions{}); !errdefs.IsNotFound(err) {
		t.Errorf("its anonymous volume: %v", err)
	}
	if _, err := e.Image(t.Context(), "agentenv-test/"+id+":1"); !fault.Is(err, fault.NotFound) {
		t.Errorf("the image: %v", err)
	}
	if _, err := cli.NetworkInspect(t.Context(), network.ID, client.NetworkInspectOptions{}); !errdefs.IsNotFound(err) {
		t.Errorf("the network: %v", err)
	}
	if _, err := cli.NetworkInspect(t.Context(), other.ID, client.NetworkInspectOptions{}); err != nil {
		t.Errorf("the network of another sandbox: %v", err)
	}
}
