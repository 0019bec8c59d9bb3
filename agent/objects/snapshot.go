package objects

import (
	"context"

	"agentenv/agent"
	"agentenv/protocol/card"
	"agentenv/protocol/transfer"
	"agentenv/store/doc"
)

// Snapshot are the object URLs of an agent's state.
type Snapshot struct {
	Trajectory string
	Workspace  string // "" = none
}

func (s Snapshot) urls() []string {
	if s.Workspace == "" {
		return []string{s.Trajectory}
	}
	return []string{s.Trajectory, s.Workspace}
}

// Saved tells what an agent wrote of its state; Workspace is nil when none was asked for.
type Saved struct {
	Trajectory transfer.Uploaded
	Workspace  *transfer.Uploaded
}

// SaveSnapshot has an agent write the state of a context to objects, over those that are there. When it returns without an error, all of
// them are in the store.
func (m *Mover) SaveSnapshot(ctx context.Context, e agent.Endpoint, contextID string, to Snapshot) (Saved, error) {
	var out Saved
	x, err := m.exchange(e, form{uri: card.Snapshot, op: "save", objects: []string{"context_id", "objects"}}, to.urls()...)
	if err != nil {
		return out, err
	}
	defer x.close(ctx)
	t, err := x.write(ctx, to.Trajectory, "trajectory", octets, maxTrajectory)
	if err != nil {
		return out, err
	}
	objects := doc.Of("trajectory", wire(t))
	var w target
	if to.Workspace != "" {
		if w, err = x.write(ctx, to.Workspace, "workspace", octets, maxWorkspace); err != nil {
			return out, err
		}
		objects.Set("workspace", wire(w))
	}
	answer, err := x.call(ctx, doc.Of("context_id", contextID, "objects", objects))
	if err != nil {
		return out, err
	}
	told := answer.Obj("objects")
	if out.Trajectory, err = x.keep(ctx, t, told.Value("trajectory")); err != nil || to.Workspace == "" {
		return out, err
	}
	u, err := x.keep(ctx, w, told.Value("workspace"))
	out.Workspace = &u
	return out, err
}

func loadForm(targetContextID string) form {
	f := form{uri: card.Snapshot, op: "load", objects: []string{"objects"}}
	if targetContextID != "" {
		f.objects = append(f.objects, "target_context_id")
	}
	return f
}

// CanLoadSnapshot says why LoadSnapshot cannot be asked of an agent, nil when it can; nothing is sent.
func (m *Mover) CanLoadSnapshot(e agent.Endpoint, from Snapshot, targetContextID string) error {
	_, err := m.mode(e, loadForm(targetContextID), from.urls()...)
	return err
}

// LoadSnapshot has an agent make a context of a state, with this id unless it is "", and returns the context's id. A second call makes
// another context, or is refused by the agent when the id is taken.
func (m *Mover) LoadSnapshot(ctx context.Context, e agent.Endpoint, from Snapshot, targetContextID string) (string, error) {
	f := loadForm(targetContextID)
	body := doc.Of()
	if targetContextID != "" {
		body.Set("target_context_id", targetContextID)
	}
	x, err := m.exchange(e, f, from.urls()...)
	if err != nil {
		return "", err
	}
	defer x.close(ctx)
	objects := doc.Of()
	for _, o := range []struct {
		name, url string
		limit     int64
	}{{"trajectory", from.Trajectory, maxTrajectory}, {"workspace", from.Workspace, maxWorkspace}} {
		if o.url == "" {
			continue
		}
		d, err := x.read(ctx, o.url, o.name, o.limit)
		if err != nil {
			return "", err
		}
		objects.Set(o.name, wire(d))
	}
	answer, err := x.call(ctx, body.Set("objects", objects))
	if err != nil {
		return "", err
	}
	return x.field(answer, "context_id")
}
