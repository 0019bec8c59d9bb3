package documenttest

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"agentenv/fault"
	"agentenv/store/doc"
	"agentenv/store/document"
)

func filters(t *suite) {
	t.insert(
		`{"id": "a", "n": 1, "s": "x", "tags": ["p", "q"], "z": null}`,
		`{"id": "b", "n": 2.5, "s": "y", "tags": []}`,
		`{"id": "c", "n": true, "s": "z", "o": {"k": 1, "l": 2}}`,
		`{"id": "d", "n": "1", "tags": "p"}`,
		`{"id": "e", "n": [1, 5], "o": {"l": 2.0, "k": 1}}`,
	)
	for _, c := range []struct {
		path  string
		op    document.Op
		value string
		want  string
	}{
		{"n", document.Eq, `1`, "ace"},
		{"n", document.Eq, `1.0`, "ace"},
		{"n", document.Eq, `true`, "ace"},
		{"n", document.Eq, `"1"`, "d"},
		{"n", document.Eq, `[1, 5]`, "e"},
		{"n", document.Eq, `5`, "e"},
		{"tags", document.Eq, `"p"`, "ad"},
		{"tags", document.Eq, `[]`, "b"},
		{"o", document.Eq, `{"k": 1, "l": 2}`, "ce"},
		{"z", document.Eq, `null`, "abcde"},
		{"s", document.Eq, `null`, "de"},
		{"n", document.Ne, `1`, "bd"},
		{"s", document.Ne, `"x"`, "bc"},
		{"none", document.Ne, `"x"`, ""},
		{"n", document.Gte, `1`, "abc"},
		{"n", document.Lte, `2`, "ac"},
		{"n", document.Gte, `"1"`, "d"},
		{"n", document.Gte, `[1, 4]`, "e"},
		{"n", document.Lte, `null`, ""},
		{"s", document.Gte, `"y"`, "bc"},
		{"s", document.In, `["x", "z", "nope"]`, "ac"},
		{"tags", document.In, `["q", "p"]`, "ad"},
		{"n", document.In, `[1, "1"]`, "acde"},
		{"s", document.In, `[null]`, ""},
		{"z", document.In, `[null]`, "a"},
		{"s", document.In, `[]`, ""},
		{"z", document.Exists, `true`, "a"},
		{"z", document.Exists, `false`, "bcde"},
		{"s", document.LteOrAbsent, `"x"`, "ade"},
		{"z", document.LteOrAbsent, `3`, "abcde"},
		{"z", document.AbsentOrNull, `null`, "abcde"},
		{"o", document.AbsentOrNull, `null`, "abd"},
	} {
		f := document.Filter{{Path: c.path, Op: c.op, Value: t.value(c.value)}}
		if got := t.query(document.Query{Filter: f}); got != c.want {
			t.Errorf("%s: got %q, want %q", f, got, c.want)
		}
		if n, err := t.s.Count(t.ctx, coll, f); err != nil || n != len(c.want) {
			t.Errorf("count of %s: %d, %v", f, n, err)
		}
	}
	both := document.Filter{}.And("n", document.Gte, doc.Int(1)).And("n", document.Lte, doc.Int(2)).And("s", document.Ne, "z")
	if got := t.query(document.Query{Filter: both}); got != "a" {
		t.Error("predicates are joined by and:", got)
	}
	for _, f := range []document.Filter{{{Path: "n", Op: document.In, Value: "x"}}, {{Path: "n", Op: document.Exists, Value: "x"}}} {
		_, err := t.s.Query(t.ctx, coll, document.Query{Filter: f})
		t.kind(err, fault.Invalid)
	}
}

func paths(t *suite) {
	t.insert(
		`{"id": "a", "m": {"x": 1}, "list": [{"k": 1}, {"k": 2, "deep": [{"v": 9}]}, 3]}`,
		`{"id": "b", "m": {"x": 2}, "list": [{"k": 3}], "m.x": 1}`,
		`{"id": "c", "m": 1, "list": {"0": {"k": 1}}}`,
	)
	for _, c := range []struct{ path, value, want string }{
		{"m.x", `1`, "a"}, {"list.k", `2`, "a"}, {"list.0.k", `1`, "ac"}, {"list.1.k", `1`, ""}, {"list.deep.v", `9`, "a"},
		{"list.k", `null`, "c"}, {"list.7.k", `null`, "abc"}, {"list.2", `3`, "a"},
	} {
		if got := t.query(document.Query{Filter: document.By(c.path, t.value(c.value))}); got != c.want {
			t.Errorf("%s = %s: got %q, want %q", c.path, c.value, got, c.want)
		}
	}
}

func sorting(t *suite) {
	t.insert(
		`{"id": "a", "n": 2, "s": "b"}`, `{"id": "b", "n": 1, "s": "b"}`, `{"id": "c", "n": null, "s": "a"}`,
		`{"id": "d", "s": "é"}`, `{"id": "e", "n": 1.5, "s": "Z"}`, `{"id": "f", "n": 10, "s": "b"}`,
	)
	for _, c := range []struct {
		sort []document.Sort
		want string
	}{
		{[]document.Sort{{Path: "n"}}, "cdbeaf"},
		{[]document.Sort{{Path: "n", Desc: true}}, "faebcd"},
		{[]document.Sort{{Path: "s"}, {Path: "n", Desc: true}}, "ecfabd"},
		{[]document.Sort{{Path: "none"}}, "abcdef"},
		{[]document.Sort{{Path: "s", Desc: true}}, "dabfce"},
	} {
		if got := t.query(document.Query{Sort: c.sort}); got != c.want {
			t.Errorf("sort %v: got %q, want %q", c.sort, got, c.want)
		}
		d, err := t.s.FindOne(t.ctx, coll, nil, c.sort...)
		t.ok(err)
		if d.Str("id") != c.want[:1] {
			t.Errorf("first of %v: %s", c.sort, d.Str("id"))
		}
	}
	t.insert(`{"id": "g", "n": "text"}`, `{"id": "h", "n": {"o": 1}}`, `{"id": "i", "n": [1]}`)
	up, down := t.query(document.Query{Sort: []document.Sort{{Path: "n"}}}), t.query(document.Query{Sort: []document.Sort{{Path: "n", Desc: true}}})
	if len(up) != 9 || len(down) != 9 || up[:2] != "cd" || down[7:] != "cd" {
		t.Errorf("unlike types: %q and %q", up, down)
	}
}

func windows(t *suite) {
	t.insert(`{"id": "a", "n": 3}`, `{"id": "b", "n": 2}`, `{"id": "c", "n": 1}`)
	for _, c := range []struct {
		q    document.Query
		want string
	}{
		{document.Query{}, "abc"}, {document.Query{Limit: 2}, "ab"}, {document.Query{Offset: 1}, "bc"}, {document.Query{Offset: 5}, ""},
		{document.Query{Limit: 1, Offset: 1}, "b"}, {document.Query{Limit: 9}, "abc"},
		{document.Query{Sort: []document.Sort{{Path: "n"}}, Limit: 1, Offset: 2}, "a"},
		{document.Query{Filter: document.Filter{}.And("n", document.Lte, doc.Int(2)), Limit: 1}, "b"},
	} {
		if got := t.query(c.q); got != c.want {
			t.Errorf("%+v: got %q, want %q", c.q, got, c.want)
		}
	}
}

func findMany(t *suite) {
	t.insert(`{"id": "a", "v": 1}`, `{"id": "b", "v": 1}`, `{"id": "a", "v": 2}`, `{"v": 3}`)
	ds, err := t.s.FindManyByID(t.ctx, coll, "id", []string{"b", "x", "a", "b"})
	t.ok(err)
	if ids(ds) != "ba" || !doc.Equal(ds[1].Value("v"), doc.Int(1)) {
		t.Error("request order, distinct, the first of each:", ids(ds))
	}
	var many []string
	for i := range 1200 {
		many = append(many, fmt.Sprint("n", i))
	}
	ds, err = t.s.FindManyByID(t.ctx, coll, "id", append(many, "a"))
	if err != nil || ids(ds) != "a" {
		t.Error(ids(ds), err)
	}
	if ds, err := t.s.FindManyByID(t.ctx, coll, "id", nil); err != nil || len(ds) != 0 {
		t.Error(ds, err)
	}
}

func latest(t *suite) {
	t.ok(t.s.EnsureIndex(t.ctx, coll, document.Index{Fields: []string{"id", "version"}, Unique: true}))
	t.insert(
		`{"id": "b", "version": 1, "k": "x"}`, `{"id": "a", "version": 1, "k": "x"}`, `{"id": "a", "version": 2, "k": "y"}`,
		`{"id": "c", "version": 10, "k": "x"}`, `{"id": "c", "version": 9, "k": "y"}`, `{"version": 3}`,
	)
	for id, want := range map[string]int64{"a": 2, "b": 1, "c": 10, "none": 0} {
		if v, err := t.s.LatestVersion(t.ctx, coll, id); err != nil || v != want {
			t.Errorf("latest of %s: %d, %v", id, v, err)
		}
	}
	for _, c := range []struct {
		q     document.LatestQuery
		want  string
		total int
	}{
		{document.LatestQuery{}, "bac", 3},
		{document.LatestQuery{Query: document.Query{Sort: []document.Sort{{Path: "id"}}}}, "abc", 3},
		{document.LatestQuery{Query: document.Query{Sort: []document.Sort{{Path: "id", Desc: true}}, Limit: 1, Offset: 1}}, "b", 3},
		{document.LatestQuery{Query: document.Query{Sort: []document.Sort{{Path: "k"}, {Path: "id"}}}}, "bca", 3},
		{document.LatestQuery{Query: document.Query{Filter: document.By("k", "y")}}, "ac", 2},
		{document.LatestQuery{Query: document.Query{Filter: document.By("id", "a")}}, "a", 1},
		{document.LatestQuery{IDField: "k", VersionField: "version"}, "cc", 2},
	} {
		page, total, err := t.s.LatestPerID(t.ctx, coll, c.q)
		t.ok(err)
		if ids(page) != c.want || total != c.total {
			t.Errorf("%+v: got %q of %d, want %q of %d", c.q, ids(page), total, c.want, c.total)
		}
	}
	page, _, err := t.s.LatestPerID(t.ctx, coll, document.LatestQuery{Query: document.Query{Filter: document.By("k", "y")}})
	t.ok(err)
	if !doc.Equal(page[1].Value("version"), doc.Int(9)) {
		t.Error("the filter comes before the choice of the newest")
	}
}

func latestOrder(t *suite) {
	t.insert(`{"id": "a", "version": 1}`, `{"id": "b", "version": 1, "n": 2}`, `{"id": "c", "version": 1, "n": 1}`, `{"id": "d", "version": 1, "n": null}`)
	for _, desc := range []bool{false, true} {
		page, _, err := t.s.LatestPerID(t.ctx, coll, document.LatestQuery{Query: document.Query{Sort: []document.Sort{{Path: "n", Desc: desc}}}})
		t.ok(err)
		want := map[bool]string{false: "cbad", true: "bcad"}[desc]
		if ids(page) != want {
			t.Errorf("absent values come last in both directions: %q, want %q", ids(page), want)
		}
	}
}

func oddVersions(t *suite) {
	t.ok(t.s.EnsureIndex(t.ctx, coll, document.Index{Fields: []string{"id", "version"}, Unique: true}))
	t.insert(`{"id": "a", "version": "7"}`, `{"id": "a", "version": 2}`, `{"id": "b", "version": null}`, `{"id": "b"}`, `{"id": ["x"], "version": 1}`, `{"id": {"o": 1}}`)
	if v, err := t.s.LatestVersion(t.ctx, coll, "a"); err != nil || v != 7 {
		t.Error("a version stored as text counts:", v, err)
	}
	page, total, err := t.s.LatestPerID(t.ctx, coll, document.LatestQuery{})
	t.ok(err)
	if total != 4 || !doc.Equal(page[0].Value("version"), doc.Int(2)) {
		t.Error("what is no number ranks lowest:", total, page)
	}
	d, err := t.s.FindOne(t.ctx, coll, document.By("id", "b"), document.Sort{Path: "version", Desc: true})
	t.ok(err)
	if d == nil {
		t.Error("nothing found")
	}
}

func distinct(t *suite) {
	t.insert(`{"id": "a", "k": 1}`, `{"id": "a", "k": 2}`, `{"id": "b", "k": 1}`, `{"k": 1}`, `{"id": ["a"], "k": 1}`)
	for _, c := range []struct {
		f    document.Filter
		want int
	}{{nil, 3}, {document.By("k", doc.Int(2)), 1}, {document.By("k", doc.Int(9)), 0}} {
		if n, err := t.s.CountDistinct(t.ctx, coll, c.f, "id"); err != nil || n != c.want {
			t.Errorf("%s: %d, %v", c.f, n, err)
		}
	}
}

func emptyStore(t *suite) {
	f := document.By("id", "a")
	if d := t.one(f); d != nil {
		t.Error(d)
	}
	if n, err := t.s.Update(t.ctx, coll, f, document.Update{Set: doc.Of("x", "y")}, false); err != nil || n != 0 {
		t.Error(n, err)
	}
	if n, err := t.s.Delete(t.ctx, coll, f); err != nil || n != 0 {
		t.Error(n, err)
	}
	if v, err := t.s.LatestVersion(t.ctx, coll, "a"); err != nil || v != 0 {
		t.Error(v, err)
	}
	if page, total, err := t.s.LatestPerID(t.ctx, coll, document.LatestQuery{}); err != nil || total != 0 || len(page) != 0 {
		t.Error(page, total, err)
	}
	if n, err := t.s.Count(t.ctx, coll, nil); err != nil || n != 0 {
		t.Error(n, err)
	}
}

// indexedEqualsScanned asks the same of a collection with indexes and of one without.
func indexedEqualsScanned(t *suite) {
	const plain = "plain"
	for _, ix := range []document.Index{
		{Fields: []string{"k", "n"}}, {Fields: []string{"n"}}, {Fields: []string{"k", "s", "n"}}, {Fields: []string{"m.x"}},
	} {
		t.ok(t.s.EnsureIndex(t.ctx, coll, ix))
		t.ok(t.s.EnsureIndex(t.ctx, coll, ix))
	}
	values := []string{`1`, `1.0`, `true`, `false`, `0`, `"1"`, `"x"`, `"é"`, `"[1]"`, `"{"`, `[1]`, `["x", 3]`, `{"a": 1}`, `null`, `9007199254740993`, `123456789012345678901234567890`, `-2`, `1e300`, `"\ud800"`, `"a\u0000b"`}
	t.ok(t.s.Transact(t.ctx, func(tx document.Store) error {
		i := 0
		for _, k := range []string{`1`, `true`, `"x"`, `["x", 3]`, `null`, `-2`} {
			for _, n := range append(values, "") {
				text := fmt.Sprintf(`{"id": "%d,", "k": %s, "s": %s, "m": {"x": %s}`, i, k, values[i%5], k)
				if n != "" {
					text += `, "n": ` + n
				}
				for _, c := range []string{coll, plain} {
					if err := tx.Insert(t.ctx, c, t.parse(text+`}`)); err != nil {
						return err
					}
				}
				i++
			}
		}
		return nil
	}))
	var queries []document.Query
	for _, v := range values {
		x := t.value(v)
		for _, op := range []document.Op{document.Eq, document.Ne, document.Gte, document.Lte, document.LteOrAbsent} {
			queries = append(queries, document.Query{Filter: document.Filter{{Path: "n", Op: op, Value: x}}},
				document.Query{Filter: document.Filter{{Path: "k", Op: document.Eq, Value: "x"}, {Path: "n", Op: op, Value: x}}, Sort: []document.Sort{{Path: "n"}}, Limit: 3},
				document.Query{Filter: document.Filter{{Path: "k", Op: op, Value: x}, {Path: "s", Op: document.Eq, Value: doc.Int(1)}}, Sort: []document.Sort{{Path: "s", Desc: true}, {Path: "n"}}, Limit: 4, Offset: 2},
				document.Query{Filter: document.Filter{{Path: "m.x", Op: op, Value: x}}})
		}
		queries = append(queries, document.Query{Filter: document.Filter{{Path: "k", Op: document.In, Value: []any{x, "x", doc.Int(0)}}, {Path: "n", Op: document.Gte, Value: x}}},
			document.Query{Filter: document.Filter{{Path: "k", Op: document.In, Value: []any{"x", doc.Int(-2)}}}, Sort: []document.Sort{{Path: "n", Desc: true}}, Limit: 5})
	}
	for _, q := range queries {
		got, err := t.s.Query(t.ctx, coll, q)
		t.ok(err)
		want, err := t.s.Query(t.ctx, plain, q)
		t.ok(err)
		if ids(got) != ids(want) {
			t.Errorf("%s sort %v limit %d\n got %s\nwant %s", q.Filter, q.Sort, q.Limit, ids(got), ids(want))
		}
	}
}

func canceled(t *suite) {
	t.insert(`{"id": "a"}`)
	ctx, cancel := context.WithCancelCause(t.ctx)
	cancel(errors.New("no longer wanted"))
	_, err := t.s.Query(ctx, coll, document.Query{})
	t.kind(err, fault.Canceled)
	t.kind(t.s.Insert(ctx, coll, t.parse(`{"id": "b"}`)), fault.Canceled)
	if got := t.query(document.Query{}); !slices.Equal([]string{got}, []string{"a"}) {
		t.Error(got)
	}
}
