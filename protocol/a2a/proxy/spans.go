package proxy

import (
	"encoding/json"
	"time"

	"agentenv/protocol/a2a"
)

// span is one event of the trajectory, in the words of OpenTelemetry's conventions for generative AI.
type span struct {
	Name       string         `json:"name"`
	Start      string         `json:"start_time"`
	End        string         `json:"end_time"`
	Status     spanStatus     `json:"status"`
	Attributes map[string]any `json:"attributes"`
}

type spanStatus struct {
	Code string `json:"status_code"`
}

func (t *turn) append(name string, start, end time.Time, ok bool, attributes map[string]any) error {
	status := "OK"
	if !ok {
		status = "ERROR"
	}
	const form = "2006-01-02T15:04:05.000000Z"
	return t.request.Trajectory.Append(span{name, start.UTC().Format(form), end.UTC().Format(form), spanStatus{status}, attributes})
}

// text is a value as the JSON string that prompt and completion attributes hold.
func text(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return "null"
	}
	return string(b)
}

func (t *turn) logTool(start, end time.Time, tool string, input, result map[string]any, ok bool) error {
	return t.append("execute_tool "+tool, start, end, ok, map[string]any{"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": tool,
		"gen_ai.prompt": text(map[string]any{"input": input}), "gen_ai.completion": text(result)})
}

// logChat notes one call of the model; the time it took is not known.
func (t *turn) logChat(now time.Time, m message, in toRecord) error {
	attributes := map[string]any{"gen_ai.operation.name": "chat", "gen_ai.completion": text(m.whole)}
	name := "chat"
	if in.Model != nil {
		name, attributes["gen_ai.request.model"] = "chat "+*in.Model, *in.Model
	}
	for key, names := range map[string][]string{"gen_ai.usage.input_tokens": {"input_tokens", "prompt_tokens"}, "gen_ai.usage.output_tokens": {"output_tokens", "completion_tokens"}} {
		for _, n := range names {
			if v, given := in.Usage[n]; given && v != nil {
				attributes[key] = v
				break
			}
		}
	}
	return t.append(name, now, now, true, attributes)
}

// log notes the whole turn.
func (t *turn) log(end time.Time, r a2a.Result) error {
	attributes := map[string]any{"gen_ai.operation.name": "chain", "gen_ai.prompt": text(t.request.Parts)}
	if r.Failure != nil {
		attributes["gen_ai.completion"] = text(map[string]any{"error": r.Failure.Message})
	} else {
		attributes["gen_ai.completion"] = text(r.Parts)
	}
	return t.append("turn", t.began, end, r.Failure == nil, attributes)
}
