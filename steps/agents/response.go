package agents

import (
	"encoding/json"
	"errors"
	"strings"

	"agentenv/protocol/card"
	"agentenv/store/doc"
)

// response is the record of the whole prompt: of the last turn what it said, of all turns what they were asked and left behind.
func (t *talk) response(err error) *doc.Object {
	last := t.turns[len(t.turns)-1].reply
	var prompt any
	if t.hasPrompt {
		prompt = t.prompt
	}
	var prompts, urls []any
	var trajectory any
	var calls any
	var usage *doc.Object
	var sum int64
	for i, one := range t.turns {
		if i == 0 && t.hasPrompt {
			prompts = append(prompts, nil)
		} else {
			prompts = append(prompts, list(one.prompt))
		}
		urls = append(urls, textOrNull(one.trajectory))
		if one.trajectory != "" {
			trajectory = one.trajectory
		}
		if n := one.reply.ToolCalls; n != nil {
			sum += *n
			calls = doc.Int(sum)
		}
		usage = added(usage, one.reply.Usage)
	}
	kind, message := last.ErrorType, last.ErrorMessage
	var f *failed
	if errors.As(err, &f) {
		if kind == "" && (f.err != nil || f.state != "failed") {
			kind = f.kind()
		}
		switch {
		case message != "":
		case f.err != nil:
			message = f.err.Error()
		default:
			message = last.LastText
		}
	}
	var each any = urls
	if t.agent.Card.Extension(card.Trajectory) == nil {
		each = nil
	}
	out := doc.Of("prompt_id", t.promptAgent.id, "response", last.LastText, "prompt_text", prompt, "agent_trajectory_file_path", nil,
		"source_agent_per_turn_prompt_parts", prompts, "tool_call_count", calls, "model", textOrNull(t.model), "error_type", textOrNull(kind),
		"error_code", textOrNull(last.ErrorCode), "error_message", textOrNull(message), "agent_session_id", last.TaskID, "a2a_context_id", t.context,
		"agent_name", t.promptAgent.agent, "step_id", t.r.StepID, "structured_output", structured(last.Structured, last.LastText))
	for _, suffix := range []string{"_object_", "_s3_"} {
		one := "url"
		if suffix == "_s3_" {
			one = "uri"
		}
		out.Set("agent_trajectory"+suffix+one, trajectory).Set("agent_trajectory"+suffix+"prefix", textOrNull(t.prefix)).Set("target_agent_per_turn_trajectory"+suffix+one+"s", each)
	}
	out.Set("response_text", last.Text)
	if usage != nil {
		out.Set("usage", usage)
	}
	return out
}

func list(parts []*doc.Object) []any {
	out := make([]any, len(parts))
	for i, p := range parts {
		out[i] = p
	}
	return out
}

// added returns the usage of two turns together: amounts are summed, of anything else the later one stands.
func added(a, b *doc.Object) *doc.Object {
	if a == nil || b == nil {
		if a == nil {
			return b
		}
		return a
	}
	out := a.Clone()
	for _, k := range b.Keys() {
		v := b.Value(k)
		old, wasNumber := out.Value(k).(doc.Number)
		n, isNumber := v.(doc.Number)
		if wasNumber && isNumber {
			v = plus(old, n)
		}
		out.Set(k, v)
	}
	return out
}

func plus(a, b doc.Number) doc.Number {
	x, whole := a.Int64()
	y, both := b.Int64()
	if s := x + y; whole && both && (s > x) == (y > 0) {
		return doc.Int(s)
	}
	if s := doc.Float(a.Float64() + b.Float64()); s.Finite() {
		return s
	}
	return b
}

// searched is how much text is read in search of a structured output, counted as often as it is read: a text full of open braces is given up.
const searched = 16 << 20

// structured returns the typed output, else the last JSON object that stands in a text and in no other.
func structured(typed any, text string) any {
	if typed != nil {
		return typed
	}
	var found any
	for left := searched; left > 0; {
		i := strings.IndexByte(text, '{')
		if i < 0 {
			break
		}
		text = text[i:]
		var raw json.RawMessage
		d := json.NewDecoder(strings.NewReader(text))
		if err := d.Decode(&raw); err != nil {
			left -= max(int(d.InputOffset()), offset(err, len(text)))
			text = text[1:]
			continue
		}
		left -= len(raw)
		if o, err := doc.ParseObject(raw, doc.Options{}); err == nil {
			found = o
		}
		text = text[len(raw):]
	}
	return found
}

// offset is how far a decoder read into a text before it failed.
func offset(err error, whole int) int {
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		return int(syntax.Offset)
	}
	return whole
}
