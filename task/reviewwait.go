package task

import (
	"context"
	"slices"
	"sync"
	"time"

	"agentenv/store"
)

// reviewWait is one look-out for the decisions that some steps wait for: one query tells for all of them which still wait. Its
// goroutine runs as long as there are such steps.
type reviewWait struct {
	reviews *Reviews
	local   bool // in the store of @local tasks
	every   time.Duration

	mu    sync.Mutex
	steps map[reviewKey][]chan struct{} // told when the step waits no longer
	stop  context.CancelFunc
	done  chan struct{}
}

type reviewKey struct{ instance, step string }

// Wait waits until the review of a step of a run is decided, or gone, or ctx ends, and looks every so often. Steps that wait at the
// same time share one query.
func (s *Reviews) Wait(ctx context.Context, instance, step string, every time.Duration) (Review, error) {
	w := s.waiter(ctx, every)
	decided := make(chan struct{}, 1)
	key := reviewKey{instance, step}
	w.add(ctx, key, decided)
	defer w.remove(key, decided)
	for {
		r, err := s.Get(ctx, instance, step)
		if err != nil || r.State != Awaiting {
			return r, err
		}
		select {
		case <-ctx.Done():
			return r, context.Cause(ctx)
		case <-decided:
		}
	}
}

func (s *Reviews) waiter(ctx context.Context, every time.Duration) *reviewWait {
	s.mu.Lock()
	defer s.mu.Unlock()
	local := store.InLocalRun(ctx)
	i := slices.IndexFunc(s.waits, func(w *reviewWait) bool { return w.local == local && w.every == every })
	if i < 0 {
		s.waits = append(s.waits, &reviewWait{reviews: s, local: local, every: every, steps: map[reviewKey][]chan struct{}{}})
		i = len(s.waits) - 1
	}
	return s.waits[i]
}

func (w *reviewWait) add(ctx context.Context, key reviewKey, decided chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.steps[key] = append(w.steps[key], decided)
	if w.stop == nil {
		ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
		done := make(chan struct{})
		w.stop, w.done = stop, done
		go func() {
			defer close(done)
			w.loop(ctx)
		}()
	}
}

// remove waits for the goroutine when the step was the last one.
func (w *reviewWait) remove(key reviewKey, decided chan struct{}) {
	w.mu.Lock()
	w.steps[key] = slices.DeleteFunc(w.steps[key], func(c chan struct{}) bool { return c == decided })
	if len(w.steps[key]) == 0 {
		delete(w.steps, key)
	}
	var done chan struct{}
	if len(w.steps) == 0 && w.stop != nil {
		w.stop()
		done, w.stop, w.done = w.done, nil, nil
	}
	w.mu.Unlock()
	if done != nil {
		<-done
	}
}

func (w *reviewWait) loop(ctx context.Context) {
	tick := time.NewTicker(w.every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		// A query that fails tells of nothing; each step looks for itself then, and fails with the reason.
		waiting, err := w.reviews.Awaiting(ctx, "")
		if ctx.Err() != nil {
			return
		}
		still := make(map[reviewKey]bool, len(waiting))
		for _, r := range waiting {
			still[reviewKey{r.Instance, r.StepID}] = true
		}
		w.mu.Lock()
		for key, steps := range w.steps {
			if err == nil && still[key] {
				continue
			}
			for _, decided := range steps {
				select {
				case decided <- struct{}{}:
				default:
				}
			}
		}
		w.mu.Unlock()
	}
}
