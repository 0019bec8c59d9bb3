//go:build integration

package docker_test

import (
	"testing"

	"agentenv/sandbox"
	"agentenv/sandbox/docker"
	"agentenv/sandbox/engine"
	"agentenv/sandbox/sandboxtest"
)

func TestConformance(t *testing.T) {
	lazy := &engine.Lazy{}
	t.Cleanup(func() { lazy.Close() })
	special, crowded := sandboxtest.OnEngine(lazy)
	sandboxtest.Run(t, sandboxtest.Config{
		Special: special, Crowded: crowded,
		Images: sandboxtest.Images(t, lazy),
		New:    func(*testing.T) sandbox.Provider { return docker.New(docker.Options{Engine: lazy}) },
	})
}
