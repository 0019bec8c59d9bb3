package sqlite

import (
	"context"
	"strings"

	"agentenv/store/doc"
	"agentenv/store/document"
)

// spliceFrom is from how many bytes on a document's text is changed without being read.
const spliceFrom = 64 << 10

// wholeFields reports whether an update does nothing but set whole top-level fields.
func wholeFields(u document.Update) bool {
	if len(u.Unset) > 0 || u.Inc.Len() > 0 || u.AddToSet.Len() > 0 || u.Push.Len() > 0 {
		return false
	}
	for _, k := range u.Set.Keys() {
		if strings.Contains(k, ".") {
			return false
		}
	}
	return true
}

// setFields does such an update on the first match, and reports whether there was one. Of a large document only what the
// filter asks for is read; the other fields stay as the text they are.
func (c *session) setFields(ctx context.Context, coll string, f document.Filter, u document.Update) (done bool, err error) {
	if err := u.Check(); err != nil {
		return false, err
	}
	if err := f.Check(); err != nil {
		return false, err
	}
	t, err := c.table(ctx, coll)
	if err != nil || t == nil {
		return false, err
	}
	asked := map[string]bool{}
	for _, p := range f {
		key, _, _ := strings.Cut(p.Path, ".")
		asked[key] = true
	}
	if goes := c.s.expiry(t.name); goes != nil {
		key, _, _ := strings.Cut(goes.field, ".")
		asked[key] = true
	}
	top := func(text []byte) (*doc.Object, error) {
		if len(text) < spliceFrom {
			return parse(text)
		}
		return doc.ParseTop(text, func(key string) bool { return asked[key] })
	}
	where, args := t.narrow(f)
	var found *stored
	err = c.eachRow(ctx, t, `SELECT rowid, doc FROM "`+t.name+`"`+where+" ORDER BY rowid", args, f, top, func(r stored) bool {
		found = &r
		return false
	})
	if err != nil || found == nil {
		return false, err
	}
	after, err := u.Apply(found.doc)
	if err != nil {
		return false, err
	}
	if err := c.store(ctx, coll, found.rowid, after); err != nil {
		return false, err
	}
	return true, nil
}
