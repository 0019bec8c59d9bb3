package task

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentenv/fault"
	"agentenv/store/doc"
	"agentenv/store/document"
)

// killed is a store that ends whoever calls it after some transactions: what is in it then is what a killed process leaves.
type killed struct {
	document.Store
	left atomic.Int64
}

func (d *killed) Transact(ctx context.Context, fn func(document.Store) error) error {
	if d.left.Add(-1) < 0 {
		runtime.Goexit()
	}
	return d.Store.Transact(ctx, fn)
}

// dies runs a rig's engine over its documents until they have taken so many transactions, and reports whether it died of that.
func dies(r *rig, transactions int, run func(*Engine)) (died bool) {
	k := &killed{Store: r.docs}
	k.left.Store(int64(transactions))
	e := NewEngine(r.reg, k, slog.New(slog.DiscardHandler), nil)
	died = true
	var done sync.WaitGroup
	done.Go(func() {
		run(e)
		died = false
	})
	done.Wait()
	return died
}

// twentySteps is a task with two branches and a retry; its deeds note their attempts and leave one item each.
func twentySteps(c *tally) (deeds, string) {
	d := deeds{}
	var steps []string
	for i := range 20 {
		id := fmt.Sprintf("s%02d", i)
		more := ""
		fails := 0
		switch {
		case i == 7:
			more = `,"depends_on":["s03"]`
		case i == 12:
			more, fails = `,"retry_config":{"retry_from_step_id":"s10"}`, 1
		}
		steps = append(steps, fmt.Sprintf(`{"id":%q,"type":"do"%s}`, id, more))
		d[id] = func(_ context.Context, r *Run) error {
			at := c.add(id)
			r.Append(doc.Of("step", id), "list")
			if i%5 == 0 {
				if err := r.AddSandbox(Sandbox{Name: id, ID: fmt.Sprint(id, "-", at), Mode: "vm", Type: "local"}); err != nil {
					return err
				}
			}
			if at <= fails {
				return fault.New(fault.Internal, "not yet")
			}
			return nil
		}
	}
	return d, "[" + strings.Join(steps, ",") + "]"
}

// TestResumeAfterAKill kills a run of 20 steps after one of its commits and goes on: the end is that of an undisturbed run,
// no step that was committed runs again, and no effect is lost or doubled.
func TestResumeAfterAKill(t *testing.T) {
	t.Parallel()
	for commits := 1; commits <= 20; commits++ { // among them the undo
		t.Run(fmt.Sprint(commits), func(t *testing.T) {
			t.Parallel()
			var c tally
			d, text := twentySteps(&c)
			r := newRig(t, d)
			task := r.task(text)
			if !dies(r, commits, func(e *Engine) { _, _ = e.Run(context.Background(), task, Options{Instance: "t-kill"}) }) {
				t.Fatal("it did not die")
			}
			before := c.counts()
			journaled := r.rows("t-kill")
			unowned(t, r.docs, "t-kill")
			res, err := r.engine.Resume(t.Context(), task, "t-kill", Options{Keeper: &keeper{}})
			if err != nil || res.Status != "completed" || res.Class != Passed {
				t.Fatalf("resumed: %v", err)
			}
			r.sound(res)
			var want []any
			for i := range 20 {
				want = append(want, fmt.Sprintf("s%02d", i))
			}
			var got []any
			for _, v := range metadata(res).Arr("list") {
				got = append(got, v.(*doc.Object).Str("step"))
			}
			slices.SortFunc(got, func(a, b any) int { return strings.Compare(a.(string), b.(string)) })
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
			if boxes := Sandboxes(res.Context); len(boxes) != 4 {
				t.Errorf("the sandboxes are %v", boxes)
			}
			for _, row := range journaled {
				if after := c.counts()[row.StepID]; row.StepID[0] == 's' && row.StepID < "s10" && after != before[row.StepID] {
					t.Errorf("%s was committed and ran again", row.StepID)
				}
			}
			in := r.instance("t-kill")
			if len(in.Completed) != 20 || in.Class != Passed {
				t.Errorf("%d steps are recorded as done, the class is %s", len(in.Completed), in.Class)
			}
			for _, done := range in.Completed {
				if done.Class != Passed {
					t.Errorf("%s is recorded as %q", done.StepID, done.Class)
				}
			}
		})
	}
}

// unowned makes the head of a run that of a process that is gone.
func unowned(t *testing.T, docs document.Store, id string) {
	t.Helper()
	_, err := docs.Update(t.Context(), collHeads, document.By("instance_id", id), document.Update{Set: doc.Of("owner", doc.Of("pid", doc.Int(999)))}, false)
	if err != nil {
		t.Fatal(err)
	}
}

func TestResumeOfAFailedRun(t *testing.T) {
	var c tally
	r := newRig(t, deeds{"a": c.flaky(0), "soft": c.flaky(9), "b": c.flaky(1), "z": c.flaky(0)})
	task := r.task(`[{"id":"a","type":"do"},{"id":"soft","type":"do","fail_task_on_error":false},{"id":"b","type":"do"},{"id":"z","type":"do"}]`)
	first := r.run(task, Options{})
	if first.Status != "failed" {
		t.Fatal(first.Status)
	}
	k := &keeper{}
	res, err := r.engine.Resume(t.Context(), task, first.Instance, Options{Keeper: k})
	if err != nil || res.Status != "completed" {
		t.Fatal(err)
	}
	r.sound(res)
	if diff := cmp.Diff(map[string]int{"a": 1, "soft": 1, "b": 2, "z": 1}, c.counts()); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"b true", "soft -"}, flags(res)); diff != "" {
		t.Error(diff)
	}
	if got := metadata(res).Arr("log"); !slices.Equal(got, []any{"a1", "soft1", "b2", "z1"}) {
		t.Errorf("the log is %v", got)
	}
	if !slices.Equal(k.adopted, []string{first.Instance}) || !slices.Equal(k.dropped, []string{"b", "z"}) {
		t.Errorf("adopted %v, dropped %v", k.adopted, k.dropped)
	}
	in := r.instance(first.Instance)
	if epoch, _ := in.Document.Int("attempt_epoch"); epoch != 1 || in.Error != "" || in.Class != Failed && in.Class != Infrastructure {
		t.Errorf("stored: epoch %d, error %q, class %s", epoch, in.Error, in.Class)
	}
}

func TestResumeOfACancelledRun(t *testing.T) {
	var c tally
	ctx, cancel := context.WithCancel(context.Background())
	r := newRig(t, deeds{"a": c.flaky(0), "b": func(ctx context.Context, r *Run) error {
		if c.add("b") == 1 {
			cancel()
			<-ctx.Done()
			return context.Cause(ctx)
		}
		return nil
	}})
	task := r.task(`[{"id":"a","type":"do"},{"id":"b","type":"do"}]`)
	first, err := r.engine.Run(ctx, task, Options{})
	if err == nil || first.Status != "cancelled" {
		t.Fatal(err)
	}
	res, err := r.engine.Resume(t.Context(), task, first.Instance, Options{})
	if err != nil || res.Status != "completed" {
		t.Fatal(err)
	}
	r.sound(res)
	if diff := cmp.Diff(map[string]int{"a": 1, "b": 2}, c.counts()); diff != "" {
		t.Error(diff)
	}
}

func TestResumeWhenASandboxIsLost(t *testing.T) {
	const text = `[{"id":"one","type":"do"},{"id":"two","type":"do","depends_on":[]},{"id":"w","type":%q,"depends_on":["one"]},{"id":"end","type":"do"}]`
	for name, c := range map[string]struct {
		middle string
		gone   string
		late   bool // only while the run is taken over
		counts map[string]int
		wants  string
	}{
		"its step and what follows run again": {"do", "one-1", false, map[string]int{"one": 2, "two": 1, "w": 2, "end": 2}, ""},
		"the other goes on":                   {"do", "two-1", false, map[string]int{"one": 1, "two": 2, "w": 1, "end": 2}, ""},
		"none is lost":                        {"do", "", false, map[string]int{"one": 1, "two": 1, "w": 1, "end": 2}, ""},
		"one is pruned at the same moment":    {"do", "one-1", true, map[string]int{"one": 2, "two": 1, "w": 2, "end": 2}, ""},
		"a step that may not run again":       {"check", "one-1", false, nil, `step "w"`},
	} {
		t.Run(name, func(t *testing.T) {
			var n tally
			deploy := func(_ context.Context, r *Run) error {
				return r.AddSandbox(Sandbox{Name: r.StepID, ID: fmt.Sprint(r.StepID, "-", n.add(r.StepID)), Mode: "vm", Type: "local"})
			}
			r := newRig(t, deeds{"one": deploy, "two": deploy, "w": n.flaky(0), "end": n.flaky(1)})
			task := r.task(fmt.Sprintf(text, c.middle))
			first := r.run(task, Options{})
			stored := show(r.instance(first.Instance).Document)
			k := &keeper{gone: map[string]bool{c.gone: !c.late}}
			if c.late {
				k.late = c.gone
			}
			res, err := r.engine.Resume(t.Context(), task, first.Instance, Options{Keeper: k})
			if c.wants != "" {
				if !fault.Is(err, fault.Conflict) || !strings.Contains(err.Error(), c.wants) {
					t.Errorf("got %v", err)
				}
				if now := show(r.instance(first.Instance).Document); now != stored {
					t.Errorf("the record changed:\n%s\n%s", stored, now)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			r.sound(res)
			if diff := cmp.Diff(c.counts, n.counts()); diff != "" {
				t.Error(diff)
			}
			for _, s := range Sandboxes(res.Context) {
				if s.ID == c.gone {
					t.Errorf("%s is still recorded", s.ID)
				}
			}
		})
	}
}

func TestResumeRefusals(t *testing.T) {
	var c tally
	r := newRig(t, deeds{"a": c.flaky(0), "b": c.flaky(9)})
	r.engine.Owner = Owner{Self: doc.Of("pid", doc.Int(7), "host", "here"), Alive: func(context.Context, string, *doc.Object) (bool, error) { return true, nil }}
	good := r.task(`[{"id":"a","type":"do"}]`)
	done := r.run(good, Options{})
	bad := r.task(`[{"id":"a","type":"do"},{"id":"b","type":"do"}]`)
	failed := r.run(bad, Options{})
	other := *bad
	other.Version = 9
	begun := r.run(bad, Options{EndStep: 1})
	unowned(t, r.docs, begun.Instance)
	if _, err := r.docs.Replace(t.Context(), collHeads, document.By("instance_id", begun.Instance),
		doc.Of("instance_id", begun.Instance, "owner", doc.Of("pid", doc.Int(7), "host", "here")), true); err != nil {
		t.Fatal(err)
	}
	for name, x := range map[string]struct {
		task *Task
		id   string
		kind fault.Kind
		text string
	}{
		"complete":       {good, done.Instance, fault.Conflict, "complete"},
		"not there":      {good, "t-none", fault.NotFound, "t-none"},
		"another task's": {&other, failed.Instance, fault.Conflict, "is a run of t v2, not of t v9"},
		"still running":  {bad, begun.Instance, fault.Conflict, "process 7 on here"},
	} {
		t.Run(name, func(t *testing.T) {
			res, err := r.engine.Resume(t.Context(), x.task, x.id, Options{})
			if res != nil || !fault.Is(err, x.kind) || !strings.Contains(err.Error(), x.text) {
				t.Errorf("got %v, %v", res, err)
			}
		})
	}
}

func TestOfTwoThatResumeOneGoesOn(t *testing.T) {
	var c tally
	r := newRig(t, deeds{"a": c.flaky(0), "b": c.flaky(1)})
	task := r.task(`[{"id":"a","type":"do"},{"id":"b","type":"do"}]`)
	first := r.run(task, Options{})
	errs := make([]error, 8)
	var all sync.WaitGroup
	for i := range errs {
		all.Go(func() { _, errs[i] = r.engine.Resume(context.Background(), task, first.Instance, Options{}) })
	}
	all.Wait()
	won := 0
	for _, err := range errs {
		if err == nil {
			won++
		} else if !fault.Is(err, fault.Conflict) {
			t.Error(err)
		}
	}
	if won != 1 || c.counts()["b"] != 2 {
		t.Errorf("%d went on, b ran %d times: %v", won, c.counts()["b"], errors.Join(errs...))
	}
}

// TestTheTimesOfUndoneAttemptsAreKept undoes a step by a retry and another one by a resume that lost its sandbox.
func TestTheTimesOfUndoneAttemptsAreKept(t *testing.T) {
	t.Parallel()
	var c tally
	r := newRig(t, deeds{
		"box": func(_ context.Context, r *Run) error {
			return r.AddSandbox(Sandbox{Name: "box", ID: fmt.Sprint("id-", c.add("box")), Mode: "vm", Type: "local"})
		},
		"a": c.flaky(0), "b": c.flaky(1), "z": c.flaky(1),
	})
	task := r.task(`[{"id":"box","type":"do"},{"id":"a","type":"do"},{"id":"b","type":"do","retry_config":{"retry_from_step_id":"a"}},{"id":"z","type":"do"}]`)
	first := r.run(task, Options{})
	if first.Status != "failed" || first.Steps["z"] != Failed {
		t.Fatal(first.Status, first.Err)
	}
	undone := func() (ids []string) {
		for _, row := range r.instance(first.Instance).Undone() {
			if row.StartedAt == "" || row.RecordedAt == "" || row.Status != "success" {
				t.Errorf("%+v", row)
			}
			ids = append(ids, row.StepID)
		}
		return ids
	}
	if got := undone(); !slices.Equal(got, []string{"a"}) {
		t.Errorf("after the retry: %v", got)
	}
	res, err := r.engine.Resume(t.Context(), task, first.Instance, Options{Keeper: &keeper{gone: map[string]bool{"id-1": true}}})
	if err != nil {
		t.Fatal(err)
	}
	r.sound(res)
	if got := undone(); !slices.Equal(got, []string{"a", "box", "a", "b"}) {
		t.Errorf("after the resume: %v", got)
	}
	if _, err = r.engine.Run(t.Context(), task, Options{Instance: first.Instance}); err != nil || len(undone()) != 0 {
		t.Errorf("begun anew: %v, %v", err, undone())
	}
}
