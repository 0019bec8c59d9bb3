package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"agentenv/agent"
	"agentenv/artifact"
	"agentenv/bundle"
	"agentenv/cli"
	"agentenv/config"
	"agentenv/fault"
	"agentenv/sandbox"
	"agentenv/sandbox/docker"
	"agentenv/sandbox/engine"
	"agentenv/sandbox/local"
	"agentenv/steps/agents"
	"agentenv/steps/code"
	"agentenv/steps/files"
	"agentenv/steps/pending"
	"agentenv/steps/review"
	"agentenv/steps/sandboxes"
	"agentenv/steps/verify"
	"agentenv/store/document"
	"agentenv/store/object"
	"agentenv/task"
)

// distribution is the name under which the shipped bundles' ids stand.
const distribution = "agentenv-framework"

// program makes the services of one command.
type program struct {
	dir string // the working folder
}

// load reads the configuration; a broken file shows in what is read of it.
func (p *program) load() *config.Config {
	c := config.Load(os.LookupEnv, p.dir)
	c.Backends(backends())
	c.Providers([]string{local.Name, docker.Name})
	c.SetSecrets(secrets(c))
	return c
}

// open wires everything; nothing is opened or created before its first use.
func (p *program) open(ctx context.Context, log *slog.Logger) (_ *cli.Services, err error) {
	c := p.load()
	s := &cli.Services{StateRoot: c.StateRoot()}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	s.LogDir = filepath.Join(s.StateRoot, "logs")
	s.StateMark = mark(s.StateRoot)
	docs, err := openDocuments(c, log)
	if err != nil {
		return nil, err
	}
	s.Documents = docs
	s.Closers = append(s.Closers, docs.Close)
	objects, parts, err := openObjects(c)
	if err != nil {
		return nil, err
	}
	s.Closers = append(s.Closers, objects.Close)
	if s.Artifacts, err = openArtifacts(c, docs, objects, log); err != nil {
		return nil, err
	}
	machine := &engine.Lazy{Options: engine.Options{Log: log}}
	s.Closers = append(s.Closers, machine.Close)
	if s.Sandboxes, err = openSandboxes(c, s, machine, log); err != nil {
		return nil, err
	}
	s.Closers = append(s.Closers, s.Sandboxes.Close)
	s.Reviews = task.NewReviews(docs, time.Now)
	granted, err := openGrants(c, s, parts, machine, log)
	if err != nil {
		return nil, err
	}
	if s.Catalog, err = catalog(); err != nil {
		return nil, err
	}
	installed := bundle.NewInstalled(s.Catalog)
	deps, err := openAgents(c, s, objects, granted, machine, log)
	if err != nil {
		return nil, err
	}
	deps.Agents = deps.Agents.WithAliases(installed.AgentAliases)
	s.Agents = cli.Agents{Installed: installed, Documents: deps.Agents, Instances: agent.NewInstances(docs), Client: deps.Client, Mover: deps.Mover, Deployer: deps.Deployer}
	if s.Registry, err = registry(s, deps); err != nil {
		return nil, err
	}
	s.Tasks = task.NewTasks(s.Registry, docs, log, time.Now)
	s.Instances = task.NewInstances(docs)
	s.Teardown = teardown{s.Sandboxes, deps.Drain}
	wireRuns(ctx, s, log)
	s.Bundles = bundle.NewRunner(bundle.Deps{Registry: s.Registry, Documents: docs, Artifacts: s.Artifacts, Providers: s.Sandboxes,
		Images: images{machine}, Pin: pin, StateRoot: s.StateRoot, Log: log, Installed: installed, DefaultAgent: func() (string, error) {
			section, err := c.Agents()
			return section.DefaultID, err
		}})
	s.Checks = checks(c, s, machine)
	return s, nil
}

// mark tells things made with one state folder from those of others.
func mark(stateRoot string) string {
	if real, err := filepath.EvalSymlinks(stateRoot); err == nil {
		stateRoot = real
	}
	sum := sha256.Sum256([]byte(stateRoot))
	return hex.EncodeToString(sum[:8])
}

func registry(s *cli.Services, a agents.Deps) (*task.Registry, error) {
	client := &http.Client{}
	return task.NewRegistry(slices.Concat(
		sandboxes.Types(sandboxes.Deps{Sandboxes: s.Sandboxes, Drain: a.Drain}),
		files.Types(files.Deps{Sandboxes: s.Sandboxes, Artifacts: s.Artifacts, HTTP: client}),
		code.Types(code.Deps{Sandboxes: s.Sandboxes, Artifacts: s.Artifacts}),
		verify.Types(verify.Deps{Sandboxes: s.Sandboxes}),
		review.Types(review.Deps{Reviews: s.Reviews}),
		agents.Types(a),
		pending.Types(),
	)...)
}

func openArtifacts(c *config.Config, docs document.Store, objects object.Store, log *slog.Logger) (*artifact.Store, error) {
	section, err := c.Artifacts()
	if err != nil {
		return nil, err
	}
	if len(section.Impls) > 0 {
		return nil, fault.New(fault.Unsupported, "[artifacts] impls: artifact types from outside the program are not supported yet; drop %s", strings.Join(section.Impls, ", ")).WithClass("ConfigError")
	}
	return artifact.New(artifact.Options{Documents: docs, Objects: objects, Prefix: c.ObjectPrefix(), Aliases: section.Aliases, Log: log})
}

func openSandboxes(c *config.Config, s *cli.Services, machine *engine.Lazy, log *slog.Logger) (*sandbox.Manager, error) {
	section, err := c.Sandbox()
	if err != nil {
		return nil, err
	}
	host, err := local.New(local.Options{StateRoot: s.StateRoot, StateMark: s.StateMark, Root: os.Getenv("AGENT_ENV_LOCAL_SANDBOX_DIR"), Engine: machine, Log: log})
	if err != nil {
		return nil, err
	}
	for _, t := range section.Providers {
		if t.Config.Len() > 0 {
			return nil, fault.New(fault.Invalid, "%s: the provider %s takes no settings; drop the keys %s", t.Where, t.Name, strings.Join(t.Config.Keys(), ", ")).WithClass("ConfigError")
		}
	}
	limits, err := c.Limits()
	if err != nil {
		return nil, err
	}
	return sandbox.NewManager(sandbox.Config{
		Later:     []string{"modal", "modal_vm", "e2b", "sail_vm", "smol_vm", "tensorlake", "vercel", "tenki", "boxd", "daytona"},
		Providers: []sandbox.Provider{host, docker.New(docker.Options{StateMark: s.StateMark, Engine: machine})},
		Default:   section.Default, Attribution: section.Attribution, Ledger: sandbox.OpenLedger(filepath.Join(s.StateRoot, "sandboxes.db")), Gate: sandbox.NewGate(limits.MaxSandboxes), Log: log,
	})
}
