//go:build integration

package bundle_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"agentenv/artifact"
	"agentenv/bundle"
	"agentenv/store/document"
)

var attempt = regexp.MustCompile(`/1-[0-9a-f]{8}/`)

// reference runs the reference in the kit's home on the kit's state folder and returns its output and exit code.
func (k *kit) reference(t testing.TB, args ...string) (string, int) {
	t.Helper()
	program := os.Getenv("AGENT_ENV_REFERENCE")
	if program == "" {
		t.Fatal("AGENT_ENV_REFERENCE must name the reference's program; make test installs it")
	}
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Dir = k.home
	cmd.Env = append(os.Environ(), "HOME="+k.home, "XDG_STATE_HOME="+filepath.Dir(k.state), "NO_COLOR=1")
	out, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	code := 0
	if exit != nil {
		code = exit.ExitCode()
		out = append(out, exit.Stderr...)
	}
	return string(out), code
}

var shop = map[string]string{
	"README.md": "# A shop", "artifacts/data/a.txt": "hello\n", "artifacts/data/deep/b.json": "{}\n", "artifacts/one/x.bin": "x",
	"artifacts/named/a.txt": "hello\n", "artifacts/named/artifact.toml": "description = \"caf\u00e9\"\nid = \"@local/demo/named\"\n",
	"artifacts/env/artifact.toml": "type=\"environment\"\nenvironment_name=\"fs\"\nfile=\"seed\"\n", "artifacts/seed/s.json": `{"files":[{"path":"a","content":"x"}]}`,
	"artifacts/img/Dockerfile": "FROM scratch\nCOPY . /\n", "artifacts/img/run.sh": "+x#!/bin/sh\n", "artifacts/img/.dockerignore": "drop\n", "artifacts/img/drop": "x",
	"artifacts/img/sub/l": "->../run.sh", "artifacts/img/empty/": "",
	"skills/sk/SKILL.md": "---\nname: sk\ndescription: a skill\n---\nBody\n", "skills/sk/data/x.csv": "a,b\n",
	"tasks/t.json": "[" + vm + `,{"id":"l","type":"load_artifact","artifacts":[{"id":"data"},{"id":"one"},{"id":"named"},{"id":"env"},{"id":"img"},{"id":"sk"}],
		"sandbox_name":"b","destination_path":"/app/x","fail_task_on_error":false}]`,
	"evals/e.toml": "tasks = [\"t\"]\n",
}

// TestReferenceReusesOurs writes a bundle with ours: the reference must find nothing to write, and read the files back.
func TestReferenceReusesOurs(t *testing.T) {
	k := newKit(t)
	dir := k.files(t, "shop", shop)
	k.write(t, dir, bundle.Selection{})
	out, code := k.reference(t, "run", dir, "--dry-run")
	if code != 0 {
		t.Fatalf("exit %d\n%s", code, out)
	}
	checkUnchanged(t, out)
	for id, want := range map[string]string{"@local/~/shop/data": "deep/b.json"} {
		into := filepath.Join(t.TempDir(), "out")
		out, code := k.reference(t, "artifact", "file-artifact-universe", "get", "--id", id, "--output-dir", into)
		if _, err := os.Stat(filepath.Join(into, want)); code != 0 || err != nil {
			t.Errorf("%s: exit %d, %v\n%s", id, code, err, out)
		}
	}
	into := filepath.Join(t.TempDir(), "skill")
	if out, code := k.reference(t, "artifact", "skill", "get", "--id", "@local/~/shop/sk", "--output-dir", into); code != 0 {
		t.Errorf("exit %d\n%s", code, out)
	}
	if body, err := os.ReadFile(filepath.Join(into, "data/x.csv")); err != nil || string(body) != "a,b\n" {
		t.Errorf("the skill's file is %q, %v", body, err)
	}
}

// TestOursReusesReference runs a bundle with the reference: ours must find nothing to write, and read the artifacts.
func TestOursReusesReference(t *testing.T) {
	k := newKit(t)
	dir := k.files(t, "shop", shop)
	out, code := k.reference(t, "run", dir)
	if !strings.Contains(out, "artifacts/img (Dockerfile image): v1 (new)") {
		t.Fatalf("exit %d\n%s", code, out)
	}
	_, lines := k.write(t, dir, bundle.Selection{})
	checkUnchanged(t, strings.Join(lines, "\n"))
	data, err := artifact.GetAs[*artifact.Universe](t.Context(), k.artifacts, artifact.Ref{ID: "@local/~/shop/data"})
	if err != nil {
		t.Fatal(err)
	}
	ms, err := k.artifacts.Members(t.Context(), data)
	if err != nil || len(ms) != 2 || ms[1].Name != "deep/b.json" {
		t.Errorf("members %v, %v", ms, err)
	}
	env, err := artifact.GetAs[*artifact.Environment](t.Context(), k.artifacts, artifact.Ref{ID: "@local/~/shop/env"})
	if err != nil {
		t.Fatal(err)
	}
	if ms, err = k.artifacts.Members(t.Context(), env); err != nil || len(ms) != 1 || ms[0].Name != "a" {
		t.Errorf("payload %v, %v", ms, err)
	}
}

func checkUnchanged(t *testing.T, out string) {
	t.Helper()
	n := 0
	for l := range strings.SplitSeq(out, "\n") {
		if strings.Contains(l, ": v") && !strings.HasPrefix(l, " ") && !strings.HasPrefix(l, "Dry run") {
			if n++; !strings.Contains(l, ": v1, unchanged") {
				t.Errorf("would be written: %s", l)
			}
		}
	}
	if n != 9 {
		t.Errorf("%d entries, want 9:\n%s", n, out)
	}
}

// TestDocumentsEqualReference compares the stored documents of one bundle written by both, but for what differs from write to write.
func TestDocumentsEqualReference(t *testing.T) {
	ours, theirs := newKit(t), newKit(t)
	dir := ours.files(t, "shop", shop)
	ours.write(t, dir, bundle.Selection{})
	theirs.reference(t, "run", theirs.files(t, "shop", shop))
	for _, coll := range []string{"artifacts", "evals", "bundle_ledger"} {
		a, b := stored(t, ours, coll), stored(t, theirs, coll)
		if len(a) != len(b) {
			t.Errorf("%s: %d documents, the reference has %d", coll, len(a), len(b))
		}
		for key, text := range b {
			if a[key] != text {
				t.Errorf("%s %s\nours      %s\nreference %s", coll, key, a[key], text)
			}
		}
	}
}

// stored returns the documents of a collection by id, as text without times and random parts.
func stored(t *testing.T, k *kit, coll string) map[string]string {
	t.Helper()
	docs, err := k.docs.Query(t.Context(), coll, document.Query{})
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, d := range docs {
		d = d.Clone()
		d.Delete("created_at_utc")
		d.Delete("at")
		text, err := d.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		s := strings.ReplaceAll(string(text), k.state, "STATE")
		if coll == "bundle_ledger" && d.Str("store") == "task" {
			continue
		}
		out[d.Str("id")] = attempt.ReplaceAllString(s, "/1-XXXXXXXX/")
	}
	return out
}
