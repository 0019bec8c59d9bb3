package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"agentenv/fault"
	"agentenv/store"
	"agentenv/store/doc"
	"agentenv/store/document"
	"agentenv/store/document/sqlite"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// raw opens the file beside the store, as another program would.
func raw(t *testing.T, path string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	must(t, err)
	t.Cleanup(func() { db.Close() })
	return db
}

func TestReadsCreateNothing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	s := open(t, filepath.Join(dir, "documents.db"))
	ctx := t.Context()
	must(t, s.EnsureIndex(ctx, "tasks", document.Index{Fields: []string{"id", "version"}, Unique: true}))
	if d, err := s.FindOne(ctx, "tasks", nil); d != nil || err != nil {
		t.Error(d, err)
	}
	if n, err := s.Delete(ctx, "tasks", nil); n != 0 || err != nil {
		t.Error(n, err)
	}
	must(t, s.Close())
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Error("something was made:", err)
	}
}

func TestFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "document_store", "documents.db")
	s := open(t, path)
	ctx := t.Context()
	v := document.Versioned{Store: s, Collection: "artifacts", Indexes: []document.Index{{Fields: []string{"type"}}, {Fields: []string{"a.b", "c"}}}}
	_, err := v.Put(ctx, doc.Of("id", "demo", "type", "x", "s", "é\U0001F600"))
	must(t, err)
	rows, err := raw(t, path).Query("SELECT sql FROM sqlite_master ORDER BY name")
	must(t, err)
	defer rows.Close()
	var got []string
	for rows.Next() {
		var text string
		must(t, rows.Scan(&text))
		got = append(got, text)
	}
	want := []string{
		`CREATE TABLE "docs_artifacts" (doc TEXT NOT NULL)`,
		`CREATE INDEX "docs_artifacts_a_b_c_index" ON "docs_artifacts" (json_extract(doc, '$.a.b'), json_extract(doc, '$.c'))`,
		`CREATE UNIQUE INDEX "docs_artifacts_id_version_unique" ON "docs_artifacts" (json_extract(doc, '$.id'), json_extract(doc, '$.version'))`,
		`CREATE INDEX "docs_artifacts_type_index" ON "docs_artifacts" (json_extract(doc, '$.type'))`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("schema\n got %s\nwant %s", strings.Join(got, "\n     "), strings.Join(want, "\n     "))
	}
	var text, journal string
	must(t, raw(t, path).QueryRow("SELECT doc FROM docs_artifacts").Scan(&text))
	must(t, raw(t, path).QueryRow("PRAGMA journal_mode").Scan(&journal))
	if text != `{"id": "demo", "type": "x", "s": "\u00e9\ud83d\ude00", "version": 1}` || journal != "wal" {
		t.Error(text, journal)
	}
	for _, f := range []string{path, path + "-wal", path + "-shm"} {
		if info, err := os.Stat(f); err != nil || info.Mode().Perm() != 0o600 {
			t.Error(f, info, err)
		}
	}
	if dir, err := os.Stat(filepath.Dir(path)); err != nil || dir.Mode().Perm() != 0o700 {
		t.Error(dir, err)
	}
}

func TestCloseFoldsTheLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "d", "documents.db")
	s := open(t, path)
	must(t, s.Insert(t.Context(), "c", doc.Of("id", "a")))
	_, err := s.FindOne(t.Context(), "c", nil)
	must(t, err)
	must(t, s.Close())
	if _, err := os.Stat(path + "-wal"); !errors.Is(err, os.ErrNotExist) {
		t.Error("the log stays:", err)
	}
	if _, err := s.FindOne(t.Context(), "c", nil); fault.KindOf(err) != fault.Unavailable {
		t.Error(err)
	}
	if err := s.Insert(t.Context(), "c", doc.Of("id", "b")); fault.KindOf(err) != fault.Unavailable {
		t.Error(err)
	}
}

func TestOthersChangesAreSeen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "d", "documents.db")
	a, b := open(t, path), open(t, path)
	ctx := t.Context()
	must(t, a.Insert(ctx, "one", doc.Of("id", "x")))
	if n, err := b.Count(ctx, "two", nil); n != 0 || err != nil {
		t.Fatal(n, err)
	}
	must(t, a.Insert(ctx, "two", doc.Of("id", "y")))
	if n, err := b.Count(ctx, "two", document.By("id", "y")); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	must(t, a.EnsureIndex(ctx, "two", document.Index{Fields: []string{"id"}, Unique: true}))
	if err := b.Insert(ctx, "two", doc.Of("id", "y")); fault.KindOf(err) != fault.Exists {
		t.Error(err)
	}
	if n, err := b.Count(ctx, "two", document.By("id", "y")); n != 1 || err != nil {
		t.Error(n, err)
	}
}

func TestOddContents(t *testing.T) {
	path := filepath.Join(t.TempDir(), "d", "documents.db")
	s := open(t, path)
	ctx := t.Context()
	must(t, s.Insert(ctx, "c", doc.Of("id", "a")))
	db := raw(t, path)
	for _, text := range []string{`{"id": "nan", "x": NaN, "y": -Infinity}`, `{"id": "twice", "id": "last"}`, `{"id":"raw é"}`} {
		_, err := db.Exec("INSERT INTO docs_c VALUES (?)", text)
		must(t, err)
	}
	ds, err := s.Query(ctx, "c", document.Query{})
	if err != nil || len(ds) != 4 || ds[1].Value("x") != doc.Number("NaN") || ds[2].Str("id") != "last" || ds[3].Str("id") != "raw é" {
		t.Error(ds, err)
	}
	_, err = db.Exec("INSERT INTO docs_c VALUES ('no json')")
	must(t, err)
	if _, err := s.Query(ctx, "c", document.Query{}); fault.KindOf(err) != fault.Invalid || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "row 5") {
		t.Error(err)
	}
}

func TestBadNames(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "d", "documents.db"))
	for _, coll := range []string{"a-b", "", "é", `x" (y); --`} {
		if err := s.Insert(t.Context(), coll, doc.Of("id", "a")); fault.KindOf(err) != fault.Invalid {
			t.Errorf("%q: %v", coll, err)
		}
	}
	for _, f := range []string{"a-b", "", "a'b", "é"} {
		if err := s.EnsureIndex(t.Context(), "c", document.Index{Fields: []string{f}}); fault.KindOf(err) != fault.Invalid {
			t.Errorf("%q: %v", f, err)
		}
	}
}

func TestDamagedFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "local.db")
	must(t, os.WriteFile(path, []byte(strings.Repeat("no database at all ", 100)), 0o600))
	s := open(t, path)
	for _, err := range []error{
		s.Insert(t.Context(), "c", doc.Of("id", "a")),
		func() error { _, err := s.FindOne(t.Context(), "c", nil); return err }(),
	} {
		if fault.ClassOf(err) != "ConfigError" || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "aside") {
			t.Error(err)
		}
	}
}

func TestLockHeldTooLong(t *testing.T) {
	path := filepath.Join(t.TempDir(), "d", "documents.db")
	s, err := sqlite.New(sqlite.Options{Path: path, Wait: 100 * time.Millisecond})
	must(t, err)
	defer s.Close()
	must(t, s.Insert(t.Context(), "c", doc.Of("id", "a")))
	conn, err := raw(t, path).Conn(t.Context())
	must(t, err)
	defer conn.Close()
	_, err = conn.ExecContext(t.Context(), "BEGIN IMMEDIATE")
	must(t, err)
	err = s.Insert(t.Context(), "c", doc.Of("id", "b"))
	if fault.KindOf(err) != fault.Unavailable || !strings.Contains(err.Error(), "locked") || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "100ms") {
		t.Error(err)
	}
	if n, err := s.Count(t.Context(), "c", nil); n != 1 || err != nil {
		t.Error("reads do not wait for writers:", n, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Insert(ctx, "c", doc.Of("id", "c")); fault.KindOf(err) != fault.Canceled {
		t.Error(err)
	}
	_, err = conn.ExecContext(t.Context(), "ROLLBACK")
	must(t, err)
	must(t, s.Insert(t.Context(), "c", doc.Of("id", "b")))
}

func TestCallsShareCommitsAndFailAlone(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "d", "documents.db"))
	ctx := t.Context()
	must(t, s.EnsureIndex(ctx, "c", document.Index{Fields: []string{"id"}, Unique: true}))
	must(t, s.Insert(ctx, "c", doc.Of("id", "taken")))
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			id := fmt.Sprint(i)
			if i%5 == 0 {
				id = "taken"
			}
			if err := s.Insert(ctx, "c", doc.Of("id", id)); (err != nil) != (i%5 == 0) || err != nil && !fault.Is(err, fault.Exists) {
				t.Error(i, err)
			}
		})
	}
	wg.Wait()
	if n, err := s.Count(ctx, "c", nil); n != 161 || err != nil {
		t.Error(n, err)
	}
}

// TestProcesses is run again by itself, as the other processes.
func TestProcesses(t *testing.T) {
	if path := os.Getenv("AGENTENV_SQLITE_CHILD"); path != "" {
		s := open(t, path)
		for i := range 50 {
			must(t, s.Insert(t.Context(), "c", doc.Of("by", fmt.Sprint(os.Getpid(), "-", i))))
		}
		for range 25 {
			_, err := document.CompareAndSwap(t.Context(), s, "counters", document.By("id", "n"), "rev", func(*doc.Object) (*document.Update, error) {
				return &document.Update{Inc: doc.Of("n", doc.Int(1))}, nil
			})
			must(t, err)
		}
		return
	}
	path := filepath.Join(t.TempDir(), "d", "documents.db")
	var cmds []*exec.Cmd
	var outs []*strings.Builder
	s := open(t, path)
	for range 4 {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestProcesses$")
		cmd.Env = append(os.Environ(), "AGENTENV_SQLITE_CHILD="+path)
		out := &strings.Builder{}
		cmd.Stdout, cmd.Stderr = out, out
		cmds, outs = append(cmds, cmd), append(outs, out)
	}
	for _, cmd := range cmds {
		must(t, cmd.Start())
	}
	must(t, s.Insert(t.Context(), "counters", doc.Of("id", "n", "n", doc.Int(0))))
	for i, cmd := range cmds {
		if err := cmd.Wait(); err != nil {
			t.Error(err, outs[i])
		}
	}
	if n, err := s.Count(t.Context(), "c", nil); n != 200 || err != nil {
		t.Error(n, err)
	}
}

func TestRouting(t *testing.T) {
	r, dir := router(t)
	ctx := t.Context()
	local := store.WithRunScope(ctx, "@local/~/run")
	v := document.Versioned{Store: r, Collection: "tasks"}
	exists := func(name string) bool { _, err := os.Stat(filepath.Join(dir, name)); return err == nil }

	if d, err := r.FindOne(ctx, "tasks", document.By("id", "@local/x")); d != nil || err != nil {
		t.Fatal(d, err)
	}
	if exists("local.db") || exists("documents.db") {
		t.Error("a read made a file")
	}
	_, err := v.Put(ctx, doc.Of("id", "bare", "n", doc.Int(1)))
	must(t, err)
	if exists("local.db") {
		t.Error("a bare entity made local.db")
	}
	_, err = v.Put(ctx, doc.Of("id", "@local/~/own", "n", doc.Int(2)))
	must(t, err)
	ds, err := r.Query(ctx, "tasks", document.Query{Sort: []document.Sort{{Path: "n", Desc: true}}, Limit: 1})
	if err != nil || ds[0].Str("id") != "@local/~/own" {
		t.Error(ds, err)
	}
	for _, id := range []string{"@acme/x", "local/x", "x-@local/y", "@local/a:b"} {
		if _, err := v.Put(ctx, doc.Of("id", id)); fault.KindOf(err) != fault.Invalid {
			t.Errorf("%q: %v", id, err)
		}
	}
	for name, d := range map[string]*doc.Object{
		"steps[1].env_id": doc.Of("id", "bare2", "steps", []any{"x", doc.Of("env_id", "@local/x")}),
		"m.@local/k":      doc.Of("id", "bare2", "m", doc.Of("@local/k", "v")),
	} {
		if _, err := v.Put(ctx, d); fault.KindOf(err) != fault.Invalid || !strings.Contains(err.Error(), name) {
			t.Errorf("outward reference %s: %v", name, err)
		}
	}
	_, err = v.Put(ctx, doc.Of("id", "bare2", "text", "see @local/x for more"))
	must(t, err)

	if _, err := v.Put(local, doc.Of("id", "bare")); fault.KindOf(err) != fault.Denied {
		t.Error("a local run wrote a configured entity:", err)
	}
	must(t, r.Insert(ctx, "runs", doc.Of("run_id", "shared", "at", "2026-01-02T03:04:05+00:00")))
	must(t, r.Insert(local, "runs", doc.Of("run_id", "mine", "at", "2026-01-02T05:04:06+02:00")))
	must(t, r.Insert(ctx, "runs", doc.Of("run_id", "owned", "task_id", "@local/~/t", "at", "2026-01-01T00:00:00Z")))
	ds, err = r.Query(ctx, "runs", document.Query{Sort: []document.Sort{{Path: "at"}}})
	must(t, err)
	order := ""
	for _, d := range ds {
		order += d.Str("run_id") + " "
	}
	if order != "owned shared mine " {
		t.Error("times compare as instants:", order)
	}
	set := document.Update{Set: doc.Of("x", "y")}
	if n, err := r.Update(local, "runs", document.By("run_id", "shared"), set, false); n != 0 || fault.KindOf(err) != fault.Denied {
		t.Error("a local run changed a configured record:", n, err)
	}
	if n, err := r.Update(local, "runs", document.By("run_id", "nowhere"), set, false); n != 0 || err != nil {
		t.Error(n, err)
	}
	if n, err := r.Update(ctx, "runs", document.By("run_id", "mine"), set, false); n != 1 || err != nil {
		t.Error(n, err)
	}
	if n, err := r.Count(local, "runs", nil); n != 3 || err != nil {
		t.Error(n, err)
	}
	err = r.Transact(ctx, func(tx document.Store) error {
		must(t, tx.Insert(ctx, "tasks", doc.Of("id", "tx", "version", doc.Int(1))))
		return tx.Insert(ctx, "tasks", doc.Of("id", "@local/tx", "version", doc.Int(1)))
	})
	if fault.KindOf(err) != fault.Unsupported {
		t.Error(err)
	}
	if d, err := r.FindOne(ctx, "tasks", document.By("id", "tx")); d != nil || err != nil {
		t.Error("a failed transaction left", d, err)
	}
	p := document.Placed(ctx, r, "@local/~/t")
	must(t, p.Transact(ctx, func(tx document.Store) error { return tx.Insert(ctx, "runs", doc.Of("run_id", "placed")) }))
	conf := open(t, filepath.Join(dir, "documents.db"))
	if n, err := conf.Count(ctx, "runs", nil); n != 1 || err != nil {
		t.Error("configured runs:", n, err)
	}
}

func BenchmarkInsert(b *testing.B) {
	s := open(b, filepath.Join(b.TempDir(), "d", "documents.db"))
	for b.Loop() {
		must(b, s.Insert(b.Context(), "c", doc.Of("id", "x", "text", strings.Repeat("y", 2000))))
	}
}

func BenchmarkInsertParallel(b *testing.B) {
	s := open(b, filepath.Join(b.TempDir(), "d", "documents.db"))
	b.SetParallelism(16)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			must(b, s.Insert(context.Background(), "c", doc.Of("id", "x")))
		}
	})
}

func BenchmarkLatestPage(b *testing.B) {
	s := open(b, filepath.Join(b.TempDir(), "d", "documents.db"))
	ctx := b.Context()
	must(b, s.EnsureIndex(ctx, "tasks", document.Index{Fields: []string{"id", "version"}, Unique: true}))
	must(b, s.Transact(ctx, func(tx document.Store) error {
		for i := range 2000 {
			if err := tx.Insert(ctx, "tasks", doc.Of("id", fmt.Sprint("t", i), "version", doc.Int(1), "text", strings.Repeat("y", 1000))); err != nil {
				return err
			}
		}
		return nil
	}))
	for b.Loop() {
		page, total, err := s.LatestPerID(ctx, "tasks", document.LatestQuery{Query: document.Query{Sort: []document.Sort{{Path: "id"}}, Limit: 20}})
		if err != nil || total != 2000 || len(page) != 20 {
			b.Fatal(len(page), total, err)
		}
	}
}
