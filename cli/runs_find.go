package cli

import (
	"context"

	"agentenv/fault"
	"agentenv/runner"
	"agentenv/task"
)

// instanceOf returns the id of the instance that an argument names: an instance's own id, or the id of a run.
func instanceOf(ctx context.Context, s *Services, id string) (string, error) {
	if !runner.IsRunID(id) {
		return id, nil
	}
	r, err := s.Records.Get(ctx, id)
	if err != nil {
		return "", err
	}
	if r == nil {
		return "", fault.New(fault.NotFound, "run %s not found; `agent-env runs list` shows the runs there are", id)
	}
	return r.Instance, nil
}

// instance returns the record of the run that an argument names. NotFound, saying so, also for one that has not begun.
func instance(ctx context.Context, s *Services, id string) (*task.Instance, error) {
	inst, err := instanceOf(ctx, s, id)
	if err != nil {
		return nil, err
	}
	in, err := s.Instances.Find(ctx, inst)
	if err != nil || in != nil {
		return in, err
	}
	r, err := s.Records.OfInstance(ctx, inst)
	switch {
	case err != nil:
		return nil, err
	case r == nil:
		return s.Instances.Get(ctx, inst) // its own words
	case r.Status == runner.Queued:
		return nil, fault.New(fault.NotFound, "run %s is queued and has not begun: there is nothing of it to show; `agent-env runs work` runs what is queued", id)
	case r.Error != "":
		return nil, fault.New(fault.NotFound, "run %s ended (%s) before it began: %s", id, r.Status, r.Error)
	}
	return nil, fault.New(fault.NotFound, "run %s has not begun: there is nothing of it to show", id)
}
