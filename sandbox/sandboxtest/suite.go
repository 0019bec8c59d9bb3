// Package sandboxtest is the conformance suite of sandbox providers: Run checks, through the public interfaces alone, what
// every backend must do the same way.
package sandboxtest

import (
	"testing"

	"agentenv/sandbox"
	"agentenv/sandbox/place"
)

// Config says what to test.
type Config struct {
	// New returns the provider under test; it is called once a test. What it holds is released by the test's cleanup.
	New func(t *testing.T) sandbox.Provider
	// Images are the images that container mode is tested with; empty = the provider has no container mode.
	Images []Image
	// VM tells that the provider makes bare machines.
	VM bool
	// Crowd is how many container-mode sandboxes live at once in one test; 0 = 50. They take the last of Images.
	Crowd int
	// Crowded is called while they live, for what only the backend can see; nil = nothing.
	Crowded func(t *testing.T)
	// Special makes a container with a tmpfs at /fast, one of 1 MiB at /small, a volume at /vol and, where asked, a read-only
	// root; halt stops it and gives it as it is then. nil = the backend cannot have such.
	Special func(t *testing.T, readOnly bool) (p place.Place, halt func() place.Place)
	// BigFile is the size of the one big file that is moved, in bytes; 0 = 256 MiB.
	BigFile int64
}

// Image is an image under test, which the backend holds or can pull.
type Image struct {
	Name   string // of the subtest
	Ref    string
	Shell  bool   // it has sh, sleep, setsid, cat, id, printf and head
	Probe  string // path of the probe program of package images, when it is in the image
	UID    string // what its own user is, as a number
	Secret string // a folder that only root can enter
}

// Run runs the suite. Every sandbox it makes is ended again.
func Run(t *testing.T, c Config) {
	if c.BigFile == 0 {
		c.BigFile = 256 << 20
	}
	if c.Crowd == 0 {
		c.Crowd = 50
	}
	t.Run("life", func(t *testing.T) { testLife(t, c) })
	t.Run("refusals", func(t *testing.T) { testRefusals(t, c) })
	if len(c.Images) > 0 {
		if c.Special != nil {
			t.Run("special", func(t *testing.T) { testSpecial(t, c) })
		}
		t.Run("crowd", func(t *testing.T) { testCrowd(t, c) })
	}
	for _, img := range c.Images {
		t.Run(img.Name, func(t *testing.T) {
			m := deploy(t, c, sandbox.Container, img.Ref)
			rec := sandbox.Record{Name: "box", ID: m.Info().ID, Mode: sandbox.Container}
			p, err := sandbox.PlaceOf(t.Context(), rec, m, "")
			if err != nil {
				t.Fatal(err)
			}
			box := box{Place: p, work: "/work dir", secret: img.Secret, uid: img.UID, shell: img.Shell, probe: img.Probe, root: true}
			testFiles(t, box, c.BigFile)
			testProcesses(t, box)
		})
	}
	if c.VM {
		t.Run("vm", func(t *testing.T) {
			m := deploy(t, c, sandbox.VM, "")
			p, err := sandbox.PlaceOf(t.Context(), sandbox.Record{Name: "box", ID: m.Info().ID, Mode: sandbox.VM}, m, "")
			if err != nil {
				t.Fatal(err)
			}
			box := box{Place: p, work: "/app/work", shell: true}
			testFiles(t, box, c.BigFile)
			testProcesses(t, box)
		})
	}
}
