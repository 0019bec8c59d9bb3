package local_test

import (
	"os"
	"path/filepath"
	"testing"

	"agentenv/sandbox"
	"agentenv/sandbox/engine"
	"agentenv/sandbox/local"
)

// TestOnlyAWorkFolderIsRemoved: nothing that a link leads to, and nothing that lies elsewhere or has another's name.
func TestOnlyAWorkFolderIsRemoved(t *testing.T) {
	t.Parallel()
	root, outside := t.TempDir(), t.TempDir()
	lazy := &engine.Lazy{Options: engine.Options{Home: t.TempDir(), Getenv: func(k string) string {
		return map[string]string{"DOCKER_HOST": "unix:///nowhere/docker.sock"}[k]
	}}}
	p, err := local.New(local.Options{Root: root, StateRoot: t.TempDir(), Engine: lazy})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	m, err := p.Create(t.Context(), p.NewID(), sandbox.Spec{Mode: sandbox.VM})
	if err != nil {
		t.Fatal(err)
	}
	id, dir := m.Info().ID, m.Info().WorkDir
	kept := map[string]string{
		"behind a link":               filepath.Join(outside, "behind", "file"),
		"elsewhere":                   filepath.Join(outside, "agent-env-"+id+"-elsewhere", "file"),
		"below another folder":        filepath.Join(root, "more", "agent-env-"+id+"-deep", "file"),
		"of a sandbox named alike":    filepath.Join(root, "agent-env-"+id+"0-x", "file"),
		"behind a link in the folder": filepath.Join(outside, "linked", "file"),
	}
	for _, file := range kept {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	link := filepath.Join(root, "agent-env-"+id+"-link")
	for at, to := range map[string]string{link: filepath.Join(outside, "behind"), filepath.Join(dir, "inner"): filepath.Join(outside, "linked")} {
		if err := os.Symlink(to, at); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := p.Terminate(t.Context(), id); err != nil {
			t.Error(err)
		}
	}
	// With its folder gone, a link of its name is all there is.
	for _, odd := range []string{id, "../" + filepath.Base(outside), "", "local-*"} {
		if err := p.Terminate(t.Context(), odd); err != nil {
			t.Logf("%q: %v", odd, err)
		}
	}
	if _, err := os.Lstat(dir); !os.IsNotExist(err) {
		t.Errorf("the work folder: %v", err)
	}
	for what, file := range kept {
		if _, err := os.Stat(file); err != nil {
			t.Errorf("what lies %s: %v", what, err)
		}
	}
}
