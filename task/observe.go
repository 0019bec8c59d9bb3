package task

import (
	"log/slog"
	"sync"
)

// watch passes events to an observer one at a time. An observer that panics is dropped and the run goes on.
type watch struct {
	mu       sync.Mutex
	observer Observer
	log      *slog.Logger
}

func (w *watch) tell(f func(Observer)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.observer == nil {
		return
	}
	defer func() {
		if p := recover(); p != nil {
			w.observer = nil
			w.log.Warn("the observer of the run failed; the run goes on without it", "panic", p)
		}
	}()
	f(w.observer)
}
