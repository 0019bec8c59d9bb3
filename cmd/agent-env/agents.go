package main

import (
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"agentenv/agent"
	"agentenv/agent/deploy"
	"agentenv/agent/objects"
	"agentenv/cli"
	"agentenv/config"
	"agentenv/sandbox/engine"
	"agentenv/steps/agents"
	"agentenv/store/object"
)

// tokenKey is the file in the state folder from which agents' tokens are derived.
const tokenKey = "agent-tokens.key"

// openAgents makes what the steps on agents act with.
func openAgents(c *config.Config, s *cli.Services, store object.Store, granted granting, machine *engine.Lazy, log *slog.Logger) (agents.Deps, error) {
	section, err := c.Sandbox()
	if err != nil {
		return agents.Deps{}, err
	}
	client := agent.NewClient(agent.Options{Log: log})
	s.Closers = append(s.Closers, func() error { client.Close(); return nil })
	mover := objects.New(objects.Options{Client: client, Store: store, Grants: granted.stores, Near: near(s), Log: log})
	s.Closers = append(s.Closers, func() error { mover.Close(); return nil })
	deployer := deploy.New(deploy.Options{
		Sandboxes: s.Sandboxes, Artifacts: s.Artifacts, Instances: agent.NewInstances(s.Documents), Client: client,
		Images:   &deploy.EngineImages{Engine: machine, Artifacts: s.Artifacts, StateRoot: s.StateRoot},
		Model:    func() (deploy.Model, error) { return c.Model() },
		Provider: section.AgentDefault, Tokens: deploy.NewTokens(filepath.Join(s.StateRoot, tokenKey)), Trust: granted.trust, Log: log,
		DockerImage: os.Getenv("AGENT_ENV_AGENT_DOCKER_IMAGE"),
	})
	return agents.Deps{Deployer: deployer, Agents: agent.NewDocuments(s.Documents, time.Now, log), Artifacts: s.Artifacts, Client: client,
		Conversations: agent.NewConversations(s.Documents, time.Now), Mover: mover, Objects: store, Prefix: c.ObjectPrefix(), Config: c, Provider: section.AgentDefault}, nil
}
