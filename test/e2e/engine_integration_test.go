//go:build integration

package e2e_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/moby/moby/client"

	"agentenv/sandbox"
	"agentenv/sandbox/engine"
	"agentenv/sandbox/sandboxtest/images"
)

// machine is the engine of this machine, opened once.
var machine = sync.OnceValues(func() (*engine.Engine, error) {
	return engine.Open(context.Background(), engine.Options{})
})

func docker(t testing.TB) *engine.Engine {
	t.Helper()
	e, err := machine()
	if err != nil {
		t.Fatalf("these tests need a Docker Engine: %v", err)
	}
	return e
}

// debian, busybox and scratch return the tags of the test images, made when missing.
func debian(t testing.TB) string { return image(t, images.Debian) }

func busybox(t testing.TB) string { return image(t, images.BusyBox) }

func scratch(t testing.TB) string { return image(t, images.Scratch) }

// pythonSlim sees to the public image that the shipped images build on.
func pythonSlim(t testing.TB) string { return image(t, images.PythonSlim) }

func withVolume(t testing.TB) string { return image(t, images.Volume) }

func image(t testing.TB, ensure func(context.Context, *engine.Engine) (string, error)) string {
	t.Helper()
	tag, err := ensure(t.Context(), docker(t))
	if err != nil {
		t.Fatal(err)
	}
	return tag
}

// containers returns the names of the user's containers, running or not.
func (k *user) containers() []string {
	k.T.Helper()
	r, err := docker(k.T).Client().ContainerList(k.T.Context(), client.ContainerListOptions{All: true,
		Filters: make(client.Filters).Add("label", sandbox.LabelState+"="+k.mark())})
	if err != nil {
		k.T.Fatal(err)
	}
	var out []string
	for _, c := range r.Items {
		out = append(out, strings.TrimPrefix(c.Names[0], "/")+" "+string(c.State))
	}
	slices.Sort(out)
	return out
}

// anonymousVolumes returns the volumes of a container that nobody named, the one of the helper left out.
func anonymousVolumes(t testing.TB, container string) []string {
	t.Helper()
	r, err := docker(t).Client().ContainerInspect(t.Context(), container, client.ContainerInspectOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, m := range r.Container.Mounts {
		if m.Name != "" && !strings.HasPrefix(m.Name, "agentenv-helper-") {
			out = append(out, m.Name)
		}
	}
	return out
}

func volumeThere(t testing.TB, name string) bool {
	t.Helper()
	_, err := docker(t).Client().VolumeInspect(t.Context(), name, client.VolumeInspectOptions{})
	return err == nil
}

// leftovers says what the user's runs left outside the state folder: containers, work folders, temporary files, processes.
func (k *user) leftovers() string {
	k.T.Helper()
	var out []string
	for _, c := range k.containers() {
		out = append(out, "container "+c)
	}
	for _, dir := range []string{k.Sandboxes, k.Tmp} {
		entries, _ := os.ReadDir(dir)
		for _, e := range entries {
			out = append(out, filepath.Join(dir, e.Name()))
		}
	}
	out = append(out, k.processes()...)
	return strings.Join(out, "; ")
}

// processes returns the processes of this machine that work for the kit: those whose command line or environment names its folder.
func (k *user) processes() []string {
	k.T.Helper()
	var out []string
	entries, err := os.ReadDir("/proc")
	if err != nil {
		k.T.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() == "self" || e.Name()[0] < '0' || e.Name()[0] > '9' || e.Name() == fmt.Sprint(os.Getpid()) {
			continue
		}
		args, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		env, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "environ"))
		if strings.Contains(string(args)+string(env), k.Dir) {
			out = append(out, "process "+e.Name()+" "+strings.ReplaceAll(string(args), "\x00", " "))
		}
	}
	return out
}

// watchCommandLines notes the command line of every process of this machine, also of those in containers, until the function that it returns is called,
// which gives each of them as a line.
func watchCommandLines(t *testing.T) func() string {
	seen, stop, done := map[string]bool{}, make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			found, _ := filepath.Glob("/proc/[0-9]*/cmdline")
			for _, name := range found {
				args, _ := os.ReadFile(name) // a process that has ended has none
				seen[strings.ReplaceAll(strings.TrimSuffix(string(args), "\x00"), "\x00", " ")] = true
			}
			select {
			case <-stop:
				return
			case <-time.After(25 * time.Millisecond):
			}
		}
	}()
	end := sync.OnceValue(func() string {
		close(stop)
		<-done
		return strings.Join(slices.Collect(maps.Keys(seen)), "\n")
	})
	t.Cleanup(func() { end() })
	return end
}

// scripts returns what run_code left in the machine's temporary folder for a sandbox.
func scripts(id string) []string {
	found, _ := filepath.Glob("/tmp/agent_env_run_code-" + id + "*")
	return found
}
