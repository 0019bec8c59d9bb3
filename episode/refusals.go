package episode

import (
	"slices"
	"strings"

	"agentenv/store/doc"
	"agentenv/task"
)

// refusals says what in the steps of a task keeps it from being played, in their order.
func refusals(t *task.Task, c casting) []string {
	var all []string
	for i, s := range t.Steps {
		say := func(what string) { all = append(all, "step '"+s.ID+"' ("+s.Type+") "+what) }
		if s.Retry != nil {
			say("has retry_config, and a turn that was played cannot be taken back")
		}
		if strings.HasPrefix(s.Type, "verify_a2a_") {
			say("tests a real agent")
		}
		for _, what := range againstStep(t, c, i) {
			say(what)
		}
		for _, a := range c.agents {
			if usesSandbox(s, a) {
				say("needs a sandbox with agent '" + a + "' in it, and this version plays outside agents without one")
			}
		}
	}
	return all
}

func againstStep(t *task.Task, c casting, i int) (what []string) {
	s := t.Steps[i]
	outside := c.has(agentOf(s))
	switch s.Type {
	case "prompt_agent":
		if outside {
			what = againstPrompt(s)
		}
		if user := userOf(s); c.has(user) && s.Fields.Value("user_a2a_url") == nil {
			what = append(what, "has the outside agent '"+user+"' as its user simulator")
		}
	case "deploy_agent", "install_agent":
		if !outside {
			break
		}
		for _, f := range []string{"agent_snapshot_files_artifact_id", "agent_snapshot_files_artifact_version", "agent_snapshot_target_context_id",
			"enable_agent_changelog", "agent_changelog_object_url", "agent_changelog_toolcall_position_exclusive"} {
			if task.Truthy(s.Fields.Value(f)) || f == "agent_changelog_toolcall_position_exclusive" && s.Fields.Value(f) != nil {
				what = append(what, "has "+f+", and an outside agent has no state to load or keep")
			}
		}
	case "deploy_human_agent":
		if outside {
			what = append(what, "makes a person of the outside agent '"+agentOf(s)+"'")
		}
	case "register_agent_triggers", "snapshot_agent_state":
		if outside {
			what = append(what, "needs more than an outside agent such as '"+agentOf(s)+"' has")
		}
	case "collect_artifacts":
		from := s.Fields.Str("manifest_step_id")
		if slices.ContainsFunc(c.prompts, func(j int) bool { return t.Steps[j].ID == from }) {
			what = append(what, "takes its manifest from the outside prompt '"+from+"'")
		}
	case "rubrics_verifier":
		if judge := s.Fields.Str("agent_name"); c.has(judge) {
			what = append(what, "has the outside agent '"+judge+"' as its judge")
		}
	case "peer_agents":
		for _, a := range c.agents {
			if isPeer(s, a) {
				what = append(what, "has the outside agent '"+a+"' as a peer")
			}
		}
	case "register_env_triggers":
		for _, a := range c.agents {
			_, hours := s.Fields.Obj("executor_hours").Get(a)
			if hours || s.Fields.Str("executor_agent_name") == a || names(s.Fields.Value("triggers"), "executor", a) {
				what = append(what, "has the outside agent '"+a+"' as an executor")
			}
		}
	}
	return what
}

func againstPrompt(s *task.Step) (what []string) {
	for _, f := range []string{"parts", "output_format", "agentenv_tools", "snapshot_config"} {
		if s.Fields.Value(f) != nil {
			what = append(what, "has "+f+", which an outside prompt cannot have")
		}
	}
	if n, ok := s.Fields.Value("max_conversation_turns").(doc.Number); ok && n.Float64() > 1 {
		what = append(what, "has max_conversation_turns "+string(n)+", and this version has nobody to talk to an outside agent but its prompt")
	}
	return what
}

func userOf(s *task.Step) string {
	if u := s.Fields.Str("user_agent_name"); u != "" {
		return u
	}
	return "human_agent"
}

func isPeer(s *task.Step, agent string) bool {
	for _, v := range s.Fields.Arr("peerings") {
		p, _ := v.(*doc.Object)
		if p.Str("source_agent_name") == agent || slices.Contains(p.Arr("peer_agent_names"), any(agent)) {
			return true
		}
	}
	return false
}

// names reports whether a key holds a text anywhere in a value.
func names(v any, key, text string) bool {
	switch v := v.(type) {
	case []any:
		return slices.ContainsFunc(v, func(x any) bool { return names(x, key, text) })
	case *doc.Object:
		return v.Str(key) == text || slices.ContainsFunc(v.Keys(), func(k string) bool { return names(v.Value(k), key, text) })
	}
	return false
}

// usesSandbox reports whether a step works where an agent does.
func usesSandbox(s *task.Step, agent string) bool {
	unset := func(fields ...string) bool {
		return !slices.ContainsFunc(fields, func(f string) bool { return strings.TrimSpace(s.Fields.Str(f)) != "" })
	}
	if agentOf(s) != agent {
		return false
	}
	switch s.Type {
	case "install_agent", "add_skills":
		return true
	case "deploy_agent":
		return len(s.Fields.Arr("skills")) > 0
	case "load_artifact":
		return !unset("agent_name") && unset("sandbox_name")
	case "run_code":
		return unset("env_id", "sandbox_name")
	case "verify_sandbox":
		return unset("sandbox_name")
	case "collect_artifacts":
		return unset("env_id", "sandbox_name", "container_name")
	}
	return false
}
