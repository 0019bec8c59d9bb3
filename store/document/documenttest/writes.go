package documenttest

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"agentenv/fault"
	"agentenv/store/doc"
	"agentenv/store/document"
)

func updates(t *suite) {
	for _, c := range []struct {
		name, before string
		u            document.Update
		after        string
	}{
		{"set keeps the order of keys", `{"id": "a", "x": 1, "y": 2}`, document.Update{Set: doc.Of("y", "n", "x", nil, "z", doc.Int(1))}, `{"id": "a", "x": null, "y": "n", "z": 1}`},
		{"set makes parents", `{"id": "a", "s": 3}`, document.Update{Set: doc.Of("m.n.o", doc.Int(1), "s.t", true)}, `{"id": "a", "s": {"t": true}, "m": {"n": {"o": 1}}}`},
		{"set in an array", `{"id": "a", "l": [1, {"k": 2}]}`, document.Update{Set: doc.Of("l.0", "x", "l.1.k", doc.Int(3))}, `{"id": "a", "l": ["x", {"k": 3}]}`},
		{"unset", `{"id": "a", "x": 1, "m": {"k": 1}, "l": [1, 2]}`, document.Update{Unset: []string{"x", "m.k", "l.0", "none.at.all", "l.9"}}, `{"id": "a", "m": {}, "l": [null, 2]}`},
		{"inc", `{"id": "a", "i": 1, "f": 1.5, "z": null, "big": 123456789012345678901234567890}`, document.Update{Inc: doc.Of("i", doc.Int(2), "f", doc.Int(1), "z", doc.Int(1), "new", doc.Float(0.5), "big", doc.Int(1))}, `{"id": "a", "i": 3, "f": 2.5, "z": 1, "big": 123456789012345678901234567891, "new": 0.5}`},
		{"add to set", `{"id": "a", "l": [1, {"k": 1}], "s": "x"}`, document.Update{AddToSet: doc.Of("l", []any{doc.Float(1), doc.Of("k", doc.Int(1)), "n", "n"}, "s", []any{"y"}, "e", []any{})}, `{"id": "a", "l": [1, {"k": 1}, "n"], "s": ["y"], "e": []}`},
		{"push", `{"id": "a", "l": [1]}`, document.Update{Push: doc.Of("l", []any{doc.Int(1), "x"}, "n", []any{"y"})}, `{"id": "a", "l": [1, 1, "x"], "n": ["y"]}`},
		{"together", `{"id": "a", "x": 1}`, document.Update{Set: doc.Of("a", "1"), Unset: []string{"x"}, Inc: doc.Of("n", doc.Int(1)), AddToSet: doc.Of("s", []any{"v"}), Push: doc.Of("p", []any{"w"})}, `{"id": "a", "a": "1", "n": 1, "s": ["v"], "p": ["w"]}`},
	} {
		_, err := t.s.Delete(t.ctx, coll, nil)
		t.ok(err)
		t.insert(c.before)
		n, err := t.s.Update(t.ctx, coll, document.By("id", "a"), c.u, false)
		if n != 1 || err != nil {
			t.Errorf("%s: %d, %v", c.name, n, err)
		}
		t.same(t.one(document.By("id", "a")), c.after)
	}
	before, err := t.s.UpdateAndGet(t.ctx, coll, document.By("id", "a"), document.Update{Inc: doc.Of("n", doc.Int(1))}, false, true)
	t.ok(err)
	after, err := t.s.UpdateAndGet(t.ctx, coll, document.By("id", "a"), document.Update{Inc: doc.Of("n", doc.Int(1))}, false, false)
	t.ok(err)
	if !doc.Equal(before.Value("n"), doc.Int(1)) || !doc.Equal(after.Value("n"), doc.Int(3)) {
		t.Error(before.Value("n"), after.Value("n"))
	}
	none, err := t.s.UpdateAndGet(t.ctx, coll, document.By("id", "zz"), document.Update{Set: doc.Of("n", "x")}, false, false)
	if none != nil || err != nil {
		t.Error(none, err)
	}
}

func updateErrors(t *suite) {
	t.insert(`{"id": "a", "l": [1], "s": "x"}`)
	for _, u := range []document.Update{
		{Set: doc.Of("x", "1"), Unset: []string{"x"}},
		{Set: doc.Of("x", "1", "x.y", "2")},
		{Set: doc.Of("x.y", "1"), Inc: doc.Of("x", doc.Int(1))},
		{Set: doc.Of("x", "1", "x.y", "2", "x-y", "3")},
		{Set: doc.Of("l.name", "1")},
		{Set: doc.Of("l.5", "1")},
		{Inc: doc.Of("s", doc.Int(1))},
		{Set: doc.Of("", "1")},
		{Push: doc.Of("x", "no list")},
	} {
		_, err := t.s.Update(t.ctx, coll, document.By("id", "a"), u, true)
		t.kind(err, fault.Invalid)
	}
	t.same(t.one(nil), `{"id": "a", "l": [1], "s": "x"}`)
}

func upsert(t *suite) {
	n, err := t.s.Update(t.ctx, coll, document.By("id", "a", "m.k", doc.Int(1)).And("n", document.Gte, doc.Int(5)), document.Update{Set: doc.Of("x", "y")}, true)
	if n != 1 || err != nil {
		t.Error(n, err)
	}
	t.same(t.one(nil), `{"id": "a", "m": {"k": 1}, "x": "y"}`)
	d, err := t.s.UpdateAndGet(t.ctx, coll, document.By("id", "b"), document.Update{Set: doc.Of("x", "y")}, true, true)
	if d != nil || err != nil {
		t.Error("before an upsert there is nothing:", d, err)
	}
	d, err = t.s.UpdateAndGet(t.ctx, coll, document.By("id", "c"), document.Update{Set: doc.Of("x", "y")}, true, false)
	t.ok(err)
	t.same(d, `{"id": "c", "x": "y"}`)
}

func replaceAndDelete(t *suite) {
	t.insert(`{"id": "a", "x": 1}`, `{"id": "a", "x": 2}`)
	n, err := t.s.Replace(t.ctx, coll, document.By("id", "a"), t.parse(`{"id": "b"}`), false)
	if n != 1 || err != nil {
		t.Error(n, err)
	}
	if got := t.query(document.Query{}); got != "ba" {
		t.Error("only the first match is replaced, in its place:", got)
	}
	if n, err := t.s.Replace(t.ctx, coll, document.By("id", "zz"), t.parse(`{"id": "c"}`), false); n != 0 || err != nil {
		t.Error(n, err)
	}
	if n, err := t.s.Replace(t.ctx, coll, document.By("id", "zz"), t.parse(`{"id": "c"}`), true); n != 1 || err != nil {
		t.Error(n, err)
	}
	if n, err := t.s.Delete(t.ctx, coll, document.By("id", "b")); n != 1 || err != nil {
		t.Error(n, err)
	}
	if got := t.query(document.Query{}); got != "ac" {
		t.Error(got)
	}
}

func unique(t *suite) {
	t.ok(t.s.EnsureIndex(t.ctx, coll, document.Index{Fields: []string{"id", "n"}, Unique: true}))
	t.ok(t.s.EnsureIndex(t.ctx, coll, document.Index{Fields: []string{"id", "n"}, Unique: true}))
	t.insert(`{"id": "a", "n": 1, "x": "kept"}`, `{"id": "a", "n": 2}`, `{"id": "a"}`, `{"id": "a"}`, `{"id": "a", "n": null}`)
	t.kind(t.s.Insert(t.ctx, coll, t.parse(`{"id": "a", "n": 1.0}`)), fault.Exists)
	_, err := t.s.Update(t.ctx, coll, document.By("id", "a", "n", doc.Int(2)), document.Update{Set: doc.Of("n", doc.Int(1))}, false)
	t.kind(err, fault.Exists)
	_, err = t.s.Update(t.ctx, coll, document.By("id", "a", "n", doc.Int(1), "x", "other"), document.Update{Set: doc.Of("y", "z")}, true)
	t.kind(err, fault.Exists)
	t.same(t.one(document.By("n", doc.Int(1))), `{"id": "a", "n": 1, "x": "kept"}`)
	if n, _ := t.s.Count(t.ctx, coll, nil); n != 5 {
		t.Error(n)
	}
}

func roundTrip(t *suite) {
	for _, text := range []string{
		`{"id": "a", "z": 1, "a": 1.0, "big": 123456789012345678901234567890, "e": 1e+300, "neg": -0.0, "s": "\u00e9\ud83d\ude00\n\\\"\u0000", "lone": "\ud800x", "o": {"b": [], "a": {}}, "t": true, "n": null}`,
		`{"id": "b", "t": "2026-01-02T03:04:05+00:00"}`,
	} {
		t.insert(text)
		d := t.one(document.By("id", t.parse(text).Value("id")))
		t.same(d, text)
		_, err := t.s.Update(t.ctx, coll, document.By("id", d.Value("id")), document.Update{Set: doc.Of("new", "x")}, false)
		t.ok(err)
		t.same(t.one(document.By("id", d.Value("id"))), text[:len(text)-1]+`, "new": "x"}`)
	}
}

func badDocuments(t *suite) {
	t.kind(t.s.Insert(t.ctx, coll, doc.Of("id", "a", "x", doc.Number("NaN"))), fault.Invalid)
	t.kind(t.s.Insert(t.ctx, coll, doc.Of("id", "a", "x", []any{doc.Number("Infinity")})), fault.Invalid)
	t.insert(`{"id": "a"}`)
	_, err := t.s.Update(t.ctx, coll, document.By("id", "a"), document.Update{Set: doc.Of("x", doc.Number("-Infinity"))}, false)
	t.kind(err, fault.Invalid)
	t.same(t.one(nil), `{"id": "a"}`)
	for _, id := range []string{"@acme/x", "@/x"} {
		t.kind(t.s.CheckID(id), fault.Invalid)
	}
	t.ok(t.s.CheckID("plain"))
}

func transactions(t *suite) {
	t.ok(t.s.EnsureIndex(t.ctx, coll, document.Index{Fields: []string{"id"}, Unique: true}))
	stop := errors.New("stop")
	err := t.s.Transact(t.ctx, func(tx document.Store) error {
		t.ok(tx.Insert(t.ctx, coll, t.parse(`{"id": "a"}`)))
		if _, err := tx.Update(t.ctx, coll, document.By("id", "a"), document.Update{Set: doc.Of("x", "y")}, false); err != nil {
			return err
		}
		d, err := tx.FindOne(t.ctx, coll, document.By("id", "a"))
		t.ok(err)
		t.same(d, `{"id": "a", "x": "y"}`)
		if d := t.one(document.By("id", "a")); d != nil {
			t.Error("others see what is not committed")
		}
		return stop
	})
	if !errors.Is(err, stop) {
		t.Error("fn's error comes back:", err)
	}
	if d := t.one(nil); d != nil {
		t.Error("a failed transaction left", d)
	}
	t.ok(t.s.Transact(t.ctx, func(tx document.Store) error {
		t.ok(tx.Insert(t.ctx, coll, t.parse(`{"id": "a"}`)))
		t.kind(tx.Insert(t.ctx, coll, t.parse(`{"id": "a"}`)), fault.Exists)
		if err := tx.Transact(t.ctx, func(in document.Store) error {
			t.ok(in.Insert(t.ctx, coll, t.parse(`{"id": "gone"}`)))
			return stop
		}); !errors.Is(err, stop) {
			t.Error(err)
		}
		t.ok(tx.Insert(t.ctx, "others", t.parse(`{"id": "a"}`)))
		return nil
	}))
	if got := t.query(document.Query{}); got != "a" {
		t.Error(got)
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("a panic was swallowed")
			}
		}()
		t.s.Transact(t.ctx, func(tx document.Store) error {
			t.ok(tx.Insert(t.ctx, coll, t.parse(`{"id": "p"}`)))
			panic("defect")
		})
	}()
	if got := t.query(document.Query{}); got != "a" {
		t.Error("a panic left something:", got)
	}
	t.ok(t.s.Transact(t.ctx, func(document.Store) error { return nil }))
}

func versioned(t *suite) {
	v := document.Versioned{Store: t.s, Collection: coll}
	d, err := v.Put(t.ctx, t.parse(t.own(`{"id": "a", "x": 1}`)))
	t.ok(err)
	t.same(d, t.own(`{"id": "a", "x": 1, "version": 1}`))
	d, err = v.Put(t.ctx, t.parse(t.own(`{"id": "a", "version": 0, "x": 2}`)))
	t.ok(err)
	t.same(d, t.own(`{"id": "a", "version": 2, "x": 2}`))
	_, err = v.Put(t.ctx, t.parse(t.own(`{"id": "a", "version": 2}`)))
	t.kind(err, fault.Conflict)
	_, err = v.Put(t.ctx, t.parse(t.own(`{"id": "a", "version": 4}`)))
	t.kind(err, fault.Conflict)
	_, err = v.Put(t.ctx, t.parse(t.own(`{"id": "a", "version": 3, "x": 3}`)))
	t.ok(err)
	for version, want := range map[int64]string{0: `{"id": "a", "version": 3, "x": 3}`, 2: `{"id": "a", "version": 2, "x": 2}`, 9: "none"} {
		d, err := v.Get(t.ctx, t.entity("a"), version)
		t.ok(err)
		t.same(d, t.own(want))
	}
	if n, err := v.NextVersion(t.ctx, t.entity("a")); n != 4 || err != nil {
		t.Error(n, err)
	}
	_, err = v.NextVersion(t.ctx, "@acme/a")
	t.kind(err, fault.Invalid)
	for _, bad := range []string{`{"id": 3}`, `{"x": 1}`, `{"id": "a", "version": "x"}`, `{"id": "a", "version": -1}`, `{"id": "@acme/x"}`} {
		_, err := v.Put(t.ctx, t.parse(t.own(bad)))
		t.kind(err, fault.Invalid)
	}
}

const racers = 8

func (t *suite) race(fn func(i int) bool) (winners int32) {
	var wg sync.WaitGroup
	for i := range racers {
		wg.Go(func() {
			if fn(i) {
				atomic.AddInt32(&winners, 1)
			}
		})
	}
	wg.Wait()
	return winners
}

func races(t *suite) {
	guard := document.By("id", "a", "state", "free")
	reset := func() {
		_, err := t.s.Replace(t.ctx, coll, document.By("id", "a"), t.parse(`{"id": "a", "state": "free"}`), true)
		t.ok(err)
	}
	for name, try := range map[string]func(i int) (bool, error){
		"update": func(i int) (bool, error) {
			n, err := t.s.Update(t.ctx, coll, guard, document.Update{Set: doc.Of("state", fmt.Sprint(i))}, false)
			return n == 1, err
		},
		"replace": func(i int) (bool, error) {
			n, err := t.s.Replace(t.ctx, coll, guard, doc.Of("id", "a", "state", fmt.Sprint(i)), false)
			return n == 1, err
		},
		"get after": func(i int) (bool, error) {
			d, err := t.s.UpdateAndGet(t.ctx, coll, guard, document.Update{Set: doc.Of("state", fmt.Sprint(i))}, false, false)
			return d != nil && d.Str("state") == fmt.Sprint(i), err
		},
		"get before": func(i int) (bool, error) {
			d, err := t.s.UpdateAndGet(t.ctx, coll, guard, document.Update{Set: doc.Of("state", fmt.Sprint(i))}, false, true)
			return d != nil && d.Str("state") == "free", err
		},
	} {
		reset()
		if n := t.race(func(i int) bool {
			won, err := try(i)
			if err != nil {
				t.Error(name, err)
			}
			return won
		}); n != 1 {
			t.Errorf("%s: %d winners", name, n)
		}
	}
	v := document.Versioned{Store: t.s, Collection: coll + "_v"}
	if n := t.race(func(i int) bool {
		_, err := v.Put(t.ctx, doc.Of("id", t.entity("e"), "version", doc.Int(1), "by", doc.Int(i)))
		if err != nil {
			t.kind(err, fault.Conflict)
		}
		return err == nil
	}); n != 1 {
		t.Errorf("put at a version: %d winners", n)
	}
	v.Collection = coll + "_w"
	t.race(func(i int) bool {
		for {
			_, err := v.Put(t.ctx, doc.Of("id", t.entity("e"), "by", doc.Int(i)))
			if err == nil {
				return true
			}
			if !fault.Is(err, fault.Exists) {
				t.Error(err)
				return false
			}
		}
	})
	if n, err := v.NextVersion(t.ctx, t.entity("e")); n != racers+1 || err != nil {
		t.Error("versions have no gaps:", n, err)
	}
}

func compareAndSwap(t *suite) {
	t.insert(`{"id": "a", "steps": []}`, `{"id": "n", "rev": null}`)
	key := document.By("id", "a")
	t.race(func(i int) bool {
		d, err := document.CompareAndSwap(t.ctx, t.s, coll, key, "rev", func(d *doc.Object) (*document.Update, error) {
			return &document.Update{Set: doc.Of("steps", append(d.Arr("steps")[:len(d.Arr("steps")):len(d.Arr("steps"))], doc.Int(i)))}, nil
		})
		if err != nil || d == nil {
			t.Error(d, err)
		}
		return true
	})
	d := t.one(key)
	if len(d.Arr("steps")) != racers || !doc.Equal(d.Value("rev"), doc.Int(racers)) {
		t.Errorf("changes were lost: %v", d)
	}
	if d, err := document.CompareAndSwap(t.ctx, t.s, coll, document.By("id", "n"), "rev", func(*doc.Object) (*document.Update, error) {
		return &document.Update{Set: doc.Of("x", "y")}, nil
	}); err != nil || !doc.Equal(d.Value("rev"), doc.Int(1)) {
		t.Error(d, err)
	}
	stop := func(*doc.Object) (*document.Update, error) { return nil, nil }
	if d, err := document.CompareAndSwap(t.ctx, t.s, coll, key, "rev", stop); d != nil || err != nil {
		t.Error(d, err)
	}
	if d, err := document.CompareAndSwap(t.ctx, t.s, coll, document.By("id", "zz"), "rev", stop); d != nil || err != nil {
		t.Error(d, err)
	}
}
