package sqlite

import (
	"context"
	"database/sql"
	"time"

	"agentenv/store/doc"
	"agentenv/store/document"
)

// expiry says when the documents of a table go.
type expiry struct {
	field string
	after time.Duration
	now   func() time.Time
}

// expire notes that documents of the collection go by this index. It reports whether that is new.
func (s *Store) expire(coll string, ix document.Index) bool {
	name, err := tableName(coll)
	if err != nil || !ix.Expires {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.goes[name]; known {
		return false
	}
	s.goes[name] = expiry{field: ix.Fields[0], after: time.Duration(ix.TTL) * time.Second, now: s.now}
	return true
}

// expiry returns by what the documents of a table go, nil when they stay.
func (s *Store) expiry(table string) *expiry {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e, ok := s.goes[table]; ok {
		return &e
	}
	return nil
}

// past reports whether a document is gone.
func (e *expiry) past(d *doc.Object) bool {
	if e == nil {
		return false
	}
	values := document.Resolve(d, e.field)
	if len(values) != 1 {
		return false
	}
	text, _ := values[0].(string)
	return e.over(text)
}

func (e *expiry) over(text string) bool {
	at, err := time.Parse(time.RFC3339Nano, text)
	return err == nil && !e.now().Before(at.Add(e.after))
}

// expired returns the rows of a table whose time is over. The index narrows them to those whose text, in whatever offset from UTC,
// can be such a time.
func (c *session) expired(ctx context.Context, table string, e *expiry) (rows []int64, err error) {
	const offsets = 24 * time.Hour
	x := extract(e.field)
	latest := e.now().Add(offsets - e.after).UTC().Format("2006-01-02T15:04:05")
	err = c.scan(ctx, "SELECT rowid, "+x+` FROM "`+table+`" WHERE `+x+" >= '' AND "+x+" < ?", []any{latest}, func(r *sql.Rows) (bool, error) {
		var row int64
		var text string
		if err := r.Scan(&row, &text); err != nil {
			return false, err
		}
		if e.over(text) {
			rows = append(rows, row)
		}
		return true, nil
	})
	return rows, err
}

// sweep deletes what has expired in a table, so that it is in the way of no unique index. The row keep, which is being written and was
// still there a moment ago, stays.
func (c *session) sweep(ctx context.Context, table string, keep int64) error {
	e := c.s.expiry(table)
	if e == nil {
		return nil
	}
	rows, err := c.expired(ctx, table, e)
	for _, row := range rows {
		if err == nil && row != keep {
			err = c.exec(ctx, `DELETE FROM "`+table+`" WHERE rowid = ?`, row)
		}
	}
	return err
}

// sweep deletes what has expired in a collection. It writes only when there is such a document, and a file that cannot be written
// keeps them: no read shows them.
func (s *Store) sweep(ctx context.Context, coll string) {
	var rows []int64
	err := s.read(ctx, func(r *session) error {
		t, err := r.table(ctx, coll)
		if err != nil || t == nil {
			return err
		}
		rows, err = r.expired(ctx, t.name, s.expiry(t.name))
		return err
	})
	if err == nil && len(rows) > 0 {
		err = s.write(ctx, func(w *session) error { return w.sweep(ctx, "docs_"+coll, 0) })
	}
	if err != nil {
		s.log.Warn("expired documents were not deleted", "collection", coll, "error", err.Error())
	}
}
