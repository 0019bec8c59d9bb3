// Package trajectory keeps what agents did: one append-only log of JSON events a task, read back whole or by cursor while it grows. It
// holds everything in memory and is bounded by contexts. Source: urn:agentenv:trajectory/v1.
package trajectory

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"strings"
	"sync"

	"agentenv/fault"
)

// State says how far a task's log is.
type State string

// The states: pending until the first event, running after it, then the one it was sealed with.
const (
	Pending   State = "pending"
	Running   State = "running"
	Completed State = "completed"
	Failed    State = "failed"
	Canceled  State = "canceled"
)

// warnBytes is the size from which a log is told to be unusually big, once.
const warnBytes = 100 << 20

// Native is a trajectory in the words of the program that an agent wraps; it is then the final record instead of the events.
type Native struct {
	Format  string // not blank
	Payload any    // marshalled to JSON when the log is sealed
	Version int    // at least 1
}

// Log is the log of one task, as its agent sees it. It is safe for concurrent use.
type Log struct {
	task, context string
	log           *slog.Logger

	mu     sync.Mutex
	format string
	setAt  int64 // order in which formats were set, over all tasks
	clock  func() int64
	events [][]byte
	size   int
	warned bool
	state  State // "" until sealed
	native []byte
	tee    func(format string, event []byte)
}

// Tee has f called with each further format (and no event) and each further event (and no format), in their order; f must not use the log.
// A second call puts another in its place.
func (l *Log) Tee(f func(format string, event []byte)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tee = f
}

// SetFormat names the form of the events. It must be called before the first event and not with a blank name; a second call before the
// first event replaces the name, and the same name is always welcome. Errors are of kind Invalid, and Conflict after the first event.
func (l *Log) SetFormat(name string) error {
	if strings.TrimSpace(name) == "" {
		return fault.New(fault.Invalid, "the format of the trajectory of task %s must not be blank", l.task)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.format == name {
		return nil
	}
	if len(l.events) > 0 || l.state != "" {
		return fault.New(fault.Conflict, "the format of the trajectory of task %s is fixed: it has events or has ended", l.task)
	}
	l.format, l.setAt = name, l.clock()
	if l.tee != nil {
		l.tee(name, nil)
	}
	return nil
}

// Append adds one event, which must marshal to a JSON object; it is serialized now, so later changes of the value do not show. Errors:
// Invalid for anything but an object, for numbers that JSON does not have and when no format is set; Conflict after the end of the task.
func (l *Log) Append(event any) error {
	text, err := json.Marshal(event)
	if err != nil {
		return fault.Wrap(fault.Invalid, err, "an event of the trajectory of task %s is no JSON", l.task)
	}
	if !bytes.HasPrefix(text, []byte("{")) {
		return fault.New(fault.Invalid, "an event of the trajectory of task %s must be a JSON object", l.task)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.state != "":
		return fault.New(fault.Conflict, "the trajectory of task %s has ended", l.task)
	case l.format == "":
		return fault.New(fault.Invalid, "the trajectory of task %s needs a format before its first event", l.task)
	}
	l.events = append(l.events, text)
	if l.tee != nil {
		l.tee("", text)
	}
	if l.size += len(text); l.size > warnBytes && !l.warned {
		l.warned = true
		l.log.Warn("a trajectory is unusually big", "task", l.task, "bytes", l.size)
	}
	return nil
}

func (l *Log) seal(state State, native *Native) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state != "" {
		return
	}
	l.state = state
	if native == nil {
		return
	}
	payload, err := json.Marshal(native.Payload)
	if err != nil {
		l.log.Warn("a native trajectory is no JSON and was dropped", "task", l.task, "error", err)
		return
	}
	l.native = payload
	if len(l.events) > 0 {
		l.log.Warn("a task has events and a native trajectory; the native one is its final trajectory", "task", l.task, "events", len(l.events))
	}
	if l.format == "" {
		l.format, l.setAt = native.Format, l.clock()
	}
}

// view is a log at one moment; its events never change.
type view struct {
	task, format string
	setAt        int64
	events       [][]byte
	state        State
	native       []byte
}

func (v view) ended() bool { return v.state != Pending && v.state != Running }

func (l *Log) view() view {
	l.mu.Lock()
	defer l.mu.Unlock()
	v := view{task: l.task, format: l.format, setAt: l.setAt, events: l.events, state: l.state, native: l.native}
	if v.state == "" {
		if v.state = Pending; len(l.events) > 0 {
			v.state = Running
		}
	}
	return v
}
