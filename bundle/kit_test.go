package bundle_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"agentenv/artifact"
	"agentenv/bundle"
	"agentenv/fault"
	"agentenv/sandbox"
	"agentenv/store"
	"agentenv/store/doc"
	"agentenv/store/document"
	"agentenv/store/document/sqlite"
	"agentenv/store/object"
	"agentenv/store/object/localfs"
	"agentenv/task"
)

// files makes a bundle folder below the kit's home: "->target" is a link, "+x" before the body an executable, "|" a pipe.
func (k *kit) files(t testing.TB, name string, files map[string]string) string {
	t.Helper()
	dir := filepath.Join(k.home, name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for f, body := range files {
		p := filepath.Join(dir, f)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		mode := os.FileMode(0o644)
		if b, ok := strings.CutPrefix(body, "+x"); ok {
			body, mode = b, 0o755
		}
		target, link := strings.CutPrefix(body, "->")
		var err error
		switch {
		case strings.HasSuffix(f, "/"):
			err = os.MkdirAll(p, 0o755)
		case body == "|":
			err = syscall.Mkfifo(p, 0o644)
		case link:
			err = os.Symlink(target, p)
		default:
			err = errors.Join(os.WriteFile(p, []byte(body), mode), os.Chmod(p, mode))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// kit is a home, a state folder and everything that runs bundles, with real stores and the real engine; its step types do their work
// in this process.
type kit struct {
	home, state string
	docs        document.Store
	artifacts   *artifact.Store
	registry    *task.Registry
	images      *engineImages
	down        *ledgerOfDeployed
	runner      *bundle.Runner
	engine      *task.Engine
	onInsert    func() // runs after each write of an artifact's bytes; nil = nothing
}

// tapped calls the kit after bytes were written.
type tapped struct {
	object.Store
	k *kit
}

func (t tapped) PutAll(ctx context.Context, next func() (object.Item, error)) ([]object.Written, error) {
	w, err := t.Store.PutAll(ctx, next)
	if t.k.onInsert != nil {
		t.k.onInsert()
	}
	return w, err
}

func newKit(t testing.TB) *kit {
	t.Helper()
	home, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	k := &kit{home: home, state: filepath.Join(t.TempDir(), "agent-env"), images: &engineImages{held: map[string]string{}}, down: &ledgerOfDeployed{}}
	db := func(name string, check func(string) error) document.Store {
		s, err := sqlite.New(sqlite.Options{Path: filepath.Join(k.state, "document_store", name), CheckID: check})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	objects, err := localfs.New(filepath.Join(k.state, "object_store"))
	if err != nil {
		t.Fatal(err)
	}
	k.docs = document.NewRouter(db("documents.db", nil), db("local.db", store.CheckLocalID))
	if k.artifacts, err = artifact.New(artifact.Options{Documents: k.docs, Objects: tapped{objects, k}}); err != nil {
		t.Fatal(err)
	}
	if k.registry, err = task.NewRegistry(k.steps()...); err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	k.engine = task.NewEngine(k.registry, k.docs, log, nil)
	k.runner = bundle.NewRunner(bundle.Deps{Registry: k.registry, Documents: k.docs, Artifacts: k.artifacts, Providers: providers{},
		Images: k.images, StateRoot: k.state, Log: log,
		Pin: func(_ context.Context, ref string) (string, error) {
			return ref + "@sha256:" + strings.Repeat("ab", 32), nil
		}})
	t.Cleanup(func() { k.docs.Close(); objects.Close() })
	return k
}

// do is a step's work as a function.
type do func(ctx context.Context, r *task.Run) error

func (f do) Execute(ctx context.Context, r *task.Run) error { return f(ctx, r) }

// steps are the step types of the kit: their names and references are those of real ones.
func (k *kit) steps() []*task.StepType {
	str := func(name string) task.Field { return task.Field{Name: name, Kind: task.String} }
	return []*task.StepType{{
		Name: "deploy_sandbox", FailsTask: true,
		Fields: []task.Field{{Name: "sandbox_name", Kind: task.String, Required: true}, str("sandbox_mode"), str("sandbox_type"), str("image"),
			{Name: "port", Kind: task.Integer}},
		Parse: func(id string, f *doc.Object) (task.Action, *doc.Object, error) {
			return do(func(_ context.Context, r *task.Run) error {
				return r.AddSandbox(task.Sandbox{Name: f.Str("sandbox_name"), ID: "local-" + artifact.RandomHex(4), Mode: f.Str("sandbox_mode"), Type: "local"})
			}), nil, nil
		},
		Deploys: func(s *task.Step) []task.Deploy {
			return []task.Deploy{{What: "sandbox", Provider: s.Fields.Str("sandbox_type"), Mode: s.Fields.Str("sandbox_mode"),
				Image: s.Fields.Str("image"), ImageField: "image"}}
		},
	}, {
		Name: "load_artifact", FailsTask: true,
		Fields: []task.Field{{Name: "artifacts", Kind: task.List}, {Name: "artifact_id", Kind: task.String, Input: true},
			{Name: "artifact_version", Kind: task.Integer, Input: true}, str("sandbox_name"), str("destination_path"), str("env_id")},
		Refs: []task.Ref{{Path: "env_id", Kind: "env"}, {Path: "artifact_id", Kind: "artifact", VersionField: "artifact_version"},
			{Path: "artifacts[].id", Kind: "artifact", VersionField: "version"}},
		Parse: func(id string, f *doc.Object) (task.Action, *doc.Object, error) {
			if f.Str("sandbox_name") == "" {
				return nil, nil, fault.New(fault.Invalid, "it has no target: set sandbox_name")
			}
			return do(func(ctx context.Context, r *task.Run) error {
				_, err := r.Sandbox(f.Str("sandbox_name"))
				return err
			}), f, nil
		},
	}, {
		Name: "run_code", FailsTask: true,
		Fields: []task.Field{{Name: "script_artifact_id", Kind: task.String, Required: true}},
		Refs:   []task.Ref{{Path: "script_artifact_id", Kind: "artifact"}},
		Parse: func(id string, f *doc.Object) (task.Action, *doc.Object, error) {
			return do(func(context.Context, *task.Run) error { return nil }), nil, nil
		},
		Preflight: func(ctx context.Context, s *task.Step) []string {
			a, err := k.artifacts.Get(ctx, artifact.Ref{ID: s.Fields.Str("script_artifact_id")})
			if err != nil {
				return []string{err.Error()}
			}
			if a.Type() != artifact.TypeFile {
				return []string{"the script is no file"}
			}
			return nil
		},
	}, {
		Name: "score", FailsTask: true, IsVerifier: true,
		Fields: []task.Field{{Name: "value", Kind: task.NumberKind, Required: true}, str("verifier_id")},
		Parse: func(id string, f *doc.Object) (task.Action, *doc.Object, error) {
			vid := f.Str("verifier_id")
			if vid == "" {
				vid = artifact.RandomHex(16)
			}
			return do(func(_ context.Context, r *task.Run) error {
				r.Set(doc.Of("score", f.Value("value")), "verifications", vid)
				return nil
			}), f.Clone().Set("verifier_id", vid), nil
		},
	}, {
		Name: "wait", FailsTask: true,
		Fields: []task.Field{str("artifact_id")},
		Refs:   []task.Ref{{Path: "artifact_id", Kind: "artifact"}},
		Parse: func(id string, f *doc.Object) (task.Action, *doc.Object, error) {
			return do(func(ctx context.Context, _ *task.Run) error {
				select {
				case <-ctx.Done():
					return ctx.Err()
				case <-time.After(30 * time.Second):
					return nil
				}
			}), nil, nil
		},
	}, {
		Name: "deploy_agent", FailsTask: true,
		Fields: []task.Field{str("agent_name"), str("a2a_agent_id"), {Name: "a2a_agent_version", Kind: task.Integer}, str("sandbox_type")},
		Refs:   []task.Ref{{Path: "a2a_agent_id", Kind: "agent", VersionField: "a2a_agent_version"}},
		Parse: func(id string, f *doc.Object) (task.Action, *doc.Object, error) {
			return do(func(context.Context, *task.Run) error { return nil }), nil, nil
		},
		Deploys: func(s *task.Step) []task.Deploy {
			return []task.Deploy{{What: "agent", Provider: s.Fields.Str("sandbox_type"), Mode: "container"}}
		},
	}, {
		Name: "prompt_agent", FailsTask: true,
		Fields: []task.Field{str("prompt"), str("agent_name"), str("user_agent_name")},
		Parse: func(id string, f *doc.Object) (task.Action, *doc.Object, error) {
			return do(func(_ context.Context, r *task.Run) error {
				r.Set(r.Metadata("user_overrides"), "seen", id)
				return nil
			}), nil, nil
		},
	}, {Name: "peer_agents", Pending: true, Fields: []task.Field{str("agent_name")}}}
}

// providers knows local, which takes both modes, and far, which is elsewhere.
type providers struct{}

func (providers) Resolve(spec string) ([]string, error) {
	if spec == "" {
		spec = "local"
	}
	for _, n := range strings.Split(spec, ",") {
		if n != "local" && n != "far" {
			return nil, fault.New(fault.Invalid, "Unknown sandbox backend: '%s' (expected one of ['far', 'local'])", n)
		}
	}
	return strings.Split(spec, ","), nil
}

func (providers) Provider(name string) (sandbox.Provider, error) {
	return provider{here: name == "local"}, nil
}

type provider struct {
	sandbox.Provider
	here bool
}

func (p provider) Capabilities() sandbox.Capabilities {
	if p.here {
		return sandbox.Capabilities{Modes: []sandbox.Mode{sandbox.VM, sandbox.Container}, OnThisMachine: true}
	}
	return sandbox.Capabilities{Modes: []sandbox.Mode{sandbox.Container}}
}

func (provider) Check(context.Context) []sandbox.Lack { return nil }

// engineImages builds by remembering.
type engineImages struct {
	mu     sync.Mutex
	held   map[string]string
	builds []bundle.ImageBuild
	fail   error
}

func (e *engineImages) Holds(_ context.Context, name, sources string) (bool, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.held[name] == sources, nil
}

func (e *engineImages) Build(_ context.Context, b bundle.ImageBuild, progress func(string)) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	progress("building")
	if e.fail != nil {
		return e.fail
	}
	e.builds = append(e.builds, b)
	e.held[b.Name] = b.Sources
	return nil
}

// ledgerOfDeployed ends what contexts record.
type ledgerOfDeployed struct {
	mu    sync.Mutex
	ended []string
	stuck bool
}

func (l *ledgerOfDeployed) Teardown(_ context.Context, _ string, c *doc.Object) task.TeardownReport {
	var out task.TeardownReport
	for _, r := range task.Recorded(c) {
		s := task.SandboxReport{ID: r.ID, Provider: r.Type}
		if l.stuck {
			s.Folder, s.Why = "/work/"+r.ID, "the engine does not answer"
			out.Left = append(out.Left, s)
			continue
		}
		l.mu.Lock()
		l.ended = append(l.ended, r.ID)
		l.mu.Unlock()
		out.Ended = append(out.Ended, s)
	}
	return out
}

func (l *ledgerOfDeployed) Alive(context.Context, task.Sandbox) (bool, error) { return true, nil }

func (l *ledgerOfDeployed) Adopt(context.Context, string) error { return nil }

func (l *ledgerOfDeployed) Discard(context.Context, string, []string) error { return nil }

func (l *ledgerOfDeployed) Describe(_ context.Context, _ string, c *doc.Object) []task.KeptSandbox {
	var out []task.KeptSandbox
	for _, r := range task.Recorded(c) {
		out = append(out, task.KeptSandbox{SandboxReport: task.SandboxReport{ID: r.ID, Provider: r.Type}, Record: r.Slot + " " + r.Name,
			Endpoints: [][2]string{{"folder", "/work/" + r.ID}}})
	}
	return out
}

func (k *kit) parse(t testing.TB, dir string) *bundle.Bundle {
	t.Helper()
	b, err := bundle.Parse(dir, k.home)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (k *kit) plan(t testing.TB, dir string, sel bundle.Selection) *bundle.Plan {
	t.Helper()
	p, err := k.runner.Plan(t.Context(), k.parse(t, dir), sel)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// write plans and materializes a bundle and returns the lines it printed.
func (k *kit) write(t testing.TB, dir string, sel bundle.Selection) (*bundle.Plan, []string) {
	t.Helper()
	p := k.plan(t, dir, sel)
	var lines []string
	if err := p.Materialize(t.Context(), func(s string) { lines = append(lines, s) }, func(string) {}); err != nil {
		t.Fatal(err)
	}
	return p, lines
}

func (k *kit) options(o bundle.RunOptions) bundle.RunOptions {
	o.Runs, o.Teardown = k.engine, k.down
	return o
}

func (k *kit) row(t testing.TB, storeName, id string) *doc.Object {
	t.Helper()
	rows, err := k.docs.Query(t.Context(), "bundle_ledger", document.Query{Filter: document.By("store", storeName, "id", id)})
	if err != nil || len(rows) == 0 {
		t.Fatalf("no ledger row of %s %s: %v", storeName, id, err)
	}
	return rows[len(rows)-1]
}

func wantLines(t testing.TB, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("got lines\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

func wantProblems(t testing.TB, err error, want ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want\n  %s", strings.Join(want, "\n  "))
	}
	if !fault.Is(err, fault.Invalid) {
		t.Errorf("the error is %s, not invalid: %v", fault.KindOf(err), err)
	}
	lines := strings.Split(err.Error(), "\n")
	if !slices.IsSorted(lines) {
		t.Errorf("the problems are not sorted:\n%v", err)
	}
	if len(lines) != len(want) {
		t.Errorf("%d problems, want %d:\n%v", len(lines), len(want), err)
		return
	}
	for i, w := range want {
		for _, part := range strings.Split(w, " … ") {
			if !strings.Contains(lines[i], part) {
				t.Errorf("problem %d is\n  %s\nand does not say %q", i, lines[i], part)
			}
		}
	}
}
