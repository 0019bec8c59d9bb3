package tree_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"agentenv/sandbox/helper/tree"
	"agentenv/sandbox/helper/wire"
)

func archive(t testing.TB, hs ...tar.Header) *bytes.Buffer {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range hs {
		if h.Typeflag == tar.TypeReg {
			h.Size = 1
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if h.Size > 0 {
			w.Write([]byte("x"))
		}
	}
	w.Close()
	return &b
}

func FuzzUnpack(f *testing.F) {
	f.Add(archive(f, tar.Header{Typeflag: tar.TypeReg, Name: "a/b", Mode: 0o644}).Bytes())
	f.Add(archive(f, tar.Header{Typeflag: tar.TypeSymlink, Name: "l", Linkname: ".."}, tar.Header{Typeflag: tar.TypeReg, Name: "l/evil", Mode: 0o644}).Bytes())
	f.Add(archive(f, tar.Header{Typeflag: tar.TypeReg, Name: "../evil", Mode: 0o644}).Bytes())
	f.Fuzz(func(t *testing.T, in []byte) {
		top := t.TempDir()
		tree.Unpack(filepath.Join(top, "dest"), bytes.NewReader(in))
		list, err := os.ReadDir(top)
		if err != nil || len(list) > 1 || len(list) == 1 && list[0].Name() != "dest" {
			t.Errorf("written outside: %v, %v", list, err)
		}
	})
}

func TestUnpackRefuses(t *testing.T) {
	for name, h := range map[string]tar.Header{
		"parent":   {Typeflag: tar.TypeReg, Name: "../x"},
		"absolute": {Typeflag: tar.TypeReg, Name: "/x"},
		"inner":    {Typeflag: tar.TypeReg, Name: "a/../../x"},
		"device":   {Typeflag: tar.TypeChar, Name: "dev"},
		"hardlink": {Typeflag: tar.TypeLink, Name: "h", Linkname: "/etc/passwd"},
		"folder":   {Typeflag: tar.TypeReg, Name: "there"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "d")
			os.MkdirAll(filepath.Join(dir, "there"), 0o755)
			_, err := tree.Unpack(dir, archive(t, h))
			var f *wire.Failure
			if !errors.As(err, &f) || f.Kind != "invalid" && f.Kind != "unsupported" {
				t.Errorf("error %v", err)
			}
		})
	}
}

func TestUnpackModes(t *testing.T) {
	old := syscall.Umask(0o077)
	defer syscall.Umask(old)
	dir := filepath.Join(t.TempDir(), "new", "d")
	got, err := tree.Unpack(dir, archive(t, tar.Header{Typeflag: tar.TypeReg, Name: "sub/f", Mode: 0o755}))
	if err != nil || len(got) != 1 || got[0].Size != 1 || got[0].Mode != 0o755 {
		t.Fatalf("%+v, %v", got, err)
	}
	for _, p := range []string{filepath.Dir(dir), dir, filepath.Join(dir, "sub"), filepath.Join(dir, "sub/f")} {
		if fi, err := os.Stat(p); err != nil || fi.Mode().Perm() != 0o755 {
			t.Errorf("%s: %v, %v", p, fi.Mode(), err)
		}
	}
	if list, _ := os.ReadDir(filepath.Join(dir, "sub")); len(list) != 1 {
		t.Errorf("temporary files are left: %v", list)
	}
}

func TestWalkNotices(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "f")
	for name, size := range map[string]int64{"grows": 300_000, "shrinks": 10} {
		t.Run(name, func(t *testing.T) {
			os.WriteFile(file, make([]byte, 200_000), 0o644)
			seen := false
			err := tree.Walk([]string{file}, tree.Options{}, func(e wire.Entry, open func() (*tree.Body, error)) error {
				b, err := open()
				if err != nil {
					return err
				}
				defer b.Close()
				os.Truncate(file, size)
				_, err = io.Copy(io.Discard, b)
				var f *wire.Failure
				seen = errors.As(err, &f) && f.Kind == "conflict"
				return nil
			})
			if err != nil || !seen {
				t.Errorf("not noticed (%v)", err)
			}
		})
	}
	syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o644)
	kinds := ""
	tree.Walk([]string{dir}, tree.Options{Recurse: true, Hash: true}, func(e wire.Entry, _ func() (*tree.Body, error)) error {
		kinds += string(rune(e.Kind))
		return nil
	})
	if kinds != "dfo" {
		t.Errorf("kinds %q", kinds)
	}
}
