package objects

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"

	"agentenv/fault"
)

const (
	// maxEvent is how large one element of an array may be, in bytes: one is held at a time.
	maxEvent = 64 << 20
	// readAhead is how much is read at once. The decoder looks at white space anew after each read, so small ones would take long.
	readAhead = 1 << 20
)

// array reads the array under a key of a JSON object and gives it as the text of an array, one element at a time. It ends without an error
// only when the object is whole.
type array struct {
	key  string
	dec  *json.Decoder
	in   *bounded
	out  bytes.Buffer
	next func() error // fills out; nil after the end
	err  error
}

func newArray(r io.Reader, key string, limit int64) *array {
	a := &array{key: key, in: &bounded{r: r, left: limit}}
	a.dec = json.NewDecoder(a.in)
	a.next = a.begin
	return a
}

// Read gives the array's text.
func (a *array) Read(p []byte) (int, error) {
	for a.out.Len() == 0 {
		switch {
		case a.err != nil:
			return 0, a.err
		case a.next == nil:
			return 0, io.EOF
		}
		a.in.element = maxEvent
		if err := a.next(); err != nil {
			a.err = a.told(err)
		}
	}
	return a.out.Read(p)
}

// told is the error of reading where that failed, else that of what was read.
func (a *array) told(err error) error {
	switch {
	case a.in.err != nil:
		return a.in.err
	case fault.Is(err, fault.Invalid):
		return err
	}
	return fault.New(fault.Invalid, "the answer is no whole JSON object: %v", err)
}

// begin passes over what stands before the array.
func (a *array) begin() error {
	if err := a.delim('{', "the answer is no JSON object"); err != nil {
		return err
	}
	for a.dec.More() {
		name, err := a.dec.Token()
		if err != nil {
			return err
		}
		if name != a.key {
			if err := a.dec.Decode(new(json.RawMessage)); err != nil {
				return err
			}
			continue
		}
		if err := a.delim('[', "the answer holds no list under "+a.key); err != nil {
			return err
		}
		a.out.WriteByte('[')
		a.next = a.first
		return nil
	}
	return fault.New(fault.Invalid, "the answer holds no list under %s", a.key)
}

func (a *array) first() error {
	a.next = a.more
	return a.element("")
}

func (a *array) more() error { return a.element(",") }

// element copies an element, or the end of the array.
func (a *array) element(before string) error {
	if !a.dec.More() {
		if err := a.delim(']', "the answer holds no whole list"); err != nil {
			return err
		}
		a.next = a.rest
		a.out.WriteByte(']')
		return nil
	}
	var v json.RawMessage
	if err := a.dec.Decode(&v); err != nil {
		return err
	}
	a.out.WriteString(before)
	a.out.Write(v)
	return nil
}

// rest passes over what stands after the array.
func (a *array) rest() error {
	for a.dec.More() {
		if _, err := a.dec.Token(); err != nil {
			return err
		}
		if err := a.dec.Decode(new(json.RawMessage)); err != nil {
			return err
		}
	}
	if err := a.delim('}', "the answer is no whole JSON object"); err != nil {
		return err
	}
	if _, err := a.dec.Token(); !errors.Is(err, io.EOF) {
		return fault.New(fault.Invalid, "the answer goes on after its JSON object")
	}
	a.next = nil
	return nil
}

// delim reads one delimiter.
func (a *array) delim(want json.Delim, otherwise string) error {
	t, err := a.dec.Token()
	if err == nil && t != want {
		err = fault.New(fault.Invalid, "%s", otherwise)
	}
	return err
}

// bounded ends what is too large.
type bounded struct {
	r       io.Reader
	left    int64 // of all
	element int64 // of this element
	err     error
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	p = p[:min(len(p), readAhead)]
	n, err := b.r.Read(p)
	for n < len(p) && err == nil {
		var more int
		more, err = b.r.Read(p[n:])
		n += more
	}
	b.left -= int64(n)
	b.element -= int64(n)
	switch {
	case b.left < 0:
		b.err = fault.New(fault.Invalid, "the answer is larger than an agent may give")
	case b.element < 0:
		b.err = fault.New(fault.Invalid, "one element of the answer is larger than %d bytes", maxEvent)
	case err != nil && !errors.Is(err, io.EOF):
		b.err = err
	default:
		return n, err
	}
	return 0, b.err
}
