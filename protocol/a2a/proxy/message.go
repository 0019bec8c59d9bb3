package proxy

import (
	"encoding/json"

	"agentenv/fault"
)

// message is what a driver's model said.
type message struct {
	calls []madeCall
	whole any // as it was recorded
}

type madeCall struct {
	name      string
	arguments map[string]any
}

// parseMessage reads a message: a string, or one of an assistant as OpenAI's chat completions or Anthropic's messages have it.
func parseMessage(v any) (message, error) {
	m := message{whole: v}
	o, isObject := v.(map[string]any)
	if _, isText := v.(string); isText {
		return m, nil
	}
	if !isObject {
		return m, fault.New(fault.Invalid, "message must be a string or an object")
	}
	if o["role"] != "assistant" {
		return m, fault.New(fault.Invalid, "message: its role must be assistant")
	}
	switch content := o["content"].(type) {
	case nil, string:
	case []any:
		for _, b := range content {
			block, ok := b.(map[string]any)
			if !ok {
				return m, fault.New(fault.Invalid, "message: its content must be text or blocks")
			}
			if err := m.block(block); err != nil {
				return m, err
			}
		}
	default:
		return m, fault.New(fault.Invalid, "message: its content must be text or blocks")
	}
	list, _ := o["tool_calls"].([]any)
	if v, given := o["tool_calls"]; given && v != nil && list == nil {
		return m, fault.New(fault.Invalid, "message: its tool_calls must be a list")
	}
	for _, c := range list {
		call, _ := c.(map[string]any)
		function, _ := call["function"].(map[string]any)
		name, ok := function["name"].(string)
		if !ok {
			return m, fault.New(fault.Invalid, "message: each of its tool_calls needs a function with a name")
		}
		arguments := map[string]any{}
		if text, _ := function["arguments"].(string); text != "" {
			// What is no object is no call that could be run; the tool says so when it is.
			_ = json.Unmarshal([]byte(text), &arguments)
		}
		m.calls = append(m.calls, madeCall{name, arguments})
	}
	return m, nil
}

func (m *message) block(b map[string]any) error {
	switch b["type"] {
	case "text", "thinking", "redacted_thinking":
		return nil
	case "tool_use":
		name, ok := b["name"].(string)
		if !ok {
			return fault.New(fault.Invalid, "message: a tool_use block needs a name")
		}
		arguments, _ := b["input"].(map[string]any)
		m.calls = append(m.calls, madeCall{name, arguments})
		return nil
	}
	return fault.New(fault.Invalid, "message: its blocks may be text, thinking, redacted_thinking and tool_use")
}
