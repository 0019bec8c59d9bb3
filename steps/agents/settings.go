package agents

import (
	"agentenv/config"
	"agentenv/fault"
	"agentenv/store/doc"
	"agentenv/task"
	"math"
)

// model returns the model that the agent is to use: the step's override, the run's, the step's, the run's default.
func (a *promptAgent) model(r *task.Run) string {
	if v, _ := r.Param("model"); text(v) != "" {
		return text(v)
	}
	for _, s := range []string{r.Context().Str("agent_model"), a.fields.Str("model"), r.Context().Str("default_agent_model")} {
		if s != "" {
			return s
		}
	}
	return ""
}

// settings is what the agent is told before the first turn, as far as its card takes it; nothing that is unset is in it.
func (a *promptAgent) settings(r *task.Run) (*doc.Object, error) {
	f, out := a.fields, &doc.Object{}
	put := func(key string, values ...any) {
		for _, v := range values {
			if v != nil && v != "" {
				out.Set(key, v)
				return
			}
		}
	}
	effort, _ := r.Param("effort")
	put("model", a.model(r))
	put("system_prompt", f.Value("system_prompt"))
	put("effort", text(effort), text(r.Override("agent_effort")), f.Value("effort"))
	put("harness", r.Context().Value("agent_harness"), f.Value("harness"))
	put("max_turns", r.Override("agent_max_turns"), f.Value("max_turns"))
	put("max_thinking_tokens", r.Override("agent_max_thinking_tokens"), f.Value("max_thinking_tokens"))
	put("output_format", f.Value("output_format"))
	put("timeout_seconds", whole(f.Value("timeout_seconds")))
	put("task_id", r.Metadata("task_id"), r.TaskID)
	put("agentenv_tools", f.Value("agentenv_tools"))
	if params := f.Obj("model_params"); params != nil {
		v, err := resolved(a.deps.Config, params)
		if err != nil {
			return nil, fault.At(err, "model_params")
		}
		put("model_params", v)
	}
	return out, nil
}

// whole rounds a number of seconds up, since agents take whole ones alone.
func whole(v any) any {
	if n, ok := v.(doc.Number); ok && n.Finite() {
		return doc.Int(int64(math.Ceil(n.Float64())))
	}
	return v
}

// resolved returns v with every text in it that is a reference replaced by what it names.
func resolved(c *config.Config, v any) (any, error) {
	switch v := v.(type) {
	case string:
		return c.ResolveText(v)
	case []any:
		out := make([]any, len(v))
		for i, x := range v {
			var err error
			if out[i], err = resolved(c, x); err != nil {
				return nil, err
			}
		}
		return out, nil
	case *doc.Object:
		out := &doc.Object{}
		for _, k := range v.Keys() {
			x, err := resolved(c, v.Value(k))
			if err != nil {
				return nil, err
			}
			out.Set(k, x)
		}
		return out, nil
	}
	return v, nil
}
