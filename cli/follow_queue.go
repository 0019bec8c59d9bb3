package cli

import "sync"

// lineQueue is what there is to tell, in order. It never makes the teller wait.
type lineQueue struct {
	mu     sync.Mutex
	todo   []func()
	wake   chan struct{}
	closed bool
}

// add puts something at the end; after close it is dropped.
func (q *lineQueue) add(tell func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return
	}
	q.todo = append(q.todo, tell)
	q.nudge()
}

// close lets work return once everything was told.
func (q *lineQueue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.nudge()
}

func (q *lineQueue) nudge() {
	if q.wake == nil {
		q.wake = make(chan struct{}, 1)
	}
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// work tells what comes until close.
func (q *lineQueue) work() {
	for {
		q.mu.Lock()
		todo, closed := q.todo, q.closed
		q.todo = nil
		if q.wake == nil {
			q.wake = make(chan struct{}, 1)
		}
		wake := q.wake
		q.mu.Unlock()
		for _, tell := range todo {
			tell()
		}
		if len(todo) > 0 {
			continue
		}
		if closed {
			return
		}
		<-wake
	}
}
