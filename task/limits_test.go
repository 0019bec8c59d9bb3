package task

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"agentenv/store/doc"
)

// TestLimitsStandInPlaceOfTheTasks runs four steps that could all run at once, dies, and goes on: the limits bind both, and the record has them.
func TestLimitsStandInPlaceOfTheTasks(t *testing.T) {
	t.Parallel()
	yes, no := true, false
	for name, c := range map[string]struct {
		began, resumed Limits
		most           int64 // steps at a time, after it went on
		stored         string
	}{
		"none":           {Limits{}, Limits{}, 4, "null"},
		"kept":           {Limits{MaxParallelSteps: 1, FailFast: &no}, Limits{}, 1, `{"fail_fast":false,"max_parallel_steps":1}`},
		"given anew":     {Limits{MaxParallelSteps: 1}, Limits{MaxParallelSteps: 2, FailFast: &yes}, 2, `{"fail_fast":true,"max_parallel_steps":2}`},
		"only at resume": {Limits{}, Limits{MaxParallelSteps: 3}, 3, `{"max_parallel_steps":3}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var running, most, met atomic.Int64
			d := deeds{}
			for _, id := range []string{"a", "b", "c", "d"} {
				d[id] = func(ctx context.Context, r *Run) error {
					if r.Epoch == 0 { // the run that dies
						return nil
					}
					n := running.Add(1)
					defer running.Add(-1)
					for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
					}
					for met.Add(1); met.Load() < c.most; time.Sleep(time.Millisecond) { // as many as may run at a time do
						if ctx.Err() != nil {
							return context.Cause(ctx)
						}
					}
					return nil
				}
			}
			r := newRig(t, d)
			task := r.task(`[{"id":"a","type":"do","depends_on":[]},{"id":"b","type":"do","depends_on":[]},{"id":"c","type":"do","depends_on":[]},{"id":"d","type":"do","depends_on":[]}]`)
			if !dies(r, 1, func(e *Engine) { _, _ = e.Run(soon(t), task, Options{Instance: "t-lim", Limits: c.began}) }) {
				t.Fatal("it did not die")
			}
			unowned(t, r.docs, "t-lim")
			res, err := r.engine.Resume(soon(t), task, "t-lim", Options{Limits: c.resumed})
			if err != nil || most.Load() != c.most {
				t.Errorf("%d steps ran at a time, want %d: %v", most.Load(), c.most, err)
			}
			if task.MaxParallelSteps != 0 {
				t.Error("the task itself was changed")
			}
			if got := doc.Canonical(r.instance(res.Instance).Document.Value("limits")); got != c.stored {
				t.Errorf("the record has the limits %s, want %s", got, c.stored)
			}
			// Beginning the same instance anew without limits leaves none.
			if res, err = r.engine.Run(soon(t), task, Options{Instance: "t-lim"}); err != nil {
				t.Fatal(err)
			}
			if _, there := r.instance(res.Instance).Document.Get("limits"); there {
				t.Error("limits of an earlier run are left")
			}
		})
	}
}

// FuzzLimitsFrom reads whatever a document holds: it never fails, and what it makes of it is read back the same.
func FuzzLimitsFrom(f *testing.F) {
	for _, text := range []string{`{}`, `{"max_parallel_steps":2,"fail_fast":false}`, `{"max_parallel_steps":-1,"fail_fast":"yes"}`, `{"max_parallel_steps":1e99}`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		d, err := doc.ParseObject(text, doc.Options{})
		if err != nil {
			return
		}
		l := LimitsFrom(d)
		if l.MaxParallelSteps < 0 {
			t.Fatalf("a limit of %d", l.MaxParallelSteps)
		}
		again := LimitsFrom(l.Document())
		if again.MaxParallelSteps != l.MaxParallelSteps || (again.FailFast == nil) != (l.FailFast == nil) || l.FailFast != nil && *again.FailFast != *l.FailFast {
			t.Fatalf("%+v is read back as %+v", l, again)
		}
	})
}
