package sqlite_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"agentenv/store/doc"
	"agentenv/store/document"
	"agentenv/store/document/sqlite"
)

// TestUpdatesOfLargeDocuments holds that an update of a document that is too large to be read whole has the effect that it has
// on a small one, to the byte.
func TestUpdatesOfLargeDocuments(t *testing.T) {
	ctx := t.Context()
	for _, size := range []int{100, 90_000} {
		path := filepath.Join(t.TempDir(), "d", "documents.db")
		s := open(t, path)
		must(t, s.EnsureIndex(ctx, "c", document.Index{Fields: []string{"id"}, Unique: true}))
		context := doc.Of("text", strings.Repeat(`é"\`, size/3), "list", []any{doc.Int(1), nil, doc.Of("k", "}")})
		d := doc.Of("id", "x", "rev", doc.Int(1), "context", context, "status", "running", "deep", doc.Of("n", doc.Int(7)))
		must(t, s.Insert(ctx, "c", doc.Of("id", "other", "rev", doc.Int(1))))
		must(t, s.Insert(ctx, "c", d))
		want := d.Clone().Set("status", "é done").Set("rev", doc.Int(2)).Set("new", []any{})
		u := document.Update{Set: doc.Of("status", "é done", "rev", doc.Int(2), "new", []any{})}
		for _, c := range []struct {
			f document.Filter
			n int
		}{
			{document.By("id", "x", "rev", doc.Int(9)), 0},
			{document.By("id", "x", "deep.n", doc.Int(8)), 0},
			{document.By("id", "x", "rev", doc.Int(1), "deep.n", doc.Int(7)), 1},
			{document.By("id", "x", "rev", doc.Int(1), "status", "running"), 0}, // lost to the one before
		} {
			if got, err := s.Update(ctx, "c", c.f, u, false); got != c.n || err != nil {
				t.Errorf("%d bytes, %v: %d, %v, want %d", size, c.f, got, err, c.n)
			}
		}
		text, err := doc.Marshal(want)
		must(t, err)
		var stored string
		must(t, raw(t, path).QueryRow("SELECT doc FROM docs_c WHERE json_extract(doc, '$.id') = 'x'").Scan(&stored))
		if stored != string(text) {
			t.Errorf("%d bytes: stored %.200s… want %.200s…", size, stored, text)
		}
		if _, err := s.Update(ctx, "c", document.By("id", "x"), document.Update{Set: doc.Of("id", "other")}, false); err == nil || !strings.Contains(err.Error(), "other") {
			t.Errorf("%d bytes: a taken key gives %v", size, err)
		}
		if n, err := s.Update(ctx, "c", document.By("id", "fresh"), document.Update{Set: doc.Of("a", true)}, true); n != 1 || err != nil {
			t.Errorf("an upsert gives %d, %v", n, err)
		}
	}
}

// TestNoWriterStarves lets several processes write as fast as they can: none may wait longer for the lock than a write may
// wait at all, so none fails. It is run again by itself, as the other processes.
func TestNoWriterStarves(t *testing.T) {
	const wait, writes = 3 * time.Second, 150
	if path := os.Getenv("AGENTENV_SQLITE_WRITER"); path != "" {
		s, err := sqlite.New(sqlite.Options{Path: path, Wait: wait})
		must(t, err)
		defer s.Close()
		var worst time.Duration
		for i := range writes {
			at := time.Now()
			must(t, s.Insert(t.Context(), "c", doc.Of("by", doc.Int(os.Getpid()), "i", doc.Int(i), "text", strings.Repeat("x", 2000))))
			worst = max(worst, time.Since(at))
		}
		fmt.Printf("worst wait %v\n", worst)
		return
	}
	path := filepath.Join(t.TempDir(), "d", "documents.db")
	var cmds []*exec.Cmd
	var outs []*strings.Builder
	for range 6 {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestNoWriterStarves$")
		cmd.Env = append(os.Environ(), "AGENTENV_SQLITE_WRITER="+path)
		out := &strings.Builder{}
		cmd.Stdout, cmd.Stderr = out, out
		cmds, outs = append(cmds, cmd), append(outs, out)
		must(t, cmd.Start())
	}
	for i, cmd := range cmds {
		if err := cmd.Wait(); err != nil {
			t.Error(err, outs[i])
		} else if line, _, _ := strings.Cut(outs[i].String(), "\n"); line != "" {
			t.Log(line)
		}
	}
	if n, err := open(t, path).Count(t.Context(), "c", nil); n != 6*writes || err != nil {
		t.Error(n, err)
	}
}
