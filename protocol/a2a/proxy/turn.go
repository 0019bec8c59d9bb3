package proxy

import (
	"context"
	"encoding/json"
	"path/filepath"
	"sync"
	"time"

	"agentenv/fault"
	"agentenv/protocol/a2a"
	"agentenv/protocol/a2a/mcptools"
	"agentenv/protocol/a2a/shell"
)

// turn is one message that waits for the driver.
type turn struct {
	id      string
	request *a2a.Request
	began   time.Time
	ctx     context.Context //nolint:containedctx // the turn's life: actions that outlive a call of the driver end with it
	cancel  context.CancelCauseFunc
	servers *mcptools.Set
	replied chan a2a.Result // holds one
	acting  sync.WaitGroup

	listing sync.Mutex // one listing at a time
	offered []offer    // nil = not listed yet

	mu       sync.Mutex
	ran      int64
	recorded bool
	pending  []call // recorded calls to offered tools that have not run
}

func isText(p a2a.Part) bool {
	text, err := json.Marshal(p)
	var kind struct{ Kind string }
	return err == nil && json.Unmarshal(text, &kind) == nil && kind.Kind == "text"
}

func newTurn(ctx context.Context, r *a2a.Request, o Options) *turn {
	t := &turn{id: r.TaskID, request: r, began: o.Now(), servers: mcptools.New(r.MCPServers, o.HTTP), replied: make(chan a2a.Result, 1)}
	t.ctx, t.cancel = context.WithCancelCause(ctx)
	return t
}

// shown is what the driver sees.
func (t *turn) shown(skills string) map[string]any {
	out := map[string]any{"task_id": t.id, "context_id": t.request.ContextID, "parts": t.request.Parts}
	list := []any{}
	for _, s := range t.request.Skills {
		list = append(list, map[string]any{"name": s.Name, "description": s.Description, "path": filepath.Join(skills, s.Name)})
	}
	out["skills"] = list
	if c, _ := t.request.Config.(*Config); c != nil && c.SystemPrompt != "" {
		out["system_prompt"] = c.SystemPrompt
	}
	return out
}

// finish replies; the first reply counts.
func (t *turn) finish(r a2a.Result) {
	t.mu.Lock()
	n := t.ran
	t.mu.Unlock()
	r.Usage.ToolCalls = &n
	select {
	case t.replied <- r:
	default:
	}
}

// offer is a tool that a driver's model may use.
type offer struct {
	mcptools.Tool
	shell bool
}

func (o offer) shown() map[string]any {
	m := map[string]any{"name": o.Name}
	if o.Description != "" {
		m["description"] = o.Description
	}
	if o.InputSchema != nil {
		m["input_schema"] = o.InputSchema
	}
	if !o.shell {
		m["server"] = o.Server
	}
	return m
}

// bashTool is the tool of the machine's shell.
func bashTool(s *shell.Shell) offer {
	text := "Run a command line with bash in the agent's working folder"
	if s.Name() != "bash" {
		text = "Run a command line with sh, as there is no bash, in the agent's working folder"
	}
	return offer{mcptools.Tool{Name: "bash", Description: text,
		InputSchema: json.RawMessage(`{"type":"object","properties":{"command":{"type":"string"},"timeout_seconds":{"type":"number"}},"required":["command"]}`)}, true}
}

// offer lists the tools, once a turn.
func (t *turn) offer(ctx context.Context, s *shell.Shell) ([]offer, error) {
	t.listing.Lock()
	defer t.listing.Unlock()
	if t.offered != nil {
		return t.offered, nil
	}
	ctx, cancel := context.WithTimeout(ctx, listLimit)
	defer cancel()
	list := []offer{}
	if s != nil {
		list = append(list, bashTool(s))
	}
	tools, err := t.servers.List(ctx)
	if err != nil {
		return nil, answered{502, "unavailable", err.Error()}
	}
	from := map[string]string{}
	if s != nil {
		from["bash"] = "the shell"
	}
	for _, tool := range tools {
		if other, taken := from[tool.Name]; taken {
			return nil, fault.New(fault.Conflict, "the tool %q comes from %s and from the MCP server %q", tool.Name, other, tool.Server)
		}
		from[tool.Name] = "the MCP server \"" + tool.Server + "\""
		list = append(list, offer{Tool: tool})
	}
	t.offered = list
	return list, nil
}

// owed returns how many recorded calls have not run.
func (t *turn) owed() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.pending)
}

// check makes sure, where calls are recorded, that the tools are known by which an action is told apart.
func (t *turn) check(ctx context.Context, s *shell.Shell) error {
	t.mu.Lock()
	recorded := t.recorded
	t.mu.Unlock()
	if !recorded {
		return nil
	}
	_, err := t.offer(ctx, s)
	return err
}

// take uses up the recorded call that an action is, where calls are recorded at all.
func (t *turn) take(w wanted) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.recorded {
		i := t.match(w)
		if i < 0 {
			return fault.New(fault.Conflict, "the action is none of the calls that were recorded and have not run")
		}
		t.pending = append(t.pending[:i], t.pending[i+1:]...)
	}
	t.ran++
	return nil
}

func (t *turn) match(w wanted) int {
	for i, c := range t.pending {
		if c.shell == w.bash && c.server == w.server && c.name == w.tool && c.key == w.key() {
			return i
		}
	}
	return -1
}

// record notes what the model said and which of its calls are to run.
func (t *turn) record(now time.Time, m message, in toRecord, offered []offer) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.pending) > 0 {
		return fault.New(fault.Conflict, "%d recorded calls of tools have not run; run them, then record the next message", len(t.pending))
	}
	if err := t.logChat(now, m, in); err != nil {
		return err
	}
	t.recorded = true
	for _, c := range m.calls {
		for _, o := range offered {
			if o.Name != c.name {
				continue
			}
			w := wanted{bash: o.shell, server: o.Server, tool: c.name, arguments: c.arguments}
			if o.shell {
				w.command, _ = c.arguments["command"].(string)
			}
			t.pending = append(t.pending, call{shell: o.shell, server: o.Server, name: c.name, key: w.key()})
		}
	}
	return nil
}

// call is a recorded call to an offered tool.
type call struct {
	shell             bool
	server, name, key string
}
