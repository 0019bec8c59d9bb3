package sandboxtest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"path"
	"strings"
	"sync"
	"testing"

	"agentenv/fault"
	"agentenv/sandbox/place"
)

type box struct {
	place.Place
	work, secret, uid, probe string
	shell, root              bool
}

func testFiles(t *testing.T, b box, big int64) {
	ctx := t.Context()
	t.Run("names", func(t *testing.T) {
		names := []string{"a", "with space", "new\nline", "-rf", "ünï/日本", strings.Repeat("n", 255), "bad\xff", "deep/er/est", `quo"te'$x`, "empty"}
		var src []place.Source
		want := map[string]string{}
		for i, n := range names {
			body := bytes.Repeat([]byte{byte(i), 0, 0xff, '\n'}, i*1000)
			if n == "empty" {
				body = nil
			}
			want[n] = string(body)
			src = append(src, place.Bytes(n, 0, body))
		}
		src = append(src, place.Bytes("run.sh", 0o700, []byte("#!/bin/sh\n")), place.Source{Name: "folder", Folder: true}, place.Source{Name: "link", Link: "a"})
		dir := b.work + "/names"
		for range 2 { // the second time everything is replaced
			if _, err := place.Put(ctx, b, dir, src, nil); err != nil {
				t.Fatal(err)
			}
		}
		got := read(t, b, place.GetRequest{Roots: []string{dir}})
		for n, body := range want {
			if f, ok := got[n]; !ok || f.body != body {
				t.Errorf("%q: came back with %d bytes (there: %v), want %d", n, len(f.body), ok, len(body))
			}
		}
		if e := got["run.sh"].Entry; e.Mode.Perm() != 0o755 {
			t.Errorf("run.sh has mode %v, want 0755", e.Mode)
		}
		if e := got["a"].Entry; e.Mode.Perm() != 0o644 || b.root && (e.UID != 0 || e.GID != 0) {
			t.Errorf("a has mode %v and owner %d:%d, want 0644 of root", e.Mode, e.UID, e.GID)
		}
		if e := got["deep/er"].Entry; e.Mode.Perm() != 0o755 || e.Kind != place.Dir {
			t.Errorf("deep/er is %v %v, want a folder with mode 0755", e.Kind, e.Mode)
		}
		if e := got["link"].Entry; e.Kind != place.Symlink || e.Link != "a" {
			t.Errorf("link is %v to %q", e.Kind, e.Link)
		}
		sums := map[string]string{}
		for e, err := range b.Walk(ctx, dir, true) {
			if err != nil {
				t.Fatal(err)
			}
			sums[e.Name] = e.SHA256
		}
		for n, body := range want {
			if s := sha256.Sum256([]byte(body)); sums[n] != hex.EncodeToString(s[:]) {
				t.Errorf("%q: walk gives the sha256 %q", n, sums[n])
			}
		}
	})
	t.Run("links in the way", func(t *testing.T) {
		dir := b.work + "/links"
		put(t, b, dir, place.Bytes("target", 0, []byte("old")), place.Source{Name: "link", Link: "target"}, place.Source{Name: "sub", Link: "/"},
			place.Source{Name: "dangling", Link: "nowhere"}, place.Source{Name: "loop", Link: "loop"}, place.Source{Name: "out", Link: "../../../../etc"})
		got := read(t, b, place.GetRequest{Roots: []string{dir}})
		for _, n := range []string{"link", "sub", "dangling", "loop", "out"} {
			if got[n].Kind != place.Symlink {
				t.Errorf("%s came back as %v", n, got[n].Kind)
			}
		}
		if _, err := b.Stat(ctx, dir+"/loop", true); err == nil {
			t.Error("a looping link has a target")
		}
		if _, err := b.Stat(ctx, dir+"/dangling", true); !fault.Is(err, fault.NotFound) {
			t.Errorf("a dangling link: %v, want a not-found error", err)
		}
		put(t, b, dir, place.Bytes("link", 0, []byte("new")), place.Bytes("sub/x", 0, []byte("inside")))
		got = read(t, b, place.GetRequest{Roots: []string{dir}})
		if got["target"].body != "old" || got["link"].body != "new" || got["link"].Kind != place.File || got["sub/x"].body != "inside" {
			t.Errorf("links were followed: %+v", got)
		}
	})
	t.Run("roots", func(t *testing.T) {
		dir := b.work + "/roots"
		put(t, b, dir, place.Bytes("d/x", 0, []byte("1")), place.Bytes("d/skip/y", 0, []byte("2")), place.Source{Name: "to-d", Link: "d"})
		got := readAll(t, b, place.GetRequest{Follow: true, Roots: []string{dir + "/to-d", dir + "/absent", dir + "/d/x"}, Skip: func(root, name string) bool { return name == "skip" }})
		var have []string
		for _, f := range got {
			have = append(have, fmt.Sprintf("%d:%s:%s:%v", f.Root, f.Name, f.body, fault.KindOf(f.Err)))
		}
		want := []string{"0:::", "0:x:1:", "1:::not found", "2::1:"}
		if strings.Join(have, " ") != strings.Join(want, " ") {
			t.Errorf("got %q, want %q", have, want)
		}
	})
	t.Run("bad names", func(t *testing.T) {
		for _, n := range []string{"", "/etc/x", "../x", "a/../../x", `a\..\..\x`, "nul\x00"} {
			ok := place.Bytes("fine", 0, []byte("x"))
			if _, err := place.Put(ctx, b, b.work+"/bad", []place.Source{ok, place.Bytes(n, 0, nil)}, nil); !fault.Is(err, fault.Invalid) {
				t.Errorf("%q: %v, want an invalid error", n, err)
			}
		}
		if _, err := b.Stat(ctx, b.work+"/bad", false); !fault.Is(err, fault.NotFound) {
			t.Errorf("something was written: %v", err)
		}
	})
	t.Run("wrong content", func(t *testing.T) {
		short := place.Bytes("short", 0, []byte("123"))
		short.Size = 4
		long := place.Bytes("long", 0, []byte("123"))
		long.Size = 2
		sum := place.Bytes("sum", 0, []byte("123"))
		sum.SHA256 = strings.Repeat("0", 64)
		for _, s := range []place.Source{short, long, sum} {
			if _, err := place.Put(ctx, b, b.work+"/wrong", []place.Source{s}, nil); err == nil || !strings.Contains(err.Error(), s.Name) {
				t.Errorf("%s: error %v, want one that names it", s.Name, err)
			}
		}
	})
	t.Run("two at once", func(t *testing.T) {
		var both sync.WaitGroup
		for i := range 2 {
			both.Go(func() {
				var src []place.Source
				for k := range 50 {
					src = append(src, place.Bytes(fmt.Sprintf("%d/%d", k, i), 0, []byte("x")))
				}
				if _, err := place.Put(ctx, b, b.work+"/both", src, nil); err != nil {
					t.Error(err)
				}
			})
		}
		both.Wait()
		if n := files(read(t, b, place.GetRequest{Roots: []string{b.work + "/both"}})); n != 100 {
			t.Errorf("%d files, want 100", n)
		}
	})
	t.Run("many", func(t *testing.T) {
		var src []place.Source
		for i := range 10_000 {
			src = append(src, place.Bytes(fmt.Sprintf("%d/%d", i%100, i), 0, []byte("small")))
		}
		put(t, b, b.work+"/many", src...)
		if n := files(read(t, b, place.GetRequest{Roots: []string{b.work + "/many"}})); n != 10_000 {
			t.Errorf("%d files, want 10000", n)
		}
	})
	t.Run("big", func(t *testing.T) {
		put(t, b, b.work+"/big", place.Source{Name: "x", Size: big, Body: func(context.Context) (io.ReadCloser, error) { return noise(big), nil }})
		g, err := b.Get(ctx, place.GetRequest{Roots: []string{b.work + "/big/x"}})
		if err != nil {
			t.Fatal(err)
		}
		defer g.Close()
		if _, err := g.Next(); err != nil {
			t.Fatal(err)
		}
		got, want := sha256.New(), sha256.New()
		if n, err := io.Copy(got, g); err != nil || n != big {
			t.Fatalf("%d bytes, %v", n, err)
		}
		io.Copy(want, noise(big))
		if !bytes.Equal(got.Sum(nil), want.Sum(nil)) {
			t.Error("the content differs")
		}
	})
	if b.secret != "" {
		t.Run("root only", func(t *testing.T) {
			put(t, b, b.secret, place.Bytes("key", 0, []byte("hidden")))
			if got := read(t, b, place.GetRequest{Roots: []string{b.secret}}); got["key"].body != "hidden" || got[""].Mode.Perm() != 0o700 {
				t.Errorf("got %+v", got)
			}
		})
	}
	t.Run("absent", func(t *testing.T) {
		if _, err := b.Stat(ctx, b.work+"/absent", true); !fault.Is(err, fault.NotFound) {
			t.Errorf("stat: %v", err)
		}
		for _, err := range b.Walk(ctx, b.work+"/absent", false) {
			if !fault.Is(err, fault.NotFound) {
				t.Errorf("walk: %v", err)
			}
		}
		if _, err := b.Stat(ctx, "relative", true); !fault.Is(err, fault.Invalid) {
			t.Errorf("a relative path: %v", err)
		}
	})
}

func noise(n int64) io.ReadCloser {
	var seed [32]byte
	return io.NopCloser(io.LimitReader(rand.NewChaCha8(seed), n))
}

func put(t *testing.T, p place.Place, dir string, src ...place.Source) {
	t.Helper()
	if _, err := place.Put(t.Context(), p, dir, src, nil); err != nil {
		t.Fatal(err)
	}
}

type found struct {
	place.Entry
	body string
}

func readAll(t *testing.T, p place.Place, req place.GetRequest) []found {
	t.Helper()
	g, err := p.Get(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	var out []found
	for {
		e, err := g.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		f := found{Entry: e}
		if e.Kind == place.File && e.Err == nil {
			b, err := io.ReadAll(g)
			if err != nil {
				t.Errorf("%s: %v", path.Join(req.Roots[e.Root], e.Name), err)
			}
			f.body = string(b)
		}
		out = append(out, f)
	}
}

func read(t *testing.T, p place.Place, req place.GetRequest) map[string]found {
	t.Helper()
	out := map[string]found{}
	for _, f := range readAll(t, p, req) {
		out[f.Name] = f
	}
	return out
}

func files(m map[string]found) (n int) {
	for _, f := range m {
		if f.Kind == place.File {
			n++
		}
	}
	return n
}
