// Package sse writes and reads server-sent events that carry data only, of any size. Source: the WHATWG HTML standard, section 9.2.
package sse

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"mime"
	"strings"

	"agentenv/fault"
)

// ContentType is the media type of a stream of events.
const ContentType = "text/event-stream"

// Is reports whether a Content-Type header names a stream of events.
func Is(contentType string) bool {
	t, _, err := mime.ParseMediaType(contentType)
	return err == nil && strings.EqualFold(t, ContentType)
}

// Write writes one event; each line of data goes to a field of its own, so that a reader gets the data back as it was, but for its line
// ends, which become "\n".
func Write(w io.Writer, data []byte) error {
	if bytes.IndexByte(data, '\r') >= 0 {
		data = bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n"))
		data = bytes.ReplaceAll(data, []byte("\r"), []byte("\n"))
	}
	var b bytes.Buffer
	b.Grow(len(data) + 16)
	for line := range bytes.SplitSeq(data, []byte("\n")) {
		b.WriteString("data: ")
		b.Write(line)
		b.WriteByte('\n')
	}
	b.WriteByte('\n')
	_, err := w.Write(b.Bytes())
	return err
}

// Comment writes a line that readers skip; it keeps a silent connection alive. The text must be one line.
func Comment(w io.Writer, text string) error {
	_, err := io.WriteString(w, ": "+text+"\n\n")
	return err
}

// Reader reads the events of a stream. It is not safe for concurrent use.
type Reader struct {
	r     *bufio.Reader
	limit int
	first bool
	cr    bool // the last line ended in a carriage return: a line feed that follows belongs to it
}

// NewReader returns a reader that refuses events whose data, or lines that, are longer than limit bytes.
func NewReader(r io.Reader, limit int) *Reader {
	return &Reader{r: bufio.NewReader(r), limit: limit, first: true}
}

// Next returns the data of the next event that has some; other fields and comments are skipped. io.EOF at the end of the stream, also when
// it ends inside an event, whose data is then dropped; an Invalid error for an event over the limit, after which the reader is of no use.
func (r *Reader) Next() ([]byte, error) {
	var data []byte
	has := false
	for {
		line, err := r.line()
		if err != nil {
			return nil, err
		}
		if r.first {
			r.first = false
			line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
		}
		if len(line) == 0 {
			if has {
				return data, nil
			}
			continue
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		if string(name) != "data" {
			continue
		}
		if has {
			data = append(data, '\n')
		}
		has = true
		if data = append(data, bytes.TrimPrefix(value, []byte(" "))...); len(data) > r.limit {
			return nil, fault.New(fault.Invalid, "an event of the stream is longer than %d bytes", r.limit)
		}
	}
}

func (r *Reader) line() ([]byte, error) {
	var line []byte
	for {
		if _, err := r.r.Peek(1); err != nil {
			return nil, err
		}
		chunk, err := r.r.Peek(r.r.Buffered())
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return nil, err
		}
		if r.cr {
			r.cr = false
			if chunk[0] == '\n' {
				_, _ = r.r.Discard(1)
				continue
			}
		}
		end := bytes.IndexAny(chunk, "\r\n")
		if end < 0 {
			line = append(line, chunk...)
			_, _ = r.r.Discard(len(chunk))
		} else {
			line = append(line, chunk[:end]...)
			r.cr = chunk[end] == '\r'
			_, _ = r.r.Discard(end + 1)
		}
		if len(line) > r.limit+len("data: ") {
			return nil, fault.New(fault.Invalid, "a line of the stream is longer than %d bytes", r.limit)
		}
		if end >= 0 {
			return line, nil
		}
	}
}
