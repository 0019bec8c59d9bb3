package episode

import (
	"context"
	"slices"
	"sync"

	"agentenv/fault"
	"agentenv/store"
	"agentenv/store/doc"
	"agentenv/task"
)

// Episode is one run of a task whose outside agents are played through it. It is safe for concurrent use. Its run goes on by itself,
// whatever becomes of the contexts that are given to its methods, and what it deployed is torn down at its end.
type Episode struct {
	ID       string // 32 hexadecimal digits
	Instance string // the id of the run's instance: ID, after that of the task where that is @local

	plan   *Plan
	cancel context.CancelCauseFunc // of the run
	why    func() error            // it was cancelled; nil while it was not
	halt   context.CancelFunc      // of the teardown

	mu       sync.Mutex
	change   chan struct{} // closed when what is below changes
	given    int           // the last turn that NextTurn gave out
	turns    []*Turn       // every one so far, by number
	finished bool
	result   *Result
	err      error
}

// Result is how the run of an episode ended, and what became of its sandboxes.
type Result struct {
	*task.Result
	TornDown task.TeardownReport
}

func newEpisode(p *Plan) *Episode {
	e := &Episode{ID: randomHex(), plan: p, change: make(chan struct{})}
	e.Instance = e.ID
	if store.IsLocal(p.task.ID) { // as must be what is recorded of it
		e.Instance = p.task.ID + "-" + e.ID
	}
	return e
}

// begin starts the run in a goroutine that ends with the teardown.
func (e *Episode) begin(ctx context.Context, engine *task.Engine, t *task.Task, meta *doc.Object) error {
	d := e.plan.deps
	run, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	teardown, halt := context.WithCancel(context.WithoutCancel(ctx))
	e.cancel, e.halt = cancel, halt
	ended := func(*task.Result, error) {}
	if d.Tracker != nil {
		tracked, end, err := d.Tracker.Begin(run, task.Tracked{Instance: e.Instance, TaskID: t.ID, TaskVersion: t.Version, Metadata: meta})
		if err != nil {
			cancel(nil)
			halt()
			return err
		}
		run, ended = tracked, end
	}
	e.why = func() error { return context.Cause(run) }
	go func() {
		defer cancel(nil)
		defer halt()
		res, err := engine.Run(run, t, task.Options{Instance: e.Instance, Metadata: meta, Keeper: d.Teardown, Log: d.Log})
		ended(res, err)
		var left *doc.Object
		if res != nil {
			left = res.Context
		}
		torn := d.Teardown.Teardown(teardown, e.Instance, left)
		e.update(func() {
			e.finished, e.err = true, err
			if res != nil {
				e.result = &Result{res, torn}
			}
		})
	}()
	return nil
}

// update changes the state and wakes whoever waits for a change.
func (e *Episode) update(change func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	change()
	close(e.change)
	e.change = make(chan struct{})
}

func (e *Episode) open(s *promptStep, r *task.Run) *Turn {
	var tools Toolbox = noTools{}
	if given := e.plan.deps.Tools; given != nil {
		tools = given(r, s.AgentName)
	}
	t := newTurn(s, tools, e.why)
	e.update(func() {
		e.turns = append(e.turns, t)
		t.Number = len(e.turns)
	})
	return t
}

// NextTurn waits for a turn and gives each to one caller, in the order in which they open; several are open at once when the task prompts several agents at
// once. Nil is the end of the episode, with the error of its run if it failed or was cancelled; the end of ctx is an error that costs no turn.
func (e *Episode) NextTurn(ctx context.Context) (*Turn, error) {
	return e.next(ctx, func() int { return e.given }, func(t *Turn) { e.given = t.Number })
}

// TurnAfter waits for the first open turn whose number is higher than n, and gives it to whoever asks until it ends: for callers that may ask
// again when an answer got lost. Otherwise it is NextTurn, and neither affects the other.
func (e *Episode) TurnAfter(ctx context.Context, n int) (*Turn, error) {
	return e.next(ctx, func() int { return n }, func(*Turn) {})
}

func (e *Episode) next(ctx context.Context, after func() int, give func(*Turn)) (*Turn, error) {
	for {
		e.mu.Lock()
		for _, t := range e.turns {
			if t.Number > after() && t.isOpen() {
				give(t)
				e.mu.Unlock()
				return t, nil
			}
		}
		finished, err, change := e.finished, e.err, e.change
		e.mu.Unlock()
		if finished {
			return nil, err
		}
		select {
		case <-change:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// Turn returns a turn by its number, also one that is over; NotFound when there was none yet.
func (e *Episode) Turn(n int) (*Turn, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if n < 1 || n > len(e.turns) {
		return nil, fault.New(fault.NotFound, "episode %s has no turn %d so far", e.ID, n)
	}
	return e.turns[n-1], nil
}

// Result waits for the end of the run and of its teardown, and returns how it went; the error is that of the run. With a turn open it is refused with a
// Conflict. The result is nil then, when ctx ended first, and when the run could not begin. A second call returns the same.
func (e *Episode) Result(ctx context.Context) (*Result, error) {
	for {
		e.mu.Lock()
		finished, result, err, change := e.finished, e.result, e.err, e.change
		i := slices.IndexFunc(e.turns, (*Turn).isOpen)
		var open *Turn
		if i >= 0 {
			open = e.turns[i]
		}
		e.mu.Unlock()
		switch {
		case finished:
			return result, err
		case open != nil:
			return nil, fault.New(fault.Conflict, "turn %d (step %s) is open: end it before asking for the result", open.Number, open.StepID)
		}
		select {
		case <-change:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// Abandon cancels the run with a reason ("" = abandoned) and waits for its teardown; the turns that are open end. It is recorded as cancelled, unless it has
// ended or failed for good already. The end of ctx ends the waiting alone, and is the error. A second call changes nothing and waits as well.
func (e *Episode) Abandon(ctx context.Context, reason string) error {
	if reason == "" {
		reason = "abandoned"
	}
	e.cancel(fault.New(fault.Canceled, "%s", reason))
	return e.await(ctx)
}

// await waits for the end of the run and its teardown.
func (e *Episode) await(ctx context.Context) error {
	for {
		e.mu.Lock()
		finished, change := e.finished, e.change
		e.mu.Unlock()
		if finished {
			return nil
		}
		select {
		case <-change:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// over reports whether the run has ended and is torn down.
func (e *Episode) over() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.finished
}
