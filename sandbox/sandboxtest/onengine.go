package sandboxtest

import (
	"context"
	"crypto/rand"
	"strings"
	"testing"

	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/client"

	"agentenv/sandbox"
	"agentenv/sandbox/engine"
	"agentenv/sandbox/place"
	"agentenv/sandbox/sandboxtest/images"
)

// OnEngine returns the Special and the Crowded of a Config for a provider on a Docker Engine. Crowded fails when a container
// of the crowd is on another network than the default bridge, or listens on all interfaces.
func OnEngine(lazy *engine.Lazy) (special func(*testing.T, bool) (place.Place, func() place.Place), crowded func(*testing.T)) {
	get := func(t *testing.T) *engine.Engine {
		t.Helper()
		e, err := lazy.Get(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	special = func(t *testing.T, readOnly bool) (place.Place, func() place.Place) {
		e := get(t)
		ref, err := images.Scratch(t.Context(), e)
		if err != nil {
			t.Fatal(err)
		}
		c, err := e.Run(t.Context(), engine.RunSpec{Name: "agentenv-test-" + strings.ToLower(rand.Text()[:10]), Image: ref, ReadOnly: readOnly,
			Tmpfs: map[string]string{"/fast": "", "/small": "size=1m"}, Mounts: []mount.Mount{{Type: mount.TypeVolume, Target: "/vol"}}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := e.Remove(context.Background(), c.ID()); err != nil {
				t.Error(err)
			}
		})
		return c, func() place.Place {
			now := 0
			_, err := e.Client().ContainerStop(t.Context(), c.ID(), client.ContainerStopOptions{Timeout: &now})
			if err == nil {
				c, err = e.Container(t.Context(), c.ID())
			}
			if err != nil {
				t.Fatal(err)
			}
			return c
		}
	}
	crowded = func(t *testing.T) {
		list, err := get(t).Client().ContainerList(t.Context(), client.ContainerListOptions{Filters: make(client.Filters).Add("label", sandbox.LabelTask+"=crowd")})
		if err != nil || len(list.Items) == 0 {
			t.Fatalf("%d containers, %v", len(list.Items), err)
		}
		for _, c := range list.Items {
			for name := range c.NetworkSettings.Networks {
				if name != "bridge" {
					t.Errorf("%s is on the network %s", c.Names[0], name)
				}
			}
			for _, p := range c.Ports {
				if !p.IP.IsValid() || p.IP.IsUnspecified() {
					t.Errorf("%s listens on %v", c.Names[0], p)
				}
			}
		}
	}
	return special, crowded
}
