package deploy

import (
	"context"
	"fmt"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"agentenv/artifact"
	"agentenv/fault"
	"agentenv/sandbox"
	"agentenv/store/doc"
)

// installation is one call of Install.
type installation struct {
	d         *Deployer
	r         InstallRequest
	m         sandbox.Machine
	here      bool   // on this machine
	container string // the engine's name, "" = the host

	url      string // where the agent will answer
	dir      string // the work folder on the host
	commands []command
	trust    []byte // certificates that the agent is to believe; nil = none of ours
	hide     func(string) string
}

// command is one install command.
type command struct {
	title  string // of its template, for messages
	text   string
	secret bool // the text holds what no argument may
}

// prepare finds out everything that is to be done.
func (in *installation) prepare(ctx context.Context, img *artifact.DockerImage) error {
	ready, err := in.d.o.Images.Ready(ctx, img, in.r.Progress)
	if err != nil {
		return err
	}
	c, err := imageCard(ctx, in.m, ready)
	if err != nil {
		return err
	}
	rec, err := recipeOf(c, in.container == "")
	if err != nil {
		return err
	}
	port := rec.port
	if in.r.Port > 0 {
		port = in.r.Port
	}
	if in.url = strings.TrimRight(in.r.Tunnels[strconv.Itoa(port)], "/"); in.url == "" {
		where := fmt.Sprintf("add it to exposed_ports of the deploy_sandbox step of %q", in.r.Sandbox.Name)
		if in.container != "" {
			where += fmt.Sprintf(", and to ports of the step that starts the container %q", in.r.Container)
		}
		return fault.New(fault.Invalid, "the agent listens on port %d, which the sandbox does not expose; %s", port, where)
	}
	if other := in.r.Taken[in.url]; other != "" {
		return fault.New(fault.Exists, "port %d of sandbox %q serves the agent %q already; give this one another a2a_port", port, in.r.Sandbox.Name, other)
	}
	in.dir = "/tmp/install-agent-" + in.m.ScopedName(strings.ReplaceAll(in.r.Name, "/", "_"))
	return in.fill(rec, port)
}

// fill makes commands of the recipe's templates.
func (in *installation) fill(rec *recipe, port int) error {
	values := map[string]string{}
	for _, name := range rec.required {
		v, err := in.parameter(name, port)
		if err != nil {
			return err
		}
		values[name] = v
	}
	in.hide = hider(map[string]string{varKey: values["litellm_api_key"], varHeaders: values["litellm_extra_headers"]})
	for i, t := range rec.commands {
		text, used, err := fill(t, values)
		if err != nil {
			return fault.At(err, "install command %d (%s)", i+1, title(t))
		}
		secret := slices.Contains(used, "litellm_api_key") || slices.Contains(used, "litellm_extra_headers")
		if secret && in.onThisHost() && ownFolder.MatchString(text) {
			// The folder that /app stands for is put into the text of a command, and this text comes another way.
			return fault.New(fault.Unsupported, "install command %d (%s) names /app beside a secret, which cannot be done on a host of this machine; name {workspace_dir}, or do both in commands of their own", i+1, title(t))
		}
		in.commands = append(in.commands, command{title(t), text, secret})
	}
	return nil
}

// ownFolder finds /app where it stands by itself.
var ownFolder = regexp.MustCompile(`(^|[^A-Za-z0-9._/~})$-])/app($|[/:\s'";)&|])`)

// onThisHost reports whether the agent is installed on the host of a sandbox of this machine.
func (in *installation) onThisHost() bool { return in.here && in.container == "" }

// title is what messages show of a template.
func title(template string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(template), "\n")
	if r := []rune(line); len(r) > titleShown {
		return string(r[:titleShown])
	}
	return line
}

// parameter returns the value of one parameter.
func (in *installation) parameter(name string, port int) (string, error) {
	given := func(v, what string) (string, error) {
		if v == "" {
			return "", fault.New(fault.Invalid, "it must be told %s to be installed, and %s", name, what)
		}
		return v, nil
	}
	switch name {
	case "container":
		return given(in.container, "is installed on a host: give container_name")
	case "work_dir":
		return in.dir, nil
	case "agent_ctx_tar":
		return path.Join(in.dir, contextName), nil
	case "a2a_port":
		return in.listens(port), nil
	case "agent_name":
		return in.r.Name, nil
	case "workspace_dir":
		return given(in.workspace(), "the step gives no workspace_dir")
	case "trust_env":
		return in.trustEnv()
	case "host_workdir", "host_user":
		return "", fault.New(fault.Unsupported, "it must be told %s, which only an agent that stands in for another one is told", name)
	case "litellm_api_key", "litellm_base_url", "litellm_extra_headers":
		return in.endpoint(name)
	}
	return "", fault.New(fault.Invalid, "its card requires the parameter %q, which nobody knows; known are container, work_dir, agent_ctx_tar, a2a_port, agent_name, workspace_dir, "+
		"host_workdir, host_user, litellm_api_key, litellm_base_url, litellm_extra_headers and trust_env", name)
}

// trustEnv is what tells the agent of the certificates by which it believes the server of grants: lines of variables, "" when there are none.
func (in *installation) trustEnv() (string, error) {
	if in.d.o.Trust == nil || !in.here {
		return "", nil
	}
	var err error
	if in.trust, err = in.d.o.Trust(); err != nil || len(in.trust) == 0 {
		return "", err
	}
	var lines string
	for _, name := range []string{trustVar, "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS"} {
		lines += name + "='" + in.trustFile() + "'\n"
	}
	return lines, nil
}

// trustFile is where the certificates lie.
func (in *installation) trustFile() string {
	if in.container != "" {
		return trustFile
	}
	return path.Join(in.dir, "trust", path.Base(trustFile))
}

// listens is the port that the agent itself is to listen on: on the host of a sandbox of this machine the one its URL has.
func (in *installation) listens(port int) string {
	if u, err := url.Parse(in.url); err == nil && in.onThisHost() && u.Port() != "" {
		return u.Port()
	}
	return strconv.Itoa(port)
}

// workspace is the workspace as the host's own processes know it: on this machine /app is a folder of the sandbox.
func (in *installation) workspace() string {
	const app = "/app"
	w, dir := in.r.Workspace, in.m.Info().WorkDir
	if in.onThisHost() && dir != "" && (w == app || strings.HasPrefix(w, app+"/")) {
		return dir + w[len(app):]
	}
	return w
}

// endpoint is what the agent is told of its model's endpoint.
func (in *installation) endpoint(name string) (string, error) {
	model, err := in.d.o.Model()
	if err != nil {
		return "", err
	}
	switch name {
	case "litellm_api_key":
		if in.r.APIKey != "" {
			return in.r.APIKey, nil
		}
		return model.APIKey()
	case "litellm_base_url":
		base := in.r.BaseURL
		if base == "" {
			if base, err = model.BaseURL(); err != nil {
				return "", err
			}
		}
		if in.here && in.container != "" {
			base = fromContainer(base)
		}
		return base, nil
	}
	headers, err := model.ExtraHeaders()
	if err != nil || headers.Len() == 0 {
		return "{}", err
	}
	text, err := doc.Marshal(headers)
	return string(text), err
}
