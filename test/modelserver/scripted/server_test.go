package scripted_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"agentenv/test/modelserver/scripted"
)

func serve(t *testing.T, script string) (*scripted.Server, string) {
	t.Helper()
	s, err := scripted.Parse(strings.NewReader(script))
	if err != nil {
		t.Fatal(err)
	}
	server, err := scripted.New(s, "k")
	if err != nil {
		t.Fatal(err)
	}
	h := httptest.NewServer(server)
	t.Cleanup(h.Close)
	return server, h.URL + "/v1"
}

func post(t *testing.T, url, body string) (int, string, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-Api-Key", "k")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text), err
}

const script = `{"turns":[{"when":"weather","text":"It rains.","think":"hm"},{"text":"First {last}","tools":[{"name":"look","arguments":{"at":"é and more than twelve"}}]},{"text":"Then."}]}`

// answers are what both wires must give for a conversation, whole and streamed.
var answers = []struct{ messages, want string }{
	{`[{"role":"user","content":"hi"}]`, `First hi|look {"at":"é and more than twelve"}`},
	{`[{"role":"user","content":[{"type":"text","text":"hi"}]},{"role":"assistant","content":"x"},{"role":"user","content":"go"}]`, "Then."},
	{`[{"role":"user","content":"hi"},{"role":"assistant","content":"x"},{"role":"user","content":"the weather?"}]`, "(hm)It rains."},
}

func TestOpenAI(t *testing.T) {
	t.Parallel()
	_, url := serve(t, script)
	for _, c := range answers {
		_, text, _ := post(t, url+"/chat/completions", `{"model":"m","messages":`+c.messages+`}`)
		var whole struct {
			Choices []struct{ Message message }
			Usage   struct {
				Total int `json:"total_tokens"`
			}
		}
		decode(t, text, &whole)
		if got := whole.Choices[0].Message.text(); got != c.want || whole.Usage.Total == 0 {
			t.Errorf("whole: %s", text)
		}
		_, text, _ = post(t, url+"/chat/completions", `{"model":"m","stream":true,"stream_options":{"include_usage":true},"messages":`+c.messages+`}`)
		var m message
		total, done := 0, false
		for _, data := range events(text) {
			if data == "[DONE]" {
				done = true
				break
			}
			var chunk struct {
				Choices []struct{ Delta message }
				Usage   *struct {
					Total int `json:"total_tokens"`
				}
			}
			decode(t, data, &chunk)
			for _, choice := range chunk.Choices {
				m.add(choice.Delta)
			}
			if chunk.Usage != nil {
				total = chunk.Usage.Total
			}
		}
		if m.text() != c.want || !done || total != whole.Usage.Total {
			t.Errorf("streamed: %q, %v, %d", m.text(), done, total)
		}
	}
}

type message struct {
	Content   string
	ToolCalls []struct {
		Function struct{ Name, Arguments string }
	} `json:"tool_calls"`
	Thinking string `json:"reasoning_content"`
}

func (m *message) add(d message) {
	m.Content += d.Content
	m.Thinking += d.Thinking
	for i, c := range d.ToolCalls {
		if c.Function.Name != "" {
			m.ToolCalls = append(m.ToolCalls, d.ToolCalls[i])
			continue
		}
		m.ToolCalls[len(m.ToolCalls)-1].Function.Arguments += c.Function.Arguments
	}
}

func (m *message) text() string {
	s := m.Content
	if m.Thinking != "" {
		s = "(" + m.Thinking + ")" + s
	}
	for _, c := range m.ToolCalls {
		s += "|" + c.Function.Name + " " + c.Function.Arguments
	}
	return s
}

func TestAnthropic(t *testing.T) {
	t.Parallel()
	_, url := serve(t, script)
	type block struct {
		Type, Thinking, Text, Name string
		Input                      json.RawMessage
		Partial                    string `json:"partial_json"`
	}
	show := func(b block) string {
		switch b.Type {
		case "thinking":
			return "(" + b.Thinking + ")"
		case "tool_use":
			return "|" + b.Name + " " + string(b.Input)
		}
		return b.Text
	}
	for _, c := range answers {
		_, text, _ := post(t, url+"/messages", `{"model":"m","max_tokens":10,"messages":`+c.messages+`}`)
		var whole struct{ Content []block }
		decode(t, text, &whole)
		got := ""
		for _, b := range whole.Content {
			got += show(b)
		}
		if got != c.want {
			t.Errorf("whole: %s", text)
		}
		_, text, _ = post(t, url+"/messages", `{"model":"m","max_tokens":10,"stream":true,"messages":`+c.messages+`}`)
		var blocks []block
		stopped := false
		for _, data := range events(text) {
			var e struct {
				Type  string
				Block block `json:"content_block"`
				Delta block
			}
			decode(t, data, &e)
			switch e.Type {
			case "content_block_start":
				e.Block.Input = nil
				blocks = append(blocks, e.Block)
			case "content_block_delta":
				b := &blocks[len(blocks)-1]
				b.Text, b.Thinking, b.Input = b.Text+e.Delta.Text, b.Thinking+e.Delta.Thinking, append(b.Input, e.Delta.Partial...)
			case "message_stop":
				stopped = true
			}
		}
		got = ""
		for _, b := range blocks {
			got += show(b)
		}
		if got != c.want || !stopped {
			t.Errorf("streamed: %q", got)
		}
	}
}

func decode(t *testing.T, text string, into any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), into); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
}

func events(text string) (out []string) {
	lines := bufio.NewScanner(strings.NewReader(text))
	for lines.Scan() {
		if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
			out = append(out, data)
		}
	}
	return out
}

// TestFaults are those that a script asks for, and those of whoever asks.
func TestFaults(t *testing.T) {
	t.Parallel()
	s, url := serve(t, `{"turns":[{"when":"busy","status":529},{"when":"cut","text":"a long answer that does not come","cut":true},{"text":"x"}]}`)
	ask := func(path, content string) string {
		status, text, err := post(t, url+path, `{"stream":true,"messages":[{"role":"user","content":"`+content+`"}]}`)
		return fmt.Sprint(status, err != nil, strings.Contains(text, "message_stop") || strings.Contains(text, "DONE"))
	}
	for _, c := range []struct{ path, content, want string }{
		{"/messages", "busy", "529 false false"}, {"/messages", "cut", "200 true false"}, {"/chat/completions", "cut", "200 true false"}, {"/other", "x", "404 false false"},
		{"/messages", "x", "200 false true"},
	} {
		if got := ask(c.path, c.content); got != c.want {
			t.Errorf("%s %s: %s, want %s", c.path, c.content, got, c.want)
		}
	}
	if n := len(s.Requests()); n != 5 || s.Requests()[0].Body["messages"] == nil {
		t.Errorf("%d requests are remembered", n)
	}
	r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/messages", strings.NewReader(`{}`))
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("without the key: %d", resp.StatusCode)
	}
	for _, bad := range []string{`{}`, `{"turns":[]}`, `{"turns":[{"when":"("}]}`, `{"turns":[{"say":"x"}]}`, `{"turns":[{"delay":"soon"}]}`} {
		if _, err := scripted.Parse(strings.NewReader(bad)); err == nil {
			t.Errorf("%s is taken", bad)
		}
	}
}
