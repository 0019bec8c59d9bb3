// Package echo is an agent without a model that answers what it was told, the same each time: for tests and demonstrations, and as an
// example of the kit.
//
// A message "hi" is answered "Echo: hi". Some messages do more: "live-steps N" appends N events to the trajectory first, one a second;
// "sleep N" takes N seconds; "say N" answers N characters; "fail" fails and "boom" breaks.
package echo

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"agentenv/protocol/a2a"
)

// Format names the events in the trajectories of the agent.
const Format = "agentenv-echo-agent/v1"

// The limits of what a message can ask for.
const (
	maxSteps = 3600
	maxSleep = 24 * 60 * 60
	maxSay   = 16 << 20
)

// Config is what the agent takes, and uses nothing of.
type Config struct {
	a2a.BaseConfig
	Model        string         `json:"model"`
	SystemPrompt string         `json:"system_prompt"`
	TaskID       string         `json:"task_id"`
	ModelParams  map[string]any `json:"model_params" agent:"writeonly"`
}

// New returns the agent's server; the caller must Close it. Extensions beside the agent's own go behind them on the card.
func New(ctx context.Context, settings a2a.Settings, more ...a2a.Extension) (*a2a.Server, error) {
	return a2a.New(ctx, Agent(more...), settings)
}

// Agent returns the agent itself. Extensions beside the agent's own go behind them on the card.
func Agent(more ...a2a.Extension) a2a.Agent {
	return a2a.Agent{
		Identity: a2a.Identity{Name: "Echo", Description: "Answers what it is told", Version: "1.0.0"},
		Config:   func() any { return &Config{BaseConfig: a2a.DefaultBase()} },
		Extensions: append([]a2a.Extension{a2a.MCPConfig(), a2a.Trajectory(true), a2a.Triggers(),
			a2a.SkillConfig(func(context.Context, a2a.Skill) error { return nil }, nil)}, more...),
		Stream: answer,
	}
}

// event is what the trajectory says about an answer, or a step on the way to it.
type event struct {
	Type   string `json:"type"`
	Step   int    `json:"step,omitempty"`
	Input  string `json:"input,omitempty"`
	Output string `json:"output,omitempty"`
}

func answer(ctx context.Context, r *a2a.Request, emit a2a.Emit) (a2a.Result, error) {
	if err := r.Trajectory.SetFormat(Format); err != nil {
		return a2a.Result{}, err
	}
	prompt := r.Text()
	out := "Echo: " + prompt
	switch word, n := command(prompt); word {
	case "fail":
		return a2a.Fail("echo.asked", "the message asked for a failure"), nil
	case "boom":
		return a2a.Result{}, errors.New("the message asked for a defect")
	case "sleep":
		if err := sleep(ctx, time.Duration(min(n, maxSleep))*time.Second); err != nil {
			return a2a.Result{}, err
		}
	case "say":
		out = strings.Repeat("x", min(n, maxSay))
	case "live-steps":
		if err := steps(ctx, r, emit, min(n, maxSteps)); err != nil {
			return a2a.Result{}, err
		}
	}
	if err := r.Trajectory.Append(event{Type: "echo", Input: prompt, Output: out}); err != nil {
		return a2a.Result{}, err
	}
	tools := int64(0)
	return a2a.Result{Parts: []a2a.Part{a2a.Text(out)}, Usage: a2a.Usage{ToolCalls: &tools}}, nil
}

// command reads "word" or "word N"; any other prompt is no command.
func command(prompt string) (word string, n int) {
	word, number, numbered := strings.Cut(strings.TrimSpace(prompt), " ")
	if !numbered {
		if word == "fail" || word == "boom" {
			return word, 0
		}
		return "", 0
	}
	n, err := strconv.Atoi(number)
	if err != nil || n < 0 || word == "fail" || word == "boom" {
		return "", 0
	}
	return word, n
}

func steps(ctx context.Context, r *a2a.Request, emit a2a.Emit, n int) error {
	for i := range n {
		if i > 0 {
			if err := sleep(ctx, time.Second); err != nil {
				return err
			}
		}
		if err := r.Trajectory.Append(event{Type: "step", Step: i + 1}); err != nil {
			return err
		}
		if err := emit(a2a.Progress{Parts: []a2a.Part{a2a.Text("step " + strconv.Itoa(i+1))}, Metadata: map[string]any{"step": i + 1}}); err != nil {
			return err
		}
	}
	return nil
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
