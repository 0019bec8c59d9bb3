package agent_test

import (
	"path/filepath"
	"strings"
	"testing"

	"agentenv/agent"
	"agentenv/fault"
	"agentenv/store"
	"agentenv/store/doc"
	"agentenv/store/document"
	"agentenv/store/document/sqlite"
)

func routed(t *testing.T) document.Store {
	t.Helper()
	local, err := sqlite.New(sqlite.Options{Path: filepath.Join(t.TempDir(), "local.db"), CheckID: store.CheckLocalID})
	if err != nil {
		t.Fatal(err)
	}
	configured, err := sqlite.New(sqlite.Options{Path: docsPath(t), CheckID: store.CheckBareID})
	if err != nil {
		t.Fatal(err)
	}
	docs := document.NewRouter(configured, local)
	t.Cleanup(func() { docs.Close() })
	return docs
}

func TestIDsOfAgents(t *testing.T) {
	t.Parallel()
	agents := agent.NewDocuments(routed(t), noon, nil)
	put := func(id string) error {
		_, err := agents.Put(t.Context(), agent.NewAgent{ID: id, Image: image})
		return err
	}
	for _, id := range []string{"solver", "team/solver", "a b", "größe", "a__b", "v1.2", "@local/~/a b/c"} {
		if err := agents.CheckID(id); err != nil {
			t.Errorf("%q: %v", id, err)
		}
		if err := put(id); err != nil {
			t.Errorf("put %q: %v", id, err)
		}
	}
	for _, id := range []string{"", " ", "../../x", "..", ".", "a/../b", "/x", "a//b", "x/", "a\nb", "a\x01", "a\x00b", "\u202ea", "a\xff", " a", "a /b", strings.Repeat("x", 600),
		"@local/../x", "@local/", "@team/x"} {
		if err := agents.CheckID(id); !fault.Is(err, fault.Invalid) || strings.ContainsAny(err.Error(), "\n\x00") {
			t.Errorf("%q: %v", id, err)
		}
		if err := put(id); !fault.Is(err, fault.Invalid) {
			t.Errorf("put %q: %v", id, err)
		}
	}
	if n, err := agents.Count(t.Context()); err != nil || n != 7 {
		t.Errorf("%d agents are stored, %v", n, err)
	}
}

// TestEndpointsHoldNoSecret holds what messages say of an address.
func TestEndpointsHoldNoSecret(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{"http://h/x": "the agent at http://h/x", "http://me:s3cret@h/x": "the agent at http://me:xxxxx@h/x", "http://s3cret@h/x": "the agent at http://xxxxx@h/x",
		"http://h/x?token=s3cret": "the agent at http://h/x?***", "http://me:s3cret@h h/": "the agent at an address that cannot be read", "<url>": "the agent at %3Curl%3E"} {
		if got := (agent.Endpoint{URL: address}).String(); got != want {
			t.Errorf("%s: %s", address, got)
		}
	}
}

func TestVariablesOfAgents(t *testing.T) {
	t.Parallel()
	agents := agent.NewDocuments(routed(t), noon, nil)
	for _, name := range []string{"", "A=B", "A\x00", "A\xff"} {
		if _, err := agents.Put(t.Context(), agent.NewAgent{ID: "a", Image: image, DefaultEnv: doc.Of(name, "1")}); !fault.Is(err, fault.Invalid) {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestAliases(t *testing.T) {
	t.Parallel()
	const target = "@local/agentenv-framework/echo/echo"
	read := 0
	known := store.NewAliases([]store.Alias{{Name: "echo", ID: target, Bundle: "agentenv-framework's echo bundle"}, {Name: "model", ID: "@local/agentenv-framework/model/model", Bundle: "b"}},
		map[string]string{"twice": "several installed bundles give it"})
	docs := routed(t)
	agents := agent.NewDocuments(docs, noon, nil).WithAliases(func() *store.Aliases { read++; return known })
	fails := func(id string, version int64, kind fault.Kind, says string) {
		t.Helper()
		if a, err := agents.Get(t.Context(), id, version); !fault.Is(err, kind) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s v%d: %v, %v", id, version, a, err)
		}
	}
	fails("echo", 0, fault.NotFound, "'echo' is an alias of "+target+", which comes with agentenv-framework's echo bundle and is not in the store yet")
	fails("echo", 2, fault.Invalid, "has no fixed version")
	fails("twice", 0, fault.Invalid, "several installed bundles give it")
	fails("ecko", 0, fault.NotFound, "did you mean the alias 'echo'?")
	fails("somebody", 0, fault.NotFound, "A2AAgent somebody not found")
	seen := read
	fails("@local/x", 0, fault.NotFound, "A2AAgent @local/x not found")
	fails("team/echo", 0, fault.NotFound, "A2AAgent team/echo not found")
	if read != seen {
		t.Error("ids of a namespace were looked up as aliases")
	}

	if _, err := agents.Put(t.Context(), agent.NewAgent{ID: target, Image: image}); err != nil {
		t.Fatal(err)
	}
	if a, by, err := agents.Find(t.Context(), "echo", 0); err != nil || a.ID != target || by.Note() != "echo → "+target+" (the alias agentenv-framework's echo bundle gives it)" {
		t.Errorf("%+v, %+v, %v", a, by, err)
	}
	if a, by, err := agents.Find(t.Context(), target, 1); err != nil || a.Version != 1 || by != (store.Alias{}) {
		t.Errorf("%+v, %+v, %v", a, by, err)
	}
	if err := agents.UpdateMetadata(t.Context(), "echo", 0, "", func(*doc.Object) {}); !fault.Is(err, fault.NotFound) {
		t.Errorf("metadata by an alias: %v", err)
	}

	// The store's own agent of that id is meant from now on, whatever version is asked for.
	if _, err := agents.Put(t.Context(), agent.NewAgent{ID: "echo", Image: image}); err != nil {
		t.Fatal(err)
	}
	if a, by, err := agents.Find(t.Context(), "echo", 0); err != nil || a.ID != "echo" || by != (store.Alias{}) {
		t.Errorf("%+v, %+v, %v", a, by, err)
	}
	fails("echo", 2, fault.NotFound, "A2AAgent echo version=2 not found")
}
