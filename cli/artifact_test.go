package cli

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"agentenv/artifact"
	"agentenv/runner"
	queue "agentenv/runner/local"
	"agentenv/sandbox"
	"agentenv/store/doc"
	"agentenv/store/document/sqlite"
	"agentenv/store/object/localfs"
	"agentenv/task"
)

// bench is the program over a state folder of its own, in a folder with the given files.
type bench struct {
	t    *testing.T
	dir  string
	logs string // where logs of runs are; "" = nowhere
	app  *App
}

// idle is a step that does nothing.
type idle struct{}

func (idle) Execute(context.Context, *task.Run) error { return nil }

// noSandboxes is the teardown of runs that deploy nothing.
type noSandboxes struct{}

func (noSandboxes) Teardown(context.Context, string, *doc.Object) task.TeardownReport {
	return task.TeardownReport{}
}
func (noSandboxes) Describe(context.Context, string, *doc.Object) []task.KeptSandbox { return nil }
func (noSandboxes) Alive(context.Context, task.Sandbox) (bool, error)                { return true, nil }
func (noSandboxes) Adopt(context.Context, string) error                              { return nil }
func (noSandboxes) Discard(context.Context, string, []string) error                  { return nil }

func newBench(t *testing.T, files map[string]string) *bench {
	t.Helper()
	dir, state := t.TempDir(), t.TempDir()
	for name, text := range files {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	b := &bench{t: t, dir: dir, app: &App{Env: func(string) string { return "" }, Dir: dir}}
	b.app.Open = func(context.Context, *slog.Logger) (*Services, error) {
		docs, err := sqlite.New(sqlite.Options{Path: filepath.Join(state, "docs.db")})
		if err != nil {
			return nil, err
		}
		objects, err := localfs.New(filepath.Join(state, "objects"))
		if err != nil {
			return nil, err
		}
		artifacts, err := artifact.New(artifact.Options{Documents: docs, Objects: objects})
		if err != nil {
			return nil, err
		}
		step := func(name string) *task.StepType {
			return &task.StepType{Name: name, Parse: func(string, *doc.Object) (task.Action, *doc.Object, error) { return idle{}, nil, nil }}
		}
		checked := step("checked")
		checked.Preflight = func(context.Context, *task.Step) []string { return nil }
		fixed := step("fixed")
		fixed.Check = func(*task.Step) []string { return nil }
		reg, err := task.NewRegistry(step("plain"), checked, fixed)
		if err != nil {
			return nil, err
		}
		records := runner.NewRecords(docs, sandbox.ThisProcess(), nil)
		s := &Services{Documents: docs, Artifacts: artifacts, Registry: reg, Tasks: task.NewTasks(reg, docs, nil, nil),
			Instances: task.NewInstances(docs), Reviews: task.NewReviews(docs, nil), Records: records, LogDir: b.logs, Teardown: noSandboxes{},
			OwnerAlive: func(in *task.Instance) bool { return records.Alive(in.Owner) }, Closers: []func() error{docs.Close}}
		engine := task.NewEngine(reg, docs, nil, nil)
		engine.Owner.Alive = records.RunsStill
		s.Engine, s.Tracker = engine, queue.NewTracker(records, nil)
		s.Runner = func(c queue.Config) *queue.Runner {
			return queue.New(queue.Deps{Engine: engine, Tasks: s.Tasks, Instances: s.Instances, Records: records, Teardown: s.Teardown}, c)
		}
		return s, nil
	}
	return b
}

var madeUp = regexp.MustCompile(`file://\S+/objects/(\S+/\d+)-[0-9a-f]+/`)

// run runs a command line, in which a leading @ stands for the folder of the bench. It returns what was printed, with @ again.
func (b *bench) run(args ...string) (code int, stdout, stderr string) {
	b.t.Helper()
	var out, errs bytes.Buffer
	b.app.Stdout, b.app.Stderr = &out, &errs
	for i, arg := range args {
		args[i] = strings.ReplaceAll(arg, "@/", b.dir+"/")
	}
	code = b.app.Run(b.t.Context(), args)
	tidy := func(s string) string {
		return madeUp.ReplaceAllString(strings.ReplaceAll(s, b.dir+"/", "@/"), "file://$1/")
	}
	return code, tidy(out.String()), tidy(errs.String())
}

// prints runs a command line, its words apart by blanks, and expects its whole standard output.
func (b *bench) prints(line, want string) {
	b.t.Helper()
	code, out, errs := b.run(strings.Fields(line)...)
	if code != 0 || out != want {
		b.t.Errorf("%s: exit code %d %s\n%s\nwant\n%s", line, code, errs, out, want)
	}
}

var artifactFiles = map[string]string{"d/a.txt": "a\n", "d/b/z.txt": "zz\n", "d/bin/x": "#!/bin/sh\n", "dump.sql": "sql", "m.json": "{}",
	"my-skill/SKILL.md": "---\nname: my-skill\ndescription: d\nmetadata:\n  author: me\n---\n# Body\n"}

func TestUniverseLines(t *testing.T) {
	t.Parallel()
	b := newBench(t, artifactFiles)
	set := "artifact file-artifact-universe "
	b.prints(set+"put-bundled --id u1 --file-dir @/d", "Uploading 3 file(s)...\n  a.txt\n  b/z.txt\n  bin/x\n"+
		"Created FileArtifactUniverse: id=u1 version=1 file_count=3 bundle_object_url=file://artifacts/file_artifact_universe/u1/1/\n")
	b.prints(set+"put-bundled --id a/u2 --file-dir @/d/b", "Uploading 1 file(s)...\n  z.txt\n"+
		"Created FileArtifactUniverse: id=a/u2 version=1 file_count=1 bundle_object_url=file://artifacts/file_artifact_universe/a/u2/1/\n")
	b.prints(set+"get --id u1 --output-dir @/out", "Fetching FileArtifactUniverse: id=u1 version=latest...\nFound: id=u1 version=1 file_count=3\n"+
		"  a.txt -> @/out/a.txt\n  b/z.txt -> @/out/b/z.txt\n  bin/x -> @/out/bin/x\nDone. Files written to @/out\n")
	for range 5 { // the order is no accident
		b.prints(set+"get-many --id u1 --id a/u2 --id u1 --output-dir @/many", "Resolving 3 universe(s)...\n4 file(s) to download\n  [1/4] u1/a.txt (2 bytes)\n  [2/4] u1/b/z.txt (3 bytes)\n"+
			"  [3/4] u1/bin/x (10 bytes)\n  [4/4] a/u2/z.txt (3 bytes)\nDone. 4 file(s) across 2 universe(s) written to @/many\n")
	}
	if text, err := os.ReadFile(filepath.Join(b.dir, "many", "a", "u2", "z.txt")); err != nil || string(text) != "zz\n" {
		t.Errorf("get-many wrote %q, %v", text, err)
	}
	b.prints(set+"get-many --batch-id none --output-dir @/none", "Resolving universes for batch_id=none...\nNo universe matches; nothing was downloaded.\n")
}

func TestSkillAndToolLines(t *testing.T) {
	t.Parallel()
	b := newBench(t, artifactFiles)
	b.prints("artifact skill put --id my-skill --skill-dir @/my-skill", "Uploading SkillArtifact bundle (1 file(s))...\n"+
		"Created SkillArtifact: id=my-skill version=1 spec_version=0.1 skill_files_id=my-skill__files skill_object_url=file://artifacts/skill/my-skill/1/\n"+
		"Frontmatter:\n  name: my-skill\n  description: d\n  metadata:\n    author: me\nBody (first 500 chars):\n# Body\n\n")
	b.prints("artifact skill get --id my-skill --version 1 --output-dir @/s", "Fetching SkillArtifact: id=my-skill version=1...\n"+
		"Found: id=my-skill version=1 spec_version=0.1 name=my-skill\n  SKILL.md -> @/s/SKILL.md\nDone. Files written to @/s\n")
	b.prints("artifact cli put --id c --cli-dir @/d --entrypoint bin/x --command-name x", "Uploading CliArtifact bundle (3 file(s)) from @/d...\n"+
		"Created CliArtifact: id=c version=1 command_name=x entrypoint=bin/x cli_files_id=c__files cli_object_url=file://artifacts/cli/c/1/\n")
	b.prints("artifact cli get --id c --output-dir @/c", "Fetching CliArtifact: id=c version=latest...\nFound: id=c version=1 command_name=x entrypoint=bin/x\n"+
		"  a.txt -> @/c/a.txt\n  b/z.txt -> @/c/b/z.txt\n  bin/x -> @/c/bin/x\nDone. Files written to @/c\nEntrypoint: @/c/bin/x\n")
}

func TestEnvironmentLines(t *testing.T) {
	t.Parallel()
	b := newBench(t, artifactFiles)
	b.prints("artifact environment put @/dump.sql --id e1 --description data --environment-name shop", "Creating FileArtifact...\n"+
		"Created FileArtifact: id=e1__file version=1 filename=dump.sql\nCreating EnvironmentArtifact...\n"+
		"Created EnvironmentArtifact: id=e1 version=1 environment_name=shop\n  pinned FileArtifact: e1__file:1\n")
	put := "artifact environment-universe put --id w1 --environment-artifact e1"
	b.prints(put, "Fetching EnvironmentArtifact: id=e1 version=latest...\n  Found: id=e1 version=1\nCreating EnvironmentUniverseArtifact...\n"+
		"Created EnvironmentUniverseArtifact: id=w1 version=1 environment_artifacts=['e1:1'] metadata=None\n")
	b.prints(put+":1 --metadata k=@/m.json", "Fetching EnvironmentArtifact: id=e1 version=1...\n  Found: id=e1 version=1\n"+
		"Creating metadata FileArtifact: key=k file=m.json...\n  Created FileArtifact: id=w1__metadata__k version=1 filename=m.json\n"+
		"Creating EnvironmentUniverseArtifact...\n"+
		"Created EnvironmentUniverseArtifact: id=w1 version=2 environment_artifacts=['e1:1'] metadata={'k': 'w1__metadata__k:1'}\n")
	b.prints("artifact environment-universe get --id w1 --output-dir @/w", "Fetching EnvironmentUniverseArtifact: id=w1 version=latest...\n"+
		"Found: id=w1 version=2 environment_artifacts=['e1:1'] metadata={'k': 'w1__metadata__k:1'}\n"+
		"  shop/dump.sql -> @/w/shop/dump.sql\n  metadata/k/m.json -> @/w/metadata/k/m.json\nDone. Files written to @/w\n")
	b.prints("artifact file-artifact-universe put --id up --file-artifact e1__file --file-artifact w1__metadata__k", "Resolving 2 FileArtifact(s)...\n"+
		"  dump.sql <- e1__file v1\n  m.json <- w1__metadata__k v1\nCreating FileArtifactUniverse...\nCreated FileArtifactUniverse: id=up version=1 file_count=2\n")
}

func TestExitCodesOfArtifactCommands(t *testing.T) {
	t.Parallel()
	b := newBench(t, artifactFiles)
	set := "artifact file-artifact-universe "
	for line, want := range map[string]int{
		set + "put-bundled --id u --file-dir @/gone":                                           2,
		set + "put-bundled --id u --file-dir @/m.json":                                         2,
		set + "get-many --output-dir @/o":                                                      1,
		set + "get-many --id u --batch-id x --output-dir @/o":                                  1,
		"artifact skill put --id s":                                                            1,
		"artifact skill put --id s --skill-dir @/gone":                                         2,
		"artifact cli put --id c --cli-dir @/gone --entrypoint x --command-name x":             2,
		"artifact environment put @/gone --id e --description d --environment-name n":          2,
		"artifact environment put @/d --id e --description d --environment-name n":             2,
		"artifact environment-universe put --id w --environment-artifact e:":                   2,
		"artifact environment-universe put --id w --environment-artifact e --metadata k=@/not": 1,
		"artifact file put @/gone --id f":                                                      2,
		"task create @/gone --id t":                                                            2,
		"task create @/d --id t":                                                               2,
		"task create @/m.json --id t":                                                          1,
	} {
		code, out, errs := b.run(strings.Fields(line)...)
		if code != want || out != "" && code == 2 || !strings.Contains(errs, "Error: ") || (code == 2) != strings.HasPrefix(errs, "Usage: ") {
			t.Errorf("%s: exit code %d, want %d\n%s%s", line, code, want, out, errs)
		}
	}
}
