package sandbox

import (
	"context"
	"runtime"
	"sync"

	"golang.org/x/sync/semaphore"
)

// Gate bounds how many sandboxes live at once and how many are being created at once, so that hundreds of tasks queue
// instead of drowning the machine. A run that already holds a sandbox never waits for a further one: runs that each hold
// one and wait for another would block each other for ever. Safe for concurrent use.
type Gate struct {
	live     *semaphore.Weighted
	creating *semaphore.Weighted
	mu       sync.Mutex
	runs     map[string]*held // by instance
	limit    int
}

type held struct {
	sandboxes int
	admitted  bool
	waiting   chan struct{} // closed when the admission that is under way has ended
}

// NewGate returns a gate for at most limit runs that hold sandboxes; 0 takes DefaultLimit.
func NewGate(limit int) *Gate {
	if limit <= 0 {
		limit = DefaultLimit()
	}
	return &Gate{
		live:     semaphore.NewWeighted(int64(limit)),
		creating: semaphore.NewWeighted(int64(max(4, 4*runtime.NumCPU()))),
		runs:     map[string]*held{},
		limit:    limit,
	}
}

// DefaultLimit is 32 a core, but never more than one for each 128 MiB of the machine's memory, and at least 8.
func DefaultLimit() int {
	limit := 32 * runtime.NumCPU()
	if mem := memoryBytes(); mem > 0 {
		limit = min(limit, int(mem>>27))
	}
	return max(limit, 8)
}

// Limit returns the bound on runs that hold sandboxes.
func (g *Gate) Limit() int { return g.limit }

// Enter waits for the run's turn and counts one sandbox for it. Leave must follow when the sandbox is gone, or was not made.
func (g *Gate) Enter(ctx context.Context, instance string) error {
	for {
		g.mu.Lock()
		h := g.runs[instance]
		switch {
		case h == nil:
			h = &held{waiting: make(chan struct{})}
			g.runs[instance] = h
			g.mu.Unlock()
			err := g.live.Acquire(ctx, 1)
			g.mu.Lock()
			close(h.waiting)
			if err != nil {
				delete(g.runs, instance)
				g.mu.Unlock()
				return err
			}
			h.admitted, h.sandboxes = true, 1
			g.mu.Unlock()
			return nil
		case h.admitted:
			h.sandboxes++
			g.mu.Unlock()
			return nil
		}
		g.mu.Unlock()
		select {
		case <-h.waiting:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Leave gives back one sandbox of the run; a run that holds none is a no-op.
func (g *Gate) Leave(instance string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	h := g.runs[instance]
	if h == nil || !h.admitted {
		return
	}
	if h.sandboxes--; h.sandboxes == 0 {
		delete(g.runs, instance)
		g.live.Release(1)
	}
}

// Create runs fn while few enough other creations are under way.
func (g *Gate) Create(ctx context.Context, fn func() error) error {
	if err := g.creating.Acquire(ctx, 1); err != nil {
		return err
	}
	defer g.creating.Release(1)
	return fn()
}
