package localfs_test

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"agentenv/fault"
	"agentenv/store"
	"agentenv/store/object"
	"agentenv/store/object/localfs"
	"agentenv/store/object/objecttest"
)

func open(t testing.TB) *localfs.Store {
	t.Helper()
	s, err := localfs.New(filepath.Join(t.TempDir(), "objects"))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func item(key, text, kind string) object.Item {
	return object.Item{Key: key, ContentType: kind, Size: int64(len(text)), Body: strings.NewReader(text)}
}

func put(t *testing.T, s object.Store, key, text, kind string) object.Written {
	t.Helper()
	w, err := s.Put(t.Context(), item(key, text, kind), false)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func TestConformance(t *testing.T) {
	objecttest.Run(t, func(t *testing.T) object.Store { return open(t) })
}

func TestConformanceRouted(t *testing.T) {
	objecttest.Run(t, func(t *testing.T) object.Store { return object.NewRouter(open(t), open(t)) })
}

func TestOpeningAndReadingCreateNothing(t *testing.T) {
	s := open(t)
	url, _ := s.URL("k")
	s.Stat(t.Context(), url)
	s.List(t.Context(), "")
	if _, err := os.Lstat(s.Root()); err == nil {
		t.Error("the root was made by a read")
	}
}

func TestLayout(t *testing.T) {
	s := open(t)
	old := unix.Umask(0o077)
	defer unix.Umask(old)
	w := put(t, s, "d/k", "hello", "text/plain")
	if w.URL != "file://"+s.Root()+"/d/k" {
		t.Error(w.URL)
	}
	info, err := os.Stat(s.Root() + "/d/k")
	if err != nil || info.Mode().Perm() != 0o644 {
		t.Fatal(info, err)
	}
	text, err := os.ReadFile(s.Root() + "/.agentenv-meta/d/k")
	if err != nil {
		t.Fatal(err)
	}
	var r struct {
		ContentType string  `json:"content_type"`
		Object      []int64 `json:"object"`
	}
	if json.Unmarshal(text, &r) != nil || r.ContentType != "text/plain" || !slices.Equal(r.Object, []int64{5, info.ModTime().UnixNano()}) {
		t.Errorf("record %s", text)
	}
	left, _ := filepath.Glob(s.Root() + "/.agentenv-tmp/staged-*")
	dir, _ := os.Stat(s.Root())
	if len(left) != 0 || dir.Mode().Perm() != 0o700 {
		t.Error(left, dir.Mode())
	}
}

func TestTypeFollowsTheFile(t *testing.T) {
	s := open(t)
	w := put(t, s, "k", "hello", "text/plain")
	plain := put(t, s, "plain", "x", "application/octet-stream")
	kind := func(url string) string {
		info, err := s.Stat(t.Context(), url)
		if err != nil || info == nil {
			t.Fatal(info, err)
		}
		return info.ContentType
	}
	if kind(w.URL) != "text/plain" || kind(plain.URL) != "" {
		t.Error(kind(w.URL), kind(plain.URL))
	}
	if info, _ := s.Stat(t.Context(), w.URL); info.SHA256 != w.SHA256 {
		t.Error("the hash is not kept")
	}
	now := time.Now()
	os.Chtimes(s.Root()+"/k", now, now)
	if info, _ := s.Stat(t.Context(), w.URL); info.ContentType != "" || info.SHA256 != "" {
		t.Error("a record of other bytes was believed")
	}
	for _, bad := range []string{"", "{", `{"content_type": 3}`, `{"content_type": "x", "object": [1]}`, `[]`} {
		os.WriteFile(s.Root()+"/.agentenv-meta/k", []byte(bad), 0o644)
		if kind(w.URL) != "" {
			t.Errorf("record %q was believed", bad)
		}
	}
}

func TestKeysStayInside(t *testing.T) {
	s := open(t)
	put(t, s, "a/x", "x", "")
	outside := t.TempDir()
	os.WriteFile(outside+"/secret", []byte("s"), 0o600)
	os.Symlink(outside, s.Root()+"/link")
	os.Symlink(outside+"/secret", s.Root()+"/file")
	os.Symlink(outside+"/nowhere", s.Root()+"/dangling")
	for _, key := range []string{
		".gitignore", "a/../.gitignore", ".agentenv-meta/x", ".agentenv-tmp/x", "link/new", "link/secret", "file", "dangling", "dangling/x",
		"a/x/below", strings.Repeat("n", 256), "a/" + strings.Repeat("n", 256) + "/b", strings.Repeat("n/", 2500),
	} {
		_, err := s.Put(t.Context(), item(key, "x", ""), true)
		if fault.KindOf(err) != fault.Invalid || !strings.Contains(err.Error(), strings.SplitN(key, "/", 2)[0][:min(5, len(strings.SplitN(key, "/", 2)[0]))]) {
			t.Errorf("%.40q: %v", key, err)
		}
	}
	if _, err := s.Put(t.Context(), item("a", "x", ""), false); fault.KindOf(err) != fault.Exists && fault.KindOf(err) != fault.Invalid {
		t.Error(err)
	}
	if _, err := s.Put(t.Context(), item("a", "x", ""), true); fault.KindOf(err) != fault.Invalid {
		t.Error(err)
	}
	put(t, s, "nested/.gitignore", "x", "")
	for _, url := range []string{"file:///etc/hostname", "/etc/hostname", "file://" + s.Root() + "/link/secret", "file://" + s.Root() + "/../x", "file://" + outside + "/secret"} {
		if _, err := s.Open(t.Context(), url); fault.KindOf(err) != fault.Invalid {
			t.Errorf("%s: %v", url, err)
		}
	}
	if entries, _ := os.ReadDir(outside); len(entries) != 1 {
		t.Error("something was written outside")
	}
	keys, err := s.List(t.Context(), "")
	if err != nil || !slices.Equal(keys, []string{"a/x", "nested/.gitignore"}) {
		t.Error("links are followed or listed:", keys, err)
	}
}

func TestRootURL(t *testing.T) {
	s := open(t)
	put(t, s, "a//b", "x", "")
	if k, err := s.Key("file://" + s.Root()); k != "." || err != nil {
		t.Error(k, err)
	}
	urls, err := s.ListAt(t.Context(), "file://"+s.Root()+"/")
	if err != nil || len(urls) != 1 || urls[0] != "file://"+s.Root()+"/a/b" {
		t.Error(urls, err)
	}
}

func TestLockFiles(t *testing.T) {
	root := "/tmp/agentenv-localfs-lock-test"
	os.RemoveAll(root)
	defer os.RemoveAll(root)
	s, _ := localfs.New(root)
	put(t, s, "k", "x", "")
	locks, _ := filepath.Glob(root + "/.agentenv-tmp/lock-*")
	if len(locks) != 1 || filepath.Base(locks[0]) != localfs.LockName(root+"/k") {
		t.Error(locks)
	}
	for p, want := range map[string]string{"/srv/objs/k": "lock-9d", "/srv/objs/a/b.txt": "lock-38"} {
		if got := localfs.LockName(p); got != want {
			t.Errorf("%s: %s, want %s", p, got, want)
		}
	}
	f, err := os.OpenFile(locks[0], os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	// The record belongs to the object, so it can be believed at once.
	if info, err := s.Stat(t.Context(), "file://"+root+"/k"); err != nil || info.SHA256 == "" {
		t.Error(info, err)
	}
	// Without it a writer may be about to bring it.
	os.Remove(root + "/.agentenv-meta/k")
	done := make(chan error, 1)
	go func() {
		_, err := s.Stat(t.Context(), "file://"+root+"/k")
		done <- err
	}()
	select {
	case err := <-done:
		t.Fatal("a reader did not wait for the writer:", err)
	case <-time.After(50 * time.Millisecond):
	}
	f.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestSweep(t *testing.T) {
	s := open(t)
	put(t, s, "k", "x", "")
	tmp := s.Root() + "/.agentenv-tmp/"
	past := time.Now().Add(-2 * time.Minute)
	for _, n := range []string{"staged-old", "staged-new", "staged-held", "other"} {
		os.WriteFile(tmp+n, nil, 0o644)
		if n != "staged-new" {
			os.Chtimes(tmp+n, past, past)
		}
	}
	f, _ := os.Open(tmp + "staged-held")
	defer f.Close()
	unix.Flock(int(f.Fd()), unix.LOCK_EX)
	again, _ := localfs.New(s.Root())
	put(t, again, "k2", "x", "")
	var left []string
	entries, _ := os.ReadDir(tmp)
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), "lock-") {
			left = append(left, e.Name())
		}
	}
	if !slices.Equal(left, []string{"other", "staged-held", "staged-new"}) {
		t.Error(left)
	}
}

// TestBatchAppearsWhole looks into the store while a batch is on its way: no name is there before the last body was read, and
// none at all when one of them fails.
func TestBatchAppearsWhole(t *testing.T) {
	s := open(t)
	put(t, s, "before", "x", "")
	for _, fails := range []bool{false, true} {
		n := 0
		ws, err := s.PutAll(t.Context(), func() (object.Item, error) {
			keys, err := s.List(t.Context(), "batch")
			if err != nil || len(keys) != 0 {
				t.Fatalf("after %d bodies there are %q, %v", n, keys, err)
			}
			switch n++; {
			case fails && n == 40:
				return object.Item{Key: "batch/short", Size: 5, Body: strings.NewReader("four")}, nil
			case n > 50:
				return object.Item{}, io.EOF
			}
			return item(fmt.Sprintf("batch%v/%d", fails, n), "body", "text/plain"), nil
		})
		keys, lerr := s.List(t.Context(), fmt.Sprintf("batch%v/", fails))
		if lerr != nil || fails != (err != nil) || fails && len(keys) != 0 || !fails && (len(keys) != 50 || len(ws) != 50) {
			t.Errorf("fails %v: %d keys, %v, %v", fails, len(keys), err, lerr)
		}
		if left, _ := filepath.Glob(s.Root() + "/.agentenv-tmp/[^l]*"); len(left) != 0 {
			t.Error("left behind:", left)
		}
		for _, k := range keys {
			os.Remove(s.Root() + "/" + k)
		}
	}
}

func TestBatchFollowsNoLink(t *testing.T) {
	s := open(t)
	put(t, s, "a/x", "x", "")
	outside := t.TempDir()
	must(t, os.WriteFile(outside+"/secret", []byte("s"), 0o600))
	must(t, os.Symlink(outside+"/secret", s.Root()+"/a/link"))
	must(t, os.Symlink(outside, s.Root()+"/out"))
	must(t, os.Symlink(s.Root()+"/a", s.Root()+"/in"))
	for key, want := range map[string]fault.Kind{"a/link": fault.Exists, "out/new": fault.Invalid, "in/x": fault.Exists, "a": fault.Invalid, "a/x/y": fault.Invalid} {
		_, err := s.PutAll(t.Context(), once(item(key, "new", "")))
		if fault.KindOf(err) != want || !strings.Contains(fmt.Sprint(err), key) {
			t.Errorf("%s: %v, want %s", key, err, want)
		}
	}
	ws, err := s.PutAll(t.Context(), once(item("in/y", "new", "")))
	if err != nil || ws[0].URL != "file://"+s.Root()+"/a/y" {
		t.Error("a link inside the store is followed:", ws, err)
	}
	entries, _ := os.ReadDir(outside)
	text, _ := os.ReadFile(outside + "/secret")
	if len(entries) != 1 || string(text) != "s" {
		t.Error("something was written outside:", entries, string(text))
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func once(it object.Item) func() (object.Item, error) {
	done := false
	return func() (object.Item, error) {
		if done {
			return object.Item{}, io.EOF
		}
		done = true
		return it, nil
	}
}

func TestSweepOfDeadBatches(t *testing.T) {
	s := open(t)
	put(t, s, "k", "x", "")
	tmp := s.Root() + "/.agentenv-tmp/"
	past := time.Now().Add(-2 * time.Minute)
	for _, n := range []string{"batch-dead", "batch-young", "batch-held"} {
		must(t, os.Mkdir(tmp+n, 0o700))
		must(t, os.WriteFile(tmp+n+"/0", []byte("staged"), 0o644))
		if n != "batch-young" {
			must(t, os.Chtimes(tmp+n, past, past))
		}
	}
	f, err := os.Open(tmp + "batch-held")
	must(t, err)
	defer f.Close()
	must(t, unix.Flock(int(f.Fd()), unix.LOCK_EX))
	again, err := localfs.New(s.Root())
	must(t, err)
	put(t, again, "k2", "x", "")
	left, _ := filepath.Glob(tmp + "batch-*")
	if !slices.Equal(left, []string{tmp + "batch-held", tmp + "batch-young"}) {
		t.Error(left)
	}
}

// TestRacingBatches lets batches of several stores write one key each and one key together.
func TestRacingBatches(t *testing.T) {
	root := open(t).Root()
	var wg sync.WaitGroup
	var won atomic.Int32
	for i := range 8 {
		wg.Go(func() {
			s, err := localfs.New(root)
			if err != nil {
				t.Error(err)
				return
			}
			items := []object.Item{item(fmt.Sprint("own/", i), fmt.Sprint(i), ""), item("shared", strings.Repeat(fmt.Sprint(i), 1000), "text/plain")}
			_, err = s.PutAll(t.Context(), func() (object.Item, error) {
				if len(items) == 0 {
					return object.Item{}, io.EOF
				}
				it := items[0]
				items = items[1:]
				return it, nil
			})
			switch {
			case err == nil:
				won.Add(1)
			case !fault.Is(err, fault.Exists):
				t.Error(err)
			}
		})
	}
	wg.Wait()
	s, _ := localfs.New(root)
	text, err := os.ReadFile(root + "/shared")
	info, serr := s.Stat(t.Context(), "file://"+root+"/shared")
	if won.Load() != 1 || err != nil || len(text) != 1000 || strings.Trim(string(text), string(text[:1])) != "" {
		t.Errorf("%d winners, %d bytes, %v", won.Load(), len(text), err)
	}
	if serr != nil || info.ContentType != "text/plain" || info.SHA256 == "" {
		t.Error("the winner's record is not there:", info, serr)
	}
}

func TestRouter(t *testing.T) {
	conf, local := open(t), open(t)
	r := object.NewRouter(conf, local)
	run := store.WithRunScope(t.Context(), "@local/~/run")
	w, err := r.Put(run, item("k", "private", ""), false)
	if err != nil || !local.Owns(w.URL) {
		t.Fatal(w, err)
	}
	if body, err := r.Open(t.Context(), w.URL); err != nil {
		t.Error(err)
	} else {
		body.Close()
	}
	if w := put(t, r, "k", "shared", ""); !conf.Owns(w.URL) {
		t.Error(w)
	}
	if _, err := r.For(run, "bare"); fault.KindOf(err) != fault.Denied {
		t.Error(err)
	}
	if s, err := object.Placed(t.Context(), r, "@local/x"); err != nil || s != object.Store(local) {
		t.Error(s, err)
	}
	if err := r.CheckURL("bare", w.URL); fault.KindOf(err) != fault.Invalid {
		t.Error(err)
	}
	if err := r.CheckURL("@local/x", w.URL); err != nil {
		t.Error(err)
	}
}

// pattern is an endless body that costs nothing to make.
type pattern struct{}

func (pattern) Read(p []byte) (int, error) { return len(p), nil }

func TestStreamingNeedsNoMemory(t *testing.T) {
	s := open(t)
	const size = 256 << 20
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	w, err := s.PutAll(t.Context(), func() func() (object.Item, error) {
		done := false
		return func() (object.Item, error) {
			if done {
				return object.Item{}, io.EOF
			}
			done = true
			return object.Item{Key: "big", Size: size, Body: io.LimitReader(pattern{}, size)}, nil
		}
	}())
	runtime.ReadMemStats(&after)
	if err != nil || w[0].Size != size {
		t.Fatal(w, err)
	}
	if got := after.TotalAlloc - before.TotalAlloc; got > 8<<20 {
		t.Errorf("%d bytes allocated for one object", got)
	}
}

func BenchmarkPutAll1000(b *testing.B) {
	for b.Loop() {
		s := open(b)
		i := 0
		if _, err := s.PutAll(b.Context(), func() (object.Item, error) {
			if i++; i > 1000 {
				return object.Item{}, io.EOF
			}
			return item(fmt.Sprintf("d/%d/f%d", i%10, i), "some small text", "text/plain"), nil
		}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkPut256MiB(b *testing.B) {
	b.SetBytes(256 << 20)
	for b.Loop() {
		s := open(b)
		if _, err := s.Put(b.Context(), object.Item{Key: "k", Size: 256 << 20, Body: io.LimitReader(pattern{}, 256<<20)}, false); err != nil {
			b.Fatal(err)
		}
		os.RemoveAll(s.Root())
	}
}

func FuzzKeys(f *testing.F) {
	for _, k := range []string{"a", "../a", "a/../../b", "/", ".", "a//b/", ".agentenv-meta", "\x00", "é"} {
		f.Add(k)
	}
	s, err := localfs.New("/nonexistent-root/objects")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, key string) {
		url, err := s.URL(key)
		if err != nil {
			return
		}
		if !strings.HasPrefix(url, "file:///nonexistent-root/objects") || strings.Contains(url, "/../") {
			t.Errorf("%q → %q", key, url)
		}
		if _, err := s.Key(url); err != nil {
			t.Errorf("%q → %q: %v", key, url, err)
		}
	})
}
