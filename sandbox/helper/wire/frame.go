// Package wire is what the helper inside a container and the program outside say to each other: frames over one exec's
// standard streams. The first frame from outside is a Request; standard input that ends without an End frame means that
// the other side died, and everything begun for it is undone. Only the standard library is used, to keep the helper small.
package wire

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"sync"
)

// MaxFrame is the largest payload of a frame, in bytes; a longer one ends the conversation with an error.
const MaxFrame = 1 << 20

// Type says what a frame carries.
type Type byte

// The frame types. Towards the helper: Ask (a Request), Data, End (of the data), Kill (a KillRequest), Skip (an entry not
// to send) and Go (the skips are complete; what was to be moved aside was). From the helper: Begun, Out, Err, Exit (an ExitStatus), Failed (a Failure),
// Item (an Entry), Body, BodyEnd (empty, or a Failure), Aside (an Offer), Listed (the list is complete) and Done.
const (
	Ask     Type = 'Q'
	Data    Type = 'I'
	End     Type = 'E'
	Kill    Type = 'K'
	Skip    Type = 'S'
	Go      Type = 'G'
	Begun   Type = 'B'
	Out     Type = 'O'
	Err     Type = 'R'
	Exit    Type = 'X'
	Failed  Type = 'F'
	Item    Type = 'N'
	Body    Type = 'D'
	BodyEnd Type = 'Z'
	Aside   Type = 'A'
	Listed  Type = 'L'
	Done    Type = '.'
)

// Writer writes frames. Safe for concurrent use; each frame goes out in one piece.
type Writer struct {
	mu sync.Mutex
	w  *bufio.Writer
}

// NewWriter returns a Writer on w.
func NewWriter(w io.Writer) *Writer { return &Writer{w: bufio.NewWriterSize(w, 256<<10)} }

// Put buffers a frame; Flush or Send sends it. The payload may be reused afterwards.
func (w *Writer) Put(t Type, payload []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.put(t, payload)
}

// Send writes a frame and everything buffered before it.
func (w *Writer) Send(t Type, payload []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.put(t, payload); err != nil {
		return err
	}
	return w.w.Flush()
}

// SendJSON sends v as the JSON payload of a frame.
func (w *Writer) SendJSON(t Type, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return w.Send(t, b)
}

// Flush sends what is buffered.
func (w *Writer) Flush() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.w.Flush()
}

func (w *Writer) put(t Type, payload []byte) error {
	if len(payload) > MaxFrame {
		return fmt.Errorf("frame of %d bytes, at most %d are allowed", len(payload), MaxFrame)
	}
	var head [5]byte
	head[0] = byte(t)
	binary.BigEndian.PutUint32(head[1:], uint32(len(payload)))
	if _, err := w.w.Write(head[:]); err != nil {
		return err
	}
	_, err := w.w.Write(payload)
	return err
}

// Reader reads frames. Not safe for concurrent use.
type Reader struct {
	r   *bufio.Reader
	buf []byte
}

// NewReader returns a Reader on r.
func NewReader(r io.Reader) *Reader { return &Reader{r: bufio.NewReaderSize(r, 256<<10)} }

// Next returns the next frame; its payload is valid until the next call. io.EOF means that the stream ended between two
// frames, io.ErrUnexpectedEOF that it ended inside one.
func (r *Reader) Next() (Type, []byte, error) {
	var head [5]byte
	if _, err := io.ReadFull(r.r, head[:]); err != nil {
		return 0, nil, err
	}
	n := binary.BigEndian.Uint32(head[1:])
	if n > MaxFrame {
		return 0, nil, fmt.Errorf("frame of %d bytes, at most %d are allowed", n, MaxFrame)
	}
	if cap(r.buf) < int(n) {
		r.buf = make([]byte, n)
	}
	b := r.buf[:n]
	if _, err := io.ReadFull(r.r, b); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return 0, nil, err
	}
	return Type(head[0]), b, nil
}

// DataReader reads the Data frames of r as one stream until End. A stream that ends otherwise gives io.ErrUnexpectedEOF.
type DataReader struct {
	R    *Reader
	rest []byte
	end  error
}

// Read implements io.Reader.
func (d *DataReader) Read(p []byte) (int, error) {
	for len(d.rest) == 0 {
		if d.end != nil {
			return 0, d.end
		}
		t, b, err := d.R.Next()
		switch {
		case err == io.EOF:
			d.end = io.ErrUnexpectedEOF
		case err != nil:
			d.end = err
		case t == End:
			d.end = io.EOF
		case t == Data:
			d.rest = b
		default:
			d.end = fmt.Errorf("unexpected frame %q in a data stream", byte(t))
		}
	}
	n := copy(p, d.rest)
	d.rest = d.rest[n:]
	return n, nil
}
