package deploy_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"agentenv/agent"
	"agentenv/agent/deploy"
	"agentenv/agent/deploy/deploytest"
	"agentenv/artifact"
	"agentenv/fault"
	"agentenv/protocol/a2a"
	"agentenv/protocol/a2a/echo"
	"agentenv/sandbox"
	"agentenv/store/doc"
	"agentenv/store/document/sqlite"
	"agentenv/store/object/localfs"
)

// rig deploys agents that this process serves.
type rig struct {
	*deploy.Deployer
	t         *testing.T
	provider  *deploytest.Provider
	manager   *sandbox.Manager
	client    *agent.Client
	instances *agent.Instances
	keyFile   string
	image     agent.ArtifactRef
	trust     []byte // certificates for agents
}

// model is a configured endpoint; an empty field is one that is missing.
type model struct{ key, base, header string }

func (m model) APIKey() (string, error) {
	if m.key == "" {
		return "", fault.New(fault.Invalid, "no model API key")
	}
	return m.key, nil
}

func (m model) BaseURL() (string, error) {
	if m.base == "" {
		return "", fault.New(fault.Invalid, "no model endpoint")
	}
	return m.base, nil
}

func (m model) ExtraHeaders() (*doc.Object, error) {
	if m.header == "" {
		return nil, nil
	}
	return doc.Of("X-Team", m.header), nil
}

// serve is the echo agent, with the token its environment gives it.
func serve(t *testing.T) func(env map[string]string) (http.Handler, func()) {
	return func(env map[string]string) (http.Handler, func()) {
		settings, err := a2a.FromEnv(func(k string) string { return env[k] })
		if err == nil {
			settings.StagingMaxBytes = -1
			var s *a2a.Server
			if s, err = echo.New(context.WithoutCancel(t.Context()), settings); err == nil {
				return s.Handler(), func() { _ = s.Close(context.WithoutCancel(t.Context())) }
			}
		}
		t.Error(err)
		return nil, nil
	}
}

func newRig(t *testing.T, m deploy.Model, labels map[string]string) *rig {
	t.Helper()
	dir := t.TempDir()
	docs, err := sqlite.New(sqlite.Options{Path: filepath.Join(dir, "documents.db")})
	if err != nil {
		t.Fatal(err)
	}
	objects, err := localfs.New(filepath.Join(dir, "objects"))
	if err != nil {
		t.Fatal(err)
	}
	artifacts, err := artifact.New(artifact.Options{Documents: docs, Objects: objects})
	if err != nil {
		t.Fatal(err)
	}
	img, err := artifacts.PutRef(t.Context(), "echo__agent_image", artifact.RefImage{Ref: "registry.test/echo@sha256:" + strings.Repeat("a", 64)})
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, provider: &deploytest.Provider{Serve: serve(t)}, client: agent.NewClient(agent.Options{}), instances: agent.NewInstances(docs),
		keyFile: filepath.Join(dir, "state", "agent-tokens.key"), image: agent.ArtifactRef{ID: img.ID(), Version: img.Version()}}
	manager, err := sandbox.NewManager(sandbox.Config{Providers: []sandbox.Provider{r.provider}, Default: deploytest.Name, Ledger: sandbox.OpenLedger(filepath.Join(dir, "ledger.db"))})
	if err != nil {
		t.Fatal(err)
	}
	r.manager = manager
	r.Deployer = deploy.New(deploy.Options{Sandboxes: manager, Artifacts: artifacts, Instances: r.instances, Client: r.client, Images: deploytest.Images(labels),
		Model: func() (deploy.Model, error) { return m, nil }, Provider: deploytest.Name, Tokens: deploy.NewTokens(r.keyFile), Trust: func() ([]byte, error) { return r.trust, nil }})
	t.Cleanup(func() {
		manager.Close()
		r.client.Close()
		objects.Close()
		docs.Close()
	})
	return r
}

// request deploys an agent with these defaults and metadata.
func (r *rig) request(defaults, metadata *doc.Object) deploy.Request {
	return deploy.Request{Name: "solver", Agent: &agent.Agent{ID: "echo", Version: 3, Image: r.image, DefaultEnv: defaults, Metadata: metadata}}
}

func modelFree() *doc.Object { return doc.Of("takes_credentials", false) }

func TestEnvironment(t *testing.T) {
	t.Parallel()
	full := model{"sk-configured", "http://127.0.0.1:4000/v1?x=1", "blue team"}
	for name, c := range map[string]struct {
		model    model
		defaults *doc.Object
		metadata *doc.Object
		env      map[string]string
		key, url string
		want     string
	}{
		"configured":          {model: full, want: `A2A_PORT=8000 LITELLM_API_KEY=sk-configured LITELLM_BASE_URL=http://host.docker.internal:4000/v1?x=1 LITELLM_EXTRA_HEADERS={"X-Team": "blue team"}`},
		"no headers":          {model: model{"sk-configured", "https://models.test", ""}, want: "A2A_PORT=8000 LITELLM_API_KEY=sk-configured LITELLM_BASE_URL=https://models.test"},
		"of the step":         {model: full, env: map[string]string{"LITELLM_API_KEY": "sk-step", "LITELLM_BASE_URL": "http://localhost:1", "LITELLM_EXTRA_HEADERS": "{}", "A": "1"}, want: "A2A_PORT=8000 A=1 LITELLM_API_KEY=sk-step LITELLM_BASE_URL=http://localhost:1 LITELLM_EXTRA_HEADERS={}"},
		"of the run":          {model: model{}, env: map[string]string{"LITELLM_API_KEY": "sk-step"}, key: "sk-run", url: "http://[::1]:9/", want: "A2A_PORT=8000 LITELLM_API_KEY=sk-run LITELLM_BASE_URL=http://host.docker.internal:9/"},
		"of the agent":        {model: model{}, defaults: doc.Of("LITELLM_API_KEY", "sk-agent", "LITELLM_BASE_URL", "https://agent.test", "B", "2"), env: map[string]string{"B": "3"}, want: "A2A_PORT=8000 B=3 LITELLM_API_KEY=sk-agent LITELLM_BASE_URL=https://agent.test"},
		"port is ours":        {model: model{}, metadata: modelFree(), env: map[string]string{"A2A_PORT": "1"}, want: "A2A_PORT=8000"},
		"model-free":          {model: full, metadata: modelFree(), defaults: doc.Of("LITELLM_API_KEY", "sk-agent"), env: map[string]string{"LITELLM_BASE_URL": "https://x", "LITELLM_EXTRA_HEADERS": "{}"}, key: "sk-run", want: "A2A_PORT=8000"},
		"no key":              {model: model{base: "https://models.test"}, want: "! no model API key"},
		"no endpoint":         {model: model{key: "sk-configured"}, want: "! no model endpoint"},
		"neither":             {model: model{}, metadata: doc.Of("takes_credentials", true), want: "! no model API key"},
		"a name that is none": {model: full, env: map[string]string{"A=B": "1"}, want: "! \"A=B\" is no variable"},
		"a value that cannot": {model: full, env: map[string]string{"A": "x\x00"}, want: "! \"A\" is no variable"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, c.model, nil)
			req := r.request(c.defaults, c.metadata)
			req.Env, req.APIKey, req.BaseURL = c.env, c.key, c.url
			_, err := r.Deploy(t.Context(), req)
			if why, bad := strings.CutPrefix(c.want, "! "); bad {
				if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), why) || len(r.provider.Specs()) != 0 {
					t.Errorf("%v, after %d sandboxes", err, len(r.provider.Specs()))
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			spec := r.provider.Specs()[0]
			if got := joined(spec.Env); got != c.want {
				t.Errorf("the environment is\n%s, not\n%s", got, c.want)
			}
			if !spec.ServesItsCommand || spec.Port != 8000 || spec.CPU != 1 || spec.MemoryMB != 8192 || spec.DiskGB != 10 || spec.TTL != deploy.DefaultTTL {
				t.Errorf("%+v", spec)
			}
		})
	}
}

func joined(env map[string]string) string {
	var out []string
	for k, v := range env {
		out = append(out, k+"="+v)
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

func TestDeployAndFindAgain(t *testing.T) {
	t.Parallel()
	for name, labels := range map[string]map[string]string{"open": nil, "with a token": {deploy.BearerLabel: "bearer"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, model{}, labels)
			req := r.request(nil, doc.Of("takes_credentials", false, "min_disk_size_gb", doc.Int(40)))
			req.DiskGB = 20
			a, err := r.Deploy(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			if spec := r.provider.Specs()[0]; spec.DiskGB != 40 || (spec.Env["AGENTENV_A2A_TOKEN"] != "") != (labels != nil) {
				t.Errorf("%+v", spec)
			}
			in, err := r.instances.Get(t.Context(), a.InstanceID)
			if err != nil || in.URL != a.Endpoint.URL || in.SandboxID != a.Info.ID || in.AgentVersion != 3 || in.Card.Str("name") != "Echo" {
				t.Errorf("%+v, %v", in, err)
			}
			// Whoever has only the record, and the key file, reaches it too.
			found, err := r.Endpoint(doc.Of("agent_name", "solver", "a2a_url", a.Endpoint.URL+"/", "sandbox_id", a.Info.ID, "sandbox_type", deploytest.Name, "a2a_card", a.Card))
			if err != nil || found.URL != a.Endpoint.URL || found.Token != a.Endpoint.Token {
				t.Fatalf("%+v, %v", found, err)
			}
			reply, err := r.client.Send(t.Context(), found, agent.Turn{Parts: []*doc.Object{agent.Text("hi")}})
			if err != nil || reply.LastText != "Echo: hi" {
				t.Errorf("%+v, %v", reply, err)
			}
			found.Token = ""
			if _, err = r.client.Send(t.Context(), found, agent.Turn{Parts: []*doc.Object{agent.Text("hi")}}); (err == nil) != (labels == nil) {
				t.Errorf("without a token: %v", err)
			}
			for range 2 {
				if err := r.Close(t.Context(), a); err != nil {
					t.Error(err)
				}
			}
			if live := r.provider.Live(); len(live) != 0 {
				t.Errorf("still there: %v", live)
			}
		})
	}
}

func TestRecordsOfOthers(t *testing.T) {
	t.Parallel()
	r := newRig(t, model{}, nil)
	for name, c := range map[string]struct {
		record *doc.Object
		url    string
		fails  string
	}{
		"a person":   {doc.Of("agent_name", "h", "api_url", "http://people.test/x/", "a2a_url", nil, "sandbox_id", nil), "http://people.test/x", ""},
		"no url":     {doc.Of("agent_name", "h", "api_url", nil), "", "without a URL"},
		"empty card": {doc.Of("agent_name", "h", "a2a_url", "http://a.test", "a2a_card", doc.Of()), "http://a.test", ""},
	} {
		if e, err := r.Endpoint(c.record); e.URL != c.url || (err != nil) != (c.fails != "") || err != nil && !strings.Contains(err.Error(), c.fails) {
			t.Errorf("%s: %+v, %v", name, e, err)
		}
	}
	if _, err := os.Stat(r.keyFile); err == nil {
		t.Error("a key was made that nobody needs")
	}
}

func TestAgentsThatDoNotCome(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		serve  func(r *rig) http.Handler
		kind   fault.Kind
		wants  []string
		hidden string
	}{
		"ended at once": {func(*rig) http.Handler { return nil }, fault.Unavailable, []string{"has ended", "panic: no luck", "key ***"}, "sk-secret"},
		"ends later": {func(r *rig) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				http.Error(w, "not yet", http.StatusServiceUnavailable)
				for _, id := range r.provider.Live() {
					go r.provider.Kill(id)
				}
			})
		}, fault.Unavailable, []string{"has ended", "panic: no luck"}, "sk-secret"},
		"a card that is none": {func(r *rig) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				fmt.Fprint(w, "[]")
				for _, id := range r.provider.Live() {
					go r.provider.Kill(id)
				}
			})
		}, fault.Unavailable, []string{"has ended"}, "sk-secret"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, model{"sk-secret", "https://models.test", ""}, nil)
			r.provider.Output = "my key sk-secret\npanic: no luck"
			r.provider.Serve = func(map[string]string) (http.Handler, func()) { return c.serve(r), nil }
			_, err := r.Deploy(t.Context(), r.request(nil, nil))
			if !fault.Is(err, c.kind) || strings.Contains(err.Error(), c.hidden) {
				t.Fatal(err)
			}
			for _, want := range c.wants {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("no %q in %v", want, err)
				}
			}
			if live := r.provider.Live(); len(live) != 0 {
				t.Errorf("still there: %v", live)
			}
		})
	}
}

func TestCancelWhileWaiting(t *testing.T) {
	t.Parallel()
	r := newRig(t, model{}, nil)
	ctx, cancel := context.WithCancelCause(t.Context())
	why := fault.New(fault.Canceled, "enough")
	r.provider.Serve = func(map[string]string) (http.Handler, func()) {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { cancel(why); http.NotFound(w, nil) }), nil
	}
	if _, err := r.Deploy(ctx, r.request(nil, modelFree())); !fault.Is(err, fault.Canceled) || !strings.Contains(err.Error(), "enough") {
		t.Error(err)
	}
	if live := r.provider.Live(); len(live) != 0 {
		t.Errorf("still there: %v", live)
	}
}

func TestWatchAndLogs(t *testing.T) {
	t.Parallel()
	r := newRig(t, model{"sk-secret", "https://models.test", "team-secret"}, map[string]string{deploy.BearerLabel: "bearer"})
	r.provider.Serve = func(env map[string]string) (http.Handler, func()) {
		r.provider.Output = "sk-secret and team-secret and " + env["AGENTENV_A2A_TOKEN"]
		return serve(t)(env)
	}
	a, err := r.Deploy(t.Context(), r.request(nil, nil))
	if err != nil {
		t.Fatal(err)
	}
	record := doc.Of("agent_name", "solver", "a2a_url", a.Endpoint.URL, "sandbox_id", a.Info.ID, "sandbox_type", deploytest.Name)
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := r.Watch(ctx, record); err != nil {
		t.Errorf("of an agent that lives: %v", err)
	}
	if err := r.Watch(t.Context(), doc.Of("agent_name", "human", "a2a_url", "http://h.test")); err != nil {
		t.Errorf("of a person: %v", err)
	}
	r.provider.Kill(a.Info.ID)
	if err := r.Watch(t.Context(), record); !fault.Is(err, fault.Internal) {
		t.Errorf("of one that died: %v", err)
	}
	if text := r.Logs(t.Context(), doc.Of("agent_name", "human")); text != "" {
		t.Errorf("a person's output: %q", text)
	}
	if text := r.Logs(t.Context(), record); !strings.Contains(text, a.Info.ID) || !strings.HasSuffix(text, "*** and *** and ***") {
		t.Errorf("what it wrote: %q", text)
	}
}

func TestTokens(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "state", "key")
	got := make(chan string, 8)
	for range cap(got) {
		go func() {
			s, err := deploy.NewTokens(file).For("box-1")
			if err != nil {
				t.Error(err)
			}
			got <- s
		}()
	}
	first := <-got
	for range cap(got) - 1 {
		if s := <-got; s != first || len(s) != 64 {
			t.Errorf("%q and %q", first, s)
		}
	}
	if other, _ := deploy.NewTokens(file).For("box-2"); other == first {
		t.Error("two sandboxes have one token")
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	if entries, _ := os.ReadDir(filepath.Dir(file)); len(entries) != 1 {
		t.Errorf("left behind: %v", entries)
	}
	if err := os.WriteFile(file, []byte("short"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := deploy.NewTokens(file).For("box-1"); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), file) {
		t.Error(err)
	}
	if _, err := deploy.NewTokens(filepath.Join(file, "below")).For("box-1"); !fault.Is(err, fault.Unavailable) {
		t.Error(err)
	}
}
