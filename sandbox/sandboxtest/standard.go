package sandboxtest

import (
	"testing"

	"agentenv/sandbox/engine"
	"agentenv/sandbox/sandboxtest/images"
)

// Images ensures the three images of package images on a Docker Engine, and describes them for Config.
func Images(t *testing.T, lazy *engine.Lazy) []Image {
	t.Helper()
	e, err := lazy.Get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, ensure := range []func() (string, error){
		func() (string, error) { return images.Debian(t.Context(), e) },
		func() (string, error) { return images.BusyBox(t.Context(), e) },
		func() (string, error) { return images.Scratch(t.Context(), e) },
	} {
		if _, err := ensure(); err != nil {
			t.Fatal(err)
		}
	}
	const nobody = "65534"
	return []Image{
		{Name: "debian", Ref: images.DebianTag, Shell: true, UID: nobody, Secret: "/secret"},
		{Name: "busybox", Ref: images.BusyBoxTag, Shell: true, UID: nobody, Secret: "/secret"},
		{Name: "scratch", Ref: images.ScratchTag, UID: nobody, Secret: "/secret", Probe: "/probe"},
	}
}
