package a2a

import (
	"encoding/json"
	"time"

	wire "github.com/a2aproject/a2a-go/a2a"
)

// appendJSON appends a value as json.Marshal writes it. The library's events, messages and parts write themselves, each of them one that
// holds others, so that the text of a part is gone over once for every level above it; here it is written once.
func appendJSON(b []byte, v any) ([]byte, error) {
	switch v := v.(type) {
	case *wire.TaskStatusUpdateEvent:
		return appendStatusEvent(b, v)
	case *wire.Task:
		return appendTask(b, v)
	case string:
		return appendText(b, v), nil
	}
	text, err := json.Marshal(v)
	return append(b, text...), err
}

func appendStatusEvent(b []byte, e *wire.TaskStatusUpdateEvent) (_ []byte, err error) {
	b = append(b, `{"kind":"status-update","contextId":`...)
	b = appendText(b, e.ContextID)
	if e.Final {
		b = append(b, `,"final":true`...)
	} else {
		b = append(b, `,"final":false`...)
	}
	if b, err = appendStatus(append(b, `,"status":`...), e.Status); err != nil {
		return nil, err
	}
	b = appendText(append(b, `,"taskId":`...), string(e.TaskID))
	if b, err = appendMetadata(b, e.Metadata); err != nil {
		return nil, err
	}
	return append(b, '}'), nil
}

func appendTask(b []byte, t *wire.Task) (_ []byte, err error) {
	b = appendText(append(b, `{"kind":"task","id":`...), string(t.ID))
	if len(t.Artifacts) > 0 {
		text, err := json.Marshal(t.Artifacts)
		if err != nil {
			return nil, err
		}
		b = append(append(b, `,"artifacts":`...), text...)
	}
	b = appendText(append(b, `,"contextId":`...), t.ContextID)
	for i, m := range t.History {
		if i == 0 {
			b = append(b, `,"history":[`...)
		} else {
			b = append(b, ',')
		}
		if b, err = appendMessage(b, m); err != nil {
			return nil, err
		}
	}
	if len(t.History) > 0 {
		b = append(b, ']')
	}
	if b, err = appendMetadata(b, t.Metadata); err != nil {
		return nil, err
	}
	if b, err = appendStatus(append(b, `,"status":`...), t.Status); err != nil {
		return nil, err
	}
	return append(b, '}'), nil
}

func appendStatus(b []byte, s wire.TaskStatus) (_ []byte, err error) {
	b = append(b, '{')
	if s.Message != nil {
		if b, err = appendMessage(append(b, `"message":`...), s.Message); err != nil {
			return nil, err
		}
		b = append(b, ',')
	}
	b = appendText(append(b, `"state":`...), string(s.State))
	if s.Timestamp != nil {
		b = append(s.Timestamp.AppendFormat(append(b, `,"timestamp":"`...), time.RFC3339Nano), '"')
	}
	return append(b, '}'), nil
}

func appendMessage(b []byte, m *wire.Message) (_ []byte, err error) {
	if m == nil {
		return append(b, "null"...), nil
	}
	b = appendText(append(b, `{"kind":"message","messageId":`...), m.ID)
	if m.ContextID != "" {
		b = appendText(append(b, `,"contextId":`...), m.ContextID)
	}
	if len(m.Extensions) > 0 {
		b = appendTexts(append(b, `,"extensions":`...), m.Extensions)
	}
	if b, err = appendMetadata(b, m.Metadata); err != nil {
		return nil, err
	}
	b = append(b, `,"parts":`...)
	if m.Parts == nil {
		b = append(b, "null"...)
	} else {
		b = append(b, '[')
		for i, p := range m.Parts {
			if i > 0 {
				b = append(b, ',')
			}
			if b, err = appendPart(b, p); err != nil {
				return nil, err
			}
		}
		b = append(b, ']')
	}
	if len(m.ReferenceTasks) > 0 {
		b = appendTexts(append(b, `,"referenceTaskIds":`...), m.ReferenceTasks)
	}
	b = appendText(append(b, `,"role":`...), string(m.Role))
	if m.TaskID != "" {
		b = appendText(append(b, `,"taskId":`...), string(m.TaskID))
	}
	return append(b, '}'), nil
}

func appendPart(b []byte, p Part) (_ []byte, err error) {
	switch p := p.(type) {
	case TextPart:
		b = appendText(append(b, `{"kind":"text","text":`...), p.Text)
		if b, err = appendMetadata(b, p.Metadata); err != nil {
			return nil, err
		}
		return append(b, '}'), nil
	case DataPart:
		text, err := json.Marshal(p.Data)
		if err != nil {
			return nil, err
		}
		b = append(append(b, `{"kind":"data","data":`...), text...)
		if b, err = appendMetadata(b, p.Metadata); err != nil {
			return nil, err
		}
		return append(b, '}'), nil
	}
	text, err := json.Marshal(p)
	return append(b, text...), err
}

// appendMetadata appends a further field, unless it is empty.
func appendMetadata(b []byte, o map[string]any) ([]byte, error) {
	if len(o) == 0 {
		return b, nil
	}
	text, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	return append(append(b, `,"metadata":`...), text...), nil
}

func appendTexts[T ~string](b []byte, list []T) []byte {
	b = append(b, '[')
	for i, s := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendText(b, string(s))
	}
	return append(b, ']')
}

// appendText appends a string; what needs no escape, as most texts do, is copied.
func appendText(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c >= 0x7f || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			text, _ := json.Marshal(s) // a string is always JSON
			return append(b, text...)
		}
	}
	return append(append(append(b, '"'), s...), '"')
}
