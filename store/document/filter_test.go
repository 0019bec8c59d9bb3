package document_test

import (
	"strings"
	"testing"

	"agentenv/fault"
	"agentenv/store/doc"
	"agentenv/store/document"
)

// FuzzUpdate gives updates made of outside text to outside documents: a wrong one is an Invalid error, a right one has its
// effect, and the document it was applied to is never changed.
func FuzzUpdate(f *testing.F) {
	for _, s := range [][4]string{
		{`{"a": {"b": [1, {"c": 2}]}}`, "a.b.1.c", "5", "set"}, {`{"a": 1}`, "a.b", `"x"`, "set"}, {`{"n": 1.5}`, "n", "2", "inc"},
		{`{"l": [1]}`, "l", "[1, 2]", "add"}, {`{"l": [1]}`, "l.0", "[1]", "push"}, {`{"a": [0, 1]}`, "a.1", "null", "unset"}, {`{}`, "a..b", "1", "set"},
	} {
		f.Add(s[0], s[1], s[2], s[3])
	}
	f.Fuzz(func(t *testing.T, text, path, value, op string) {
		d, err := doc.ParseObject([]byte(text), doc.Options{Strict: true})
		if err != nil {
			return
		}
		v, err := doc.Parse([]byte(value), doc.Options{Strict: true})
		if err != nil {
			return
		}
		before := doc.Canonical(d)
		var u document.Update
		switch op {
		case "set":
			u.Set = doc.Of(path, v)
		case "unset":
			u.Unset = []string{path}
		case "inc":
			u.Inc = doc.Of(path, v)
		case "add":
			u.AddToSet = doc.Of(path, v)
		default:
			u.Push = doc.Of(path, v)
		}
		if err := u.Check(); err != nil {
			if !fault.Is(err, fault.Invalid) {
				t.Fatal(err)
			}
			return
		}
		after, err := u.Apply(d)
		if doc.Canonical(d) != before {
			t.Fatalf("%s of %q changed the document it was given", op, path)
		}
		if err != nil {
			if !fault.Is(err, fault.Invalid) {
				t.Fatal(err)
			}
			return
		}
		if op == "set" {
			if got := document.Resolve(after, path); len(got) != 1 || !doc.Equal(got[0], v) {
				t.Fatalf("%q set to %s resolves to %v", path, value, got)
			}
		}
		again, err := u.Apply(after)
		if (op == "set" || op == "add") && (err != nil || !doc.Equal(again, after)) {
			t.Fatalf("%s of %q twice is not the same as once: %v", op, path, err)
		}
	})
}

// FuzzFilter holds the relations between predicates whatever the document and value.
func FuzzFilter(f *testing.F) {
	f.Add(`{"a": {"b": [1, 2]}}`, "a.b", "1")
	f.Add(`{"a": [{"b": null}, {"b": "x"}]}`, "a.b", "null")
	f.Add(`{"a": true}`, "a", "1")
	f.Add(`{"a": "z"}`, "a.0", `"z"`)
	f.Fuzz(func(t *testing.T, text, path, value string) {
		d, err := doc.ParseObject([]byte(text), doc.Options{Strict: true})
		if err != nil || strings.Trim(path, ".") == "" {
			return
		}
		v, err := doc.Parse([]byte(value), doc.Options{Strict: true})
		if err != nil {
			return
		}
		match := func(op document.Op, v any) bool {
			f := document.Filter{{Path: path, Op: op, Value: v}}
			if err := f.Check(); err != nil {
				t.Fatal(err)
			}
			return f.Match(d)
		}
		there := match(document.Exists, true)
		if there == match(document.Exists, false) || there != (len(document.Resolve(d, path)) > 0) {
			t.Fatal("a path is there and is not")
		}
		eq := match(document.Eq, v)
		if there && eq == match(document.Ne, v) {
			t.Fatalf("%q is and is not %s", path, value)
		}
		if eq != match(document.In, []any{v}) && (there || v != nil) {
			t.Fatalf("%q: equality and In of one value differ for %s", path, value)
		}
		if match(document.Lte, v) && !match(document.LteOrAbsent, v) {
			t.Fatalf("%q: at most %s, but not at most or absent", path, value)
		}
		if !there && !(match(document.LteOrAbsent, v) && match(document.AbsentOrNull, nil)) {
			t.Fatalf("%q is absent", path)
		}
	})
}
