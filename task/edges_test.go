package task

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"agentenv/fault"
	"agentenv/store/doc"
	"agentenv/store/document"
)

// TestStepsWithoutEdgesCostTheSameEach holds the memory for parsing and planning against the number of steps.
func TestStepsWithoutEdgesCostTheSameEach(t *testing.T) {
	reg := testRegistry(t, nil)
	cost := func(n int) uint64 {
		var steps []string
		for i := range n {
			steps = append(steps, fmt.Sprintf(`{"id":"s%d","type":"do","retry_config":{"retry_from_step_id":"s%d"}}`, i, i))
		}
		text := []byte("[" + strings.Join(steps, ",") + "]")
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		task, err := reg.ParseText("t", text, ParseOptions{})
		if err != nil {
			t.Fatal(err)
		}
		s := NewScheduler(task, 0, n)
		s.Next(s.Initial(), Signal{Kind: SignalBegin})
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	cost(100)
	if few, many := cost(200), cost(2000); many > 20*few {
		t.Errorf("%d bytes for 200 steps, %d for 2,000", few, many)
	}
}

// TestAStepWithoutEdgesWaitsForAllBeforeIt runs a beside b, which waits for nothing, and c after both.
func TestAStepWithoutEdgesWaitsForAllBeforeIt(t *testing.T) {
	t.Parallel()
	bRan, aEnded := make(chan struct{}), make(chan struct{})
	r := newRig(t, deeds{
		"a": func(context.Context, *Run) error {
			<-bRan
			time.Sleep(10 * time.Millisecond)
			close(aEnded)
			return nil
		},
		"b": func(context.Context, *Run) error { close(bRan); return nil },
		"c": func(context.Context, *Run) error {
			select {
			case <-aEnded:
				return nil
			default:
				return errors.New("c runs before a ended")
			}
		},
	})
	if res := r.run(r.task(`[{"id":"a","type":"do"},{"id":"b","type":"do","depends_on":[]},{"id":"c","type":"do"}]`), Options{}); res.Err != nil {
		t.Error(res.Err)
	}
}

// places notes which step of how many an observer is told of.
type places struct{ watcher }

func (p *places) StepStarted(e Event) { p.add(fmt.Sprint(e.StepID, " ", e.Index, " of ", e.Total)) }

func TestAPartOfATaskIsToldByItsPlaceInTheWhole(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	var p places
	r.run(r.task(noops(4, "")), Options{StartStep: 1, EndStep: 3, Observer: &p})
	if diff := cmp.Diff([]string{"s1 1 of 4", "end s1", "s2 2 of 4", "end s2"}, p.lines); diff != "" {
		t.Error(diff)
	}
}

// TestARetrySeesWhatWasThereBefore has every attempt of a span write everywhere; the next one finds nothing of it.
func TestARetrySeesWhatWasThereBefore(t *testing.T) {
	t.Parallel()
	var c tally
	var seen []string
	write := func(_ context.Context, r *Run) error {
		at := c.add(r.StepID)
		if r.StepID == "a" {
			seen = append(seen, show(r.Metadata("scalar"))+show(r.Metadata("list"))+show(r.Metadata("own")))
		}
		r.Set(fmt.Sprint(r.StepID, at), "scalar")
		r.Append(doc.Of("by", fmt.Sprint(r.StepID, at)), "list")
		r.Set(doc.Int(at), "own", r.StepID)
		if r.StepID == "b" && at < 3 {
			return fault.New(fault.Internal, "not yet")
		}
		return nil
	}
	r := newRig(t, deeds{"a": write, "b": write, "side": write})
	before := parse(t, `{"scalar": "before", "list": [{"by": "before"}], "own": {"before": 0}}`)
	res := r.run(r.task(`[{"id":"a","type":"do"},{"id":"side","type":"do","depends_on":["a"]},
		{"id":"b","type":"do","depends_on":["a"],"retry_config":{"retry_from_step_id":"a","max_retries":2}}]`), Options{Metadata: before})
	if res.Err != nil {
		t.Fatal(res.Err)
	}
	r.sound(res)
	if len(seen) != 3 || seen[0] != seen[1] || seen[1] != seen[2] {
		t.Errorf("the attempts of a saw %s", seen)
	}
	if got := metadata(res).Arr("list"); len(got) != 4 || !doc.Equal(got[0], doc.Of("by", "before")) || !doc.Equal(got[1], doc.Of("by", "a3")) {
		t.Errorf("the list is %s", show(got))
	}
	// The branch that only starts from the same step ran again as well, and the audit names it in its place.
	for _, v := range metadata(res).Arr("retry_resets") {
		if got := v.(*doc.Object).Value("replayed"); !doc.Equal(got, []any{"a", "side", "b"}) {
			t.Errorf("replayed %s", show(got))
		}
	}
}

// TestHowOftenAStepIsTried counts attempts and what is recorded of them.
func TestHowOftenAStepIsTried(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		most, fails, runs int
		tolerant          bool
		status            string
		attempts          []any
		flags             []string
	}{
		{0, 9, 1, false, "failed", nil, []string{"b -"}},
		{1, 9, 2, false, "failed", []any{doc.Int(2)}, []string{"b true", "b -"}},
		{2, 2, 3, false, "completed", []any{doc.Int(2), doc.Int(3)}, []string{"b true", "b true"}},
		{1, 9, 2, true, "completed", []any{doc.Int(2)}, []string{"b true", "b -"}},
	} {
		t.Run(fmt.Sprint(c.most, c.fails, c.tolerant), func(t *testing.T) {
			t.Parallel()
			var n tally
			r := newRig(t, deeds{"b": n.flaky(c.fails)})
			res := r.run(r.task(fmt.Sprintf(`[{"id":"a","type":"do"},{"id":"b","type":"do","fail_task_on_error":%v,"retry_config":{"retry_from_step_id":"a","max_retries":%d}}]`,
				!c.tolerant, c.most)), Options{})
			var attempts []any
			for _, v := range metadata(res).Arr("retry_resets") {
				attempts = append(attempts, v.(*doc.Object).Value("attempt"))
			}
			epoch, _ := r.instance(res.Instance).Document.Int("attempt_epoch")
			if res.Status != c.status || n.counts()["b"] != c.runs || !doc.Equal(attempts, c.attempts) || int(epoch) != len(c.attempts) {
				t.Errorf("ended %s after %d attempts, resets %v, epoch %d", res.Status, n.counts()["b"], attempts, epoch)
			}
			if diff := cmp.Diff(c.flags, flags(res)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestADelayIsWaitedForBeforeTheNextAttempt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var c tally
		var at []time.Time
		fails := c.flaky(2)
		r := newRig(t, deeds{"a": func(ctx context.Context, r *Run) error { at = append(at, time.Now()); return fails(ctx, r) }})
		res := r.run(r.task(`[{"id":"a","type":"do","retry_config":{"retry_from_step_id":"a","max_retries":2,"delay_seconds":90}}]`), Options{})
		if res.Err != nil || len(at) != 3 || at[1].Sub(at[0]) < 90*time.Second || at[2].Sub(at[1]) < 90*time.Second || at[2].Sub(at[0]) > 200*time.Second {
			t.Errorf("attempts at %v: %v", at, res.Err)
		}
	})
}

// logged is a log that keeps its lines.
type logged struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) count(s string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), s)
}

func TestOfTwoFatalFailuresBothAreLoggedAndTheFirstIsTheRuns(t *testing.T) {
	t.Parallel()
	var l logged
	on := make(chan struct{})
	first := fault.New(fault.Internal, "first")
	r := newRig(t, deeds{
		"a": func(context.Context, *Run) error { <-on; return first },
		"b": func(context.Context, *Run) error {
			<-on
			time.Sleep(20 * time.Millisecond)
			return errors.New("second")
		},
		"c": func(context.Context, *Run) error { close(on); return nil },
	})
	res := r.run(r.task(`[{"id":"a","type":"do","depends_on":[]},{"id":"b","type":"do","depends_on":[]},{"id":"c","type":"do","depends_on":[]},{"id":"d","type":"do"}]`),
		Options{Log: slog.New(slog.NewTextHandler(&l, nil))})
	if !errors.Is(res.Err, first) || l.count("failed (fatal)") != 2 || l.count("error=first") != 1 || l.count("error=second") != 1 {
		t.Errorf("%v\n%s", res.Err, l.text.String())
	}
	in := r.instance(res.Instance)
	if in.Error != "first" || len(in.Context.Obj("metadata").Arr("failed_steps")) != 2 {
		t.Errorf("recorded %s", show(in.Document))
	}
}

// hooked is a store that calls a function before each transaction.
type hooked struct {
	document.Store
	before atomic.Pointer[func() error]
}

func (h *hooked) Transact(ctx context.Context, fn func(document.Store) error) error {
	if f := h.before.Load(); f != nil {
		if err := (*f)(); err != nil {
			return err
		}
	}
	return h.Store.Transact(ctx, fn)
}

// TestARetryWithoutARecordIsNone: what cannot be undone fails with the step's own error, and nothing of the attempt is lost.
func TestARetryWithoutARecordIsNone(t *testing.T) {
	t.Parallel()
	for name, unrecorded := range map[string]bool{"the undo cannot be written": false, "the run is not recorded": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var c tally
			h := &hooked{Store: openDocs(t)}
			var docs document.Store = h
			if unrecorded {
				docs = broken{h}
			}
			down := func() error { return fault.New(fault.Unavailable, "the disk is full") }
			fails := c.flaky(1)
			r := newRigOn(t, deeds{"b": func(ctx context.Context, r *Run) error { h.before.Store(&down); return fails(ctx, r) }}, docs)
			w := &watcher{onEnd: func(Event) { h.before.Store(&down) }}
			k := &keeper{discard: func(string, []string) error {
				time.AfterFunc(50*time.Millisecond, func() { h.before.Store(nil) }) // the end of the run is recorded again
				return nil
			}}
			res := r.run(r.task(`[{"id":"b","type":"do","retry_config":{"retry_from_step_id":"b"}}]`), Options{Observer: w, Keeper: k})
			if res.Status != "failed" || !strings.Contains(fmt.Sprint(res.Err), "attempt 1 of b") || c.counts()["b"] != 1 {
				t.Errorf("ended %s: %v", res.Status, res.Err)
			}
			if _, there := metadata(res).Get("retry_resets"); there || !cmp.Equal(flags(res), []string{"b -"}) || !doc.Equal(metadata(res).Arr("log"), []any{"b1"}) {
				t.Errorf("the context is %s", show(metadata(res)))
			}
		})
	}
}

// TestACancelWhileARetryIsWritten comes in the middle of the undo: it is written whole, and nothing starts again.
func TestACancelWhileARetryIsWritten(t *testing.T) {
	t.Parallel()
	var c tally
	ctx, cancel := context.WithCancelCause(context.Background())
	h := &hooked{Store: openDocs(t)}
	r := newRigOn(t, deeds{"a": c.flaky(0), "b": c.flaky(9)}, h)
	now := func() error { cancel(errors.New("enough")); return nil }
	k := &keeper{discard: func(string, []string) error { h.before.Store(&now); return nil }}
	res, err := r.engine.Run(ctx, r.task(`[{"id":"a","type":"do"},{"id":"b","type":"do","retry_config":{"retry_from_step_id":"a","max_retries":9}}]`), Options{Keeper: k})
	if err == nil || res.Status != "cancelled" || !cmp.Equal(c.counts(), map[string]int{"a": 1, "b": 1}) {
		t.Fatalf("ended %s: %v, ran %v", res.Status, err, c.counts())
	}
	r.sound(res)
	in := r.instance(res.Instance)
	if epoch, _ := in.Document.Int("attempt_epoch"); epoch != 1 || in.Status != "cancelled" || in.Error != "enough" || len(in.Completed) != 0 ||
		len(metadata(res).Arr("log")) != 0 || len(metadata(res).Arr("retry_resets")) != 1 || !cmp.Equal(flags(res), []string{"b true"}) {
		t.Errorf("stored: %s", show(in.Document))
	}
}
