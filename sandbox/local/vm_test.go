package local_test

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"agentenv/sandbox"
	"agentenv/sandbox/engine"
	"agentenv/sandbox/local"
	"agentenv/sandbox/sandboxtest"
)

// VM mode, with an engine that is not there.
func TestVM(t *testing.T) { bothWays(t, testVM) }

func testVM(t *testing.T, guards bool) {
	root, state := t.TempDir(), t.TempDir()
	lazy := &engine.Lazy{Options: engine.Options{Home: t.TempDir(), Getenv: func(k string) string {
		return map[string]string{"DOCKER_HOST": "unix:///nowhere/docker.sock"}[k]
	}}}
	fresh := func(t *testing.T) sandbox.Provider {
		p, err := local.New(local.Options{Root: root, StateRoot: state, Guards: guards, Engine: lazy})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { p.Close() })
		return p
	}
	sandboxtest.Run(t, sandboxtest.Config{VM: true, New: fresh, BigFile: 4 << 20})
	if left, _ := os.ReadDir(root); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}

	p := fresh(t)
	id := p.NewID()
	m, err := p.Create(t.Context(), id, sandbox.Spec{Mode: sandbox.VM})
	if err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`^local-[0-9a-f]{8}$`).MatchString(id) || m.Info().TunnelURLs != nil {
		t.Errorf("id %s, URLs %v", id, m.Info().TunnelURLs)
	}
	dirs, _ := filepath.Glob(filepath.Join(root, "agent-env-"+id+"-*"))
	if len(dirs) != 1 {
		t.Fatal(dirs)
	}
	if b, err := os.ReadFile(filepath.Join(dirs[0], ".port-map.json")); string(b) != "{}" {
		t.Errorf("port map %q, %v", b, err)
	}
	if err := p.Terminate(t.Context(), id); err != nil {
		t.Error(err)
	}
}
