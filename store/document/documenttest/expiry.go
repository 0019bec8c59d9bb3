package documenttest

import (
	"agentenv/fault"
	"agentenv/store/doc"
	"agentenv/store/document"
)

// expiry declares the index once before and once after the documents are there.
func expiry(t *suite) {
	goes := document.Index{Fields: []string{"until"}, Expires: true}
	key := document.Index{Fields: []string{"id", "version"}, Unique: true}
	t.ok(t.s.EnsureIndex(t.ctx, coll, key))
	t.insert(`{"id": "x", "version": 7, "until": "2001-01-01T00:00:00.5+02:00"}`)
	t.ok(t.s.EnsureIndex(t.ctx, coll, goes))
	t.ok(t.s.EnsureIndex(t.ctx, coll, goes))
	t.insert(`{"id": "a", "version": 1, "until": "9000-01-01T00:00:00+00:00"}`, `{"id": "b", "version": 1, "until": "2001-01-01T00:00:00Z"}`,
		`{"id": "c"}`, `{"id": "d", "until": null}`, `{"id": "e", "until": 1}`, `{"id": "f", "until": "2001"}`, `{"id": "g", "until": ["2001-01-01T00:00:00Z"]}`)
	const live = "acdefg"
	if got := t.query(document.Query{}); got != live {
		t.Errorf("the documents that have not expired are %s, want %s", got, live)
	}
	if got := t.query(document.Query{Sort: []document.Sort{{Path: "id", Desc: true}}, Limit: 9}); got != "gfedca" {
		t.Error("in order they are", got)
	}
	if n, err := t.s.Count(t.ctx, coll, nil); n != len(live) || err != nil {
		t.Error("count:", n, err)
	}
	if n, err := t.s.CountDistinct(t.ctx, coll, nil, "id"); n != len(live) || err != nil {
		t.Error("distinct:", n, err)
	}
	ds, err := t.s.FindManyByID(t.ctx, coll, "id", []string{"x", "b", "a"})
	if got := ids(ds); got != "a" || err != nil {
		t.Error("by id:", got, err)
	}
	if ds, total, err := t.s.LatestPerID(t.ctx, coll, document.LatestQuery{}); ids(ds) != live || total != len(live) || err != nil {
		t.Error("latest:", ids(ds), total, err)
	}
	for _, id := range []string{"x", "b"} {
		by := document.By("id", id)
		if d := t.one(by); d != nil {
			t.Error("found:", d)
		}
		if v, err := t.s.LatestVersion(t.ctx, coll, id); v != 0 || err != nil {
			t.Error("latest version:", v, err)
		}
		if n, err := t.s.Update(t.ctx, coll, by, document.Update{Set: doc.Of("until", nil)}, false); n != 0 || err != nil {
			t.Error("update:", n, err)
		}
		if n, err := t.s.Replace(t.ctx, coll, by, doc.Of("id", id), false); n != 0 || err != nil {
			t.Error("replace:", n, err)
		}
		if n, err := t.s.Delete(t.ctx, coll, by); n != 0 || err != nil {
			t.Error("delete:", n, err)
		}
	}
	t.insert(`{"id": "x", "version": 7, "n": 1}`)
	n, err := t.s.Update(t.ctx, coll, document.By("id", "a"), document.Update{Set: doc.Of("id", "b")}, false)
	if n != 1 || err != nil {
		t.Error("an expired document is in the way of an update:", n, err)
	}
	t.same(t.one(document.By("id", "x")), `{"id": "x", "version": 7, "n": 1}`)

	t.ok(t.s.EnsureIndex(t.ctx, "kept", document.Index{Fields: []string{"m.until"}, Expires: true, TTL: 9_000_000_000}))
	t.ok(t.s.Insert(t.ctx, "kept", t.parse(`{"id": "a", "m": {"until": "2001-01-01T00:00:00+00:00"}}`)))
	if n, err := t.s.Count(t.ctx, "kept", nil); n != 1 || err != nil {
		t.Error("before its seconds are over:", n, err)
	}
	t.kind(t.s.EnsureIndex(t.ctx, coll, document.Index{Fields: []string{"a", "b"}, Expires: true}), fault.Invalid)
	t.kind(t.s.EnsureIndex(t.ctx, coll, document.Index{Fields: []string{"a"}, Unique: true, Expires: true}), fault.Invalid)
}
