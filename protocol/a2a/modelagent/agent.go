// Package modelagent is a small agent around a model: it answers with the tools of its MCP servers, the agents it was told of and, where its
// machine has one, a shell, and knows the skills that it was given as text. Its conversations can be kept and gone on with. It speaks to any
// endpoint that takes OpenAI's chat completions or Anthropic's messages.
package modelagent

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	wire "github.com/a2aproject/a2a-go/a2a"

	"agentenv/fault"
	"agentenv/protocol/a2a"
	"agentenv/protocol/a2a/mcptools"
	"agentenv/protocol/a2a/shell"
	"agentenv/protocol/transfer"
)

// Format names the events in the trajectories of the agent.
const Format = "agentenv-model-agent/v1"

const (
	defaultTurns = 50
	maxTokens    = 16384 // of one answer, where the endpoint wants a number and model_params gives none
	maxContexts  = 1024
	bashLimit    = 10 * time.Minute
)

// Options say which model the agent asks.
type Options struct {
	BaseURL string // of the endpoint, with or without /v1
	APIKey  string // a secret; "" = none is sent
	Headers map[string]string
	// API is "openai" or "anthropic"; "" = anthropic for Anthropic's own host, else openai.
	API   string
	Model string       // used where the configuration names none
	Dir   string       // where commands run, "" = the current folder
	HTTP  *http.Client // nil = one of its own
	Log   *slog.Logger // nil = none
}

// FromEnv returns the options that a container's environment names: LITELLM_BASE_URL, LITELLM_API_KEY, LITELLM_EXTRA_HEADERS (a JSON object;
// passed over when it is none), AGENTENV_MODEL_API and AGENTENV_MODEL.
func FromEnv(getenv func(string) string) Options {
	o := Options{BaseURL: getenv("LITELLM_BASE_URL"), APIKey: getenv("LITELLM_API_KEY"), API: getenv("AGENTENV_MODEL_API"), Model: getenv("AGENTENV_MODEL")}
	_ = json.Unmarshal([]byte(getenv("LITELLM_EXTRA_HEADERS")), &o.Headers)
	return o
}

// Config is what the agent takes.
type Config struct {
	a2a.BaseConfig
	Model        string         `json:"model"`
	SystemPrompt string         `json:"system_prompt"`
	MaxTurns     int            `json:"max_turns" agent:"min=1"` // calls of the model for one message
	OutputFormat map[string]any `json:"output_format"`           // a JSON schema that the answer is to fit
	ModelParams  map[string]any `json:"model_params" agent:"writeonly"`
	TaskID       string         `json:"task_id"`
}

// Agent returns the agent. Options that name no endpoint, or an API that is none, are Invalid.
func Agent(o Options) (a2a.Agent, error) {
	u, err := url.Parse(o.BaseURL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return a2a.Agent{}, fault.New(fault.Invalid, "LITELLM_BASE_URL must be the URL of a model endpoint")
	}
	if o.API == "" {
		o.API = "openai"
		if u.Hostname() == "anthropic.com" || strings.HasSuffix(u.Hostname(), ".anthropic.com") {
			o.API = "anthropic"
		}
	}
	talker, known := map[string]dialect{"openai": openAI{}, "anthropic": anthropic{}}[o.API]
	if !known {
		return a2a.Agent{}, fault.New(fault.Invalid, "AGENTENV_MODEL_API must be openai or anthropic")
	}
	if o.HTTP == nil {
		o.HTTP = &http.Client{}
	}
	objects := transfer.NewClient(transfer.Options{Log: o.Log})
	m := &model{o: o, talk: talker, shell: shell.Find(o.Dir), contexts: map[string][]object{}}
	return a2a.Agent{
		Identity: a2a.Identity{Name: "Model", Description: "Answers with a model and its tools", Version: "1.0.0"},
		Config: func() any {
			return &Config{BaseConfig: a2a.DefaultBase(), MaxTurns: defaultTurns}
		},
		Extensions: []a2a.Extension{a2a.MCPConfig(), a2a.Trajectory(true), a2a.Triggers(), a2a.PeerAgents(),
			a2a.SkillConfig(func(context.Context, a2a.Skill) error { return nil }, nil), a2a.Snapshot(snapshots{m, objects})},
		Stream: m.answer,
		Start: func(context.Context) (func(context.Context) error, error) {
			return func(context.Context) error {
				objects.Close()
				if m.shell != nil {
					m.shell.Close()
				}
				return nil
			}, nil
		},
	}, nil
}

type object = map[string]any

// model is the agent at work.
type model struct {
	o     Options
	talk  dialect
	shell *shell.Shell // nil = none

	mu       sync.Mutex
	contexts map[string][]object // the conversation of each context, in the words of the endpoint
	order    []string
}

func (m *model) history(id string) []object {
	list, _ := m.remembered(id)
	return list
}

// remembered returns a conversation, and whether there is one.
func (m *model) remembered(id string) ([]object, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	list, known := m.contexts[id]
	return append([]object(nil), list...), known
}

func (m *model) keep(id string, list []object) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, known := m.contexts[id]; !known {
		if m.order = append(m.order, id); len(m.order) > maxContexts {
			delete(m.contexts, m.order[0])
			m.order = m.order[1:]
		}
	}
	m.contexts[id] = list
}

// answer asks the model, runs the tools it calls, and asks again, until it calls none.
func (m *model) answer(ctx context.Context, r *a2a.Request, emit a2a.Emit) (a2a.Result, error) {
	c := r.Config.(*Config)
	if err := r.Trajectory.SetFormat(Format); err != nil {
		return a2a.Result{}, err
	}
	name := c.Model
	if name == "" {
		name = m.o.Model
	}
	if name == "" {
		return a2a.Fail("model.unnamed", "no model is configured: set model, or AGENTENV_MODEL"), nil
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(c.TimeoutSeconds)*time.Second)
	defer cancel()
	t := &talk{model: m, request: r, config: c, name: name, emit: emit, servers: mcptools.New(with(c.Role, r.MCPServers), m.o.HTTP)}
	defer t.servers.Close()
	result := t.run(ctx)
	if ctx.Err() != nil && result.Failure != nil {
		result.Failure = &a2a.Failure{Code: "model.timeout", Message: fmt.Sprintf("the answer took longer than %d s", c.TimeoutSeconds), Type: a2a.AgentError}
	}
	calls := t.calls
	total := t.in + t.out
	result.Usage = a2a.Usage{ToolCalls: &calls, InputTokens: &t.in, OutputTokens: &t.out, TotalTokens: &total}
	return result, nil
}

// with adds the role an agent acts in to what its servers are told.
func with(role *string, servers map[string]a2a.MCPServer) map[string]a2a.MCPServer {
	if role == nil || *role == "" {
		return servers
	}
	out := map[string]a2a.MCPServer{}
	for name, s := range servers {
		h := map[string]string{}
		for k, v := range s.Headers {
			if !strings.EqualFold(k, "AgentEnv-Role") {
				h[k] = v
			}
		}
		h["AgentEnv-Role"] = *role
		out[name] = a2a.MCPServer{URL: s.URL, Headers: h}
	}
	return out
}

// input reads a message's parts; ok is false for a part that the agent does not take.
func input(parts []a2a.Part) (out []piece, ok bool) {
	for _, p := range parts {
		switch p := p.(type) {
		case wire.TextPart:
			out = append(out, piece{text: p.Text})
		case wire.DataPart:
			text, err := json.Marshal(p.Data)
			if err != nil {
				return nil, false
			}
			out = append(out, piece{text: string(text)})
		case wire.FilePart:
			f, isBytes := p.File.(wire.FileBytes)
			if !isBytes || !strings.HasPrefix(f.MimeType, "image/") {
				return nil, false
			}
			out = append(out, piece{media: f.MimeType, base64: f.Bytes})
		default:
			return nil, false
		}
	}
	return out, true
}

// piece is text, or an image.
type piece struct{ text, media, base64 string }
