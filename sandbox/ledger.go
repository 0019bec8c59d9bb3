package sandbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"modernc.org/sqlite"
	sqlitelib "modernc.org/sqlite/lib"

	"agentenv/fault"
	"agentenv/store"
)

// Row is one line of the ledger: a sandbox that was, or was about to be, created.
type Row struct {
	ID, Type, Name string
	Mode           Mode
	Owner          Owner
	State          State
	CreatedAt      time.Time
	ExpiresAt      time.Time // zero = unknown
	WorkDir        string
	Process        Process // the process that made it
}

// Record returns what a run records of the row's sandbox.
func (r Row) Record() Record { return Record{Name: r.Name, ID: r.ID, Type: r.Type, Mode: r.Mode} }

// State is how far a sandbox's life has come, as the ledger knows it.
type State string

// The states of a ledger row. Creating is written before anything is asked of the backend, Ending when a sandbox is
// pruned or could not be ended whole.
const (
	Creating State = "creating"
	Live     State = "live"
	Ending   State = "ending"
	Gone     State = "gone"
)

// Ledger is the file sandboxes.db: what was created outside this process, for which run, by which process. It is opened at
// the first use; several processes share it. Safe for concurrent use.
type Ledger struct {
	path  string
	mu    sync.Mutex
	db    *sql.DB
	stmts map[string]*sql.Stmt
}

// OpenLedger returns the ledger kept at path; nothing is created before the first row is written.
func OpenLedger(path string) *Ledger { return &Ledger{path: path} }

const ledgerSchema = `CREATE TABLE IF NOT EXISTS sandboxes (
 id TEXT PRIMARY KEY, type TEXT NOT NULL, name TEXT NOT NULL, mode TEXT NOT NULL,
 instance TEXT NOT NULL, task TEXT NOT NULL, step TEXT NOT NULL, state TEXT NOT NULL,
 created_at INTEGER NOT NULL, expires_at INTEGER NOT NULL, work_dir TEXT NOT NULL,
 host TEXT NOT NULL, boot TEXT NOT NULL, pid INTEGER NOT NULL, pid_start TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS sandboxes_instance ON sandboxes (instance);
CREATE INDEX IF NOT EXISTS sandboxes_state ON sandboxes (state);`

// open returns the database, nil without an error when it does not exist and create is false.
func (l *Ledger) open(create bool) (*sql.DB, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.db != nil {
		return l.db, nil
	}
	if !create {
		if _, err := os.Stat(l.path); errors.Is(err, os.ErrNotExist) {
			return nil, nil
		}
	}
	if err := os.MkdirAll(filepath.Dir(l.path), 0o700); err != nil {
		return nil, l.failed("make its folder for", err)
	}
	if err := store.MakeFile(l.path); err != nil {
		return nil, l.failed("make", err)
	}
	db, err := l.connect("journal_mode(WAL)")
	var refused *sqlite.Error
	if errors.As(err, &refused) && refused.Code()&0xff == sqlitelib.SQLITE_IOERR {
		// A full disk has no room for the file by which processes share the ledger; one that has it to itself needs none, and
		// may be about to free the disk.
		if alone, aloneErr := l.connect("locking_mode(EXCLUSIVE)"); aloneErr == nil {
			db, err = alone, nil
		}
	}
	if err != nil {
		return nil, l.failed("set up", err)
	}
	l.db, l.stmts = db, map[string]*sql.Stmt{}
	return db, nil
}

// connect opens the file in a mode and sees to its tables.
func (l *Ledger) connect(mode string) (*sql.DB, error) {
	dsn := "file:" + (&url.URL{Path: l.path}).EscapedPath() + "?_pragma=busy_timeout(10000)&_pragma=" + mode + "&_pragma=synchronous(FULL)&_txlock=immediate"
	db, err := sql.Open("sqlite", dsn)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	if _, err := db.ExecContext(context.Background(), ledgerSchema); err != nil {
		db.Close()
		return nil, err
	}
	return db, nil
}

// prepare returns the statement of q, nil without an error when there is no ledger yet and create is false.
func (l *Ledger) prepare(ctx context.Context, q string, create bool) (*sql.Stmt, error) {
	db, err := l.open(create)
	if err != nil || db == nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if st := l.stmts[q]; st != nil {
		return st, nil
	}
	st, err := db.PrepareContext(ctx, q)
	if err != nil {
		return nil, l.failed("read", err)
	}
	l.stmts[q] = st
	return st, nil
}

func (l *Ledger) failed(what string, err error) error {
	if reason := err.Error(); strings.Contains(reason, "not a database") || strings.Contains(reason, "malformed") {
		return fault.Wrap(fault.Invalid, err, "cannot %s the sandbox ledger %s: the file is damaged; move it and the -wal and -shm files beside it away, and the next run makes a new one", what, l.path)
	}
	return fault.Wrap(fault.Unavailable, err, "cannot %s the sandbox ledger %s (is the disk full, the folder writable, the file locked by another process?)", what, l.path)
}

// Add writes the row of a sandbox about to be created; a second row of one id is an Exists error.
func (l *Ledger) Add(ctx context.Context, r Row) error {
	st, err := l.prepare(ctx, `INSERT OR IGNORE INTO sandboxes VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)`, true)
	if err != nil {
		return err
	}
	res, err := st.ExecContext(ctx, r.ID, r.Type, r.Name, string(r.Mode), r.Owner.Instance, r.Owner.Task, r.Owner.Step, string(r.State),
		stamp(r.CreatedAt), stamp(r.ExpiresAt), r.WorkDir, r.Process.Host, r.Process.Boot, r.Process.PID, r.Process.Start)
	if err != nil {
		return l.failed("write to", err)
	}
	if n, _ := res.RowsAffected(); n == 0 {
		return fault.New(fault.Exists, "the sandbox ledger %s already has a row for %q", l.path, r.ID)
	}
	return nil
}

// Created completes the row written under oldID: the sandbox lives, under its final id.
func (l *Ledger) Created(ctx context.Context, oldID string, info Info) error {
	return l.exec(ctx, `UPDATE sandboxes SET id=?, state=?, work_dir=?, expires_at=CASE WHEN ?>0 THEN ? ELSE expires_at END WHERE id=?`,
		info.ID, string(Live), info.WorkDir, stamp(info.ExpiresAt), stamp(info.ExpiresAt), oldID)
}

// Mark sets a row's state; an id without a row (a sandbox of the reference's) is a no-op, and so is a ledger that is not there.
func (l *Ledger) Mark(ctx context.Context, id string, s State) error {
	return l.exec(ctx, `UPDATE sandboxes SET state=? WHERE id=?`, string(s), id)
}

// Forget drops the row of what is gone, so that its id can be used again. An id without such a row is a no-op.
func (l *Ledger) Forget(ctx context.Context, id string) error {
	return l.exec(ctx, `DELETE FROM sandboxes WHERE id=? AND state=?`, id, string(Gone))
}

// Adopt makes a process the owner of every sandbox of a run that nobody is ending.
func (l *Ledger) Adopt(ctx context.Context, instance string, p Process) error {
	return l.exec(ctx, `UPDATE sandboxes SET host=?, boot=?, pid=?, pid_start=? WHERE instance=? AND state IN (?,?)`,
		p.Host, p.Boot, p.PID, p.Start, instance, string(Creating), string(Live))
}

// Release leaves a sandbox to itself: no process owns it, so it lives until its time is over. An id without a row is a no-op.
func (l *Ledger) Release(ctx context.Context, id string) error {
	return l.exec(ctx, `UPDATE sandboxes SET host='', boot='', pid=0, pid_start='' WHERE id=? AND state=?`, id, string(Live))
}

// Claim makes a process the one that ends a sandbox, if its row still stands as it was read: false when another process took the
// sandbox over, or ended it, since.
func (l *Ledger) Claim(ctx context.Context, r Row, p Process) (bool, error) {
	st, err := l.prepare(ctx, `UPDATE sandboxes SET state=?, host=?, boot=?, pid=?, pid_start=? WHERE id=? AND state=? AND host=? AND boot=? AND pid=? AND pid_start=?`, false)
	if err != nil || st == nil {
		return false, err
	}
	was := r.Process
	res, err := st.ExecContext(ctx, string(Ending), p.Host, p.Boot, p.PID, p.Start, r.ID, string(r.State), was.Host, was.Boot, was.PID, was.Start)
	if err != nil {
		return false, l.failed("write to", err)
	}
	n, err := res.RowsAffected()
	return n > 0, err
}

func (l *Ledger) exec(ctx context.Context, q string, args ...any) error {
	st, err := l.prepare(ctx, q, false)
	if err != nil || st == nil {
		return err
	}
	if _, err := st.ExecContext(ctx, args...); err != nil {
		return l.failed("write to", err)
	}
	return nil
}

// Get returns the row of an id, nil when there is none.
func (l *Ledger) Get(ctx context.Context, id string) (*Row, error) {
	rows, err := l.query(ctx, `WHERE id=?`, id)
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	return &rows[0], nil
}

// Alive returns the rows whose sandbox is not known to be gone, oldest first; instance "" means of every run.
func (l *Ledger) Alive(ctx context.Context, instance string) ([]Row, error) {
	if instance == "" {
		return l.query(ctx, `WHERE state<>? ORDER BY created_at, id`, string(Gone))
	}
	return l.query(ctx, `WHERE state<>? AND instance=? ORDER BY created_at, id`, string(Gone), instance)
}

func (l *Ledger) query(ctx context.Context, where string, args ...any) ([]Row, error) {
	st, err := l.prepare(ctx, `SELECT id,type,name,mode,instance,task,step,state,created_at,expires_at,work_dir,host,boot,pid,pid_start FROM sandboxes `+where, false)
	if err != nil || st == nil {
		return nil, err
	}
	rows, err := st.QueryContext(ctx, args...)
	if err != nil {
		return nil, l.failed("read", err)
	}
	defer rows.Close()
	var out []Row
	for rows.Next() {
		var r Row
		var created, expires int64
		if err := rows.Scan(&r.ID, &r.Type, &r.Name, &r.Mode, &r.Owner.Instance, &r.Owner.Task, &r.Owner.Step, &r.State,
			&created, &expires, &r.WorkDir, &r.Process.Host, &r.Process.Boot, &r.Process.PID, &r.Process.Start); err != nil {
			return nil, l.failed("read", err)
		}
		r.CreatedAt, r.ExpiresAt = unstamp(created), unstamp(expires)
		out = append(out, r)
	}
	if err := rows.Err(); err != nil {
		return nil, l.failed("read", err)
	}
	return out, nil
}

// Close ends the ledger's connection; a second call is a no-op.
func (l *Ledger) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.db == nil {
		return nil
	}
	db := l.db
	l.db = nil
	return db.Close()
}

func stamp(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

func unstamp(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

// Process identifies a process across restarts of the machine and reuse of its number.
type Process struct {
	Host, Boot string
	PID        int
	Start      string // when it started, in the system's own words; "" where that cannot be read
}

// ThisProcess returns the identity of the running process.
func ThisProcess() Process {
	host, _ := os.Hostname()
	pid := os.Getpid()
	return Process{Host: host, Boot: bootID(), PID: pid, Start: processStart(pid)}
}

// Alive reports whether the process still runs; the zero one, which stands for nobody, always does. One of another host is taken as running, since nothing here can tell.
func (p Process) Alive() bool {
	if p == (Process{}) {
		return true // a sandbox that was left to itself
	}
	host, _ := os.Hostname()
	switch {
	case p.Host != host:
		return true
	case p.Boot != "" && p.Boot != bootID():
		return false
	case !processExists(p.PID):
		return false
	}
	start := processStart(p.PID)
	return start == "" || p.Start == "" || start == p.Start
}

// String names the process for people.
func (p Process) String() string {
	if p == (Process{}) {
		return "nobody"
	}
	host, _ := os.Hostname()
	if p.Host == host {
		return fmt.Sprintf("process %d", p.PID)
	}
	return fmt.Sprintf("process %d on %s", p.PID, p.Host)
}
