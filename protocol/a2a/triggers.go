package a2a

import (
	"context"

	"agentenv/protocol/card"
	"agentenv/protocol/triggers"
)

// Triggers returns the extension by which rules decide, before any model is asked, what a simulated user says and when it ends the talk.
func Triggers() Extension {
	return Extension{URI: card.Triggers, Description: "Rules for what a simulated user says", bind: func(s *Server) []Operation {
		engine := triggers.New(s.settings.Now)
		return []Operation{
			Op("register", func(_ context.Context, in triggersRegister) (triggersRegistered, error) {
				r, err := engine.Register(in.Triggers)
				return triggersRegistered{true, r.Added, r.All}, err
			}),
			Op("decide", func(ctx context.Context, in triggersDecide) (triggersDecided, error) {
				d, err := engine.Decide(ctx, triggers.Turn{Number: int64(in.Turn), Message: in.SolverMessage, Context: in.ContextID, Envs: in.EnvTriggers})
				out := triggersDecided{Parts: []any{}, Done: d.Done, Fired: d.Fired}
				if d.Text != "" {
					out.Parts = append(out.Parts, Text(d.Text))
				}
				return out, err
			}),
			Op("state", func(context.Context, struct{}) (map[string]any, error) { return engine.State(), nil }),
		}
	}}
}

type triggersRegister struct {
	Triggers []any `json:"triggers"`
}

type triggersRegistered struct {
	OK    bool     `json:"ok"`
	Added []string `json:"added"`
	All   []string `json:"all"`
}

type triggersDecide struct {
	Turn          int                          `json:"turn" agent:"min=1"`
	SolverMessage string                       `json:"solver_message" agent:"optional,max=200000"`
	ContextID     string                       `json:"context_id" agent:"optional,min=1,max=256"`
	EnvTriggers   map[string]map[string]string `json:"env_triggers" agent:"optional"`
}

type triggersDecided struct {
	Parts []any    `json:"parts"`
	Done  bool     `json:"done"`
	Fired []string `json:"fired"`
}
