package main

import (
	"context"
	"database/sql"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	_ "modernc.org/sqlite" // one commit is the limit of a step
)

func (b *bench) noop(ctx context.Context) ([]row, error) {
	const n = 300
	steps := noopSteps(n)
	long, err := b.bundle("noop300", map[string]any{"t": steps})
	if err != nil {
		return nil, err
	}
	short, err := b.bundle("noop1", map[string]any{"t": steps[:1]})
	if err != nil {
		return nil, err
	}
	ours, ref, err := b.both(ctx, 3, 1, b.home, "run", long)
	if err != nil {
		return nil, err
	}
	ours1, ref1, err := b.both(ctx, 3, 1, b.home, "run", short)
	if err != nil {
		return nil, err
	}
	each := func(many, one usage) measure {
		if many.wall == 0 || one.wall == 0 {
			return measure{}
		}
		return seconds((many.wall - one.wall) / (n - 1))
	}
	commit, err := b.commit(ctx)
	if err != nil {
		return nil, err
	}
	many, err := b.commits(ctx, long)
	if err != nil {
		return nil, err
	}
	one, err := b.commits(ctx, short)
	return []row{
		{work: "a no-op step, journaled", ours: each(ours, ours1), ref: each(ref, ref1), limit: commit, what: "(one commit)", target: "at most 4 commits, under 2 ms"},
		{work: "a no-op step, commits", ours: measure{value: float64(many-one) / (n - 1), unit: "commits"}, target: "at most 4"},
	}, err
}

// commit is what one durable SQLite commit takes here.
func (b *bench) commit(ctx context.Context) (measure, error) {
	db, err := sql.Open("sqlite", "file:"+filepath.Join(b.dir, "commit.db")+"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)")
	if err != nil {
		return measure{}, err
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	if _, err := db.ExecContext(ctx, "CREATE TABLE t (doc TEXT)"); err != nil {
		return measure{}, err
	}
	text := strings.Repeat("x", 600)
	const n = 300
	start := time.Now()
	for range n {
		if _, err := db.ExecContext(ctx, "INSERT INTO t VALUES (?)", text); err != nil {
			return measure{}, err
		}
	}
	return seconds(time.Since(start).Seconds() / n), nil
}

// commits counts the durable commits of one run of a bundle, in the database's own log.
func (b *bench) commits(ctx context.Context, dir string) (int, error) {
	env := b.home()
	if _, err := command(ctx, env, b.program, "run", dir); err != nil {
		return 0, err
	}
	file := filepath.Join(b.dir, fmt.Sprint("home", b.state), "state", "agent-env", "document_store", "local.db")
	db, err := sql.Open("sqlite", "file:"+file)
	if err != nil {
		return 0, err
	}
	defer db.Close()
	// While somebody reads what was there before the run, the log is neither begun anew nor removed.
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return 0, err
	}
	defer func() { _ = tx.Rollback() }()
	var n int
	if err := tx.QueryRowContext(ctx, "SELECT count(*) FROM sqlite_schema").Scan(&n); err != nil {
		return 0, err
	}
	if _, err := command(ctx, env, b.program, "run", dir); err != nil {
		return 0, err
	}
	wal, err := os.ReadFile(file + "-wal")
	if err != nil {
		return 0, err
	}
	return commitFrames(wal), nil
}

// commitFrames counts the frames that end a transaction in a SQLite write-ahead log: those that say how large the database then is.
func commitFrames(wal []byte) int {
	const header, frameHeader = 32, 24
	if len(wal) < header {
		return 0
	}
	frame := frameHeader + int(binary.BigEndian.Uint32(wal[8:]))
	n := 0
	for at := header; at+frame <= len(wal); at += frame {
		if binary.BigEndian.Uint32(wal[at+4:]) != 0 {
			n++
		}
	}
	return n
}
