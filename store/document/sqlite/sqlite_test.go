package sqlite_test

import (
	"path/filepath"
	"testing"

	"agentenv/store"
	"agentenv/store/document"
	"agentenv/store/document/documenttest"
	"agentenv/store/document/sqlite"
)

func open(t testing.TB, path string) *sqlite.Store {
	t.Helper()
	s, err := sqlite.New(sqlite.Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func router(t *testing.T) (*document.Router, string) {
	dir := t.TempDir()
	local, err := sqlite.New(sqlite.Options{Path: filepath.Join(dir, "s", "local.db"), CheckID: store.CheckLocalID})
	if err != nil {
		t.Fatal(err)
	}
	r := document.NewRouter(open(t, filepath.Join(dir, "s", "documents.db")), local)
	t.Cleanup(func() { r.Close() })
	return r, filepath.Join(dir, "s")
}

func TestConformance(t *testing.T) {
	documenttest.Run(t, func(t *testing.T) document.Store { return open(t, filepath.Join(t.TempDir(), "d", "documents.db")) })
}

func TestConformanceRouted(t *testing.T) {
	documenttest.Run(t, func(t *testing.T) document.Store { r, _ := router(t); return r })
}

func TestConformanceLocalRun(t *testing.T) {
	documenttest.RunContext(t, store.WithRunScope(t.Context(), "@local/~/t"), func(t *testing.T) document.Store { r, _ := router(t); return r })
}

func TestConformancePlaced(t *testing.T) {
	documenttest.Run(t, func(t *testing.T) document.Store {
		r, _ := router(t)
		return document.Placed(t.Context(), r, "plain")
	})
}
