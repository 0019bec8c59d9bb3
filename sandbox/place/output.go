package place

import (
	"fmt"
	"io"
	"strings"
)

const defaultKeep = 64 << 20

// Sinks takes the output of one command: into its writers, or the last bytes of each stream. Each stream is used by one
// goroutine at a time.
type Sinks struct {
	out, err  io.Writer
	kept, bad *Tail
}

// NewSinks returns the sinks that c asks for.
func NewSinks(c Cmd) *Sinks {
	keep := c.Keep
	if keep <= 0 {
		keep = defaultKeep
	}
	s := &Sinks{out: c.Stdout, err: c.Stderr, kept: &Tail{Most: keep}, bad: &Tail{Most: keep}}
	if s.out == nil {
		s.out = s.kept
	}
	if s.err == nil {
		s.err = s.bad
	}
	return s
}

// Out takes standard output; the error is the writer's.
func (s *Sinks) Out(p []byte) error { _, err := s.out.Write(p); return err }

// Err takes standard error; the error is the writer's.
func (s *Sinks) Err(p []byte) error { _, err := s.err.Write(p); return err }

// Result returns a Result with what was kept and cut.
func (s *Sinks) Result() *Result {
	r := &Result{}
	r.Stdout, r.CutStdout = s.kept.Bytes()
	r.Stderr, r.CutErr = s.bad.Bytes()
	return r
}

// Tail keeps the last Most bytes written to it, in memory of at most twice that. Not safe for concurrent use.
type Tail struct {
	Most int64
	buf  []byte
	cut  int64
}

// Write keeps p; it never fails.
func (t *Tail) Write(p []byte) (int, error) {
	n := len(p)
	if over := int64(n) - t.Most; over > 0 {
		t.cut += int64(len(t.buf)) + over
		t.buf, p = t.buf[:0], p[over:]
	}
	if int64(len(t.buf)+len(p)) > 2*t.Most {
		t.trim(t.Most - int64(len(p)))
	}
	t.buf = append(t.buf, p...)
	return n, nil
}

func (t *Tail) trim(keep int64) {
	if over := int64(len(t.buf)) - keep; over > 0 {
		t.cut += over
		t.buf = t.buf[:copy(t.buf, t.buf[over:])]
	}
}

// Bytes returns the bytes kept and how many were dropped in front of them.
func (t *Tail) Bytes() (kept []byte, cut int64) {
	t.trim(t.Most)
	return t.buf, t.cut
}

// Text returns b as valid UTF-8; every byte that is none becomes U+FFFD.
func Text(b []byte) string {
	s := string(b)
	if strings.ToValidUTF8(s, "") == s {
		return s
	}
	var w strings.Builder
	for _, r := range s { // ranging gives U+FFFD for each bad byte
		w.WriteRune(r)
	}
	return w.String()
}

// TextCut is Text with a first line that says how many bytes were cut in front, where any were.
func TextCut(b []byte, cut int64) string {
	if cut == 0 {
		return Text(b)
	}
	return fmt.Sprintf("[the first %d bytes were cut]\n%s", cut, Text(b))
}

// Last returns at most the last n bytes of text as valid UTF-8, with a note of what was cut.
func Last(text string, n int) string {
	if len(text) <= n {
		return Text([]byte(text))
	}
	cut := len(text) - n
	for cut < len(text) && text[cut]&0xC0 == 0x80 {
		cut++
	}
	return TextCut([]byte(text[cut:]), int64(cut))
}
