package sqlite

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"agentenv/fault"
)

// maxBatch bounds how many calls share a commit, so that none waits for very many others.
const maxBatch = 128

// request is one write call waiting for its commit.
type request struct {
	fn       func(*session) error
	turn     chan bool // true: lead the next commit; false: the result is there
	leading  bool
	err      error
	panicked any
}

// commitQueue holds the calls that wait. The first to come leads: it commits what has gathered, its own call included,
// hands the lead to the next in line, and returns. So there is no goroutine to own, and none waits longer than two commits.
type commitQueue struct {
	mu     sync.Mutex
	queue  []*request
	active bool
	idle   *sync.Cond
}

func (q *commitQueue) drain() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.idle == nil {
		q.idle = sync.NewCond(&q.mu)
	}
	for q.active {
		q.idle.Wait()
	}
}

// write runs fn in a committed transaction. When it returns nil the effects are on the disk; otherwise there are none.
func (s *Store) write(ctx context.Context, fn func(*session) error) error {
	if err := ctx.Err(); err != nil {
		return fault.Wrap(fault.KindOf(err), context.Cause(ctx), "document store %s", s.path)
	}
	r := &request{fn: fn, turn: make(chan bool, 1)}
	q := &s.commits
	q.mu.Lock()
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	if closed {
		q.mu.Unlock()
		return errClosed(s.path)
	}
	q.queue = append(q.queue, r)
	lead := !q.active
	q.active = true
	q.mu.Unlock()

	if !lead {
		select {
		case lead = <-r.turn:
		case <-ctx.Done():
			if q.withdraw(r) {
				return fault.Wrap(fault.KindOf(ctx.Err()), context.Cause(ctx), "document store %s: waiting to write", s.path)
			}
			lead = <-r.turn
		}
	}
	if lead {
		s.lead()
	}
	if r.panicked != nil {
		panic(r.panicked)
	}
	return s.explain(r.err)
}

// withdraw takes r out of the queue unless its turn has come.
func (q *commitQueue) withdraw(r *request) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.Index(q.queue, r)
	if i < 0 || r.leading {
		return false
	}
	q.queue = slices.Delete(q.queue, i, i+1)
	return true
}

func (s *Store) lead() {
	q := &s.commits
	q.mu.Lock()
	n := min(len(q.queue), maxBatch)
	batch := slices.Clone(q.queue[:n])
	q.queue = slices.Delete(q.queue, 0, n)
	q.mu.Unlock()

	if err := s.commit(batch); err != nil {
		for _, r := range batch {
			if r.err == nil {
				r.err = err
			}
		}
	}
	for _, r := range batch[1:] {
		r.turn <- false
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.queue) > 0 {
		q.queue[0].leading = true
		q.queue[0].turn <- true
		return
	}
	q.active = false
	if q.idle != nil {
		q.idle.Broadcast()
	}
}

// commit runs the calls of a batch in one transaction. What a call itself did wrong is left in the request; an error here
// means that nothing of the batch was kept.
func (s *Store) commit(batch []*request) error {
	// A caller that gives up must not break the commit of the others, so its context stays out of this.
	ctx := context.Background()
	w, err := s.writeSession(ctx)
	if err != nil {
		return err
	}
	if err := s.begin(ctx, w); err != nil {
		return err
	}
	abandon := func() {
		w.forget()
		if err := w.exec(ctx, "ROLLBACK"); err != nil {
			s.dropWriter()
		}
	}
	kept := 0
	for _, r := range batch {
		if len(batch) > 1 {
			if err := w.exec(ctx, "SAVEPOINT one"); err != nil {
				abandon()
				return err
			}
		}
		r.run(w)
		switch {
		case r.err == nil && r.panicked == nil:
			kept++
		case len(batch) == 1:
			abandon()
			return nil
		default:
			w.forget()
			if err := w.exec(ctx, "ROLLBACK TO one"); err != nil {
				abandon()
				return errors.Join(r.err, err)
			}
		}
		if len(batch) > 1 {
			if err := w.exec(ctx, "RELEASE one"); err != nil {
				abandon()
				return err
			}
		}
	}
	if kept == 0 {
		abandon()
		return nil
	}
	if err := w.exec(ctx, "COMMIT"); err != nil {
		abandon()
		return err
	}
	return nil
}

func (r *request) run(w *session) {
	defer func() {
		if p := recover(); p != nil {
			r.panicked = p
			r.err = fmt.Errorf("panic: %v", p)
		}
	}()
	r.err = r.fn(w)
}

// begin takes the write lock, polling often and briefly so that processes that share the file take turns fairly.
func (s *Store) begin(ctx context.Context, w *session) error {
	deadline := time.Now().Add(s.wait)
	pause := 200 * time.Microsecond
	for {
		err := w.exec(ctx, "BEGIN IMMEDIATE")
		if err == nil || !isBusy(err) {
			return err
		}
		if time.Now().After(deadline) {
			return s.locked(err)
		}
		time.Sleep(pause)
		pause = min(pause*2, 5*time.Millisecond)
	}
}
