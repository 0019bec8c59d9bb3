package a2a_test

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"

	wire "github.com/a2aproject/a2a-go/a2a"

	"agentenv/protocol/a2a"
)

// raw returns the results of a call as they were written.
func (p *peer) raw(method, params string) (out []json.RawMessage) {
	p.t.Helper()
	_, text, _ := p.do("POST", "/a2a", `{"jsonrpc":"2.0","id":"<1>","method":"`+method+`","params":`+params+`}`)
	for line := range strings.SplitSeq(text, "\n") {
		if line = strings.TrimPrefix(line, "data: "); line == "" {
			continue
		}
		var r struct {
			ID     string
			Result json.RawMessage
		}
		if err := json.Unmarshal([]byte(line), &r); err != nil || r.ID != "<1>" || r.Result == nil {
			p.t.Fatalf("%v: %s", err, line)
		}
		out = append(out, r.Result)
	}
	return out
}

// TestWrittenAsTheLibraryWrites: tasks and events are, byte for byte, what the library's own encoder makes of them.
func TestWrittenAsTheLibraryWrites(t *testing.T) {
	t.Parallel()
	odd := "<b>\"\\ \n\u2028\x01é😀&"
	meta := map[string]any{"z": []any{1, nil, odd}, "a": map[string]any{}}
	p := serve(t, a2a.Agent{Identity: identity(), Stream: func(_ context.Context, r *a2a.Request, emit a2a.Emit) (a2a.Result, error) {
		parts := append(r.Parts, a2a.TextPart{Text: odd, Metadata: meta}, a2a.DataPart{Data: meta, Metadata: meta}, a2a.Text(""),
			a2a.FilePart{File: a2a.FileBytes{FileMeta: wire.FileMeta{Name: odd, MimeType: "x/y"}, Bytes: "AAAA"}, Metadata: meta}, a2a.FilePart{File: a2a.FileURI{URI: "https://x/?a=b&c"}})
		if err := emit(a2a.Progress{Parts: parts, Metadata: meta}); err != nil {
			return a2a.Result{}, err
		}
		return a2a.Result{Parts: parts}, nil
	}}, a2a.Settings{})
	message := `{"message":{"kind":"message","messageId":"m","contextId":"c&d","role":"user","extensions":["urn:<x>","y"],"referenceTaskIds":["one","two"],"metadata":{"k":[true]},
		"parts":[{"kind":"text","text":"hi"},{"kind":"data","data":{}}]}}`
	events := p.raw("message/stream", message)
	if len(events) != 4 {
		t.Fatalf("%d events", len(events))
	}
	check := func(text json.RawMessage, v any) {
		t.Helper()
		if err := json.Unmarshal(text, v); err != nil {
			t.Fatal(err)
		}
		want, err := json.Marshal(v)
		if err != nil || !bytes.Equal(text, want) {
			t.Errorf("%v\n%s\ninstead of\n%s", err, text, want)
		}
	}
	var task wire.Task
	check(events[0], &task)
	for _, e := range events[1:] {
		check(e, &wire.TaskStatusUpdateEvent{})
	}
	for _, whole := range p.raw("tasks/get", `{"id":"`+string(task.ID)+`"}`) {
		check(whole, &wire.Task{})
	}
}
