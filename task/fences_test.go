package task

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"agentenv/fault"
	"agentenv/store/doc"
	"agentenv/store/document"
	"agentenv/store/document/sqlite"
)

// TestAWriterThatPausedIsFencedOut stops a process right before it commits, has another one resume the run to its end, and lets it go on.
func TestAWriterThatPausedIsFencedOut(t *testing.T) {
	t.Parallel()
	docs := openDocs(t)
	h := &hooked{Store: docs}
	paused, on := make(chan struct{}), make(chan struct{})
	var once sync.Once
	pause := func() error { once.Do(func() { close(paused); <-on }); return nil }
	write := func(who string) deeds {
		return deeds{"a": func(_ context.Context, r *Run) error {
			r.Set(who, "by")
			if who == "old" {
				h.before.Store(&pause)
			}
			return nil
		}}
	}
	old, fresh := newRigOn(t, write("old"), h), newRigOn(t, write("fresh"), docs)
	old.engine.Owner.Self = doc.Of("pid", doc.Int(7))
	text := `[{"id":"a","type":"do","fail_task_on_error":false,"retry_config":{"retry_from_step_id":"a","max_retries":3}},{"id":"b","type":"do"}]`
	ended := make(chan *Result)
	go func() {
		res, _ := old.engine.Run(context.Background(), old.task(text), Options{Instance: "i"})
		ended <- res
	}()
	<-paused
	second, err := fresh.engine.Resume(t.Context(), fresh.task(text), "i", Options{})
	if err != nil {
		t.Fatal(err)
	}
	close(on)
	first := <-ended
	var taken *Superseded
	if !errors.As(first.Err, &taken) || taken.Step != "a" || !strings.Contains(taken.Error(), "attempt epoch 0") {
		t.Errorf("the one that paused ended %s: %v", first.Status, first.Err)
	}
	fresh.sound(second)
	if in := fresh.instance("i"); in.Status != "completed" || in.Context.Obj("metadata").Str("by") != "fresh" {
		t.Errorf("stored: %s", show(in.Document))
	}
}

// TestATakenOverRunStopsWhateverItsStepsAllow re-registers a run in the middle of steps of every kind.
func TestATakenOverRunStopsWhateverItsStepsAllow(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		more  string
		fails bool
	}{
		"a success":           {"", false},
		"a tolerated failure": {`,"fail_task_on_error":false`, true},
		"a retry":             {`,"retry_config":{"retry_from_step_id":"a","max_retries":9}`, true},
		"a fatal failure":     {"", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			docs := openDocs(t)
			plain := newRigOn(t, deeds{}, docs)
			text := `[{"id":"a","type":"do"` + c.more + `},{"id":"b","type":"do"}]`
			var second *Result
			n := 0
			r := newRigOn(t, deeds{"a": func(context.Context, *Run) error {
				n++
				second = plain.run(plain.task(text), Options{Instance: "i"})
				if c.fails {
					return errors.New("boom")
				}
				return nil
			}, "b": func(context.Context, *Run) error { t.Error("it went on"); return nil }}, docs)
			res := r.run(r.task(text), Options{Instance: "i"})
			var taken *Superseded
			if n != 1 || res.Status != "failed" || !errors.As(res.Err, &taken) {
				t.Errorf("ended %s after %d attempts: %v", res.Status, n, res.Err)
			}
			plain.sound(second)
			if in := plain.instance("i"); in.Status != "completed" || len(in.Context.Obj("metadata").Arr("failed_steps")) != 0 {
				t.Errorf("the new run's record was touched: %s", show(in.Document))
			}
			if rows, err := docs.Count(t.Context(), collJournal, nil); rows != 3 || err != nil {
				t.Errorf("%d rows, %v: the old run left some", rows, err)
			}
		})
	}
}

// TestARunWhoseRecordIsGoneWritesNothing has its record removed in the middle of a step.
func TestARunWhoseRecordIsGoneWritesNothing(t *testing.T) {
	t.Parallel()
	docs := openDocs(t)
	r := newRigOn(t, deeds{"a": func(ctx context.Context, r *Run) error {
		for _, coll := range []string{collInstances, collJournal, collHeads} {
			if _, err := docs.Delete(ctx, coll, document.By("instance_id", r.Instance)); err != nil {
				return err
			}
			if _, err := docs.Delete(ctx, coll, document.By("instance_id", r.Instance)); err != nil {
				return err
			}
		}
		return nil
	}, "b": func(context.Context, *Run) error { t.Error("it went on"); return nil }}, docs)
	res := r.run(r.task(`[{"id":"a","type":"do"},{"id":"b","type":"do"}]`), Options{})
	var taken *Superseded
	if !errors.As(res.Err, &taken) || !strings.Contains(taken.Error(), "its record is gone") {
		t.Errorf("ended %s: %v", res.Status, res.Err)
	}
	for _, coll := range []string{collInstances, collJournal, collHeads} {
		if n, err := docs.Count(t.Context(), coll, nil); n != 0 || err != nil {
			t.Errorf("%d documents in %s, %v", n, coll, err)
		}
	}
}

// TestReservedStepIDs are those of the journal's own rows.
func TestReservedStepIDs(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	for _, id := range []string{seedRow, schedulerRow} {
		text := `[{"id":"` + id + `","type":"do"}]`
		if _, err := r.reg.ParseText("t", []byte(text), ParseOptions{Strict: true}); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), id) {
			t.Errorf("%s: %v", id, err)
		}
		stored, err := r.reg.ParseText("t", []byte(text), ParseOptions{Stored: true})
		if err != nil {
			t.Fatal(err)
		}
		if res, err := r.engine.Run(t.Context(), stored, Options{}); res != nil || !fault.Is(err, fault.Invalid) {
			t.Errorf("a stored task with %s: %v", id, err)
		}
		task := r.task(`[{"id":"<x>","type":"do"}]`)
		if res, err := r.engine.Run(t.Context(), task, Options{Metadata: doc.Of("seed", doc.Of("x", id))}); res != nil || !fault.Is(err, fault.Invalid) {
			t.Errorf("a seed that gives %s: %v", id, err)
		}
	}
	if n, _ := r.docs.Count(t.Context(), collInstances, nil); n != 0 {
		t.Error("something was recorded")
	}
}

// TestTheLastMarkWinsButOverCompleted has another process mark the record while a run goes on to each end.
func TestTheLastMarkWinsButOverCompleted(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ mark, end, want string }{
		{"completed", "failed", "completed"}, {"completed", "cancelled", "completed"}, {"failed", "cancelled", "cancelled"},
		{"cancelled", "completed", "cancelled"}, {"failed", "completed", "failed"}, {"cancelled", "failed", "failed"},
	} {
		t.Run(c.mark+", then "+c.end, func(t *testing.T) {
			t.Parallel()
			docs := openDocs(t)
			ctx, cancel := context.WithCancelCause(context.Background())
			defer cancel(nil)
			r := newRigOn(t, deeds{"a": func(ctx context.Context, r *Run) error {
				u := document.Update{Set: doc.Of("status", c.mark, "error", "by another"), Inc: doc.Of("rev", doc.Int(1))}
				if _, err := docs.Update(ctx, collInstances, document.By("instance_id", r.Instance), u, false); err != nil {
					return err
				}
				switch c.end {
				case "failed":
					return errors.New("boom")
				case "cancelled":
					cancel(errors.New("enough"))
					<-ctx.Done()
					return ctx.Err()
				}
				return nil
			}}, docs)
			res, _ := r.engine.Run(ctx, r.task(`[{"id":"a","type":"do"}]`), Options{})
			text := map[string]string{"failed": "boom", "cancelled": "enough"}[c.end]
			if c.want != c.end {
				text = "by another"
			}
			if in := r.instance(res.Instance); in.Status != c.want || in.Error != text {
				t.Errorf("recorded %s %q, want %s %q", in.Status, in.Error, c.want, text)
			}
		})
	}
}

// TestAnEndThatCannotBeRecordedIsLogged after three tries, half a second and a second apart.
func TestAnEndThatCannotBeRecordedIsLogged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var l logged
		h := &hooked{Store: openDocs(t)}
		var tries []time.Time
		down := func() error {
			tries = append(tries, time.Now())
			return fault.New(fault.Unavailable, "the disk is full")
		}
		r := newRigOn(t, deeds{"a": func(context.Context, *Run) error { h.before.Store(&down); return errors.New("boom") }}, h)
		res := r.run(r.task(`[{"id":"a","type":"do"}]`), Options{Log: slog.New(slog.NewTextHandler(&l, nil))})
		if res.Status != "failed" || !strings.Contains(res.Err.Error(), "boom") || l.count("could not be recorded") != 1 || l.count("the disk is full") != 1 {
			t.Errorf("ended %s: %v\n%s", res.Status, res.Err, l.text.String())
		}
		if len(tries) != 3 || tries[1].Sub(tries[0]) < 500*time.Millisecond || tries[2].Sub(tries[1]) < time.Second {
			t.Errorf("tried at %v", tries)
		}
	})
}

func TestPagesOfRunsDoNotOverlap(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	docs := openDocs(t)
	r := &rig{tb: t, docs: docs, reg: testRegistry(t, nil)}
	r.engine = NewEngine(r.reg, docs, nil, func() time.Time { return at })
	task := r.task(noops(1, ""))
	var want []string
	for range 7 {
		want = append(want, r.run(task, Options{}).Instance)
	}
	slices.Sort(want)
	slices.Reverse(want)
	var got []string
	for page := range 4 {
		list, err := NewInstances(docs).List(t.Context(), ListQuery{TaskID: "t", Version: 2, Limit: 2, Offset: 2 * page})
		if err != nil {
			t.Fatal(err)
		}
		for _, in := range list {
			got = append(got, in.ID)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestRowsAsTheReferenceReadsThem looks at what a row holds of odd changes.
func TestRowsAsTheReferenceReadsThem(t *testing.T) {
	t.Parallel()
	meta := `{"map": {"x": 1}, "list": [{"id": 1}, {"id": 2}]}`
	for name, c := range map[string]struct {
		do   func(*Run)
		want string
	}{
		"an item again":     {func(r *Run) { r.Append(parse(t, `{"id": 1}`), "list") }, `{"sets": [], "unsets": [], "add_to_sets": []}`},
		"a key with a dot":  {func(r *Run) { r.Set(doc.Int(2), "map", "a.b") }, `{"sets": [{"path": "context.metadata.map", "value": {"x": 1, "a.b": 2}}], "unsets": [], "add_to_sets": []}`},
		"a key with a $":    {func(r *Run) { r.Set(doc.Int(2), "map", "$a") }, `{"sets": [{"path": "context.metadata.map", "value": {"x": 1, "$a": 2}}], "unsets": [], "add_to_sets": []}`},
		"an empty map":      {func(r *Run) { r.Set(&doc.Object{}, "new") }, `{"sets": [{"path": "context.metadata.new", "value": {}}], "unsets": [], "add_to_sets": []}`},
		"a key in the list": {func(r *Run) { r.Append(parse(t, `{"id": 3}`), "list") }, `{"sets": [], "unsets": [], "add_to_sets": [{"path": "context.metadata.list", "items": [{"id": 3}]}]}`},
		"gone":              {func(r *Run) { r.Unset("map", "x") }, `{"sets": [], "unsets": ["context.metadata.map.x"], "add_to_sets": []}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, deeds{"a": func(_ context.Context, r *Run) error { c.do(r); return nil }})
			res := r.run(r.task(`[{"id":"a","type":"do"}]`), Options{Metadata: parse(t, meta)})
			r.sound(res)
			ops := r.rows(res.Instance)[1].Ops
			if ops.Delete("started_at"); !doc.Equal(ops, parse(t, c.want)) {
				t.Errorf("the row holds %s", show(ops))
			}
		})
	}
}

// TestLocalAndBareRunsAtOnce run beside each other, and each writes to its own store.
func TestLocalAndBareRunsAtOnce(t *testing.T) {
	t.Parallel()
	open := func(name string) *sqlite.Store {
		s, err := sqlite.New(sqlite.Options{Path: filepath.Join(t.TempDir(), name), CheckID: func(string) error { return nil }})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	configured, local := open("configured.db"), open("local.db")
	docs := document.NewRouter(configured, local)
	t.Cleanup(func() {
		if err := docs.Close(); err != nil {
			t.Error(err)
		}
	})
	var here sync.WaitGroup
	here.Add(8) // all run at once
	r := newRigOn(t, deeds{"a": func(context.Context, *Run) error { here.Done(); here.Wait(); return nil }}, docs)
	var all sync.WaitGroup
	for i := range 8 {
		task := *r.task(`[{"id":"a","type":"do"},{"id":"b","type":"do"}]`)
		if i%2 == 0 {
			task.ID = "@local/me/t"
		}
		all.Go(func() {
			if res, err := r.engine.Run(soon(t), &task, Options{}); err != nil || !res.Recorded {
				t.Error(err)
			}
		})
	}
	all.Wait()
	for name, s := range map[string]document.Store{"t": configured, "@local/me/t": local} {
		list, err := s.Query(t.Context(), collInstances, document.Query{})
		rows, rerr := s.Count(t.Context(), collJournal, nil)
		if len(list) != 4 || rows != 12 || err != nil || rerr != nil {
			t.Errorf("the store of %s has %d runs and %d rows, %v, %v", name, len(list), rows, err, rerr)
		}
		for _, d := range list {
			if d.Str("task_id") != name || d.Str("status") != "completed" {
				t.Errorf("the store of %s holds %s", name, show(d))
			}
		}
	}
}

// TestGoingOnFromAJournalOfTheReference, which writes a row and the record of a step apart.
func TestGoingOnFromAJournalOfTheReference(t *testing.T) {
	t.Parallel()
	const four = `[{"id":"a","type":"do"},{"id":"c","type":"do"},{"id":"d","type":"do"},{"id":"e","type":"do"}]`
	ac, failed := `{"step_id":"a","status":"success"},{"step_id":"c","status":"success"},`, `{"step_id":"d","status":"failure"}`
	for name, c := range map[string]struct {
		completed, row string
		refused        string
		list           []any
	}{
		"as it stands":                     {ac + failed, "", "", []any{"a0", "c0", "d1", "e1"}},
		"a row of what is not done":        {ac + `{"step_id":"e","status":"failure"}`, "d", "", []any{"a0", "c0", "d1", "e1"}},
		"a row of what was undone":         {`{"step_id":"a","status":"success"},` + failed, "", "", []any{"a0", "c1", "d1", "e1"}},
		"no row of what is done":           {ac + `{"step_id":"d","status":"success"},{"step_id":"e","status":"failure"}`, "", `step "d"`, nil},
		"a tolerated failure that is done": {ac + failed, "d failure", "", []any{"a0", "c0", "d0", "e1"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var n tally
			write := func(_ context.Context, r *Run) error {
				r.Append(fmt.Sprint(r.StepID, n.add(r.StepID)), "list")
				return nil
			}
			r := newRig(t, deeds{"a": write, "c": write, "d": write, "e": write})
			put := func(step string, seq int, status, path string, value any) {
				ops := doc.Of("sets", []any{}, "unsets", []any{}, "add_to_sets", []any{})
				if list, is := value.([]any); is {
					ops.Set("add_to_sets", []any{doc.Of("path", path, "items", list)})
				} else {
					ops.Set("sets", []any{doc.Of("path", path, "value", value)})
				}
				if err := r.docs.Insert(t.Context(), collJournal, doc.Of("instance_id", "t-1", "step_id", step, "seq", doc.Int(seq), "generation", doc.Int(0), "status", status,
					"recorded_at", "2026-01-02T03:04:05.000000+00:00", "ops", ops)); err != nil {
					t.Fatal(err)
				}
			}
			put(seedRow, 1, "seed", "context.instance_id", "t-1")
			put("a", 2, "success", "context.metadata.list", []any{"a0"})
			put("c", 3, "success", "context.metadata.list", []any{"c0"})
			if step, status, _ := strings.Cut(c.row, " "); step != "" {
				put(step, 4, map[string]string{"": "success", "failure": "failure"}[status], "context.metadata.list", []any{step + "0"})
			}
			in := parse(t, `{"instance_id": "t-1", "task_id": "t", "task_version": 2, "total_steps": 4, "created_at_utc": "2026-01-02 03:04 UTC", "rev": 3, "run_generation": 0,
				"context": {"deployed_envs": [], "deployed_agents": [], "deployed_sandboxes": [], "prompt_responses": [], "metadata": {"list": ["a0", "c0", "half"]}, "agent_model": null,
				"default_agent_model": null, "agent_artifact_id": null, "agent_harness": null, "instance_id": "t-1"}, "completed_steps": [`+c.completed+`], "status": "failed", "error": "boom",
				"completed_at_utc": "2026-01-02 03:04 UTC", "current_step": 2, "rerecorded_steps": [], "attempt_epoch": 0, "journal_seq": 4}`)
			if err := r.docs.Insert(t.Context(), collInstances, in); err != nil {
				t.Fatal(err)
			}
			res, err := r.engine.Resume(t.Context(), r.task(four), "t-1", Options{})
			if c.refused != "" {
				if res != nil || !fault.Is(err, fault.Conflict) || !strings.Contains(err.Error(), c.refused) || len(n.counts()) != 0 || !doc.Equal(r.instance("t-1").Document, in) {
					t.Errorf("%v, ran %v", err, n.counts())
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			r.sound(res)
			if got := metadata(res).Arr("list"); !doc.Equal(got, c.list) {
				t.Errorf("the list is %s, want %v", show(got), c.list)
			}
			if now := r.instance("t-1"); now.Status != "completed" || len(now.Completed) != 4 || now.Error != "" {
				t.Errorf("stored: %s", show(now.Document))
			}
		})
	}
}
