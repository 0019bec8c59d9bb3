package modelagent

import (
	"encoding/json"

	"agentenv/fault"
)

// openAI is the wire of chat completions.
type openAI struct{}

func (openAI) path() string { return "/chat/completions" }

func (openAI) headers(key string) map[string]string {
	if key == "" {
		return nil
	}
	return map[string]string{"Authorization": "Bearer " + key}
}

func (openAI) user(pieces []piece) object {
	content := []any{}
	for _, p := range pieces {
		if p.media != "" {
			content = append(content, object{"type": "image_url", "image_url": object{"url": "data:" + p.media + ";base64," + p.base64}})
		} else {
			content = append(content, object{"type": "text", "text": p.text})
		}
	}
	return object{"role": "user", "content": content}
}

func (openAI) outcomes(list []outcome) (out []object) {
	for _, o := range list {
		out = append(out, object{"role": "tool", "tool_call_id": o.id, "content": o.text})
	}
	return out
}

func (openAI) body(name, system string, history []object, tools []tool) object {
	messages := []any{}
	if system != "" {
		messages = append(messages, object{"role": "system", "content": system})
	}
	for _, m := range history {
		messages = append(messages, m)
	}
	b := object{"model": name, "messages": messages}
	var list []any
	for _, t := range tools {
		list = append(list, object{"type": "function", "function": object{"name": t.shown, "description": t.Description, "parameters": t.InputSchema}})
	}
	if list != nil {
		b["tools"] = list
	}
	return b
}

func (openAI) read(o object) (a answer, err error) {
	choices, _ := o["choices"].([]any)
	if len(choices) == 0 {
		return a, fault.New(fault.Unavailable, "the model endpoint answered without choices")
	}
	choice, _ := choices[0].(object)
	m := inner(choice, "message")
	if m == nil {
		return a, fault.New(fault.Unavailable, "the model endpoint answered without a message")
	}
	a.raw = object{"role": "assistant", "content": m["content"]}
	a.text, _ = m["content"].(string)
	a.stop, _ = choice["finish_reason"].(string)
	usage := inner(o, "usage")
	a.in, a.out = number(usage["prompt_tokens"]), number(usage["completion_tokens"])
	list, _ := m["tool_calls"].([]any)
	for _, v := range list {
		c, _ := v.(object)
		f := inner(c, "function")
		made := call{arguments: object{}}
		made.id, _ = c["id"].(string)
		made.name, _ = f["name"].(string)
		if text, _ := f["arguments"].(string); text != "" && json.Unmarshal([]byte(text), &made.arguments) != nil {
			made.bad = "error: the arguments are no JSON object"
		}
		a.calls = append(a.calls, made)
	}
	if list != nil {
		a.raw["tool_calls"] = list
	}
	return a, nil
}

// anthropic is the wire of messages.
type anthropic struct{}

func (anthropic) path() string { return "/messages" }

func (anthropic) headers(key string) map[string]string {
	h := map[string]string{"anthropic-version": "2023-06-01"}
	if key != "" {
		h["x-api-key"] = key
	}
	return h
}

func (anthropic) user(pieces []piece) object {
	content := []any{}
	for _, p := range pieces {
		if p.media != "" {
			content = append(content, object{"type": "image", "source": object{"type": "base64", "media_type": p.media, "data": p.base64}})
		} else {
			content = append(content, object{"type": "text", "text": p.text})
		}
	}
	return object{"role": "user", "content": content}
}

func (anthropic) outcomes(list []outcome) []object {
	content := []any{}
	for _, o := range list {
		content = append(content, object{"type": "tool_result", "tool_use_id": o.id, "content": o.text, "is_error": o.failed})
	}
	return []object{{"role": "user", "content": content}}
}

func (anthropic) body(name, system string, history []object, tools []tool) object {
	b := object{"model": name, "messages": history, "max_tokens": maxTokens}
	if system != "" {
		b["system"] = system
	}
	var list []any
	for _, t := range tools {
		list = append(list, object{"name": t.shown, "description": t.Description, "input_schema": t.InputSchema})
	}
	if list != nil {
		b["tools"] = list
	}
	return b
}

func (anthropic) read(o object) (a answer, err error) {
	content, ok := o["content"].([]any)
	if !ok {
		return a, fault.New(fault.Unavailable, "the model endpoint answered without content")
	}
	a.raw = object{"role": "assistant", "content": content}
	a.stop, _ = o["stop_reason"].(string)
	usage := inner(o, "usage")
	a.in, a.out = number(usage["input_tokens"]), number(usage["output_tokens"])
	for _, v := range content {
		b, _ := v.(object)
		switch b["type"] {
		case "text":
			text, _ := b["text"].(string)
			a.text += text
		case "tool_use":
			c := call{arguments: inner(b, "input")}
			c.id, _ = b["id"].(string)
			c.name, _ = b["name"].(string)
			a.calls = append(a.calls, c)
		}
	}
	return a, nil
}
