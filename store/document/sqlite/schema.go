package sqlite

import (
	"context"
	"database/sql"
	"regexp"
	"strings"

	"agentenv/fault"
	"agentenv/store/document"
)

// schema is what a connection knows about the file's tables, good while SQLite's schema_version stays the same.
type schema struct {
	version int64
	known   bool
	tables  map[string]*table
}

type table struct {
	name    string
	indexes []index
}

type index struct {
	name   string
	fields []string
	unique bool
}

func (t *table) has(index string) bool {
	for _, ix := range t.indexes {
		if ix.name == index {
			return true
		}
	}
	return false
}

var (
	collName  = regexp.MustCompile(`^[A-Za-z0-9_]+$`)
	fieldName = regexp.MustCompile(`^[A-Za-z0-9_.]+$`)
	indexed   = regexp.MustCompile(`json_extract\(doc, '\$\.([A-Za-z0-9_.]+)'\)`)
)

// tableName refuses names that the stored form would fold into another's table, such as a-b and a_b.
func tableName(coll string) (string, error) {
	if !collName.MatchString(coll) {
		return "", fault.New(fault.Invalid, "collection name %q: only A-Z, a-z, 0-9 and _ are possible in an SQLite store", coll)
	}
	return "docs_" + coll, nil
}

func indexName(coll string, ix document.Index) (string, error) {
	t, err := tableName(coll)
	if err != nil {
		return "", err
	}
	if len(ix.Fields) == 0 {
		return "", fault.New(fault.Invalid, "an index of %s needs a field", coll)
	}
	for _, f := range ix.Fields {
		if !fieldName.MatchString(f) {
			return "", fault.New(fault.Invalid, "index field %q of %s: only A-Z, a-z, 0-9, _ and . are possible", f, coll)
		}
	}
	if ix.Expires && (ix.Unique || len(ix.Fields) != 1) {
		return "", fault.New(fault.Invalid, "an index of %s by which documents expire must be of one field and not unique", coll)
	}
	name := t + "_" + strings.ReplaceAll(strings.Join(ix.Fields, "_"), ".", "_")
	if ix.Unique {
		return name + "_unique", nil
	}
	return name + "_index", nil
}

func indexSQL(name, table string, ix document.Index) string {
	exprs := make([]string, len(ix.Fields))
	for i, f := range ix.Fields {
		exprs[i] = extract(f)
	}
	kind := "CREATE INDEX"
	if ix.Unique {
		kind = "CREATE UNIQUE INDEX"
	}
	return kind + ` IF NOT EXISTS "` + name + `" ON "` + table + `" (` + strings.Join(exprs, ", ") + `)`
}

// extract is the exact expression of stored indexes, which SQLite matches by text.
func extract(field string) string { return "json_extract(doc, '$." + field + "')" }

func (c *session) forget() { c.schema.known = false }

// table returns what is known of a collection's table, nil when it is not there.
func (c *session) table(ctx context.Context, coll string) (*table, error) {
	name, err := tableName(coll)
	if err != nil {
		return nil, err
	}
	var v int64
	if err := c.scan(ctx, "PRAGMA schema_version", nil, func(r *sql.Rows) (bool, error) { return false, r.Scan(&v) }); err != nil {
		return nil, err
	}
	if !c.schema.known || c.schema.version != v {
		if err := c.loadSchema(ctx, v); err != nil {
			return nil, err
		}
	}
	return c.schema.tables[name], nil
}

func (c *session) loadSchema(ctx context.Context, version int64) error {
	tables := map[string]*table{}
	var loose []index
	var on []string
	err := c.scan(ctx, "SELECT type, name, tbl_name, coalesce(sql, '') FROM sqlite_master WHERE type IN ('table', 'index') AND tbl_name LIKE 'docs\\_%' ESCAPE '\\'", nil, func(r *sql.Rows) (bool, error) {
		var kind, name, tbl, text string
		if err := r.Scan(&kind, &name, &tbl, &text); err != nil {
			return false, err
		}
		if kind == "table" {
			tables[name] = &table{name: name}
			return true, nil
		}
		ix := index{name: name, unique: strings.HasPrefix(text, "CREATE UNIQUE")}
		for _, m := range indexed.FindAllStringSubmatch(text, -1) {
			ix.fields = append(ix.fields, m[1])
		}
		loose, on = append(loose, ix), append(on, tbl)
		return true, nil
	})
	if err != nil {
		return err
	}
	for i, ix := range loose {
		if t := tables[on[i]]; t != nil {
			t.indexes = append(t.indexes, ix)
		}
	}
	c.schema = schema{version: version, known: true, tables: tables}
	return nil
}

// ensureTable makes the collection's table and the indexes that wait for it.
func (c *session) ensureTable(ctx context.Context, coll string) (*table, error) {
	t, err := c.table(ctx, coll)
	if err != nil {
		return nil, err
	}
	c.s.mu.Lock()
	wanted := c.s.wanted[coll]
	c.s.mu.Unlock()
	if t != nil && len(wanted) == 0 {
		return t, nil
	}
	name, err := tableName(coll)
	if err != nil {
		return nil, err
	}
	if t == nil {
		if err := c.exec(ctx, `CREATE TABLE IF NOT EXISTS "`+name+`" (doc TEXT NOT NULL)`); err != nil {
			return nil, err
		}
		t = &table{name: name}
	}
	made := 0
	for _, ix := range wanted {
		in, err := indexName(coll, ix)
		if err != nil {
			return nil, err
		}
		if t.has(in) {
			continue
		}
		if err := c.exec(ctx, indexSQL(in, name, ix)); err != nil {
			return nil, err
		}
		made++
	}
	if made == 0 && len(wanted) > 0 {
		// All of them are committed, so they need not be looked for again.
		c.s.mu.Lock()
		if len(c.s.wanted[coll]) == len(wanted) {
			delete(c.s.wanted, coll)
		}
		c.s.mu.Unlock()
	}
	return c.table(ctx, coll)
}
