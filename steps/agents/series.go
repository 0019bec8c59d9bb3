package agents

import (
	"context"
	"fmt"
	"sync"
	"time"

	"agentenv/protocol/card"
	"agentenv/store/doc"
)

// seriesGrace is how long the end of a step waits for a snapshot beyond what one may take.
const seriesGrace = 15 * time.Second

// series are the snapshots of one conversation, taken one at a time while the agent works and once it has ended. They never fail a turn.
type series struct {
	t        *talk
	plan     *seriesPlan
	artifact string
	began    time.Time

	stop  context.CancelFunc // no further snapshot by the clock
	abort context.CancelFunc // nor what is left of the one that is taken
	over  chan struct{}      // closed once none is taken by the clock any more

	mu    sync.Mutex // held while a snapshot is taken
	rows  []*doc.Object
	taken int64
	spent map[bool]bool // who has been told that no more are taken: turns (true), the clock
	lost  error         // why the first snapshot without a state has none
}

// startSeries begins to take snapshots; nil where none are wanted. end must follow.
func (t *talk) startSeries(ctx context.Context) *series {
	if t.series == nil {
		return nil
	}
	if t.agent.Card.Extension(card.Snapshot) == nil {
		warn(t.r, fmt.Sprintf("prompt_agent %q: the agent %q keeps no state (its card offers no snapshot), so no snapshot of it can be taken", t.r.StepID, t.promptAgent.agent))
	}
	s := &series{t: t, plan: t.series, artifact: stateID(t.r.Instance, t.r.StepID, "-workspace"), began: time.Now(), over: make(chan struct{}), spent: map[bool]bool{}}
	captures, abort := context.WithCancel(ctx)
	ticks, stop := context.WithCancel(captures)
	s.abort, s.stop = abort, stop
	if s.plan.interval == 0 {
		close(s.over)
		return s
	}
	go func() {
		defer close(s.over)
		s.tick(captures, ticks)
	}()
	return s
}

// tick takes snapshots by the clock until ticks ends. A defect in taking one ends them, and not the program.
func (s *series) tick(captures, ticks context.Context) {
	defer func() {
		if p := recover(); p != nil {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.record(capture{at: time.Now(), status: snapshotFailed, reasons: []string{fmt.Sprintf("ticker_error: %v", p)}})
		}
	}()
	for pause(ticks, s.plan.interval) && s.between(captures, ticks, 0) {
	}
}

// pause reports whether the time passed before the context ended.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// afterTurn takes the snapshot between a turn and what the user says to it, if the plan has one.
func (s *series) afterTurn(ctx context.Context, turn int64) {
	if s != nil && s.plan.perTurn {
		s.between(ctx, ctx, turn)
	}
}

// between takes a snapshot of a conversation that goes on: after a turn, or by the clock (0), unless until has ended by the time it can begin. It
// returns whether there may be more.
func (s *series) between(ctx, until context.Context, turn int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch byTurn := turn > 0; {
	case until.Err() != nil:
		return false
	case s.taken < s.plan.most:
		s.taken++
		s.record(s.capture(ctx, turn, false))
		return true
	case !s.spent[byTurn]:
		s.spent[byTurn] = true
		s.record(capture{turn: turn, at: time.Now(), status: snapshotSkipped, reasons: []string{"limit_reached"}})
	}
	return false
}

// end takes the last snapshot where the plan has one, after one that is being taken, and adds all of them to the run's record. A step that is
// cancelled waits for nothing. The error says why the agent's last state is not kept; on nil it does nothing.
func (s *series) end(ctx context.Context) error {
	if s == nil {
		return nil
	}
	defer s.publish()
	s.stop()
	waited := time.NewTimer(s.plan.limit + seriesGrace)
	defer waited.Stop()
	last := capture{status: snapshotSkipped}
	select {
	case <-s.over:
	case <-ctx.Done():
	case <-waited.C:
		last.reasons = []string{"final_capture_lock_timeout"}
	}
	s.abort()
	<-s.over
	if !s.plan.atEnd {
		return nil
	}
	last.at, last.final = time.Now(), true
	switch {
	case ctx.Err() != nil:
		last.reasons = []string{"cancelled"}
	case last.reasons == nil:
		last = s.capture(ctx, 0, true)
	}
	s.record(last)
	if last.state != nil || ctx.Err() != nil {
		return nil
	}
	return s.failure(ctx, last)
}

// publish adds the rows to the run's record, and says what of it is not there.
func (s *series) publish() {
	for _, row := range s.rows {
		s.t.r.Append(row, "agent_snapshots")
	}
	if s.lost != nil {
		warn(s.t.r, fmt.Sprintf("prompt_agent %q: not every snapshot was taken: %s", s.t.r.StepID, s.t.hide(s.lost.Error())))
	}
}
