//go:build integration

package e2e_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"agentenv/test/kit"
)

// smallState mounts a small filesystem of its own as the state folder.
func (k *user) smallState() {
	k.T.Helper()
	if err := os.MkdirAll(k.State, 0o700); err != nil {
		k.T.Fatal(err)
	}
	if err := syscall.Mount("none", k.State, "tmpfs", 0, "size=5m,mode=700"); err != nil {
		k.T.Fatalf("this test needs root, to mount a small tmpfs: %v", err)
	}
	k.T.Cleanup(func() {
		if err := syscall.Unmount(k.State, 0); err != nil {
			k.T.Error(err)
		}
	})
}

// fill writes to the state folder until nothing more fits, and returns the file that takes the room.
func (k *user) fill() string {
	k.T.Helper()
	f, err := os.Create(filepath.Join(k.State, "filler"))
	if err != nil {
		k.T.Fatal(err)
	}
	defer f.Close()
	for block := make([]byte, 4096); err == nil; {
		_, err = f.Write(block)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		k.T.Fatal(err)
	}
	return f.Name()
}

// TestFullDisk has a state folder on a small filesystem that fills up.
func TestFullDisk(t *testing.T) {
	k := newUser(t)
	k.smallState()
	k.ok("run", "hello")
	dir := k.bundle("big", steps{host("box"), load("load", "box", "big", "/app/in")}, kit.Files{"artifacts/big/big.bin": strings.Repeat("0123456789abcdef", 1<<19)})
	r := k.run("run", dir)
	if r.Code != 1 {
		t.Error(r)
	}
	k.oneLine(r.Stderr, "no space left on device", "artifacts/big")
	if left := k.leftovers(); left != "" {
		t.Errorf("left behind: %s", left)
	}
	k.ok("run", "hello")
	if entries, err := os.ReadDir(filepath.Join(k.State, "object_store", ".agentenv-tmp")); err == nil {
		for _, e := range entries {
			if info, err := e.Info(); err == nil && info.Size() > 0 {
				t.Errorf("left behind: %s, %d bytes", e.Name(), info.Size())
			}
		}
	}
}

// TestPruneOnAFullDisk removes what a killed run left although nothing more can be written to the ledger; once there is room
// again, the ledger is told too.
func TestPruneOnAFullDisk(t *testing.T) {
	image := busybox(t)
	for _, target := range targets {
		// What sqlite needs beside the ledger may be there, as a killed process leaves it, or not, as after a copy of the folder.
		for _, beside := range []bool{true, false} {
			name := target
			if !beside {
				name += ", no files beside the ledger"
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				k := newUser(t)
				k.smallState()
				b := host("box")
				if target != "vm" {
					b = box(image)
					b["sandbox_type"] = target
				}
				p := k.start("run", k.bundle("killed", steps{b}, nil), "--keep")
				t.Cleanup(p.kill)
				p.waitFor("Holding 1 sandbox up")
				p.kill()
				if !beside {
					k.ok("sandbox", "list") // ends as the last one, so that all is in one file
				}
				filler := k.fill()
				if left := k.leftovers(); left == "" {
					t.Fatal("the killed run left nothing")
				}
				r := k.run("sandbox", "prune", "--yes")
				if left := k.leftovers(); left != "" && !onlyTmp(k, left) {
					t.Errorf("left behind after prune: %s\n%s", left, r)
				}
				if r.Code != 0 || !strings.Contains(r.Stdout, "Removed ") {
					t.Error(r)
				}
				// What could not be recorded is one line, which names the file.
				if said := strings.TrimSpace(r.Stderr); said != "" && (strings.Contains(said, "\n") || !strings.Contains(said, "sandboxes.db") || !strings.Contains(said, "full")) {
					t.Errorf("not one line of what could not be recorded:\n%s", said)
				}
				if err := os.Remove(filler); err != nil {
					t.Fatal(err)
				}
				k.ok("sandbox", "prune", "--yes")
				if ids := k.listed(); len(ids) != 0 {
					t.Errorf("still listed: %v", ids)
				}
			})
		}
	}
}

// TestStateTurnsReadOnly freezes the state folder while a step runs: the run fails with one line that names the store, its sandbox goes, and
// once the folder can be written again the run goes on from what was recorded.
func TestStateTurnsReadOnly(t *testing.T) {
	t.Parallel()
	k := newUser(t)
	p := k.start("run", k.bundle("frozen", steps{host("box"), verify("one", "box", "/app", sh("touch begun; sleep 2")), verify("two", "box", "/app", sh("true"))}, nil))
	t.Cleanup(p.kill)
	p.waitFor("one (verify_sandbox)")
	eventually(t, func() string { // the helper and the ledger are written by now
		if begun, _ := filepath.Glob(filepath.Join(k.Sandboxes, "*", "begun")); len(begun) == 0 {
			return "the step does not begin"
		}
		return ""
	})
	freeze := func(how string) {
		if out, err := exec.CommandContext(context.WithoutCancel(t.Context()), "chattr", "-R", how, k.State).CombinedOutput(); err != nil {
			t.Errorf("chattr %s: %v\n%s", how, err, out)
		}
	}
	t.Cleanup(func() { freeze("-i") })
	freeze("+i")
	if code := p.wait(); code != 1 {
		t.Errorf("exit code %d:\n%s", code, p.text())
	}
	for _, want := range []string{`the result of step "one" could not be recorded`, "local.db", "read-only", "Tore down 1 sandbox."} {
		if !strings.Contains(p.text(), want) {
			t.Errorf("it does not say %q:\n%s", want, p.text())
		}
	}
	freeze("-i")
	if left := k.leftovers(); left != "" {
		t.Errorf("left behind: %s", left)
	}
	id := k.Select(`SELECT json_extract(doc, '$.instance_id') FROM docs_task_instances`)[0]
	k.ok("run", "--resume", id)
}
