package episode_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"agentenv/episode"
	"agentenv/fault"
	"agentenv/store/doc"
)

// TestRefusals has a task for everything that keeps one from being played; several reasons come together.
func TestRefusals(t *testing.T) {
	t.Parallel()
	const other = `{"id":"agent2","type":"deploy_agent","agent_name":"b"},{"id":"ask2","type":"prompt_agent","agent_name":"b","prompt":"?"}`
	one := []string{"default-agent"}
	for name, c := range map[string]struct {
		steps  string
		agents []string
		want   []string
	}{
		"nobody is prompted":       {deploy, nil, []string{"it prompts no agent"}},
		"several are":              {deploy + "," + ask + "," + other, nil, []string{"it prompts several agents, 'default-agent', 'b'"}},
		"an empty list":            {talk, []string{}, []string{"trainer_agents is an empty list"}},
		"named and not prompted":   {talk, []string{"default-agent", "zoe"}, []string{"agent 'zoe' is not prompted, those that are: 'default-agent'"}},
		"named in a task of none":  {deploy, one, []string{"agent 'default-agent' is not prompted: it prompts no agent"}},
		"not deployed":             {ask, nil, []string{"agent 'default-agent' must have exactly one deploy_agent or install_agent step and has none"}},
		"deployed twice":           {deploy + `,{"id":"again","type":"deploy_agent"},` + ask, nil, []string{"and has 'agent', 'again'"}},
		"retried":                  {deploy + "," + ask + `,{"id":"c","type":"do","retry_config":{"retry_from_step_id":"ask"}}`, nil, []string{"step 'c' (do) has retry_config"}},
		"parts":                    {deploy + `,{"id":"ask","type":"prompt_agent","parts":[]}`, nil, []string{"step 'ask' (prompt_agent) has parts"}},
		"output format":            {deploy + `,{"id":"ask","type":"prompt_agent","prompt":"?","output_format":{}}`, nil, []string{"has output_format"}},
		"agentenv tools":           {deploy + `,{"id":"ask","type":"prompt_agent","prompt":"?","agentenv_tools":["x"]}`, nil, []string{"has agentenv_tools"}},
		"snapshots of a prompt":    {deploy + `,{"id":"ask","type":"prompt_agent","prompt":"?","snapshot_config":{"env_id":"e"}}`, nil, []string{"has snapshot_config"}},
		"several turns":            {deploy + `,{"id":"ask","type":"prompt_agent","prompt":"?","max_conversation_turns":3}`, nil, []string{"has max_conversation_turns 3"}},
		"a user simulator":         {talk + `,{"id":"agent2","type":"deploy_agent","agent_name":"b"},{"id":"ask2","type":"prompt_agent","agent_name":"b","prompt":"?","user_agent_name":"default-agent"}`, one, []string{"step 'ask2' (prompt_agent) has the outside agent 'default-agent' as its user simulator"}},
		"a snapshot to load":       {`{"id":"agent","type":"deploy_agent","agent_snapshot_files_artifact_id":"s"},` + ask, nil, []string{"step 'agent' (deploy_agent) has agent_snapshot_files_artifact_id"}},
		"a target context":         {`{"id":"agent","type":"deploy_agent","agent_snapshot_target_context_id":"s"},` + ask, nil, []string{"has agent_snapshot_target_context_id"}},
		"a changelog":              {`{"id":"agent","type":"deploy_agent","enable_agent_changelog":true},` + ask, nil, []string{"has enable_agent_changelog"}},
		"a changelog to replay":    {`{"id":"agent","type":"deploy_agent","agent_changelog_object_url":"u","agent_changelog_toolcall_position_exclusive":0},` + ask, nil, []string{"has agent_changelog_object_url", "has agent_changelog_toolcall_position_exclusive"}},
		"a person":                 {talk + `,{"id":"h","type":"deploy_human_agent","agent_name":"default-agent"}`, nil, []string{"step 'h' (deploy_human_agent) makes a person of the outside agent"}},
		"triggers":                 {talk + `,{"id":"g","type":"register_agent_triggers","agent_name":"default-agent","triggers":[{"when":{"type":"step"},"actions":[{"type":"end"}]}]}`, nil, []string{"step 'g' (register_agent_triggers) needs more than an outside agent"}},
		"its state":                {talk + `,{"id":"s","type":"snapshot_agent_state","artifact_id":"a","prompt_id":"p1"}`, nil, []string{"step 's' (snapshot_agent_state) needs more"}},
		"a test of agents":         {talk + `,{"id":"v","type":"verify_a2a_role","a2a_agent_id":"x"}`, nil, []string{"step 'v' (verify_a2a_role) tests a real agent"}},
		"a manifest":               {talk + `,{"id":"c","type":"collect_artifacts","sandbox_name":"b","manifest_step_id":"ask"}`, nil, []string{"step 'c' (collect_artifacts) takes its manifest from the outside prompt 'ask'"}},
		"a judge":                  {talk + `,{"id":"r","type":"rubrics_verifier","criteria":[],"prompt_id":"p1","agent_name":"default-agent"}`, nil, []string{"step 'r' (rubrics_verifier) has the outside agent 'default-agent' as its judge"}},
		"a peer":                   {talk + `,{"id":"p","type":"peer_agents","peerings":[{"source_agent_name":"b","peer_agent_names":["default-agent"]}]}`, nil, []string{"step 'p' (peer_agents) has the outside agent 'default-agent' as a peer"}},
		"an executor":              {talk + `,{"id":"e","type":"register_env_triggers","env_id":"x","triggers":[],"executor_agent_name":"default-agent"}`, nil, []string{"step 'e' (register_env_triggers) has the outside agent 'default-agent' as an executor"}},
		"an executor of an action": {talk + `,{"id":"e","type":"register_env_triggers","env_id":"x","triggers":[{"actions":[{"type":"nl","executor":"default-agent"}]}]}`, nil, []string{"as an executor"}},
		"hours of an executor":     {talk + `,{"id":"e","type":"register_env_triggers","env_id":"x","triggers":[],"executor_hours":{"default-agent":{}}}`, nil, []string{"as an executor"}},
		"installed":                {`{"id":"agent","type":"install_agent","sandbox_name":"box"},` + ask, nil, []string{"step 'agent' (install_agent) needs a sandbox with agent 'default-agent' in it"}},
		"skills":                   {`{"id":"agent","type":"deploy_agent","skills":[{"name":"s","skill_md":"x"}]},` + ask, nil, []string{"step 'agent' (deploy_agent) needs a sandbox"}},
		"more skills":              {talk + `,{"id":"s","type":"add_skills"}`, nil, []string{"step 's' (add_skills) needs a sandbox"}},
		"files for it":             {talk + `,{"id":"l","type":"load_artifact","agent_name":"default-agent"}`, nil, []string{"step 'l' (load_artifact) needs a sandbox"}},
		"code on it":               {talk + `,{"id":"c","type":"run_code","sandbox_name":" "}`, nil, []string{"step 'c' (run_code) needs a sandbox"}},
		"a check of it":            {talk + `,{"id":"c","type":"verify_sandbox"}`, nil, []string{"step 'c' (verify_sandbox) needs a sandbox"}},
		"files from it":            {talk + `,{"id":"c","type":"collect_artifacts"}`, nil, []string{"step 'c' (collect_artifacts) needs a sandbox"}},
		"many at once": {deploy + `,{"id":"ask","type":"prompt_agent","prompt":"?","output_format":{},"retry_config":{"retry_from_step_id":"agent"}},{"id":"c","type":"verify_sandbox"}`, []string{"default-agent", "zoe"},
			[]string{"agent 'zoe' is not prompted", "step 'ask' (prompt_agent) has retry_config", "step 'ask' (prompt_agent) has output_format", "step 'c' (verify_sandbox) needs a sandbox"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			_, err := episode.New(r.deps, r.task(c.steps), episode.Options{TrainerAgents: c.agents})
			wantKind(t, err, fault.Invalid, "task 't' can't run as an episode: ")
			_, reasons, _ := strings.Cut(err.Error(), "episode: ")
			got := strings.Split(reasons, "; ")
			i := 0
			for _, want := range c.want {
				for i < len(got) && !strings.Contains(got[i], want) {
					i++
				}
				if i == len(got) {
					t.Errorf("%q lacks %q, or has it too early", err, want)
				}
			}
			if n, _ := r.docs.Count(t.Context(), "task_instances", nil); n != 0 {
				t.Errorf("%d runs were recorded", n)
			}
		})
	}
}

// TestAllowed has what looks like something refused, of an agent that is not played from outside, or elsewhere.
func TestAllowed(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, steps := range []string{
		talk + `,{"id":"c","type":"collect_artifacts","sandbox_name":"b"},{"id":"v","type":"verify_sandbox","sandbox_name":"b"},{"id":"r","type":"run_code","env_id":"e"}`,
		talk + `,{"id":"l","type":"load_artifact","agent_name":"default-agent","sandbox_name":"b"},{"id":"w","type":"verify_sandbox","agent_name":"other"}`,
		`{"id":"agent","type":"deploy_agent","enable_agent_changelog":false,"skills":[]},` + ask,
		deploy + `,{"id":"ask","type":"prompt_agent","prompt":"?","max_conversation_turns":1,"user_agent_name":"default-agent","user_a2a_url":"http://u"}`,
	} {
		if _, err := episode.New(r.deps, r.task(steps), episode.Options{}); err != nil {
			t.Errorf("%s: %v", steps, err)
		}
	}
}

// TestNotYet refuses a task whose other steps cannot run in this version, naming them alone.
func TestNotYet(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	_, err := episode.New(r.deps, r.task(talk+`,{"id":"e","type":"deploy_env","env_id":"mail"}`), episode.Options{})
	wantKind(t, err, fault.Unsupported, `step "e" (position 3, deploy_env)`)
	if strings.Contains(err.Error(), "prompt_agent") {
		t.Errorf("%v names a step that is played", err)
	}
}

func TestPrompts(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	tk := r.task(`{"id":"a","type":"deploy_agent","agent_name":"<who>","system_prompt":"You are <who>."},
		{"id":"one","type":"prompt_agent","agent_name":"<who>","prompt":"Say <word>"},
		{"id":"two","type":"prompt_agent","agent_name":"<who>","prompt":"Again","system_prompt":"Now <word>."}`)
	before := doc.Canonical(tk.Document())
	p, err := episode.New(r.deps, tk, episode.Options{Seed: doc.Of("who", "ann", "word", "<who>")})
	if err != nil {
		t.Fatal(err)
	}
	want := []episode.Prompt{{StepID: "one", AgentName: "ann", Text: "Say <who>", SystemPrompt: "You are ann."}, {StepID: "two", AgentName: "ann", Text: "Again", SystemPrompt: "Now <who>."}}
	if d := cmp.Diff(want, p.Prompts()); d != "" {
		t.Error(d)
	}
	if !slices.Equal(p.TrainerAgents(), []string{"ann"}) {
		t.Error(p.TrainerAgents())
	}
	again, err := p.Seeded(doc.Of("who", "bob", "word", "hi"))
	if err != nil || again.Prompts()[0].Text != "Say hi" || p.Prompts()[0].Text != "Say <who>" {
		t.Errorf("%v, %v, %v", again.Prompts(), p.Prompts(), err)
	}
	if after := doc.Canonical(tk.Document()); after != before {
		t.Errorf("the task was changed:\n%s\n%s", before, after)
	}
	if r.reg.Get("episode_agent") != nil || r.reg.Get("episode_prompt") != nil {
		t.Error("the internal kinds of step are in the registry")
	}
	// What runs is asked the same: a value that was put in is not searched again.
	e, err := p.Start(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	if turn := r.turn(e); turn.Prompt != want[0] {
		t.Errorf("%+v", turn.Prompt)
	}
	if err := e.Abandon(t.Context(), ""); err != nil {
		t.Error(err)
	}
	if _, err := episode.New(r.deps, tk, episode.Options{Seed: doc.Of("who", "ann"), TurnTimeout: -time.Second}); err == nil {
		t.Error("a negative timeout was taken")
	}
}

func TestSandboxOverride(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.plan(talk, episode.Options{})
	e, err := p.Start(t.Context(), "docker")
	if err != nil {
		t.Fatal(err)
	}
	if err := r.turn(e).End("x"); err != nil {
		t.Error(err)
	}
	res, err := e.Result(r.soon())
	if err != nil || !doc.Equal(res.Context.Obj("metadata").Value("user_overrides"), doc.Of("sandbox", "docker", "env_sandbox", "docker", "agent_sandbox", "docker")) {
		t.Errorf("%+v, %v", res, err)
	}
}
