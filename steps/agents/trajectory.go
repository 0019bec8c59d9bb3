package agents

import (
	"bytes"
	"context"
	"strings"

	"agentenv/agent"
	"agentenv/fault"
	"agentenv/protocol/card"
	"agentenv/store/doc"
	"agentenv/store/object"
)

// trajectories returns the URL below which this step's trajectories go. A prefix that is no URL of the object store is Invalid.
func (t *talk) trajectories() (string, error) {
	if given := strings.TrimRight(t.fields.Str("trajectory_output_prefix"), "/"); given != "" {
		if !t.deps.Objects.Owns(given) {
			return "", fault.New(fault.Invalid, "trajectory_output_prefix %q is no URL of the object store; drop it, or give one below %s", given, t.base())
		}
		return given, nil
	}
	url, err := t.deps.Objects.URL(t.key("prompt_agent_trajectories/prompt_id=" + t.promptAgent.id))
	return url, fault.At(err, "prompt_id %q", t.promptAgent.id)
}

func (t *talk) key(s string) string {
	if t.deps.Prefix == "" {
		return s
	}
	return strings.TrimRight(t.deps.Prefix, "/") + "/" + s
}

// base is where trajectories lie unless a step says otherwise.
func (t *talk) base() string {
	url, err := t.deps.Objects.URL(t.key("prompt_agent_trajectories/"))
	if err != nil {
		return "the configured object store"
	}
	return url
}

// keepTrajectory stores a turn's trajectory and returns its URL, "" when there is none: a turn does not fail for it.
func (t *talk) keepTrajectory(ctx context.Context, taskID, messageID string) string {
	if taskID == "" || t.agent.Card.Extension(card.Trajectory) == nil {
		return ""
	}
	url, err := t.storeTrajectory(ctx, taskID, messageID)
	if err != nil {
		warn(t.r, "no trajectory of the task "+taskID+" was kept: "+err.Error())
	}
	return url
}

func (t *talk) storeTrajectory(ctx context.Context, taskID, messageID string) (string, error) {
	answer, err := t.deps.Client.Call(ctx, t.agent, agent.Call{URI: card.Trajectory, Op: "get", Body: doc.Of("task_id", taskID), Timeout: trajectoryLimit})
	if err != nil {
		return "", err
	}
	events, ok := answer.Value("trajectory").([]any)
	if !ok {
		return "", fault.New(fault.Unavailable, "the agent's answer holds no list under trajectory")
	}
	body, err := doc.MarshalIndent(events)
	if err != nil {
		return "", err
	}
	key, err := t.deps.Objects.Key(t.prefix + "/" + trajectoryName(messageID))
	if err != nil {
		return "", err
	}
	w, err := t.deps.Objects.Put(ctx, object.Item{Key: key, ContentType: "application/json", Size: int64(len(body)), Body: bytes.NewReader(body)}, false)
	return w.URL, err
}
