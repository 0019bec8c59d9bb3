// Package proxy is an agent without a model: each message to it is a turn that stays open until a driver outside replies. The driver reads
// open turns, lists their tools, runs them here, records what its model said, and replies: the agent extension urn:agentenv:proxy/v1.
package proxy

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"agentenv/fault"
	"agentenv/protocol/a2a"
	"agentenv/protocol/a2a/shell"
	"agentenv/protocol/card"
)

// Format names the events in the trajectories of the agent.
const Format = "agentenv-proxy/v1"

const (
	minToken  = 22
	longPoll  = 25 * time.Second
	listLimit = 600 * time.Second
)

// Options say how the agent works; the zero value is good.
type Options struct {
	Poll    time.Duration // how long a call of the driver waits for news; 0 = 25 s
	HTTP    *http.Client  // for MCP servers; nil = one of its own
	Skills  string        // the folder skills are kept in; "" = skills in the home folder
	Dir     string        // where commands run; "" = the current folder
	NoShell bool          // offer no shell, and take no skills, whatever the machine has
	Log     *slog.Logger  // nil = none
	Now     func() time.Time
}

// Config is what the agent takes.
type Config struct {
	a2a.BaseConfig
	Model        string `json:"model"`
	SystemPrompt string `json:"system_prompt"`
	TaskID       string `json:"task_id"`
}

// Agent returns the agent.
func Agent(o Options) a2a.Agent {
	d := newDesk(o)
	return a2a.Agent{
		Identity:   a2a.Identity{Name: "Proxy", Description: "Passes each message to a driver outside", Version: "1.0.0"},
		Config:     func() any { return &Config{BaseConfig: a2a.DefaultBase()} },
		Extensions: []a2a.Extension{a2a.MCPConfig(), a2a.Trajectory(true), a2a.SkillConfig(d.install, nil), d.extension()},
		Run:        d.run,
		Start: func(context.Context) (func(context.Context) error, error) {
			return func(context.Context) error { d.close(); return nil }, nil
		},
	}
}

func (d *desk) extension() a2a.Extension {
	return a2a.Extension{URI: card.Proxy, Description: "Drive the agent from outside", Operations: []a2a.Operation{
		a2a.Op("claim", d.claim), a2a.Op("next", d.next), a2a.Op("tools", d.tools), a2a.Op("act", d.act), a2a.Op("result", d.result),
		a2a.Op("record", d.record), a2a.Op("reply", d.reply),
	}}
}

// desk holds the open turns.
type desk struct {
	o     Options
	shell *shell.Shell // nil = none

	mu      sync.Mutex
	owner   string
	version int64
	news    chan struct{} // closed at the next change
	turns   []*turn
	actions map[string]*action
	running sync.WaitGroup
	closed  bool
}

func newDesk(o Options) *desk {
	if o.Poll == 0 {
		o.Poll = longPoll
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Skills == "" {
		if home, err := os.UserHomeDir(); err == nil {
			o.Skills = filepath.Join(home, "skills")
		}
	}
	d := &desk{o: o, news: make(chan struct{}), actions: map[string]*action{}}
	if !o.NoShell {
		d.shell = shell.Find(o.Dir)
	}
	return d
}

// close ends what turns left running.
func (d *desk) close() {
	d.mu.Lock()
	d.closed = true
	for _, t := range d.turns {
		t.cancel(errEnded)
	}
	d.mu.Unlock()
	d.running.Wait()
	if d.shell != nil {
		d.shell.Close()
	}
}

var errEnded = errors.New("the turn has ended")

// changed tells those who wait; the lock is held.
func (d *desk) changed() {
	d.version++
	close(d.news)
	d.news = make(chan struct{})
}

// run opens a turn and waits for the driver's reply.
func (d *desk) run(ctx context.Context, r *a2a.Request) (a2a.Result, error) {
	for _, p := range r.Parts {
		if !isText(p) {
			return a2a.Fail("proxy.unsupported_part", "this agent takes text parts alone"), nil
		}
	}
	if err := r.Trajectory.SetFormat(Format); err != nil {
		return a2a.Result{}, err
	}
	t := d.open(ctx, r)
	defer d.end(t)
	select {
	case <-ctx.Done():
		return a2a.Result{}, context.Cause(ctx)
	case reply := <-t.replied:
		return reply, t.log(d.o.Now(), reply)
	}
}

func (d *desk) open(ctx context.Context, r *a2a.Request) *turn {
	t := newTurn(ctx, r, d.o)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.turns = append(d.turns, t)
	d.changed()
	return t
}

// end closes a turn: its actions stop and are forgotten.
func (d *desk) end(t *turn) {
	d.mu.Lock()
	d.turns = slices.DeleteFunc(d.turns, func(o *turn) bool { return o == t })
	for id, a := range d.actions {
		if a.turn == t {
			delete(d.actions, id)
		}
	}
	d.changed()
	d.mu.Unlock()
	t.cancel(errEnded)
	t.acting.Wait()
	t.servers.Close()
}

// await waits for a change until the long poll is over; it reports whether there was one.
func (d *desk) await(ctx context.Context, news <-chan struct{}, end <-chan time.Time) bool {
	select {
	case <-news:
		return true
	case <-end:
	case <-ctx.Done():
	}
	return false
}

// turnOf returns an open turn; the lock is held.
func (d *desk) turnOf(id string) (*turn, error) {
	for _, t := range d.turns {
		if t.id == id {
			return t, nil
		}
	}
	return nil, fault.New(fault.NotFound, "no turn of the task %q is open", id)
}
