// Package local is the runner of this machine: a durable queue in the document store, drained by processes that share it. A run is claimed by
// exactly one of them; when that process dies, the next one goes on from what the run's journal holds.
package local

import (
	"context"
	"iter"
	"log/slog"
	"strings"
	"sync"
	"time"

	"agentenv/fault"
	"agentenv/runner"
	"agentenv/task"
)

// Deps are what every runner of a process works with.
type Deps struct {
	Engine    task.Runs
	Tasks     *task.Tasks
	Instances *task.Instances
	Records   *runner.Records
	Teardown  task.Teardown
	Log       *slog.Logger     // nil: nothing is logged
	Now       func() time.Time // nil: time.Now
}

// Config says how a runner works; the zero value drains the whole queue.
type Config struct {
	Own     bool         // run what was submitted here, and nothing else
	Once    bool         // end the draining when nothing is left to run
	Workers int          // runs at once; 0 = task.DefaultParallel()
	Begun   func(*Begun) // hears of each run that begins here; may be nil. It must not block
	Ended   func(*Ended) // hears of each run that ended here, once its record says so; may be nil. It must not block
}

// Begun is a run that this process begins, or goes on with. Its Observer, which may be nil, hears the steps, unless the request brought its own.
type Begun struct {
	Record   *runner.Record
	Resumed  bool
	Observer task.Observer
}

// Ended is a run that this process ran.
type Ended struct {
	Record     *runner.Record
	Result     *task.Result // nil when it did not begin
	Err        error        // why it did not end well
	HandedBack bool         // it was stopped with this process: whoever drains the queue goes on with it
	Kept       bool         // its sandboxes stay up, as it asked
	TornDown   task.TeardownReport
}

// Runner implements runner.Runner over the document store.
type Runner struct {
	d    Deps
	c    Config
	beat *beat

	teardown context.Context // of every teardown; ends when Stop is to end at once
	halt     context.CancelFunc

	mu       sync.Mutex
	own      []*held          // submitted here and not begun
	running  map[string]*held // by run id
	stopping bool
	started  bool
	wake     chan struct{} // there may be something to begin
	quit     chan struct{} // closed when no more is begun
	drained  chan struct{} // closed when the draining has ended
	none     chan struct{} // closed when nothing runs; replaced by the next run
}

var _ runner.Runner = (*Runner)(nil)

// New returns a runner; it begins nothing before Start.
func New(d Deps, c Config) *Runner {
	if d.Log == nil {
		d.Log = slog.New(slog.DiscardHandler)
	}
	if d.Now == nil {
		d.Now = time.Now
	}
	if c.Workers <= 0 {
		c.Workers = task.DefaultParallel()
	}
	r := &Runner{d: d, c: c, beat: newBeat(d.Records, d.Log), running: map[string]*held{}, wake: make(chan struct{}, 1), quit: make(chan struct{}),
		drained: make(chan struct{}), none: make(chan struct{})}
	close(r.none)
	r.teardown, r.halt = context.WithCancel(context.Background())
	return r
}

// Submit implements runner.Runner. The version of the task is settled now. Invalid: the request holds a secret itself, and another process is
// to run it. NotFound: there is no such task.
func (r *Runner) Submit(ctx context.Context, req runner.Request) (runner.Handle, error) {
	handles, err := r.SubmitAll(ctx, []runner.Request{req})
	if err != nil {
		return runner.Handle{}, err
	}
	return handles[0], nil
}

// SubmitAll is Submit for many requests, recorded together (see runner.Records.AddAll) in the order given: all of them are taken, or none. An error names the first
// request that cannot be, by its position from 1, when there are several.
func (r *Runner) SubmitAll(ctx context.Context, all []runner.Request) ([]runner.Handle, error) {
	type version struct {
		id string
		n  int64
	}
	known := map[version]int64{} // which versions were asked for, and found
	records := make([]*runner.Record, len(all))
	for i, req := range all {
		asked := version{req.TaskID, req.TaskVersion}
		if err := r.acceptable(req); err != nil {
			return nil, nth(err, i, len(all))
		}
		if _, there := known[asked]; !there {
			t, err := r.d.Tasks.Document(ctx, req.TaskID, req.TaskVersion)
			if err != nil {
				return nil, nth(err, i, len(all))
			}
			known[asked], _ = t.Int("version")
		}
		rec := runner.NewRecord(runner.LocalType, req)
		if rec.Continues = req.Instance != ""; !rec.Continues {
			rec.TaskVersion, rec.Instance = known[asked], task.NewInstanceID(req.TaskID)
		}
		records[i] = rec
	}
	r.mu.Lock()
	stopping := r.stopping
	r.mu.Unlock()
	if stopping {
		return nil, fault.New(fault.Conflict, "nothing is taken: this runner is stopping")
	}
	if err := r.d.Records.AddAll(ctx, records, r.c.Own); err != nil {
		return nil, err
	}
	handles := make([]runner.Handle, len(records))
	for i, rec := range records {
		handles[i] = runner.Handle{Run: rec.ID, Instance: rec.Instance}
		if r.c.Own {
			h := newHeld(rec)
			h.request = &all[i]
			r.beat.add(h)
			r.mu.Lock()
			r.own = append(r.own, h)
			r.mu.Unlock()
		}
	}
	r.nudge()
	return handles, nil
}

// acceptable refuses a request that cannot be recorded.
func (r *Runner) acceptable(req runner.Request) error {
	if paths := runner.RawSecrets(req); len(paths) > 0 && !r.c.Own {
		return fault.New(fault.Invalid, "%s: a run in the queue takes no secret itself, which would have to be stored; give a reference (secret:NAME or env:NAME), or run it in this process", strings.Join(paths, ", "))
	}
	if req.Context != nil && req.Instance != "" {
		return fault.New(fault.Invalid, "a run either continues an instance or begins with a context of its own, not both")
	}
	return nil
}

func nth(err error, i, of int) error {
	if of == 1 {
		return err
	}
	return fault.At(err, "request %d of %d", i+1, of)
}

// Status implements runner.Runner.
func (r *Runner) Status(ctx context.Context, run string) (*runner.Record, error) {
	return r.d.Records.Get(ctx, run)
}

// Cancel implements runner.Runner. A run whose process is gone is recorded as cancelled at once, its instance too; what it deployed stays up. A
// record of another runner is left alone.
func (r *Runner) Cancel(ctx context.Context, run, reason string) (bool, error) {
	if reason == "" {
		reason = "cancelled"
	}
	for range 10 { // the record may go on while it is looked at
		rec, err := r.d.Records.Get(ctx, run)
		if err != nil || rec == nil || rec.Status.Terminal() || rec.Runner != runner.LocalType {
			return false, err
		}
		done := false
		switch {
		case rec.Status == runner.Queued:
			done, err = r.d.Records.Withdraw(ctx, rec, reason)
			r.nudge()
		case r.d.Records.Alive(rec.Owner):
			if done, err = r.d.Records.RequestCancel(ctx, rec, reason); done {
				r.beat.cancel(run, reason)
			}
		default:
			done, err = r.bury(ctx, rec, reason)
		}
		if done || err != nil {
			return done, err
		}
	}
	return false, fault.New(fault.Conflict, "run %s changed again and again while it was cancelled; try again", run)
}

// bury records a run that nobody runs as cancelled. Taking it over first keeps others from resuming it meanwhile.
func (r *Runner) bury(ctx context.Context, rec *runner.Record, reason string) (bool, error) {
	before := rec.Owner
	if mine, err := r.d.Records.Claim(ctx, rec); !mine || err != nil {
		return false, err
	}
	in, err := r.d.Instances.Find(ctx, rec.Instance)
	if err == nil && in != nil && (!rec.Continues || in.Context.Obj("metadata").Str("workflow_id") == rec.ID) {
		err = r.d.Instances.Cancel(ctx, in, reason, r.d.Now())
	}
	if err != nil {
		_, _ = r.d.Records.Release(ctx, rec, before)
		return false, err
	}
	return r.d.Records.End(ctx, rec, runner.Canceled, task.Cancelled, reason)
}

// watchEvery is how often Watch looks at a run.
const watchEvery = 500 * time.Millisecond

// Watch implements runner.Runner; a run that is not known is a NotFound error.
func (r *Runner) Watch(ctx context.Context, run string) iter.Seq2[runner.Event, error] {
	return func(yield func(runner.Event, error) bool) {
		var last runner.Status
		seen := map[task.Completion]bool{}
		for {
			rec, err := r.d.Records.Get(ctx, run)
			if err == nil && rec == nil {
				err = fault.New(fault.NotFound, "run %s not found", run)
			}
			if err != nil {
				yield(runner.Event{}, err)
				return
			}
			// The record was read first, so that a run that has ended has all its steps.
			if rec.Status != runner.Queued {
				in, err := r.d.Instances.Find(ctx, rec.Instance)
				if err != nil {
					yield(runner.Event{}, err)
					return
				}
				if in != nil && (!rec.Continues || in.Context.Obj("metadata").Str("workflow_id") == run) {
					for _, c := range in.Completed {
						if !seen[c] {
							seen[c] = true
							if !yield(runner.Event{Step: &c}, nil) {
								return
							}
						}
					}
				}
			}
			if rec.Status != last {
				last = rec.Status
				if !yield(runner.Event{Record: rec}, nil) {
					return
				}
			}
			if rec.Status.Terminal() {
				return
			}
			select {
			case <-ctx.Done():
				yield(runner.Event{}, context.Cause(ctx))
				return
			case <-time.After(watchEvery):
			}
		}
	}
}

func (r *Runner) nudge() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}
