// Package pending names the step types that stored tasks may hold and this version does not run: their documents are read,
// checked for the entities they refer to, and kept as they are; a run of a task with one is refused before it deploys anything.
package pending

import "agentenv/task"

// Types returns the types. A family that is built later takes its entries out of this table.
func Types() []*task.StepType {
	out := make([]*task.StepType, len(table))
	for i, t := range table {
		s := &task.StepType{Name: t.name, Summary: t.summary, Family: t.family, Pending: true, FailsTask: t.name != "reset_env", IsVerifier: t.verifier}
		for _, r := range t.refs {
			s.Refs = append(s.Refs, r)
			s.Fields = append(s.Fields, refFields(r)...)
		}
		for _, f := range t.required {
			if !has(s.Fields, f) {
				s.Fields = append(s.Fields, task.Field{Name: f, Kind: task.Any, Required: true})
				continue
			}
			for i := range s.Fields {
				if s.Fields[i].Name == f {
					s.Fields[i].Required = true
				}
			}
		}
		for _, f := range t.user {
			mark(s, f)
		}
		out[i] = s
	}
	return out
}

func mark(s *task.StepType, name string) {
	for i := range s.Fields {
		if s.Fields[i].Name == name {
			s.Fields[i].User = true
			return
		}
	}
	s.Fields = append(s.Fields, task.Field{Name: name, Kind: task.Any, User: true})
}

func has(fields []task.Field, name string) bool {
	for _, f := range fields {
		if f.Name == name {
			return true
		}
	}
	return false
}

// refFields returns the top-level fields a reference needs in the table.
func refFields(r task.Ref) []task.Field {
	for i, c := range r.Path {
		switch c {
		case '.':
			return []task.Field{{Name: r.Path[:i], Kind: task.ObjectKind}}
		case '[':
			return []task.Field{{Name: r.Path[:i], Kind: task.List}}
		}
	}
	out := []task.Field{{Name: r.Path, Kind: task.String}}
	if r.VersionField != "" {
		out = append(out, task.Field{Name: r.VersionField, Kind: task.Integer})
	}
	return out
}

type row struct {
	name, family, summary string
	required              []string
	refs                  []task.Ref
	user                  []string
	verifier              bool
}

func env() task.Ref { return task.Ref{Path: "env_id", Kind: "env"} }

func pinned(path, kind, version, artifactType string) task.Ref {
	return task.Ref{Path: path, Kind: kind, VersionField: version, ArtifactType: artifactType}
}

func output(path, artifactType string) task.Ref {
	return task.Ref{Path: path, Kind: "artifact", Output: true, ArtifactType: artifactType}
}

func agentRef() task.Ref { return pinned("a2a_agent_id", "agent", "a2a_agent_version", "") }

func agentOnly() task.Ref { return task.Ref{Path: "a2a_agent_id", Kind: "agent"} }

const (
	files    = "file_artifact_universe"
	universe = "environment_universe"
)

var table = []row{
	{name: "apply_server_config", family: "envs", summary: "Apply behaviour settings to an env's servers", required: []string{"env_id", "directives"}, refs: []task.Ref{env()}},
	{name: "build_mcp_cli", family: "envs", summary: "Make a command-line tool of an env's tools", required: []string{"env_id", "command_name"}, refs: []task.Ref{env(), output("cli_artifact_id", "cli")}},
	{name: "combine_universe_verdicts", family: "validate", summary: "Merge two verdicts on a universe", required: []string{"env_id", "universe_artifact_id", "universe_artifact_version", "judge_verifier_id"},
		refs: []task.Ref{env(), pinned("universe_artifact_id", "artifact", "universe_artifact_version", "")}},
	{name: "deploy_env", family: "envs", summary: "Deploy an environment", required: []string{"env_id"},
		refs: []task.Ref{pinned("env_id", "env", "env_version", ""), pinned("artifact_id", "artifact", "artifact_version", "")},
		user: []string{"sandbox_type", "env_state_type", "env_state_instance_id"}},
	{name: "env_outcome_verifier", family: "verify", summary: "Run a verifier script against an env", required: []string{"env_id", "file_artifact_id"},
		refs: []task.Ref{env(), pinned("file_artifact_id", "artifact", "file_artifact_version", "file")}, verifier: true},
	{name: "modify_env_tool_access", family: "envs", summary: "Allow or forbid a role tools of an env", required: []string{"env_id", "action", "role", "tools"}, refs: []task.Ref{env()}},
	{name: "register_env_triggers", family: "envs", summary: "Register triggers on an env", required: []string{"env_id", "triggers"}, refs: []task.Ref{env()}},
	{name: "reset_env", family: "envs", summary: "Bring an env back to a clean state", required: []string{"env_id"}, refs: []task.Ref{env()}},
	{name: "rubrics_verifier", family: "verify", summary: "Let a judge grade a reply by criteria", required: []string{"criteria", "prompt_id"}, refs: []task.Ref{{Path: "judge_a2a_agent_id", Kind: "agent"}},
		user:     []string{"judge_a2a_agent_id", "default_model", "default_model_api_base", "effort", "max_thinking_tokens", "judge_sandbox_type", "judge_batch_size", "judge_batch_concurrency"},
		verifier: true},
	{name: "run_container_unit_tests_verifier", family: "verify", summary: "Grade by a test command in a task's container", required: []string{"sandbox_name", "container_name", "command"}, verifier: true},
	{name: "run_docker_container", family: "sandboxes", summary: "Build and run a container on a VM-mode sandbox", required: []string{"sandbox_name"},
		refs: []task.Ref{pinned("docker_context_artifact_id", "artifact", "docker_context_artifact_version", files)}, user: []string{"docker_context_url"}},
	{name: "snapshot_env", family: "envs", summary: "Export an env's live state as an environment universe", required: []string{"env_id"},
		refs: []task.Ref{env(), output("snapshot_id", universe), {Path: "original_universe_artifact_id", Kind: "artifact", ArtifactType: universe}}, user: []string{"env_instance_id"}},
	{name: "sync_env_clock", family: "envs", summary: "Set an env's virtual clock", required: []string{"env_id", "virtual_time"}, refs: []task.Ref{env()}},
	{name: "validation_gate_aggregator", family: "validate", summary: "Put validators' verdicts together", required: []string{"env_id"}, refs: []task.Ref{env()}},
	{name: "verify_a2a_agent_card", family: "validate", summary: "Check an agent's card", required: []string{"a2a_agent_id"}, refs: []task.Ref{agentRef()}, verifier: true},
	{name: "verify_a2a_agent_config_identity", family: "validate", summary: "Check that agent-config changes the served card", required: []string{"a2a_agent_id"}, refs: []task.Ref{agentRef()}, verifier: true},
	{name: "verify_a2a_agent_mcp", family: "validate", summary: "Check that an agent calls MCP tools", required: []string{"a2a_agent_id"}, refs: []task.Ref{agentOnly()}, verifier: true},
	{name: "verify_a2a_core_protocol", family: "validate", summary: "Check the core A2A operations", required: []string{"a2a_agent_id", "prompt_id"}, refs: []task.Ref{agentOnly()}, verifier: true},
	{name: "verify_a2a_install", family: "validate", summary: "Check an agent's install extension", required: []string{"a2a_agent_id"}, refs: []task.Ref{agentRef()}, verifier: true},
	{name: "verify_a2a_modalities", family: "validate", summary: "Check an agent's input modalities", required: []string{"a2a_agent_id", "probes"}, refs: []task.Ref{agentOnly()}, verifier: true},
	{name: "verify_a2a_peer_agents", family: "validate", summary: "Check an agent's peer-agents extension", required: []string{"a2a_agent_id", "a2a_agent_version", "peer_prompt_id", "expected_token"}, refs: []task.Ref{agentRef()}, verifier: true},
	{name: "verify_a2a_role", family: "validate", summary: "Check that a role round-trips", required: []string{"a2a_agent_id"}, refs: []task.Ref{agentRef()}, verifier: true},
	{name: "verify_a2a_skill_config", family: "validate", summary: "Check an agent's skill-config extension", required: []string{"a2a_agent_id", "rubric_verifier_id"}, refs: []task.Ref{agentOnly()}, verifier: true},
	{name: "verify_a2a_snapshot", family: "validate", summary: "Check an agent's snapshot extension", required: []string{"a2a_agent_id", "rubric_verifier_id", "rubric_criterion_id"}, refs: []task.Ref{agentOnly()}, verifier: true},
	{name: "verify_a2a_system_prompt", family: "validate", summary: "Check that the system prompt reaches the model", required: []string{"a2a_agent_id"}, refs: []task.Ref{agentRef()}, verifier: true},
	{name: "verify_a2a_trajectory", family: "validate", summary: "Check trajectory retrieval", required: []string{"a2a_agent_id"}, refs: []task.Ref{agentOnly()}, verifier: true},
	{name: "verify_env_card", family: "validate", summary: "Check that an env's card is served", required: []string{"env_id"}, refs: []task.Ref{env()}, verifier: true},
	{name: "verify_env_core_protocol", family: "validate", summary: "Check the core env operations", required: []string{"env_id"}, refs: []task.Ref{env()}, verifier: true},
	{name: "verify_mcp_env_assessment", family: "validate", summary: "Check tools by an agent's structured reply", required: []string{"env_id", "prompt_id"}, refs: []task.Ref{env()}, verifier: true},
	{name: "verify_mcp_tool_schema", family: "validate", summary: "Check tool schemas", required: []string{"env_id"}, refs: []task.Ref{env()}, verifier: true},
	{name: "verify_spec_conformance", family: "validate", summary: "Check live tools against the spec they were made from", required: []string{"env_id"}, refs: []task.Ref{env()}, verifier: true},
	{name: "verify_universe_load_export_roundtrip", family: "validate", summary: "Check that load and export of a universe lose nothing", required: []string{"env_id", "universe_artifact_id"},
		refs: []task.Ref{env(), pinned("universe_artifact_id", "artifact", "universe_artifact_version", universe)}, verifier: true},
}
