//go:build integration

package e2e_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"agentenv/test/kit"
)

// damages are ways in which a database file stops being one.
var damages = map[string]func(whole []byte) []byte{
	"text":      func([]byte) []byte { return []byte(strings.Repeat("garbage\n", 5000)) },
	"bytes":     func(whole []byte) []byte { return []byte(strings.Repeat("\x00\xff\x5a\xa5", len(whole)/4)) },
	"a page":    func(whole []byte) []byte { return append(whole[:200:200], strings.Repeat("\xa5", len(whole)-200)...) },
	"cut short": func(whole []byte) []byte { return whole[:1000] },
}

// damage replaces a database below the state folder and removes the files beside it.
func (k *user) damage(name string, how func([]byte) []byte) {
	k.T.Helper()
	file := filepath.Join(k.State, name)
	whole, err := os.ReadFile(file)
	if err != nil {
		k.T.Fatal(err)
	}
	for _, end := range []string{"-wal", "-shm"} {
		if err := os.Remove(file + end); err != nil && !os.IsNotExist(err) {
			k.T.Fatal(err)
		}
	}
	if err := os.WriteFile(file, how(whole), 0o600); err != nil {
		k.T.Fatal(err)
	}
}

// TestDamagedLedger has a ledger that no longer is a database: every command that needs it says so in one line, and how to go on.
func TestDamagedLedger(t *testing.T) {
	for name, how := range damages {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := newUser(t)
			k.ok("run", "hello")
			k.damage("sandboxes.db", how)
			file := filepath.Join(k.State, "sandboxes.db")
			wants := []string{file, "the file is damaged", "-wal", "-shm", "away", "the next run makes a new one"}
			for _, args := range []string{"sandbox list", "sandbox list --json", "sandbox prune", "sandbox prune --yes"} {
				r := k.run(strings.Fields(args)...)
				if r.Code != 1 || r.Stdout != "" {
					t.Errorf("%s: %s", args, r)
				}
				k.oneLine(r.Stderr, wants...)
			}
			s, r := k.summed("hello")
			if r.Code != 1 || len(s.Tasks) != 1 || len(s.Tasks[0].Failures) != 1 {
				t.Fatal(r)
			}
			f := s.Tasks[0].Failures[0]
			k.oneLine("Error: "+f.Error+"\n", append(wants, f.Step)...)
			if left := k.leftovers(); left != "" {
				t.Errorf("left behind: %s", left)
			}
			// The remedy is one.
			if err := os.Rename(file, file+".damaged"); err != nil {
				t.Fatal(err)
			}
			for _, end := range []string{"-wal", "-shm"} {
				_ = os.Remove(file + end)
			}
			k.ok("run", "hello")
			if out := k.ok("sandbox", "list"); out != "No sandboxes.\n" && !onlyShared(out) {
				t.Errorf("sandbox list:\n%s", out)
			}
		})
	}
}

// TestDoctorLooksAtStores has a state folder with one thing wrong at a time: doctor says what, where and what to do, in words, and
// exits 1, since no task can run.
func TestDoctorLooksAtStores(t *testing.T) {
	docker(t)
	garbage := damages["text"]
	for name, c := range map[string]struct {
		spoil func(k *user)
		check string // the check that finds it
		wants []string
	}{
		"documents damaged":      {func(k *user) { k.damage("document_store/local.db", garbage) }, "stores", []string{"document_store/local.db", "no intact SQLite database", "move it"}},
		"ledger damaged":         {func(k *user) { k.damage("sandboxes.db", garbage) }, "stores", []string{"sandboxes.db", "the file is damaged", "move it"}},
		"documents unreadable":   {func(k *user) { k.replace("document_store/local.db", true) }, "stores", []string{"document_store/local.db", "permissions"}},
		"ledger unreadable":      {func(k *user) { k.replace("sandboxes.db", true) }, "stores", []string{"sandboxes.db", "writable"}},
		"objects are a file":     {func(k *user) { k.replace("object_store", false) }, "stores", []string{"object_store", "cannot be written", "not a directory", "permission"}},
		"objects read-only":      {func(k *user) { k.readOnly("object_store") }, "stores", []string{"object_store", "cannot be written", "read-only", "permission"}},
		"state folder is a file": {func(k *user) { k.replace("", false) }, "state folder", []string{"cannot be written", "not a directory", "XDG_STATE_HOME"}},
		"state folder read-only": {func(k *user) { k.readOnly("") }, "state folder", []string{"cannot be written", "read-only", "XDG_STATE_HOME"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := newUser(t)
			k.ok("run", "hello")
			c.spoil(k)
			before := prints(t, k.State)
			r := k.run("doctor")
			_, found, _ := strings.Cut(r.Stdout, "lacking  "+c.check+": ")
			found, _, _ = strings.Cut(found, "\nok ")
			var missing []string
			for _, w := range append(c.wants, k.State, "         - ", "           do: ") {
				if !strings.Contains(found, w) {
					missing = append(missing, w)
				}
			}
			if r.Code != 1 || len(missing) > 0 {
				t.Errorf("%q is not in what the check %q found: %s", missing, c.check, r)
			}
			all := parse(t, k.run("doctor", "--json").Stdout)
			state := ""
			for i := range all.at("checks").len() {
				if all.str("checks", i, "name") == c.check {
					state = all.str("checks", i, "state")
				}
			}
			if all.at("ok").v != false || state != "lacking" {
				t.Errorf("the check %q is %q, all are ok: %v", c.check, state, all.at("ok").v)
			}
			if after := prints(t, k.State); after != before {
				t.Errorf("doctor changed something:\n%s\n---\n%s", before, after)
			}
		})
	}
	t.Run("nothing there", func(t *testing.T) {
		t.Parallel()
		k := newUser(t)
		if out := k.ok("doctor"); !strings.Contains(out, "ok       stores: ") || !strings.Contains(out, k.State+" (made by the first run)") {
			t.Error(out)
		}
		if !absent(k.State) {
			t.Errorf("the state folder was made:\n%s", k.everything())
		}
	})
}

// replace puts a folder, or a file, in the place of something below the state folder ("" = of the folder itself).
func (k *user) replace(name string, folder bool) {
	k.T.Helper()
	at := filepath.Join(k.State, name)
	for _, end := range []string{"", "-wal", "-shm"} {
		if err := os.RemoveAll(at + end); err != nil {
			k.T.Fatal(err)
		}
	}
	if !folder {
		kit.Write(k.T, filepath.Dir(at), kit.Files{filepath.Base(at): ""})
	} else if err := os.Mkdir(at, 0o755); err != nil {
		k.T.Fatal(err)
	}
}

// readOnly makes a folder below the state folder ("" = the folder itself) one that nobody can write to, not even root.
func (k *user) readOnly(name string) {
	k.T.Helper()
	at := filepath.Join(k.State, name)
	if err := syscall.Mount(at, at, "", syscall.MS_BIND, ""); err != nil {
		k.T.Fatalf("this test needs root, to mount a folder read-only: %v", err)
	}
	k.T.Cleanup(func() {
		if err := syscall.Unmount(at, 0); err != nil {
			k.T.Error(err)
		}
	})
	if err := syscall.Mount("", at, "", syscall.MS_BIND|syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
		k.T.Fatal(err)
	}
}
