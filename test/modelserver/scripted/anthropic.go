package scripted

// anthropic is the wire of messages.
type anthropic struct{}

func (anthropic) read(body map[string]any) asked {
	a := readMessages(body)
	a.words += words(textOf(body["system"]))
	return a
}

func (anthropic) finish(t Turn) string {
	if len(t.Tools) > 0 {
		return "tool_use"
	}
	return "end_turn"
}

func (anthropic) usage(a asked, t Turn) map[string]any {
	return map[string]any{"input_tokens": a.words, "output_tokens": words(t.Text)}
}

func (w anthropic) message(model string, a asked, t Turn) map[string]any {
	return map[string]any{"id": "msg_scripted", "type": "message", "role": "assistant", "model": model, "content": []any{}, "stop_reason": nil,
		"stop_sequence": nil, "usage": w.usage(a, t)}
}

func (w anthropic) whole(model string, a asked, t Turn) map[string]any {
	content := []any{}
	if t.Think != "" {
		content = append(content, map[string]any{"type": "thinking", "thinking": t.Think, "signature": "scripted"})
	}
	if t.Text != "" {
		content = append(content, map[string]any{"type": "text", "text": t.Text})
	}
	for i, c := range t.Tools {
		content = append(content, map[string]any{"type": "tool_use", "id": callID(a, i), "name": c.Name, "input": c.Arguments})
	}
	m := w.message(model, a, t)
	m["content"], m["stop_reason"] = content, w.finish(t)
	return m
}

func (w anthropic) stream(e *events, model string, a asked, t Turn, _ map[string]any) {
	e.send("message_start", map[string]any{"type": "message_start", "message": w.message(model, a, t)})
	index := 0
	block := func(start map[string]any, deltas []map[string]any) {
		e.send("content_block_start", map[string]any{"type": "content_block_start", "index": index, "content_block": start})
		for _, d := range deltas {
			e.send("content_block_delta", map[string]any{"type": "content_block_delta", "index": index, "delta": d})
		}
		e.send("content_block_stop", map[string]any{"type": "content_block_stop", "index": index})
		index++
	}
	of := func(kind, key, text string) (out []map[string]any) {
		for _, p := range pieces(text) {
			out = append(out, map[string]any{"type": kind, key: p})
		}
		return out
	}
	if t.Think != "" {
		block(map[string]any{"type": "thinking", "thinking": "", "signature": ""},
			append(of("thinking_delta", "thinking", t.Think), map[string]any{"type": "signature_delta", "signature": "scripted"}))
	}
	if t.Text != "" {
		block(map[string]any{"type": "text", "text": ""}, of("text_delta", "text", t.Text))
	}
	for i, c := range t.Tools {
		block(map[string]any{"type": "tool_use", "id": callID(a, i), "name": c.Name, "input": map[string]any{}},
			of("input_json_delta", "partial_json", string(c.Arguments)))
	}
	e.send("message_delta", map[string]any{"type": "message_delta", "delta": map[string]any{"stop_reason": w.finish(t), "stop_sequence": nil},
		"usage": w.usage(a, t)})
	e.send("message_stop", map[string]any{"type": "message_stop"})
}
