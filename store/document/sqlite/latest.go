package sqlite

import (
	"context"
	"database/sql"
	"slices"
	"strconv"
	"strings"

	"agentenv/store/doc"
	"agentenv/store/document"
)

func (c *session) LatestVersion(ctx context.Context, coll, id string) (int64, error) {
	t, err := c.table(ctx, coll)
	if err != nil || t == nil {
		return 0, err
	}
	if v, ok := sqlValue(id); ok && c.s.expiry(t.name) == nil && slices.ContainsFunc(t.indexes, func(ix index) bool {
		return ix.unique && slices.Equal(ix.fields, []string{"id", "version"})
	}) {
		// A text sorts above every number, so an integer on top is the highest version.
		q := "SELECT typeof(" + extract("version") + "), " + extract("version") + ` FROM "` + t.name + `" WHERE ` + extract("id") + " = ? ORDER BY " + extract("version") + " DESC LIMIT 1"
		var kind string
		var val any
		err := c.scan(ctx, q, []any{v}, func(r *sql.Rows) (bool, error) { return false, r.Scan(&kind, &val) })
		if err != nil {
			return 0, err
		}
		if n, ok := val.(int64); ok && kind == "integer" {
			return n, nil
		}
	}
	var highest int64
	err = c.each(ctx, coll, document.By("id", id), func(r stored) bool {
		v, ok := r.doc.Int("version")
		if s, isText := r.doc.Value("version").(string); isText {
			n, err := strconv.ParseInt(s, 10, 64)
			v, ok = n, err == nil
		}
		if ok {
			highest = max(highest, v)
		}
		return true
	})
	return highest, err
}

func (c *session) LatestPerID(ctx context.Context, coll string, q document.LatestQuery) ([]*doc.Object, int, error) {
	if len(q.Filter) == 0 {
		if page, total, done, err := c.latestByIndex(ctx, coll, q); done || err != nil {
			return page, total, err
		}
	}
	var ds []*doc.Object
	if err := c.each(ctx, coll, q.Filter, func(r stored) bool { ds = append(ds, r.doc); return true }); err != nil {
		return nil, 0, err
	}
	page, total := document.Latest(ds, q)
	return page, total, nil
}

// latestByIndex finds the newest versions in the unique index alone and decodes only those, and only the page when the
// order does not depend on other fields. done is false when no such index is there or a value is of another kind.
func (c *session) latestByIndex(ctx context.Context, coll string, q document.LatestQuery) (page []*doc.Object, total int, done bool, err error) {
	t, err := c.table(ctx, coll)
	if err != nil || t == nil {
		return nil, 0, true, err
	}
	id, version := q.Fields()
	if !slices.ContainsFunc(t.indexes, func(ix index) bool { return ix.unique && slices.Equal(ix.fields, []string{id, version}) }) {
		return nil, 0, false, nil
	}
	type newest struct {
		id      string
		rowid   int64
		version int64
		first   int64 // the row by which the id is ordered when nothing else orders it
	}
	var all []newest
	plain := true
	query := "SELECT rowid, " + extract(id) + ", " + extract(version) + ` FROM "` + t.name + `" ORDER BY ` + extract(id) + ", " + extract(version)
	err = c.scan(ctx, query, nil, func(r *sql.Rows) (bool, error) {
		var rowid int64
		var i, v any
		if err := r.Scan(&rowid, &i, &v); err != nil {
			return false, err
		}
		name, ok1 := i.(string)
		n, ok2 := v.(int64)
		if !ok1 || !ok2 || strings.HasPrefix(name, "[") || strings.HasPrefix(name, "{") {
			plain = false
			return false, nil
		}
		if k := len(all); k > 0 && all[k-1].id == name {
			all[k-1].rowid, all[k-1].version, all[k-1].first = rowid, n, min(all[k-1].first, rowid)
		} else {
			all = append(all, newest{name, rowid, n, rowid})
		}
		return true, nil
	})
	if err != nil || !plain {
		return nil, 0, false, err
	}
	slices.SortFunc(all, func(a, b newest) int { return int(a.first - b.first) })
	total = len(all)
	light := len(q.Sort) == 0
	if len(q.Sort) == 1 && q.Sort[0].Path == id {
		light = true
		slices.SortStableFunc(all, func(a, b newest) int {
			if q.Sort[0].Desc {
				a, b = b, a
			}
			return strings.Compare(a.id, b.id)
		})
	}
	if light {
		all = all[min(max(q.Offset, 0), len(all)):]
		if q.Limit > 0 && q.Limit < len(all) {
			all = all[:q.Limit]
		}
	}
	at := make(map[int64]int, len(all))
	for i, n := range all {
		at[n.rowid] = i
	}
	docs := make([]*doc.Object, len(all))
	for start := 0; start < len(all); start += 500 {
		part := all[start:min(start+500, len(all))]
		args := make([]any, len(part))
		for i, n := range part {
			args[i] = n.rowid
		}
		rows := `SELECT rowid, doc FROM "` + t.name + `" WHERE rowid IN (?` + strings.Repeat(",?", len(part)-1) + ")"
		if err := c.eachRow(ctx, t, rows, args, nil, parse, func(r stored) bool { docs[at[r.rowid]] = r.doc; return true }); err != nil {
			return nil, 0, false, err
		}
	}
	// A row that another process deleted between the two reads leaves a gap; the general path reads once.
	if slices.Contains(docs, nil) {
		return nil, 0, false, nil
	}
	if !light {
		page, _ = document.Latest(docs, q)
		return page, total, true, nil
	}
	return docs, total, true, nil
}
