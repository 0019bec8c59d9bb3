package agents

import (
	"context"
	"fmt"
	"strings"

	"agentenv/agent/objects"
	"agentenv/fault"
	"agentenv/protocol/card"
)

// trajectories returns the URL below which this step's trajectories go, "" when they are not kept: a prefix that is in another store than the
// configured one is warned about, and costs no prompt.
func (t *talk) trajectories() (string, error) {
	if given := strings.TrimRight(t.fields.Str("trajectory_output_prefix"), "/"); given != "" {
		if !t.deps.Objects.Owns(given) {
			warn(t.r, fmt.Sprintf("prompt_agent %q: no trajectory is kept: trajectory_output_prefix %q is no URL of the object store; drop it, or give one below %s", t.r.StepID, given, t.base()))
			return "", nil
		}
		return given, nil
	}
	url, err := t.deps.Objects.URL(t.deps.key("prompt_agent_trajectories/prompt_id=" + t.promptAgent.id))
	return url, fault.At(err, "prompt_id %q", t.promptAgent.id)
}

// base is where trajectories lie unless a step says otherwise.
func (t *talk) base() string {
	url, err := t.deps.Objects.URL(t.deps.key("prompt_agent_trajectories/"))
	if err != nil {
		return "the configured object store"
	}
	return url
}

// keepTrajectory stores a turn's trajectory and returns its URL, "" when there is none: a turn does not fail for it.
func (t *talk) keepTrajectory(ctx context.Context, taskID, messageID string) string {
	if taskID == "" || t.prefix == "" || t.agent.Card.Extension(card.Trajectory) == nil {
		return ""
	}
	url, err := t.storeTrajectory(ctx, taskID, messageID)
	if err != nil {
		warn(t.r, "no trajectory of the task "+taskID+" was kept: "+t.hide(err.Error()))
	}
	return url
}

func (t *talk) storeTrajectory(ctx context.Context, taskID, messageID string) (string, error) {
	ctx, stop := context.WithTimeout(ctx, trajectoryLimit)
	defer stop()
	url, err := t.deps.Mover.FetchTrajectory(ctx, t.agent, objects.Of{TaskID: taskID}, t.prefix+"/"+trajectoryName(messageID))
	if err != nil {
		return "", err
	}
	return url, t.hidden.object(ctx, t.deps.Objects, url, "application/json")
}
