package agents

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"

	"agentenv/agent"
	"agentenv/agent/deploy"
	"agentenv/fault"
	"agentenv/store/doc"
	"agentenv/store/object"
)

const masked = "***"

// secrets are values that this program gave the agent, or may have, and that must not be kept should the agent say them.
type secrets []string

func (s secrets) in(text string) bool {
	for _, v := range s {
		if strings.Contains(text, v) {
			return true
		}
	}
	return false
}

// text returns a text without the values.
func (s secrets) text(text string) string { return deploy.HiddenText(text, s) }

// error returns an error whose text is without them.
func (s secrets) error(err error) error {
	if err == nil || !s.in(err.Error()) {
		return err
	}
	return &fault.Error{Kind: fault.KindOf(err), Class: fault.ClassOf(err), Msg: s.text(err.Error())}
}

// value returns a document value without them.
func (s secrets) value(v any) any { return deploy.Hidden(v, s) }

// reply takes them out of what an agent answered.
func (s secrets) reply(r *agent.Reply) {
	if len(s) == 0 || r == nil {
		return
	}
	for _, p := range []*string{&r.LastText, &r.Text, &r.ErrorMessage, &r.ErrorType, &r.ErrorCode, &r.ErrorClass} {
		*p = s.text(*p)
	}
	r.Structured = s.value(r.Structured)
	for i, p := range r.Parts {
		r.Parts[i], _ = s.value(p).(*doc.Object)
	}
}

// object takes them out of a stored object, which is written anew only if it holds one.
func (s secrets) object(ctx context.Context, store object.Store, url, kind string) error {
	if len(s) == 0 {
		return nil
	}
	found, err := s.scan(ctx, store, url)
	if err != nil || !found {
		return err
	}
	key, err := store.Key(url)
	if err != nil {
		return err
	}
	body, err := store.Open(ctx, url)
	if err != nil {
		return err
	}
	defer body.Close()
	_, err = store.Put(ctx, object.Item{Key: key, ContentType: kind, Size: -1, Body: s.reader(body)}, true)
	return err
}

func (s secrets) scan(ctx context.Context, store object.Store, url string) (bool, error) {
	body, err := store.Open(ctx, url)
	if err != nil {
		return false, err
	}
	defer body.Close()
	r := s.reader(body)
	_, err = io.Copy(io.Discard, r)
	return r.found, err
}

// masking reads a stream without the values.
type masking struct {
	secrets
	from   io.Reader
	held   []byte // read, and not given yet
	ready  int    // so much of held can be given
	longer int    // the longest value
	err    error
	found  bool
}

func (s secrets) reader(from io.Reader) *masking {
	m := &masking{secrets: s, from: from}
	for _, v := range s {
		m.longer = max(m.longer, len(v))
	}
	return m
}

func (m *masking) Read(p []byte) (int, error) {
	for m.ready == 0 {
		if m.err != nil && len(m.held) == 0 {
			return 0, m.err
		}
		m.fill()
	}
	n := copy(p, m.held[:m.ready])
	m.held, m.ready = m.held[n:], m.ready-n
	return n, nil
}

// fill reads on, and takes the values out of what is held. The end of it waits for what follows: a value may begin there.
func (m *masking) fill() {
	const chunk = 64 << 10
	if m.err == nil {
		buf := make([]byte, chunk)
		var n int
		if n, m.err = io.ReadFull(m.from, buf); errors.Is(m.err, io.ErrUnexpectedEOF) {
			m.err = io.EOF
		}
		m.held = append(m.held, buf[:n]...)
	}
	for _, v := range m.secrets {
		if bytes.Contains(m.held, []byte(v)) {
			m.found = true
			m.held = bytes.ReplaceAll(m.held, []byte(v), []byte(masked))
		}
	}
	m.ready = len(m.held)
	if m.err == nil {
		m.ready = max(0, m.ready-(m.longer-1))
	}
}
