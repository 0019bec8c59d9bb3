package tree_test

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"agentenv/sandbox/helper/tree"
	"agentenv/sandbox/helper/wire"
)

func TestAside(t *testing.T) {
	dir := t.TempDir()
	outside := filepath.Join(t.TempDir(), "target")
	if err := os.WriteFile(outside, []byte("untouched"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a/b/file", "link"} {
		a, err := tree.Begin(dir, name)
		if err != nil {
			t.Fatal(err)
		}
		list, err := filepath.Glob(filepath.Join(dir, filepath.Dir(name), ".agentenv-*"))
		if err != nil || len(list) != 1 {
			t.Fatal(list, err)
		}
		if p := a.Offer().Path; p != "" && p != list[0] {
			t.Errorf("path %q, want %q", p, list[0])
		}
		if err := os.WriteFile(list[0], []byte("content"), 0o600); err != nil {
			t.Fatal(err)
		}
		e, err := a.Finish(0o755)
		sum := sha256.Sum256([]byte("content"))
		if err != nil || e.Name != name || e.Size != 7 || e.SHA256 != hex.EncodeToString(sum[:]) {
			t.Errorf("%+v, %v", e, err)
		}
		fi, err := os.Lstat(filepath.Join(dir, name))
		if err != nil || fi.Mode() != 0o755 {
			t.Errorf("%v, %v", fi.Mode(), err)
		}
	}
	if b, err := os.ReadFile(outside); string(b) != "untouched" {
		t.Errorf("%q, %v", b, err)
	}
}

func TestAsideDropped(t *testing.T) {
	dir := t.TempDir()
	a, err := tree.Begin(dir, "file")
	if err != nil {
		t.Fatal(err)
	}
	a.Drop()
	if list, err := os.ReadDir(dir); len(list) > 0 {
		t.Errorf("left %v, %v", list, err)
	}
	for _, name := range []string{"../x", "/x", "a/../../x", "nul\x00"} {
		_, err := tree.Begin(dir, name)
		if f := (*wire.Failure)(nil); !errors.As(err, &f) || f.Kind != "invalid" {
			t.Errorf("%q: %v", name, err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "folder"), 0o755); err != nil {
		t.Fatal(err)
	}
	if a, err = tree.Begin(dir, "folder"); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Finish(0o644); err == nil {
		t.Error("a folder was replaced by a file")
	}
	if list, _ := filepath.Glob(filepath.Join(dir, ".agentenv-*")); len(list) > 0 {
		t.Errorf("left %v", list)
	}
}
