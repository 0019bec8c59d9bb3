package scripted

import (
	"fmt"
	"strings"
)

// openAI is the wire of chat completions.
type openAI struct{}

// textOf returns the text of a message's content: a string, or parts that have one.
func textOf(content any) string {
	if s, ok := content.(string); ok {
		return s
	}
	list, _ := content.([]any)
	var out []string
	for _, v := range list {
		part, _ := v.(map[string]any)
		if s, ok := part["text"].(string); ok {
			out = append(out, s)
		} else if inner, ok := part["content"]; ok { // the result of a tool
			out = append(out, textOf(inner))
		}
	}
	return strings.Join(out, "\n")
}

func readMessages(body map[string]any) (a asked) {
	list, _ := body["messages"].([]any)
	for _, v := range list {
		m, _ := v.(map[string]any)
		a.last = textOf(m["content"])
		a.words += words(a.last)
		if m["role"] == "assistant" {
			a.answers++
		}
	}
	return a
}

func (openAI) read(body map[string]any) asked { return readMessages(body) }

func (openAI) usage(a asked, t Turn) map[string]any {
	return map[string]any{"prompt_tokens": a.words, "completion_tokens": words(t.Text), "total_tokens": a.words + words(t.Text)}
}

func (openAI) finish(t Turn) string {
	if len(t.Tools) > 0 {
		return "tool_calls"
	}
	return "stop"
}

func callID(a asked, i int) string { return fmt.Sprintf("call_%d_%d", a.answers, i) }

func (o openAI) whole(model string, a asked, t Turn) map[string]any {
	message := map[string]any{"role": "assistant", "content": t.Text}
	if t.Think != "" {
		message["reasoning_content"] = t.Think
	}
	var calls []any
	for i, c := range t.Tools {
		calls = append(calls, map[string]any{"id": callID(a, i), "type": "function", "function": map[string]any{"name": c.Name, "arguments": string(c.Arguments)}})
	}
	if calls != nil {
		message["tool_calls"] = calls
	}
	return map[string]any{"id": "chatcmpl-scripted", "object": "chat.completion", "created": 0, "model": model, "usage": o.usage(a, t),
		"choices": []any{map[string]any{"index": 0, "message": message, "finish_reason": o.finish(t)}}}
}

func (o openAI) stream(e *events, model string, a asked, t Turn, body map[string]any) {
	chunk := func(delta map[string]any, finish any) map[string]any {
		return map[string]any{"id": "chatcmpl-scripted", "object": "chat.completion.chunk", "created": 0, "model": model,
			"choices": []any{map[string]any{"index": 0, "delta": delta, "finish_reason": finish}}}
	}
	e.send("", chunk(map[string]any{"role": "assistant", "content": ""}, nil))
	for _, p := range pieces(t.Think) {
		e.send("", chunk(map[string]any{"reasoning_content": p}, nil))
	}
	for _, p := range pieces(t.Text) {
		e.send("", chunk(map[string]any{"content": p}, nil))
	}
	for i, c := range t.Tools {
		call := func(id string, function map[string]any) map[string]any {
			m := map[string]any{"index": i, "function": function}
			if id != "" {
				m["id"], m["type"] = id, "function"
			}
			return map[string]any{"tool_calls": []any{m}}
		}
		e.send("", chunk(call(callID(a, i), map[string]any{"name": c.Name, "arguments": ""}), nil))
		for _, p := range pieces(string(c.Arguments)) {
			e.send("", chunk(call("", map[string]any{"arguments": p}), nil))
		}
	}
	e.send("", chunk(map[string]any{}, o.finish(t)))
	options, _ := body["stream_options"].(map[string]any)
	if with, _ := options["include_usage"].(bool); with {
		last := chunk(nil, nil)
		last["choices"], last["usage"] = []any{}, o.usage(a, t)
		e.send("", last)
	}
	e.send("", "[DONE]")
}
