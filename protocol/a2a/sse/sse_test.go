package sse_test

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"agentenv/fault"
	"agentenv/protocol/a2a/sse"
)

func all(r io.Reader, limit int) (out []string, err error) {
	in := sse.NewReader(r, limit)
	for {
		data, err := in.Next()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return out, err
		}
		out = append(out, string(data))
	}
}

func TestRead(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, stream, want string }{
		{"one", "data: a\n\n", "a"},
		{"no space", "data:a\n\n", "a"},
		{"one space alone is taken off", "data:  a\n\n", " a"},
		{"two lines", "data: a\ndata: b\n\n", "a\nb"},
		{"an empty line of data", "data\n\n", ""},
		{"carriage returns", "data: a\r\rdata: b\r\r", "a|b"},
		{"both ends of a line", "data: a\r\n\r\ndata: b\r\n\r\n", "a|b"},
		{"other fields and comments", ": hi\nevent: x\nid: 1\nretry: 5\ndata: a\n\n: alive\n\n", "a"},
		{"an event without data", "event: x\n\ndata: a\n\n", "a"},
		{"a byte order mark", "\xef\xbb\xbfdata: a\n\n", "a"},
		{"an event that is cut off", "data: a\n\ndata: b\n", "a"},
		{"nothing", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for _, r := range []io.Reader{strings.NewReader(c.stream), iotest.OneByteReader(strings.NewReader(c.stream))} {
				got, err := all(r, 100)
				if err != nil || strings.Join(got, "|") != c.want {
					t.Errorf("%q %v", got, err)
				}
			}
		})
	}
}

func TestLimit(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		stream string
		ok     bool
	}{
		{"data: " + strings.Repeat("x", 100) + "\n\n", true},
		{"data: " + strings.Repeat("x", 101) + "\n\n", false},
		{"data: " + strings.Repeat("x", 60) + "\ndata: " + strings.Repeat("x", 60) + "\n\n", false},
		{": " + strings.Repeat("x", 1000) + "\n\n", false},
		{"data: " + strings.Repeat("x", 1000), false},
	} {
		if _, err := all(strings.NewReader(c.stream), 100); (err == nil) != c.ok || err != nil && !fault.Is(err, fault.Invalid) {
			t.Errorf("%.20s…: %v", c.stream, err)
		}
	}
}

func TestBigEvent(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	big := strings.Repeat("0123456789", 100_000)
	if err := errors.Join(sse.Write(&b, []byte(big)), sse.Comment(&b, "alive")); err != nil {
		t.Fatal(err)
	}
	if got, err := all(&b, len(big)); err != nil || len(got) != 1 || got[0] != big {
		t.Errorf("%d events, %v", len(got), err)
	}
}

func TestIs(t *testing.T) {
	t.Parallel()
	for of, want := range map[string]bool{"text/event-stream": true, "Text/Event-Stream; charset=utf-8": true, "application/json": false, "": false} {
		if sse.Is(of) != want {
			t.Error(of)
		}
	}
}

func FuzzRoundTrip(f *testing.F) {
	f.Add([]byte("a"), []byte("b\nc\r\nd\re"))
	f.Add([]byte(""), []byte("\n"))
	f.Fuzz(func(t *testing.T, one, two []byte) {
		var b bytes.Buffer
		if err := errors.Join(sse.Write(&b, one), sse.Comment(&b, "alive"), sse.Write(&b, two)); err != nil {
			t.Fatal(err)
		}
		lines := strings.NewReplacer("\r\n", "\n", "\r", "\n")
		want := []string{lines.Replace(string(one)), lines.Replace(string(two))}
		got, err := all(iotest.HalfReader(&b), 1<<20)
		if err != nil || len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
			t.Fatalf("%q, %v; want %q", got, err, want)
		}
	})
}

func FuzzRead(f *testing.F) {
	f.Add([]byte("\xef\xbb\xbfdata: a\r\ndata\n: x\n\ndata:b\r\r"))
	f.Fuzz(func(t *testing.T, stream []byte) {
		whole, err := all(bytes.NewReader(stream), 1000)
		bits, berr := all(iotest.OneByteReader(bytes.NewReader(stream)), 1000)
		if strings.Join(whole, "|") != strings.Join(bits, "|") || (err == nil) != (berr == nil) {
			t.Fatalf("%q %v, byte by byte %q %v", whole, err, bits, berr)
		}
	})
}
