//go:build integration

package local_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"agentenv/fault"
	"agentenv/sandbox"
	"agentenv/sandbox/engine"
	"agentenv/sandbox/local"
	"agentenv/sandbox/place"
	"agentenv/sandbox/sandboxtest/images"
)

func TestContainerBesideHost(t *testing.T) {
	lazy := &engine.Lazy{}
	defer lazy.Close()
	e, err := lazy.Get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	image, err := images.BusyBox(t.Context(), e)
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	p, err := local.New(local.Options{Root: root, StateRoot: t.TempDir(), StateMark: "mark", Engine: lazy})
	if err != nil {
		t.Fatal(err)
	}
	id := p.NewID()
	if _, err := p.Create(t.Context(), id, sandbox.Spec{Mode: sandbox.Container, Image: image, Port: 8000, Env: map[string]string{"A": "it's"}, Attribution: map[string]string{"team": "x"}}); err != nil {
		t.Fatal(err)
	}
	defer p.Terminate(t.Context(), id)
	c, err := e.Container(t.Context(), "agent-"+id)
	if err != nil {
		t.Fatal(err)
	}
	if l := c.Labels(); l["agentenv.sandbox"] != id || l["agentenv.state"] != "mark" || l["agentenv.attr.team"] != "x" || l["agentenv.expires"] == "" {
		t.Errorf("labels %v", l)
	}
	at := c.Ports()[8000]
	slices.Sort(at)
	for _, a := range at {
		if strings.HasPrefix(a, "0.0.0.0") || strings.HasPrefix(a, "[::]") || a[strings.LastIndex(a, ":"):] != at[0][strings.LastIndex(at[0], ":"):] {
			t.Errorf("published on %v", at)
		}
	}
	m, err := p.Attach(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if m.Info().Mode != sandbox.VM || m.Info().TunnelURLs["8000"] != "http://"+at[0] {
		t.Errorf("attached: %+v, published on %v", m.Info(), at)
	}
	// The recorded mode alone decides where things land.
	box, err := sandbox.PlaceOf(t.Context(), sandbox.Record{Name: "b", ID: id, Mode: sandbox.Container}, m, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := place.Put(t.Context(), box, "/secret/only-inside-"+id, []place.Source{place.Bytes("f", 0, []byte("x"))}, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat("/secret/only-inside-" + id); !os.IsNotExist(err) {
		t.Errorf("on the host: %v", err)
	}
	if r, err := box.Exec(t.Context(), place.Cmd{Script: `printf %s "$A"`}); err != nil || string(r.Stdout) != "it's" {
		t.Errorf("%+v, %v", r, err)
	}
	host, err := sandbox.PlaceOf(t.Context(), sandbox.Record{Name: "b", ID: id, Mode: sandbox.VM}, m, "")
	if err != nil {
		t.Fatal(err)
	}
	// A background process that ignores SIGTERM ends with the sandbox.
	if _, err := host.Exec(t.Context(), place.Cmd{Script: `(trap "" TERM; while :; do echo x >> /app/log; sleep 0.05; done) >/dev/null 2>&1 &`}); err != nil {
		t.Fatal(err)
	}
	dir := m.Info().WorkDir
	began := time.Now()
	if err := p.Terminate(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if time.Since(began) > 11*time.Second {
		t.Errorf("terminate took %s", time.Since(began))
	}
	if _, err := e.Container(t.Context(), "agent-"+id); !fault.Is(err, fault.NotFound) {
		t.Errorf("the container: %v", err)
	}
	time.Sleep(200 * time.Millisecond)
	if left, _ := filepath.Glob(filepath.Join(root, "*")); len(left) > 0 {
		t.Errorf("%s was %v: left %v", dir, err, left)
	}
}

func TestFailedCreateLeavesNothing(t *testing.T) {
	lazy := &engine.Lazy{}
	defer lazy.Close()
	root := t.TempDir()
	p, err := local.New(local.Options{Root: root, StateRoot: t.TempDir(), Engine: lazy})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Create(t.Context(), p.NewID(), sandbox.Spec{Mode: sandbox.Container, Image: "agentenv-test/absent:1", Port: 80}); !fault.Is(err, fault.NotFound) {
		t.Errorf("error %v, want a not-found one", err)
	}
	if left, _ := os.ReadDir(root); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
