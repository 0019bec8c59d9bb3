package sandboxtest

import (
	"strings"
	"testing"

	"agentenv/fault"
	"agentenv/sandbox/place"
)

// testSpecial checks that each kind of filesystem either works or fails with an error that names the path and the reason.
func testSpecial(t *testing.T, c Config) {
	put := func(p place.Place, dir, body string) error {
		_, err := place.Put(t.Context(), p, dir, []place.Source{place.Bytes("f", 0, []byte(body))}, nil)
		return err
	}
	works := func(t *testing.T, p place.Place, dir string) {
		t.Helper()
		if err := put(p, dir, "here"); err != nil {
			t.Errorf("%s: %v", dir, err)
		} else if got := read(t, p, place.GetRequest{Roots: []string{dir + "/f"}})[""].body; got != "here" {
			t.Errorf("%s holds %q", dir, got)
		}
	}
	fails := func(t *testing.T, err error, words ...string) {
		t.Helper()
		for _, w := range words {
			if !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), w) || strings.Contains(err.Error(), "\n") {
				t.Errorf("error %v, want an unavailable one with %q", err, w)
			}
		}
	}
	t.Run("mounts", func(t *testing.T) {
		p, _ := c.Special(t, false)
		for _, dir := range []string{"/fast/x", "/dev/shm/x", "/vol/a/b", "/root-fs"} {
			works(t, p, dir)
		}
		works(t, p, "/small")
		for _, size := range []int{2 << 20, 20 << 20} { // also one that takes the way of big files elsewhere
			fails(t, put(p, "/small", strings.Repeat("x", size)), "/small/f", "no space left")
		}
		if got := read(t, p, place.GetRequest{Roots: []string{"/small/f"}})[""].body; got != "here" {
			t.Errorf("what was there is %d bytes now", len(got))
		}
	})
	t.Run("read-only root", func(t *testing.T) {
		p, _ := c.Special(t, true)
		works(t, p, "/vol/a/b")
		works(t, p, "/fast")
		for _, size := range []int{1, 20 << 20} {
			fails(t, put(p, "/root-fs", strings.Repeat("x", size)), "/root-fs", "read-only")
		}
	})
	t.Run("stopped", func(t *testing.T) {
		p, halt := c.Special(t, false)
		works(t, p, "/vol")
		works(t, p, "/root-fs")
		p = halt()
		for _, dir := range []string{"/vol", "/root-fs"} {
			if got := read(t, p, place.GetRequest{Roots: []string{dir + "/f"}})[""].body; got != "here" {
				t.Errorf("%s holds %q", dir, got)
			}
		}
		works(t, p, "/vol/new")
		works(t, p, "/root-fs/new/deep")
		if err := put(p, "/root-fs", strings.Repeat("x", 20<<20)); err != nil {
			t.Error(err)
		}
		for _, dir := range []string{"/fast/x", "/dev/shm/x", "/proc/1"} {
			fails(t, put(p, dir, "x"), dir)
		}
		_, err := p.Exec(t.Context(), place.Cmd{Argv: []string{"true"}})
		fails(t, err, "not running")
	})
}
