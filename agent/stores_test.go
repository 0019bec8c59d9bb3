package agent_test

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"agentenv/agent"
	"agentenv/fault"
	"agentenv/store/doc"
	"agentenv/store/document"
	"agentenv/store/document/sqlite"
)

func openDocs(tb testing.TB, path string) *sqlite.Store {
	tb.Helper()
	s, err := sqlite.New(sqlite.Options{Path: path})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Error(err)
		}
	})
	return s
}

func docsPath(tb testing.TB) string { return filepath.Join(tb.TempDir(), "docs.db") }

func noon() time.Time { return time.Date(2030, 1, 2, 12, 0, 0, 123456000, time.UTC) }

func stored(t *testing.T, docs document.Store, coll string, f document.Filter) string {
	t.Helper()
	d, err := docs.FindOne(t.Context(), coll, f)
	if err != nil {
		t.Fatal(err)
	}
	text, err := doc.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

var image = agent.ArtifactRef{ID: "img", Version: 3}

func TestAgentDocument(t *testing.T) {
	t.Parallel()
	docs := openDocs(t, docsPath(t))
	agents := agent.NewDocuments(docs, noon, nil)
	put, err := agents.Put(t.Context(), agent.NewAgent{ID: "a", Image: image, DefaultEnv: doc.Of("Z", "1", "A", "2"), Metadata: doc.Of("default_model", "m", "min_disk_size_gb", doc.Float(12))})
	if err != nil || put.Version != 1 {
		t.Fatal(put, err)
	}
	const want = `{"id": "a", "type": "a2a_agent", "version": 1, "docker_image_artifact": {"id": "img", "version": 3, "type": "docker_image"}, ` +
		`"default_env_vars": {"Z": "1", "A": "2"}, "metadata": {"default_model": "m", "min_disk_size_gb": 12.0}, "created_at_utc": "2030-01-02T12:00:00.123456+00:00"}`
	if got := stored(t, docs, "a2a_agents", document.By("id", "a")); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	got, err := agents.Get(t.Context(), "a", 0)
	if err != nil || got.Version != 1 || got.Image != (agent.ArtifactRef{ID: "img", Version: 3, Type: "docker_image"}) || strings.Join(got.DefaultEnv.Keys(), " ") != "Z A" ||
		got.Metadata.Str("default_model") != "m" || got.CreatedAt != "2030-01-02T12:00:00.123456+00:00" || got.Document.Value("created_at_utc") != nil {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := agents.Put(t.Context(), agent.NewAgent{ID: "bare", Image: image}); err != nil {
		t.Error(err)
	}
	if got := stored(t, docs, "a2a_agents", document.By("id", "bare")); !strings.Contains(got, `"default_env_vars": {}, "metadata": {}`) {
		t.Error(got)
	}
}

func TestAgentVersions(t *testing.T) {
	t.Parallel()
	at := noon()
	agents := agent.NewDocuments(openDocs(t, docsPath(t)), func() time.Time { at = at.Add(time.Second); return at }, nil)
	put := func(id string, version int64) error {
		_, err := agents.Put(t.Context(), agent.NewAgent{ID: id, Version: version, Image: image, Metadata: doc.Of("n", doc.Int(version))})
		return err
	}
	for _, c := range []struct {
		id      string
		version int64
		kind    fault.Kind
	}{{"a", 0, ""}, {"b", 0, ""}, {"a", 2, ""}, {"a", 2, fault.Conflict}, {"a", 4, fault.Conflict}, {"a", -1, fault.Invalid}, {"", 0, fault.Invalid}} {
		if err := put(c.id, c.version); fault.KindOf(err) != c.kind {
			t.Errorf("%s v%d: %v", c.id, c.version, err)
		}
	}
	for version, want := range map[int64]int64{0: 2, 1: 1, 2: 2} {
		if got, err := agents.Get(t.Context(), "a", version); err != nil || got.Version != want {
			t.Error(version, got, err)
		}
	}
	for id, version := range map[string]int64{"a": 3, "none": 0} {
		if _, err := agents.Get(t.Context(), id, version); !fault.Is(err, fault.NotFound) || !strings.Contains(err.Error(), id) {
			t.Error(err)
		}
	}
	list, err := agents.List(t.Context(), 0)
	if err != nil || len(list) != 2 || list[0].ID != "a" || list[0].Version != 2 || list[1].ID != "b" {
		t.Errorf("%v, %v", list, err)
	}
	if list, err := agents.List(t.Context(), 1); err != nil || len(list) != 1 {
		t.Error(list, err)
	}
	if n, err := agents.Count(t.Context()); err != nil || n != 2 {
		t.Error(n, err)
	}
	for name, n := range map[string]agent.NewAgent{
		"no image":       {ID: "x"},
		"unpinned image": {ID: "x", Image: agent.ArtifactRef{ID: "i"}},
		"a number":       {ID: "x", Image: image, DefaultEnv: doc.Of("A", doc.Int(1))},
	} {
		if _, err := agents.Put(t.Context(), n); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAgentsOfOthers(t *testing.T) {
	t.Parallel()
	docs := openDocs(t, docsPath(t))
	agents := agent.NewDocuments(docs, noon, nil)
	ref := doc.Of("id", "img", "version", doc.Int(1), "type", "docker_image")
	for _, d := range []*doc.Object{
		doc.Of("id", "old", "type", "a2a_agent", "version", doc.Int(1), "docker_image_artifact", ref, "min_disk_size_gb", doc.Int(9), "default_model", nil),
		doc.Of("id", "new", "type", "a2b_agent", "version", doc.Int(1)),
		doc.Of("id", "bad", "type", "a2a_agent", "version", doc.Int(1), "docker_image_artifact", "img"),
	} {
		if err := docs.Insert(t.Context(), "a2a_agents", d); err != nil {
			t.Fatal(err)
		}
	}
	old, err := agents.Get(t.Context(), "old", 0)
	if err != nil {
		t.Fatal(err)
	}
	if n, _ := old.Metadata.Int("min_disk_size_gb"); n != 9 || old.Metadata.Len() != 1 || old.Document.Value("min_disk_size_gb") != nil {
		t.Errorf("%+v", old)
	}
	if _, err := agents.Get(t.Context(), "new", 0); !fault.Is(err, fault.Unsupported) {
		t.Error(err)
	}
	if _, err := agents.Get(t.Context(), "bad", 0); !fault.Is(err, fault.Invalid) {
		t.Error(err)
	}
	if _, err := docs.Delete(t.Context(), "a2a_agents", document.By("id", "bad")); err != nil {
		t.Fatal(err)
	}
	if list, err := agents.List(t.Context(), 0); err != nil || len(list) != 1 {
		t.Error(list, err)
	}
}

func TestUpdateMetadata(t *testing.T) {
	t.Parallel()
	at := noon()
	agents := agent.NewDocuments(openDocs(t, docsPath(t)), func() time.Time { at = at.Add(time.Second); return at }, nil)
	if _, err := agents.Put(t.Context(), agent.NewAgent{ID: "a", Image: image, Metadata: doc.Of("k", "v")}); err != nil {
		t.Fatal(err)
	}
	set := func(key string) func(*doc.Object) { return func(m *doc.Object) { m.Set(key, true) } }
	if err := agents.UpdateMetadata(t.Context(), "a", 1, "", set("one")); err != nil {
		t.Fatal(err)
	}
	a, err := agents.Get(t.Context(), "a", 1)
	if err != nil || a.Metadata.Str("k") != "v" || !a.Metadata.Bool("one") || a.Metadata.Str("updated_at") != "2030-01-02T12:00:02.123456+00:00" {
		t.Fatalf("%v, %v", a, err)
	}
	if err := agents.UpdateMetadata(t.Context(), "a", 1, "", set("two")); !fault.Is(err, fault.Conflict) || fault.ClassOf(err) != "ConcurrentModificationError" {
		t.Error(err)
	}
	if err := agents.UpdateMetadata(t.Context(), "a", 0, a.Metadata.Str("updated_at"), set("two")); err != nil {
		t.Error(err)
	}
	if err := agents.UpdateMetadata(t.Context(), "a", 2, "", set("two")); !fault.Is(err, fault.NotFound) {
		t.Error(err)
	}
	if a, err := agents.Get(t.Context(), "a", 0); err != nil || !a.Metadata.Bool("one") || !a.Metadata.Bool("two") {
		t.Error(a, err)
	}
}

func TestInstances(t *testing.T) {
	t.Parallel()
	docs := openDocs(t, docsPath(t))
	instances := agent.NewInstances(docs)
	in := agent.Instance{InstanceID: "a-12345678", AgentID: "a", AgentVersion: 2, URL: "http://h:1", SandboxID: "box", SandboxType: "local",
		Card: doc.Of("name", "n"), CreatedAt: noon(), ExpiresAt: noon().Add(2 * time.Hour)}
	if err := instances.Put(t.Context(), in); err != nil {
		t.Fatal(err)
	}
	const want = `{"instance_id": "a-12345678", "agent_id": "a", "agent_version": 2, "a2a_url": "http://h:1", "sandbox_id": "box", "sandbox_type": "local", ` +
		`"agent_card": {"name": "n"}, "network_policy": null, "created_at_utc": "2030-01-02 12:00 UTC", "expires_at_utc": "2030-01-02 14:00 UTC"}`
	if got := stored(t, docs, "a2a_agent_instances", document.By("instance_id", in.InstanceID)); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	got, err := instances.Get(t.Context(), in.InstanceID)
	if err != nil || got.AgentVersion != 2 || got.URL != in.URL || got.Card.Str("name") != "n" || !got.ExpiresAt.Equal(in.ExpiresAt.Truncate(time.Minute)) {
		t.Errorf("%+v, %v", got, err)
	}
	if err := instances.Put(t.Context(), in); !fault.Is(err, fault.Exists) {
		t.Error(err)
	}
	if _, err := instances.Get(t.Context(), "none"); !fault.Is(err, fault.NotFound) {
		t.Error(err)
	}
	if err := instances.Put(t.Context(), agent.Instance{}); !fault.Is(err, fault.Invalid) {
		t.Error(err)
	}
	if a, b := agent.NewInstanceID("a"), agent.NewInstanceID("a"); a == b || len(a) != 10 || !strings.HasPrefix(a, "a-") {
		t.Error(a, b)
	}
}

// TestLocalNamespace keeps what belongs to @local ids out of the configured store.
func TestLocalNamespace(t *testing.T) {
	t.Parallel()
	configured := openDocs(t, docsPath(t))
	local, err := sqlite.New(sqlite.Options{Path: docsPath(t), CheckID: func(string) error { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	docs := document.NewRouter(configured, local)
	t.Cleanup(func() { docs.Close() })
	ctx := t.Context()
	if _, err := agent.NewDocuments(docs, noon, nil).Put(ctx, agent.NewAgent{ID: "@local/me/agents/a", Image: agent.ArtifactRef{ID: "@local/me/agents/a__agent_image", Version: 1}}); err != nil {
		t.Fatal(err)
	}
	if err := agent.NewInstances(docs).Put(ctx, agent.Instance{InstanceID: "@local/me/agents/a-12345678", AgentID: "@local/me/agents/a"}); err != nil {
		t.Fatal(err)
	}
	talks := agent.NewConversations(docs, noon)
	if err := talks.Open(ctx, agent.Conversation{ID: "c", InstanceID: "@local/me/tasks/t-12345678"}); err != nil {
		t.Fatal(err)
	}
	if err := talks.AddMessage(ctx, "c", "user", nil, "M"); err != nil {
		t.Fatal(err)
	}
	if c, err := talks.Get(ctx, "c"); err != nil || len(c.Messages) != 1 {
		t.Error(c, err)
	}
	for _, coll := range []string{"a2a_agents", "a2a_agent_instances", "agent_env_a2a_conversations"} {
		for _, s := range []struct {
			docs document.Store
			want int
		}{{configured, 0}, {local, 1}} {
			if n, err := s.docs.Count(context.WithoutCancel(ctx), coll, nil); err != nil || n != s.want {
				t.Errorf("%s: %d, %v", coll, n, err)
			}
		}
	}
}

func TestParseManifest(t *testing.T) {
	t.Parallel()
	m, err := agent.ParseManifest([]byte("image = \"img\"\n[default_env_vars]\nZ = \"1\"\nA = \"2\"\n[metadata]\ndefault_model = \"m\"\nmin_disk_size_gb = 12\ntakes_credentials = false\n"))
	if err != nil || m.Image != "img" || strings.Join(m.DefaultEnv.Keys(), " ") != "Z A" || m.Metadata.Len() != 3 {
		t.Errorf("%+v, %v", m, err)
	}
	if m, err := agent.ParseManifest(nil); err != nil || m.Image != nil || m.DefaultEnv == nil || m.Metadata == nil {
		t.Errorf("%+v, %v", m, err)
	}
	if m, err := agent.ParseManifest([]byte(`image = { dockerfile = "D" }`)); err != nil || m.Image.(*doc.Object).Str("dockerfile") != "D" {
		t.Errorf("%+v, %v", m, err)
	}
	for text, says := range map[string]string{
		"image = 1": "image must be", "image = \"\"": "image must be", "default_env_vars = 1": "default_env_vars must be a table",
		"[default_env_vars]\nA = 1": "default_env_vars.A must be a text", "metadata = 1": "metadata must be a table",
		"[metadata]\ndefault_model = 1": "metadata.default_model must be a text", "[metadata]\nmin_disk_size_gb = true": "metadata.min_disk_size_gb must be a number",
		"[metadata]\nmin_disk_size_gb = inf": "metadata.min_disk_size_gb is Infinity", "[metadata]\nmin_disk_size_gb = -1": "metadata.min_disk_size_gb must be a number greater than 0, not -1",
		"[metadata]\nmin_disk_size_gb = 0": "greater than 0, not 0", "[default_env_vars]\n\"A=B\" = \"1\"": "default_env_vars: no variable can be named", "[default_env_vars]\n\"\" = \"1\"": "default_env_vars: a variable needs a name", "[metadata]\ntakes_credentials = \"no\"": "metadata.takes_credentials must be true or false",
		"nope = 1\n[metadata]\nalso = 1": "nope is unknown; there are image, default_env_vars and metadata; metadata.also is unknown", "image =": "agent.toml",
	} {
		if _, err := agent.ParseManifest([]byte(text)); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v", text, err)
		}
	}
}
