package local

import (
	"context"
	"errors"
	"io"

	"agentenv/fault"
	"agentenv/sandbox/helper/tree"
	"agentenv/sandbox/helper/wire"
	"agentenv/sandbox/place"
)

// reader gives a walk as a place.Tree: the walk runs in a goroutine that waits while an entry is being read.
type reader struct {
	next   chan item
	resume chan struct{}
	stop   context.CancelFunc
	done   chan struct{}
	cur    io.Reader
	busy   bool
	closed bool
	err    error
}

type item struct {
	e    place.Entry
	body io.Reader
}

func newReader(ctx context.Context, h *host, roots []string, req place.GetRequest) *reader {
	ctx, stop := context.WithCancel(ctx)
	r := &reader{next: make(chan item), resume: make(chan struct{}), stop: stop, done: make(chan struct{})}
	o := tree.Options{Follow: req.Follow, Recurse: true}
	if req.Skip != nil {
		o.Skip = func(root int, name string) bool { return req.Skip(req.Roots[root], name) }
	}
	go func() {
		defer close(r.done)
		err := tree.Walk(roots, o, func(w wire.Entry, open func() (*tree.Body, error)) error {
			it := item{e: place.FromWire(w)}
			if open != nil && it.e.Err == nil {
				b, err := open()
				if err != nil {
					it.e.Err = fault.Wrap(fault.Kind(wire.KindOf(err)), err, "")
				} else {
					defer b.Close()
					it.e.Size, it.body = b.Size, b
				}
			}
			select {
			case r.next <- it:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			select {
			case <-r.resume:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		})
		r.err = io.EOF
		if err != nil {
			r.err = fault.At(err, "read files on the %s", h)
		}
	}()
	return r
}

func (r *reader) Next() (place.Entry, error) {
	if r.busy {
		r.busy = false
		select {
		case r.resume <- struct{}{}:
		case <-r.done:
		}
	}
	r.cur = nil
	select {
	case it := <-r.next:
		r.cur, r.busy = it.body, true
		return it.e, nil
	case <-r.done:
		return place.Entry{}, r.err
	}
}

func (r *reader) Read(p []byte) (int, error) {
	if r.cur == nil {
		return 0, io.EOF
	}
	n, err := r.cur.Read(p)
	var f *wire.Failure
	if errors.As(err, &f) {
		err = fault.New(fault.Kind(f.Kind), "%s", f.Msg)
	}
	return n, err
}

func (r *reader) Close() error {
	if !r.closed {
		r.closed = true
		r.stop()
		<-r.done
	}
	return nil
}
