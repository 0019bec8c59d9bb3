//go:build integration

package engine_test

import (
	"testing"

	"agentenv/sandbox/place"
	"agentenv/sandbox/sandboxtest/images"
)

func TestZZ(t *testing.T) {
	c := start(t, open(t), images.BusyBox, nil)
	r, err := c.Exec(t.Context(), place.Cmd{Script: "cat /proc/self/status; cat /proc/1/status"})
	t.Logf("%s %v", r.Stdout, err)
}
