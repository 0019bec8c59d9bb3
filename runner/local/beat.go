package local

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"agentenv/fault"
	"agentenv/runner"
)

const (
	cancelEvery = time.Second      // how often requests to cancel are looked for, by one query
	beatEvery   = 30 * time.Second // how often records tell that their owner lives
)

// errLost ends a run whose record is not this process's any more.
var errLost = fault.New(fault.Conflict, "the run was taken over by another process, which took this one for dead")

// held is a run that this process owns.
type held struct {
	rec     *runner.Record
	request *runner.Request // as submitted here, secrets and all; nil = what the record holds
	ctx     context.Context
	cancel  context.CancelCauseFunc
	phase   phase // guarded by the runner's mutex
}

type phase int

const (
	executing phase = iota
	tearing
	abandoned // it did not stop: Stop sees to what it deployed
)

func newHeld(rec *runner.Record) *held {
	h := &held{rec: rec}
	h.ctx, h.cancel = context.WithCancelCause(context.Background())
	return h
}

// beat tells the records of a process's runs that it lives, and the runs what their records ask. Its one goroutine runs as long as there are
// runs. It is safe for concurrent use.
type beat struct {
	records *runner.Records
	log     *slog.Logger

	mu   sync.Mutex
	runs map[string]*held
	stop context.CancelFunc
	done chan struct{}
}

func newBeat(records *runner.Records, log *slog.Logger) *beat {
	return &beat{records: records, log: log, runs: map[string]*held{}}
}

func (b *beat) add(h *held) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.runs[h.rec.ID] = h
	if b.stop == nil {
		ctx, stop := context.WithCancel(context.Background())
		done := make(chan struct{})
		b.stop, b.done = stop, done
		go func() {
			defer close(done)
			b.loop(ctx)
		}()
	}
}

// remove waits for the goroutine when the run was the last one.
func (b *beat) remove(h *held) {
	b.mu.Lock()
	delete(b.runs, h.rec.ID)
	var done chan struct{}
	if len(b.runs) == 0 && b.stop != nil {
		b.stop()
		done, b.stop, b.done = b.done, nil, nil
	}
	b.mu.Unlock()
	if done != nil {
		<-done
	}
}

func (b *beat) cancel(run, reason string) {
	b.mu.Lock()
	h := b.runs[run]
	b.mu.Unlock()
	if h != nil {
		h.cancel(fault.New(fault.Canceled, "%s", reason))
	}
}

func (b *beat) held() []*held {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := make([]*held, 0, len(b.runs))
	for _, h := range b.runs {
		all = append(all, h)
	}
	return all
}

func (b *beat) loop(ctx context.Context) {
	requests, beats := time.NewTicker(cancelEvery), time.NewTicker(beatEvery)
	defer requests.Stop()
	defer beats.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-requests.C:
			asked, err := b.records.CancelRequests(ctx)
			if err != nil && ctx.Err() == nil {
				b.log.Warn("requests to cancel runs cannot be looked for", "error", err)
			}
			for _, rec := range asked {
				b.cancel(rec.ID, rec.Cancel)
			}
		case <-beats.C:
			b.tell(ctx)
		}
	}
}

// tell records that the process lives, and ends the runs that are not its own any more.
func (b *beat) tell(ctx context.Context) {
	all := b.held()
	records := make([]*runner.Record, len(all))
	for i, h := range all {
		records[i] = &runner.Record{ID: h.rec.ID, TaskID: h.rec.TaskID}
	}
	lost, err := b.records.Beat(ctx, records)
	if err != nil && ctx.Err() == nil {
		b.log.Warn("it cannot be recorded that this process still runs its runs", "error", err)
	}
	for _, rec := range lost {
		if i := slices.IndexFunc(all, func(h *held) bool { return h.rec.ID == rec.ID }); i >= 0 && b.has(all[i]) {
			all[i].cancel(errLost)
		}
	}
}

// has tells a run that is still here from one that has ended while its record was written to.
func (b *beat) has(h *held) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.runs[h.rec.ID] == h
}
