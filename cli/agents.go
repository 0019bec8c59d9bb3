package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"agentenv/agent"
	"agentenv/agent/deploy"
	"agentenv/agent/objects"
	"agentenv/artifact"
	"agentenv/bundle"
	"agentenv/fault"
	"agentenv/sandbox"
	"agentenv/store/doc"
)

// Agents is what the commands on agents work with.
type Agents struct {
	Installed *bundle.Installed
	Documents *agent.Documents // also by the aliases of what is installed
	Instances *agent.Instances
	Client    *agent.Client
	Mover     *objects.Mover // hands skills to agents
	Deployer  *deploy.Deployer
}

// ShippedAgent is an agent in the program.
type ShippedAgent struct {
	Name, Summary string
	Serve         func(ctx context.Context) error // until ctx ends
}

func (a *App) agentCommand() *cobra.Command {
	return newGroup("a2a-agent", "Agents: servers that speak A2A, deployed in sandboxes",
		a.agentPut(), a.agentGet(), a.agentList(), a.agentDeploy(), a.agentUndeploy(), a.agentInstance(), a.agentSkill(), a.agentValidate(), a.agentServe())
}

// pairs reads KEY=VALUE flags; a key twice is an error.
func pairs(flag string, list []string) (*doc.Object, error) {
	o := doc.Of()
	for _, s := range list {
		k, v, ok := strings.Cut(s, "=")
		switch _, twice := o.Get(k); {
		case !ok || k == "":
			return nil, fault.New(fault.Invalid, "--%s takes KEY=VALUE", flag)
		case twice:
			return nil, fault.New(fault.Invalid, "--%s gives %s twice", flag, k)
		}
		o.Set(k, v)
	}
	return o, nil
}

func (a *App) agentGet() *cobra.Command {
	var id string
	var version int64
	cmd := a.command("get", "Show a stored agent as JSON", func(ctx context.Context, s *Services) error {
		found, err := a.findAgent(ctx, s, id, version)
		if err != nil {
			return err
		}
		return a.printDocument(found.Document)
	})
	agentID(cmd, &id)
	cmd.Flags().Int64Var(&version, "version", 0, "version (the latest when not given)")
	return cmd
}

// findAgent reads an agent by its id or an alias; which one an alias stands for is told beside the output.
func (a *App) findAgent(ctx context.Context, s *Services, id string, version int64) (*agent.Agent, error) {
	if version < 0 {
		return nil, fault.New(fault.Invalid, "--version must be at least 1, not %d", version)
	}
	found, alias, err := s.Agents.Documents.Find(ctx, id, version)
	if err == nil && alias.ID != "" {
		fmt.Fprintln(a.Stderr, alias.Note())
	}
	return found, err
}

func agentID(cmd *cobra.Command, id *string) {
	cmd.Flags().StringVar(id, "id", "", "id of the agent (required)")
	_ = cmd.MarkFlagRequired("id")
}

func (a *App) printDocument(o *doc.Object) error {
	text, err := doc.MarshalIndent(o)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(a.Stdout, string(text))
	return err
}

// minuteUTC is how times are written that are told to the minute.
const minuteUTC = "2006-01-02 15:04 UTC"

// printAgentInstance writes what scripts read of a deployed agent.
func (a *App) printAgentInstance(in agent.Instance) error {
	_, err := fmt.Fprintf(a.Stdout, "Instance ID: %s\nAgent ID: %s\nAgent Version: %d\nA2A URL: %s\nSandbox ID: %s\nAgent Card: %s\nCreated At (UTC): %s\nExpires At (UTC): %s\n",
		in.InstanceID, in.AgentID, in.AgentVersion, in.URL, in.SandboxID, lineOf(in.Card.Str("name")), in.CreatedAt.UTC().Format(minuteUTC), in.ExpiresAt.UTC().Format(minuteUTC))
	return err
}

func (a *App) agentInstance() *cobra.Command {
	var id string
	var asJSON bool
	cmd := a.command("get-instance", "Show a deployed agent", func(ctx context.Context, s *Services) error {
		in, err := s.Agents.Instances.Get(ctx, id)
		if err != nil {
			return err
		}
		if asJSON {
			return a.printDocument(in.Document())
		}
		return a.printAgentInstance(in)
	})
	cmd.Flags().StringVar(&id, "id", "", "id of the instance (required)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	_ = cmd.MarkFlagRequired("id")
	return cmd
}

const (
	minAgentTTL     = 60
	maxAgentTTL     = 14 * 24 * 3600
	defaultAgentTTL = 7200
)

func (a *App) agentDeploy() *cobra.Command {
	var id, provider string
	var version int64
	var env []string
	var ttl int
	cmd := a.command("deploy", "Deploy an agent in a sandbox that lives on after the command, until its time is over", func(ctx context.Context, s *Services) error {
		if provider != "" {
			if _, err := s.Sandboxes.Resolve(provider); err != nil {
				return fault.At(err, "--sandbox")
			}
		}
		vars, err := pairs("env-var", env)
		if err != nil {
			return err
		}
		if ttl < minAgentTTL || ttl > maxAgentTTL {
			return fault.New(fault.Invalid, "--ttl-seconds must be between %d and %d, not %d", minAgentTTL, maxAgentTTL, ttl)
		}
		found, err := a.findAgent(ctx, s, id, version)
		if err != nil {
			return err
		}
		given := map[string]string{}
		for _, k := range vars.Keys() {
			given[k] = vars.Str(k)
		}
		live, err := s.Agents.Deployer.Deploy(ctx, deploy.Request{Agent: found, Name: id, Env: given, TTL: time.Duration(ttl) * time.Second, Provider: provider,
			NoToken: true, Progress: func(line string) { fmt.Fprintln(a.Stderr, line) }})
		if err != nil {
			return err
		}
		if err := s.Sandboxes.Release(ctx, live.Info.ID); err != nil {
			return errors.Join(err, s.Agents.Deployer.Close(ctx, live))
		}
		fmt.Fprintf(a.Stdout, "Instance ID: %s\nA2A URL: %s\nSandbox ID: %s\nAgent Card: %s\nExpires At (UTC): %s\n", live.InstanceID, live.Endpoint.URL, live.Info.ID, lineOf(live.Card.Str("name")),
			time.Now().Add(time.Duration(ttl)*time.Second).UTC().Format(minuteUTC))
		fmt.Fprintf(a.Stderr, "Messages go to %s. `agent-env a2a-agent undeploy --instance-id %s` ends it; once it has expired `agent-env sandbox prune` removes it.\n", live.Endpoint.RPC(), live.InstanceID)
		return nil
	})
	agentID(cmd, &id)
	cmd.Flags().Int64Var(&version, "version", 0, "version (the latest when not given)")
	cmd.Flags().StringArrayVar(&env, "env-var", nil, "variable of the agent's container, KEY=VALUE; repeatable")
	cmd.Flags().IntVar(&ttl, "ttl-seconds", defaultAgentTTL, "how long the sandbox lives")
	cmd.Flags().StringVar(&provider, "sandbox", "", "sandbox provider")
	return cmd
}

func (a *App) agentUndeploy() *cobra.Command {
	var id string
	cmd := a.command("undeploy", "End a deployed agent with its sandbox, or without the sandbox where that is not its own", func(ctx context.Context, s *Services) error {
		in, err := s.Agents.Instances.Get(ctx, id)
		if err != nil {
			return err
		}
		if in.SandboxID == "" {
			return fault.New(fault.Invalid, "%s has no sandbox of its own", id)
		}
		ends := in.SandboxID
		beside, err := s.Sandboxes.Beside(ctx, ends)
		if err != nil {
			return err
		}
		if beside { // the sandbox is not the agent's own
			ends = sandbox.BesideID(ends)
		}
		if err := s.Sandboxes.Terminate(ctx, sandbox.Record{Name: id, ID: ends, Type: in.SandboxType, Mode: sandbox.Container}); err != nil {
			return err
		}
		fmt.Fprintf(a.Stdout, "Ended %s (%s)\n", ends, id)
		return nil
	})
	cmd.Flags().StringVar(&id, "instance-id", "", "id of the deployed agent (required)")
	_ = cmd.MarkFlagRequired("instance-id")
	return cmd
}

func (a *App) agentSkill() *cobra.Command {
	var id, artifactID, file, url string
	var version int64
	cmd := a.command("add-skill", "Give a deployed agent a skill", func(ctx context.Context, s *Services) error {
		given := 0
		for _, v := range []string{artifactID, file, url} {
			if v != "" {
				given++
			}
		}
		if given != 1 {
			return fault.New(fault.Invalid, "name the skill by exactly one of --skill-artifact-id, --skill-md-path and --skill-object-url")
		}
		in, err := s.Agents.Instances.Get(ctx, id)
		if err != nil {
			return err
		}
		skill, err := a.skill(ctx, s, artifact.Ref{ID: artifactID, Version: version}, file, url)
		if err != nil {
			return err
		}
		e, err := s.Agents.Deployer.Endpoint(doc.Of("agent_name", in.InstanceID, "a2a_url", in.URL, "sandbox_id", in.SandboxID, "sandbox_type", in.SandboxType, "a2a_card", in.Card))
		if err != nil {
			return err
		}
		if err := s.Agents.Mover.CanAddSkill(e, skill); err != nil {
			return fault.At(err, "the skill %q for %s", skill.Name, id)
		}
		if err := s.Agents.Mover.AddSkill(ctx, e, skill); err != nil {
			return err
		}
		fmt.Fprintf(a.Stdout, "Added skill %s to %s\n", skill.Name, id)
		return nil
	})
	cmd.Flags().StringVar(&id, "instance-id", "", "id of the deployed agent (required)")
	_ = cmd.MarkFlagRequired("instance-id")
	cmd.Flags().StringVar(&artifactID, "skill-artifact-id", "", "a skill artifact")
	cmd.Flags().Int64Var(&version, "skill-artifact-version", 0, "its version (the latest when not given)")
	cmd.Flags().StringVar(&file, "skill-md-path", "", "a SKILL.md on this machine")
	cmd.Flags().StringVar(&url, "skill-object-url", "", "an object URL of a skill's folder")
	return cmd
}

func (a *App) agentValidate() *cobra.Command {
	var id, key, provider string
	var version int64
	cmd := a.command("validate", "Check an agent against the protocol", func(context.Context, *Services) error {
		return fault.New(fault.Unsupported, "validate deploys the agent beside a mail environment, which this version cannot run yet; try the agent with `agent-env a2a-agent deploy` and a task that prompts it")
	})
	agentID(cmd, &id)
	cmd.Flags().Int64Var(&version, "version", 0, "version (the latest when not given)")
	cmd.Flags().StringVar(&key, "litellm-api-key", "", "model key")
	cmd.Flags().StringVar(&provider, "sandbox", "", "sandbox provider")
	return cmd
}

func (a *App) agentServe() *cobra.Command {
	var names []string
	for _, s := range a.Shipped {
		names = append(names, s.Name)
	}
	cmd := &cobra.Command{Use: "serve NAME", Short: "Be one of the shipped agents (echo, model, proxy)", Args: cobra.ExactArgs(1),
		Long: "Serves a shipped agent on A2A_HOST:A2A_PORT (0.0.0.0:8000) until a signal. It is what the images of the shipped bundles run; use it to try an agent without a sandbox.",
		RunE: func(cmd *cobra.Command, args []string) error {
			i := slices.IndexFunc(a.Shipped, func(s ShippedAgent) bool { return s.Name == args[0] })
			if i < 0 {
				return fault.New(fault.NotFound, "no agent %q ships with this program; there are: %s", args[0], strings.Join(names, ", "))
			}
			sig, stop := watchSignals()
			defer stop()
			return sig.during(cmd.Context(), a.Shipped[i].Serve)
		}}
	return cmd
}

// parseMetadata reads metadata flags: a value that is JSON counts as that, any other as text.
func parseMetadata(list []string) (*doc.Object, error) {
	o, err := pairs("metadata", list)
	if err != nil {
		return nil, err
	}
	for _, k := range o.Keys() {
		if v, err := doc.Parse([]byte(o.Str(k)), doc.Options{}); err == nil && json.Valid([]byte(o.Str(k))) {
			o.Set(k, v)
		}
	}
	if v, given := o.Get("takes_credentials"); given {
		if _, ok := v.(bool); !ok {
			return nil, fault.New(fault.Invalid, "--metadata takes_credentials must be true or false")
		}
	}
	if v, given := o.Get("min_disk_size_gb"); given {
		if n, ok := v.(doc.Number); !ok || n.Float64() <= 0 {
			return nil, fault.New(fault.Invalid, "--metadata min_disk_size_gb must be a number greater than 0")
		}
	}
	return o, nil
}

func readSmall(file string, most int64) ([]byte, error) {
	info, err := os.Stat(file)
	if err != nil {
		return nil, fault.Wrap(fault.KindOf(err), err, "%s", file)
	}
	if !info.Mode().IsRegular() || info.Size() > most {
		return nil, fault.New(fault.Invalid, "%s is no file of at most %d bytes", file, most)
	}
	return os.ReadFile(file)
}
