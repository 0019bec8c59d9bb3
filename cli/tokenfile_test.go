package cli

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// TestTokenFiles has the file of a server that was killed under the same name and under another, and that of one that lives.
func TestTokenFiles(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "episodes")
	lives, err := newTokenFile(dir, "3.token", "three")
	if err != nil {
		t.Fatal(err)
	}
	for _, left := range []string{"1.token", "2.token"} {
		if err := os.WriteFile(filepath.Join(dir, left), []byte("left\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	mine, err := newTokenFile(dir, "1.token", "one")
	if err != nil {
		t.Fatal(err)
	}
	has := func(name, want string) {
		t.Helper()
		text, err := os.ReadFile(filepath.Join(dir, name))
		if want == "" && !os.IsNotExist(err) || want != "" && (err != nil || string(text) != want) {
			t.Errorf("%s: %q, %v", name, text, err)
		}
	}
	has("1.token", "one\n")
	has("2.token", "")
	has("3.token", "three\n")
	if info, err := os.Stat(mine.path); err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	next, err := newTokenFile(dir, "3.token", "new")
	if err != nil {
		t.Fatal(err)
	}
	lives.remove()
	has("3.token", "new\n")
	next.remove()
	mine.remove()
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("%v, %v", left, err)
	}
	var all sync.WaitGroup
	for i := range 20 { // which start at the same moment
		all.Go(func() {
			f, err := newTokenFile(dir, string(rune('a'+i))+".token", "x")
			if err != nil {
				t.Error(err)
				return
			}
			f.remove()
		})
	}
	all.Wait()
}
