// Package objects moves objects between the object store and agents: by grants where they reach the agent's sandbox, else through the
// staging store that agents offer at their own address, else inside requests where the protocol has a form for that. Source: the objects
// fields of the urn:agentenv extensions.
package objects

import (
	"log/slog"
	"net/http"
	"sync"
	"time"

	"agentenv/agent"
	"agentenv/protocol/transfer"
	"agentenv/store/object"
)

// How long a call may take.
const (
	movingLimit = 600 * time.Second // one that moves objects
	inlineLimit = 120 * time.Second
)

// How large what an agent reads or writes may be.
const (
	maxTrajectory     = 1 << 30
	maxWorkspace      = 5 << 30
	maxSkillFiles     = 1000
	maxSkillBytes     = 1 << 30
	maxIncrements     = 10000
	maxIncrementBytes = 1 << 30
	maxChangelogBytes = 10 << 30
)

const (
	octets = "application/octet-stream"
	asJSON = "application/json"
)

// Options is what a Mover is made of.
type Options struct {
	Client *agent.Client // asks the agents
	Store  object.Store  // where objects are kept
	// Grants are the stores behind Store and what they grant: the first one that owns a URL counts. A store that is not among them issues none.
	Grants []object.Granting
	// Near reports whether sandboxes of a type run on this machine; nil = none does.
	Near func(sandboxType string) bool
	HTTP *http.Client     // for what is staged on agents; nil = one of its own
	Log  *slog.Logger     // nil = nothing is logged
	Now  func() time.Time // nil = time.Now
}

// Mover moves objects to and from agents. It is safe for concurrent use. Errors of its methods carry the kinds of package agent's calls;
// besides, Unsupported when there is no way to move the objects, NotFound for an object that is not there, and Invalid for what is too large
// or malformed. None holds a grant.
type Mover struct {
	o        Options
	transfer *transfer.Client
	http     *http.Client
	// unreached are the addresses of agents that could not use a grant: a firewall that drops what they send costs them minutes each time.
	unreached sync.Map
}

// New returns a mover. Close it when its work is done.
func New(o Options) *Mover {
	if o.Near == nil {
		o.Near = func(string) bool { return false }
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.HTTP == nil {
		t := http.DefaultTransport.(*http.Transport).Clone()
		t.DisableCompression = true
		o.HTTP = &http.Client{Transport: t}
	}
	direct := *o.HTTP
	direct.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &Mover{o: o, http: &direct, transfer: transfer.NewClient(transfer.Options{HTTP: &direct, Log: o.Log, Now: o.Now})}
}

// Close releases idle connections; a second call is a no-op.
func (m *Mover) Close() { m.transfer.Close() }
