package episode

import (
	"context"
	"slices"
	"strings"
	"sync"

	"agentenv/fault"
	"agentenv/store/doc"
)

// Toolbox is what an outside agent has to work with in one turn. It must be safe for concurrent use, and return soon after ctx ends.
type Toolbox interface {
	List(ctx context.Context) ([]Tool, error)
	// Call runs one of the tools that List names. A tool that fails is a result, not an error.
	Call(ctx context.Context, c ToolCall) (ToolResult, error)
}

// Tool is one tool of a turn. Names are unique within it.
type Tool struct {
	Name, Description string
	InputSchema       *doc.Object // JSON Schema of the arguments; nil: any
}

// ToolCall is what a tool is asked to do.
type ToolCall struct {
	Name      string
	Arguments *doc.Object // nil: none
}

// ToolResult is what a tool answered.
type ToolResult struct {
	Content any // a document value
	IsError bool
}

// noTools is the toolbox of an agent that can only talk.
type noTools struct{}

func (noTools) List(context.Context) ([]Tool, error) { return nil, nil }

func (noTools) Call(_ context.Context, c ToolCall) (ToolResult, error) {
	return ToolResult{}, fault.New(fault.Invalid, "there is no tool named %q", c.Name)
}

// Turn is one prompt that an outside agent answers. It is safe for concurrent use. Once it is over, by End, its timeout or the end of
// the run, every method but a repeated End is a NotFound error.
type Turn struct {
	Number int // from 1, in the order in which the turns of an episode open
	Prompt

	tools   Toolbox
	why     func() error  // the run was cancelled; nil while it was not
	listing chan struct{} // holds one token: whoever has it lists the tools

	mu      sync.Mutex
	listed  bool
	list    []Tool
	over    chan struct{} // closed at the end
	replied bool
	reply   reply
	err     error // why it ended without a reply
	stops   map[*askedCall]context.CancelCauseFunc
	calls   sync.WaitGroup // that run

	recorded bool // a model call was: only what it asked for may run
	asked    []*askedCall
}

// reply is what a turn ended with.
type reply struct {
	text, model string
	calls       int // tool calls that ran
}

// askedCall is a tool call that a model asked for, or that simply runs.
type askedCall struct {
	ToolCall
	begun, done bool
}

func newTurn(s *promptStep, tools Toolbox, why func() error) *Turn {
	return &Turn{Prompt: s.Prompt, tools: tools, why: why, listing: make(chan struct{}, 1), over: make(chan struct{}), stops: map[*askedCall]context.CancelCauseFunc{}}
}

func (t *Turn) isOpen() bool {
	select {
	case <-t.over:
		return false
	default:
		return true
	}
}

// gone is why the turn takes nothing any more; nil while it is open. t.mu is held.
func (t *Turn) gone() error {
	switch {
	case t.isOpen():
		return nil
	case t.replied:
		return fault.New(fault.NotFound, "turn %d (step %s) is over: it was ended", t.Number, t.StepID)
	}
	return fault.New(fault.NotFound, "turn %d (step %s) is over: %s", t.Number, t.StepID, t.err)
}

// wait waits for the end of the turn and of everything that runs in it; ctx ends it too.
func (t *Turn) wait(ctx context.Context) (reply, error) {
	select {
	case <-t.over:
	case <-ctx.Done():
		t.mu.Lock()
		t.close(func() {
			if t.err = t.why(); t.err == nil { // else the engine may have its own words for it
				t.err = context.Cause(ctx)
			}
		})
		t.mu.Unlock()
	}
	t.calls.Wait()
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.reply, t.err
}

// close ends an open turn; t.mu is held.
func (t *Turn) close(how func()) {
	if !t.isOpen() {
		return
	}
	how()
	for _, stop := range t.stops {
		stop(fault.New(fault.Canceled, "the turn is over"))
	}
	close(t.over)
}

// begin registers work of the turn; t.mu is held and the turn open. done must be called at its end.
func (t *Turn) begin(ctx context.Context, c *askedCall) (during context.Context, done func()) {
	ctx, stop := context.WithCancelCause(ctx)
	t.stops[c] = stop
	t.calls.Add(1)
	return ctx, func() {
		t.mu.Lock()
		delete(t.stops, c)
		t.mu.Unlock()
		stop(nil)
		t.calls.Done()
	}
}

// Tools returns the tools of the turn. They are listed once; an error is not kept.
func (t *Turn) Tools(ctx context.Context) ([]Tool, error) {
	select {
	case t.listing <- struct{}{}:
		defer func() { <-t.listing }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	t.mu.Lock()
	err := t.gone()
	if err != nil || t.listed {
		defer t.mu.Unlock()
		return slices.Clone(t.list), err
	}
	during, done := t.begin(ctx, &askedCall{})
	t.mu.Unlock()
	defer done()
	list, err := t.tools.List(during)
	t.mu.Lock()
	defer t.mu.Unlock()
	if gone := t.gone(); gone != nil {
		return nil, gone
	}
	if err == nil {
		t.list, t.listed = list, true
	}
	return slices.Clone(list), err
}

// Call runs a tool and waits for its result; the end of ctx or of the turn stops it. A tool that the turn does not have is an Invalid error. Once a model
// call was recorded, a call that it did not ask for, or that ran already, is a Conflict.
func (t *Turn) Call(ctx context.Context, c ToolCall) (ToolResult, error) {
	tools, err := t.Tools(ctx)
	if err != nil {
		return ToolResult{}, err
	}
	if !offers(tools, c.Name) {
		has := "it has none"
		if len(tools) > 0 {
			has = "it has " + quoted(toolNames(tools))
		}
		return ToolResult{}, fault.New(fault.Invalid, "there is no tool named %q in turn %d (step %s); %s", c.Name, t.Number, t.StepID, has)
	}
	t.mu.Lock()
	call, err := t.admit(c)
	if err != nil {
		t.mu.Unlock()
		return ToolResult{}, err
	}
	during, done := t.begin(ctx, call)
	call.begun = true
	t.reply.calls++
	t.mu.Unlock()
	defer done()
	res, err := t.tools.Call(during, c)
	t.mu.Lock()
	defer t.mu.Unlock()
	call.done = true
	if gone := t.gone(); gone != nil {
		return ToolResult{}, gone
	}
	return res, err
}

// admit returns the call that may run now; t.mu is held.
func (t *Turn) admit(c ToolCall) (*askedCall, error) {
	if err := t.gone(); err != nil {
		return nil, err
	}
	if !t.recorded {
		return &askedCall{ToolCall: c}, nil
	}
	for _, a := range t.asked {
		if !a.begun && a.Name == c.Name && doc.Equal(arguments(a.ToolCall), arguments(c)) {
			return a, nil
		}
	}
	return nil, fault.New(fault.Conflict, "the recorded model call did not ask for this call of %q, or it ran already", c.Name)
}

func arguments(c ToolCall) *doc.Object {
	if c.Arguments == nil {
		return &doc.Object{}
	}
	return c.Arguments
}

// RecordModelCall takes down what the model behind the agent answered. From then on only the tool calls that it asked for are accepted, each
// once, and a Conflict refuses the next record and the end until all of them ran; calls of tools that the turn does not have do not count. An answer that
// is none is an Invalid error. A second call is another model call: it is never repeated by itself.
func (t *Turn) RecordModelCall(ctx context.Context, m ModelCall) error {
	asked, err := m.toolCalls()
	if err != nil {
		return err
	}
	tools, err := t.Tools(ctx)
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.gone(); err != nil {
		return err
	}
	if err := t.waiting("record another model call"); err != nil {
		return err
	}
	t.recorded, t.asked = true, nil
	for _, c := range asked {
		if offers(tools, c.Name) {
			t.asked = append(t.asked, &askedCall{ToolCall: c})
		}
	}
	if m.Model != "" {
		t.reply.model = m.Model
	}
	return nil
}

// waiting refuses what must wait for the recorded calls; t.mu is held.
func (t *Turn) waiting(to string) error {
	var left []string
	for _, a := range t.asked {
		if !a.done {
			left = append(left, a.Name)
		}
	}
	if len(left) == 0 {
		return nil
	}
	return fault.New(fault.Conflict, "turn %d (step %s): the recorded model call asked for tool calls that have not run (%s); run them before you %s", t.Number, t.StepID, strings.Join(left, ", "), to)
}

// End ends the turn with the agent's reply, which may be empty, and stops the tool calls that still run. A second call is a no-op: the first reply stands.
func (t *Turn) End(reply string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.replied {
		return nil
	}
	if err := t.gone(); err != nil {
		return err
	}
	if err := t.waiting("end the turn"); err != nil {
		return err
	}
	t.close(func() { t.replied, t.reply.text = true, reply })
	return nil
}

func offers(tools []Tool, name string) bool {
	return slices.ContainsFunc(tools, func(t Tool) bool { return t.Name == name })
}

func toolNames(tools []Tool) []string {
	names := make([]string, len(tools))
	for i, t := range tools {
		names[i] = t.Name
	}
	return names
}
