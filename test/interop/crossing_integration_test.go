//go:build integration

package interop_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentenv/test/kit"
)

// skillText is a skill's front page.
const skillText = "---\nname: my-skill\ndescription: A skill\n---\nBody of the skill\n"

// TestArtifactsCross writes every type that has a command with one program and reads it with the other.
func TestArtifactsCross(t *testing.T) {
	set := kit.Files{"a.txt": "hello\n", "sub/ünï code.json": "{\"x\":1}", "empty": "", "bytes.bin": "\x00\xff\x01"}
	for _, writer := range []string{ours, reference} {
		reader := reference
		if writer == reference {
			reader = ours
		}
		t.Run(name(writer)+" writes", func(t *testing.T) {
			t.Parallel()
			u := newUser(t)
			in := func(label string, f kit.Files) string { return kit.Write(t, filepath.Join(u.Home, label), f) }
			tool := in("tool", kit.Files{"bin/tool": "#!/bin/sh\n", "lib/x": "x"})
			seed := filepath.Join(in("seed", kit.Files{"seed.json": `{"files":[{"path":"x/y","content":"z"}]}`}), "seed.json")
			note := filepath.Join(in("note", kit.Files{"note.md": "n"}), "note.md")
			u.OK(writer, "artifact", "file-artifact-universe", "put-bundled", "--id", "set", "--file-dir", in("set", set))
			u.OK(writer, "artifact", "skill", "put", "--id", "my-skill", "--skill-dir", in("my-skill", kit.Files{"SKILL.md": skillText, "data/a.csv": "a\n"}))
			u.OK(writer, "artifact", "cli", "put", "--id", "tool", "--cli-dir", tool, "--entrypoint", "bin/tool", "--command-name", "tool")
			u.OK(writer, "artifact", "environment", "put", seed, "--id", "fs", "--description", "d", "--environment-name", "fs")
			u.OK(writer, "artifact", "environment-universe", "put", "--id", "uni", "--environment-artifact", "fs:1", "--metadata", "k="+note)
			get := func(program string, command ...string) kit.Files {
				into := filepath.Join(t.TempDir(), "out")
				u.OK(program, append(append([]string{"artifact"}, command...), "--output-dir", into)...)
				return kit.Read(t, into)
			}
			for _, c := range [][]string{
				{"file-artifact-universe", "get", "--id", "set"}, {"skill", "get", "--id", "my-skill"}, {"cli", "get", "--id", "tool"},
				{"environment-universe", "get", "--id", "uni"}, {"file-artifact-universe", "get-many", "--id", "set"},
			} {
				a, b := get(writer, c...), get(reader, c...)
				if d := cmp.Diff(a, b); d != "" || len(a) == 0 {
					t.Errorf("%v: what the writer itself reads, and what the other does:\n%s", c, d)
				}
				if c[0] == "file-artifact-universe" && c[1] == "get" {
					if d := cmp.Diff(set, b); d != "" {
						t.Errorf("what was written, and what is read:\n%s", d)
					}
				}
			}
			// The next version, written by the other, follows.
			if out := u.OK(reader, "artifact", "file-artifact-universe", "put-bundled", "--id", "set", "--file-dir", in("set2", kit.Files{"b.txt": "two"})); !strings.Contains(out, "version=2") {
				t.Errorf("the second version: %s", out)
			}
			if d := cmp.Diff(kit.Files{"b.txt": "two"}, get(writer, "file-artifact-universe", "get", "--id", "set")); d != "" {
				t.Error(d)
			}
			if d := cmp.Diff(set, get(writer, "file-artifact-universe", "get", "--id", "set", "--version", "1")); d != "" {
				t.Error(d)
			}
		})
	}
}

// stepsText is a task file that both programs take.
const stepsText = `[{"id":"box","type":"deploy_sandbox","sandbox_name":"box","sandbox_mode":"vm","sandbox_type":"local"},
 {"id":"load","type":"load_artifact","sandbox_name":"box","artifacts":[{"id":"set","version":1}],"destination_path":"/app/in"},
 {"id":"code","type":"run_code","sandbox_name":"box","script_artifact_id":"codes","script_file":"ok.py","args":{"n":[1,2.5,null,"é"]}},
 {"id":"out","type":"collect_artifacts","sandbox_name":"box","base_path":"/app/in","depends_on":["load"]},
 {"id":"v","type":"verify_sandbox","sandbox_name":"box","verifier_id":"v","base_dir":"/app/in","criteria":[{"type":"probe_file_exists","paths":["a.txt"]}],"fail_task_on_error":false},
 {"id":"all","type":"aggregate_verifiers","verifier_ids":["v"],"verifier_id":"all"},
 {"id":"down","type":"teardown_sandboxes","sandbox_names":["box"],"fail_task_on_error":false}]`

// TestTasksCross stores a task with one program, and gets, validates and runs it with the other.
func TestTasksCross(t *testing.T) {
	for _, writer := range []string{ours, reference} {
		reader := reference
		if writer == reference {
			reader = ours
		}
		t.Run(name(writer)+" writes", func(t *testing.T) {
			t.Parallel()
			u := newUser(t)
			file := filepath.Join(kit.Write(t, u.Home, kit.Files{"steps.json": stepsText}), "steps.json")
			// A task that names what is not there is refused by both, and nothing is stored.
			for _, program := range []string{writer, reader} {
				if r := u.Run(program, "task", "create", "--id", "job", file); r.Code != 1 {
					t.Errorf("%s stored a task whose script is missing: %s", name(program), r)
				}
			}
			codes := kit.Files{}
			for n, text := range scripts {
				if base, ok := strings.CutPrefix(n, "artifacts/codes/"); ok {
					codes[base] = text
				}
			}
			u.OK(writer, "artifact", "file-artifact-universe", "put-bundled", "--id", "set", "--file-dir", kit.Write(t, filepath.Join(u.Home, "set"), kit.Files{"a.txt": "hello"}))
			u.OK(writer, "artifact", "file-artifact-universe", "put-bundled", "--id", "codes", "--file-dir", kit.Write(t, filepath.Join(u.Home, "codes"), codes))
			u.OK(writer, "task", "create", "--id", "job", file)
			mine, other := kit.Parse(t, u.OK(writer, "task", "get", "--id", "job")), kit.Parse(t, u.OK(reader, "task", "get", "--id", "job"))
			if d := cmp.Diff(mine, other); d != "" {
				t.Errorf("the task as its writer and as the other prints it:\n%s", d)
			}
			u.OK(reader, "task", "validate", "--id", "job")
			u.OK(reader, "task", "create", "--id", "job", file)
			again := kit.Parse(t, u.OK(writer, "task", "get", "--id", "job", "--version", "2"))
			for _, all := range []any{mine, again} {
				for _, step := range all.([]any) {
					delete(step.(map[string]any), "version")
				}
			}
			if d := cmp.Diff(mine, again); d != "" {
				t.Errorf("the task as stored by both:\n%s", d)
			}
		})
	}
}

// TestInstancesCross reads the record of each program's run with the other.
func TestInstancesCross(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	dir := kit.Write(t, filepath.Join(u.Home, "shop"), kit.Files{"tasks/t.json": strings.ReplaceAll(strings.ReplaceAll(stepsText, `{"id":"set","version":1}`, `{"id":"set"}`), "\n", ""),
		"artifacts/set/a.txt": "hello", "artifacts/set/b.txt": "b"})
	kit.Write(t, dir, scripts)
	u.OK(reference, "run", dir)
	before := u.documents("bundle_ledger", "id")
	out := u.OK(ours, "run", dir)
	if strings.Count(out, ", unchanged") != 3 {
		t.Errorf("ours wrote anew what the reference had written:\n%s", out)
	}
	if d := cmp.Diff(before, u.documents("bundle_ledger", "id")); d != "" {
		t.Errorf("the ledger of the bundle changed:\n%s", d)
	}
	if out := u.OK(reference, "run", dir); strings.Count(out, ", unchanged") != 3 {
		t.Errorf("the reference wrote anew what is there:\n%s", out)
	}
	all := u.documents("task_instances", "created_at_utc")
	if len(all) != 3 {
		t.Fatalf("%d instances", len(all))
	}
	for _, d := range all {
		id := kit.At(d, "instance_id").(string)
		r, o := u.OK(reference, "task", "get-instance", "--id", id), u.OK(ours, "task", "get-instance", "--id", id)
		for _, want := range []string{id, "completed", "7/7"} {
			if !strings.Contains(r, want) || !strings.Contains(o, want) {
				t.Errorf("%q is not in both:\n%s\n---\n%s", want, r, o)
			}
		}
		rc, oc := r[strings.Index(r, "{"):], o[strings.Index(o, "{"):]
		if d := cmp.Diff(kit.Parse(t, rc), kit.Parse(t, oc)); d != "" {
			t.Errorf("the context as both print it:\n%s", d)
		}
	}
}

// TestReferenceRunsOurImage has the reference run a stored task whose image ours built from the bundle.
func TestReferenceRunsOurImage(t *testing.T) {
	t.Parallel()
	image := labelled(t)
	u := newUser(t)
	dir := kit.Write(t, filepath.Join(u.Home, "img"), kit.Files{
		"artifacts/box/Dockerfile": "FROM " + image + "\nUSER root\nRUN mkdir -m 700 /vault\nUSER 65534\n", "artifacts/one/one.txt": "hi",
		"tasks/t.json": `[{"id":"box","type":"deploy_sandbox","sandbox_name":"box","sandbox_mode":"container","sandbox_type":"local","image":"box","port":8080},
 {"id":"load","type":"load_artifact","sandbox_name":"box","artifact_id":"one","destination_path":"/vault/in"},
 {"id":"v","type":"verify_sandbox","sandbox_name":"box","base_dir":"/vault/in","verifier_id":"v","criteria":[{"type":"probe_file_contains","paths":["one.txt"],"expected":"hi"}]},
 {"id":"out","type":"collect_artifacts","sandbox_name":"box","base_path":"/vault/in"}]`})
	u.OK(ours, "run", dir)
	u.OK(reference, "task", "run", "--id", "@local/~/img/t", "--output-dir", filepath.Join(u.Dir, "out"))
	list := u.documents("task_instances", "created_at_utc")
	if len(list) != 2 {
		t.Fatalf("%d instances", len(list))
	}
	for _, d := range list {
		if kit.At(d, "status") != "completed" || kit.At(d, "context", "metadata", "verifications", "v", "score") != 1.0 {
			t.Errorf("%v: %v, score %v, %v", kit.At(d, "instance_id"), kit.At(d, "status"), kit.At(d, "context", "metadata", "verifications", "v"), kit.At(d, "error"))
		}
		if !strings.HasPrefix(fmt.Sprint(kit.At(u.documents("tasks", "id")[0], "steps", 0, "image")), "local/img-box-") {
			t.Errorf("the stored step's image: %v", kit.At(u.documents("tasks", "id")[0], "steps", 0, "image"))
		}
	}
}

// TestBothAtOnce runs both programs on one state folder at the same time.
func TestBothAtOnce(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	dir := kit.Write(t, filepath.Join(u.Home, "shop"), kit.Files{"tasks/t.json": strings.ReplaceAll(stepsText, `{"id":"set","version":1}`, `{"id":"set"}`),
		"tasks/u.json": `[{"id":"box","type":"deploy_sandbox","sandbox_name":"box","sandbox_mode":"vm","sandbox_type":"local"}]`, "artifacts/set/a.txt": "hello", "artifacts/set/b.txt": "b"})
	kit.Write(t, dir, scripts)
	var wg sync.WaitGroup
	results := make([]kit.Result, 8)
	for i := range results {
		program := ours
		if i%4 == 0 {
			program = reference
		}
		wg.Go(func() { results[i] = u.Run(program, "run", dir) })
	}
	wg.Wait()
	for i, r := range results {
		if r.Code != 0 {
			t.Errorf("run %d: %s", i, r)
		}
	}
	list := u.documents("task_instances", "instance_id")
	if len(list) != 2*len(results) {
		t.Errorf("%d instances, want %d", len(list), 2*len(results))
	}
	for _, d := range list {
		if kit.At(d, "status") != "completed" {
			t.Errorf("%v: %v, %v", kit.At(d, "instance_id"), kit.At(d, "status"), kit.At(d, "error"))
		}
	}
	if n := len(u.documents("tasks", "id")); n != 2 {
		t.Errorf("%d versions of two tasks were stored", n)
	}
	if left, _ := os.ReadDir(filepath.Join(u.Dir, "sandboxes")); len(left) != 0 {
		t.Errorf("%d work folders are left", len(left))
	}
}
