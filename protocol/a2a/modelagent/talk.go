package modelagent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"agentenv/protocol/a2a"
	"agentenv/protocol/a2a/mcptools"
	"agentenv/protocol/peers"
)

// talk is one message being answered.
type talk struct {
	*model
	request *a2a.Request
	config  *Config
	name    string // of the model
	emit    a2a.Emit
	servers *mcptools.Set

	tools          []tool
	calls, in, out int64
}

// tool is what the model may call.
type tool struct {
	mcptools.Tool
	shown string // its name for the model
	shell bool
}

// call is a tool the model calls.
type call struct {
	id, name  string
	arguments object
	bad       string // why the arguments cannot be used
}

// outcome is what a tool gave.
type outcome struct {
	call
	text   string
	failed bool
}

// event is one step of the trajectory.
type event struct {
	Type    string `json:"type"` // message, model or tool
	Time    string `json:"time"`
	Model   string `json:"model,omitempty"`
	Message object `json:"message,omitempty"`
	Usage   object `json:"usage,omitempty"`
	Tool    string `json:"tool,omitempty"`
	Input   object `json:"input,omitempty"`
	Output  string `json:"output,omitempty"`
	Failed  bool   `json:"failed,omitempty"`
}

func (t *talk) log(e event) error {
	e.Time = time.Now().UTC().Format(time.RFC3339Nano)
	return t.request.Trajectory.Append(e)
}

func fail(code string, err error) a2a.Result {
	return a2a.Result{Failure: &a2a.Failure{Code: code, Message: err.Error(), Type: a2a.InfraError}}
}

func (t *talk) run(ctx context.Context) a2a.Result {
	pieces, ok := input(t.request.Parts)
	if !ok {
		return a2a.Fail("model.unsupported_part", "this agent takes text, data, and images by their bytes")
	}
	if err := t.list(ctx); err != nil {
		return fail("model.tools", err)
	}
	history := t.history(t.request.ContextID)
	first := t.talk.user(pieces)
	history = append(history, first)
	if err := t.log(event{Type: "message", Message: first}); err != nil {
		return fail("model.trajectory", err)
	}
	for range t.config.MaxTurns {
		a, err := t.ask(ctx, history)
		if err != nil {
			return t.refused(err)
		}
		history = append(history, a.raw)
		t.in, t.out = t.in+a.in, t.out+a.out
		if err := t.log(event{Type: "model", Model: t.name, Message: a.raw, Usage: object{"input_tokens": a.in, "output_tokens": a.out}}); err != nil {
			return fail("model.trajectory", err)
		}
		if len(a.calls) == 0 {
			t.keep(t.request.ContextID, history)
			return t.finish(a)
		}
		if err := t.emit(a2a.Progress{Parts: []a2a.Part{a2a.Text(progress(a))}, Metadata: object{"tool_calls": t.calls + int64(len(a.calls))}}); err != nil {
			return fail("model.canceled", err)
		}
		outcomes, err := t.act(ctx, a.calls)
		if err != nil {
			return fail("model.trajectory", err)
		}
		history = append(history, t.talk.outcomes(outcomes)...)
		if ctx.Err() != nil {
			return fail("model.canceled", ctx.Err())
		}
	}
	return a2a.Fail("model.max_turns", fmt.Sprintf("the model still calls tools after %d turns; raise max_turns", t.config.MaxTurns))
}

func progress(a answer) string {
	var names []string
	for _, c := range a.calls {
		names = append(names, c.name)
	}
	return strings.TrimSpace(a.text + "\ncalls " + strings.Join(names, ", "))
}

// finish makes the result of an answer that calls no tool.
func (t *talk) finish(a answer) a2a.Result {
	if strings.TrimSpace(a.text) == "" {
		return a2a.Fail("model.empty", "the model answered nothing ("+a.stop+")")
	}
	r := a2a.Result{Parts: []a2a.Part{a2a.Text(a.text)}}
	if t.config.OutputFormat == nil {
		return r
	}
	var v any
	if err := json.Unmarshal([]byte(unfenced(a.text)), &v); err != nil {
		return a2a.Fail("model.output_format", "the model's answer is no JSON")
	}
	r.Parts = append(r.Parts, a2a.Data(object{"structured_output": v}))
	return r
}

// unfenced drops the fence that models put around JSON.
func unfenced(s string) string {
	s = strings.TrimSpace(s)
	if rest, ok := strings.CutPrefix(s, "```"); ok {
		if _, body, ok := strings.Cut(rest, "\n"); ok {
			return strings.TrimSuffix(strings.TrimSpace(body), "```")
		}
	}
	return s
}

func (t *talk) refused(err error) a2a.Result {
	var status *statusError
	if errors.As(err, &status) && status.status/100 == 4 && status.status != 429 {
		r := a2a.Fail(fmt.Sprintf("model.http_%d", status.status), err.Error())
		if status.status != 400 && status.status != 413 && status.status != 422 { // a wrong key, endpoint or model: nothing the agent did
			r.Failure.Type = a2a.InfraError
		}
		return r
	}
	return fail("model.unavailable", err)
}

func (t *talk) system() string {
	s := t.config.SystemPrompt
	for _, skill := range t.request.Skills {
		s = strings.TrimSpace(s + "\n\n# Skill " + skill.Name + "\n\n" + skill.Description + "\n\n" + skill.SkillMD)
	}
	if t.config.OutputFormat != nil {
		text, err := json.Marshal(t.config.OutputFormat)
		if err == nil {
			s = strings.TrimSpace(s + "\n\nAnswer with JSON alone, that fits this JSON schema: " + string(text))
		}
	}
	return s
}

// list finds the tools; those of two servers with one name are told apart by their server.
func (t *talk) list(ctx context.Context) error {
	if t.shell != nil {
		t.tools = append(t.tools, tool{mcptools.Tool{Name: "bash", Description: "Run a command line with " + t.shell.Name() + " on the agent's machine",
			InputSchema: json.RawMessage(`{"type":"object","properties":{"command":{"type":"string"}},"required":["command"]}`)}, "bash", true})
	}
	found, err := t.servers.List(ctx)
	if err != nil {
		return err
	}
	if found, err = t.reachable(ctx, found); err != nil {
		return err
	}
	count := map[string]int{"bash": 1}
	for _, f := range found {
		count[f.Name]++
	}
	for _, f := range found {
		shown := f.Name
		if count[f.Name] > 1 {
			shown = f.Server + "_" + f.Name
		}
		if f.InputSchema == nil {
			f.InputSchema = json.RawMessage(`{"type":"object"}`)
		}
		t.tools = append(t.tools, tool{f, shown, false})
	}
	return nil
}

// reachable leaves the tools for talking to other agents out where there is nobody to talk to.
func (t *talk) reachable(ctx context.Context, found []mcptools.Tool) ([]mcptools.Tool, error) {
	toPeers := func(f mcptools.Tool) bool { return f.Server == peers.ServerName }
	if !slices.ContainsFunc(found, toPeers) {
		return found, nil
	}
	r, err := t.servers.Call(ctx, peers.ServerName, "peer_list", object{})
	if err != nil {
		return nil, err
	}
	for _, c := range r.Content {
		if text, ok := c.(*mcp.TextContent); ok && strings.TrimSpace(text.Text) != "[]" {
			return found, nil
		}
	}
	return slices.DeleteFunc(found, toPeers), nil
}

// act runs calls one after the other.
func (t *talk) act(ctx context.Context, calls []call) (out []outcome, err error) {
	for _, c := range calls {
		t.calls++
		o := outcome{call: c}
		o.text, o.failed = t.use(ctx, c)
		if err := t.log(event{Type: "tool", Tool: c.name, Input: c.arguments, Output: o.text, Failed: o.failed}); err != nil {
			return nil, err
		}
		out = append(out, o)
	}
	return out, nil
}

func (t *talk) use(ctx context.Context, c call) (text string, failed bool) {
	if c.bad != "" {
		return c.bad, true
	}
	for _, tool := range t.tools {
		switch {
		case tool.shown != c.name:
		case tool.shell:
			command, ok := c.arguments["command"].(string)
			if !ok {
				return "error: command must be a string", true
			}
			r := t.shell.Run(ctx, command, bashLimit)
			return shellText(r.ExitCode, r.Stdout, r.Stderr, r.TimedOut), r.ExitCode == nil || *r.ExitCode != 0
		default:
			r, err := t.servers.Call(ctx, tool.Server, tool.Name, c.arguments)
			if err != nil {
				return "error: " + err.Error(), true
			}
			var texts []string
			for _, p := range r.Content {
				text, err := json.Marshal(p)
				var part struct{ Type, Text string }
				if err == nil && json.Unmarshal(text, &part) == nil && part.Type == "text" {
					texts = append(texts, part.Text)
				} else {
					texts = append(texts, string(text))
				}
			}
			return strings.Join(texts, "\n"), r.IsError
		}
	}
	return "error: there is no tool " + c.name, true
}

func shellText(code *int, stdout, stderr string, timedOut bool) string {
	s := stdout
	if stderr != "" {
		s += "\n[stderr]\n" + stderr
	}
	switch {
	case timedOut:
		s += "\n[it took too long and was stopped]"
	case code == nil:
		s += "\n[it was stopped]"
	case *code != 0:
		s += fmt.Sprintf("\n[exit code %d]", *code)
	}
	return s
}
