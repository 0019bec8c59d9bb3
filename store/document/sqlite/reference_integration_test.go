//go:build integration

package sqlite_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"agentenv/store/doc"
	"agentenv/store/document"
)

// reference returns the reference's program.
func reference(t *testing.T) string {
	t.Helper()
	p := os.Getenv("AGENT_ENV_REFERENCE")
	if p == "" {
		t.Fatal("AGENT_ENV_REFERENCE must name the reference's program; make test installs it")
	}
	return p
}

// TestReferenceSharesTheFile lets the reference write next to us, while we have the file open, and read what we changed.
func TestReferenceSharesTheFile(t *testing.T) {
	program, state, home := reference(t), t.TempDir(), t.TempDir()
	run := func(args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), program, args...)
		cmd.Env = append(os.Environ(), "XDG_STATE_HOME="+state, "HOME="+home)
		cmd.Dir = home
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	s := open(t, filepath.Join(state, "agent-env", "document_store", "documents.db"))
	ctx := t.Context()
	v := document.Versioned{Store: s, Collection: "artifacts", Indexes: []document.Index{{Fields: []string{"type"}}}}
	if _, err := v.Put(ctx, doc.Of("id", "ours", "type", "unknown_to_it", "s", "\xed\xa0\x80")); err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(home, "in")
	must(t, os.MkdirAll(folder, 0o755))
	must(t, os.WriteFile(filepath.Join(folder, "a.txt"), []byte("A"), 0o644))
	run("artifact", "file-artifact-universe", "put-bundled", "--id", "demo", "--file-dir", folder)
	d, err := v.Get(ctx, "demo", 0)
	if err != nil || d == nil {
		t.Fatal(d, err)
	}
	if member, err := v.Get(ctx, "demo__18b7cb099a9ea3f5", 1); err != nil || member == nil {
		t.Fatal(member, err)
	}
	next := d.Clone().Set("version", doc.Int(2))
	if _, err := v.Put(ctx, next); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(home, "out")
	run("artifact", "file-artifact-universe", "get", "--id", "demo", "--version", "2", "--output-dir", out)
	found := ""
	must(t, filepath.WalkDir(out, func(p string, _ os.DirEntry, err error) error {
		if strings.HasSuffix(p, "a.txt") {
			b, rerr := os.ReadFile(p)
			found = string(b)
			return rerr
		}
		return err
	}))
	if found != "A" {
		t.Errorf("the reference read %q out of a version that we wrote", found)
	}
	run("artifact", "file-artifact-universe", "put-bundled", "--id", "demo", "--file-dir", folder)
	if n, err := v.NextVersion(ctx, "demo"); err != nil || n != 4 {
		t.Errorf("after its second put the next version is %d, %v", n, err)
	}
}

// TestReferenceRaces lets processes of both programs write versions of one artifact at once: every version is there once, and
// each program's own writes all are.
func TestReferenceRaces(t *testing.T) {
	program, state, home := reference(t), t.TempDir(), t.TempDir()
	path := filepath.Join(state, "agent-env", "document_store", "documents.db")
	folder := filepath.Join(home, "in")
	must(t, os.MkdirAll(folder, 0o755))
	must(t, os.WriteFile(filepath.Join(folder, "a.txt"), []byte("A"), 0o644))
	var cmds []*exec.Cmd
	var outs []*strings.Builder
	for range 2 {
		cmd := exec.CommandContext(t.Context(), program, "artifact", "file-artifact-universe", "put-bundled", "--id", "demo", "--file-dir", folder)
		cmd.Env = append(os.Environ(), "XDG_STATE_HOME="+state, "HOME="+home)
		cmd.Dir = home
		out := &strings.Builder{}
		cmd.Stdout, cmd.Stderr = out, out
		must(t, cmd.Start())
		cmds, outs = append(cmds, cmd), append(outs, out)
	}
	ended := make(chan struct{})
	ours := make(chan int, 2)
	for range 2 {
		v := document.Versioned{Store: open(t, path), Collection: "artifacts", Indexes: []document.Index{{Fields: []string{"type"}}}}
		go func() {
			n := 0
			defer func() { ours <- n }()
			for {
				if _, err := v.Put(t.Context(), doc.Of("id", "demo", "type", "unknown_to_it")); err != nil {
					t.Error(err)
					return
				}
				n++
				select {
				case <-ended:
					return
				case <-time.After(20 * time.Millisecond):
				}
			}
		}()
	}
	for i, cmd := range cmds {
		if err := cmd.Wait(); err != nil {
			t.Error(err, outs[i])
		}
	}
	close(ended)
	total := <-ours + <-ours + len(cmds)
	s := open(t, path)
	docs, err := s.Query(t.Context(), "artifacts", document.Query{Filter: document.By("id", "demo"), Sort: []document.Sort{{Path: "version"}}})
	must(t, err)
	if len(docs) != total {
		t.Errorf("%d versions are stored, %d were written", len(docs), total)
	}
	for i, d := range docs {
		if v, _ := d.Int("version"); v != int64(i+1) {
			t.Fatalf("version %d stands at place %d", v, i+1)
		}
	}
}
