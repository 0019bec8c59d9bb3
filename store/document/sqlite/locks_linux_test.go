package sqlite_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"agentenv/store/doc"
)

// A process that closes any descriptor of a database file loses its locks on it, and the last reader of another process then
// deletes the log under it.
func TestASecondStoreOfTheProcessDropsNoLocks(t *testing.T) {
	path := filepath.Join(t.TempDir(), "d", "documents.db")
	for i := range 3 {
		must(t, open(t, path).Insert(t.Context(), "c", doc.Of("id", fmt.Sprint(i))))
		if !locked(t, path) {
			t.Fatalf("after store %d opened, the process holds no lock on the file", i)
		}
	}
}

func locked(t *testing.T, path string) bool {
	info, err := os.Stat(path)
	must(t, err)
	inode := fmt.Sprintf(":%d ", info.Sys().(*syscall.Stat_t).Ino)
	table, err := os.ReadFile("/proc/locks")
	must(t, err)
	for line := range strings.Lines(string(table)) {
		if strings.Contains(line, inode) && strings.Contains(line, fmt.Sprintf(" %d ", os.Getpid())) {
			return true
		}
	}
	return false
}
