//go:build integration

package e2e_test

import (
	"path/filepath"
	"strings"
	"testing"

	"agentenv/test/kit"
)

// TestUsage ends command lines that are none with exit code 2 and a line that says so, and writes nothing.
func TestUsage(t *testing.T) {
	t.Parallel()
	k := newUser(t)
	for _, args := range []string{"bogus", "run hello --bogus", "run hello -j 0", "run hello -j many", "run a b", "run --keep", "task", "task get", "task bogus", "sandbox bogus",
		"artifact file-artifact-universe put-bundled --id x", "artifact file-artifact-universe put-bundled --id x --file-dir nowhere", "steps show", "bundle new", "completion"} {
		r := k.run(strings.Fields(args)...)
		if r.Code != 2 && !(args == "completion" && r.Code == 0) || r.Code == 2 && r.Stderr == "" || strings.Contains(r.Stderr, "panic") {
			t.Errorf("%s: %s", args, r)
		}
	}
	if !absent(k.State) {
		t.Errorf("the state folder was made:\n%s", prints(t, k.State))
	}
}

// TestReadingMakesNothing asks a fresh machine: nothing is there, and nothing is made.
func TestReadingMakesNothing(t *testing.T) {
	t.Parallel()
	k := newUser(t)
	for args, want := range map[string]string{
		"--version":                            "agent-env ",
		"run":                                  "container-files",
		"steps list":                           "collect_artifacts",
		"steps show run_code":                  "script_artifact_id",
		"steps schema":                         `"$schema"`,
		"artifact list":                        "No artifacts found.",
		"artifact file-artifact-universe list": "No FileArtifactUniverses found.",
		"config show":                          "",
		"completion bash":                      "complete",
		"completion zsh":                       "compdef",
		"completion fish":                      "complete",
	} {
		if out := k.ok(strings.Fields(args)...); !strings.Contains(out, want) {
			t.Errorf("%s: %q is not in\n%.2000s", args, want, out)
		}
	}
	for _, args := range []string{"task get --id x", "task get-instance --id x", "task validate --id x", "artifact show --id x", "artifact skill get --id x --output-dir out", "steps show nothing"} {
		r := k.run(strings.Fields(args)...)
		if r.Code != 1 || r.Stdout != "" && !strings.HasPrefix(r.Stdout, "Fetching") {
			t.Errorf("%s: %s", args, r)
		}
		k.oneLine(r.Stderr)
	}
	if !absent(k.State) || !absent(k.Sandboxes) || !absent(filepath.Join(k.Home, "out")) {
		t.Errorf("something was made:\n%s", k.everything())
	}
}

// TestSchema is the JSON Schema of task files: it knows every step type and the fields of each.
func TestSchema(t *testing.T) {
	t.Parallel()
	k := newUser(t)
	schema := k.ok("steps", "schema")
	parse(t, schema)
	for line := range strings.Lines(k.ok("steps", "list")) {
		if name := strings.Fields(line)[0]; name != "TYPE" && !strings.Contains(schema, `"`+name+`"`) {
			t.Errorf("the schema does not know %s", name)
		}
	}
}

func TestDoctor(t *testing.T) {
	docker(t)
	t.Parallel()
	k := newUser(t)
	out := k.ok("doctor")
	for _, what := range []string{"configuration", "state folder", "disk", "container engine", "provider local", "provider docker"} {
		if !strings.Contains(out, what) {
			t.Errorf("%q is not in\n%s", what, out)
		}
	}
	if !absent(k.State) {
		t.Errorf("the state folder was made:\n%s", k.everything())
	}
	k.Env = []string{"DOCKER_HOST=unix://" + k.Dir + "/none.sock"}
	r := k.run("doctor")
	if !strings.Contains(r.Stdout, "none.sock") || !strings.Contains(r.Stdout, "install and start") {
		t.Errorf("without an engine: %s", r)
	}
}

// TestNewBundles makes bundles to begin from, checks and runs them.
func TestNewBundles(t *testing.T) {
	pythonSlim(t)
	for _, c := range [][]string{{"mine"}, {"mine", "--container"}} {
		t.Run(strings.Join(c, " "), func(t *testing.T) {
			t.Parallel()
			k := newUser(t)
			out := k.ok(append([]string{"bundle", "new"}, c...)...)
			if !strings.Contains(out, "Run it: agent-env run mine") {
				t.Error(out)
			}
			if out := k.ok("bundle", "check", "mine"); out != "No problems found.\n" {
				t.Error(out)
			}
			k.passes("mine")
			before := prints(t, k.Home)
			r := k.run("bundle", "new", "mine")
			if r.Code != 1 {
				t.Error(r)
			}
			k.oneLine(r.Stderr, "mine")
			if after := prints(t, k.Home); after != before {
				t.Error("a folder that is there was changed")
			}
		})
	}
}

const jobText = `[{"id":"box","type":"deploy_sandbox","sandbox_name":"box","sandbox_mode":"vm","sandbox_type":"local"},
 {"id":"load","type":"load_artifact","sandbox_name":"box","artifact_id":"u1","destination_path":"/app/in"},
 {"id":"code","type":"run_code","sandbox_name":"box","script_artifact_id":"u1"}]`

// TestTaskCommands stores a task, prints it, checks it, and refuses what cannot be.
func TestTaskCommands(t *testing.T) {
	t.Parallel()
	k := newUser(t)
	kit.Write(t, k.Home, kit.Files{"job.json": jobText, "set/a.py": "def run(i): pass\n", "broken.json": "[{]", "odd.json": `[{"id":"a","type":"deploy_sandbox","sandbox_name":"b","sandbox_mode":"vm","colour":"red"}]`,
		"agent.json": `[{"id":"a","type":"prompt_agent","agent_name":"x","prompt":"hi"}]`})
	r := k.run("task", "create", "--id", "job", "job.json")
	if r.Code != 1 || !strings.Contains(r.Stderr, "u1") || !strings.Contains(r.Stderr, "--skip-validation") {
		t.Errorf("an artifact that is not there: %s", r)
	}
	if r := k.run("task", "get", "--id", "job"); r.Code != 1 {
		t.Errorf("what was refused is stored: %s", r)
	}
	k.ok("artifact", "file-artifact-universe", "put-bundled", "--id", "u1", "--file-dir", "set")
	if out := k.ok("task", "create", "--id", "job", "job.json"); !strings.Contains(out, "Created task: id=job version=1 steps=3") {
		t.Error(out)
	}
	got := parse(t, k.ok("task", "get", "--id", "job"))
	if got.len() != 3 || got.str(1, "artifacts", 0, "id") != "u1" || got.num(0, "ttl_seconds") != 7200 {
		t.Errorf("%s", got)
	}
	if out := k.ok("task", "validate", "--id", "job"); !strings.Contains(out, "none found a problem") {
		t.Error(out)
	}
	for file, want := range map[string]string{"broken.json": "line 1", "odd.json": `"colour"`} {
		r := k.run("task", "create", "--id", "bad", file)
		if r.Code != 1 {
			t.Errorf("%s: %s", file, r)
		}
		k.oneLine(r.Stderr, file, want)
	}
	if r := k.run("task", "create", "--id", "bad", "nowhere.json"); r.Code != 2 || !strings.Contains(r.Stderr, "nowhere.json") {
		t.Errorf("a file that is not there: %s", r)
	}
	if r := k.run("task", "get", "--id", "bad"); r.Code != 1 {
		t.Errorf("a bad task is stored: %s", r)
	}
	record := k.passes("hello")
	id := record.str("instance_id")
	out := k.ok("task", "get-instance", "--id", id)
	for _, want := range []string{"Instance ID: " + id, "Status: completed", "Progress: 3/3", `"deployed_sandboxes"`} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
}

// TestArtifactCommands goes through the commands of artifacts.
func TestArtifactCommands(t *testing.T) {
	t.Parallel()
	k := newUser(t)
	kit.Write(t, k.Home, kit.Files{"set/a.txt": "hello\n", "set/sub/b.json": `{"x":1}`, "my-skill/SKILL.md": "---\nname: my-skill\ndescription: d\n---\nBody\n", "my-skill/data/x.csv": "1\n",
		"other/bin/tool": "+x#!/bin/sh\n", "seed.json": `{"files":[{"path":"x","content":"old"}]}`, "note.md": "n", "one.txt": "one", "empty-parent/keep": ""})
	universe := []string{"artifact", "file-artifact-universe"}
	put := append(universe, "put-bundled", "--id", "u1", "--file-dir", "set")
	if out := k.ok(put...); !strings.Contains(out, "Created FileArtifactUniverse: id=u1 version=1 file_count=2 bundle_object_url=file://") {
		t.Error(out)
	}
	for id, file := range map[string]string{"u1__18b7cb099a9ea3f5": "a.txt", "u1__2df735364b25e3fa": "b.json"} {
		d := parse(t, k.ok("artifact", "show", "--id", id))
		if d.str("filename") != file || d.str("s3_url") == "" || d.str("s3_url") != d.str("object_url") {
			t.Errorf("%s: %s", id, d)
		}
	}
	first := parse(t, k.ok("artifact", "show", "--id", "u1"))
	kit.Write(t, k.Home, kit.Files{"set/a.txt": "changed\n"})
	if out := k.ok(put...); !strings.Contains(out, "version=2 ") {
		t.Error(out)
	}
	if second := parse(t, k.ok("artifact", "show", "--id", "u1")); first.String() == second.String() {
		t.Errorf("the second version is the first: %s", second)
	}
	get := func(args ...string) kit.Files {
		into := filepath.Join(t.TempDir(), "out")
		k.ok(append(append([]string{"artifact"}, args...), "--output-dir", into)...)
		return kit.Read(t, into)
	}
	same(t, get("file-artifact-universe", "get", "--id", "u1", "--version", "1"), kit.Files{"a.txt": "hello\n", "sub/b.json": `{"x":1}`})
	same(t, get("file-artifact-universe", "get", "--id", "u1"), kit.Files{"a.txt": "changed\n", "sub/b.json": `{"x":1}`})
	many := get("file-artifact-universe", "get-many", "--id", "u1", "--id", "u1")
	if len(many) != 2 {
		t.Errorf("get-many wrote %v", many)
	}
	if out := k.ok("artifact", "skill", "put", "--id", "my-skill", "--skill-dir", "my-skill"); !strings.Contains(out, "Created SkillArtifact: id=my-skill version=1 spec_version=0.1 skill_files_id=my-skill__files") {
		t.Error(out)
	}
	same(t, get("skill", "get", "--id", "my-skill"), kit.Files{"SKILL.md": "---\nname: my-skill\ndescription: d\n---\nBody\n", "data/x.csv": "1\n"})
	r := k.run("artifact", "skill", "put", "--id", "wrong", "--skill-dir", "my-skill")
	if r.Code != 1 {
		t.Error(r)
	}
	k.oneLine(r.Stderr, "must be 'wrong'")
	if r := k.run("artifact", "skill", "put", "--id", "my-skill"); r.Code != 1 && r.Code != 2 {
		t.Errorf("a skill of nothing: %s", r)
	}
	if out := k.ok("artifact", "cli", "put", "--id", "tool", "--cli-dir", "other", "--entrypoint", "bin/tool", "--command-name", "tool"); !strings.Contains(out, "Created CliArtifact: id=tool version=1 command_name=tool entrypoint=bin/tool") {
		t.Error(out)
	}
	same(t, get("cli", "get", "--id", "tool"), kit.Files{"bin/tool": "#!/bin/sh\n"})

	// A universe keeps the versions it was made of.
	k.ok("artifact", "environment", "put", "seed.json", "--id", "fs", "--description", "d", "--environment-name", "fs")
	k.ok("artifact", "environment-universe", "put", "--id", "uni", "--environment-artifact", "fs", "--metadata", "note=note.md")
	before := get("environment-universe", "get", "--id", "uni")
	kit.Write(t, k.Home, kit.Files{"seed.json": `{"files":[{"path":"x","content":"new"}]}`})
	k.ok("artifact", "environment", "put", "seed.json", "--id", "fs", "--description", "d", "--environment-name", "fs")
	same(t, get("environment-universe", "get", "--id", "uni"), before)
	stored := parse(t, k.ok("artifact", "show", "--id", "uni"))
	if a, b := stored.at("service_artifact_refs"), stored.at("environment_artifact_refs"); a.String() != b.String() || a.v == nil || stored.at("service_artifact_ids").v != nil {
		t.Errorf("%s", stored)
	}
	for _, bad := range []string{"fs:", "fs:b", "fs:0", "fs:1:2", ""} {
		if r := k.run("artifact", "environment-universe", "put", "--id", "bad", "--environment-artifact", bad); r.Code != 2 {
			t.Errorf("%q: %s", bad, r)
		}
	}
	for _, bad := range []string{"note", "note=nowhere.md"} {
		if r := k.run("artifact", "environment-universe", "put", "--id", "bad", "--environment-artifact", "fs", "--metadata", bad); r.Code != 1 {
			t.Errorf("%q: %s", bad, r)
		}
	}
	if out := k.ok("artifact", "environment-universe", "compatible-envs", "--id", "uni"); out != "No compatibility results found for universe uni\n" {
		t.Errorf("%q", out)
	}
	if r := k.run("artifact", "skill", "get", "--id", "u1", "--output-dir", "x"); r.Code != 1 || strings.Count(r.Stderr, "\n") != 1 {
		t.Errorf("a set of files as a skill: %s", r)
	}
	k.ok("artifact", "file", "put", "one.txt", "--id", "one")
	same(t, get("file", "get", "--id", "one"), kit.Files{"one.txt": "one"})
	if out := k.ok("artifact", "list", "--type", "skill"); !strings.Contains(out, "my-skill v1  skill") || strings.Contains(out, "u1") {
		t.Error(out)
	}
}
