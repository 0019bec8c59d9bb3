package store_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"agentenv/fault"
	"agentenv/store"
)

func TestEncodingsAreFrozen(t *testing.T) {
	long := strings.Repeat("y", 201)
	for _, c := range []struct{ id, key, file, image string }{
		{"@local/~/shop/orders", "local/shop-orders-715e9aaf9f60", "local-shop-orders-715e9aaf9f60", "local/shop-orders-715e9aaf9f60"},
		{"@local/~/Shop/Orders", "local/shop-orders-6927f00d0f79", "local-shop-orders-6927f00d0f79", "local/shop-orders-6927f00d0f79"},
		{"@local/~/東京", "local/6ccc20585671", "local-6ccc20585671", "local/6ccc20585671"},
		{"@local/~/Añejo Café/Desk (v2)", "local/anejo-cafe-desk-v2-97226c3f8124", "local-anejo-cafe-desk-v2-97226c3f8124", "local/anejo-cafe-desk-v2-97226c3f8124"},
		{"@local/~/a~b/c", "local/ab-c-3be3c21789a2", "local-ab-c-3be3c21789a2", "local/ab-c-3be3c21789a2"},
		{"@local/~/demo/u", "local/demo-u-fc0ed94c7cc7", "local-demo-u-fc0ed94c7cc7", "local/demo-u-fc0ed94c7cc7"},
		{"orders", "orders", "orders", "local/orders-1c168adb00d2"},
		{long, long[:48] + "-9646bc459c4c", long, "local/" + long[:48] + "-9646bc459c4c"},
	} {
		if got := store.KeySegment(c.id); got != c.key {
			t.Errorf("KeySegment(%q) = %q, want %q", c.id, got, c.key)
		}
		if got := store.FSSafe(c.id); got != c.file {
			t.Errorf("FSSafe(%q) = %q, want %q", c.id, got, c.file)
		}
		if got := store.ImageRepository(c.id); got != c.image {
			t.Errorf("ImageRepository(%q) = %q, want %q", c.id, got, c.image)
		}
	}
	if got := store.DerivedID("@local/~/a", "b"); got != "@local/~/a__b" {
		t.Error(got)
	}
}

func TestCheckLocalID(t *testing.T) {
	for _, id := range []string{"@local/~/a", "@local/a", "@local/~/Añejo Café/Desk (v2)", "@local/~/e\u0301", "@local/a@b+c,d&e_f.g", "@local/~/東京"} {
		if err := store.CheckLocalID(id); err != nil {
			t.Errorf("%q: %v", id, err)
		}
	}
	for _, c := range []struct{ id, says string }{
		{"orders", "does not start"},
		{"@local", "does not start"},
		{"@local/" + strings.Repeat("x", 4090), "bytes long"},
		{"@local/a:b", ":"},
		{"@local/a\u200bb", `\u200b`},
		{"@local/a\ufe0f", `\ufe0f`},
		{"@local/\xff", `\xff`},
		{"@local/", "segment"},
		{"@local/a//b", "segment"},
		{"@local/a/../b", "segment"},
		{"@local/a/ b", "space"},
		{"@local/a /b", "space"},
		{"@local/a/\u0301b", "combining"},
		{"@local/a.\u0301b", "combining"},
	} {
		err := store.CheckLocalID(c.id)
		if fault.KindOf(err) != fault.Invalid || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%q: %v, want Invalid with %q", c.id, err, c.says)
		}
	}
	if store.CheckAuthoredID("@local/"+strings.Repeat("x", 4071-7)) != nil || store.CheckAuthoredID("@local/"+strings.Repeat("x", 4072-7)) == nil {
		t.Error("the limit of authored ids is 4071 bytes")
	}
}

func TestBareIDs(t *testing.T) {
	for id, want := range map[string][2]bool{
		"orders":                       {true, true},
		"@local/x":                     {false, false},
		"@acme/x":                      {false, false},
		"local/x":                      {true, false},
		"local-a-0123456789ab":         {true, false},
		"local-0123456789ab":           {true, false},
		"local-0123456789ab/x":         {true, false},
		"local-0123456789abc":          {true, true},
		"local-orders":                 {true, true},
		"locality/x":                   {true, true},
		"local-shop-orders-zz3456789a": {true, true},
	} {
		if got := [2]bool{store.CheckBareID(id) == nil, store.CheckUnencodedID(id) == nil}; got != want {
			t.Errorf("%q: %v, want %v", id, got, want)
		}
	}
}

func TestLockEntities(t *testing.T) {
	root := t.TempDir()
	release, err := store.LockEntities(t.Context(), root, []string{"orders", "b", "orders"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(root, "locks", "entity-1c168adb00d208e4.lock"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatal(info, err)
	}
	waiting := make(chan struct{})
	got := make(chan error)
	go func() {
		again, err := store.LockEntities(t.Context(), root, []string{"b", "orders"}, func() { close(waiting) })
		if err == nil {
			again()
			again()
		}
		got <- err
	}()
	<-waiting
	ctx, cancel := context.WithTimeoutCause(t.Context(), 20*time.Millisecond, errors.New("out of time"))
	defer cancel()
	if _, err := store.LockEntities(ctx, root, []string{"c", "b"}, nil); fault.KindOf(err) != fault.Timeout {
		t.Errorf("a lock that stays busy: %v", err)
	}
	other, err := store.LockEntities(t.Context(), root, []string{"c"}, nil)
	if err != nil {
		t.Fatal("a failed call keeps nothing:", err)
	}
	other()
	release()
	if err := <-got; err != nil {
		t.Fatal(err)
	}
}

func TestLocksExclude(t *testing.T) {
	root := t.TempDir()
	var wg sync.WaitGroup
	var inside, done atomic.Int32
	for range 8 {
		wg.Go(func() {
			release, err := store.LockEntities(t.Context(), root, []string{"y", "x"}, nil)
			if err != nil {
				t.Error(err)
				return
			}
			if inside.Add(1) != 1 {
				t.Error("two hold the lock")
			}
			time.Sleep(time.Millisecond)
			inside.Add(-1)
			done.Add(1)
			release()
		})
	}
	wg.Wait()
	if done.Load() != 8 {
		t.Error(done.Load())
	}
}

func TestLockFileIsNoLink(t *testing.T) {
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "locks"), 0o700); err != nil {
		t.Fatal(err)
	}
	target := filepath.Join(root, "target")
	if err := os.Symlink(target, filepath.Join(root, "locks", "entity-1c168adb00d208e4.lock")); err != nil {
		t.Fatal(err)
	}
	if _, err := store.LockEntities(t.Context(), root, []string{"orders"}, nil); err == nil {
		t.Fatal("a link was followed")
	}
}

func TestMakeDir(t *testing.T) {
	p := filepath.Join(t.TempDir(), "a", "b")
	if err := store.MakeDir(p); err != nil {
		t.Fatal(err)
	}
	text, _ := os.ReadFile(filepath.Join(p, ".gitignore"))
	info, _ := os.Stat(p)
	if string(text) != "*\n" || info.Mode().Perm() != 0o700 {
		t.Error(string(text), info.Mode())
	}
	os.Remove(filepath.Join(p, ".gitignore"))
	if err := store.MakeDir(p); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(p, ".gitignore")); err == nil {
		t.Error("a folder that was there got a .gitignore")
	}
	file := filepath.Join(p, "f")
	os.WriteFile(file, nil, 0o600)
	err := store.MakeDir(filepath.Join(file, "x"))
	if err == nil || !strings.Contains(err.Error(), "XDG_STATE_HOME") || fault.ClassOf(err) != "ConfigError" {
		t.Error(err)
	}
	if err := store.MakeDir(file); err == nil {
		t.Error("a file passed as a folder")
	}
}

func FuzzIDs(f *testing.F) {
	for _, s := range []string{"@local/~/a", "@local/\u0301", "orders", "local-x", "@local/ß/İ"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, id string) {
		store.CheckUnencodedID(id)
		if store.CheckLocalID(id) != nil {
			return
		}
		s := store.FSSafe(id)
		if strings.ContainsAny(s, "/\\") || len(s) > 70 || store.CheckUnencodedID(s) == nil {
			t.Errorf("%q → %q", id, s)
		}
	})
}
