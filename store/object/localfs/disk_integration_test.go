//go:build integration

package localfs_test

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"agentenv/fault"
	"agentenv/store/object"
	"agentenv/store/object/localfs"
)

// small returns a store on a file system of a few MiB, in memory.
func small(t *testing.T) *localfs.Store {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("agentenv-test", dir, "tmpfs", 0, "size=4m"); err != nil {
		t.Fatalf("cannot mount a file system (root is needed): %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	s, err := localfs.New(filepath.Join(dir, "objects"))
	must(t, err)
	return s
}

// TestFullDisk fills the disk by one object, by a batch of large ones and by a batch of small ones: nothing of what failed is
// there, the error says where and what to do, and after space was made the same write succeeds.
func TestFullDisk(t *testing.T) {
	body := func(n int) io.Reader { return io.LimitReader(pattern{}, int64(n)) }
	batch := func(count, size int) func(*localfs.Store) error {
		return func(s *localfs.Store) error {
			i := 0
			_, err := s.PutAll(t.Context(), func() (object.Item, error) {
				if i++; i > count {
					return object.Item{}, io.EOF
				}
				return object.Item{Key: fmt.Sprintf("full/%d", i), ContentType: "text/plain", Size: int64(size), Body: body(size)}, nil
			})
			return err
		}
	}
	for name, write := range map[string]func(*localfs.Store) error{
		"one object": func(s *localfs.Store) error {
			_, err := s.Put(t.Context(), object.Item{Key: "full/1", Size: 3 << 20, Body: body(3 << 20)}, false)
			return err
		},
		"an overwrite": func(s *localfs.Store) error {
			_, err := s.Put(t.Context(), object.Item{Key: "full/1", Size: 3 << 20, Body: body(3 << 20)}, true)
			return err
		},
		"a batch of large objects": batch(2, 1<<20+1<<19),
		"a batch of small objects": batch(150, 9000),
	} {
		t.Run(name, func(t *testing.T) {
			s := small(t)
			put(t, s, "kept", "text", "text/plain")
			ballast := filepath.Join(filepath.Dir(s.Root()), "ballast")
			must(t, os.WriteFile(ballast, make([]byte, 2<<20), 0o644))
			err := write(s)
			if fault.KindOf(err) != fault.Unavailable {
				t.Fatalf("a full disk gives %v", err)
			}
			for _, part := range []string{s.Root(), "no space left", "free some space"} {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q is not in: %v", part, err)
				}
			}
			if keys, err := s.List(t.Context(), ""); err != nil || strings.Join(keys, " ") != "kept" {
				t.Errorf("after it there are %q, %v", keys, err)
			}
			if left, _ := filepath.Glob(s.Root() + "/.agentenv-tmp/[^l]*"); len(left) != 0 {
				t.Error("left behind:", left)
			}
			must(t, os.Remove(ballast))
			must(t, write(s))
			if info, err := s.Stat(t.Context(), "file://"+s.Root()+"/kept"); err != nil || info.ContentType != "text/plain" {
				t.Error(info, err)
			}
		})
	}
}
