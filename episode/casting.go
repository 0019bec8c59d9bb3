package episode

import (
	"slices"
	"strings"

	"agentenv/store/doc"
	"agentenv/task"
)

const defaultAgent = "default-agent" // agent_name where a step gives none

// casting says which agents are played from outside, and which steps of the task are theirs, by position.
type casting struct {
	agents           []string
	deploys, prompts []int
}

// castingOf finds the outside agents and their steps, with what stands against the choice.
func castingOf(t *task.Task, o Options) (c casting, against []string) {
	var prompted []string
	for _, s := range t.Steps {
		if s.Type == "prompt_agent" && !slices.Contains(prompted, agentOf(s)) {
			prompted = append(prompted, agentOf(s))
		}
	}
	switch {
	case o.TrainerAgents != nil && len(o.TrainerAgents) == 0:
		against = append(against, "trainer_agents is an empty list; name the agents that are played from outside, or leave it out for the only one")
	case len(prompted) == 0 && o.TrainerAgents == nil:
		against = append(against, "it prompts no agent")
	case len(prompted) > 1 && o.TrainerAgents == nil:
		against = append(against, "it prompts several agents, "+quoted(prompted)+": name those that are played from outside")
	case o.TrainerAgents == nil:
		c.agents = prompted
	}
	for _, a := range o.TrainerAgents {
		switch {
		case slices.Contains(c.agents, a):
		case !slices.Contains(prompted, a) && len(prompted) == 0:
			against = append(against, "agent '"+a+"' is not prompted: it prompts no agent")
		case !slices.Contains(prompted, a):
			against = append(against, "agent '"+a+"' is not prompted, those that are: "+quoted(prompted))
		default:
			c.agents = append(c.agents, a)
		}
	}
	for _, a := range c.agents {
		var deploys []string
		for i, s := range t.Steps {
			if isDeploy(s) && agentOf(s) == a {
				deploys = append(deploys, s.ID)
				c.deploys = append(c.deploys, i)
			}
		}
		switch len(deploys) {
		case 1:
		case 0:
			against = append(against, "agent '"+a+"' must have exactly one deploy_agent or install_agent step and has none")
		default:
			against = append(against, "agent '"+a+"' must have exactly one deploy_agent or install_agent step and has "+quoted(deploys))
		}
	}
	for i, s := range t.Steps {
		if s.Type == "prompt_agent" && c.has(agentOf(s)) {
			c.prompts = append(c.prompts, i)
		}
	}
	return c, against
}

func (c casting) has(agent string) bool { return slices.Contains(c.agents, agent) }

// prompt returns the document of an outside prompt; without a system prompt of its own it has the one that its agent was given when it was deployed.
func (c casting) prompt(t *task.Task, i int) *doc.Object {
	d := t.Steps[i].Document()
	if d.Value("system_prompt") != nil {
		return d
	}
	for _, j := range c.deploys {
		deploy := t.Steps[j].Fields
		if agentOf(t.Steps[j]) == agentOf(t.Steps[i]) && deploy.Str("system_prompt") != "" {
			d.Set("system_prompt", deploy.Str("system_prompt"))
		}
	}
	return d
}

func isDeploy(s *task.Step) bool { return s.Type == "deploy_agent" || s.Type == "install_agent" }

// agentOf is the agent that a step names, or the one it means when it names none.
func agentOf(s *task.Step) string {
	if a := s.Fields.Str("agent_name"); strings.TrimSpace(a) != "" {
		return a
	}
	if s.Type == "deploy_human_agent" {
		return "human_agent"
	}
	return defaultAgent
}

func quoted(names []string) string { return "'" + strings.Join(names, "', '") + "'" }
