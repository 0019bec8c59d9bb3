package agent

import (
	"context"
	"time"

	"agentenv/fault"
	"agentenv/store/doc"
)

// The states of a task in which a turn ends, and those before. Source: A2A 0.3, section 6.3.
const (
	Submitted     = "submitted"
	Working       = "working"
	Completed     = "completed"
	Failed        = "failed"
	Canceled      = "canceled"
	Rejected      = "rejected"
	InputRequired = "input-required"
	AuthRequired  = "auth-required"
)

// ended reports whether a turn is over in a state: the task has ended, or goes on only after another message.
func ended(state string) bool {
	switch state {
	case Completed, Failed, Canceled, Rejected, InputRequired, AuthRequired:
		return true
	}
	return false
}

// DefaultPoll is the longest pause between two polls of a turn.
const DefaultPoll = 2 * time.Second

// Turn is one message to an agent.
type Turn struct {
	MessageID string // the same for every repeat of one message, so that an agent can tell them; "" = a random one
	ContextID string // the conversation; "" = the agent opens one
	Parts     []*doc.Object
	Metadata  *doc.Object   // nil = none
	Timeout   time.Duration // for the whole turn; 0 = until ctx ends
	Poll      time.Duration // the longest pause between two polls; 0 = DefaultPoll
	// OnTask is called once, from Send's goroutine, as soon as the agent's own id of the task is known; nil = nobody asks.
	OnTask func(taskID string)
}

// Reply is how a turn ended, whatever the state.
type Reply struct {
	TaskID       string // as the agent gave it; "" when it answered with a bare message
	ContextID    string // that of the turn, else the agent's
	State        string // completed, failed, canceled, rejected, input-required or auth-required; of a partial reply the last one seen
	LastText     string // the last text part, which stored responses hold
	Text         string // all text parts, joined by line feeds
	Parts        []*doc.Object
	ToolCalls    *int64 // nil = the agent did not say
	ErrorType    string // what a failed agent says about its error; "" = nothing
	ErrorCode    string
	ErrorClass   string
	ErrorMessage string
	Structured   any         // the structured output; nil = none
	Usage        *doc.Object // nil = none
	Metadata     *doc.Object // of the task, nil = none
}

// The kinds of a TurnError.
const (
	TurnTimeout     = "timeout"     // the turn's time, or that of its context, was over
	TurnCanceled    = "canceled"    // whoever asked gave up
	TurnUnreachable = "unreachable" // the agent cannot be reached, or is no more
	TurnRPC         = "rpc"         // the agent refused the request
	TurnProtocol    = "protocol"    // the agent answered what is no A2A
)

// TurnError is a turn that came to no end of its own. Its fault kind is Timeout for timeout and unreachable, Canceled for canceled, Denied
// where the agent does not take the credentials, Invalid and Unsupported for a message that it will never take (JSON-RPC errors -32600 and -32602;
// -32601, -32004 and -32005), and Unavailable otherwise.
type TurnError struct {
	Kind    string
	TaskID  string // "" when the agent never named it
	Partial *Reply // what the agent had said until then; never nil
	Err     error
}

// Error returns one line.
func (t *TurnError) Error() string { return t.Err.Error() }

// Unwrap returns the cause, which carries the fault kind.
func (t *TurnError) Unwrap() error { return t.Err }

// cancelLimit is how long a cancel may take.
const cancelLimit = 10 * time.Second

// Send runs one turn to its end and returns how it ended: by message/stream where the card offers it, else by message/send and polling. A stream that breaks
// or falls silent is followed by polling, so that nothing is lost with it. A connection that does not come about is tried 5 times.
//
// The error is Invalid for parts that are too large, with nothing sent, and a *TurnError for every other failure. When the time is over,
// when ctx ends, and when the agent cannot be reached any more, the task is cancelled first (for 10 seconds at most); what the
// agent had said until then is in the error. A second call sends the message again: with the same MessageID an agent may know it.
func (c *Client) Send(ctx context.Context, e Endpoint, t Turn) (*Reply, error) {
	if err := checkInline(t.Parts, c.maxBody); err != nil {
		return nil, err
	}
	if t.MessageID == "" {
		t.MessageID = randomHex(16)
	}
	if t.Poll <= 0 {
		t.Poll = DefaultPoll
	}
	limited := ctx
	if t.Timeout > 0 {
		var stop context.CancelFunc
		limited, stop = context.WithTimeout(ctx, t.Timeout)
		defer stop()
	}
	params, err := doc.Compact(t.params())
	if err != nil {
		return nil, fault.At(err, "the message to %s", e.where())
	}
	if int64(len(params)) > c.maxBody {
		return nil, fault.New(fault.Invalid, "the message to %s is larger than %s, the most that is sent: store its files and send their uris",
			e.where(), bytesText(c.maxBody))
	}
	f := &follower{client: c, endpoint: e, turn: t, rpc: e.RPC(), heard: c.now(), progress: progress{limit: c.maxBody}}
	if e.streams() {
		err = f.stream(limited, params)
	} else {
		err = f.send(limited, params)
	}
	if err == nil {
		return f.reply(), nil
	}
	return nil, f.fail(ctx, limited, err)
}

// streams reports whether the agent offers to stream a turn.
func (e Endpoint) streams() bool { return e.Card != nil && e.Card.Streaming }

// params are those of message/send and message/stream.
func (t Turn) params() *doc.Object {
	m := doc.Of("messageId", t.MessageID, "role", "user")
	if t.ContextID != "" {
		m.Set("contextId", t.ContextID)
	}
	m.Set("parts", arrayOf(t.Parts))
	if t.Metadata != nil {
		m.Set("metadata", t.Metadata)
	}
	return doc.Of("message", m, "configuration", doc.Of("blocking", false))
}
