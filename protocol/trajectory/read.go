package trajectory

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"

	"agentenv/fault"
)

// The limits of one page: events, and bytes of events; a page always holds one event when there is one.
const (
	PageEvents = 1000
	PageBytes  = 4 << 20
)

// Record is a trajectory as a whole. Its parts are shared with the log and must not be changed.
type Record struct {
	native []byte
	events [][]byte
}

// WriteArray writes the trajectory itself, a compact JSON array of events (or the native trajectory, whatever JSON it is).
func (r Record) WriteArray(w io.Writer) error {
	if r.native != nil {
		_, err := w.Write(r.native)
		return err
	}
	return writeEvents(w, r.events)
}

// Size returns how many bytes WriteArray writes.
func (r Record) Size() int64 {
	if r.native != nil {
		return int64(len(r.native))
	}
	size := int64(max(len(r.events)+1, 2))
	for _, e := range r.events {
		size += int64(len(e))
	}
	return size
}

// Open returns a reader of what WriteArray writes. It never fails, and closing it is a no-op.
func (r Record) Open() (io.ReadCloser, error) {
	if r.native != nil {
		return io.NopCloser(bytes.NewReader(r.native)), nil
	}
	parts := []io.Reader{}
	for i, e := range r.events {
		separator := ","
		if i == 0 {
			separator = "["
		}
		parts = append(parts, strings.NewReader(separator), bytes.NewReader(e))
	}
	tail := "]"
	if len(r.events) == 0 {
		tail = "[]"
	}
	return io.NopCloser(io.MultiReader(append(parts, strings.NewReader(tail))...)), nil
}

// WriteTo writes {"trajectory": …}, what the extension answers. It returns the number of bytes written.
func (r Record) WriteTo(w io.Writer) (int64, error) {
	c := &counter{w: w}
	c.text(`{"trajectory":`)
	if c.err == nil {
		c.err = r.WriteArray(c)
	}
	c.text("}")
	return c.n, c.err
}

// Page is a part of a log that may still grow.
type Page struct {
	ContextID, TaskID string
	State             State
	Format            string // "" while none is set
	Events            [][]byte
	Next              int // the cursor to go on from
	HasMore           bool
}

// WriteTo writes the page as the extension answers it, a JSON object with the events as they were serialized once. It returns the number
// of bytes written.
func (p Page) WriteTo(w io.Writer) (int64, error) {
	head, err := json.Marshal(struct {
		ContextID string `json:"context_id"`
		TaskID    string `json:"task_id"`
		State     State  `json:"state"`
		Format    string `json:"format,omitempty"`
		Next      int    `json:"next"`
		HasMore   bool   `json:"has_more"`
	}{p.ContextID, p.TaskID, p.State, p.Format, p.Next, p.HasMore})
	if err != nil {
		return 0, err
	}
	c := &counter{w: w}
	c.text(string(bytes.TrimSuffix(head, []byte("}"))) + `,"events":`)
	if c.err == nil {
		c.err = writeEvents(c, p.Events)
	}
	c.text("}")
	return c.n, c.err
}

// Task returns the final trajectory of a task: the native one, else the events. NotFound for a task that is not known, has not ended, or
// ended without either.
func (s *Store) Task(id string) (Record, error) {
	v, _, err := s.task(id)
	if err != nil {
		return Record{}, err
	}
	if !v.ended() {
		return Record{}, fault.New(fault.NotFound, "the task %q goes on: its trajectory is there when it has ended", id)
	}
	if v.native == nil && len(v.events) == 0 {
		return Record{}, fault.New(fault.NotFound, "the task %q ended without a trajectory", id)
	}
	return Record{native: v.native, events: v.events}, nil
}

// Context returns all events of a context so far, in the order in which its tasks ran. NotFound for a context that is not known.
func (s *Store) Context(id string) (Record, error) {
	all, err := s.context(id)
	if err != nil {
		return Record{}, err
	}
	return Record{events: joined(all)}, nil
}

// TaskPage returns the events of a task behind a cursor: at most limit (0 = PageEvents) and PageBytes. NotFound for a task that is not
// known, Invalid for a cursor outside the log.
func (s *Store) TaskPage(id string, after, limit int) (Page, error) {
	v, context, err := s.task(id)
	if err != nil {
		return Page{}, err
	}
	return page(Page{ContextID: context, TaskID: id, State: v.state, Format: v.format}, v.events, after, limit)
}

// ContextPage returns the events of a context behind a cursor over all its tasks, as TaskPage does. The task it names is the first that has
// not ended, else the last; the state is running when any task runs, else pending when any waits, else the last task's; the format is the
// one set last.
func (s *Store) ContextPage(id string, after, limit int) (Page, error) {
	all, err := s.context(id)
	if err != nil {
		return Page{}, err
	}
	p := Page{ContextID: id}
	running, pending, setAt := false, false, int64(0)
	for _, v := range all {
		running, pending = running || v.state == Running, pending || v.state == Pending
		if v.setAt > setAt {
			setAt, p.Format = v.setAt, v.format
		}
		if p.TaskID == "" && !v.ended() {
			p.TaskID = v.task
		}
	}
	last := all[len(all)-1]
	if p.TaskID == "" {
		p.TaskID = last.task
	}
	switch {
	case running:
		p.State = Running
	case pending:
		p.State = Pending
	default:
		p.State = last.state
	}
	return page(p, joined(all), after, limit)
}

func joined(all []view) (events [][]byte) {
	for _, v := range all {
		events = append(events, v.events...)
	}
	return events
}

func page(p Page, events [][]byte, after, limit int) (Page, error) {
	if after < 0 || after > len(events) {
		return Page{}, fault.New(fault.Invalid, "the cursor %d is outside the trajectory, which has %d events", after, len(events))
	}
	if limit <= 0 || limit > PageEvents {
		limit = PageEvents
	}
	end, size := after, 0
	for end < len(events) && end-after < limit {
		if size += len(events[end]); size > PageBytes && end > after {
			break
		}
		end++
	}
	p.Events, p.Next, p.HasMore = events[after:end], end, end < len(events)
	return p, nil
}

func writeEvents(w io.Writer, events [][]byte) error {
	separator := "["
	for _, e := range events {
		if _, err := io.WriteString(w, separator); err != nil {
			return err
		}
		if _, err := w.Write(e); err != nil {
			return err
		}
		separator = ","
	}
	if len(events) == 0 {
		separator = "[]"
	} else {
		separator = "]"
	}
	_, err := io.WriteString(w, separator)
	return err
}

type counter struct {
	w   io.Writer
	n   int64
	err error
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}

func (c *counter) text(s string) {
	if c.err == nil {
		_, c.err = io.WriteString(c, s)
	}
}
