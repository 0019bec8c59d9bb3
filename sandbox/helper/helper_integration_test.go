//go:build integration

package helper_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// The committed binaries are what the sources build to.
func TestReproducible(t *testing.T) {
	dir := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), "./build.sh", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	committed, err := filepath.Glob("bin/*.gz")
	if err != nil || len(committed) != 2 {
		t.Fatal(committed, err)
	}
	for _, f := range committed {
		want, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join(dir, filepath.Base(f)))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is not what build.sh makes now (%v); run it and commit the result", f, err)
		}
	}
}
