package task

import (
	"context"

	"agentenv/store/document"
)

// InGroup returns the runs of a task in a run group, the oldest first; none when there are none.
// The context of a run in progress may lag by a second.
func (s *Instances) InGroup(ctx context.Context, taskID, group string) ([]*Instance, error) {
	ctx, _, err := s.indexes.ensure(ctx, taskID, collInstances)
	if err != nil {
		return nil, err
	}
	found, err := s.docs.Query(ctx, collInstances, document.Query{Filter: document.By("task_id", taskID, "context.metadata.run_group_id", group)})
	if err != nil {
		return nil, err
	}
	document.SortDocs(found, []document.Sort{{Path: "created_at_utc"}, {Path: "created_at_precise_utc"}, {Path: "instance_id"}})
	all := make([]*Instance, 0, len(found))
	for _, d := range found {
		in, err := s.owned(ctx, instanceFrom(d))
		if err != nil {
			return nil, err
		}
		all = append(all, in)
	}
	return all, nil
}
