package sqlite

import (
	"context"
	"database/sql"
	"regexp"
	"strings"
	"unicode/utf8"

	"agentenv/store/doc"
	"agentenv/store/document"
)

// Filters are evaluated on decoded documents. SQL only narrows what is decoded, so its conditions may let too much through
// but never too little. A stored array counts as holding its elements; json_extract gives an array as text that starts
// with '[', so the rows whose indexed field is such a text are always candidates as well.

// maxIn bounds the values of an In predicate that are worth handing to SQL.
const maxIn = 1000

// pin is what a filter says about one indexed field.
type pin struct {
	sql  string
	args []any
	one  bool // a single value
}

var plainField = regexp.MustCompile(`^[A-Za-z0-9_]+$`)

// sqlValue converts values whose SQL equality is exactly that of documents.
func sqlValue(v any) (any, bool) {
	switch v := v.(type) {
	case string:
		return v, utf8.ValidString(v) && !strings.ContainsRune(v, 0)
	case doc.Number:
		i, ok := v.Int64()
		return i, ok && i > -1<<53 && i < 1<<53
	}
	return nil, false
}

func pinOf(p document.Pred) (pin, bool) {
	switch p.Op {
	case document.Eq:
		v, ok := sqlValue(p.Value)
		return pin{sql: extract(p.Path) + " = ?", args: []any{v}, one: true}, ok
	case document.In:
		list := p.Value.([]any)
		if len(list) == 0 || len(list) > maxIn {
			return pin{}, false
		}
		args := make([]any, len(list))
		for i, el := range list {
			v, ok := sqlValue(el)
			if !ok {
				return pin{}, false
			}
			args[i] = v
		}
		return pin{sql: extract(p.Path) + " IN (?" + strings.Repeat(",?", len(list)-1) + ")", args: args, one: len(list) == 1}, true
	}
	return pin{}, false
}

func pins(f document.Filter) map[string]pin {
	out := map[string]pin{}
	for _, p := range f {
		if !plainField.MatchString(p.Path) {
			continue
		}
		if _, dup := out[p.Path]; dup {
			continue
		}
		if x, ok := pinOf(p); ok {
			out[p.Path] = x
		}
	}
	return out
}

// ranges returns the conditions a filter's Gte and Lte put on a field.
func ranges(f document.Filter, field string) (conds []string, args []any) {
	for _, p := range f {
		if p.Path != field || p.Op != document.Gte && p.Op != document.Lte {
			continue
		}
		if v, ok := sqlValue(p.Value); ok {
			op := " >= ?"
			if p.Op == document.Lte {
				op = " <= ?"
			}
			conds, args = append(conds, extract(field)+op), append(args, v)
		}
	}
	return conds, args
}

func arrayText(field string) string {
	return extract(field) + ` >= '[' AND ` + extract(field) + ` < '\'`
}

// best returns the index with the longest pinned prefix and that prefix's length; a unique one wins a tie.
func (t *table) best(pinned map[string]pin) (*index, int) {
	var best *index
	length := 0
	for i := range t.indexes {
		ix := &t.indexes[i]
		n := 0
		for n < len(ix.fields) {
			if _, ok := pinned[ix.fields[n]]; !ok {
				break
			}
			n++
		}
		if n > length || n == length && n > 0 && ix.unique && !best.unique {
			best, length = ix, n
		}
	}
	return best, length
}

// narrow returns a WHERE clause (or "") that every match of f passes, made of what an index can answer.
func (t *table) narrow(f document.Filter) (string, []any) {
	pinned := pins(f)
	ix, n := t.best(pinned)
	if ix == nil {
		return t.narrowByRange(f)
	}
	var conds, selects []string
	var args, all []any
	for _, field := range ix.fields[:n] {
		selects = append(selects, `SELECT rowid FROM "`+t.name+`" WHERE `+strings.Join(append(conds[:len(conds):len(conds)], arrayText(field)), " AND "))
		all = append(all, args...)
		p := pinned[field]
		conds, args = append(conds, p.sql), append(args, p.args...)
	}
	if n < len(ix.fields) && plainField.MatchString(ix.fields[n]) {
		// An array never orders against a string or a number, so ranges need no second look.
		rc, ra := ranges(f, ix.fields[n])
		conds, args = append(conds, rc...), append(args, ra...)
	}
	selects = append(selects, `SELECT rowid FROM "`+t.name+`" WHERE `+strings.Join(conds, " AND "))
	all = append(all, args...)
	return " WHERE rowid IN (" + strings.Join(selects, " UNION ALL ") + ")", all
}

func (t *table) narrowByRange(f document.Filter) (string, []any) {
	for _, ix := range t.indexes {
		if len(ix.fields) == 0 || !plainField.MatchString(ix.fields[0]) {
			continue
		}
		if conds, args := ranges(f, ix.fields[0]); len(conds) > 0 {
			return ` WHERE rowid IN (SELECT rowid FROM "` + t.name + `" WHERE ` + strings.Join(conds, " AND ") + ")", args
		}
	}
	return "", nil
}

// orderedQuery answers a sorted and limited query by walking an index in its order, decoding only as many documents as it
// needs. done is false when no index fits, or the stored values are of kinds that SQL would order otherwise.
func (c *session) orderedQuery(ctx context.Context, coll string, q document.Query) (out []*doc.Object, done bool, err error) {
	if err := q.Filter.Check(); err != nil {
		return nil, true, err
	}
	t, err := c.table(ctx, coll)
	if err != nil || t == nil {
		return nil, true, err
	}
	by := q.Sort[0]
	if !plainField.MatchString(by.Path) {
		return nil, false, nil
	}
	pinned := pins(q.Filter)
	for _, ix := range t.indexes {
		conds, args, ok := ix.prefix(pinned, by.Path)
		if !ok {
			continue
		}
		if same, err := c.alike(ctx, t, conds, args, by.Path, ix.fields); err != nil || !same {
			return nil, false, err
		}
		where := ""
		if len(conds) > 0 {
			where = " WHERE " + strings.Join(conds, " AND ")
		}
		dir := ""
		if by.Desc {
			dir = " DESC"
		}
		query := `SELECT rowid, doc FROM "` + t.name + `"` + where + " ORDER BY " + extract(by.Path) + dir + ", rowid"
		need := q.Limit + max(q.Offset, 0)
		err := c.eachRow(ctx, t, query, args, q.Filter, parse, func(r stored) bool {
			// Rows equal in the first field may be ordered by the others, so the last group is read to its end.
			if len(out) >= need && (len(q.Sort) == 1 || document.Compare(r.doc.Value(by.Path), out[len(out)-1].Value(by.Path)) != 0) {
				return false
			}
			out = append(out, r.doc)
			return true
		})
		if err != nil {
			return nil, true, err
		}
		document.SortDocs(out, q.Sort)
		return document.Window(out, q.Limit, q.Offset), true, nil
	}
	return nil, false, nil
}

// prefix returns the conditions that pin every field of the index before the one to sort by, to one value each.
func (ix *index) prefix(pinned map[string]pin, sortField string) (conds []string, args []any, ok bool) {
	for _, f := range ix.fields {
		if f == sortField {
			return conds, args, true
		}
		p, there := pinned[f]
		if !there || !p.one {
			return nil, nil, false
		}
		conds, args = append(conds, p.sql), append(args, p.args...)
	}
	return nil, nil, false
}

// alike reports whether the sort field holds only texts, or only integers, beside nulls, and no pinned field an array.
func (c *session) alike(ctx context.Context, t *table, conds []string, args []any, field string, fields []string) (bool, error) {
	x := extract(field)
	one := func(conds []string, args []any, what, tail string) (v sql.NullString, err error) {
		q := `SELECT ` + what + ` FROM "` + t.name + `"`
		if len(conds) > 0 {
			q += " WHERE " + strings.Join(conds, " AND ")
		}
		err = c.scan(ctx, q+tail+" LIMIT 1", args, func(r *sql.Rows) (bool, error) { return false, r.Scan(&v) })
		return v, err
	}
	for i := range conds {
		if v, err := one(append(conds[:i:i], arrayText(fields[i])), args[:i], "1", ""); err != nil || v.Valid {
			return false, err
		}
	}
	with := func(cond string) []string { return append(conds[:len(conds):len(conds)], cond) }
	low, err := one(with(x+" IS NOT NULL"), args, "typeof("+x+")", " ORDER BY "+x)
	if err != nil {
		return false, err
	}
	high, err := one(with(x+" IS NOT NULL"), args, "typeof("+x+")", " ORDER BY "+x+" DESC")
	if err != nil {
		return false, err
	}
	switch {
	case !low.Valid:
		return true, nil
	case low.String != high.String || low.String != "text" && low.String != "integer":
		return false, nil
	case low.String == "integer":
		// Integers beyond 64 bits read as reals, which sort between the others: none may be there.
		v, err := one(with("typeof("+x+") = 'real'"), args, "1", "")
		return !v.Valid, err
	}
	for _, open := range []string{arrayText(field), x + ` >= '{' AND ` + x + ` < '|'`} {
		if v, err := one(with(open), args, "1", ""); err != nil || v.Valid {
			return false, err
		}
	}
	return true, nil
}
