package document

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"agentenv/store/doc"
)

// Compare is the one total order of document values: null, then arrays and objects, numbers (booleans as 0 and 1), strings.
// Arrays compare element by element, objects by their canonical text.
func Compare(a, b any) int {
	if c := cmp.Compare(rank(a), rank(b)); c != 0 {
		return c
	}
	if x, ok := number(a); ok {
		y, _ := number(b)
		return x.Compare(y)
	}
	switch x := a.(type) {
	case string:
		return strings.Compare(x, b.(string))
	case []any:
		if y, ok := b.([]any); ok {
			for i := range min(len(x), len(y)) {
				if c := Compare(x[i], y[i]); c != 0 {
					return c
				}
			}
			return cmp.Compare(len(x), len(y))
		}
		return -1
	case *doc.Object:
		if _, ok := b.(*doc.Object); ok {
			return strings.Compare(doc.Canonical(a), doc.Canonical(b))
		}
		return 1
	}
	return 0
}

func rank(v any) int {
	switch v.(type) {
	case nil:
		return 0
	case []any, *doc.Object:
		return 1
	case bool, doc.Number:
		return 2
	}
	return 3
}

// nulls says where absent and null values go.
type nulls int

const (
	nullsLow  nulls = iota // first ascending, last descending
	nullsLast              // last in both directions
)

// compareBy is the comparison of two documents by a list of sort fields. Only the first value of a path counts.
func compareBy(sort []Sort, where nulls, values func(a, b any) int) func(a, b *doc.Object) int {
	return func(a, b *doc.Object) int {
		for _, s := range sort {
			x, y := first(a, s.Path), first(b, s.Path)
			if where == nullsLast && (x == nil) != (y == nil) {
				if x == nil {
					return 1
				}
				return -1
			}
			c := values(x, y)
			if s.Desc {
				c = -c
			}
			if c != 0 {
				return c
			}
		}
		return 0
	}
}

func first(d *doc.Object, path string) any {
	if vs := Resolve(d, path); len(vs) > 0 {
		return vs[0]
	}
	return nil
}

// SortDocs orders docs in place, stably: absent and null values come first ascending and last descending.
func SortDocs(docs []*doc.Object, sort []Sort) {
	if len(sort) > 0 {
		slices.SortStableFunc(docs, compareBy(sort, nullsLow, Compare))
	}
}

// Window cuts docs by offset and limit (0 = all).
func Window(docs []*doc.Object, limit, offset int) []*doc.Object {
	docs = docs[min(max(offset, 0), len(docs)):]
	if limit > 0 && limit < len(docs) {
		docs = docs[:limit]
	}
	return docs
}

// Fields returns the id and version field with the defaults filled in.
func (q LatestQuery) Fields() (id, version string) {
	id, version = q.IDField, q.VersionField
	if id == "" {
		id = "id"
	}
	if version == "" {
		version = "version"
	}
	return id, version
}

// Latest reduces docs, all of which match q's filter, to the newest version of each id, ordered and cut as q asks. total
// counts the ids before the cut. Documents without the id field are left out; a version that is no number ranks lowest; of
// equal versions the first stays. Absent sort values come last in both directions.
func Latest(docs []*doc.Object, q LatestQuery) (page []*doc.Object, total int) {
	idField, versionField := q.Fields()
	at := map[string]int{}
	for _, d := range docs {
		vs := Resolve(d, idField)
		if len(vs) == 0 {
			continue
		}
		key := doc.Canonical(vs[0])
		i, seen := at[key]
		switch {
		case !seen:
			at[key] = len(page)
			page = append(page, d)
		case newer(first(d, versionField), first(page[i], versionField)):
			page[i] = d
		}
	}
	if len(q.Sort) > 0 {
		slices.SortStableFunc(page, compareBy(q.Sort, nullsLast, Compare))
	}
	return Window(page, q.Limit, q.Offset), len(page)
}

// newer reports whether version a beats b; what is no number never beats anything.
func newer(a, b any) bool {
	x, ok := a.(doc.Number)
	if !ok {
		return false
	}
	y, ok := b.(doc.Number)
	return !ok || x.Compare(y) > 0
}

// Distinct counts the distinct values idField has among docs.
func Distinct(docs []*doc.Object, idField string) int {
	seen := map[string]bool{}
	for _, d := range docs {
		if vs := Resolve(d, idField); len(vs) > 0 {
			seen[doc.Canonical(vs[0])] = true
		}
	}
	return len(seen)
}

// mergedCompare is Compare for values of two stores, in which texts that are both times compare as instants, since each
// store may have written them with another zone or precision.
func mergedCompare(a, b any) int {
	if x, ok := a.(string); ok {
		if y, ok := b.(string); ok {
			if s, ok := instant(x); ok {
				if t, ok := instant(y); ok {
					return s.Compare(t)
				}
			}
		}
	}
	return Compare(a, b)
}

// instant reads an ISO time that has at least a date, hours and minutes; without a zone it is UTC.
func instant(s string) (time.Time, bool) {
	if len(s) < 16 || len(s) > 40 || s[4] != '-' {
		return time.Time{}, false
	}
	s = strings.Replace(s, " ", "T", 1)
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05.999999999", "2006-01-02T15:04Z07:00", "2006-01-02T15:04"} {
		if t, err := time.Parse(layout, s); err == nil {
			return t, true
		}
	}
	return time.Time{}, false
}
