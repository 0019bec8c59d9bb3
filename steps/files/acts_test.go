package files

import (
	"context"
	"errors"
	"io"
	"iter"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"agentenv/artifact"
	"agentenv/fault"
	"agentenv/sandbox"
	"agentenv/sandbox/engine"
	"agentenv/sandbox/local"
	"agentenv/sandbox/place"
	"agentenv/store"
	"agentenv/store/doc"
	"agentenv/store/document"
	"agentenv/store/document/sqlite"
	"agentenv/store/object/localfs"
	"agentenv/task"
)

// stage is the steps of this package with a store and the bare sandbox "box" on this machine.
type stage struct {
	deps Deps
	id   string // of the sandbox
	reg  *task.Registry
}

func newStage(t *testing.T) *stage {
	t.Helper()
	dir := t.TempDir()
	db := func(name string, check func(string) error) document.Store {
		s, err := sqlite.New(sqlite.Options{Path: filepath.Join(dir, name), CheckID: check})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	docs := document.NewRouter(db("documents.db", nil), db("local.db", store.CheckLocalID))
	objects, err := localfs.New(filepath.Join(dir, "objects"))
	if err != nil {
		t.Fatal(err)
	}
	artifacts, err := artifact.New(artifact.Options{Documents: docs, Objects: objects})
	if err != nil {
		t.Fatal(err)
	}
	p, err := local.New(local.Options{Root: filepath.Join(dir, "boxes"), StateRoot: dir, Engine: &engine.Lazy{}})
	if err != nil {
		t.Fatal(err)
	}
	m, err := sandbox.NewManager(sandbox.Config{Providers: []sandbox.Provider{p}, Ledger: sandbox.OpenLedger(filepath.Join(dir, "ledger.db"))})
	if err != nil {
		t.Fatal(err)
	}
	box, err := m.Deploy(t.Context(), "local", sandbox.Spec{Name: "box", Mode: sandbox.VM}, nil)
	if err != nil {
		t.Fatal(err)
	}
	s := &stage{deps: Deps{Sandboxes: m, Artifacts: artifacts}, id: box.Info().ID}
	t.Cleanup(func() {
		if err := m.Terminate(context.WithoutCancel(t.Context()), sandbox.Record{Name: "box", ID: s.id, Type: "local", Mode: sandbox.VM}); err != nil {
			t.Error(err)
		}
		m.Close()
		objects.Close()
		docs.Close()
	})
	if s.reg, err = task.NewRegistry(Types(s.deps)...); err != nil {
		t.Fatal(err)
	}
	return s
}

// run executes one step that acts on a sandbox of this id under the name "box".
func (s *stage) run(t *testing.T, id, step string) (*task.Run, error) {
	t.Helper()
	tk, err := s.reg.ParseText("t", []byte("["+step+"]"), task.ParseOptions{})
	if err != nil {
		t.Fatal(err)
	}
	st := tk.Steps[0]
	r := task.NewRun(st.ID, st.Type, nil, nil, nil)
	if err := r.AddSandbox(task.Sandbox{Name: "box", ID: id, Mode: "vm", Type: "local"}); err != nil {
		t.Fatal(err)
	}
	return r, st.Action.Execute(t.Context(), r)
}

func (s *stage) put(t *testing.T, id string, names ...string) {
	t.Helper()
	var files []artifact.Source
	for _, n := range names {
		files = append(files, source(n, "body of "+n))
	}
	if _, err := s.deps.Artifacts.PutUniverse(t.Context(), id, files); err != nil {
		t.Fatal(err)
	}
}

func source(name, body string) artifact.Source {
	return artifact.Source{Name: name, Size: int64(len(body)), Open: func(context.Context) (io.ReadCloser, error) {
		return io.NopCloser(strings.NewReader(body)), nil
	}}
}

func TestEntriesThatClimb(t *testing.T) {
	s := newStage(t)
	s.put(t, "one", "a.txt", "b.txt")
	r, err := s.run(t, s.id, `{"id":"l","type":"load_artifact","artifact_id":"one","sandbox_name":"box","destination_path":"/app/no/../in"}`)
	if err != nil {
		t.Fatal(err)
	}
	loaded := r.Metadata("loaded_file_artifact_universes").([]any)[0].(*doc.Object)
	if loaded.Str("destination_path") != "/app/in" {
		t.Errorf("loaded into %s", loaded.Str("destination_path"))
	}

	r, err = s.run(t, s.id, `{"id":"c","type":"collect_artifacts","sandbox_name":"box","base_path":"/app/in","artifact_paths":["s/../a.txt"]}`)
	if got := r.Metadata("collected_artifacts", "c", "artifacts").(*doc.Object).Keys(); err != nil || !slices.Equal(got, []string{"s/../a.txt"}) {
		t.Errorf("collected %v, %v", got, err)
	}

	r, err = s.run(t, s.id, `{"id":"c","type":"collect_artifacts","sandbox_name":"box","base_path":"/app/in","artifact_paths":["../../etc/passwd"]}`)
	if fault.ClassOf(err) != "RuntimeError" || !strings.Contains(err.Error(), "../../etc/passwd") {
		t.Errorf("an entry that leads out: %s: %v", fault.ClassOf(err), err)
	}
	for key, want := range map[string]string{
		"artifacts":              `{}`,
		"collected_artifacts":    `{"c":{"artifacts":{},"file_artifact_universe":null}}`,
		"collect_produced_files": `{"base_path":"/app/in","files":["a.txt","b.txt"],"step_id":"c"}`,
	} {
		if got := doc.Canonical(r.Metadata(key)); got != want {
			t.Errorf("metadata.%s is %s, want %s", key, got, want)
		}
	}

	r, err = s.run(t, s.id, `{"id":"c","type":"collect_artifacts","sandbox_name":"box","base_path":"/app/in","artifact_paths":["../x","b.txt"]}`)
	if err == nil || doc.Canonical(r.Metadata("artifacts")) == "{}" {
		t.Errorf("what may be collected beside it: %s, %v", doc.Canonical(r.Metadata("artifacts")), err)
	}

	r, err = s.run(t, "local-00000000", `{"id":"c","type":"collect_artifacts","sandbox_name":"box","artifact_paths":["../x"]}`)
	if _, there := r.Lookup("collected_artifacts"); err == nil || there {
		t.Errorf("a sandbox that is gone: %v, recorded %t", err, there)
	}
}

// TestErrorTypes has failures that come up while a step acts: they are recorded as RuntimeErrors, whatever their kind.
func TestErrorTypes(t *testing.T) {
	s := newStage(t)
	s.put(t, "one", "a.txt")
	if _, err := s.run(t, s.id, `{"id":"l","type":"load_artifact","artifact_id":"one","sandbox_name":"box","destination_path":"/app"}`); err != nil {
		t.Fatal(err)
	}
	for id, body := range map[string]string{"climbs": `{"files":[{"path":"../x","content":"y"}]}`, "text": "not JSON"} {
		if _, err := s.deps.Artifacts.PutEnvironment(t.Context(), id, "", "fs", "", source("data.json", body)); err != nil {
			t.Fatal(err)
		}
	}
	for name, step := range map[string]string{
		"onto a file":        `{"id":"s","type":"load_artifact","artifact_id":"one","sandbox_name":"box","destination_path":"/app/a.txt"}`,
		"a payload climbs":   `{"id":"s","type":"load_artifact","artifact_id":"climbs","sandbox_name":"box"}`,
		"a payload of text":  `{"id":"s","type":"load_artifact","artifact_id":"text","sandbox_name":"box"}`,
		"an empty manifest":  `{"id":"s","type":"collect_artifacts","manifest_step_id":"p","sandbox_name":"box"}`,
		"a path that climbs": `{"id":"s","type":"collect_artifacts","artifact_paths":["../../etc/passwd"],"sandbox_name":"box"}`,
	} {
		if _, err := s.run(t, s.id, step); err == nil || fault.ClassOf(err) != "RuntimeError" {
			t.Errorf("%s: %s: %v", name, fault.ClassOf(err), err)
		}
	}
	if err := asRuntime(fault.New(fault.Timeout, "slow")); fault.ClassOf(err) != "TimeoutError" {
		t.Error("a deadline stays one:", fault.ClassOf(err))
	}
}

// growing is a place whose file grow.txt is longer once it was read.
type growing struct {
	sizesNow
	gone error // of a look after the reading
}

func (g *growing) String() string { return "a place" }

func (g *growing) Get(context.Context, place.GetRequest) (place.Tree, error) {
	return &files{left: []place.Entry{{Root: 0, Name: "grow.txt", Kind: place.File, Size: 3}, {Root: 0, Name: "still.txt", Kind: place.File, Size: 3}}}, nil
}

func (g *growing) Walk(ctx context.Context, root string, hash bool) iter.Seq2[place.Entry, error] {
	if g.gone != nil {
		return func(yield func(place.Entry, error) bool) { yield(place.Entry{}, g.gone) }
	}
	return g.sizesNow.Walk(ctx, root, hash)
}

// files is a tree of files that each hold "abc".
type files struct {
	left []place.Entry
	body io.Reader
}

func (f *files) Next() (place.Entry, error) {
	if len(f.left) == 0 {
		return place.Entry{}, io.EOF
	}
	e := f.left[0]
	f.left, f.body = f.left[1:], strings.NewReader("abc")
	return e, nil
}

func (f *files) Read(p []byte) (int, error) { return f.body.Read(p) }
func (f *files) Close() error               { return nil }

func TestWhatGrewIsOnlyLeftOut(t *testing.T) {
	s := newStage(t)
	a := &collect{deps: s.deps, base: "/d"}
	p := &growing{sizesNow: sizesNow{sizes: map[string]int64{"/d/grow.txt": 5, "/d/still.txt": 3}}}
	r := task.NewRun("c", "collect_artifacts", nil, nil, nil)
	g := &gathered{collection: &artifact.Collection{}}
	if err := a.gather(t.Context(), r, p, "got", []item{{source: "/d"}, {source: "/d"}}, nil, g); err != nil {
		t.Fatal(err)
	}
	a.record(t.Context(), r, p, nil, g)
	entry := r.Metadata("collected_artifacts", "c").(*doc.Object)
	if keys := entry.Obj("artifacts").Keys(); !slices.Equal(keys, []string{"still.txt"}) || !slices.Equal(r.Metadata("artifacts").(*doc.Object).Keys(), keys) {
		t.Errorf("recorded %v", keys)
	}
	if left := entry.Arr("left_out"); len(left) != 1 || left[0].(*doc.Object).Str("path") != "/d/grow.txt" {
		t.Errorf("left out %s", doc.Canonical(entry.Value("left_out")))
	}
	u, err := artifact.GetAs[*artifact.Universe](t.Context(), s.deps.Artifacts, artifact.Ref{ID: "got"})
	if err != nil {
		t.Fatal(err)
	}
	ms, err := s.deps.Artifacts.Members(t.Context(), u)
	if err != nil || len(ms) != 1 || ms[0].Name != "still.txt" {
		t.Errorf("the artifact holds %v, %v", ms, err)
	}
	if err := a.judge(nil, g); fault.ClassOf(err) != "RuntimeError" || !strings.Contains(err.Error(), "/d/grow.txt") {
		t.Error(err)
	}

	p.gone = errors.New("the sandbox went away")
	g = &gathered{collection: &artifact.Collection{}}
	if err := a.gather(t.Context(), r, p, "none", []item{{source: "/d"}}, nil, g); !errors.Is(err, p.gone) || strings.Contains(err.Error(), "still.txt") {
		t.Errorf("a look that fails: %v", err)
	}
	if _, err := s.deps.Artifacts.Get(t.Context(), artifact.Ref{ID: "none"}); !fault.Is(err, fault.NotFound) {
		t.Errorf("what was not checked was recorded: %v", err)
	}
}
