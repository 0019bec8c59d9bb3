package deploy

import (
	"maps"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"agentenv/fault"
	"agentenv/sandbox"
	"agentenv/store/doc"
)

// The variables that an agent's container gets beside its own.
const (
	varKey     = "LITELLM_API_KEY"
	varBase    = "LITELLM_BASE_URL"
	varHeaders = "LITELLM_EXTRA_HEADERS"
	varPort    = "A2A_PORT"
	varToken   = "AGENTENV_A2A_TOKEN"
	varDocker  = "DOCKER_HOST"
	// RoleVar tells an agent the role it acts in.
	RoleVar = "AGENT_ENV_ROLE"
)

// Model is the configured model endpoint. Its errors are shown as they are.
type Model interface {
	// APIKey and BaseURL are errors when none is configured.
	APIKey() (string, error)
	BaseURL() (string, error)
	// ExtraHeaders returns the headers that go with every call; empty or nil for none.
	ExtraHeaders() (*doc.Object, error)
}

// environment returns the variables of an agent's container. r.Env lies over the agent's defaults; model credentials fill what neither
// sets, for an agent that takes them. here says that the sandbox is on this machine, whose loopback addresses it knows by another name.
func environment(r Request, model func() (Model, error), here bool) (map[string]string, error) {
	env := map[string]string{}
	for _, k := range r.Agent.DefaultEnv.Keys() {
		env[k] = r.Agent.DefaultEnv.Str(k)
	}
	maps.Copy(env, r.Env)
	for k, v := range env {
		if k == "" || strings.ContainsAny(k, "=\x00") || strings.ContainsRune(v, 0) {
			return nil, fault.New(fault.Invalid, "env_vars: %q is no variable: a name is not empty and has no \"=\", and neither has a NUL byte", k)
		}
	}
	env[varPort] = strconv.Itoa(Port)
	if r.Docker {
		env[varDocker] = sandbox.DockerHost
	}
	if !takesCredentials(r) {
		for _, k := range []string{varKey, varBase, varHeaders} {
			delete(env, k)
		}
		return env, nil
	}
	return env, credentials(env, r, model, here)
}

// takesCredentials reports whether an agent gets model credentials: it does unless its metadata says otherwise.
func takesCredentials(r Request) bool {
	v, said := r.Agent.Metadata.Value("takes_credentials").(bool)
	return v || !said
}

func credentials(env map[string]string, r Request, model func() (Model, error), here bool) error {
	m, err := model()
	if err != nil {
		return err
	}
	if r.APIKey != "" {
		env[varKey] = r.APIKey
	}
	if env[varKey] == "" {
		if env[varKey], err = m.APIKey(); err != nil {
			return err
		}
	}
	base := r.BaseURL
	if base == "" && env[varBase] == "" {
		if base, err = m.BaseURL(); err != nil {
			return err
		}
	}
	if base != "" {
		if here {
			base = fromContainer(base)
		}
		env[varBase] = base
	}
	if _, given := env[varHeaders]; given {
		return nil
	}
	headers, err := m.ExtraHeaders()
	if err != nil || headers.Len() == 0 {
		return err
	}
	text, err := doc.Marshal(headers)
	env[varHeaders] = string(text)
	return err
}

// fromContainer returns the URL by which a container reaches what this machine reaches by u: a loopback or unspecified host becomes
// host.docker.internal, all else stays.
func fromContainer(u string) string {
	parsed, err := url.Parse(u)
	if err != nil {
		return u
	}
	host := parsed.Hostname()
	ip := net.ParseIP(host)
	if host != "localhost" && (ip == nil || !ip.IsLoopback() && !ip.IsUnspecified()) {
		return u
	}
	if port := parsed.Port(); port != "" {
		parsed.Host = "host.docker.internal:" + port
	} else {
		parsed.Host = "host.docker.internal"
	}
	return parsed.String()
}

// shortest is the length from which a value is worth hiding: shorter ones are in every text.
const shortest = 6

// hider returns a function that blanks the values of secret variables in a text that an agent wrote.
func hider(env map[string]string) func(string) string {
	values := secretValues(env)
	return func(text string) string { return HiddenText(text, values) }
}

// secretValues returns the values of secret variables that are worth hiding.
func secretValues(env map[string]string) (out []string) {
	add := func(v string) {
		if len(v) >= shortest && !slices.Contains(out, v) {
			out = append(out, v)
		}
	}
	for _, k := range slices.Sorted(maps.Keys(env)) {
		name := strings.ToUpper(k)
		secret := slices.ContainsFunc([]string{"KEY", "TOKEN", "SECRET", "PASSWORD", "CREDENTIAL"}, func(s string) bool { return strings.Contains(name, s) })
		switch {
		case k == varHeaders:
			headers, _ := doc.ParseObject([]byte(env[k]), doc.Options{})
			for _, h := range headers.Keys() {
				add(headers.Str(h))
			}
		case secret:
			add(env[k])
		}
	}
	return out
}
