package bundle_test

import (
	"slices"
	"strings"
	"testing"

	"agentenv/agent"
	"agentenv/artifact"
	"agentenv/bundle"
	"agentenv/store/doc"
	"agentenv/task"
)

// deploys is a task of deploy_agent steps for agents.
func deploys(agents ...string) string {
	var steps []string
	for i, a := range agents {
		steps = append(steps, `{"id":"d`+string(rune('0'+i))+`","type":"deploy_agent","a2a_agent_id":"`+a+`"}`)
	}
	return "[" + strings.Join(steps, ",") + "]"
}

func (k *kit) agent(t *testing.T, id string) (*agent.Agent, *artifact.DockerImage) {
	t.Helper()
	a, err := agent.NewDocuments(k.docs, nil, nil).Get(t.Context(), id, 0)
	if err != nil {
		t.Fatal(err)
	}
	img, err := artifact.GetAs[*artifact.DockerImage](t.Context(), k.artifacts, artifact.Ref{ID: a.Image.ID, Version: a.Image.Version})
	if err != nil {
		t.Fatal(err)
	}
	return a, img
}

func TestAgentsAreWritten(t *testing.T) {
	k := newKit(t)
	files := map[string]string{
		"agents/built/Dockerfile": "FROM scratch\nCOPY a /a\n", "agents/built/a": "1",
		"agents/built/agent.toml": "[default_env_vars]\nB = \"2\"\nA = \"1\"\n[metadata]\ntakes_credentials = false\nmin_disk_size_gb = 3\n",
		"agents/other/agent.toml": "image = { dockerfile = \"docker/Dockerfile.x\" }\n", "agents/other/docker/Dockerfile.x": "FROM scratch\n",
		"agents/pulled/agent.toml": "image = { ref = \"ghcr.io/x/y:1\" }\n", "agents/pulled/notes.md": "n",
		"agents/named/agent.toml": "image = \"box\"\n", "artifacts/box/Dockerfile": "FROM scratch\n",
		"agents/idle/Dockerfile": "FROM scratch\n",
		"tasks/t.json":           deploys("built", "other", "pulled", "named"),
	}
	dir := k.files(t, "p", files)
	_, lines := k.write(t, dir, bundle.Selection{})
	want := []string{
		"agents/built (Dockerfile image): v1 (new)", "agents/built: v1 (new)", "artifacts/box (Dockerfile image): v1 (new)", "agents/named: v1 (new)",
		"agents/other (Dockerfile image): v1 (new)", "agents/other: v1 (new)", "agents/pulled (ghcr.io/x/y:1 image): v1 (new), pinned to sha256:" + strings.Repeat("ab", 6), "agents/pulled: v1 (new)", "tasks/t.json: v1 (new)",
	}
	if !slices.Equal(lines, want) {
		t.Errorf("wrote\n%s\nnot\n%s", strings.Join(lines, "\n"), strings.Join(want, "\n"))
	}
	built, img := k.agent(t, "@local/~/p/built")
	if canonical(built.DefaultEnv) != `{"A":"1","B":"2"}` || canonical(built.Metadata) != `{"min_disk_size_gb":3,"takes_credentials":false}` || img.ID() != "@local/~/p/built__agent_image" || img.Dockerfile != "Dockerfile" || !img.ContextOnly() {
		t.Errorf("%+v of %+v", built, img)
	}
	if _, img := k.agent(t, "@local/~/p/other"); img.Dockerfile != "docker/Dockerfile.x" {
		t.Errorf("%+v", img)
	}
	if _, img := k.agent(t, "@local/~/p/pulled"); img.Image != "ghcr.io/x/y:1@sha256:"+strings.Repeat("ab", 32) {
		t.Errorf("%+v", img)
	}
	if _, img := k.agent(t, "@local/~/p/named"); img.ID() != "@local/~/p/box" {
		t.Errorf("%+v", img)
	}
	var names []string
	for _, b := range k.images.builds {
		names = append(names, b.ID)
	}
	slices.Sort(names)
	if got := strings.Join(names, " "); got != "@local/~/p/box @local/~/p/built__agent_image @local/~/p/other__agent_image" {
		t.Errorf("built %s", got)
	}
	// What an image was built as is what a deploy looks for.
	for _, b := range k.images.builds {
		if b.ID == img.ID() && (b.Name != img.Image || b.Sources != img.SourceDigest) {
			t.Errorf("built as %s of %s, stored as %s of %s", b.Name, b.Sources, img.Image, img.SourceDigest)
		}
	}
	if _, lines = k.write(t, dir, bundle.Selection{}); strings.Count(strings.Join(lines, "\n"), "unchanged") != len(want) {
		t.Errorf("again:\n%s", strings.Join(lines, "\n"))
	}
	k.files(t, "p", map[string]string{"agents/built/a": "2"})
	_, lines = k.write(t, dir, bundle.Selection{})
	for _, want := range []string{"agents/built (Dockerfile image): v2 (files changed: a)", "agents/built: v2 (artifact @local/~/p/built__agent_image is written anew (v1 → v2))", "agents/other: v1, unchanged"} {
		if !slices.Contains(lines, want) {
			t.Errorf("no %q in\n%s", want, strings.Join(lines, "\n"))
		}
	}
	if a, _ := k.agent(t, "@local/~/p/built"); a.Version != 2 || a.Image.Version != 2 {
		t.Errorf("%+v", a)
	}
}

func canonical(o *doc.Object) string { return doc.Canonical(o) }

func TestAgentOfTheStore(t *testing.T) {
	k := newKit(t)
	img, err := k.artifacts.PutRef(t.Context(), "img", artifact.RefImage{Ref: "ghcr.io/x/y@sha256:" + strings.Repeat("ab", 32)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := agent.NewDocuments(k.docs, nil, nil).Put(t.Context(), agent.NewAgent{ID: "team/bot", Image: agent.ArtifactRef{ID: img.ID(), Version: 1}}); err != nil {
		t.Fatal(err)
	}
	dir := k.files(t, "p", map[string]string{"tasks/t.json": deploys("team/bot", "mine"), "agents/mine/agent.toml": "image = { artifact = \"img\", version = 1 }\n"})
	out, err := k.plan(t, dir, bundle.Selection{}).DryRun(t.Context())
	if err != nil || !strings.Contains(out, "agent team/bot v1, the latest") || !strings.Contains(out, "artifact img v1") {
		t.Errorf("%v\n%s", err, out)
	}
	k.write(t, dir, bundle.Selection{})
	if a, held := k.agent(t, "@local/~/p/mine"); a.Image.ID != "img" || held.Version() != 1 {
		t.Errorf("%+v", a)
	}
}

func TestAgentProblems(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		want  []string
	}{
		"keys": {map[string]string{"agents/a/agent.toml": "colour = 1\n[metadata]\nsize = 1\n", "agents/a/Dockerfile": "FROM scratch\n", "tasks/t.json": deploys("a")},
			[]string{"agents/a: agent.toml: metadata holds the unknown key 'size'", "agents/a: agent.toml: unknown key 'colour'"}},
		"no disk":       {map[string]string{"agents/a/agent.toml": "[metadata]\nmin_disk_size_gb = -1\n", "agents/a/Dockerfile": "FROM scratch\n", "tasks/t.json": deploys("a")}, []string{"agents/a: agent.toml: metadata min_disk_size_gb must be greater than 0, not -1"}},
		"a variable":    {map[string]string{"agents/a/agent.toml": "[default_env_vars]\n\"A=B\" = \"1\"\n", "agents/a/Dockerfile": "FROM scratch\n", "tasks/t.json": deploys("a")}, []string{"agents/a: agent.toml: default_env_vars is no table of variables: no variable can be named \"A=B\""}},
		"no variable":   {map[string]string{"agents/a/agent.toml": "[default_env_vars]\n\"\" = \"1\"\n", "agents/a/Dockerfile": "FROM scratch\n", "tasks/t.json": deploys("a")}, []string{"default_env_vars is no table of variables: a variable needs a name"}},
		"no Dockerfile": {map[string]string{"agents/a/agent.toml": "[metadata]\ntakes_credentials = false\n", "tasks/t.json": deploys("a")}, []string{"agents/a: "}},
		"no image":      {map[string]string{"agents/a/agent.toml": "image = \"gone\"\n", "tasks/t.json": deploys("a")}, []string{"agents/a: image: there is no artifact 'gone' in this bundle or in the store"}},
		"no agent":      {map[string]string{"tasks/t.json": deploys("gone", "A"), "agents/a/Dockerfile": "FROM scratch\n"}, []string{"step 'd0': a2a_agent_id: there is no agent 'gone' in this bundle or in the store", "step 'd1': a2a_agent_id: 'A' isn't in this bundle, but 'a' is"}},
		"a pin":         {map[string]string{"agents/a/Dockerfile": "FROM scratch\n", "tasks/t.json": `[{"id":"d","type":"deploy_agent","a2a_agent_id":"a","a2a_agent_version":1}]`}, []string{"step 'd': a2a_agent_id: 'a' is defined in this bundle, so it has no fixed version"}},
		"elsewhere":     {map[string]string{"agents/a/Dockerfile": "FROM scratch\n", "tasks/t.json": `[{"id":"d","type":"deploy_agent","a2a_agent_id":"a","sandbox_type":"far"}]`}, []string{"step 'd': the image is built on this machine, which the provider far cannot reach"}},
	} {
		t.Run(name, func(t *testing.T) {
			k := newKit(t)
			_, err := k.runner.Plan(t.Context(), k.parse(t, k.files(t, "p", c.files)), bundle.Selection{})
			wantProblems(t, err, c.want...)
		})
	}
	k := newKit(t)
	b := k.parse(t, k.files(t, "p", map[string]string{"agents/a/agent.toml": "x = 1\n", "tasks/t.json": "[" + vm + "]"}))
	wantProblems(t, bundle.Check(t.Context(), k.registry, b), "agents/a: agent.toml: unknown key 'x'")
}

// TestSolverReplaced has --agent deploy another agent where the one is deployed that is prompted, and nowhere else.
func TestSolverReplaced(t *testing.T) {
	k := newKit(t)
	dir := k.files(t, "p", map[string]string{
		"agents/usual/Dockerfile": "FROM scratch\n", "agents/better/Dockerfile": "FROM scratch\nLABEL a=b\n",
		"tasks/a.json": `[{"id":"d","type":"deploy_agent","a2a_agent_id":"usual"},{"id":"u","type":"deploy_agent","agent_name":"human_agent","a2a_agent_id":"usual"},
			{"id":"idle","type":"deploy_agent","agent_name":"idle","a2a_agent_id":"usual"},{"id":"ask","type":"prompt_agent","prompt":"x"}]`,
		"tasks/b.json": "[" + vm + "]",
	})
	p := k.plan(t, dir, bundle.Selection{Agent: "better"})
	const line = "--agent better: the solver deploys @local/~/p/better, in 1 of 2 tasks"
	if out, err := p.DryRun(t.Context()); err != nil || !strings.Contains(out, line+"\nagents/better (Dockerfile image): v1") {
		t.Errorf("%v\n%s", err, out)
	}
	p, lines := k.write(t, dir, bundle.Selection{Agent: "better"})
	if lines[0] != line {
		t.Errorf("wrote %q", lines)
	}
	sum := p.Run(t.Context(), k.options(bundle.RunOptions{}))
	if sum.ExitCode() != 0 {
		t.Fatalf("%+v", sum)
	}
	in, err := task.NewInstances(k.docs).Get(t.Context(), sum.Runs[0].Instance)
	if err != nil {
		t.Fatal(err)
	}
	if got := doc.Canonical(in.Context.Obj("metadata").Obj("seen").Value("ask")); got != `{"step_params":{"d":{"a2a_agent_id":"@local/~/p/better","a2a_agent_version":1}}}` {
		t.Errorf("the run was given %s", got)
	}
	_, err = k.runner.Plan(t.Context(), k.parse(t, dir), bundle.Selection{Agent: "gone"})
	wantProblems(t, err, "--agent: there is no agent 'gone' in this bundle or in the store")
	_, err = k.runner.Plan(t.Context(), k.parse(t, dir), bundle.Selection{Agent: "Better"})
	wantProblems(t, err, "--agent: 'Better' isn't in this bundle, but 'better' is; names are case-sensitive")
}
