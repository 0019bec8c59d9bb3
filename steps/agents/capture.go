package agents

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"agentenv/agent"
	"agentenv/agent/objects"
	"agentenv/artifact"
	"agentenv/fault"
	"agentenv/protocol/card"
	"agentenv/store"
)

// keptState is an agent's state of one conversation, as an artifact.
type keptState struct {
	id      string
	version int64
	at      string // object URL below which it is
}

// keepState has an agent write its state of a conversation, and stores that as the next version of the artifact.
func (d Deps) keepState(ctx context.Context, e agent.Endpoint, id, conversation string) (*keptState, error) {
	version, err := d.Artifacts.NextVersion(ctx, id)
	if err != nil {
		return nil, err
	}
	at, err := d.Objects.URL(d.key(fmt.Sprintf("agent_snapshots/%s/%d-%s/", store.KeySegment(id), version, artifact.RandomHex(4))))
	if err != nil {
		return nil, err
	}
	if _, err := d.Mover.SaveSnapshot(ctx, e, conversation, objects.Snapshot{Trajectory: at + "trajectory", Workspace: at + "workspace"}); err != nil {
		return nil, err
	}
	kept, err := d.Artifacts.PutExisting(ctx, id, at)
	if err != nil {
		return nil, err
	}
	return &keptState{kept.ID(), kept.Version(), at}, nil
}

// stateID names the artifact of what a step keeps and gives no name.
func stateID(instance, step, suffix string) string {
	if instance == "" {
		instance = "adhoc-" + artifact.RandomHex(6)
	}
	return store.DerivedID(instance, step+suffix)
}

// trajectorySoFar stores what the agent has done in the conversation up to now, and returns its URL, or the reason why there is none.
func (t *talk) trajectorySoFar(ctx context.Context) (url, reason string) {
	offered := t.agent.Card.Extension(card.Trajectory)
	op := offered.Operation("get")
	switch {
	case t.prefix == "":
		return "", "trajectory_grant_unavailable"
	case offered == nil:
		return "", "trajectory_ext_unavailable"
	case !op.Listed:
		return "", "trajectory_get_unadvertised"
	case op.Request != nil && !op.Request.Accepts("context_id") && !op.Request.Accepts("context_id", "objects"):
		return "", "trajectory_context_unsupported"
	}
	url, err := t.deps.Mover.FetchTrajectory(ctx, t.agent, objects.Of{ContextID: t.context}, t.prefix+"/"+trajectoryName(artifact.RandomHex(6)))
	if err != nil {
		t.r.Log.Warn("no trajectory goes with a snapshot", "error", t.hide(err.Error()))
		return "", whyNoTrajectory(err)
	}
	empty, err := t.deps.emptyArray(ctx, url)
	switch {
	case err != nil:
		return "", "trajectory_read_failed"
	case empty:
		return "", "trajectory_empty"
	case t.hidden.object(ctx, t.deps.Objects, url, "application/json") != nil:
		return "", "trajectory_upload_failed"
	}
	return url, ""
}

// whyNoTrajectory names what went wrong as readers of stored runs know it.
func whyNoTrajectory(err error) string {
	var answered *agent.CallError
	var unstored *objects.StoreError
	switch {
	case errors.As(err, &unstored):
		return "trajectory_upload_failed"
	case errors.As(err, &answered) && answered.Status == http.StatusNotFound:
		return "trajectory_session_missing"
	case answered != nil && answered.Status >= 300:
		return fmt.Sprintf("trajectory_http_%d", answered.Status)
	case answered == nil && fault.Is(err, fault.Unsupported):
		return "trajectory_grant_unavailable"
	}
	return "trajectory_read_failed"
}

// emptyArray reports whether a stored JSON array has no elements.
func (d Deps) emptyArray(ctx context.Context, url string) (bool, error) {
	body, err := d.Objects.Open(ctx, url)
	if err != nil {
		return false, err
	}
	defer body.Close()
	start, err := io.ReadAll(io.LimitReader(body, 64))
	return strings.HasPrefix(strings.Join(strings.Fields(string(start)), ""), "[]"), err
}
