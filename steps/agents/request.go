package agents

import (
	"cmp"
	"context"

	"agentenv/agent"
	"agentenv/agent/deploy"
	"agentenv/agent/objects"
	"agentenv/fault"
	"agentenv/sandbox"
	"agentenv/store"
	"agentenv/store/doc"
	"agentenv/task"
)

// request says what to deploy, with the run's overrides over the step.
func (a *deployAgent) request(ctx context.Context, r *task.Run) (deploy.Request, error) {
	f := a.fields
	req := deploy.Request{Name: a.name, Env: map[string]string{}, CPU: positive(f.Value("cpu")), MemoryMB: int(min(positive(f.Value("memory_mb")), 1<<30)),
		DiskGB: positive(f.Value("disk_size_gb")), Docker: f.Bool("enable_docker"), TTL: seconds(f.Value("ttl_seconds")), Provider: f.Str("sandbox_type"), Policy: a.policy,
		Attribution: r.Attribution(f.Obj("metadata")), Owner: sandbox.Owner{Instance: r.Instance, Task: r.TaskID, Step: r.StepID},
		Progress: func(line string) { r.Report(task.Progress{Note: line}) }}
	var err error
	if req.Agent, err = a.choose(ctx, r); err != nil {
		return req, err
	}
	if id := r.Context().Str("agent_artifact_id"); id != "" {
		changed := *req.Agent
		changed.Image = agent.ArtifactRef{ID: id, Type: "docker_image"}
		req.Agent = &changed
	}
	vars := f.Obj("env_vars")
	for _, k := range vars.Keys() {
		req.Env[k] = vars.Str(k)
	}
	if _, given := req.Env[deploy.RoleVar]; !given && a.role != "" {
		req.Env[deploy.RoleVar] = a.role
	}
	if req.APIKey, err = a.deps.Config.ResolveText(text(r.Override("litellm_api_key"))); err != nil {
		return req, fault.At(err, "litellm_api_key")
	}
	base := text(r.Override("litellm_base_url"))
	if base == "" {
		base = f.Str("litellm_base_url")
	}
	if req.BaseURL, err = a.deps.Config.ResolveText(base); err != nil {
		return req, fault.At(err, "litellm_base_url")
	}
	if s := text(r.Override("agent_sandbox")); s != "" {
		req.Provider = s
	}
	if n := positive(r.Override("agent_disk_size_gb")); n > 0 {
		req.DiskGB = n
	}
	if d := seconds(r.Override("ttl_seconds")); d > 0 {
		req.TTL = d
	}
	if over := r.Override("network_policy"); over != nil {
		if req.Policy, err = sandbox.ParsePolicy(over); err != nil {
			return req, fault.At(err, "user_overrides")
		}
	}
	return req, nil
}

// choose finds the agent: the step's override with a version of its own, the run's, the step's, the configured default.
func (a *deployAgent) choose(ctx context.Context, r *task.Run) (*agent.Agent, error) {
	if v, there := r.Param("a2a_agent_id"); there && text(v) != "" {
		pin, _ := r.Param("a2a_agent_version")
		version, err := versionOf("a2a_agent_version", pin)
		if err != nil {
			return nil, fault.At(err, "step_params")
		}
		return a.lookUp(ctx, text(v), version)
	}
	if id := text(r.Override("a2a_agent_id")); id != "" {
		version, err := versionOf("a2a_agent_version", r.Override("a2a_agent_version"))
		if err != nil {
			return nil, fault.At(err, "user_overrides")
		}
		return a.lookUp(ctx, id, version)
	}
	if a.agentID != "" {
		version := a.version
		if pin, there := r.Param("a2a_agent_version"); there {
			var err error
			if version, err = versionOf("a2a_agent_version", pin); err != nil {
				return nil, fault.At(err, "step_params")
			}
		}
		return a.lookUp(ctx, a.agentID, version)
	}
	section, err := a.deps.Config.Agents()
	if err != nil {
		return nil, err
	}
	found, err := a.lookUp(ctx, section.DefaultID, 0)
	return found, fault.At(err, "the step names no agent, and the configured default")
}

func (a *deployAgent) lookUp(ctx context.Context, id string, version int64) (*agent.Agent, error) {
	found, err := a.deps.Agents.Get(ctx, id, version)
	if fault.Is(err, fault.NotFound) && store.IsLocal(id) {
		return nil, fault.At(err, "agents under @local are stored by running their bundle (agent-env run FOLDER)")
	}
	return found, err
}

// skillsOf reads the step's skills. Of a skill that has both, the inline text counts.
func skillsOf(list []any) ([]skillSource, error) {
	var out []skillSource
	for i, v := range list {
		o, _ := v.(*doc.Object)
		s := skillSource{renames: true, name: o.Str("name"), description: o.Str("description"), text: cmp.Or(o.Str("skill_md"), o.Str("content"))}
		if s.text == "" {
			s.url = cmp.Or(o.Str("object_url"), o.Str("skill_s3_url"), o.Str("s3_uri"))
		}
		switch {
		case s.text == "" && s.url == "" && o.Value("skill_artifact_id") != nil:
			return nil, fault.New(fault.Invalid, "skills[%d]: this step takes no skill_artifact_id; give the artifact's skill_object_url as object_url, or add the skill by an add_skills step", i)
		case s.name == "" && s.url == "":
			return nil, fault.New(fault.Invalid, "skills[%d] needs a name", i)
		case s.text == "" && s.url == "":
			return nil, fault.New(fault.Invalid, "skills[%d] (%s) needs skill_md, its text, or object_url, the folder of its files", i, s.name)
		}
		out = append(out, s)
	}
	return out, nil
}

// learned are the step's skills as the agent is to get them: those of the store are looked up, texts go as they are.
func (a *deployAgent) learned(ctx context.Context) ([]objects.Skill, error) {
	var out []objects.Skill
	for i, s := range a.skills {
		skill := objects.Skill{Name: s.name, Description: s.description, Text: s.text}
		if s.url != "" {
			var err error
			if skill, err = a.deps.fetch(ctx, s); err != nil {
				return nil, fault.At(err, "skills[%d]", i)
			}
		}
		out = append(out, skill)
	}
	return out, nil
}
