package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"path/filepath"
	"time"

	driver "modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"

	"agentenv/fault"
	"agentenv/store"
)

// maxStatements bounds the prepared statements a connection keeps.
const maxStatements = 200

// session is one connection with what it knows about the schema. It implements document.Store for Transact: its methods
// act inside whatever transaction is open. It is used by one goroutine at a time.
type session struct {
	s      *Store
	conn   *sql.Conn
	stmts  map[string]*sql.Stmt
	schema schema
}

func (s *Store) writeSession(ctx context.Context) (*session, error) {
	s.mu.Lock()
	w := s.writer
	s.mu.Unlock()
	if w != nil {
		return w, nil
	}
	if err := store.MakeDir(filepath.Dir(s.path)); err != nil {
		return nil, err
	}
	if err := store.MakeFile(s.path); err != nil {
		return nil, fault.Wrap(fault.KindOf(err), err, "cannot write the document store %s", s.path).WithClass("ConfigError")
	}
	w, err := s.connect(ctx, false)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.writer = w
	s.mu.Unlock()
	return w, nil
}

func (s *Store) dropWriter() {
	s.mu.Lock()
	w := s.writer
	s.writer = nil
	s.mu.Unlock()
	if w != nil {
		w.close()
	}
}

func (s *Store) connect(ctx context.Context, reading bool) (*session, error) {
	s.mu.Lock()
	if s.db == nil {
		u := url.URL{Scheme: "file", Path: s.path}
		db, err := sql.Open("sqlite", u.String())
		if err != nil {
			s.mu.Unlock()
			return nil, s.explain(err)
		}
		db.SetMaxIdleConns(0)
		s.db = db
	}
	db := s.db
	s.mu.Unlock()
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, s.explain(err)
	}
	c := &session{s: s, conn: conn, stmts: map[string]*sql.Stmt{}}
	if err := c.setUp(ctx, reading); err != nil {
		c.close()
		return nil, s.explain(err)
	}
	return c, nil
}

func (c *session) setUp(ctx context.Context, reading bool) error {
	if reading {
		if _, err := c.conn.ExecContext(ctx, "PRAGMA busy_timeout=5000; PRAGMA query_only=1"); err != nil {
			return err
		}
		return nil
	}
	// Processes that open a new file together can find it busy while one of them switches it to WAL.
	deadline := time.Now().Add(c.s.wait)
	for {
		_, err := c.conn.ExecContext(ctx, "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL")
		if err == nil {
			return nil
		}
		if !isBusy(err) {
			return err
		}
		if time.Now().After(deadline) {
			return c.s.locked(err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (c *session) close() error {
	for _, st := range c.stmts {
		st.Close()
	}
	return c.conn.Close()
}

func (c *session) stmt(ctx context.Context, query string) (*sql.Stmt, error) {
	if st := c.stmts[query]; st != nil {
		return st, nil
	}
	if len(c.stmts) >= maxStatements {
		for _, st := range c.stmts {
			st.Close()
		}
		clear(c.stmts)
	}
	st, err := c.conn.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	c.stmts[query] = st
	return st, nil
}

func (c *session) exec(ctx context.Context, query string, args ...any) error {
	st, err := c.stmt(ctx, query)
	if err == nil {
		_, err = st.ExecContext(ctx, args...)
	}
	return err
}

// scan calls row for each row of a query until it returns false.
func (c *session) scan(ctx context.Context, query string, args []any, row func(*sql.Rows) (bool, error)) error {
	st, err := c.stmt(ctx, query)
	if err != nil {
		return err
	}
	rows, err := st.QueryContext(ctx, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if more, err := row(rows); err != nil || !more {
			return err
		}
	}
	return rows.Err()
}

func code(err error) int {
	var e *driver.Error
	if errors.As(err, &e) {
		return e.Code()
	}
	return 0
}

func isBusy(err error) bool {
	c := code(err) & 0xff
	return c == lib.SQLITE_BUSY || c == lib.SQLITE_LOCKED
}

func (s *Store) locked(err error) error {
	return fault.Wrap(fault.Unavailable, err, "database locked: another process held the write lock of %s for %s; end it or try again", s.path, s.wait)
}

// explain gives an error of SQLite a kind and names the file.
func (s *Store) explain(err error) error {
	var known *fault.Error
	if err == nil || errors.As(err, &known) {
		return err
	}
	switch c := code(err); c & 0xff {
	case lib.SQLITE_BUSY, lib.SQLITE_LOCKED:
		return s.locked(err)
	case lib.SQLITE_NOTADB, lib.SQLITE_CORRUPT:
		return fault.Wrap(fault.Invalid, err, "%s is no intact SQLite database; move it aside to start with an empty one", s.path).WithClass("ConfigError")
	case lib.SQLITE_READONLY, lib.SQLITE_PERM, lib.SQLITE_CANTOPEN:
		return fault.Wrap(fault.Denied, err, "cannot open or write the document store %s; check its permissions", s.path).WithClass("ConfigError")
	case lib.SQLITE_IOERR:
		return fault.Wrap(fault.Unavailable, err, "the document store %s cannot be read or written; look whether its file system turned read-only or its disk fails", s.path)
	case lib.SQLITE_FULL:
		return fault.Wrap(fault.Unavailable, err, "the disk of the document store %s is full", s.path)
	case lib.SQLITE_CONSTRAINT:
		if c == lib.SQLITE_CONSTRAINT_UNIQUE {
			return fault.Wrap(fault.Exists, err, "document store %s: duplicate key", s.path)
		}
	}
	switch k := fault.KindOf(err); k {
	case fault.Internal:
		return err
	default:
		return fault.Wrap(k, err, "document store %s", s.path)
	}
}
