//go:build integration

package artifact_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentenv/artifact"
	"agentenv/store/doc"
	"agentenv/store/document"
	"agentenv/store/object/localfs"
)

// beside is a stage on a state folder that the reference uses too.
func beside(t *testing.T) (*stage, func(args ...string) string) {
	t.Helper()
	s := newStage(t, nil)
	state := filepath.Join(s.dir, "agent-env")
	objects, err := localfs.New(filepath.Join(state, "object_store"))
	if err != nil {
		t.Fatal(err)
	}
	docs := openRouter(t, filepath.Join(state, "document_store"))
	s.docs, s.objects = docs, objects
	if s.store, err = artifact.New(artifact.Options{Documents: docs, Objects: objects}); err != nil {
		t.Fatal(err)
	}
	program := os.Getenv("AGENT_ENV_REFERENCE")
	if program == "" {
		t.Fatal("AGENT_ENV_REFERENCE must name the reference's program; make test installs it")
	}
	return s, func(args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), program, append([]string{"artifact"}, args...)...)
		cmd.Dir = s.dir
		cmd.Env = append(os.Environ(), "HOME="+s.dir, "XDG_STATE_HOME="+s.dir, "NO_COLOR=1")
		out, err := cmd.Output()
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			t.Fatalf("%v: %s%s", args, out, exit.Stderr)
		} else if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
}

func onDisk(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, _ := filepath.Rel(dir, p)
		b, err := os.ReadFile(p)
		out[filepath.ToSlash(name)] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestReadsWhatReferenceWrote writes each type that the reference has a command for, and reads it with ours; the document that ours
// would store must be the one that is there.
func TestReadsWhatReferenceWrote(t *testing.T) {
	s, run := beside(t)
	in := filepath.Join(s.dir, "in")
	skill := map[string]string{"SKILL.md": skillText, "data/a.csv": "a\n"}
	write(t, filepath.Join(in, "my-skill"), skill)
	write(t, filepath.Join(in, "set"), map[string]string{"a.txt": "hello\n", "sub/b.json": "{}", "run": "+xx"})
	write(t, in, map[string]string{"seed.json": `{"files":[{"path":"x/y","content":"z"}]}`, "note.md": "n"})
	run("file-artifact-universe", "put-bundled", "--id", "set", "--file-dir", filepath.Join(in, "set"))
	run("skill", "put", "--id", "my-skill", "--skill-dir", filepath.Join(in, "my-skill"))
	run("cli", "put", "--id", "tool", "--cli-dir", filepath.Join(in, "set"), "--entrypoint", "run", "--command-name", "tool")
	run("environment", "put", filepath.Join(in, "seed.json"), "--id", "fs", "--description", "d", "--environment-name", "fs")
	run("environment-universe", "put", "--id", "uni", "--environment-artifact", "fs:1", "--metadata", "k="+filepath.Join(in, "note.md"))
	set := map[string]string{"a.txt": "hello\n", "sub/b.json": "{}", "run": "x"}
	for id, want := range map[string]map[string]string{"set": set, "my-skill": skill, "tool": set, "fs": {"x/y": "z"},
		"uni": {"fs/seed.json": `{"files":[{"path":"x/y","content":"z"}]}`}} {
		a := need[artifact.Artifact](t)(s.store.Get(t.Context(), artifact.Ref{ID: id}))
		if diff := cmp.Diff(want, tree(t, s.store, a)); diff != "" {
			t.Errorf("%s: %s", id, diff)
		}
		d, err := s.docs.FindOne(t.Context(), artifact.Documents, document.By("id", id))
		if err != nil {
			t.Fatal(err)
		}
		d = d.Clone()
		d.Delete("created_at_utc")
		ours, _ := doc.MarshalIndent(a.Document())
		theirs, _ := doc.MarshalIndent(d)
		if diff := cmp.Diff(string(theirs), string(ours)); diff != "" {
			t.Errorf("%s is stored in another form: %s", id, diff)
		}
	}
}

// TestReferenceReadsOurs is the other direction.
func TestReferenceReadsOurs(t *testing.T) {
	s, run := beside(t)
	ctx := t.Context()
	files := []artifact.Source{src("a.txt", "hello\n"), src("sub/b.json", "{}")}
	need[*artifact.Universe](t)(s.store.PutUniverse(ctx, "set", files))
	need[*artifact.Universe](t)(s.store.PutUniverse(ctx, "@local/~/set", files))
	need[*artifact.Skill](t)(s.store.PutSkill(ctx, "my-skill", []artifact.Source{src("SKILL.md", skillText), src("x/y", "z")}))
	need[*artifact.CLI](t)(s.store.PutCLI(ctx, "tool", artifact.CLISpec{Command: "tool", Entrypoint: "a.txt"}, files))
	need[*artifact.Environment](t)(s.store.PutEnvironment(ctx, "fs", "", "fs", "d", src("seed.json", "{}")))
	need[*artifact.EnvironmentUniverse](t)(s.store.PutEnvironmentUniverse(ctx, "uni", artifact.EnvironmentSet{Existing: []artifact.Ref{{ID: "fs"}},
		Metadata: []artifact.NewMetadata{{Key: "k", Source: src("note.md", "n")}}}))
	both := map[string]string{"a.txt": "hello\n", "sub/b.json": "{}"}
	for i, c := range []struct {
		group, id string
		want      map[string]string
	}{
		{"file-artifact-universe", "set", both}, {"file-artifact-universe", "@local/~/set", both}, {"skill", "my-skill", map[string]string{"SKILL.md": skillText, "x/y": "z"}},
		{"cli", "tool", both}, {"environment-universe", "uni", map[string]string{"fs/seed.json": "{}", "metadata/k/note.md": "n"}},
	} {
		dir := filepath.Join(s.dir, "out", string(rune('a'+i)))
		run(c.group, "get", "--id", c.id, "--output-dir", dir)
		got := onDisk(t, dir)
		delete(got, "artifact.toml")
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: %s", c.id, diff)
		}
	}
}
