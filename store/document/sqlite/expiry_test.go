package sqlite_test

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"agentenv/store/doc"
	"agentenv/store/document"
	"agentenv/store/document/sqlite"
)

func TestExpiredRowsAreDeleted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "d", "documents.db")
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	now := start
	at := func() *sqlite.Store {
		s, err := sqlite.New(sqlite.Options{Path: path, Now: func() time.Time { return now }})
		must(t, err)
		t.Cleanup(func() { s.Close() })
		return s
	}
	goes := document.Index{Fields: []string{"until"}, Expires: true, TTL: 60}
	rows := func() (out string) {
		db := raw(t, path)
		defer db.Close()
		must(t, db.QueryRow(`SELECT coalesce(group_concat(json_extract(doc, '$.id'), ''), '') FROM docs_reviews`).Scan(&out))
		return out
	}
	ctx := t.Context()
	s := at()
	must(t, s.EnsureIndex(ctx, "reviews", goes))
	// Two hours hence, whatever the offset it is written in.
	for id, offset := range map[string]int{"a": 0, "b": 14, "c": -12} {
		until := start.Add(2 * time.Hour).In(time.FixedZone("", offset*3600)).Format("2006-01-02T15:04:05.999999-07:00")
		must(t, s.Insert(ctx, "reviews", doc.Of("id", id, "until", until, "text", strings.Repeat("x", 100<<10))))
	}
	must(t, s.Insert(ctx, "reviews", doc.Of("id", "k")))
	for _, c := range []struct {
		after time.Duration
		reads int
	}{{0, 4}, {2 * time.Hour, 4}, {2*time.Hour + 59*time.Second, 4}, {2*time.Hour + time.Minute, 1}} {
		now = start.Add(c.after)
		if n, err := s.Count(ctx, "reviews", nil); n != c.reads || err != nil {
			t.Errorf("after %s there are %d documents, want %d: %v", c.after, n, c.reads, err)
		}
	}
	if n, err := s.Update(ctx, "reviews", document.By("id", "a"), document.Update{Set: doc.Of("decided", true)}, false); n != 0 || err != nil {
		t.Error("a large document was found after its time:", n, err)
	}
	if got := rows(); len(got) != 4 {
		t.Errorf("reads and updates that find nothing write nothing; the rows are %q", got)
	}
	must(t, s.Close())

	s = at()
	if n, err := s.Count(ctx, "reviews", nil); n != 4 || err != nil {
		t.Error("where nobody says that documents expire, they are there:", n, err)
	}
	must(t, s.EnsureIndex(ctx, "reviews", goes))
	if got := rows(); got != "k" {
		t.Errorf("after the index was declared the rows are %q", got)
	}
	must(t, s.Insert(ctx, "reviews", doc.Of("id", "n", "until", now.Add(-time.Hour).Format(time.RFC3339))))
	must(t, s.Insert(ctx, "reviews", doc.Of("id", "o")))
	if got := rows(); got != "ko" {
		t.Errorf("after an insert the rows are %q", got)
	}
}

// A document whose time comes while it is written is not lost by the write that prolongs it.
func TestProlonged(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	asked := 0
	s, err := sqlite.New(sqlite.Options{Path: filepath.Join(t.TempDir(), "d", "documents.db"), Now: func() time.Time {
		asked++
		return start.Add(time.Duration(asked) * time.Minute)
	}})
	must(t, err)
	defer s.Close()
	ctx := t.Context()
	must(t, s.EnsureIndex(ctx, "reviews", document.Index{Fields: []string{"until"}, Expires: true}))
	must(t, s.Insert(ctx, "reviews", doc.Of("id", "a", "until", start.Add(time.Duration(asked+3)*time.Minute).Format(time.RFC3339))))
	later := doc.Of("until", start.Add(24*time.Hour).Format(time.RFC3339))
	if n, err := s.Update(ctx, "reviews", document.By("id", "a"), document.Update{Set: later}, false); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	if n, err := s.Count(ctx, "reviews", nil); n != 1 || err != nil {
		t.Error(n, err)
	}
}
