// Package triggers decides, by rules that were registered beforehand, what a simulated user says after a turn and when it ends the
// conversation: the engine behind the agent extension urn:agentenv:triggers/v1. It does no I/O.
package triggers

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"agentenv/fault"
)

// The limits of the engine.
const (
	MaxTriggers    = 256
	MaxSpecBytes   = 16384 // of one normalized trigger as compact JSON
	MaxContexts    = 1024
	MaxMessage     = 200_000 // characters
	MaxContextID   = 256
	maxID          = 128
	maxEnvID       = 256
	maxStatus      = 128
	maxPattern     = 4096
	maxText        = 8192
	maxLog         = 1024
	maxNested      = 64 // all and any within each other
	decideMatching = time.Second
)

// Engine holds the triggers of one agent and what fired in each context. Safe for concurrent use.
type Engine struct {
	now func() time.Time

	mu       sync.Mutex
	triggers []*trigger
	contexts map[string]*history
	log      []map[string]any
	seq      int64
}

// history is what happened in one context.
type history struct {
	turn  int64
	fired map[string]bool
}

// New returns an engine without triggers; now dates the entries of its log.
func New(now func() time.Time) *Engine { return &Engine{now: now, contexts: map[string]*history{}} }

// Registered is what a registration added, and all ids in the order of their registration.
type Registered struct{ Added, All []string }

// Register adds triggers, all or none. list is the decoded JSON of the request's `triggers`. One that is registered already with the same
// content is passed over. Everything that is wrong, another content for a known id included, is an Invalid error naming the trigger and the
// field.
func (e *Engine) Register(list any) (Registered, error) {
	parsed, err := parseAll(list)
	if err != nil {
		return Registered{}, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	var fresh []*trigger
	for _, t := range parsed {
		switch known := e.find(t.id); {
		case known == nil:
			fresh = append(fresh, t)
		case known.text != t.text:
			return Registered{}, fault.New(fault.Invalid, "trigger %q is already registered with another content; give this one another id", t.id)
		}
	}
	if n := len(e.triggers) + len(fresh); n > MaxTriggers {
		return Registered{}, fault.New(fault.Invalid, "triggers: %d would be registered, %d at most", n, MaxTriggers)
	}
	added := []string{}
	for _, t := range fresh {
		e.triggers = append(e.triggers, t)
		added = append(added, t.id)
	}
	if len(added) > 0 {
		e.note("registered", map[string]any{"detail": map[string]any{"added": added}})
	}
	all := make([]string, len(e.triggers))
	for i, t := range e.triggers {
		all[i] = t.id
	}
	return Registered{Added: added, All: all}, nil
}

func (e *Engine) find(id string) *trigger {
	if i := slices.IndexFunc(e.triggers, func(t *trigger) bool { return t.id == id }); i >= 0 {
		return e.triggers[i]
	}
	return nil
}

// Turn is what a decision is made on.
type Turn struct {
	Number  int64  // from 1
	Message string // the agent's reply, at most MaxMessage characters
	Context string // "" = "default"
	// Envs holds the status of each env's triggers: env id → trigger id → status.
	Envs map[string]map[string]string
}

// Decision is what the simulated user does next.
type Decision struct {
	Text  string   // what it says, "" = nothing
	Done  bool     // the conversation ends
	Fired []string // the ids of the triggers that fired, in the order of their registration
}

// Decide evaluates the triggers in the order of their registration. A turn that is not after the context's last one begins the context anew.
// Nothing is kept of a decision that fails: Timeout when the patterns together take more than a second, Invalid for bad input and for one
// context too many; it may be asked again.
func (e *Engine) Decide(ctx context.Context, t Turn) (Decision, error) {
	if t.Context == "" {
		t.Context = "default"
	}
	switch {
	case t.Number < 1:
		return Decision{}, fault.New(fault.Invalid, "turn is %d; turns are counted from 1", t.Number)
	case utf8.RuneCountInString(t.Message) > MaxMessage:
		return Decision{}, fault.New(fault.Invalid, "solver_message is longer than %d characters", MaxMessage)
	case utf8.RuneCountInString(t.Context) > MaxContextID:
		return Decision{}, fault.New(fault.Invalid, "context_id is longer than %d characters", MaxContextID)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	before, known := e.contexts[t.Context]
	if !known && len(e.contexts) >= MaxContexts {
		return Decision{}, fault.New(fault.Invalid, "this agent keeps at most %d contexts of triggers, and context %q would be one more", MaxContexts, t.Context)
	}
	reset := known && t.Number <= before.turn
	after := &history{turn: t.Number, fired: map[string]bool{}}
	if known && !reset {
		for id := range before.fired {
			after.fired[id] = true
		}
	}
	d := Decision{Fired: []string{}}
	s := &sighting{turn: t, ctx: ctx, until: time.Now().Add(decideMatching)}
	var says []string
	for _, trig := range e.triggers {
		if trig.once && after.fired[trig.id] {
			continue
		}
		met, err := trig.when.met(s)
		if err != nil {
			return Decision{}, fault.At(err, "trigger %q", trig.id)
		}
		if !met {
			continue
		}
		after.fired[trig.id] = true
		d.Fired = append(d.Fired, trig.id)
		says = append(says, trig.says...)
		d.Done = d.Done || trig.ends
	}
	d.Text = strings.Join(says, "\n")
	e.contexts[t.Context] = after
	if reset {
		e.note("reset", map[string]any{"context_id": t.Context, "turn": t.Number})
	}
	for _, id := range d.Fired {
		e.note("fired", map[string]any{"trigger_id": id, "turn": t.Number, "context_id": t.Context})
	}
	return d, nil
}

func (e *Engine) note(kind string, entry map[string]any) {
	e.seq++
	entry["seq"], entry["ts"], entry["kind"] = e.seq, e.now().UTC().Format("2006-01-02T15:04:05.000000+00:00"), kind
	if e.log = append(e.log, entry); len(e.log) > maxLog {
		e.log = slices.Delete(e.log, 0, len(e.log)-maxLog)
	}
}

// State returns the triggers and the last entries of the log, as the extension answers it: {"triggers": […], "firing_log": […]}.
func (e *Engine) State() map[string]any {
	e.mu.Lock()
	defer e.mu.Unlock()
	list := make([]any, len(e.triggers))
	for i, t := range e.triggers {
		list[i] = map[string]any{"id": t.id, "when_type": t.kind, "once": t.once}
	}
	log := make([]any, len(e.log))
	for i, entry := range e.log {
		log[i] = entry
	}
	return map[string]any{"triggers": list, "firing_log": log}
}

func newID() string {
	var b [6]byte
	_, _ = rand.Read(b[:])
	return "trg_" + hex.EncodeToString(b[:])
}

// compact writes a value as JSON without spaces and with its keys sorted.
func compact(v any) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return ""
	}
	return strings.TrimSuffix(b.String(), "\n")
}
