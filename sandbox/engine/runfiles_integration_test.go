//go:build integration

package engine_test

import (
	"bytes"
	"crypto/rand"
	"strings"
	"testing"

	"agentenv/fault"
	"agentenv/sandbox/engine"
	"agentenv/sandbox/place"
	"agentenv/sandbox/sandboxtest/images"
)

// TestFilesBeforeTheStart are there on every image, and the image's own user reads them.
func TestFilesBeforeTheStart(t *testing.T) {
	e := open(t)
	files := map[string][]byte{"/etc/agentenv/ca-bundle.pem": bytes.Repeat([]byte("certificates\n"), 20000), "/etc/agentenv/more/x": []byte("x"), "/top": {}}
	for _, image := range []string{"scratch", "busybox"} {
		t.Run(image, func(t *testing.T) {
			of := images.Scratch
			if image == "busybox" {
				of = images.BusyBox
			}
			c := start(t, e, of, func(s *engine.RunSpec) { s.Files = files })
			for name, want := range files {
				if got, err := get(t, c, name); err != nil || got != string(want) {
					t.Errorf("%s: %d bytes, %v", name, len(got), err)
				}
			}
			if image != "busybox" {
				return
			}
			var out bytes.Buffer
			r, err := c.Exec(t.Context(), place.Cmd{Argv: []string{"sh", "-c", "id -u; head -n 1 /etc/agentenv/ca-bundle.pem; ls -ld /etc/agentenv | cut -c 1-10"}, Stdout: &out})
			if err != nil || r.Code != 0 || !strings.HasSuffix(out.String(), "\ncertificates\ndrwxr-xr-x\n") || strings.HasPrefix(out.String(), "0\n") {
				t.Errorf("%+v, %v: %s", r, err, out.String())
			}
		})
	}
	ref, err := images.Scratch(t.Context(), e)
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"etc/x", "/etc/../x", "/", "/x/", ""} {
		name := "agentenv-test-" + strings.ToLower(rand.Text()[:10])
		_, err := e.Run(t.Context(), engine.RunSpec{Name: name, Image: ref, Files: map[string][]byte{bad: nil}})
		if !fault.Is(err, fault.Invalid) {
			t.Errorf("%q: %v", bad, err)
		}
		if _, err := e.Container(t.Context(), name); !fault.Is(err, fault.NotFound) {
			t.Errorf("%q: the container is left: %v", bad, err)
		}
	}
}
