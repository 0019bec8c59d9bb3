// Package scripted is a model server that answers what a script says: no model, no key, the same answers each time. It speaks the chat
// completions of OpenAI and the messages of Anthropic, streaming included.
package scripted

import (
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"
)

// Script says what the server answers. A request is answered by the first turn whose When is found in its last message, else by the turn
// that stands where the conversation is: the number of answers it holds already, counting turns without a When. After the last turn the last
// one repeats.
type Script struct {
	Turns []Turn `json:"turns"`
}

// Turn is one answer.
type Turn struct {
	When   string     `json:"when,omitempty"` // a regular expression (RE2)
	Text   string     `json:"text,omitempty"` // {last} stands for the text of the last message
	Think  string     `json:"think,omitempty"`
	Tools  []ToolCall `json:"tools,omitempty"`
	Delay  Duration   `json:"delay,omitempty"`
	Status int        `json:"status,omitempty"` // an HTTP error instead of an answer
	Cut    bool       `json:"cut,omitempty"`    // the connection breaks in the middle

	when *regexp.Regexp
}

// ToolCall is a tool the model calls.
type ToolCall struct {
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
}

// Duration is written as "1.5s".
type Duration time.Duration

// UnmarshalText reads a duration as Go writes it.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	*d = Duration(v)
	return err
}

// Parse reads a script from JSON. A script without turns, an unknown key and a pattern that is none are errors.
func Parse(r io.Reader) (*Script, error) {
	d := json.NewDecoder(r)
	d.DisallowUnknownFields()
	s := &Script{}
	if err := d.Decode(s); err != nil {
		return nil, fmt.Errorf("the script: %w", err)
	}
	return s, s.compile()
}

// Echo is the script that says what it was told.
func Echo() *Script { return &Script{Turns: []Turn{{Text: "{last}"}}} }

func (s *Script) compile() error {
	if len(s.Turns) == 0 {
		return fmt.Errorf("the script has no turns")
	}
	for i := range s.Turns {
		t := &s.Turns[i]
		if t.When != "" {
			re, err := regexp.Compile(t.When)
			if err != nil {
				return fmt.Errorf("turns[%d].when: %w", i, err)
			}
			t.when = re
		}
		for j, c := range t.Tools {
			if len(c.Arguments) == 0 {
				t.Tools[j].Arguments = json.RawMessage("{}")
			}
		}
	}
	return nil
}

// asked is a request as far as the script needs it.
type asked struct {
	last    string // the text of the last message
	answers int    // how many messages of the assistant there are
	words   int    // of the whole conversation, as its tokens
}

// next returns the turn that answers a request.
func (s *Script) next(a asked) Turn {
	var plain []Turn
	for _, t := range s.Turns {
		if t.when == nil {
			plain = append(plain, t)
		} else if t.when.MatchString(a.last) {
			return t.filled(a)
		}
	}
	if len(plain) == 0 {
		return Turn{Text: "The script has no turn for this."}
	}
	return plain[min(a.answers, len(plain)-1)].filled(a)
}

func (t Turn) filled(a asked) Turn {
	t.Text = strings.ReplaceAll(t.Text, "{last}", a.last)
	return t
}

// pieces cuts an answer as a model streams it.
func pieces(text string) (out []string) {
	for len(text) > 0 {
		n := min(len(text), 12)
		for n < len(text) && text[n]&0xC0 == 0x80 {
			n++ // not within a character
		}
		out, text = append(out, text[:n]), text[n:]
	}
	return out
}

func words(s string) int { return len(strings.Fields(s)) }
