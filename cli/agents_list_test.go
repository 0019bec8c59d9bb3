package cli

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"agentenv/agent"
	"agentenv/agent/deploy/deploytest"
	"agentenv/bundle"
	"agentenv/fault"
	"agentenv/sandbox"
	"agentenv/store"
	"agentenv/store/doc"
	"agentenv/store/document"
	"agentenv/store/document/sqlite"
)

// brokenStore cannot be read.
type brokenStore struct{ document.Store }

func (brokenStore) LatestPerID(context.Context, string, document.LatestQuery) ([]*doc.Object, int, error) {
	return nil, 0, fault.New(fault.Unavailable, "the disk\nis gone")
}

// withAgents gives the bench installed bundles and a store of agents, which damage may change.
func withAgents(t *testing.T, b *bench, damage func(document.Store) document.Store, catalogs ...*bundle.Catalog) {
	t.Helper()
	installed := bundle.NewInstalled(catalogs[0], catalogs[1:]...)
	open := b.app.Open
	manager, err := sandbox.NewManager(sandbox.Config{Providers: []sandbox.Provider{&deploytest.Provider{}}, Default: deploytest.Name, Ledger: sandbox.OpenLedger(filepath.Join(t.TempDir(), "ledger.db"))})
	if err != nil {
		t.Fatal(err)
	}
	local, err := sqlite.New(sqlite.Options{Path: filepath.Join(t.TempDir(), "local.db"), CheckID: store.CheckLocalID})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { manager.Close(); local.Close() })
	tick := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	clock := func() time.Time { tick = tick.Add(time.Second); return tick }
	b.app.Open = func(ctx context.Context, log *slog.Logger) (*Services, error) {
		s, err := open(ctx, log)
		if err == nil {
			s.Agents = Agents{Installed: installed, Documents: agent.NewDocuments(damage(document.NewRouter(s.Documents, local)), clock, nil).WithAliases(installed.AgentAliases)}
			s.Sandboxes = manager
		}
		return s, err
	}
}

func sound(s document.Store) document.Store { return s }

func catalogOf(t *testing.T, dist string, files ...string) *bundle.Catalog {
	t.Helper()
	fsys := fstest.MapFS{}
	for i := 0; i < len(files); i += 2 {
		fsys[files[i]] = &fstest.MapFile{Data: []byte(files[i+1])}
	}
	c, err := bundle.NewCatalog(dist, "1.2", fsys)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (b *bench) storeAgents(ids ...string) {
	b.t.Helper()
	s, err := b.app.Open(b.t.Context(), nil)
	if err != nil {
		b.t.Fatal(err)
	}
	defer s.Close()
	for _, id := range ids {
		if _, err := s.Agents.Documents.Put(b.t.Context(), agent.NewAgent{ID: id, Image: agent.ArtifactRef{ID: "img", Version: 1}}); err != nil {
			b.t.Fatal(err)
		}
	}
}

const scratch = "FROM scratch\n"

// TestAgentsAreListed holds the lines and the JSON that scripts read.
func TestAgentsAreListed(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	withAgents(t, b, sound, catalogOf(t, "agentenv-framework", "echo/agents/echo/Dockerfile", scratch, "echo/agents/plain/Dockerfile", scratch, "echo/aliases.toml", "[agents]\necho = [\"echo\", \"parrot\"]\n"))
	b.prints("a2a-agent list", `ID                                    ALIASES       FROM
@local/agentenv-framework/echo/echo   echo, parrot  agentenv-framework 1.2, echo bundle
@local/agentenv-framework/echo/plain                agentenv-framework 1.2, echo bundle

A task names an agent in a2a_agent_id by its id, or by an alias.
`)
	b.storeAgents("first", "parrot", "@local/agentenv-framework/echo/echo", "second", "second")
	b.prints("a2a-agent list", `ID                                    ALIASES                  FROM
@local/agentenv-framework/echo/echo   echo, parrot (shadowed)  agentenv-framework 1.2, echo bundle
@local/agentenv-framework/echo/plain                           agentenv-framework 1.2, echo bundle
second                                                         the store, v2
parrot                                                         the store, v1
first                                                          the store, v1

A task names an agent in a2a_agent_id by its id, or by an alias.
A shadowed alias names the store's agent of that id.
`)
	b.prints("a2a-agent list --limit 1", `ID                                    ALIASES                  FROM
@local/agentenv-framework/echo/echo   echo, parrot (shadowed)  agentenv-framework 1.2, echo bundle
@local/agentenv-framework/echo/plain                           agentenv-framework 1.2, echo bundle
second                                                         the store, v2

A task names an agent in a2a_agent_id by its id, or by an alias.
A shadowed alias names the store's agent of that id.
The store has 2 more agents: --limit 0 lists them all.
`)
	b.prints("a2a-agent list --limit 2 --json", `{
  "agents": [
    {
      "id": "@local/agentenv-framework/echo/echo",
      "source": "installed",
      "version": null,
      "aliases": [
        "echo",
        "parrot"
      ],
      "shadowed_aliases": [
        "parrot"
      ],
      "package": "agentenv-framework",
      "package_version": "1.2",
      "bundle": "echo"
    },
    {
      "id": "@local/agentenv-framework/echo/plain",
      "source": "installed",
      "version": null,
      "aliases": [],
      "shadowed_aliases": [],
      "package": "agentenv-framework",
      "package_version": "1.2",
      "bundle": "echo"
    },
    {
      "id": "second",
      "source": "store",
      "version": 2,
      "aliases": [],
      "shadowed_aliases": [],
      "package": null,
      "package_version": null,
      "bundle": null
    },
    {
      "id": "parrot",
      "source": "store",
      "version": 1,
      "aliases": [],
      "shadowed_aliases": [],
      "package": null,
      "package_version": null,
      "bundle": null
    }
  ],
  "refused_aliases": {},
  "more_in_store": 1,
  "store_error": null,
  "unreadable_bundles": 0
}
`)
	if code, _, errs := b.run("a2a-agent", "list", "--limit", "-1"); code != 2 {
		t.Errorf("--limit -1: %d, %s", code, errs)
	}
	code, out, errs := b.run("a2a-agent", "get", "--id", "echo")
	if code != 0 || errs != "echo → @local/agentenv-framework/echo/echo (the alias agentenv-framework's echo bundle gives it)\n" || !strings.Contains(out, `"id": "@local/agentenv-framework/echo/echo"`) {
		t.Errorf("%d, %s, %s", code, out, errs)
	}
	if code, out, errs = b.run("a2a-agent", "get", "--id", "parrot"); code != 0 || errs != "" || !strings.Contains(out, `"id": "parrot"`) {
		t.Errorf("%d, %s, %s", code, out, errs)
	}
	if code, _, errs = b.run("a2a-agent", "get", "--id", "echp"); code != 1 || !strings.Contains(errs, "did you mean the alias 'echo'?") {
		t.Errorf("%d, %s", code, errs)
	}
}

func TestAgentsAreListedWithoutAStore(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	withAgents(t, b, func(s document.Store) document.Store { return brokenStore{s} }, catalogOf(t, "agentenv-framework", "echo/agents/echo/Dockerfile", scratch),
		catalogOf(t, "acme", "bad/tasks/t.json", "{", "torn/agents/t/Dockerfile", scratch, "torn/aliases.toml", "[x]\n", "one/agents/a/Dockerfile", scratch, "one/aliases.toml", "[agents]\na = [\"both\"]\n"),
		catalogOf(t, "beta", "two/agents/a/Dockerfile", scratch, "two/aliases.toml", "[agents]\na = [\"both\"]\n"))
	code, out, errs := b.run("a2a-agent", "list")
	if code != 0 || errs != "" {
		t.Errorf("%d, %s", code, errs)
	}
	for _, want := range []string{"@local/agentenv-framework/echo/echo  ", "@local/beta/two/a ", "\nA task names an agent in a2a_agent_id by its id.\n",
		"\nThe store cannot be read, so only the installed agents are listed: list agents: the disk\\nis gone\n", "\nAn installed bundle is broken: acme/bad: tasks/t.json: not valid JSON", "\nAn installed bundle is broken: acme/torn gives no aliases: ",
		"\nThe alias both names nothing: several installed bundles give it (acme's one bundle, for @local/acme/one/a; beta's two bundle, for @local/beta/two/a); use an id.\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("it does not say %q:\n%s", want, out)
		}
	}
	_, out, _ = b.run("a2a-agent", "list", "--json")
	for _, want := range []string{`"both": "several installed bundles`, `"store_error": "list agents: the disk\nis gone"`, `"unreadable_bundles": 1`, `"more_in_store": 0`} {
		if !strings.Contains(out, want) {
			t.Errorf("the JSON does not say %s:\n%s", want, out)
		}
	}
}

// TestAgentsThatCannotBe refuses what is wrong in a command line before anything is stored or deployed.
func TestAgentsThatCannotBe(t *testing.T) {
	t.Parallel()
	b := newBench(t, map[string]string{"Dockerfile": scratch})
	withAgents(t, b, sound, catalogOf(t, "agentenv-framework", "echo/agents/echo/Dockerfile", scratch, "echo/aliases.toml", "[agents]\necho = [\"echo\"]\n"))
	put := []string{"a2a-agent", "put", "--dockerfile", "@/Dockerfile", "--skip-validation", "--id"}
	for _, c := range []struct {
		args []string
		says string
	}{
		{append(put[:6:6], "../../x"), "an agent cannot have the id"},
		{append(put[:6:6], ""), "it is empty"},
		{append(put[:6:6], "a\nb"), "cannot be printed"},
		{append(put[:6:6], "@team/x"), "@team"},
		{append(put[:6:6], "ok", "--platform", "bogus"), `--platform "bogus" is no platform of Linux images`},
		{append(put[:6:6], "ok", "--platform", "windows/amd64"), "no platform of Linux images"},
		{append(put[:6:6], "ok", "--platform", "linux/sparc"), "no platform of Linux images"},
		{append(put[:6:6], "ok", "--env-var", "=x"), "--env-var takes KEY=VALUE"},
		{append(put[:6:6], "ok", "--min-disk-size-gb", "-1"), "greater than 0"},
		{[]string{"a2a-agent", "deploy", "--id", "echo", "--sandbox", "bogus"}, `--sandbox: Unknown sandbox backend: "bogus"`},
		{[]string{"a2a-agent", "deploy", "--id", "nobody", "--sandbox", "bogus"}, `--sandbox: Unknown sandbox backend: "bogus"`},
		{[]string{"a2a-agent", "deploy", "--id", "echo"}, "is not in the store yet"},
	} {
		line := fmt.Sprintf("%q", c.args)
		if code, _, errs := b.run(c.args...); code != 1 || !strings.Contains(errs, c.says) {
			t.Errorf("%s: %d, %s", line, code, errs)
		}
	}
	b.prints("artifact list --json", "{\n  \"artifacts\": []\n}\n")
	for _, platform := range []string{"linux/amd64", "linux/arm64/v8", "linux/arm/v7", "Linux/x86_64"} {
		if err := checkPlatform(platform); err != nil {
			t.Errorf("%s: %v", platform, err)
		}
	}
}
