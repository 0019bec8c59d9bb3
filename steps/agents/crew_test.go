package agents_test

import (
	"context"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	"agentenv/agent"
	"agentenv/agent/deploy"
	"agentenv/agent/deploy/deploytest"
	"agentenv/agent/objects"
	"agentenv/artifact"
	"agentenv/config"
	"agentenv/protocol/a2a"
	"agentenv/sandbox"
	"agentenv/sandbox/engine"
	"agentenv/sandbox/local"
	"agentenv/steps/agents"
	"agentenv/store/doc"
	"agentenv/store/document/sqlite"
	"agentenv/store/object/localfs"
	"agentenv/task"
)

// crew is a rig for agents that run already: kit agents that this process serves, and this machine as a sandbox.
type crew struct {
	*rig
	artifacts *artifact.Store
	instances *agent.Instances
	sandboxes *sandbox.Manager
	tokens    deploy.Tokens
	images    deploytest.Images
	deps      agents.Deps
}

func newCrew(t *testing.T, env map[string]string) *crew {
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
	machine := &engine.Lazy{}
	host, err := local.New(local.Options{StateRoot: filepath.Join(dir, "state"), Root: filepath.Join(dir, "sandboxes"), Engine: machine})
	if err != nil {
		t.Fatal(err)
	}
	c := &crew{artifacts: artifacts, instances: agent.NewInstances(docs), tokens: deploy.NewTokens(filepath.Join(dir, "tokens.key")), images: deploytest.Images{},
		rig: &rig{t: t, provider: &deploytest.Provider{}, objects: store, agents: agent.NewDocuments(docs, nil, nil), conversations: agent.NewConversations(docs, nil)}}
	c.sandboxes, err = sandbox.NewManager(sandbox.Config{Providers: []sandbox.Provider{host, c.provider}, Default: local.Name, Ledger: sandbox.OpenLedger(filepath.Join(dir, "ledger.db"))})
	if err != nil {
		t.Fatal(err)
	}
	settings := config.Load(func(k string) (string, bool) { v, ok := env[k]; return v, ok }, dir)
	client := agent.NewClient(agent.Options{})
	deployer := deploy.New(deploy.Options{Sandboxes: c.sandboxes, Artifacts: artifacts, Instances: c.instances, Client: client, Images: c.images,
		Model: func() (deploy.Model, error) { return settings.Model() }, Tokens: c.tokens, Trust: func() ([]byte, error) { return []byte("PEM\n"), nil }})
	mover := objects.New(objects.Options{Client: client, Store: store, Near: func(kind string) bool { return kind == "here" || kind == deploytest.Name }})
	c.deps = agents.Deps{Deployer: deployer, Agents: c.agents, Artifacts: artifacts, Client: client, Mover: mover, Conversations: c.conversations, Objects: store, Prefix: "team", Config: settings}
	c.reg, err = task.NewRegistry(agents.Types(c.deps)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.sandboxes.Close()
		machine.Close()
		mover.Close()
		client.Close()
		store.Close()
		docs.Close()
	})
	return c
}

// serveKit serves an agent of the kit, which asks for the token unless that is "", and returns its URL.
func serveKit(t *testing.T, a a2a.Agent, token string) string {
	t.Helper()
	s, err := a2a.New(context.WithoutCancel(t.Context()), a, a2a.Settings{Token: token, StagingMaxBytes: -1})
	if err != nil {
		t.Fatal(err)
	}
	h := httptest.NewServer(s.Handler())
	t.Cleanup(func() {
		ctx, stop := context.WithTimeout(context.WithoutCancel(t.Context()), 30*time.Second)
		defer stop()
		if err := s.Close(ctx); err != nil {
			t.Error(err)
		}
		h.CloseClientConnections()
		h.Close()
	})
	return h.URL
}

// record returns the record of a deployed agent, to be changed by the test.
func record(context *doc.Object, name string) *doc.Object {
	for _, v := range context.Arr("deployed_agents") {
		if o := v.(*doc.Object); o.Str("agent_name") == name {
			return o
		}
	}
	return nil
}
