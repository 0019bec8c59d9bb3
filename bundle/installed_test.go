package bundle_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"agentenv/agent"
	"agentenv/bundle"
	"agentenv/fault"
	"agentenv/store"
	"agentenv/store/document"
)

// shipped are bundles of the program: echo with an alias, tools without one.
var shipped = map[string]string{
	"echo/agents/echo/Dockerfile": "FROM scratch\nCOPY program /p\n", "echo/agents/plain/Dockerfile": "FROM scratch\n",
	"echo/agents/echo/agent.toml": "[metadata]\ntakes_credentials = false\n", "echo/aliases.toml": "[agents]\necho = [\"echo\", \"parrot\"]\n",
	"echo/tasks/smoke.json":         deploys("echo"),
	"tools/agents/named/agent.toml": "image = \"box\"\n", "tools/artifacts/box/Dockerfile": "FROM scratch\n", "tools/artifacts/letter/letter.txt": "hi",
}

func (k *kit) catalog(t *testing.T, dist string, files map[string]string) *bundle.Catalog {
	t.Helper()
	c, err := bundle.NewCatalog(dist, "1.2", os.DirFS(k.files(t, "dist-"+dist, files)))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// install hands installed bundles to the kit's runner.
func (k *kit) install(own *bundle.Catalog, others ...*bundle.Catalog) *bundle.Installed {
	d := k.runner.Deps
	d.Installed = bundle.NewInstalled(own, others...)
	k.runner = bundle.NewRunner(d)
	return d.Installed
}

func (k *kit) put(t *testing.T, id string) {
	t.Helper()
	if _, err := agent.NewDocuments(k.docs, nil, nil).Put(t.Context(), agent.NewAgent{ID: id, Image: agent.ArtifactRef{ID: "img", Version: 1}}); err != nil {
		t.Fatal(err)
	}
}

// leftovers lists what installed bundles were laid out as.
func leftovers(t *testing.T) []string {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(os.TempDir(), "agentenv-bundle-*"))
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func TestTasksNameAgentsOfInstalledBundles(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	k := newKit(t)
	program := func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("ELF")), nil }
	k.install(k.catalog(t, "agentenv-framework", shipped).With(map[string]func() (io.ReadCloser, error){"echo/agents/echo/program": program}))
	own := k.files(t, "p", map[string]string{"agents/mine/Dockerfile": "FROM scratch\n",
		"tasks/t.json": deploys("parrot", "@local/agentenv-framework/tools/named", "mine", "echo")})

	p := k.plan(t, own, bundle.Selection{})
	text, err := p.DryRun(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	aliases := []string{"parrot → @local/agentenv-framework/echo/echo (the alias agentenv-framework's echo bundle gives it)",
		"echo → @local/agentenv-framework/echo/echo (the alias agentenv-framework's echo bundle gives it)"}
	if !strings.HasPrefix(text, "Dry run: nothing is written or run.\n"+strings.Join(aliases, "\n")+"\nagentenv-framework/echo:agents/echo (Dockerfile image): v1 (new)\n") {
		t.Errorf("the dry run says\n%s", text)
	}
	var lines []string
	if err := p.Materialize(t.Context(), func(s string) { lines = append(lines, s) }, func(string) {}); err != nil {
		t.Fatal(err)
	}
	wantLines(t, lines, append(slices.Clone(aliases), "agentenv-framework/echo:agents/echo (Dockerfile image): v1 (new)", "agentenv-framework/echo:agents/echo: v1 (new)",
		"agentenv-framework/tools:artifacts/box (Dockerfile image): v1 (new)", "agentenv-framework/tools:agents/named: v1 (new)",
		"agents/mine (Dockerfile image): v1 (new)", "agents/mine: v1 (new)", "tasks/t.json: v1 (new)")...)
	if len(leftovers(t)) != 2 {
		t.Errorf("laid out: %v", leftovers(t))
	}
	p.Release()
	p.Release()
	if left := leftovers(t); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	if _, img := k.agent(t, "@local/agentenv-framework/echo/echo"); img.ID() != "@local/agentenv-framework/echo/echo__agent_image" {
		t.Errorf("%+v", img)
	}
	if row := k.row(t, "agent", "@local/agentenv-framework/echo/echo"); row.Str("bundle") != "@local/agentenv-framework/echo" {
		t.Errorf("the ledger says %v", row)
	}
	if got := k.task(t, "@local/~/p/t"); !strings.Contains(got, `"a2a_agent_id":"@local/agentenv-framework/echo/echo"`) || strings.Contains(got, "parrot") {
		t.Errorf("the task is %s", got)
	}

	// Another bundle, and the installed one itself, find what was written.
	other := k.files(t, "q", map[string]string{"tasks/t.json": deploys("echo")})
	_, lines = k.write(t, other, bundle.Selection{})
	wantLines(t, lines, aliases[1], "agentenv-framework/echo:agents/echo (Dockerfile image): v1, unchanged", "agentenv-framework/echo:agents/echo: v1, unchanged", "tasks/t.json: v1 (new)")
}

func (k *kit) task(t *testing.T, id string) string {
	t.Helper()
	d, err := k.docs.FindOne(t.Context(), "tasks", document.By("id", id))
	if err != nil || d == nil {
		t.Fatal(d, err)
	}
	return canonical(d)
}

func TestAliasesThatCannotBeUsed(t *testing.T) {
	k := newKit(t)
	k.install(k.catalog(t, "agentenv-framework", shipped),
		k.catalog(t, "acme", map[string]string{"bots/agents/a/Dockerfile": "FROM scratch\n", "bots/agents/b/Dockerfile": "FROM scratch\n", "bots/aliases.toml": "[agents]\na = [\"both\", \"echo\"]\nb = [\"only\"]\n",
			"torn/agents/t/Dockerfile": "FROM scratch\n", "torn/aliases.toml": "[agents]\nt = [\"torn-one\"]\nnobody = [\"torn-two\"]\n"}),
		k.catalog(t, "beta", map[string]string{"bots/agents/a/Dockerfile": "FROM scratch\n", "bots/aliases.toml": "[agents]\na = [\"both\"]\n"}))
	k.put(t, "only")
	for name, c := range map[string]struct {
		task string
		want []string
	}{
		"near":      {deploys("ecko"), []string{"tasks/t.json: step 'd0': a2a_agent_id: there is no agent 'ecko' … did you mean the alias 'echo'?"}},
		"nobody":    {deploys("somebody"), []string{"there is no agent 'somebody' in this bundle or in the store"}},
		"pinned":    {`[{"id":"d","type":"deploy_agent","a2a_agent_id":"echo","a2a_agent_version":2}]`, []string{"'echo' is an alias of @local/agentenv-framework/echo/echo … no fixed version; drop the pin"}},
		"pinned id": {`[{"id":"d","type":"deploy_agent","a2a_agent_id":"@local/acme/bots/b","a2a_agent_version":2}]`, []string{"comes with acme's bots bundle, so it has no fixed version"}},
		"two":       {deploys("both"), []string{"the alias 'both' names nothing: several installed bundles give it (acme's bots bundle, for @local/acme/bots/a; beta's bots bundle, for @local/beta/bots/a)"}},
		"torn":      {deploys("torn-one"), []string{"there is no agent 'torn-one' in this bundle or in the store"}},
		"not there": {deploys("@local/acme/bots/c"), []string{"there is no agent '@local/acme/bots/c'"}},
		"artifact":  {`[{"id":"r","type":"run_code","script_artifact_id":"echo"}]`, []string{"there is no artifact 'echo'"}},
	} {
		_, err := k.runner.Plan(t.Context(), k.parse(t, k.files(t, strings.ReplaceAll(name, " ", "-"), map[string]string{"tasks/t.json": c.task})), bundle.Selection{})
		t.Log(name)
		wantProblems(t, err, c.want...)
	}
	// The store's agent of that id shadows an alias, and the program's own alias wins.
	p := k.plan(t, k.files(t, "good", map[string]string{"tasks/t.json": deploys("only", "echo", "@local/acme/torn/t")}), bundle.Selection{})
	defer p.Release()
	text, err := p.DryRun(t.Context())
	if err != nil || strings.Contains(text, "only →") || !strings.Contains(text, "echo → @local/agentenv-framework/echo/echo (") || !strings.Contains(text, "agent only v1, the latest") ||
		!strings.Contains(text, "acme/torn:agents/t: v1 (new)") {
		t.Errorf("%s, %v", text, err)
	}
}

func TestInstalledBundlesThatCannotBeLaidOut(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	k := newKit(t)
	broken := func() (io.ReadCloser, error) { return nil, fault.New(fault.Unavailable, "no static build") }
	k.install(k.catalog(t, "agentenv-framework", shipped).With(map[string]func() (io.ReadCloser, error){"echo/agents/echo/program": broken}))
	_, err := k.runner.Plan(t.Context(), k.parse(t, k.files(t, "p", map[string]string{"tasks/t.json": deploys("echo", "@local/agentenv-framework/tools/named")})), bundle.Selection{})
	wantProblems(t, err, "tasks/t.json: step 'd0': a2a_agent_id: the bundle echo: no static build")
	if left := leftovers(t); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestTheSolverMayBeAnAlias(t *testing.T) {
	k := newKit(t)
	k.install(k.catalog(t, "agentenv-framework", shipped))
	dir := k.files(t, "p", map[string]string{"tasks/t.json": `[{"id":"d","type":"deploy_agent","a2a_agent_id":"@local/agentenv-framework/tools/named","agent_name":"s"},{"id":"p","type":"prompt_agent","agent_name":"s"}]`})
	p, lines := k.write(t, dir, bundle.Selection{Agent: "echo"})
	defer p.Release()
	if len(lines) < 2 || lines[0] != "echo → @local/agentenv-framework/echo/echo (the alias agentenv-framework's echo bundle gives it)" ||
		lines[1] != "--agent echo: the solver deploys @local/agentenv-framework/echo/echo, in 1 of 1 task" || !slices.Contains(lines, "agentenv-framework/echo:agents/echo: v1 (new)") {
		t.Errorf("%q", lines)
	}
	if sum := p.Run(t.Context(), k.options(bundle.RunOptions{})); sum.ExitCode() != 0 {
		t.Errorf("%s", sum.Text())
	}
	_, err := k.runner.Plan(t.Context(), k.parse(t, dir), bundle.Selection{Agent: "ehco"})
	wantProblems(t, err, "--agent: there is no agent 'ehco' in this bundle, an installed bundle or the store; did you mean the alias 'echo'?")
}

func TestDefaultAgent(t *testing.T) {
	k := newKit(t)
	k.install(k.catalog(t, "agentenv-framework", shipped))
	const task = `[{"id":"d","type":"deploy_agent","agent_name":"s"},{"id":"u","type":"deploy_agent","agent_name":"u"},{"id":"p","type":"prompt_agent","agent_name":"s","user_agent_name":"u"}]`
	dir := k.files(t, "p", map[string]string{"tasks/t.json": task, "agents/own/Dockerfile": "FROM scratch\n"})
	configured := func(id string, err error) {
		d := k.runner.Deps
		d.DefaultAgent = func() (string, error) { return id, err }
		k.runner = bundle.NewRunner(d)
	}
	for id, want := range map[string]string{"echo": "agentenv-framework/echo:agents/echo: v1 (new)", "@local/agentenv-framework/tools/named": "agentenv-framework/tools:agents/named: v1 (new)",
		"@local/~/p/own": "agents/own: v1 (new)"} {
		configured(id, nil)
		p := k.plan(t, dir, bundle.Selection{})
		text, err := p.DryRun(t.Context())
		p.Release()
		if err != nil || !strings.Contains(text, want) {
			t.Errorf("%s: %s, %v", id, text, err)
		}
	}
	configured("gone", nil)
	_, err := k.runner.Plan(t.Context(), k.parse(t, dir), bundle.Selection{})
	wantProblems(t, err, "tasks/t.json: step 'd': it names no agent, and of the configured default ([agents] default_a2a_agent_id): there is no agent 'gone'", "step 'u'")
	if _, err = k.runner.Plan(t.Context(), k.parse(t, dir), bundle.Selection{Agent: "echo"}); err == nil || strings.Contains(err.Error(), "step 'd'") {
		t.Errorf("with another solver: %v", err) // the user still needs the default
	}
	configured("", errors.New("[agents] is broken"))
	if _, err = k.runner.Plan(t.Context(), k.parse(t, dir), bundle.Selection{}); err == nil || err.Error() != "[agents] is broken" {
		t.Errorf("%v", err)
	}
}

func TestInstalled(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	in := k.install(k.catalog(t, "agentenv-framework", shipped), k.catalog(t, "acme", map[string]string{
		"bots/agents/a/Dockerfile": "FROM scratch\n", "bots/aliases.toml": "[agents]\na = [\"echo\", \"a-bot\"]\n[envs]\ncrm = [\"sales\"]\n", "bots/envs/crm/Dockerfile": "FROM scratch\n",
		"bad/tasks/t.json": "{", "torn/agents/t/Dockerfile": "FROM scratch\n", "torn/aliases.toml": "[x]\n"}))
	want := []bundle.InstalledAgent{
		{ID: "@local/agentenv-framework/echo/echo", Package: "agentenv-framework", Version: "1.2", Bundle: "echo", Aliases: []string{"echo", "parrot"}},
		{ID: "@local/agentenv-framework/echo/plain", Package: "agentenv-framework", Version: "1.2", Bundle: "echo"},
		{ID: "@local/agentenv-framework/tools/named", Package: "agentenv-framework", Version: "1.2", Bundle: "tools"},
		{ID: "@local/acme/bots/a", Package: "acme", Version: "1.2", Bundle: "bots", Aliases: []string{"a-bot"}},
		{ID: "@local/acme/torn/t", Package: "acme", Version: "1.2", Bundle: "torn"},
	}
	if got := in.Agents(); !slices.EqualFunc(got, want, func(a, b bundle.InstalledAgent) bool {
		return slices.Equal(a.Aliases, b.Aliases) && a.ID == b.ID && a.Package == b.Package && a.Version == b.Version && a.Bundle == b.Bundle
	}) {
		t.Errorf("%+v", got)
	}
	n, lines := in.Unreadable()
	if n != 1 || len(lines) != 2 || !strings.HasPrefix(lines[0], "acme/bad: tasks/t.json: ") || !strings.HasPrefix(lines[1], "acme/torn gives no aliases: aliases.toml: unknown table 'x'") {
		t.Errorf("%d, %q", n, lines)
	}
	if a, ok, err := in.EnvAliases().Find("sales"); !ok || err != nil || a != (store.Alias{Name: "sales", ID: "@local/acme/bots/crm", Bundle: "acme's bots bundle"}) {
		t.Errorf("%+v, %v", a, err)
	}
	if _, ok, err := in.AgentAliases().Find("sales"); ok || err != nil {
		t.Errorf("an env's alias names an agent: %v", err)
	}
	var none *bundle.Installed
	if n, lines := none.Unreadable(); n != 0 || lines != nil || none.Agents() != nil || none.AgentAliases().Near("x") != nil {
		t.Error("no bundles hold something")
	}
}

// TestAliasFile holds the rules of aliases.toml.
func TestAliasFile(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"good":     {"[agents]\nsolver = [\"s\", \"a-1\"]\n[envs]\n", nil},
		"table":    {"[tasks]\n", []string{"aliases.toml: unknown table 'tasks'; it takes [agents] and [envs]"}},
		"letters":  {"[agents]\nsolver = [\"S\", \"-a\", \"\", 5]\n", []string{"agents.solver: '' is no alias", "agents.solver: '-a' is no alias", "agents.solver: 'S' is no alias"}},
		"twice":    {"[agents]\nsolver = [\"x\"]\nother = [\"x\"]\n", []string{"agents.other: the alias 'x' is given twice"}},
		"a name":   {"[agents]\nsolver = [\"other\"]\n", []string{"the alias 'other' is the name of agents/other"}},
		"nobody":   {"[agents]\nx = [\"y\"]\n", []string{"there is no folder agents/x"}},
		"named":    {"[agents]\nnamed = [\"y\"]\n", []string{"declares an id of its own"}},
		"no list":  {"[agents]\nsolver = \"y\"\n", []string{"agents.solver must be a list of aliases"}},
		"no table": {"agents = 1\n", []string{"unknown table 'agents'"}},
		"no TOML":  {"[", []string{"aliases.toml: "}},
	} {
		dir := k.files(t, "alias-"+strings.ReplaceAll(name, " ", "-"), map[string]string{"aliases.toml": c.text, "agents/solver/Dockerfile": "FROM scratch\n", "agents/other/Dockerfile": "FROM scratch\n",
			"agents/named/Dockerfile": "FROM scratch\n", "agents/named/agent.toml": "id = \"@local/x\"\n"})
		_, err := bundle.Parse(dir, k.home)
		if c.want == nil {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		wantProblems(t, err, c.want...)
	}
}

func FuzzAliasFile(f *testing.F) {
	for _, s := range []string{"[agents]\nsolver = [\"a\"]\n", "[envs]\n", "agents = 1", "[agents]\nsolver = [[1]]\n", "\xff"} {
		f.Add([]byte(s))
	}
	dir := f.TempDir()
	if err := errors.Join(os.MkdirAll(filepath.Join(dir, "agents", "solver"), 0o755), os.WriteFile(filepath.Join(dir, "agents", "solver", "Dockerfile"), []byte("FROM scratch\n"), 0o644)); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if err := os.WriteFile(filepath.Join(dir, "aliases.toml"), text, 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := bundle.Parse(dir, dir); err != nil && !fault.Is(err, fault.Invalid) {
			t.Errorf("%q: %v", text, err)
		}
	})
}
