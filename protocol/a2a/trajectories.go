package a2a

import (
	"context"

	"agentenv/protocol/card"
	"agentenv/protocol/trajectory"
)

// Trajectory returns the extension by which clients read what the agent did. live also serves contexts, and logs that still grow.
func Trajectory(live bool) Extension {
	return Extension{URI: card.Trajectory, Description: "Read trajectories", bind: func(s *Server) []Operation {
		logs := s.logs
		return []Operation{Cases("get",
			Case("task", func(_ context.Context, in ofTask) (trajectory.Record, error) { return logs.Task(in.TaskID) }),
			Case("task_objects", func(ctx context.Context, in taskObjects) (trajectoryWritten, error) {
				r, err := logs.Task(in.TaskID)
				return s.upload(ctx, r, err, in.Objects)
			}),
			Case("context", func(_ context.Context, in ofContext) (trajectory.Record, error) { return logs.Context(in.ContextID) }).When(live),
			Case("context_objects", func(ctx context.Context, in contextObjects) (trajectoryWritten, error) {
				r, err := logs.Context(in.ContextID)
				return s.upload(ctx, r, err, in.Objects)
			}).When(live),
			Case("task_events", func(_ context.Context, in taskEvents) (trajectory.Page, error) {
				return logs.TaskPage(in.TaskID, in.After, in.limit())
			}).When(live),
			Case("context_events", func(_ context.Context, in contextEvents) (trajectory.Page, error) {
				return logs.ContextPage(in.ContextID, in.After, in.limit())
			}).When(live),
		)}
	}}
}

type ofTask struct {
	TaskID string `json:"task_id"`
}

type ofContext struct {
	ContextID string `json:"context_id"`
}

type cursor struct {
	After int  `json:"after" agent:"strict,min=0"`
	Limit *int `json:"limit" agent:"strict,min=1,max=1000"`
}

func (c cursor) limit() int {
	if c.Limit == nil {
		return 0
	}
	return *c.Limit
}

type taskEvents struct {
	ofTask
	cursor
}

type contextEvents struct {
	ofContext
	cursor
}
