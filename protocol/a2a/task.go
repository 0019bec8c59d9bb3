package a2a

import (
	"context"
	"maps"
	"sync"
	"time"

	wire "github.com/a2aproject/a2a-go/a2a"

	"agentenv/fault"
	"agentenv/protocol/trajectory"
)

// task is one message being answered. What it publishes is never changed afterwards, so that readers marshal it without a lock.
type task struct {
	id, context string
	request     *Request
	log         *trajectory.Log
	page        *page // of the journal, nil = none
	ctx         context.Context
	cancel      context.CancelFunc
	over        chan struct{} // the code ran out and its turn in the context is over
	now         func() time.Time

	mu       sync.Mutex
	wire     wire.Task
	feed     *feed // nil once the task ended
	canceled bool  // asked to
	settled  bool  // how it ends is decided
	done     chan struct{}
}

// feed are the events of a task that goes on. Followers keep it after the task let go of it.
type feed struct {
	mu      sync.Mutex
	events  []any
	closed  bool
	changed chan struct{} // closed and replaced at each change
}

func (f *feed) add(e any, last bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if e != nil {
		f.events = append(f.events, e)
	}
	f.closed = last
	close(f.changed)
	f.changed = make(chan struct{})
}

// from returns the events from an index on, whether they were the last, and what closes when there are more.
func (f *feed) from(i int) ([]any, bool, <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.events[i:], f.closed, f.changed
}

// settle waits for the last event, but at most for a while.
func (f *feed) settle(from int, while time.Duration) {
	end := time.NewTimer(while)
	defer end.Stop()
	for {
		_, last, changed := f.from(from)
		if last {
			return
		}
		select {
		case <-changed:
		case <-end.C:
			return
		}
	}
}

func (t *task) status(state wire.TaskState, parts []Part) wire.TaskStatus {
	at := t.now().UTC()
	s := wire.TaskStatus{State: state, Timestamp: &at}
	if len(parts) > 0 {
		s.Message = wire.NewMessageForTask(wire.MessageRoleAgent, &t.wire, parts...)
	}
	return s
}

// publish gives the task a new status and tells its followers; a task that ended keeps the one it has, and false is returned.
func (t *task) publish(state wire.TaskState, parts []Part, metadata map[string]any) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.wire.Status.State.Terminal() || ((t.canceled || t.settled) && !state.Terminal()) {
		return false
	}
	if old := t.wire.Status.Message; old != nil {
		t.wire.History = append(t.wire.History, old)
	}
	t.wire.Metadata = merged(t.wire.Metadata, metadata)
	t.wire.Status = t.status(state, parts)
	last := state.Terminal()
	e := &wire.TaskStatusUpdateEvent{TaskID: wire.TaskID(t.id), ContextID: t.context, Status: t.wire.Status, Final: last, Metadata: metadata}
	t.page.status(e)
	t.feed.add(e, last)
	if last {
		t.feed = nil
		close(t.done)
	}
	return true
}

// merged returns both in a map of its own; what is added comes over what is there.
func merged(there, add map[string]any) map[string]any {
	if len(add) == 0 {
		return there
	}
	out := maps.Clone(there)
	if out == nil {
		out = map[string]any{}
	}
	maps.Copy(out, add)
	return out
}

// snapshot returns the task as it is now, with the last so many messages of its history (negative = all).
func (t *task) snapshot(history int) *wire.Task {
	t.mu.Lock()
	defer t.mu.Unlock()
	return trimmed(t.copy(), history)
}

// copy returns the task as it is; what it points to is never changed.
func (t *task) copy() *wire.Task {
	c := t.wire
	return &c
}

// follow returns the task as it is now, and the feed of what comes with the index to read it from; the feed is nil when the task ended.
func (t *task) follow() (now *wire.Task, f *feed, from int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.feed != nil {
		from = len(t.feed.events)
	}
	return t.copy(), t.feed, from
}

func (t *task) ended() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.wire.Status.State.Terminal()
}

func (t *task) state() wire.TaskState {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.wire.Status.State
}

// askCancel marks the task as to be canceled; false when it was, or has ended or is about to.
func (t *task) askCancel() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.canceled || t.settled || t.wire.Status.State.Terminal() {
		return false
	}
	t.canceled = true
	return true
}

// settle decides how the task ends: as it says, or canceled when somebody asked before.
func (t *task) settle(state wire.TaskState) wire.TaskState {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.settled = true
	if t.canceled {
		return wire.TaskStateCanceled
	}
	return state
}

// emit is the Emit of the task.
func (t *task) emit(p Progress) error {
	parts, err := copyParts(p.Parts)
	if err != nil {
		return err
	}
	metadata, err := copyObject(p.Metadata)
	if err != nil {
		return fault.Wrap(fault.Invalid, err, "the metadata of progress is no JSON")
	}
	if len(parts) == 0 {
		return fault.New(fault.Invalid, "progress needs at least one part")
	}
	if !t.publish(wire.TaskStateWorking, parts, metadata) {
		return fault.New(fault.Canceled, "the task %s has ended", t.id)
	}
	return nil
}
