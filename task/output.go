package task

import (
	"context"

	"agentenv/fault"
	"agentenv/store"
	"agentenv/store/doc"
	"agentenv/store/document"
)

// Output returns what a step of a run wrote, as a context that holds nothing else; nil when the step has not ended with a record of its own.
func (s *Instances) Output(ctx context.Context, instance, step string) (*doc.Object, error) {
	d, err := s.docs.FindOne(store.WithRunScope(ctx, instance), collJournal, document.By("instance_id", instance, "step_id", step))
	if err != nil || d == nil {
		return nil, err
	}
	delta, err := decodeDelta(d.Obj("ops"))
	if err != nil {
		return nil, fault.At(err, "instance %s, step %q", instance, step)
	}
	return delta.apply(NewContext()), nil
}
