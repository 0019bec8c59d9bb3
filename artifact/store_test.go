package artifact_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"agentenv/artifact"
	"agentenv/fault"
	"agentenv/store"
	"agentenv/store/doc"
	"agentenv/store/document"
	"agentenv/store/document/sqlite"
	"agentenv/store/object"
	"agentenv/store/object/localfs"
)

// stage is a state folder with its stores, wired as the program wires them.
type stage struct {
	dir     string
	docs    document.Store
	objects object.Store
	store   *artifact.Store
	log     *bytes.Buffer
}

// openRouter opens the two document stores of a state folder.
func openRouter(t testing.TB, dir string) document.Store {
	t.Helper()
	db := func(name string, check func(string) error) document.Store {
		s, err := sqlite.New(sqlite.Options{Path: filepath.Join(dir, name), CheckID: check})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	r := document.NewRouter(db("documents.db", nil), db("local.db", store.CheckLocalID))
	t.Cleanup(func() { r.Close() })
	return r
}

func newStage(t testing.TB, change func(*artifact.Options)) *stage {
	t.Helper()
	dir := t.TempDir()
	objects := func(name string) object.Store {
		s, err := localfs.New(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := &stage{dir: dir, log: &bytes.Buffer{}}
	s.docs = openRouter(t, filepath.Join(dir, "document_store"))
	s.objects = object.NewRouter(objects("shared_objects"), objects("object_store"))
	o := artifact.Options{Documents: s.docs, Objects: s.objects, Log: slog.New(slog.NewTextHandler(s.log, nil))}
	if change != nil {
		change(&o)
	}
	var err error
	if s.store, err = artifact.New(o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.objects.Close() })
	return s
}

func src(name, body string) artifact.Source {
	return artifact.Source{Name: name, Size: int64(len(body)), Open: func(context.Context) (io.ReadCloser, error) {
		return io.NopCloser(strings.NewReader(body)), nil
	}}
}

func body(t testing.TB, m artifact.Member) string {
	t.Helper()
	r, err := m.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func tree(t testing.TB, s *artifact.Store, a artifact.Artifact) map[string]string {
	t.Helper()
	ms, err := s.Members(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, m := range ms {
		out[m.Name] = body(t, m)
	}
	return out
}

func need[T any](t testing.TB) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func wantKind(t testing.TB, err error, kind fault.Kind, parts ...string) {
	t.Helper()
	if !fault.Is(err, kind) {
		t.Fatalf("got %v (%s), want kind %s", err, fault.KindOf(err), kind)
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("%q does not say %q", err, p)
		}
	}
}

func TestBundledUniverse(t *testing.T) {
	s := newStage(t, nil)
	ctx := t.Context()
	files := []artifact.Source{src("a.txt", "hello\n"), src("sub/b.json", `{"x":1}`)}
	u1 := need[*artifact.Universe](t)(s.store.PutUniverse(ctx, "u1", files))
	if u1.Version() != 1 || !strings.HasSuffix(u1.Prefix, "/") {
		t.Fatalf("stored %+v", u1)
	}
	a := need[*artifact.File](t)(artifact.GetAs[*artifact.File](ctx, s.store, artifact.Ref{ID: "u1__18b7cb099a9ea3f5"}))
	b := need[*artifact.File](t)(artifact.GetAs[*artifact.File](ctx, s.store, artifact.Ref{ID: "u1__2df735364b25e3fa"}))
	if a.Filename != "a.txt" || b.Filename != "b.json" || b.ContentType != "application/json" {
		t.Errorf("members are %+v and %+v", a, b)
	}
	if want := "Bundled file 'sub/b.json' of FileArtifactUniverse 'u1'"; b.Description != want {
		t.Errorf("description %q, want %q", b.Description, want)
	}
	u2 := need[*artifact.Universe](t)(s.store.PutUniverse(ctx, "u1", []artifact.Source{src("a.txt", "changed\n")}))
	if u2.Version() != 2 || u2.Prefix == u1.Prefix {
		t.Errorf("the second write is v%d under %s, the first under %s", u2.Version(), u2.Prefix, u1.Prefix)
	}
	first := need[artifact.Artifact](t)(s.store.Get(ctx, artifact.Ref{ID: "u1", Version: 1}))
	if diff := cmp.Diff(map[string]string{"a.txt": "hello\n", "sub/b.json": `{"x":1}`}, tree(t, s.store, first)); diff != "" {
		t.Error("version 1 changed:", diff)
	}
	latest := need[artifact.Artifact](t)(s.store.Get(ctx, artifact.Ref{ID: "u1"}))
	if got := tree(t, s.store, latest)["a.txt"]; got != "changed\n" {
		t.Errorf("latest a.txt is %q", got)
	}
	d := first.Document()
	if d.Str("bundle_s3_url") != d.Str("bundle_object_url") || d.Obj("file_artifact_ids").Str("a.txt") != "u1__18b7cb099a9ea3f5" {
		t.Errorf("stored form %v", d)
	}
}

func TestUniverseRefusals(t *testing.T) {
	s := newStage(t, nil)
	for name, files := range map[string][]artifact.Source{
		"empty":    nil,
		"absolute": {src("/etc/passwd", "x")},
		"parent":   {src("a/../../b", "x")},
		"twice":    {src("a", "x"), src("a", "y")},
		"nul":      {src("a\x00b", "x")},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := s.store.PutUniverse(t.Context(), "u", files)
			wantKind(t, err, fault.Invalid)
		})
	}
	_, err := s.store.PutUniverse(t.Context(), "@agentenv/x", []artifact.Source{src("a", "x")})
	wantKind(t, err, fault.Invalid, "@agentenv")
	if found, _ := filepath.Glob(filepath.Join(s.dir, "*", "artifacts")); len(found) > 0 {
		t.Errorf("refused writes left %v", found)
	}
}

func TestNamespaces(t *testing.T) {
	s := newStage(t, nil)
	ctx := t.Context()
	f := need[*artifact.File](t)(s.store.PutFile(ctx, "@local/~/demo/f", "", src("f.txt", "mine")))
	if !strings.Contains(f.URL, "/object_store/artifacts/file/local/demo-f-") {
		t.Errorf("an @local file went to %s", f.URL)
	}
	g := need[*artifact.File](t)(s.store.PutFile(ctx, "shared", "", src("f.txt", "ours")))
	if !strings.Contains(g.URL, "/shared_objects/artifacts/file/shared/") {
		t.Errorf("a bare file went to %s", g.URL)
	}
	run := store.WithRunScope(ctx, "@local/~/demo/task")
	_, err := s.store.PutFile(run, "shared", "", src("f.txt", "x"))
	wantKind(t, err, fault.Denied, "shared")
	_, err = s.store.PutFileAt(ctx, "@local/~/demo/g", "", g.URL)
	wantKind(t, err, fault.Invalid, "another namespace")
}

func TestVersionsAndRaces(t *testing.T) {
	s := newStage(t, nil)
	ctx := t.Context()
	f := need[*artifact.File](t)(s.store.PutFile(ctx, "f", "one", src("f.txt", "1")))
	d := f.Document().Set("version", doc.Int(3))
	for _, v := range []int64{1, 3, 5} {
		_, err := s.store.Put(ctx, d.Clone().Set("version", doc.Int(v)))
		wantKind(t, err, fault.Conflict, "version 1", "next is 2", fmt.Sprintf("not %d", v))
	}
	if got := need[artifact.Artifact](t)(s.store.Put(ctx, d.Clone().Set("version", doc.Int(2)))); got.Version() != 2 {
		t.Errorf("stored v%d", got.Version())
	}
	const writers = 8
	var all sync.WaitGroup
	var mu sync.Mutex
	seen := map[int64]bool{}
	for i := range writers {
		all.Go(func() {
			f, err := s.store.PutFile(ctx, "f", "", src("f.txt", fmt.Sprint(i)))
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			seen[f.Version()] = true
		})
	}
	all.Wait()
	for v := int64(3); v < 3+writers; v++ {
		if !seen[v] {
			t.Errorf("no writer got version %d", v)
		}
	}
	_, err := s.store.Get(ctx, artifact.Ref{ID: "f", Version: 99})
	wantKind(t, err, fault.NotFound, "Artifact f version=99 not found")
	_, err = artifact.GetAs[*artifact.Skill](ctx, s.store, artifact.Ref{ID: "f"})
	wantKind(t, err, fault.Invalid, "f v", "file", "skill")
}

func TestSetField(t *testing.T) {
	s := newStage(t, nil)
	ctx := t.Context()
	need[*artifact.File](t)(s.store.PutFile(ctx, "f", "", src("f.txt", "1")))
	if err := s.store.SetField(ctx, "file", artifact.Ref{ID: "f", Version: 1}, "note", "x"); err != nil {
		t.Fatal(err)
	}
	got, err := s.docs.FindOne(ctx, artifact.Documents, document.By("id", "f"))
	if err != nil || got.Str("note") != "x" {
		t.Errorf("stored %v, %v", got, err)
	}
	wantKind(t, s.store.SetField(ctx, "file", artifact.Ref{ID: "f", Version: 1}, "version", doc.Int(2)), fault.Invalid, "identifies")
	wantKind(t, s.store.SetField(ctx, "file", artifact.Ref{ID: "f", Version: 9}, "note", "x"), fault.NotFound)
}

func TestPins(t *testing.T) {
	s := newStage(t, nil)
	ctx := t.Context()
	e := need[*artifact.Environment](t)(s.store.PutEnvironment(ctx, "e", "", "mail", "seed", src("seed.json", `{"files":[]}`)))
	u := need[*artifact.EnvironmentUniverse](t)(s.store.PutEnvironmentUniverse(ctx, "u", artifact.EnvironmentSet{
		Existing: []artifact.Ref{{ID: "e"}}, Metadata: []artifact.NewMetadata{{Key: "notes", Source: src("n.txt", "n")}}}))
	need[*artifact.File](t)(s.store.PutFile(ctx, "e__file", "", src("seed.json", `{"files":[1]}`)))
	if got := tree(t, s.store, u)["mail/seed.json"]; got != `{"files":[]}` {
		t.Errorf("the pinned bytes are %q", got)
	}
	d := u.Document()
	if !doc.Equal(d.Value("service_artifact_refs"), d.Value("environment_artifact_refs")) || d.Value("service_artifact_ids") != nil {
		t.Errorf("stored form %v", d)
	}
	meta := need[[]artifact.Member](t)(s.store.MetadataFiles(ctx, u))
	if len(meta) != 1 || meta[0].Name != "notes/n.txt" || body(t, meta[0]) != "n" {
		t.Errorf("metadata %v", meta)
	}
	if e.File == nil || *e.File != (artifact.Ref{ID: "e__file", Version: 1}) {
		t.Errorf("environment wraps %v", e.File)
	}
	_, err := s.store.PutEnvironmentUniverse(ctx, "u2", artifact.EnvironmentSet{Existing: []artifact.Ref{{ID: "e"}},
		New: []artifact.NewEnvironment{{ID: "u2__mail", Name: "mail", Source: src("x", "x")}}})
	wantKind(t, err, fault.Invalid, `two environments are named "mail"`)
	_, err = s.store.PutEnvironmentUniverse(ctx, "u3", artifact.EnvironmentSet{})
	wantKind(t, err, fault.Invalid, "at least one")
}

func TestLegacyDocuments(t *testing.T) {
	s := newStage(t, nil)
	ctx := t.Context()
	f := need[*artifact.File](t)(s.store.PutFile(ctx, "f", "", src("f.txt", "bytes")))
	insert := func(d *doc.Object) {
		t.Helper()
		if err := s.docs.Insert(ctx, artifact.Documents, d); err != nil {
			t.Fatal(err)
		}
	}
	insert(doc.Of("_id", "x", "id", "both", "version", doc.Int(1), "type", "file", "description", "d", "filename", "n", "content_type", "t",
		"s3_url", f.URL, "object_url", "file:///elsewhere", "service_version", doc.Int(3)))
	both := need[*artifact.File](t)(artifact.GetAs[*artifact.File](ctx, s.store, artifact.Ref{ID: "both"}))
	if both.URL != f.URL || both.Document().Str("object_url") != f.URL || both.Document().Value("service_version") != nil {
		t.Errorf("the legacy spelling must win and unknown keys go: %v", both.Document())
	}
	insert(doc.Of("id", "oldset", "version", doc.Int(1), "type", "file_artifact_universe", "file_artifact_refs", &doc.Object{},
		"file_artifact_ids", doc.Of("n.txt", "f")))
	old := need[artifact.Artifact](t)(s.store.Get(ctx, artifact.Ref{ID: "oldset"}))
	if got := tree(t, s.store, old); got["n.txt"] != "bytes" {
		t.Errorf("members %v", got)
	}
	if !strings.Contains(s.log.String(), "oldset") {
		t.Error("no warning about the unpinned set")
	}
	insert(doc.Of("id", "olduni", "version", doc.Int(1), "type", "environment_universe", "service_artifact_ids", []any{"olde"}, "metadata", doc.Of("k", "f")))
	insert(doc.Of("id", "olde", "version", doc.Int(1), "type", "environment", "service_name", "mail", "file_artifact_id", "f"))
	uni := need[*artifact.EnvironmentUniverse](t)(artifact.GetAs[*artifact.EnvironmentUniverse](ctx, s.store, artifact.Ref{ID: "olduni"}))
	if got := tree(t, s.store, uni); got["mail/f.txt"] != "bytes" {
		t.Errorf("file view %v", got)
	}
	d := uni.Document()
	if d.Value("environment_artifact_refs") != nil || len(d.Arr("service_artifact_ids")) != 1 || d.Obj("metadata").Str("k") != "f" {
		t.Errorf("a legacy document must keep its keys and gain none: %v", d)
	}
	insert(doc.Of("id", "broken", "version", doc.Int(1), "type", "file_artifact_universe"))
	broken := need[artifact.Artifact](t)(s.store.Get(ctx, artifact.Ref{ID: "broken"}))
	_, err := s.store.Members(ctx, broken)
	wantKind(t, err, fault.Invalid, "broken v1", "file_artifact_refs", "file_artifact_ids")
}

func TestTypesAndAliases(t *testing.T) {
	for name, o := range map[string]artifact.Options{
		"built in":   {Custom: []string{"file"}},
		"twice":      {Custom: []string{"x", "x"}},
		"self":       {Aliases: map[string]string{"x": "x"}},
		"chain":      {Aliases: map[string]string{"a": "b", "b": "file"}},
		"no target":  {Aliases: map[string]string{"a": "nothing"}},
		"registered": {Aliases: map[string]string{"skill": "file"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := artifact.New(o)
			wantKind(t, err, fault.Invalid, "[artifacts]")
		})
	}
	s := newStage(t, func(o *artifact.Options) {
		o.Custom = []string{"dataset"}
		o.Aliases = map[string]string{"table": "dataset", "blob": "file"}
	})
	ctx := t.Context()
	put := need[artifact.Artifact](t)
	put(s.store.Put(ctx, doc.Of("id", "d", "type", "dataset", "rows", doc.Int(3))))
	got := put(s.store.Get(ctx, artifact.Ref{ID: "d"}))
	if rows, _ := got.Document().Int("rows"); got.Type() != "dataset" || got.Version() != 1 || rows != 3 {
		t.Errorf("read %v", got.Document())
	}
	if err := s.docs.Insert(ctx, artifact.Documents, doc.Of("id", "old", "version", doc.Int(1), "type", "blob", "filename", "n", "s3_url", "u")); err != nil {
		t.Fatal(err)
	}
	if err := s.docs.Insert(ctx, artifact.Documents, doc.Of("id", "odd", "version", doc.Int(1), "type", "unheard")); err != nil {
		t.Fatal(err)
	}
	list := need[[]artifact.Artifact](t)(s.store.List(ctx, artifact.ListQuery{Type: "file"}))
	if len(list) != 1 || list[0].ID() != "old" || list[0].Type() != "file" {
		t.Errorf("a filter by type must match every spelling: %v", list)
	}
	_, err := s.store.Get(ctx, artifact.Ref{ID: "odd"})
	wantKind(t, err, fault.Unsupported, "odd", "unheard", "impls", "type_aliases")
	all := need[[]artifact.Artifact](t)(s.store.List(ctx, artifact.ListQuery{}))
	if len(all) != 2 || !strings.Contains(s.log.String(), "unheard") {
		t.Errorf("unknown types must be left out with a warning, got %d", len(all))
	}
}

func TestCollected(t *testing.T) {
	at := time.Unix(1700000000, 0)
	s := newStage(t, func(o *artifact.Options) { o.Now = func() time.Time { return at } })
	ctx := store.WithRunScope(t.Context(), "@local/~/t")
	items := []artifact.Collect{
		{Key: "out.sh", ObjectName: "out.sh", Size: 2, Body: strings.NewReader("hi")},
		{Key: "/etc/hostname", ObjectName: "etc/hostname", Size: -1, Body: strings.NewReader("host")},
		{Key: "etc/hostname", ObjectName: "etc/hostname", Size: -1, Body: strings.NewReader("other")},
		{Key: "../up", ObjectName: "../up", Size: -1, Body: strings.NewReader("")},
		{Key: "bad\xffname\n", ObjectName: "bad\xffname\n", Size: -1, Body: strings.NewReader("x")},
	}
	var keep func() (func(int) bool, error)
	collect := func() *artifact.Collection {
		i := 0
		c, err := s.store.PutCollected(ctx, "@local/~/t-abc", "@local/~/t-abc", func() (artifact.Collect, error) {
			if i == len(items) {
				return artifact.Collect{}, io.EOF
			}
			i++
			return items[i-1], nil
		}, keep)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	c := collect()
	if c.RecordErr != nil || c.Universe == nil || len(c.Files) != 5 {
		t.Fatalf("collected %+v", c)
	}
	want := map[string]string{"out.sh": "hi", "etc/hostname": "host", "etc/hostname-2": "other", "up": "", "bad%FFname\n": "x"}
	u := need[artifact.Artifact](t)(s.store.Get(ctx, *c.Universe))
	if diff := cmp.Diff(want, tree(t, s.store, u)); diff != "" {
		t.Error(diff)
	}
	for _, f := range c.Files {
		if !strings.Contains(f.URL, "/artifacts/collected_artifacts/local/t-abc-") || !strings.Contains(f.URL, "/1700000000-") {
			t.Errorf("object at %s", f.URL)
		}
		if info, err := s.objects.Stat(ctx, f.URL); err != nil || info == nil || info.Size != f.Size {
			t.Errorf("%s: %v %v", f.Key, info, err)
		}
	}
	member := need[*artifact.File](t)(artifact.GetAs[*artifact.File](ctx, s.store, artifact.Ref{ID: artifact.MemberID("@local/~/t-abc", "out.sh")}))
	if member.ContentType != "text/x-shellscript" || member.Description != "Collected artifact 'out.sh' from task instance @local/~/t-abc" {
		t.Errorf("member %+v", member)
	}
	for i := range items {
		items[i].Body = strings.NewReader("again")
		items[i].Size = -1
	}
	if again := collect(); again.Universe == nil || again.Universe.Version != 2 {
		t.Errorf("a second collect in the same second gave %+v", again)
	}
	boom := fault.New(fault.Unavailable, "the sandbox went away")
	_, err := s.store.PutCollected(ctx, "@local/~/t-abc", "", func() (artifact.Collect, error) { return artifact.Collect{}, boom }, nil)
	if err != error(boom) {
		t.Errorf("got %v, want the error of next as it is", err)
	}
	for i := range items {
		items[i].Body = strings.NewReader("kept")
	}
	keep = func() (func(int) bool, error) { return func(i int) bool { return i == 2 }, nil }
	c = collect()
	u = need[artifact.Artifact](t)(s.store.Get(ctx, *c.Universe))
	if diff := cmp.Diff(map[string]string{"etc/hostname": "kept"}, tree(t, s.store, u)); diff != "" || len(c.Files) != 1 {
		t.Error(diff, c.Files)
	}
	keep = func() (func(int) bool, error) { return func(int) bool { return false }, nil }
	if c = collect(); c.Universe != nil || len(c.Files) != 0 {
		t.Errorf("of nothing kept there is %+v", c)
	}
	_, err = s.store.PutCollected(ctx, "@local/~/t-none", "", func() (artifact.Collect, error) { return artifact.Collect{}, io.EOF },
		func() (func(int) bool, error) { return nil, boom })
	if err != error(boom) {
		t.Errorf("got %v, want the error of keep as it is", err)
	}
}

func TestDownload(t *testing.T) {
	s := newStage(t, nil)
	ctx := t.Context()
	u := need[*artifact.Universe](t)(s.store.PutUniverse(ctx, "u", []artifact.Source{src("a.txt", "a"), src("d/b.txt", "bb")}))
	ms := need[[]artifact.Member](t)(s.store.Members(ctx, u))
	if err := s.store.Measure(ctx, ms); err != nil || ms[1].Size != 2 {
		t.Fatalf("measured %v, %v", ms[1].Size, err)
	}
	dir := filepath.Join(t.TempDir(), "out")
	var total int64
	if err := artifact.Download(ctx, dir, ms, 0, func(m artifact.Member, dest string, n int64) { total += n }); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(dir, "d", "b.txt"))
	if string(got) != "bb" || total != 3 || err != nil {
		t.Errorf("got %q, %d bytes, %v", got, total, err)
	}
	outside := filepath.Join(t.TempDir(), "target")
	evil := []artifact.Member{ms[0], ms[1]}
	for _, name := range []string{"/etc/evil", "../evil", `..\evil`, "", ".", "a/../../x", "x\x00"} {
		evil[1].Name = name
		into := filepath.Join(t.TempDir(), "o")
		err := artifact.Download(ctx, into, evil, 0, nil)
		wantKind(t, err, fault.Invalid)
		if _, err := os.Stat(into); err == nil {
			t.Errorf("%q: the folder was made", name)
		}
	}
	if err := os.Symlink(filepath.Dir(outside), filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	evil[1].Name = "link/target"
	if err := artifact.Download(ctx, dir, evil, 0, nil); err == nil {
		t.Error("wrote through a link that leads outside")
	}
	if _, err := os.Stat(outside); err == nil {
		t.Error("a file landed outside the folder")
	}
}

func BenchmarkPutUniverse1000(b *testing.B) {
	s := newStage(b, nil)
	files := make([]artifact.Source, 1000)
	for i := range files {
		files[i] = src(fmt.Sprintf("d%d/f%d.txt", i%20, i), strings.Repeat("x", 1000))
	}
	for i := 0; b.Loop(); i++ {
		if _, err := s.store.PutUniverse(b.Context(), fmt.Sprintf("@local/u%d", i), files); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkMembers1000(b *testing.B) {
	s := newStage(b, nil)
	files := make([]artifact.Source, 1000)
	for i := range files {
		files[i] = src(fmt.Sprintf("d%d/f%d.txt", i%20, i), strings.Repeat("x", 1000))
	}
	u, err := s.store.PutUniverse(b.Context(), "@local/u", files)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		ms, err := s.store.Members(b.Context(), u)
		if err == nil {
			err = s.store.Measure(b.Context(), ms)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}
