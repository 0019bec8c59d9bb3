// Package objecttest is the conformance suite of object stores: every driver passes it, those of third parties too.
package objecttest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"agentenv/fault"
	"agentenv/store/object"
)

// Run runs the suite. open returns a new, empty store; the suite closes what it opens.
func Run(t *testing.T, open func(t *testing.T) object.Store) {
	for name, run := range map[string]func(*suite){
		"put and read": putAndRead, "write once": writeOnce, "overwrite": overwrite, "sizes": sizes, "put all": putAll,
		"missing": missing, "list": list, "urls": urls, "bad keys": badKeys, "racing writers": racing, "body errors": bodyErrors,
		"canceled": canceled, "folders are no objects": folders,
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t)
			t.Cleanup(func() {
				if err := s.Close(); err != nil {
					t.Error("close:", err)
				}
			})
			run(&suite{T: t, s: s, ctx: t.Context()})
		})
	}
}

type suite struct {
	*testing.T
	s   object.Store
	ctx context.Context
}

func (t *suite) put(key, text, kind string) object.Written {
	t.Helper()
	w, err := t.s.Put(t.ctx, item(key, text, kind), false)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func item(key, text, kind string) object.Item {
	return object.Item{Key: key, ContentType: kind, Size: int64(len(text)), Body: strings.NewReader(text)}
}

func (t *suite) read(url string) string {
	t.Helper()
	r, err := t.s.Open(t.ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func (t *suite) kind(err error, want fault.Kind, says string) {
	t.Helper()
	if fault.KindOf(err) != want || err != nil && !strings.Contains(err.Error(), says) {
		t.Errorf("error %v of kind %q, want %q with %q", err, fault.KindOf(err), want, says)
	}
}

func sum(text string) string {
	h := sha256.Sum256([]byte(text))
	return hex.EncodeToString(h[:])
}

func putAndRead(t *suite) {
	for _, key := range []string{"a", "d/e/f.txt", "sp ace", "new\nline", "-dash", "é/ü", strings.Repeat("n", 255), "#?%20"} {
		w := t.put(key, "text of "+key, "text/plain")
		if w.Size != int64(len("text of "+key)) || w.SHA256 != sum("text of "+key) {
			t.Error(w)
		}
		if got := t.read(w.URL); got != "text of "+key {
			t.Errorf("%q: %q", key, got)
		}
		info, err := t.s.Stat(t.ctx, w.URL)
		if err != nil || info == nil || info.Size != w.Size || info.ContentType != "text/plain" || info.ModTime.IsZero() {
			t.Errorf("%q: %+v, %v", key, info, err)
		} else if info.SHA256 != "" && info.SHA256 != w.SHA256 {
			t.Error("the hash that is kept differs from the one that was told")
		}
	}
}

func writeOnce(t *suite) {
	w := t.put("k", "first", "")
	_, err := t.s.Put(t.ctx, item("k", "second", ""), false)
	t.kind(err, fault.Exists, "k")
	if t.read(w.URL) != "first" {
		t.Error("the first bytes are gone")
	}
	_, err = t.s.PutAll(t.ctx, all(item("new", "n", ""), item("k", "third", "")))
	t.kind(err, fault.Exists, "k")
	if t.read(w.URL) != "first" {
		t.Error("the first bytes are gone")
	}
}

func overwrite(t *suite) {
	w := t.put("k", "first", "text/plain")
	again, err := t.s.Put(t.ctx, item("k", "second, longer", "text/html"), true)
	if err != nil || again.URL != w.URL {
		t.Fatal(again, err)
	}
	info, err := t.s.Stat(t.ctx, w.URL)
	if t.read(w.URL) != "second, longer" || err != nil || info.ContentType != "text/html" || info.Size != 14 {
		t.Error(info, err)
	}
	if _, err := t.s.Put(t.ctx, item("fresh", "x", ""), true); err != nil {
		t.Error(err)
	}
}

func sizes(t *suite) {
	for _, n := range []int{0, 1, 4096, 1<<20 + 1, 5 << 20} {
		text := strings.Repeat("0123456789abcdef", n/16+1)[:n]
		w := t.put(fmt.Sprint("size-", n), text, "")
		if w.Size != int64(n) || w.SHA256 != sum(text) || t.read(w.URL) != text {
			t.Error(n, w)
		}
	}
	w, err := t.s.Put(t.ctx, object.Item{Key: "unknown", Size: -1, Body: bytes.NewReader([]byte("\x00\xff raw"))}, false)
	if err != nil || t.read(w.URL) != "\x00\xff raw" {
		t.Error(w, err)
	}
}

func all(items ...object.Item) func() (object.Item, error) {
	return func() (object.Item, error) {
		if len(items) == 0 {
			return object.Item{}, io.EOF
		}
		it := items[0]
		items = items[1:]
		return it, nil
	}
}

func putAll(t *suite) {
	var items []object.Item
	for i := range 300 {
		items = append(items, item(fmt.Sprintf("batch/%d/f%03d", i%7, i), fmt.Sprint("body ", i), "text/plain"))
	}
	ws, err := t.s.PutAll(t.ctx, all(items...))
	if err != nil || len(ws) != 300 {
		t.Fatal(len(ws), err)
	}
	for i, w := range ws {
		if w.SHA256 != sum(fmt.Sprint("body ", i)) || t.read(w.URL) != fmt.Sprint("body ", i) {
			t.Fatal(i, w)
		}
	}
	if ws, err := t.s.PutAll(t.ctx, all()); err != nil || len(ws) != 0 {
		t.Error(ws, err)
	}
	stop := errors.New("stop")
	if _, err := t.s.PutAll(t.ctx, func() (object.Item, error) { return object.Item{}, stop }); !errors.Is(err, stop) {
		t.Error(err)
	}
}

func missing(t *suite) {
	url, err := t.s.URL("none/at/all")
	if err != nil {
		t.Fatal(err)
	}
	_, err = t.s.Open(t.ctx, url)
	t.kind(err, fault.NotFound, "none/at/all")
	if info, err := t.s.Stat(t.ctx, url); info != nil || err != nil {
		t.Error(info, err)
	}
}

func list(t *suite) {
	if keys, err := t.s.List(t.ctx, ""); err != nil || len(keys) != 0 {
		t.Error("an unwritten store lists empty:", keys, err)
	}
	for _, k := range []string{"a/b", "a/c/d", "ab", "b", "a/.gitignore"} {
		t.put(k, k, "")
	}
	for prefix, want := range map[string][]string{
		"": {"a/.gitignore", "a/b", "a/c/d", "ab", "b"}, "a": {"a/.gitignore", "a/b", "a/c/d", "ab"}, "a/": {"a/.gitignore", "a/b", "a/c/d"},
		"a/c": {"a/c/d"}, "a/c/": {"a/c/d"}, "x": nil, "a/b/": nil, "a/c/d": {"a/c/d"},
	} {
		keys, err := t.s.List(t.ctx, prefix)
		if err != nil || !slices.Equal(keys, want) {
			t.Errorf("list %q: %q, %v, want %q", prefix, keys, err, want)
		}
	}
	base, err := t.s.URL("a/")
	if err != nil || !strings.HasSuffix(base, "/") {
		t.Fatal(base, err)
	}
	got, err := t.s.ListAt(t.ctx, base)
	want := []string{base + ".gitignore", base + "b", base + "c/d"}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
}

func urls(t *suite) {
	w := t.put("x/y", "z", "")
	key, err := t.s.Key(w.URL)
	if err != nil || key != "x/y" || !t.s.Owns(w.URL) {
		t.Error(key, err)
	}
	if url, err := t.s.URL("x/y"); err != nil || url != w.URL {
		t.Error(url, err)
	}
	for _, foreign := range []string{"", "s3://other-bucket-xyz/x", "x/y", "file://relative", "https://example.com/x"} {
		if t.s.Owns(foreign) {
			t.Errorf("owns %q", foreign)
		}
		_, err := t.s.Open(t.ctx, foreign)
		t.kind(err, fault.Invalid, "")
		_, err = t.s.Key(foreign)
		t.kind(err, fault.Invalid, "")
	}
}

func badKeys(t *suite) {
	for _, key := range []string{"../x", "a/../../x", "", "/abs", "a/", "nul\x00", "."} {
		_, err := t.s.Put(t.ctx, item(key, "x", ""), false)
		t.kind(err, fault.Invalid, "")
	}
	if keys, err := t.s.List(t.ctx, ""); err != nil || len(keys) != 0 {
		t.Error(keys, err)
	}
}

func racing(t *suite) {
	const racers = 8
	var wins atomic.Int32
	var winner atomic.Value
	var wg sync.WaitGroup
	for i := range racers {
		wg.Go(func() {
			text := strings.Repeat(fmt.Sprint(i), 10000)
			_, err := t.s.Put(t.ctx, item("race", text, "text/plain"), false)
			if err == nil {
				wins.Add(1)
				winner.Store(text)
			} else {
				t.kind(err, fault.Exists, "race")
			}
		})
	}
	wg.Wait()
	url, _ := t.s.URL("race")
	if wins.Load() != 1 || t.read(url) != winner.Load() {
		t.Error("winners:", wins.Load())
	}
}

// broken gives an error in the middle.
type broken struct{ n int }

func (b *broken) Read(p []byte) (int, error) {
	if b.n++; b.n > 3 {
		return 0, fault.New(fault.Unavailable, "the source broke")
	}
	return copy(p, "some"), nil
}

func bodyErrors(t *suite) {
	_, err := t.s.Put(t.ctx, object.Item{Key: "k", Size: -1, Body: &broken{}}, false)
	t.kind(err, fault.Unavailable, "broke")
	for _, size := range []int64{3, 5} {
		_, err := t.s.Put(t.ctx, object.Item{Key: "k", Size: size, Body: strings.NewReader("four")}, false)
		t.kind(err, fault.Invalid, "k")
	}
	if keys, err := t.s.List(t.ctx, ""); err != nil || len(keys) != 0 {
		t.Error("a failed write left", keys, err)
	}
}

func canceled(t *suite) {
	ctx, cancel := context.WithCancel(t.ctx)
	cancel()
	_, err := t.s.Put(ctx, item("k", "x", ""), false)
	t.kind(err, fault.Canceled, "")
	if keys, _ := t.s.List(t.ctx, ""); len(keys) != 0 {
		t.Error(keys)
	}
}

func folders(t *suite) {
	t.put("d/x", "x", "")
	url, err := t.s.URL("d")
	if err != nil {
		t.Fatal(err)
	}
	if info, err := t.s.Stat(t.ctx, url); info != nil || err != nil {
		t.Error(info, err)
	}
	_, err = t.s.Open(t.ctx, url)
	t.kind(err, fault.NotFound, "d")
}
