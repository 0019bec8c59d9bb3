package agents

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"agentenv/fault"
	"agentenv/store/doc"
)

// The ways a snapshot can go, as they are recorded.
const (
	snapshotWhole   = "ok"
	snapshotPartial = "partial" // a state, and no trajectory
	snapshotFailed  = "failed"  // no state
	snapshotSkipped = "skipped" // not begun, or given up for the step that was cancelled
)

// capture is one snapshot of a series and what came of it.
type capture struct {
	turn       int64 // that it follows; 0 = none
	final      bool
	at         time.Time // when it began
	state      *keptState
	trajectory string // object URL
	status     string
	reasons    []string
	err        error // why there is no state
}

// capture takes a snapshot, within the plan's limit and no longer than the agent lives. What cannot be kept is said in it.
func (s *series) capture(ctx context.Context, turn int64, final bool) capture {
	c := capture{turn: turn, final: final, at: time.Now()}
	limited, stop := context.WithTimeoutCause(ctx, s.plan.limit, fault.New(fault.Timeout, "the agent %q did not write its state within %s", s.t.promptAgent.agent, s.plan.limit))
	defer stop()
	var missing string
	gone := s.t.whileAlive(limited, func(ctx context.Context) error {
		if c.state, c.err = s.t.deps.keepState(ctx, s.t.agent, s.artifact, s.t.context); c.err != nil {
			return c.err
		}
		c.trajectory, missing = s.t.trajectorySoFar(ctx)
		return nil
	})
	if gone != nil {
		c.err = gone
	}
	switch {
	case c.err == nil && missing == "":
	case ctx.Err() != nil:
		missing, c.err = "cancelled", nil
	case limited.Err() != nil:
		missing = "capture_timeout_" + strconv.FormatFloat(s.plan.limit.Seconds(), 'f', -1, 64) + "s"
		if c.err != nil {
			c.err = context.Cause(limited)
		}
	case c.err != nil:
		missing = fault.ClassOf(c.err) + ": " + cut(c.err.Error(), quoted)
	}
	if missing != "" {
		c.reasons = append(c.reasons, missing)
	}
	if c.state != nil && c.trajectory == "" && final {
		if c.trajectory = s.t.lastTrajectory(); c.trajectory == "" {
			c.reasons = append(c.reasons, "trajectory_missing")
		}
	}
	switch {
	case len(c.reasons) == 0:
		c.status = snapshotWhole
	case c.state != nil:
		c.status = snapshotPartial
	case c.err != nil:
		c.status = snapshotFailed
	default:
		c.status = snapshotSkipped
	}
	return c
}

// lastTrajectory is what the last turn that has a trajectory left of it.
func (t *talk) lastTrajectory() (url string) {
	for _, one := range t.turns {
		if one.trajectory != "" {
			url = one.trajectory
		}
	}
	return url
}

// record notes a snapshot. The lock must be held while others may be taken.
func (s *series) record(c capture) {
	row := doc.Of()
	if c.turn > 0 {
		row.Set("turn", doc.Int(c.turn))
	}
	if c.state != nil {
		row.Set("id", c.state.id).Set("version", doc.Int(c.state.version)).Set("bundle_object_url", c.state.at)
	}
	row.Set("source_agent_name", s.t.promptAgent.agent).Set("source_context_id", s.t.context).Set("elapsed_s", doc.Int(int64(c.at.Sub(s.began).Seconds()))).
		Set("captured_at_utc", c.at.UTC().Format("2006-01-02T15:04:05.000000-07:00")).Set("is_final", c.final).Set("capture_status", c.status)
	if len(c.reasons) > 0 {
		row.Set("capture_reason", strings.Join(c.reasons, "; "))
	}
	if c.trajectory != "" {
		row.Set("trajectory_s3_uri", c.trajectory).Set("trajectory_object_url", c.trajectory)
	}
	s.rows = append(s.rows, s.t.hidden.value(row).(*doc.Object))
	s.t.r.Log.Info("a snapshot of the agent", "agent", s.t.promptAgent.agent, "status", c.status, "reason", row.Str("capture_reason"))
	if c.err != nil && !c.final && s.lost == nil {
		s.lost = c.err
	}
}

// failure is the error of a step whose agent did its work and whose last snapshot has no state. An agent that was deployed and does not write it
// has failed itself.
func (s *series) failure(ctx context.Context, c capture) error {
	err := c.err
	if err == nil {
		err = fault.New(fault.Timeout, "the snapshot before it did not end within %s", s.plan.limit+seriesGrace)
	}
	err = s.t.deps.blame(ctx, s.t.record, err, true)
	return &fault.Error{Kind: fault.KindOf(err), Class: "RuntimeError", Msg: s.t.hide(fmt.Sprintf("prompt_agent %q: the agent answered, but its state at the end is not kept: %v", s.t.r.StepID, err))}
}
