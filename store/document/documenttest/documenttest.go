// Package documenttest is the conformance suite of document stores: every driver passes it, those of third parties too.
package documenttest

import (
	"context"
	"strings"
	"testing"

	"agentenv/fault"
	"agentenv/store"
	"agentenv/store/doc"
	"agentenv/store/document"
)

// Run runs the suite. open returns a new, empty store; two calls must not share documents. The suite closes what it opens.
func Run(t *testing.T, open func(t *testing.T) document.Store) {
	RunContext(t, t.Context(), open)
}

// RunContext is Run with every call under ctx, such as one with a run scope.
func RunContext(t *testing.T, ctx context.Context, open func(t *testing.T) document.Store) {
	for _, c := range []struct {
		name string
		run  func(*suite)
	}{
		{"filters", filters}, {"paths", paths}, {"sorting", sorting}, {"windows", windows}, {"updates", updates},
		{"update errors", updateErrors}, {"upsert", upsert}, {"replace and delete", replaceAndDelete}, {"unique", unique},
		{"find many", findMany}, {"latest", latest}, {"latest order", latestOrder}, {"odd versions", oddVersions},
		{"distinct", distinct}, {"round trip", roundTrip}, {"bad documents", badDocuments}, {"transactions", transactions},
		{"versioned", versioned}, {"races", races}, {"compare and swap", compareAndSwap}, {"canceled", canceled},
		{"empty store", emptyStore}, {"expiry", expiry}, {"indexed equals scanned", indexedEqualsScanned},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := open(t)
			t.Cleanup(func() {
				if err := s.Close(); err != nil {
					t.Error("close:", err)
				}
				if err := s.Close(); err != nil {
					t.Error("second close:", err)
				}
			})
			c.run(&suite{T: t, s: s, ctx: ctx})
		})
	}
}

const coll = "things"

type suite struct {
	*testing.T
	s   document.Store
	ctx context.Context
}

func (t *suite) ok(err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (t *suite) kind(err error, want fault.Kind) {
	t.Helper()
	if fault.KindOf(err) != want {
		t.Errorf("error %v of kind %q, want %q", err, fault.KindOf(err), want)
	}
}

// parse reads a document from JSON text.
func (t *suite) parse(text string) *doc.Object {
	t.Helper()
	d, err := doc.ParseObject([]byte(text), doc.Options{})
	t.ok(err)
	return d
}

func (t *suite) insert(texts ...string) {
	t.Helper()
	for _, text := range texts {
		t.ok(t.s.Insert(t.ctx, coll, t.parse(text)))
	}
}

// value reads a JSON value.
func (t *suite) value(text string) any {
	t.Helper()
	v, err := doc.Parse([]byte(text), doc.Options{})
	t.ok(err)
	return v
}

// ids returns the "id" of each document, for short comparisons.
func ids(ds []*doc.Object) string {
	out := ""
	for _, d := range ds {
		out += d.Str("id")
	}
	return out
}

func (t *suite) query(q document.Query) string {
	t.Helper()
	ds, err := t.s.Query(t.ctx, coll, q)
	t.ok(err)
	return ids(ds)
}

func (t *suite) same(d *doc.Object, text string) {
	t.Helper()
	got := "none"
	if d != nil {
		b, err := doc.Marshal(d)
		t.ok(err)
		got = string(b)
	}
	if got != text {
		t.Errorf("document\n got %s\nwant %s", got, text)
	}
}

func (t *suite) one(f document.Filter) *doc.Object {
	t.Helper()
	d, err := t.s.FindOne(t.ctx, coll, f)
	t.ok(err)
	return d
}

// entity returns the id of an entity that may be written under the suite's run scope.
func (t *suite) entity(name string) string {
	if store.InLocalRun(t.ctx) {
		return store.LocalPrefix + "~/" + name
	}
	return name
}

// own makes the id "a" in a JSON text such an id.
func (t *suite) own(text string) string {
	return strings.Replace(text, `"id": "a"`, `"id": "`+t.entity("a")+`"`, 1)
}
