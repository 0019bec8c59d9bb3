// Package a2a is the kit to write agents with: it serves an Agent over A2A 0.3 (JSON-RPC over HTTP, answers and streams), with its card,
// the life of its tasks, and the urn:agentenv extensions.
//
// An agent is a value of type Agent; New makes a Server of it, and Main serves it the way a container does. The types on the wire are those
// of github.com/a2aproject/a2a-go; the front is our own, since the rules here are stricter than the stock one's.
package a2a

import (
	"context"
	"slices"
	"strings"

	wire "github.com/a2aproject/a2a-go/a2a"

	"agentenv/fault"
	"agentenv/protocol/trajectory"
)

type (
	// Part is a part of a message: a TextPart, FilePart or DataPart, as a value.
	Part = wire.Part
	// TextPart is text.
	TextPart = wire.TextPart
	// FilePart is a file: a FileBytes or a FileURI.
	FilePart = wire.FilePart
	// FileBytes is a file whose content is there, in base64.
	FileBytes = wire.FileBytes
	// FileURI is a file that is elsewhere.
	FileURI = wire.FileURI
	// DataPart is a JSON object.
	DataPart = wire.DataPart
)

// Text returns a text part.
func Text(s string) Part { return TextPart{Text: s} }

// Data returns a data part. Structured output is the data part {"structured_output": value}.
func Data(data map[string]any) Part { return DataPart{Data: data} }

// Agent is what an author writes. Exactly one of Run and Stream must be set; what they hold must not change once New has the agent.
type Agent struct {
	Identity Identity
	// Config returns a pointer to a struct that holds the defaults of the agent's configuration, a new one at each call. The struct embeds
	// BaseConfig; the json tag of a field is its name on the wire, `agent:"writeonly"` keeps it from being read back. nil: the agent takes
	// no configuration, and its card has no agent-config.
	Config func() any
	// NoReadback keeps clients from reading the configuration back.
	NoReadback bool
	// Extensions are what the agent serves besides its messages, in the order of the card.
	Extensions []Extension
	// Run answers one message. Tasks of one context come one after the other, those of others at the same time. The context ends when the
	// task is canceled or the server closes; Run must then return soon, for the next message of the context waits for it. An error that
	// it returns, or a panic, is for the log: clients see an id to find it by. A failure that clients shall see is a Result with a Failure.
	Run func(context.Context, *Request) (Result, error)
	// Stream is Run for an agent that says how far it is: its card says that it streams.
	Stream func(context.Context, *Request, Emit) (Result, error)
	// Start, when set, runs before the first request; what it returns runs after the last. An error keeps the server from starting.
	Start func(context.Context) (stop func(context.Context) error, err error)
	// Workspace is the folder the agent works in, handed to each request; "" = none.
	Workspace string
}

// Identity is what a card says about an agent.
type Identity struct {
	Name, Description, Version string // all needed
	// URL is served as it is; "" = "/a2a". It is an absolute path or an http(s) URL without query and fragment, and its path is where
	// messages are taken. General A2A clients need an http(s) URL or join a path to the address the card came from.
	URL                     string
	InputModes, OutputModes []string // nil = ["text"]
	Skills                  []CardSkill
}

// CardSkill is a skill as the card shows it.
type CardSkill struct {
	ID, Name, Description string
	Tags                  []string
}

// Request is one message to answer. It is the task's own copy: what is configured later does not show.
type Request struct {
	TaskID, ContextID string
	Parts             []Part
	// Config is what Agent.Config returned, with what was set when the task came; nil when the agent takes no configuration.
	Config any
	// MCPServers are the MCP servers that were registered, by name.
	MCPServers map[string]MCPServer
	// Skills are the skills that were installed, in order.
	Skills []Skill
	// Metadata is the message's, with the configured role, if any, as "role". Never nil.
	Metadata map[string]any
	// SessionRef is what the previous task of the context returned, "" when there is none.
	SessionRef string
	Workspace  string
	// Trajectory is the log of this task.
	Trajectory *trajectory.Log
}

// Text returns the text parts of the message, joined by line ends.
func (r *Request) Text() string {
	var all []string
	for _, p := range r.Parts {
		if t, ok := p.(TextPart); ok {
			all = append(all, t.Text)
		}
	}
	return strings.Join(all, "\n")
}

// MCPServer is a registered MCP server. Headers are secrets.
type MCPServer struct {
	URL     string
	Headers map[string]string // nil when there are none
}

// Skill is an installed skill. SkillMD is its SKILL.md when it came inline, else "".
type Skill struct{ Name, Description, SkillMD string }

// Result is the answer to a message. Without a Failure it needs at least one part.
type Result struct {
	Parts      []Part
	Failure    *Failure
	SessionRef string // for the next task of the context; "" keeps the one there is
	Usage      Usage
	Trajectory *trajectory.Native // the trajectory in another program's words, nil = the events of the log
}

// ErrorType says whose fault a failure is.
type ErrorType string

// The types of errors.
const (
	AgentError ErrorType = "agent_error"
	InfraError ErrorType = "infra_error"
)

// Failure is a failed task as clients see it.
type Failure struct {
	Code    string    // for programs: "echo.asked"
	Message string    // for people; must hold no secret
	Type    ErrorType // "" = AgentError
}

// Fail returns a failed result of type AgentError.
func Fail(code, message string) Result {
	return Result{Failure: &Failure{Code: code, Message: message, Type: AgentError}}
}

// Usage is what a task used; nil fields are not known and not sent. Counts and cost must not be negative.
type Usage struct {
	ToolCalls, InputTokens, OutputTokens, TotalTokens *int64
	CostUSD                                           *float64
	ProviderDetails                                   map[string]any
}

// Progress is something an agent says before its answer.
type Progress struct {
	Parts    []Part         // at least one
	Metadata map[string]any // merged into the task's metadata
}

// Emit sends progress to whoever follows the task. It is safe for concurrent use. After the end of the task it is a Canceled error; what is
// no JSON, or has no part, is an Invalid one.
type Emit func(Progress) error

// BaseConfig are the fields of every configuration.
type BaseConfig struct {
	Name        *string `json:"name"`        // replaces the card's
	Description *string `json:"description"` // replaces the card's
	Role        *string `json:"role"`
	// TimeoutSeconds is how long a task may take; it is the agent that keeps it.
	TimeoutSeconds int `json:"timeout_seconds" agent:"optional"`
}

// DefaultBase returns the base fields as they are before anything is set.
func DefaultBase() BaseConfig { return BaseConfig{TimeoutSeconds: 600} }

func (b *BaseConfig) base() *BaseConfig { return b }

// based is what a configuration is when it embeds BaseConfig.
type based interface{ base() *BaseConfig }

func (r Result) check() error {
	switch {
	case r.Failure == nil && len(r.Parts) == 0:
		return fault.New(fault.Invalid, "a result without a failure needs at least one part")
	case r.Failure != nil && (r.Failure.Code == "" || r.Failure.Message == ""):
		return fault.New(fault.Invalid, "a failure needs a code and a message")
	case r.Failure != nil && r.Failure.Type != "" && r.Failure.Type != AgentError && r.Failure.Type != InfraError:
		return fault.New(fault.Invalid, "a failure has the unknown type %q", r.Failure.Type)
	case r.Trajectory != nil && (r.Trajectory.Format == "" || r.Trajectory.Version < 1):
		return fault.New(fault.Invalid, "a native trajectory needs a format and a version of at least 1")
	}
	for _, n := range []*int64{r.Usage.ToolCalls, r.Usage.InputTokens, r.Usage.OutputTokens, r.Usage.TotalTokens} {
		if n != nil && *n < 0 {
			return fault.New(fault.Invalid, "a count of the usage is negative")
		}
	}
	if c := r.Usage.CostUSD; c != nil && !(*c >= 0) {
		return fault.New(fault.Invalid, "the cost of the usage is negative")
	}
	return nil
}

func (u Usage) object() map[string]any {
	out := map[string]any{}
	for name, n := range map[string]*int64{"tool_call_count": u.ToolCalls, "input_tokens": u.InputTokens, "output_tokens": u.OutputTokens, "total_tokens": u.TotalTokens} {
		if n != nil {
			out[name] = *n
		}
	}
	if u.CostUSD != nil {
		out["cost_usd"] = *u.CostUSD
	}
	if len(u.ProviderDetails) > 0 {
		out["provider_details"] = u.ProviderDetails
	}
	return out
}

// message returns the parts of the terminal message: the result's, then one data part with the usage and the failure, if any.
func (r Result) message() []Part {
	tail := map[string]any{}
	if usage := r.Usage.object(); len(usage) > 0 {
		tail["usage"] = usage
	}
	if f := r.Failure; f != nil {
		tail["error_type"], tail["error_code"], tail["error_message"] = string(f.Type), f.Code, f.Message
		if f.Type == "" {
			tail["error_type"] = string(AgentError)
		}
	}
	if len(tail) == 0 {
		return r.Parts
	}
	return append(slices.Clone(r.Parts), Data(tail))
}
