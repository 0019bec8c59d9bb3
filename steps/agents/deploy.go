package agents

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"agentenv/agent/deploy"
	"agentenv/fault"
	"agentenv/sandbox"
	"agentenv/store/doc"
	"agentenv/task"
)

func deployType(d Deps) *task.StepType {
	optional := func(name string, kind task.FieldKind, what string) task.Field {
		return task.Field{Name: name, Kind: kind, Doc: what}
	}
	user := func(f task.Field) task.Field { f.User = true; return f }
	return &task.StepType{
		Name:    "deploy_agent",
		Summary: "Deploy an A2A agent in a sandbox of its own, or on one of the run, and connect it to envs",
		Family:  "agents",
		Doc: "The agent's image runs in a container of its own, which ends with the agent. The step is done when the agent serves its card and took its " +
			"configuration; whatever fails before that ends the agent again. An agent whose definition does not say `takes_credentials = false` gets the model endpoint " +
			"of the configuration, and needs one. An agent whose image has the label `" + deploy.BearerLabel + "=bearer` gets a token of its own, without which it answers nobody.",
		FailsTask:  true,
		Repeatable: true,
		Fields: []task.Field{
			{Name: "env_ids", Kind: task.List, Items: task.String, Default: []any{}, Doc: "envs whose tools the agent gets"},
			optional("env_step_id", task.String, "which deployment of the envs, when there are several"),
			user(optional("a2a_agent_id", task.String, "which agent; the configured default when not given")),
			user(optional("a2a_agent_version", task.Integer, "its version; the latest when not given")),
			{Name: "agent_name", Kind: task.String, Default: defaultAgent, Doc: "name the other steps use; unique in the run"},
			optional("agent_description", task.String, "told to the agent, and shown in its card"),
			optional("role", task.String, "the role the agent acts in"),
			optional("system_prompt", task.String, "given to an agent that takes one"),
			user(task.Field{Name: "env_vars", Kind: task.ObjectKind, Items: task.String, Default: doc.Of(), Doc: "environment of the agent's container, over the agent's own"}),
			{Name: "skills", Kind: task.List, Items: task.ObjectKind, Default: []any{}, Doc: "skills to give it: `{\"name\", \"description\", \"skill_md\"}`, or `object_url`, the folder of a skill in the object store"},
			optional("disk_size_gb", task.NumberKind, "disk in GB; never less than the agent asks for"),
			optional("cpu", task.NumberKind, "cores"),
			optional("memory_mb", task.Integer, "memory in MiB"),
			optional("ttl_seconds", task.Integer, "time to live of its sandbox; 7200 when not given"),
			user(optional("sandbox_type", task.String, "provider, or several separated by commas (the next takes over when one fails)")),
			user(optional("litellm_base_url", task.String, "model endpoint of this agent")),
			optional("network_policy", task.ObjectKind, "what the sandbox may reach: `{\"mode\": \"allow_all\"}`, or `allowlist` with allow_hosts and allow_cidrs"),
			optional("agent_snapshot_files_artifact_id", task.String, "snapshot the agent begins from, as snapshot_agent_state keeps it"),
			optional("agent_snapshot_files_artifact_version", task.Integer, "its version"),
			optional("agent_snapshot_target_context_id", task.String, "conversation it is loaded into, for the context_id of prompts; the agent chooses when not given"),
			{Name: "enable_agent_changelog", Kind: task.Boolean, Default: false, Doc: "have the agent record what it changes, tool call by tool call"},
			optional("agent_changelog_object_url", task.String, "changelog the agent replays, as metadata.agent_changelog of a run says where it is"),
			optional(cutoff, task.Integer, "replay only what came before this tool call"),
			optional("sandbox_name", task.String, "run the agent beside the host of this sandbox of the mode vm, which exposes port 8000; it outlives the agent"),
			{Name: "enable_docker", Kind: task.Boolean, Default: false, Doc: "give the agent a Docker Engine of its own, which ends with it; on providers that have VMs"},
			{Name: "metadata", Kind: task.ObjectKind, Default: doc.Of(), Doc: "`metadata.attribution`: tags for the provider"},
		},
		Refs: []task.Ref{
			{Path: "env_ids[]", Kind: "env"},
			{Path: "a2a_agent_id", Kind: "agent", VersionField: "a2a_agent_version"},
			{Path: "agent_snapshot_files_artifact_id", Kind: "artifact", VersionField: "agent_snapshot_files_artifact_version", ArtifactType: "file_artifact_universe"},
		},
		Parse: func(_ string, f *doc.Object) (task.Action, *doc.Object, error) { return parseDeploy(d, f) },
		Given: givenDeploy,
		Unsupported: func(s *task.Step) string {
			if len(s.Fields.Arr("env_ids")) > 0 {
				return "deploy_agent with env_ids"
			}
			return ""
		},
		Check: siteCheck,
		Among: siteAmong,
		Warn:  func(s *task.Step) []string { return append(siteWarnings(s), skillWarnings(s)...) },
		Deploys: func(s *task.Step) []task.Deploy {
			if s.Fields.Str("sandbox_name") != "" {
				return nil // deploy_sandbox says where
			}
			return []task.Deploy{{What: "agent", Provider: cmp.Or(s.Fields.Str("sandbox_type"), d.Provider), Mode: string(sandbox.Container)}}
		},
	}
}

// skillWarnings names what skills hold that nobody reads.
func skillWarnings(s *task.Step) (out []string) {
	known := []string{"name", "description", "skill_md", "content", "object_url", "skill_s3_url", "s3_uri"}
	for i, v := range s.Fields.Arr("skills") {
		o, _ := v.(*doc.Object)
		for _, k := range o.Keys() {
			if !slices.Contains(known, k) {
				out = append(out, fmt.Sprintf("skills[%d]: the field %q is not known and is passed over; there are %s", i, k, strings.Join(known, ", ")))
			}
		}
	}
	return out
}

// givenDeploy refuses amounts that are none, and an empty name.
func givenDeploy(f *doc.Object) error {
	if name := f.Str("agent_name"); name == "" {
		return fault.New(fault.Invalid, "agent_name must not be empty")
	} else if !utf8.ValidString(name) || strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return fault.New(fault.Invalid, "agent_name %q holds what cannot be printed", name)
	}
	for _, key := range []string{"disk_size_gb", "cpu", "memory_mb", "ttl_seconds"} {
		if v := f.Value(key); v != nil && positive(v) == 0 {
			return fault.New(fault.Invalid, "%s must be greater than 0, not %s", key, task.Brief(v))
		}
	}
	return nil
}

type deployAgent struct {
	deps                            Deps
	fields                          *doc.Object
	name, description, role, prompt string
	agentID                         string
	version                         int64
	skills                          []skillSource
	policy                          *sandbox.NetworkPolicy
	snapshotVersion                 int64
}

func parseDeploy(d Deps, f *doc.Object) (task.Action, *doc.Object, error) {
	a := &deployAgent{deps: d, fields: f, name: f.Str("agent_name"), description: f.Str("agent_description"), role: f.Str("role"), prompt: f.Str("system_prompt"),
		agentID: f.Str("a2a_agent_id")}
	var err error
	if a.version, err = versionOf("a2a_agent_version", f.Value("a2a_agent_version")); err != nil {
		return nil, nil, err
	}
	if a.snapshotVersion, err = versionOf("agent_snapshot_files_artifact_version", f.Value("agent_snapshot_files_artifact_version")); err != nil {
		return nil, nil, err
	}
	if a.skills, err = skillsOf(f.Arr("skills")); err != nil {
		return nil, nil, err
	}
	if a.policy, err = sandbox.ParsePolicy(f.Value("network_policy")); err != nil {
		return nil, nil, err
	}
	if f.Value(cutoff) != nil && f.Str("agent_changelog_object_url") == "" {
		return nil, nil, fault.New(fault.Invalid, "%s needs agent_changelog_object_url, the changelog it is a place in", cutoff)
	}
	stored := f.Clone().Set("role", textOrNull(a.role))
	if a.policy != nil {
		stored.Set("network_policy", a.policy.Document())
	}
	return a, stored, nil
}

// versionOf reads a version, 0 when there is none.
func versionOf(field string, v any) (int64, error) {
	if v == nil {
		return 0, nil
	}
	n, ok := doc.Of("v", v).Int("v")
	if !ok || n < 1 {
		return 0, fault.New(fault.Invalid, "%s must be a whole number of at least 1, not %s", field, task.Brief(v))
	}
	return n, nil
}

// Execute deploys and configures the agent, and records it as the step's last effect.
func (a *deployAgent) Execute(ctx context.Context, r *task.Run) error {
	err := a.execute(ctx, r)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return fault.At(err, "deploy_agent %q", r.StepID)
}

func (a *deployAgent) execute(ctx context.Context, r *task.Run) error {
	for _, other := range r.Agents() {
		if other.Str("agent_name") == a.name {
			return fault.New(fault.Exists, "the agent %q is already deployed in this run; give this one another agent_name", a.name)
		}
	}
	site, err := a.site(r)
	if err != nil {
		return err
	}
	req, err := a.request(ctx, r)
	if err != nil {
		return err
	}
	req.On = site
	kept, err := a.begin(ctx, r, cmp.Or(req.TTL, deploy.DefaultTTL))
	if err != nil {
		return err
	}
	live, err := a.deps.Deployer.Deploy(ctx, req)
	if err != nil {
		return err
	}
	r.Log.Info("agent deployed", "agent", req.Agent.ID, "version", req.Agent.Version, "sandbox", live.Info.ID, "provider", live.Info.Type)
	if err := a.settle(ctx, r, live, kept); err != nil {
		if left := a.deps.Deployer.Close(ctx, live); left != nil {
			return fault.At(err, "%s could not be removed (%v)", live.Info.ID, left)
		}
		return err
	}
	return nil
}

// settle configures a live agent, has it begin from what is kept, and records it.
func (a *deployAgent) settle(ctx context.Context, r *task.Run, live *deploy.Deployed, kept *beginning) error {
	hidden := secrets(a.deps.Deployer.Secrets(live.Info.ID))
	record := doc.Of("agent_name", a.name, "api_url", live.Endpoint.URL, "a2a_url", live.Endpoint.URL, "sandbox_id", live.Info.ID,
		"sandbox_type", live.Info.Type, "a2a_card", live.Card, "instance_id", live.InstanceID, "role", textOrNull(a.role),
		"network_policy", nil, "on_host", false, "installed_container", nil)
	if live.Policy != nil {
		record.Set("network_policy", live.Policy)
	}
	identity, err := a.configure(ctx, r, live.Endpoint, kept)
	if err != nil {
		return hidden.error(a.deps.blame(ctx, record, err, false))
	}
	card := live.Card.Clone()
	for _, k := range identity.Keys() {
		card.Set(k, identity.Value(k))
	}
	if err := a.defaultModel(r); err != nil {
		return err
	}
	rows, err := a.restore(ctx, r, live.Endpoint, kept)
	if err != nil {
		return hidden.error(a.deps.blame(ctx, record, err, true))
	}
	if err := r.AddAgent(record.Set("a2a_card", hidden.value(card))); err != nil {
		return err
	}
	for _, one := range rows {
		r.Append(hidden.value(one.item), one.list)
	}
	return nil
}

// defaultModel gives the run the configured model of agents unless it has one.
func (a *deployAgent) defaultModel(r *task.Run) error {
	if r.Context().Str("default_agent_model") != "" {
		return nil
	}
	m, err := a.deps.Config.Model()
	if err != nil {
		return err
	}
	if model := m.ForRole("agent"); model != "" {
		r.SetDefaultAgentModel(model)
	}
	return nil
}
