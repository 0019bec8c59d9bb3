package transfer_test

import (
	"encoding/json"
	"strings"
	"testing"

	"agentenv/fault"
	"agentenv/protocol/transfer"
)

func decoded(t testing.TB, text string) any {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return v
}

const (
	get     = `{"kind":"http-get","url":"https://s/o?t=hidden","expires_at":"2030-01-01T00:00:00Z"}`
	put     = `{"kind":"http-put","url":"https://s/o","expires_at":"2030-01-01T00:00:00.5+00:00","headers":{"a":"b"}}`
	readOne = `{"media_type":"a/b","max_bytes":10,"size_bytes":3,"sha256":"` + hex64 + `","read":` + get + `}`
	hex64   = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	name    = `{"root_path":"a/b","expires_at":"2030-01-01T00:00:00Z","max_objects":1,"max_object_bytes":2,"max_total_bytes":3,
		"write":{"kind":"http-post-policy","url":"https://s/p","fields":{"k":"v"},"path_field":"key","file_field":"file"}}`
)

// TestWireForms reads what it writes.
func TestWireForms(t *testing.T) {
	t.Parallel()
	again := func(v any) string {
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	r, err := transfer.ParseReadObject("o", decoded(t, readOne))
	if err != nil || r.Size != 3 || r.SHA256 != hex64 {
		t.Fatalf("%+v, %v", r, err)
	}
	if r2, err := transfer.ParseReadObject("o", decoded(t, again(r.JSON()))); err != nil || again(r2.JSON()) != again(r.JSON()) {
		t.Errorf("%+v, %v", r2, err)
	}
	w, err := transfer.ParseWriteObject("o", decoded(t, `{"media_type":"a/b","max_bytes":10,"write":`+put+`}`))
	if err != nil || w.Write.Headers["a"] != "b" {
		t.Fatalf("%+v, %v", w, err)
	}
	if w2, err := transfer.ParseWriteObject("o", decoded(t, again(w.JSON()))); err != nil || again(w2.JSON()) != again(w.JSON()) {
		t.Errorf("%+v, %v", w2, err)
	}
	n, err := transfer.ParseNamespace("n", decoded(t, name))
	if err != nil || n.MaxTotal != 3 {
		t.Fatalf("%+v, %v", n, err)
	}
	if n2, err := transfer.ParseNamespace("n", decoded(t, again(n.JSON()))); err != nil || again(n2.JSON()) != again(n.JSON()) {
		t.Errorf("%+v, %v", n2, err)
	}
}

func TestWireFormsThatAreRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ from, to, want string }{
		{`"max_bytes":10`, `"max_bytes":"10"`, "o.max_bytes"}, {`"max_bytes":10`, `"max_bytes":0`, "o.max_bytes"}, {`"max_bytes":10`, `"max_bytes":10.0`, "o.max_bytes"},
		{`"max_bytes":10`, `"max_bytes":true`, "o.max_bytes"}, {`"size_bytes":3`, `"size_bytes":11`, "size_bytes is more"}, {`"media_type":"a/b"`, `"media_type":"a/b; c=d"`, "media_type"},
		{hex64, strings.ToUpper(hex64), "sha256"}, {"https://s", "http://s", "o.read.url"}, {"https://s/o", "/o", "o.read.url"}, {"00Z", "00", "expires_at"}, {"00Z", "00+01:00", "expires_at"},
		{`"http-get"`, `"http-put"`, "o.read.kind"}, {`"media_type"`, `"other":1,"media_type"`, `unknown field "other"`}, {`"kind"`, `"other":1,"kind"`, `unknown field "other"`},
		{`"read":` + get, `"read":5`, "o.read must be an object"}, {`"kind"`, `"headers":{"a":1},"kind"`, "headers"},
	} {
		text := strings.Replace(readOne, c.from, c.to, 1)
		if _, err := transfer.ParseReadObject("o", decoded(t, text)); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "hidden") {
			t.Errorf("%s → %s: %v", c.from, c.to, err)
		}
	}
	for _, bad := range []string{"/a", "a/../b", "a//b", ".", `a\\b`, "a/"} {
		if _, err := transfer.ParseNamespace("n", decoded(t, strings.Replace(name, "a/b", bad, 1))); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(readOne)
	f.Add(name)
	f.Fuzz(func(_ *testing.T, text string) {
		d := json.NewDecoder(strings.NewReader(text))
		d.UseNumber()
		var v any
		if d.Decode(&v) != nil {
			return
		}
		_, _ = transfer.ParseReadObject("o", v)
		_, _ = transfer.ParseWriteObject("o", v)
		_, _ = transfer.ParseNamespace("o", v)
		_, _ = transfer.ParseUploaded("o", v)
	})
}
