//go:build integration

package local_test

import (
	"testing"

	"agentenv/sandbox"
	"agentenv/sandbox/engine"
	"agentenv/sandbox/local"
	"agentenv/sandbox/sandboxtest"
)

func TestConformance(t *testing.T) {
	lazy := &engine.Lazy{}
	t.Cleanup(func() { lazy.Close() })
	root, state := t.TempDir(), t.TempDir()
	special, crowded := sandboxtest.OnEngine(lazy)
	sandboxtest.Run(t, sandboxtest.Config{
		Special: special, Crowded: crowded,
		VM:     true,
		Images: sandboxtest.Images(t, lazy),
		New: func(t *testing.T) sandbox.Provider {
			p, err := local.New(local.Options{Root: root, StateRoot: state, Engine: lazy})
			if err != nil {
				t.Fatal(err)
			}
			return p
		},
	})
}
