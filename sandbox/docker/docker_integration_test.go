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
	sandboxtest.Run(t, sandboxtest.Config{
		Images: sandboxtest.Images(t, lazy),
		New:    func(*testing.T) sandbox.Provider { return docker.New(docker.Options{Engine: lazy}) },
	})
}
