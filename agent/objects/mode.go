package objects

import (
	"fmt"
	"strings"

	"agentenv/agent"
	"agentenv/fault"
	"agentenv/store/object"
)

// form is an operation and the fields of the two forms of its request.
type form struct {
	uri, op string
	objects []string // with objects beside the request
	inline  []string // with everything inside; nil = the protocol has no such form
}

func (f form) String() string { return f.op + " of " + f.uri }

// mode is how the objects of one call go.
type mode int

const (
	granted mode = iota + 1 // by grants of the store
	staged                  // by grants for the agent's own staging store
	inline                  // inside the request and its answer
)

// mode chooses how a call whose objects are at these URLs is made. The error is Unsupported and says why it cannot be.
func (m *Mover) mode(e agent.Endpoint, f form, urls ...string) (mode, error) {
	op := e.Card.Extension(f.uri).Operation(f.op)
	takes := op.Listed && op.Request.Accepts(f.objects...)
	issued, reached := true, true
	for _, url := range urls {
		g := object.GrantsFor(m.o.Grants, url)
		issued = issued && g != nil
		reached = reached && g != nil && g.Reach(e.SandboxType)
	}
	switch {
	case takes && reached:
		return granted, nil
	case takes && m.stages(e):
		return staged, nil
	case f.inline != nil && (!op.Listed || op.Request == nil || op.Request.Accepts(f.inline...)):
		return inline, nil
	}
	return 0, refusal(e, f, takes, issued)
}

// refusal says what stands in the way of moving objects.
func refusal(e agent.Endpoint, f form, takes, issued bool) error {
	switch {
	case e.Card.Extension(f.uri) == nil:
		return fault.New(fault.Unsupported, "%s: the card of %s does not advertise this extension; use an agent that takes it", f, e)
	case !takes:
		return fault.New(fault.Unsupported, "%s: the card of %s does not advertise the form that moves objects (%s); use an agent that takes it", f, e, strings.Join(f.objects, ", "))
	case !issued:
		return fault.New(fault.Unsupported, "%s: the object store issues no grants, and %s offers no staging over https; turn grants on ([stores.object] grants)", f, e)
	}
	return fault.New(fault.Unsupported, "%s: the grants of the object store do not reach %s, and %s offers no staging over https; use a store that is reached from there", f, provider(e), e)
}

// provider names where an agent runs.
func provider(e agent.Endpoint) string {
	if e.SandboxType == "" {
		return "an agent outside of our sandboxes"
	}
	return fmt.Sprintf("sandboxes of the provider %s", e.SandboxType)
}
