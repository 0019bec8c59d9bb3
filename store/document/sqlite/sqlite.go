// Package sqlite is the document store in one SQLite file, in the exact table, index and text form that the reference
// shares: both programs may have the file open at once.
//
// Writes of one process go through one connection and share commits: calls that arrive while a commit runs are committed
// together by the next one, each in a savepoint of its own. Every commit is synced (synchronous=FULL). Reads use
// connections of their own and never wait for writers.
package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	_ "modernc.org/sqlite" // the driver

	"agentenv/fault"
	"agentenv/store"
	"agentenv/store/doc"
	"agentenv/store/document"
)

// Options of a store.
type Options struct {
	Path     string                // the database file
	Log      *slog.Logger          // nil: nothing is logged
	Wait     time.Duration         // how long a write waits for another process's lock; 0 = 5 s
	CheckID  func(id string) error // what ids the store takes; nil = store.CheckUnencodedID
	MaxReads int                   // read connections at most; 0 = 4
	Now      func() time.Time      // what expiring documents are measured by; nil = time.Now
}

// Store is an SQLite document store. It implements document.Store.
type Store struct {
	path    string
	log     *slog.Logger
	wait    time.Duration
	checkID func(string) error
	now     func() time.Time

	commits commitQueue
	readers chan struct{} // one token for each read in flight
	unused  chan struct{} // closed by Close

	mu     sync.Mutex
	db     *sql.DB // nil before the first use
	writer *session
	free   []*session // idle read connections
	reads  sync.WaitGroup
	closed bool
	wanted map[string][]document.Index // declared before their table was there
	goes   map[string]expiry           // by table
}

var _ document.Store = (*Store)(nil)

// New returns the store of a database file. Nothing is opened or created before the first use, and a read of a file that
// is not there creates nothing. The error is Invalid: no path.
func New(o Options) (*Store, error) {
	if o.Path == "" {
		return nil, fault.New(fault.Invalid, "the SQLite document store needs a path")
	}
	path, err := filepath.Abs(o.Path)
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "the SQLite path %s", o.Path)
	}
	s := &Store{
		path: path, log: o.Log, wait: o.Wait, checkID: o.CheckID, now: o.Now,
		readers: make(chan struct{}, max(o.MaxReads, 0)+4*boolInt(o.MaxReads <= 0)),
		unused:  make(chan struct{}),
		wanted:  map[string][]document.Index{},
		goes:    map[string]expiry{},
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.wait == 0 {
		s.wait = 5 * time.Second
	}
	if s.now == nil {
		s.now = time.Now
	}
	if s.checkID == nil {
		s.checkID = store.CheckUnencodedID
	}
	return s, nil
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Path returns the database file's absolute path.
func (s *Store) Path() string { return s.path }

// CheckID refuses ids the store cannot take.
func (s *Store) CheckID(id string) error { return s.checkID(id) }

// Close ends the store after the calls that are running. The last process to close the file folds its log into it.
func (s *Store) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	s.mu.Unlock()
	s.reads.Wait()
	s.commits.drain()
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, r := range s.free {
		errs = append(errs, r.close())
	}
	if s.writer != nil {
		errs = append(errs, s.writer.close())
	}
	if s.db != nil {
		errs = append(errs, s.db.Close())
	}
	s.free, s.writer, s.db = nil, nil, nil
	return errors.Join(errs...)
}

// exists reports whether the file is there, so that reads need not create it.
func (s *Store) exists() (bool, error) {
	_, err := os.Stat(s.path)
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	}
	return false, fault.Wrap(fault.KindOf(err), err, "document store %s", s.path)
}

// read runs fn on a read connection. Without a file it does nothing: fn's results keep their zero values.
func (s *Store) read(ctx context.Context, fn func(*session) error) error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return errClosed(s.path)
	}
	s.reads.Add(1)
	s.mu.Unlock()
	defer s.reads.Done()

	if there, err := s.exists(); err != nil || !there {
		return err
	}
	select {
	case s.readers <- struct{}{}:
	case <-ctx.Done():
		return fault.Wrap(fault.KindOf(ctx.Err()), context.Cause(ctx), "document store %s", s.path)
	}
	defer func() { <-s.readers }()

	s.mu.Lock()
	var r *session
	if n := len(s.free); n > 0 {
		r, s.free = s.free[n-1], s.free[:n-1]
	}
	s.mu.Unlock()
	if r == nil {
		var err error
		if r, err = s.connect(ctx, true); err != nil {
			return err
		}
	}
	err := fn(r)
	if err != nil && ctx.Err() != nil {
		r.close()
		return fault.Wrap(fault.KindOf(ctx.Err()), context.Cause(ctx), "document store %s", s.path)
	}
	s.mu.Lock()
	s.free = append(s.free, r)
	s.mu.Unlock()
	return s.explain(err)
}

func errClosed(path string) error {
	return fault.New(fault.Unavailable, "document store %s is closed", path)
}

// FindOne returns the first match.
func (s *Store) FindOne(ctx context.Context, coll string, f document.Filter, sort ...document.Sort) (d *doc.Object, err error) {
	err = s.read(ctx, func(r *session) error {
		d, err = r.FindOne(ctx, coll, f, sort...)
		return err
	})
	return d, err
}

// Query returns the matches.
func (s *Store) Query(ctx context.Context, coll string, q document.Query) (ds []*doc.Object, err error) {
	err = s.read(ctx, func(r *session) error {
		ds, err = r.Query(ctx, coll, q)
		return err
	})
	return ds, err
}

// Count counts the matches.
func (s *Store) Count(ctx context.Context, coll string, f document.Filter) (n int, err error) {
	err = s.read(ctx, func(r *session) error {
		n, err = r.Count(ctx, coll, f)
		return err
	})
	return n, err
}

// FindManyByID returns the first document of each id.
func (s *Store) FindManyByID(ctx context.Context, coll, idField string, ids []string) (ds []*doc.Object, err error) {
	err = s.read(ctx, func(r *session) error {
		ds, err = r.FindManyByID(ctx, coll, idField, ids)
		return err
	})
	return ds, err
}

// LatestVersion returns the highest version of an id.
func (s *Store) LatestVersion(ctx context.Context, coll, id string) (v int64, err error) {
	err = s.read(ctx, func(r *session) error {
		v, err = r.LatestVersion(ctx, coll, id)
		return err
	})
	return v, err
}

// LatestPerID returns the newest version of each id.
func (s *Store) LatestPerID(ctx context.Context, coll string, q document.LatestQuery) (page []*doc.Object, total int, err error) {
	err = s.read(ctx, func(r *session) error {
		page, total, err = r.LatestPerID(ctx, coll, q)
		return err
	})
	return page, total, err
}

// CountDistinct counts distinct values.
func (s *Store) CountDistinct(ctx context.Context, coll string, f document.Filter, idField string) (n int, err error) {
	err = s.read(ctx, func(r *session) error {
		n, err = r.CountDistinct(ctx, coll, f, idField)
		return err
	})
	return n, err
}

// Insert stores a new document.
func (s *Store) Insert(ctx context.Context, coll string, d *doc.Object) error {
	return s.write(ctx, func(w *session) error { return w.Insert(ctx, coll, d) })
}

// Update changes the first match.
func (s *Store) Update(ctx context.Context, coll string, f document.Filter, u document.Update, upsert bool) (n int, err error) {
	err = s.write(ctx, func(w *session) error {
		n, err = w.Update(ctx, coll, f, u, upsert)
		return err
	})
	return n, err
}

// UpdateAndGet changes the first match and returns it.
func (s *Store) UpdateAndGet(ctx context.Context, coll string, f document.Filter, u document.Update, upsert, before bool) (d *doc.Object, err error) {
	err = s.write(ctx, func(w *session) error {
		d, err = w.UpdateAndGet(ctx, coll, f, u, upsert, before)
		return err
	})
	return d, err
}

// Replace puts d in place of the first match.
func (s *Store) Replace(ctx context.Context, coll string, f document.Filter, d *doc.Object, upsert bool) (n int, err error) {
	err = s.write(ctx, func(w *session) error {
		n, err = w.Replace(ctx, coll, f, d, upsert)
		return err
	})
	return n, err
}

// Delete removes the first match. A file that is not there is not made for it.
func (s *Store) Delete(ctx context.Context, coll string, f document.Filter) (n int, err error) {
	if there, err := s.exists(); err != nil || !there {
		return 0, err
	}
	err = s.write(ctx, func(w *session) error {
		n, err = w.Delete(ctx, coll, f)
		return err
	})
	return n, err
}

// EnsureIndex declares an index. While the file or the collection is not there it is only remembered, and made by the
// first write to the collection, so that commands that only look create nothing. What has expired by the first declaration of an
// index with Expires is deleted then, later by inserts and updates in the collection.
func (s *Store) EnsureIndex(ctx context.Context, coll string, ix document.Index) error {
	name, err := indexName(coll, ix)
	if err != nil {
		return err
	}
	if s.expire(coll, ix) {
		defer s.sweep(ctx, coll)
	}
	missing := true
	if err := s.read(ctx, func(r *session) error {
		t, err := r.table(ctx, coll)
		missing = t == nil
		if err != nil || t == nil || t.has(name) {
			return err
		}
		return errMissingIndex
	}); err == nil && !missing {
		return nil
	} else if err != nil && !errors.Is(err, errMissingIndex) {
		return err
	}
	if missing {
		s.mu.Lock()
		s.wanted[coll] = append(s.wanted[coll], ix)
		s.mu.Unlock()
		return nil
	}
	return s.write(ctx, func(w *session) error { return w.EnsureIndex(ctx, coll, ix) })
}

var errMissingIndex = errors.New("the index is missing")

// Transact runs fn on a view whose writes are committed together.
func (s *Store) Transact(ctx context.Context, fn func(document.Store) error) error {
	return s.write(ctx, func(w *session) error { return fn(w) })
}
