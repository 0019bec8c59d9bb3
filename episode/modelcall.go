package episode

import (
	"agentenv/fault"
	"agentenv/store/doc"
)

// ModelCall is one answer of the model behind an outside agent.
type ModelCall struct {
	// Message is a text, an assistant message of OpenAI's chat API (content, tool_calls), or one of Anthropic's messages API (content
	// blocks), as a document value.
	Message any
	Model   string // "" = not said
}

// toolCalls returns what the model asked for; an Invalid error when the message is none of the forms.
func (m ModelCall) toolCalls() ([]ToolCall, error) {
	if _, text := m.Message.(string); text {
		return nil, nil
	}
	message, ok := m.Message.(*doc.Object)
	if !ok || message == nil {
		return nil, fault.New(fault.Invalid, "field \"message\" needs a string or an assistant message, not %s", doc.TypeName(m.Message))
	}
	if role := message.Value("role"); role != "assistant" {
		return nil, fault.New(fault.Invalid, "message: field \"role\" needs \"assistant\"; the answer of a model is recorded, nothing else")
	}
	var calls []ToolCall
	switch content := message.Value("content").(type) {
	case nil, string:
	case []any:
		for i, v := range content {
			block, ok := v.(*doc.Object)
			kind := block.Str("type")
			if !ok || kind == "" {
				return nil, fault.New(fault.Invalid, "message: content[%d] needs an object with a \"type\", not %s", i, doc.TypeName(v))
			}
			if kind != "tool_use" {
				continue
			}
			c, err := toolCall(block.Value("name"), block.Value("input"))
			if err != nil {
				return nil, fault.At(err, "message: content[%d]", i)
			}
			calls = append(calls, c)
		}
	default:
		return nil, fault.New(fault.Invalid, "message: field \"content\" needs a string, a list or null, not %s", doc.TypeName(content))
	}
	list, ok := message.Value("tool_calls").([]any)
	if !ok && message.Value("tool_calls") != nil {
		return nil, fault.New(fault.Invalid, "message: field \"tool_calls\" needs a list, not %s", doc.TypeName(message.Value("tool_calls")))
	}
	for i, v := range list {
		o, _ := v.(*doc.Object)
		f := o.Obj("function")
		if f == nil {
			return nil, fault.New(fault.Invalid, "message: tool_calls[%d] needs an object with a \"function\"", i)
		}
		c, err := toolCall(f.Value("name"), f.Value("arguments"))
		if err != nil {
			return nil, fault.At(err, "message: tool_calls[%d]", i)
		}
		calls = append(calls, c)
	}
	return calls, nil
}

// toolCall reads a call; its arguments are an object, or the JSON text of one. Models write broken texts, which are no error: such a call has no name,
// since no tool can run it.
func toolCall(name, args any) (ToolCall, error) {
	n, ok := name.(string)
	if !ok || n == "" {
		return ToolCall{}, fault.New(fault.Invalid, "the tool call has no name")
	}
	switch args := args.(type) {
	case nil:
		return ToolCall{Name: n}, nil
	case *doc.Object:
		return ToolCall{n, args}, nil
	case string:
		if args == "" {
			return ToolCall{Name: n}, nil
		}
		o, err := doc.ParseObject([]byte(args), doc.Options{})
		if err != nil {
			return ToolCall{}, nil //nolint:nilerr // see above
		}
		return ToolCall{n, o}, nil
	}
	return ToolCall{}, fault.New(fault.Invalid, "the arguments of %q need an object, or its JSON text, not %s", n, doc.TypeName(args))
}
