package agents

import (
	"context"
	"strings"
	"time"

	"agentenv/agent"
	"agentenv/fault"
	"agentenv/store/doc"
	"agentenv/task"
)

func humanType(d Deps) *task.StepType {
	return &task.StepType{
		Name:    "deploy_human_agent",
		Summary: "Register a person's A2A endpoint as an agent",
		Family:  "agents",
		Doc: "`a2a_url` may be a reference (secret:NAME or env:NAME), which alone is recorded; an address with a password in it is refused. Without `a2a_url` it is the configured address of people (`default_human_a2a_url` under `[conversations]`, or AGENT_ENV_HUMAN_A2A_URL) for this run. Nothing is " +
			"started. A run has one person at most.",
		FailsTask:  true,
		Repeatable: true,
		Fields: []task.Field{
			{Name: "agent_name", Kind: task.String, Default: defaultHuman, Doc: "name the other steps use; unique in the run"},
			{Name: "a2a_url", Kind: task.String, User: true, Doc: "where the person answers"},
		},
		Parse: func(_ string, f *doc.Object) (task.Action, *doc.Object, error) {
			return &deployHuman{deps: d, name: f.Str("agent_name"), url: f.Str("a2a_url")}, nil, nil
		},
		Given: func(f *doc.Object) error {
			if f.Str("agent_name") == "" {
				return fault.New(fault.Invalid, "agent_name must not be empty")
			}
			return openAddress("a2a_url", f.Str("a2a_url"))
		},
	}
}

type deployHuman struct {
	deps      Deps
	name, url string
}

// cardLimit is how long a person's endpoint may take to show a card; one without is made up.
const cardLimit = 5 * time.Second

// Execute registers the person as the step's last effect.
func (a *deployHuman) Execute(ctx context.Context, r *task.Run) error {
	return fault.At(a.execute(ctx, r), "deploy_human_agent %q", r.StepID)
}

func (a *deployHuman) execute(ctx context.Context, r *task.Run) error {
	if people, _ := r.Metadata("human_agents").([]any); len(people) > 0 {
		return fault.New(fault.Exists, "this run has a person already; a run has one at most")
	}
	for _, other := range r.Agents() {
		if other.Str("agent_name") == a.name {
			return fault.New(fault.Exists, "the agent %q is already deployed in this run; give this one another agent_name", a.name)
		}
	}
	url := a.url
	if url == "" {
		var err error
		if url, err = humanURL(a.deps.Config, r.Instance); err != nil {
			return err
		}
	}
	address, err := a.deps.Config.ResolveText(url)
	if err != nil {
		return fault.At(err, "a2a_url")
	}
	card := doc.Of("name", a.name, "description", "A person, reached over A2A", "capabilities", doc.Of(), "default_input_modes", []any{"text"}, "default_output_modes", []any{"text"})
	look, stop := context.WithTimeout(ctx, cardLimit)
	defer stop()
	if found, err := a.deps.Client.Card(look, agent.Endpoint{URL: strings.TrimRight(address, "/")}); err == nil {
		v, err := doc.From(found.Document)
		if err != nil {
			return err
		}
		card = v.(*doc.Object)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	r.Append(doc.Of("step_id", r.StepID, "agent_name", a.name, "a2a_url", url), "human_agents")
	return r.AddAgent(doc.Of("agent_name", a.name, "api_url", url, "a2a_url", url, "sandbox_id", nil, "sandbox_type", nil, "a2a_card", card, "instance_id", nil,
		"role", nil, "network_policy", nil, "on_host", false, "installed_container", nil))
}
