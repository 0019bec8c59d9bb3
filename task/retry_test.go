package task

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"agentenv/fault"
	"agentenv/store/doc"
	"agentenv/store/document"
)

// tally counts how often each deed began.
type tally struct {
	mu sync.Mutex
	n  map[string]int
}

func (c *tally) add(id string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == nil {
		c.n = map[string]int{}
	}
	c.n[id]++
	return c.n[id]
}

func (c *tally) counts() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := map[string]int{}
	for k, v := range c.n {
		out[k] = v
	}
	return out
}

// flaky fails the first n times and appends its id and attempt to metadata.log each time.
func (c *tally) flaky(n int) func(context.Context, *Run) error {
	return func(_ context.Context, r *Run) error {
		at := c.add(r.StepID)
		r.Append(fmt.Sprint(r.StepID, at), "log")
		if at <= n {
			return fault.New(fault.Internal, "attempt %d of %s", at, r.StepID)
		}
		return nil
	}
}

func metadata(res *Result) *doc.Object { return res.Context.Obj("metadata") }

// flags returns step id and the retried mark of every failed_steps entry.
func flags(res *Result) (out []string) {
	for _, v := range metadata(res).Arr("failed_steps") {
		o, _ := v.(*doc.Object)
		mark, there := o.Get("retried")
		if !there {
			mark = "-"
		}
		out = append(out, fmt.Sprint(o.Str("step_id"), " ", mark))
	}
	return out
}

func TestARetryGoesBackAndIsAudited(t *testing.T) {
	var c tally
	r := newRig(t, deeds{"s0": c.flaky(0), "b": c.flaky(99), "n": c.flaky(0)})
	res := r.run(r.task(`[{"id":"s0","type":"do"},{"id":"b","type":"do","retry_config":{"go_to_step_id":"s0","max_retries":2}},{"id":"n","type":"do"}]`), Options{})
	if res.Status != "failed" || res.Err == nil || !strings.Contains(res.Err.Error(), "attempt 3 of b") {
		t.Fatalf("ended %s: %v", res.Status, res.Err)
	}
	if diff := cmp.Diff(map[string]int{"s0": 3, "b": 3}, c.counts()); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"b true", "b true", "b -"}, flags(res)); diff != "" {
		t.Error(diff)
	}
	resets := metadata(res).Arr("retry_resets")
	for i, v := range resets {
		o := v.(*doc.Object).Clone()
		if o.Str("at_utc") == "" {
			t.Error("a reset does not say when it was")
		}
		o.Delete("at_utc")
		want := fmt.Sprintf(`{"attempt":%d,"step_id":"b","retry_from_step_id":"s0","replayed":["s0","b","n"],"rolled_back_sandboxes":{"deployed_envs":[],"deployed_agents":[],"deployed_sandboxes":[]}}`, i+2)
		if !doc.Equal(o, parse(t, want)) {
			t.Errorf("reset %d is %s", i, show(o))
		}
	}
	if len(resets) != 2 {
		t.Errorf("there are %d resets", len(resets))
	}
	if got := show(metadata(res).Value("log")); strings.Contains(got, "s01") || strings.Contains(got, "s02") || !strings.Contains(got, "s03") {
		t.Errorf("what dropped attempts wrote is there: %s", got)
	}
	in := r.instance(res.Instance)
	if epoch, _ := in.Document.Int("attempt_epoch"); epoch != 2 || in.Document.Str("status") != "failed" {
		t.Errorf("the instance is %s at epoch %d", in.Document.Str("status"), epoch)
	}
}

func TestARetryThatSucceedsLeavesOnlyItsLastAttempt(t *testing.T) {
	var c tally
	deploy := func(_ context.Context, r *Run) error {
		return r.AddSandbox(Sandbox{Name: "box", ID: fmt.Sprint("local-", c.add("box")), Mode: "vm", Type: "local"})
	}
	r := newRig(t, deeds{"box": deploy, "work": c.flaky(0), "check": c.flaky(2)})
	var discarded [][]string
	res := r.run(r.task(`[{"id":"box","type":"do"},{"id":"work","type":"do"},{"id":"check","type":"do","retry_config":{"retry_from_step_id":"box","max_retries":5}}]`),
		Options{Keeper: &keeper{discard: func(instance string, steps []string) error {
			if instance == "" {
				t.Error("it is not said whose steps they are")
			}
			discarded = append(discarded, steps)
			return fault.New(fault.Unavailable, "some are still up")
		}}})
	if res.Status != "completed" || res.Class != Passed {
		t.Fatalf("ended %s, %s: %v", res.Status, res.Class, res.Err)
	}
	r.sound(res)
	if boxes := Sandboxes(res.Context); len(boxes) != 1 || boxes[0].ID != "local-3" {
		t.Errorf("the sandboxes are %v", boxes)
	}
	if got := metadata(res).Arr("log"); !slices.Equal(got, []any{"work3", "check3"}) {
		t.Errorf("the log is %v", got)
	}
	all := []string{"box", "work", "check"}
	if diff := cmp.Diff([][]string{all, all}, discarded); diff != "" {
		t.Error(diff)
	}
	lost := metadata(res).Arr("retry_resets")[0].(*doc.Object).Obj("rolled_back_sandboxes")
	if !doc.Equal(lost.Value("deployed_sandboxes"), []any{doc.Of("sandbox_id", "local-1", "sandbox_type", "local")}) {
		t.Errorf("the first reset lost %s", show(lost))
	}
	if failures := res.Failures; len(failures) != 2 || !failures[0].Retried || !failures[1].Retried {
		t.Errorf("the failures are %v", failures)
	}
}

// TestSiblingsOfARetry has `a` run beside `b`, which fails once and is tried again from itself.
func TestSiblingsOfARetry(t *testing.T) {
	const text = `[{"id":"r","type":"do"},{"id":"a","type":"do","depends_on":["r"]},
		{"id":"b","type":"do","depends_on":["r"],"retry_config":{"retry_from_step_id":"%s"}},{"id":"z","type":"do"}]`
	for name, c := range map[string]struct {
		from       string
		aWaitsForB bool
		ranA       int
	}{
		"it ended while the other ran":              {"b", false, 1},
		"it runs on over the retry":                 {"b", true, 1},
		"it is in the span and had ended":           {"r", false, 2},
		"it is in the span, runs, and starts again": {"r", true, 2},
	} {
		t.Run(name, func(t *testing.T) {
			var n tally
			bAgain, aDone := make(chan struct{}), make(chan struct{})
			d := deeds{"r": n.flaky(0), "z": n.flaky(0)}
			d["a"] = func(ctx context.Context, r *Run) error {
				first := n.add("a") == 1
				r.Append("a", "log")
				if first && c.aWaitsForB {
					select {
					case <-bAgain:
					case <-ctx.Done():
						return context.Cause(ctx)
					}
				}
				if first {
					close(aDone)
				}
				return nil
			}
			d["b"] = func(_ context.Context, r *Run) error {
				if r.Append("b", "log"); n.add("b") == 1 {
					if !c.aWaitsForB {
						<-aDone
						time.Sleep(20 * time.Millisecond) // so that it is committed
					}
					return fault.New(fault.Internal, "once")
				}
				if c.from == "b" && c.aWaitsForB {
					close(bAgain)
				}
				return nil
			}
			r := newRig(t, d)
			w := &watcher{}
			res := r.run(r.task(fmt.Sprintf(text, c.from)), Options{Observer: w})
			if res.Status != "completed" || res.Class != Passed {
				t.Fatalf("ended %s: %v", res.Status, res.Err)
			}
			r.sound(res)
			counts := n.counts()
			if counts["a"] != c.ranA || counts["b"] != 2 || counts["z"] != 1 {
				t.Errorf("they ran %v times", counts)
			}
			log := metadata(res).Arr("log")
			for _, id := range []any{"a", "b"} {
				if i := slices.Index(log, id); i < 0 || slices.Contains(log[i+1:], id) {
					t.Errorf("the log is %v", log)
				}
			}
			if starts, ends := strings.Count(strings.Join(w.lines, ","), "start "), strings.Count(strings.Join(w.lines, ","), "end "); starts != ends {
				t.Errorf("%d starts and %d ends were told", starts, ends)
			}
		})
	}
}

func TestTwoFailuresAtOnceAreBothTriedAgain(t *testing.T) {
	var c tally
	r := newRig(t, deeds{"a": c.flaky(1), "b": c.flaky(1), "z": c.flaky(0)})
	res := r.run(r.task(`[{"id":"a","type":"do","depends_on":[],"retry_config":{"retry_from_step_id":"a"}},
		{"id":"b","type":"do","depends_on":[],"retry_config":{"retry_from_step_id":"b"}},{"id":"z","type":"do"}]`), Options{})
	if res.Status != "completed" {
		t.Fatal(res.Err)
	}
	r.sound(res)
	if diff := cmp.Diff(map[string]int{"a": 2, "b": 2, "z": 1}, c.counts()); diff != "" {
		t.Error(diff)
	}
}

func TestAToleratedStepSpendsItsRetriesFirst(t *testing.T) {
	var c tally
	r := newRig(t, deeds{"a": c.flaky(99), "z": c.flaky(0)})
	res := r.run(r.task(`[{"id":"a","type":"do","fail_task_on_error":false,"retry_config":{"retry_from_step_id":"a"}},{"id":"z","type":"do"}]`), Options{})
	if res.Status != "completed" || res.Class != Infrastructure && res.Class != Failed {
		t.Fatalf("ended %s, %s: %v", res.Status, res.Class, res.Err)
	}
	r.sound(res)
	if diff := cmp.Diff([]string{"a true", "a -"}, flags(res)); diff != "" {
		t.Error(diff)
	}
}

func TestASpanReachesBeforeTheStart(t *testing.T) {
	var c tally
	r := newRig(t, deeds{"a": c.flaky(0), "b": c.flaky(0), "c": c.flaky(1)})
	seed := doc.Of("failed_steps", []any{"odd", doc.Of("step_id", "a", "error", "old")})
	res := r.run(r.task(`[{"id":"a","type":"do"},{"id":"b","type":"do"},{"id":"c","type":"do","retry_config":{"retry_from_step_id":"a"}}]`),
		Options{StartStep: 2, Metadata: seed})
	if res.Status != "completed" {
		t.Fatal(res.Err)
	}
	r.sound(res)
	if diff := cmp.Diff(map[string]int{"a": 1, "b": 1, "c": 2}, c.counts()); diff != "" {
		t.Error(diff)
	}
	if got := metadata(res).Arr("failed_steps"); len(got) != 3 || got[0] != "odd" || got[1].(*doc.Object).Value("retried") != true {
		t.Errorf("failed_steps is %s", show(got))
	}
}

func TestTheBudgetSurvives(t *testing.T) {
	var c tally
	r := newRig(t, deeds{"a": c.flaky(99)})
	used := doc.Of("retry_resets", []any{doc.Of("attempt", doc.Int(2), "step_id", "a"), doc.Of("attempt", doc.Int(2), "step_id", "other")})
	res := r.run(r.task(`[{"id":"a","type":"do","retry_config":{"retry_from_step_id":"a","max_retries":2}}]`), Options{Metadata: used})
	if res.Status != "failed" || c.counts()["a"] != 2 {
		t.Fatalf("ended %s after %d attempts", res.Status, c.counts()["a"])
	}
	resets := metadata(res).Arr("retry_resets")
	if len(resets) != 3 || !doc.Equal(resets[2].(*doc.Object).Value("attempt"), doc.Int(3)) {
		t.Errorf("the resets are %s", show(resets))
	}
}

func TestSecretsSurviveARetry(t *testing.T) {
	var c tally
	seen := make(chan any, 9)
	fails := c.flaky(1)
	r := newRig(t, deeds{"a": c.flaky(0), "b": func(ctx context.Context, r *Run) error {
		seen <- r.Override("litellm_api_key")
		r.Set("tok", "made", "usersim_api_key")
		return fails(ctx, r)
	}})
	res := r.run(r.task(`[{"id":"a","type":"do"},{"id":"b","type":"do","retry_config":{"retry_from_step_id":"a"}}]`),
		Options{Metadata: doc.Of("user_overrides", doc.Of("litellm_api_key", "s3cret"))})
	if res.Status != "completed" {
		t.Fatal(res.Err)
	}
	r.sound(res)
	if one, two := <-seen, <-seen; one != "s3cret" || two != "s3cret" {
		t.Errorf("the step saw %v, then %v", one, two)
	}
	if got := metadata(res).Obj("made").Value("usersim_api_key"); got != "tok" {
		t.Errorf("the last attempt's own secret is %v", got)
	}
	for _, row := range r.rows(res.Instance) {
		if text := show(row.Ops); strings.Contains(text, "s3cret") || strings.Contains(text, "tok") {
			t.Errorf("the row of %s holds a secret", row.StepID)
		}
	}
}

func TestACancelDuringARetry(t *testing.T) {
	var c tally
	ctx, cancel := context.WithCancelCause(context.Background())
	r := newRig(t, deeds{"a": c.flaky(0), "b": c.flaky(9)})
	res, err := r.engine.Run(ctx, r.task(`[{"id":"a","type":"do"},{"id":"b","type":"do","retry_config":{"retry_from_step_id":"a","max_retries":9,"delay_seconds":60}}]`),
		Options{Keeper: &keeper{discard: func(string, []string) error {
			cancel(fault.New(fault.Canceled, "enough"))
			return nil
		}}})
	if err == nil || res.Status != "cancelled" || res.Class != Cancelled {
		t.Fatalf("ended %s: %v", res.Status, err)
	}
	if diff := cmp.Diff(map[string]int{"a": 1, "b": 1}, c.counts()); diff != "" {
		t.Error(diff)
	}
	in := r.instance(res.Instance)
	replayed, err := Replay(r.rows(res.Instance))
	if err != nil {
		t.Fatal(err)
	}
	// Nothing is undone before it can be done again.
	if epoch, _ := in.Document.Int("attempt_epoch"); epoch != 0 || len(in.Document.Arr("completed_steps")) != 1 || !doc.Equal(replayed, in.Context) {
		t.Errorf("stored: %s", show(in.Document))
	}
	if _, there := in.Context.Obj("metadata").Get("retry_resets"); there {
		t.Error("a retry is recorded that was not made")
	}
}

// TestAFailureThatWaitsForItsRetryCountsWhenTheRunEnds has two steps fail at once, of which the one that is retried first fails for good.
func TestAFailureThatWaitsForItsRetryCountsWhenTheRunEnds(t *testing.T) {
	var c tally
	first := make(chan struct{})
	fails := c.flaky(9)
	r := newRig(t, deeds{
		"x": func(ctx context.Context, r *Run) error {
			if c.counts()["x"] == 1 {
				time.Sleep(50 * time.Millisecond) // so that the other one waits for its retry
			} else {
				defer close(first)
			}
			return fails(ctx, r)
		},
		"y": func(ctx context.Context, r *Run) error {
			<-first
			time.Sleep(20 * time.Millisecond)
			return fails(ctx, r)
		},
	})
	res := r.run(r.task(`[{"id":"x","type":"do","depends_on":[],"retry_config":{"retry_from_step_id":"x"}},
		{"id":"y","type":"do","depends_on":[],"retry_config":{"retry_from_step_id":"y","delay_seconds":30}}]`), Options{})
	if res.Status != "failed" || !strings.Contains(res.Err.Error(), "attempt 2 of x") {
		t.Fatalf("ended %s: %v", res.Status, res.Err)
	}
	if diff := cmp.Diff(map[string]int{"x": 2, "y": 1}, c.counts()); diff != "" {
		t.Error(diff)
	}
	got := flags(res)
	slices.Sort(got)
	if diff := cmp.Diff([]string{"x -", "x true", "y -"}, got); diff != "" {
		t.Error(diff)
	}
	if n := len(metadata(res).Arr("retry_resets")); n != 1 {
		t.Errorf("%d retries are recorded", n)
	}
}

func TestARetryThatCannotBeUndoneFailsWithTheStepsOwnError(t *testing.T) {
	for name, spoil := range map[string]func(r *rig, id string) error{
		"no seed": func(r *rig, id string) error {
			_, err := r.docs.Delete(context.Background(), collJournal, document.By("instance_id", id, "step_id", seedRow))
			return err
		},
		"no head": func(r *rig, id string) error {
			_, err := r.docs.Delete(context.Background(), collHeads, document.By("instance_id", id))
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			var c tally
			var r *rig
			fails := c.flaky(1)
			r = newRig(t, deeds{"a": c.flaky(0), "b": func(ctx context.Context, run *Run) error {
				if err := spoil(r, run.Instance); err != nil {
					t.Error(err)
				}
				return fails(ctx, run)
			}})
			res := r.run(r.task(`[{"id":"a","type":"do"},{"id":"b","type":"do","retry_config":{"retry_from_step_id":"a"}}]`), Options{})
			if res.Status != "failed" || res.Err == nil || name == "no seed" && !strings.Contains(res.Err.Error(), "attempt 1 of b") {
				t.Fatalf("ended %s: %v", res.Status, res.Err)
			}
			if diff := cmp.Diff(map[string]int{"a": 1, "b": 1}, c.counts()); diff != "" {
				t.Error(diff)
			}
			if _, there := metadata(res).Get("retry_resets"); there || !slices.Equal(metadata(res).Arr("log"), []any{"a1", "b1"}) {
				t.Errorf("the context was touched: %s", show(metadata(res)))
			}
		})
	}
}

// drawn draws a task of steps that fail a few times and are tried again from somewhere; each attempt leaves a value, an item and a
// sandbox. It returns how many failures there are in all.
func drawn(t *rapid.T, c *tally) (d deeds, text string, n, failures int) {
	d = deeds{}
	steps := []any{}
	n = rapid.IntRange(1, 8).Draw(t, "steps")
	for i := range n {
		id := fmt.Sprint("s", i)
		s := doc.Of("id", id, "type", "do")
		above := []int{i}
		if rapid.Bool().Draw(t, "explicit") {
			edges := []any{}
			if i > 0 {
				for _, j := range rapid.SliceOfNDistinct(rapid.IntRange(0, i-1), 0, min(i, 2), rapid.ID).Draw(t, "edges") {
					edges = append(edges, fmt.Sprint("s", j))
					above = append(above, j)
				}
			}
			s.Set("depends_on", edges)
		} else {
			for j := range i {
				above = append(above, j)
			}
		}
		fails := rapid.IntRange(0, 2).Draw(t, "fails")
		failures += fails
		s.Set("retry_config", doc.Of("retry_from_step_id", fmt.Sprint("s", rapid.SampledFrom(above).Draw(t, "from")), "max_retries", doc.Int(99)))
		sleep := time.Duration(rapid.IntRange(0, 3).Draw(t, "ms")) * time.Millisecond
		d[id] = func(ctx context.Context, r *Run) error {
			at := c.add(id)
			r.Set(fmt.Sprint(id, " wrote it"), "by", id)
			r.Append(doc.Of("step", id), "list")
			if err := r.AddSandbox(Sandbox{Name: id, ID: fmt.Sprint(id, "-", at), Mode: "vm", Type: "local"}); err != nil {
				return err
			}
			time.Sleep(sleep)
			if at <= fails {
				return fault.New(fault.Internal, "not yet")
			}
			return nil
		}
		steps = append(steps, s)
	}
	b, err := doc.Marshal(steps)
	if err != nil {
		t.Fatal(err)
	}
	return d, string(b), n, failures
}

// undisturbed checks that a run ended as if nothing had failed: every step's effect is there once, as one attempt made it.
func undisturbed(t *rapid.T, res *Result, n int) {
	if res.Status != "completed" || res.Class != Passed {
		t.Fatalf("ended %s, %s: %v", res.Status, res.Class, res.Err)
	}
	list, boxes, by := metadata(res).Arr("list"), Sandboxes(res.Context), metadata(res).Obj("by")
	if len(list) != n || len(boxes) != n || by.Len() != n {
		t.Fatalf("%d steps left %d items, %d sandboxes and %s", n, len(list), len(boxes), show(metadata(res)))
	}
	for i := range n {
		id := fmt.Sprint("s", i)
		if by.Str(id) != id+" wrote it" || !slices.ContainsFunc(list, func(v any) bool { return doc.Equal(v, doc.Of("step", id)) }) ||
			!slices.ContainsFunc(boxes, func(b Sandbox) bool { return b.Name == id }) {
			t.Fatalf("%s has not left what it does: %s", id, show(res.Context))
		}
	}
}

// TestAnyRetriesEndAsIfNothingHadFailed runs random graphs whose steps fail a few times: the rows give the context, and the
// sandboxes are those of the last attempts.
func TestAnyRetriesEndAsIfNothingHadFailed(t *testing.T) {
	docs := openDocs(t)
	rapid.Check(t, func(rt *rapid.T) {
		var c tally
		d, text, n, failures := drawn(rt, &c)
		r := newRigOn(t, d, docs)
		res := r.run(r.task(text), Options{})
		undisturbed(rt, res, n)
		r.sound(res)
		counts := c.counts()
		for _, b := range Sandboxes(res.Context) {
			if b.ID != fmt.Sprint(b.Name, "-", counts[b.Name]) {
				rt.Fatalf("sandbox %s is not that of the last of %d attempts", b.ID, counts[b.Name])
			}
		}
		if got := len(metadata(res).Arr("retry_resets")); got > failures {
			rt.Fatalf("%d resets for %d failures", got, failures)
		}
	})
}

// TestAnyCrashesEndAsIfNothingHadHappened does the same to runs that are killed again and again, and go on each time.
func TestAnyCrashesEndAsIfNothingHadHappened(t *testing.T) {
	docs := openDocs(t)
	rapid.Check(t, func(rt *rapid.T) {
		var c tally
		d, text, n, _ := drawn(rt, &c)
		r := newRigOn(t, d, docs)
		task, id := r.task(text), NewInstanceID("t")
		crashes := rapid.SliceOfN(rapid.IntRange(1, 6), 0, 5).Draw(rt, "crashes")
		begun := false
		for _, at := range crashes {
			died := dies(r, at, func(e *Engine) {
				if begun {
					_, _ = e.Resume(context.Background(), task, id, Options{})
				} else {
					_, _ = e.Run(context.Background(), task, Options{Instance: id})
				}
			})
			time.Sleep(5 * time.Millisecond) // what was under way ends with its process
			if !died {
				break
			}
			if begun = true; r.instance(id).Status != "running" {
				break
			}
			unowned(t, docs, id)
		}
		var res *Result
		var err error
		switch in, _ := NewInstances(docs).Find(context.Background(), id); {
		case in == nil:
			res = r.run(task, Options{Instance: id})
		case in.Status == "completed":
			return
		default:
			if res, err = r.engine.Resume(context.Background(), task, id, Options{}); err != nil {
				rt.Fatal(err)
			}
		}
		undisturbed(rt, res, n)
		r.sound(res)
	})
}
