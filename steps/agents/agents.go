// Package agents holds the steps that deploy A2A agents and prompt them.
package agents

import (
	"time"

	"agentenv/agent"
	"agentenv/agent/deploy"
	"agentenv/agent/objects"
	"agentenv/artifact"
	"agentenv/config"
	"agentenv/store/doc"
	"agentenv/store/object"
	"agentenv/task"
)

// Deps is what these steps act with.
type Deps struct {
	Deployer      *deploy.Deployer
	Agents        *agent.Documents
	Artifacts     *artifact.Store
	Client        *agent.Client
	Mover         *objects.Mover // moves objects to and from agents
	Conversations *agent.Conversations
	Objects       object.Store // keeps trajectories
	Prefix        string       // of object keys; "" or a path
	Config        *config.Config
	Provider      string // provider spec of agents whose step and run name none
}

// Types returns the step types of this package.
func Types(d Deps) []*task.StepType {
	return []*task.StepType{deployType(d), humanType(d), promptType(d), peerType(d), triggersType(d), skillsType(d), installType(d), snapshotType(d)}
}

const (
	defaultAgent = "default-agent"
	defaultHuman = "human_agent"
)

// Time limits of single requests.
const (
	configLimit     = 60 * time.Second
	skillLimit      = 120 * time.Second
	trajectoryLimit = 600 * time.Second
)

func textOrNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// positive returns a number greater than 0, or 0 for none.
func positive(v any) float64 {
	n, ok := v.(doc.Number)
	if !ok || !n.Finite() || n.Float64() <= 0 {
		return 0
	}
	return n.Float64()
}

// seconds returns a number of seconds as a duration, at most a hundred years; 0 for what is no number greater than 0.
func seconds(v any) time.Duration {
	const most = 100 * 365 * 24 * 3600
	return time.Duration(min(positive(v), most) * float64(time.Second))
}

// text returns a string of a run's overrides, "" for anything else.
func text(v any) string {
	s, _ := v.(string)
	return s
}
