package agents

import (
	"context"
	"time"

	"agentenv/agent"
	"agentenv/agent/deploy"
	"agentenv/artifact"
	"agentenv/fault"
	"agentenv/sandbox"
	"agentenv/store/doc"
	"agentenv/task"
)

func installType(d Deps) *task.StepType {
	return &task.StepType{
		Name:    "install_agent",
		Summary: "Install an A2A agent into a running container or host",
		Family:  "agents",
		Doc: "The agent works where the task does: in the container `container_name` of a sandbox of the mode vm, or on the sandbox's host. Its image must have a build context and say how it is " +
			"installed: by a card with the extension install, on the label `" + deploy.CardLabel + "` of the image or as AGENT_CARD of a Python module a2a_server in /app. The commands of that " +
			"extension run on the host; the port on which the agent then answers must be exposed by the sandbox. The step is done when the agent serves its card.",
		FailsTask: true,
		Fields: []task.Field{
			{Name: "sandbox_name", Kind: task.String, Required: true, Doc: "the sandbox, of the mode vm"},
			{Name: "container_name", Kind: task.String, Doc: "a container that a step started on it; its host when not given"},
			{Name: "a2a_agent_id", Kind: task.String, User: true, Doc: "which agent; the configured default when not given"},
			{Name: "a2a_agent_version", Kind: task.Integer, User: true, Doc: "its version; the latest when not given"},
			{Name: "agent_name", Kind: task.String, Default: defaultAgent, Doc: "name the other steps use; unique in the run"},
			{Name: "a2a_port", Kind: task.Integer, Doc: "port that the agent listens on; as its card says when not given"},
			{Name: "workspace_dir", Kind: task.String, Doc: "folder that the agent works in, for agents that ask for one"},
		},
		Refs: []task.Ref{{Path: "a2a_agent_id", Kind: "agent", VersionField: "a2a_agent_version"}},
		Parse: func(_ string, f *doc.Object) (task.Action, *doc.Object, error) {
			a, err := parseInstall(d, f)
			return a, nil, err
		},
		Given: func(f *doc.Object) error {
			if f.Str("agent_name") == "" || f.Str("sandbox_name") == "" {
				return fault.New(fault.Invalid, "agent_name and sandbox_name must not be empty")
			}
			return nil
		},
		Preflight: func(ctx context.Context, s *task.Step) []string { return s.Action.(*installAgent).preflight(ctx) },
	}
}

type installAgent struct {
	deps                               Deps
	sandbox, container, agent, agentID string
	version                            int64
	port                               int
	workspace                          string
}

func parseInstall(d Deps, f *doc.Object) (*installAgent, error) {
	a := &installAgent{deps: d, sandbox: f.Str("sandbox_name"), container: f.Str("container_name"), agent: f.Str("agent_name"), agentID: f.Str("a2a_agent_id"), workspace: f.Str("workspace_dir")}
	var err error
	if a.version, err = versionOf("a2a_agent_version", f.Value("a2a_agent_version")); err != nil {
		return nil, err
	}
	if v := f.Value("a2a_port"); v != nil {
		n, _ := f.Int("a2a_port")
		if n < 1 || n > 65535 {
			return nil, fault.New(fault.Invalid, "a2a_port must be a port, 1 to 65535, not %s", task.Brief(v))
		}
		a.port = int(n)
	}
	return a, nil
}

// preflight finds an agent that can never be installed. One that cannot be read may be there by the time of the run, which says so if not.
func (a *installAgent) preflight(ctx context.Context) []string {
	if a.agentID == "" {
		return nil
	}
	found, err := a.deps.Agents.Get(ctx, a.agentID, a.version)
	if err != nil {
		return nil
	}
	img, err := artifact.GetAs[*artifact.DockerImage](ctx, a.deps.Artifacts, artifact.Ref{ID: found.Image.ID, Version: found.Image.Version})
	if err != nil {
		return nil
	}
	if why := deploy.Installable(img); why != "" {
		return []string{"the agent " + a.agentID + " cannot be installed: " + why}
	}
	return nil
}

// Execute installs the agent and records it as the step's last effect.
func (a *installAgent) Execute(ctx context.Context, r *task.Run) error {
	err := a.execute(ctx, r)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return fault.At(err, "install_agent %q", r.StepID)
}

func (a *installAgent) execute(ctx context.Context, r *task.Run) error {
	req, err := a.request(ctx, r)
	if err != nil {
		return err
	}
	live, err := a.deps.Deployer.Install(ctx, req)
	if err != nil {
		return err
	}
	r.Log.Info("agent installed", "agent", req.Agent.ID, "version", req.Agent.Version, "sandbox", req.Sandbox.ID, "container", live.Container)
	if err := a.defaultModel(r, req.Agent); err != nil {
		return err
	}
	var policy any
	if req.Policy != nil {
		policy = req.Policy
	}
	return r.AddAgent(doc.Of("agent_name", a.agent, "api_url", live.Endpoint.URL, "a2a_url", live.Endpoint.URL, "sandbox_id", req.Sandbox.ID, "sandbox_type", live.Endpoint.SandboxType,
		"a2a_card", live.Card, "instance_id", live.InstanceID, "role", nil, "network_policy", policy, "on_host", live.Container == "", "installed_container", textOrNull(live.Container)))
}

// request says what to install, with the run's overrides over the step.
func (a *installAgent) request(ctx context.Context, r *task.Run) (deploy.InstallRequest, error) {
	req := deploy.InstallRequest{Name: a.agent, Container: a.container, Port: a.port, Workspace: a.workspace, Taken: map[string]string{},
		Progress: func(line string) { r.Report(task.Progress{Note: line}) }}
	for _, other := range r.Agents() {
		if other.Str("agent_name") == a.agent {
			return req, fault.New(fault.Exists, "the agent %q is already deployed in this run; give this one another agent_name", a.agent)
		}
		req.Taken[other.Str("a2a_url")] = other.Str("agent_name")
	}
	if v, there := r.Param("proxy"); there && v != nil {
		return req, fault.New(fault.Unsupported, "step_params proxy: another agent in place of the installed one is not supported yet")
	}
	box, err := r.Sandbox(a.sandbox)
	if err != nil {
		return req, err
	}
	if a.container != "" && !startedOn(r, a.sandbox, a.container) {
		return req, fault.New(fault.Invalid, "container %q is not in metadata.deployed_docker_containers for sandbox %q: no step of this run started it there", a.container, a.sandbox).WithClass("RuntimeError")
	}
	req.Sandbox = sandbox.Record{Name: box.Name, ID: box.ID, Type: box.Type, Mode: sandbox.Mode(box.Mode)}
	req.Tunnels, req.Expires, req.Policy = box.TunnelURLs, moment(box.ExpiresAt), box.NetworkPolicy
	if req.Agent, err = (&deployAgent{deps: a.deps, agentID: a.agentID, version: a.version}).choose(ctx, r); err != nil {
		return req, err
	}
	if req.APIKey, err = a.deps.Config.ResolveText(text(r.Override("litellm_api_key"))); err != nil {
		return req, fault.At(err, "litellm_api_key")
	}
	req.BaseURL, err = a.deps.Config.ResolveText(text(r.Override("litellm_base_url")))
	return req, fault.At(err, "litellm_base_url")
}

// startedOn reports whether a step of the run started a container on a sandbox.
func startedOn(r *task.Run, box, container string) bool {
	list, _ := r.Metadata("deployed_docker_containers").([]any)
	for _, v := range list {
		if o, _ := v.(*doc.Object); o.Str("container_name") == container && o.Str("sandbox_name") == box {
			return true
		}
	}
	return false
}

// moment reads a recorded time, which others write to the minute; zero when it cannot be read.
func moment(s string) time.Time {
	for _, form := range []string{time.RFC3339Nano, "2006-01-02 15:04 UTC"} {
		if t, err := time.Parse(form, s); err == nil {
			return t
		}
	}
	return time.Time{}
}

// defaultModel gives the run a model for its agents unless it has one: that of the agent, else the configured one.
func (a *installAgent) defaultModel(r *task.Run, of *agent.Agent) error {
	if own := of.Metadata.Str("default_model"); own != "" && r.Context().Str("default_agent_model") == "" {
		r.SetDefaultAgentModel(own)
		return nil
	}
	return (&deployAgent{deps: a.deps}).defaultModel(r)
}
