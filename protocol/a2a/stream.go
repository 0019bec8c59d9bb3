package a2a

import (
	"net/http"
	"time"

	wire "github.com/a2aproject/a2a-go/a2a"

	"agentenv/protocol/a2a/sse"
)

const (
	eventTimeout = 30 * time.Second // for a client to take the events that are there
	aliveEvery   = 15 * time.Second // silence after which a comment shows that the connection lives
	gathering    = time.Millisecond // how long the first event waits for those that follow it at once
)

// serveStream answers message/stream and tasks/resubscribe. A client that goes away ends the stream, never the task.
func (s *Server) serveStream(w http.ResponseWriter, r *http.Request, c *call) {
	first, events, from, refused := s.follow(c)
	if refused != nil {
		answer(w, response{JSONRPC: "2.0", ID: c.id, Error: refused})
		return
	}
	out := &stream{w: w, control: http.NewResponseController(w), id: c.id}
	defer func() { _ = out.control.SetWriteDeadline(time.Time{}) }()
	w.Header().Set("Content-Type", sse.ContentType)
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Accel-Buffering", "no")
	w.WriteHeader(http.StatusOK)
	if first != nil && out.events(false, first) != nil {
		return
	}
	if events == nil {
		return
	}
	alive := time.NewTicker(aliveEvery)
	defer alive.Stop()
	if first == nil {
		events.settle(from, gathering) // of a short task all events go out at once
	}
	for {
		list, last, changed := events.from(from)
		if out.events(last, list...) != nil {
			return
		}
		if from += len(list); last {
			return
		}
		alive.Reset(aliveEvery)
		select {
		case <-changed:
		case <-alive.C:
			if out.alive() != nil {
				return
			}
		case <-r.Context().Done():
			return
		}
	}
}

// follow finds what a call wants to see: the task as it is first, then the events from an index on. No events: the task ended.
func (s *Server) follow(c *call) (first *wire.Task, events *feed, from int, refused *rpcError) {
	if s.agent.Stream == nil {
		return nil, nil, 0, &rpcError{codeUnsupported, "the agent does not stream"}
	}
	if c.method == "message/stream" {
		t, _, events, refused := s.begin(c)
		if refused != nil || events != nil {
			return nil, events, 0, refused
		}
		first, events, from = t.follow()
		return first, events, from, nil
	}
	t, refused := s.known(c)
	if refused != nil {
		return nil, nil, 0, refused
	}
	if first, events, from = t.follow(); events == nil {
		return nil, nil, 0, &rpcError{codeParams, "the task " + t.id + " is " + string(first.Status.State) + " and says no more; read it with tasks/get"}
	}
	return first, events, from, nil
}

// stream writes events, each within its time.
type stream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	id      any
	text    []byte // of the last event; its room is used again
}

// events writes those that are there and sends them together; the last ones go out with the end of the answer.
func (s *stream) events(last bool, list ...any) error {
	if len(list) == 0 {
		return nil
	}
	_ = s.control.SetWriteDeadline(time.Now().Add(eventTimeout))
	for _, e := range list {
		text, err := appendResult(s.text[:0], s.id, e)
		if err != nil {
			return err
		}
		s.text = text
		if err := sse.Write(s.w, text); err != nil {
			return err
		}
	}
	if last {
		return nil
	}
	return s.control.Flush()
}

func (s *stream) alive() error {
	_ = s.control.SetWriteDeadline(time.Now().Add(eventTimeout))
	if err := sse.Comment(s.w, "alive"); err != nil {
		return err
	}
	return s.control.Flush()
}
