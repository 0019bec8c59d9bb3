package proxy

import (
	"context"
	"encoding/json"
	"math"
	"time"

	"agentenv/fault"
	"agentenv/protocol/a2a/shell"
)

const (
	toolLimit = 600 * time.Second
	bashLimit = 3600 * time.Second
	maxLimit  = 7 * 24 * time.Hour
)

// wanted is what an action is to do.
type wanted struct {
	bash         bool
	server, tool string // tool is "bash" for the shell
	arguments    map[string]any
	command      string
	limit        time.Duration
}

// key tells actions of one tool apart: the shell's by their command alone, others by their arguments, in which order and the way a number is
// written do not count.
func (w wanted) key() string {
	if w.bash {
		return w.command
	}
	text, err := json.Marshal(plain(w.arguments))
	if err != nil {
		return ""
	}
	return string(text)
}

// plain writes whole floats as integers and drops nothing else; maps are sorted when they are marshalled.
func plain(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for k, inner := range v {
			out[k] = plain(inner)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, inner := range v {
			out[i] = plain(inner)
		}
		return out
	case json.Number:
		if f, err := v.Float64(); err == nil && f == math.Trunc(f) && math.Abs(f) < 1<<53 {
			return int64(f)
		}
	case float64:
		if v == math.Trunc(v) && math.Abs(v) < 1<<53 {
			return int64(v)
		}
	}
	return v
}

func parseAction(o map[string]any) (wanted, error) {
	w := wanted{tool: "bash", limit: bashLimit}
	bad := func(text string) (wanted, error) { return w, fault.New(fault.Invalid, "action: %s", text) }
	known := map[string]bool{"kind": true, "timeout_seconds": true, "command": true}
	switch o["kind"] {
	case "bash":
		w.bash = true
		var ok bool
		if w.command, ok = o["command"].(string); !ok {
			return bad("bash needs a command")
		}
	case "tool":
		known = map[string]bool{"kind": true, "timeout_seconds": true, "server": true, "name": true, "arguments": true}
		w.limit = toolLimit
		var ok1, ok2 bool
		w.server, ok1 = o["server"].(string)
		w.tool, ok2 = o["name"].(string)
		if !ok1 || !ok2 {
			return bad("tool needs a server and a name")
		}
		w.arguments = map[string]any{}
		if v, given := o["arguments"]; given && v != nil {
			if w.arguments, given = v.(map[string]any); !given {
				return bad("arguments must be an object")
			}
		}
	default:
		return bad("kind must be tool or bash")
	}
	for k := range o {
		if !known[k] {
			return bad("it has an unknown field " + k)
		}
	}
	if v, given := o["timeout_seconds"]; given && v != nil {
		n, ok := seconds(v)
		if !ok {
			return bad("timeout_seconds must be a number greater than 0")
		}
		w.limit = n
	}
	return w, nil
}

func seconds(v any) (time.Duration, bool) {
	var f float64
	switch v := v.(type) {
	case json.Number:
		var err error
		if f, err = v.Float64(); err != nil {
			return 0, false
		}
	case float64:
		f = v
	default:
		return 0, false
	}
	if !(f > 0) || f > maxLimit.Seconds() {
		return 0, false
	}
	return time.Duration(f * float64(time.Second)), true
}

// action is one started action; result may be read once done is closed.
type action struct {
	turn   *turn
	wanted wanted

	done    chan struct{}
	result  map[string]any
	stopped bool
}

func (a *action) run(s *shell.Shell, now func() time.Time) {
	defer close(a.done)
	began := now()
	var input map[string]any
	var ok bool
	if a.wanted.bash {
		a.result, ok = a.bash(s)
		input = map[string]any{"command": a.wanted.command}
	} else {
		a.result, ok = a.tool()
		input = a.wanted.arguments
	}
	a.stopped = a.turn.ctx.Err() != nil
	_ = a.turn.logTool(began, now(), a.wanted.tool, input, a.result, ok) // a turn that is over takes no more events
}

func (a *action) bash(s *shell.Shell) (map[string]any, bool) {
	r := s.Run(a.turn.ctx, a.wanted.command, a.wanted.limit)
	out := map[string]any{"kind": "bash", "stdout": r.Stdout, "stderr": r.Stderr, "timed_out": r.TimedOut}
	if r.ExitCode != nil {
		out["exit_code"] = *r.ExitCode
	}
	return out, r.ExitCode != nil && *r.ExitCode == 0
}

func (a *action) tool() (map[string]any, bool) {
	ctx, cancel := context.WithTimeoutCause(a.turn.ctx, a.wanted.limit, fault.New(fault.Timeout, "the tool took longer than %s", a.wanted.limit))
	defer cancel()
	r, err := a.turn.servers.Call(ctx, a.wanted.server, a.wanted.tool, a.wanted.arguments)
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return map[string]any{"kind": "tool", "is_error": true, "content": []any{map[string]any{"type": "text", "text": "error: " + err.Error()}}}, false
	}
	out := map[string]any{"kind": "tool", "is_error": r.IsError, "content": r.Content}
	if r.StructuredContent != nil {
		out["structured_content"] = r.StructuredContent
	}
	return out, !r.IsError
}
