package task

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"agentenv/fault"
	"agentenv/store/document/sqlite"
)

// TestTornLog copies the database of a run in progress as a loss of power would leave it, with its write-ahead log cut off or
// damaged somewhere: the copy opens, the journal is a prefix of what was committed, and the run goes on to the end of an undisturbed one.
func TestTornLog(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "docs.db")
	docs, err := sqlite.New(sqlite.Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	var c tally
	d, text := twentySteps(&c)
	r := newRigOn(t, d, docs)
	task := r.task(text)
	if !dies(r, 18, func(e *Engine) { _, _ = e.Run(context.Background(), task, Options{Instance: "t-torn"}) }) {
		t.Fatal("it did not die")
	}
	base, log := readFile(t, path), readFile(t, path+"-wal")
	if err := docs.Close(); err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(1, 2))
	most := 0
	for i := range 30 {
		torn := append([]byte(nil), log...)
		at := random.IntN(len(log))
		how := "cut off"
		switch {
		case i == 0:
			at, how = len(log), "whole"
		case i%2 == 0:
			torn = torn[:at]
		default:
			how = "damaged"
			torn[at] ^= 0x55
		}
		t.Run(fmt.Sprintf("%s at %d", how, at), func(t *testing.T) {
			copied := filepath.Join(t.TempDir(), "docs.db")
			for name, content := range map[string][]byte{copied: base, copied + "-wal": torn} {
				if err := os.WriteFile(name, content, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			docs, err := sqlite.New(sqlite.Options{Path: copied})
			if err != nil {
				t.Fatal(err)
			}
			defer docs.Close()
			in, err := NewInstances(docs).Get(t.Context(), "t-torn")
			if fault.Is(err, fault.NotFound) {
				return // not even its beginning was there
			}
			if err != nil {
				t.Fatal(err)
			}
			rows, err := NewInstances(docs).Journal(t.Context(), "t-torn")
			if err != nil {
				t.Fatal(err)
			}
			seen := map[int64]bool{}
			var last int64
			for _, row := range rows {
				seen[row.Seq] = true
				last = max(last, row.Seq)
			}
			most = max(most, len(rows))
			if len(in.Completed) == 0 && len(rows) > 1 {
				t.Errorf("%d rows, and none is folded in", len(rows))
			}
			again := newRigOn(t, d, docs)
			unowned(t, docs, "t-torn")
			res, err := again.engine.Resume(t.Context(), task, "t-torn", Options{Keeper: &keeper{}})
			if err != nil || res.Status != "completed" || len(metadata(res).Arr("list")) != 20 {
				t.Fatalf("it went on to %+v, %v", res, err)
			}
			again.sound(res)
			retried := int64(1 + 3) // the undo of a retry takes rows out: the failed step's span
			if last > int64(len(seen))+retried {
				t.Errorf("rows up to %d, but only %d of them", last, len(seen))
			}
		})
	}
	if most < 10 {
		t.Errorf("no copy held more than %d rows: nothing was torn", most)
	}
}

func readFile(t *testing.T, path string) []byte {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return content
}
