package agents_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"agentenv/agent"
	"agentenv/agent/deploy"
	"agentenv/agent/deploy/deploytest"
	"agentenv/agent/objects"
	"agentenv/artifact"
	"agentenv/config"
	"agentenv/sandbox"
	"agentenv/steps/agents"
	"agentenv/store/doc"
	"agentenv/store/document/sqlite"
	"agentenv/store/object"
	"agentenv/store/object/localfs"
	"agentenv/task"
)

// rig has the steps of the package with real stores, and a provider whose containers are this process.
type rig struct {
	t             *testing.T
	reg           *task.Registry
	provider      *deploytest.Provider
	manager       *sandbox.Manager
	artifacts     *artifact.Store
	objects       object.Store
	agents        *agent.Documents
	conversations *agent.Conversations
	image         agent.ArtifactRef
	notes         []string
}

// newRig has these environment variables; a name such as "secret:x" is a secret.
func newRig(t *testing.T, env map[string]string) *rig {
	t.Helper()
	dir := t.TempDir()
	docs, err := sqlite.New(sqlite.Options{Path: filepath.Join(dir, "documents.db")})
	if err != nil {
		t.Fatal(err)
	}
	store, err := localfs.New(filepath.Join(dir, "objects"))
	if err != nil {
		t.Fatal(err)
	}
	artifacts, err := artifact.New(artifact.Options{Documents: docs, Objects: store})
	if err != nil {
		t.Fatal(err)
	}
	img, err := artifacts.PutRef(t.Context(), "image", artifact.RefImage{Ref: "registry.test/a@sha256:" + strings.Repeat("a", 64)})
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, provider: &deploytest.Provider{}, objects: store, agents: agent.NewDocuments(docs, nil, nil), conversations: agent.NewConversations(docs, nil),
		image: agent.ArtifactRef{ID: img.ID(), Version: img.Version()}}
	manager, err := sandbox.NewManager(sandbox.Config{Providers: []sandbox.Provider{r.provider}, Default: deploytest.Name, Ledger: sandbox.OpenLedger(filepath.Join(dir, "ledger.db"))})
	if err != nil {
		t.Fatal(err)
	}
	r.manager, r.artifacts = manager, artifacts
	c := config.Load(func(k string) (string, bool) { v, ok := env[k]; return v, ok }, dir)
	c.SetSecrets(func(name string) (string, bool, error) { v, ok := env["secret:"+name]; return v, ok, nil })
	client := agent.NewClient(agent.Options{})
	deployer := deploy.New(deploy.Options{Sandboxes: manager, Artifacts: artifacts, Instances: agent.NewInstances(docs), Client: client, Images: deploytest.Images{},
		Model: func() (deploy.Model, error) { return c.Model() }, Provider: deploytest.Name, Tokens: deploy.NewTokens(filepath.Join(dir, "tokens.key"))})
	if r.reg, err = task.NewRegistry(agents.Types(agents.Deps{Deployer: deployer, Agents: r.agents, Client: client, Conversations: r.conversations, Objects: store, Config: c,
		Mover: objects.New(objects.Options{Client: client, Store: store})})...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		manager.Close()
		client.Close()
		store.Close()
		docs.Close()
	})
	return r
}

// step parses one step as a person writes it.
func (r *rig) step(text string) *task.Step {
	r.t.Helper()
	tk, err := r.reg.ParseText("t", []byte("["+text+"]"), task.ParseOptions{Strict: true})
	if err != nil {
		r.t.Fatal(err)
	}
	return tk.Steps[0]
}

// run executes one step on a context and returns its view of the run.
func (r *rig) run(ctx context.Context, context *doc.Object, text string) (*task.Run, error) {
	r.t.Helper()
	s := r.step(text)
	run := task.NewRun(s.ID, s.Type, context, nil, func(p task.Progress) { r.notes = append(r.notes, p.Note) })
	run.Instance = "inst-1"
	return run, s.Action.Execute(ctx, run)
}

// deployed is a context with agents at these URLs, by name, each with the card that is served there; metadata is merged in.
func deployed(t *testing.T, metadata *doc.Object, urls map[string]string) *doc.Object {
	t.Helper()
	var list []any
	for name, url := range urls {
		list = append(list, doc.Of("agent_name", name, "api_url", url, "a2a_url", url, "sandbox_id", nil, "sandbox_type", nil, "a2a_card", fetch(t, url+"/.well-known/agent.json"),
			"instance_id", nil, "role", nil, "network_policy", nil, "on_host", false, "installed_container", nil))
	}
	if metadata == nil {
		metadata = doc.Of()
	}
	return task.NewContext().Set("deployed_agents", list).Set("metadata", metadata)
}

func fetch(t *testing.T, url string) *doc.Object {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	o, err := doc.ParseObject(text, doc.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// fake is an agent by the wire alone, which does what its fields say.
type fake struct {
	takes  string   // fields of agent-config, comma-separated; "" = no agent-config
	more   []string // further extensions: "trajectory", "skills"
	answer func(prompt string) (state string, parts []any)

	mu     sync.Mutex
	bodies map[string][]*doc.Object // what came, by path; messages under the method
	tasks  map[string][2]string     // prompt and context by id
}

// text and data are parts of an answer.
func text(s string) any         { return map[string]any{"kind": "text", "text": s} }
func data(m map[string]any) any { return map[string]any{"kind": "data", "data": m} }
func texts(list ...string) []any {
	out := []any{}
	for _, s := range list {
		out = append(out, text(s))
	}
	return out
}

func (f *fake) start(t *testing.T) string {
	t.Helper()
	f.bodies, f.tasks = map[string][]*doc.Object{}, map[string][2]string{}
	s := httptest.NewServer(f)
	t.Cleanup(s.Close)
	return s.URL
}

// got returns the bodies that came to a path, or with a method.
func (f *fake) got(where string) []*doc.Object {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]*doc.Object(nil), f.bodies[where]...)
}

func (f *fake) card() map[string]any {
	var ext []any
	add := func(uri, endpoint string, methods map[string]any) {
		ext = append(ext, map[string]any{"uri": uri, "params": map[string]any{"endpoint": endpoint, "methods": methods}})
	}
	if f.takes != "" {
		add("urn:agentenv:agent-config/v1", "/ext/agent-config", map[string]any{"set": map[string]any{"method": "POST", "request": map[string]any{"supported": strings.Split(f.takes, ",")}}})
	}
	for _, e := range f.more {
		switch e {
		case "trajectory":
			add("urn:agentenv:trajectory/v1", "/ext/trajectory", map[string]any{"get": map[string]any{"method": "POST", "request": map[string]any{"required": []string{"task_id"}}}})
		case "skills":
			add("urn:agentenv:skill-config/v1", "/ext/skill-config", map[string]any{"add": map[string]any{"method": "POST", "request": map[string]any{"required": []string{"name", "description", "skill_md"}}}})
		}
	}
	return map[string]any{"name": "fake", "description": "a fake", "version": "1", "url": "/a2a", "protocolVersion": "0.3.0", "capabilities": map[string]any{"extensions": ext}}
}

func (f *fake) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	reply := func(v any) { _ = json.NewEncoder(w).Encode(v) }
	if q.Method == http.MethodGet {
		reply(f.card())
		return
	}
	raw, _ := io.ReadAll(q.Body)
	body, err := doc.ParseObject(raw, doc.Options{})
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	where := strings.TrimPrefix(q.URL.Path, "/instance/inst-1")
	if where == "/a2a" {
		where = body.Str("method")
	}
	f.bodies[where] = append(f.bodies[where], body)
	params := body.Obj("params")
	switch where {
	case "message/send":
		m := params.Obj("message")
		prompt := ""
		for _, p := range m.Arr("parts") {
			prompt += p.(*doc.Object).Str("text")
		}
		id := fmt.Sprintf("task-%d", len(f.tasks)+1)
		f.tasks[id] = [2]string{prompt, m.Str("contextId")}
		reply(f.task(body, id, "submitted", nil))
	case "tasks/get":
		state, parts := f.answer(f.tasks[params.Str("id")][0])
		reply(f.task(body, params.Str("id"), state, parts))
	case "tasks/cancel":
		reply(f.task(body, params.Str("id"), "canceled", nil))
	case "/ext/trajectory":
		reply(map[string]any{"trajectory": []any{map[string]any{"of": body.Str("task_id")}}})
	default:
		reply(map[string]any{"status": "updated", "name": body.Str("name")})
	}
}

func (f *fake) task(body *doc.Object, id, state string, parts []any) any {
	status := map[string]any{"state": state}
	if parts != nil {
		status["message"] = map[string]any{"kind": "message", "messageId": "m-" + id, "role": "agent", "parts": parts}
	}
	return map[string]any{"jsonrpc": "2.0", "id": body.Str("id"), "result": map[string]any{"kind": "task", "id": id, "contextId": f.tasks[id][1], "status": status}}
}
