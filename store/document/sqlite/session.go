package sqlite

import (
	"context"
	"database/sql"
	"strings"

	"agentenv/fault"
	"agentenv/store/doc"
	"agentenv/store/document"
)

var _ document.Store = (*session)(nil)

type stored struct {
	rowid int64
	doc   *doc.Object
}

// each calls fn for the documents that match f, in the order they were stored, until it returns false.
func (c *session) each(ctx context.Context, coll string, f document.Filter, fn func(stored) bool) error {
	if err := f.Check(); err != nil {
		return err
	}
	t, err := c.table(ctx, coll)
	if err != nil || t == nil {
		return err
	}
	where, args := t.narrow(f)
	return c.eachRow(ctx, t, `SELECT rowid, doc FROM "`+t.name+`"`+where+" ORDER BY rowid", args, f, parse, fn)
}

func parse(text []byte) (*doc.Object, error) { return doc.ParseObject(text, doc.Options{}) }

func (c *session) eachRow(ctx context.Context, t *table, query string, args []any, f document.Filter, parse func([]byte) (*doc.Object, error),
	fn func(stored) bool) error {
	var text sql.RawBytes
	goes := c.s.expiry(t.name)
	return c.scan(ctx, query, args, func(r *sql.Rows) (bool, error) {
		var row stored
		if err := r.Scan(&row.rowid, &text); err != nil {
			return false, err
		}
		var err error
		if row.doc, err = parse(text); err != nil {
			return false, fault.At(err, "%s: row %d of %s", c.s.path, row.rowid, t.name)
		}
		return !f.Match(row.doc) || goes.past(row.doc) || fn(row), nil
	})
}

func (c *session) first(ctx context.Context, coll string, f document.Filter) (found *stored, err error) {
	err = c.each(ctx, coll, f, func(r stored) bool {
		found = &r
		return false
	})
	return found, err
}

func (c *session) FindOne(ctx context.Context, coll string, f document.Filter, sort ...document.Sort) (*doc.Object, error) {
	if len(sort) == 0 {
		r, err := c.first(ctx, coll, f)
		if r == nil || err != nil {
			return nil, err
		}
		return r.doc, nil
	}
	ds, err := c.Query(ctx, coll, document.Query{Filter: f, Sort: sort, Limit: 1})
	if len(ds) == 0 || err != nil {
		return nil, err
	}
	return ds[0], nil
}

func (c *session) Query(ctx context.Context, coll string, q document.Query) (out []*doc.Object, err error) {
	if len(q.Sort) > 0 && q.Limit > 0 {
		if ds, done, err := c.orderedQuery(ctx, coll, q); done || err != nil {
			return ds, err
		}
	}
	enough := 0
	if len(q.Sort) == 0 && q.Limit > 0 {
		enough = q.Limit + max(q.Offset, 0)
	}
	err = c.each(ctx, coll, q.Filter, func(r stored) bool {
		out = append(out, r.doc)
		return len(out) != enough
	})
	if err != nil {
		return nil, err
	}
	document.SortDocs(out, q.Sort)
	return document.Window(out, q.Limit, q.Offset), nil
}

func (c *session) Count(ctx context.Context, coll string, f document.Filter) (n int, err error) {
	t, err := c.table(ctx, coll)
	if err != nil || t == nil {
		return 0, err
	}
	if len(f) == 0 && c.s.expiry(t.name) == nil {
		err = c.scan(ctx, `SELECT count(*) FROM "`+t.name+`"`, nil, func(r *sql.Rows) (bool, error) { return false, r.Scan(&n) })
		return n, err
	}
	err = c.each(ctx, coll, f, func(stored) bool { n++; return true })
	return n, err
}

func (c *session) FindManyByID(ctx context.Context, coll, idField string, ids []string) ([]*doc.Object, error) {
	const batch = 500
	found := map[string]*doc.Object{}
	for at := 0; at < len(ids); at += batch {
		var part []any
		for _, id := range ids[at:min(at+batch, len(ids))] {
			part = append(part, id)
		}
		f := document.Filter{{Path: idField, Op: document.In, Value: part}}
		if err := c.each(ctx, coll, f, func(r stored) bool {
			for _, v := range document.Resolve(r.doc, idField) {
				if id, ok := v.(string); ok && found[id] == nil {
					found[id] = r.doc
				}
			}
			return true
		}); err != nil {
			return nil, err
		}
	}
	var out []*doc.Object
	for _, id := range ids {
		if d := found[id]; d != nil {
			out = append(out, d)
			delete(found, id)
		}
	}
	return out, nil
}

func (c *session) CountDistinct(ctx context.Context, coll string, f document.Filter, idField string) (int, error) {
	var ds []*doc.Object
	if err := c.each(ctx, coll, f, func(r stored) bool { ds = append(ds, r.doc); return true }); err != nil {
		return 0, err
	}
	return document.Distinct(ds, idField), nil
}

// text renders a document for storing; a NaN in it would break every index of its table for readers.
func text(coll string, d *doc.Object) (string, error) {
	b, err := doc.Marshal(d)
	if err != nil {
		return "", fault.At(err, "document of %s", coll)
	}
	return string(b), nil
}

func (c *session) Insert(ctx context.Context, coll string, d *doc.Object) error {
	js, err := text(coll, d)
	if err != nil {
		return err
	}
	t, err := c.ensureTable(ctx, coll)
	if err != nil {
		return err
	}
	if err := c.sweep(ctx, t.name, 0); err != nil {
		return err
	}
	return c.duplicate(coll, d, c.exec(ctx, `INSERT INTO "`+t.name+`" (doc) VALUES (?)`, js))
}

// duplicate says which document collided.
func (c *session) duplicate(coll string, d *doc.Object, err error) error {
	err = c.s.explain(err)
	if !fault.Is(err, fault.Exists) {
		return err
	}
	var keys []string
	for _, k := range []string{"id", "version", "instance_id", "step_id", "run_id", "conversation_id"} {
		if v, ok := d.Get(k); ok {
			b, _ := doc.Compact(v)
			keys = append(keys, k+" "+string(b))
		}
	}
	return fault.Wrap(fault.Exists, err, "%s: a document with the same key is there already (%s)", coll, strings.Join(keys, ", "))
}

func (c *session) store(ctx context.Context, coll string, rowid int64, d *doc.Object) error {
	js, err := text(coll, d)
	if err != nil {
		return err
	}
	name, err := tableName(coll)
	if err != nil {
		return err
	}
	if err := c.sweep(ctx, name, rowid); err != nil {
		return err
	}
	return c.duplicate(coll, d, c.exec(ctx, `UPDATE "`+name+`" SET doc = ? WHERE rowid = ?`, js, rowid))
}

func (c *session) Update(ctx context.Context, coll string, f document.Filter, u document.Update, upsert bool) (int, error) {
	if wholeFields(u) {
		if done, err := c.setFields(ctx, coll, f, u); err != nil || done {
			return boolInt(done), err
		}
		if !upsert {
			return 0, nil
		}
	}
	_, after, err := c.update(ctx, coll, f, u, upsert)
	if err != nil || after == nil {
		return 0, err
	}
	return 1, nil
}

func (c *session) UpdateAndGet(ctx context.Context, coll string, f document.Filter, u document.Update, upsert, before bool) (*doc.Object, error) {
	old, after, err := c.update(ctx, coll, f, u, upsert)
	if before {
		return old, err
	}
	return after, err
}

func (c *session) update(ctx context.Context, coll string, f document.Filter, u document.Update, upsert bool) (before, after *doc.Object, err error) {
	if err := u.Check(); err != nil {
		return nil, nil, err
	}
	r, err := c.first(ctx, coll, f)
	if err != nil {
		return nil, nil, err
	}
	if r != nil {
		if after, err = u.Apply(r.doc); err != nil {
			return nil, nil, err
		}
		if err := c.store(ctx, coll, r.rowid, after); err != nil {
			return nil, nil, err
		}
		return r.doc, after, nil
	}
	if !upsert {
		return nil, nil, nil
	}
	if after, err = f.Synthesize(); err != nil {
		return nil, nil, err
	}
	if after, err = u.Apply(after); err != nil {
		return nil, nil, err
	}
	if err := c.Insert(ctx, coll, after); err != nil {
		return nil, nil, err
	}
	return nil, after, nil
}

func (c *session) Replace(ctx context.Context, coll string, f document.Filter, d *doc.Object, upsert bool) (int, error) {
	r, err := c.first(ctx, coll, f)
	switch {
	case err != nil:
		return 0, err
	case r != nil:
		if err := c.store(ctx, coll, r.rowid, d); err != nil {
			return 0, err
		}
		return 1, nil
	case upsert:
		if err := c.Insert(ctx, coll, d); err != nil {
			return 0, err
		}
		return 1, nil
	}
	return 0, nil
}

func (c *session) Delete(ctx context.Context, coll string, f document.Filter) (int, error) {
	r, err := c.first(ctx, coll, f)
	if r == nil || err != nil {
		return 0, err
	}
	name, err := tableName(coll)
	if err != nil {
		return 0, err
	}
	if err := c.exec(ctx, `DELETE FROM "`+name+`" WHERE rowid = ?`, r.rowid); err != nil {
		return 0, err
	}
	return 1, nil
}

func (c *session) EnsureIndex(ctx context.Context, coll string, ix document.Index) error {
	name, err := indexName(coll, ix)
	if err != nil {
		return err
	}
	c.s.expire(coll, ix)
	t, err := c.ensureTable(ctx, coll)
	if err != nil || t.has(name) {
		return err
	}
	return c.exec(ctx, indexSQL(name, t.name, ix))
}

func (c *session) CheckID(id string) error { return c.s.checkID(id) }

// Transact inside a transaction is a savepoint: fn's writes are undone when it fails.
func (c *session) Transact(ctx context.Context, fn func(document.Store) error) error {
	if err := c.exec(ctx, "SAVEPOINT inner"); err != nil {
		return err
	}
	if err := fn(c); err != nil {
		c.forget()
		if rerr := c.exec(ctx, "ROLLBACK TO inner"); rerr != nil {
			return rerr
		}
		if rerr := c.exec(ctx, "RELEASE inner"); rerr != nil {
			return rerr
		}
		return err
	}
	return c.exec(ctx, "RELEASE inner")
}

// Close is a no-op: the view ends with its transaction.
func (c *session) Close() error { return nil }
