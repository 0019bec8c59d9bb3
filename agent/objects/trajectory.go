package objects

import (
	"context"
	"errors"

	"agentenv/agent"
	"agentenv/fault"
	"agentenv/protocol/card"
	"agentenv/store/doc"
	"agentenv/store/object"
)

// Of says whose trajectory is meant: that of one task, or that of a whole context. Exactly one of both is set.
type Of struct{ TaskID, ContextID string }

// StoreError is an object that an agent gave and that did not come into the store.
type StoreError struct{ Err error }

// Error returns one line.
func (e *StoreError) Error() string { return e.Err.Error() }

// Unwrap returns the cause, which carries the fault kind.
func (e *StoreError) Unwrap() error { return e.Err }

// FetchTrajectory stores a trajectory at an object URL as a JSON array, over one that is there, and returns the URL. The agent writes it
// there itself where it can, else it is read through this program, one event at a time, and never held whole; so are all later ones of an
// agent that turned out not to reach the store. A trajectory of more than 1 GiB is an error, and one that the agent does not have a NotFound
// error; nothing is stored then. What passes through this program and does not come into the store is a *StoreError.
func (m *Mover) FetchTrajectory(ctx context.Context, e agent.Endpoint, of Of, url string) (string, error) {
	field, id := "task_id", of.TaskID
	if id == "" {
		field, id = "context_id", of.ContextID
	}
	if id == "" || of.TaskID != "" && of.ContextID != "" {
		return "", fault.New(fault.Invalid, "a trajectory is that of one task or of one context")
	}
	f := form{uri: card.Trajectory, op: "get", objects: []string{field, "objects"}, inline: []string{field}}
	how, err := m.mode(e, f, url)
	if err != nil {
		return "", err
	}
	body := doc.Of(field, id)
	_, unreached := m.unreached.Load(e.URL)
	takesInline := e.Card.Extension(f.uri).Operation(f.op).Request.Accepts(f.inline...)
	if how != inline && !(unreached && takesInline) {
		err := m.trajectoryByObject(ctx, m.begin(e, f, how), body.Clone(), url)
		if err == nil {
			return url, nil
		}
		if !takesInline || !transferFailed(err) {
			return "", err
		}
		m.unreached.Store(e.URL, true)
		m.o.Log.Warn("an agent could not write its trajectory by a grant, so its trajectories are read from the agent", "error", err)
	}
	return m.trajectoryInline(ctx, e, f, body, url)
}

func (m *Mover) trajectoryByObject(ctx context.Context, x *exchange, body *doc.Object, url string) error {
	defer x.close(ctx)
	to, err := x.write(ctx, url, "trajectory", asJSON, maxTrajectory)
	if err != nil {
		return err
	}
	answer, err := x.call(ctx, body.Set("objects", doc.Of("trajectory", wire(to))))
	if err != nil {
		return err
	}
	_, err = x.keep(ctx, to, answer.Obj("objects").Value("trajectory"))
	return err
}

// transferFailed reports whether the agent could not use its grant, which the other form needs not.
func transferFailed(err error) bool {
	var c *agent.CallError
	return errors.As(err, &c) && (c.Code == "transfer_unavailable" || c.Code == "transfer_timeout" || c.Code == "transfer_rejected")
}

func (m *Mover) trajectoryInline(ctx context.Context, e agent.Endpoint, f form, body *doc.Object, url string) (string, error) {
	key, err := m.o.Store.Key(url)
	if err != nil {
		return "", err
	}
	answer, err := m.o.Client.Open(ctx, e, agent.Call{URI: f.uri, Op: f.op, Body: body, Timeout: inlineLimit})
	if err != nil {
		return "", err
	}
	defer answer.Close()
	events := newArray(answer, "trajectory", maxTrajectory)
	w, err := m.o.Store.Put(ctx, object.Item{Key: key, ContentType: asJSON, Size: -1, Body: events}, true)
	switch {
	case events.err != nil:
		return "", fault.At(events.err, "%s: %s", f, e)
	case err != nil:
		return "", &StoreError{fault.At(err, "the trajectory of %s", e)}
	}
	return w.URL, nil
}
