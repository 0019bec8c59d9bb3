package task

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentenv/fault"
	"agentenv/store/doc"
)

// TestVerify grades a run again: only its verifiers run, on its context, under an instance of their own.
func TestVerify(t *testing.T) {
	t.Parallel()
	var c tally
	score := doc.Float(0)
	var kept string
	verdict := func(id string) func(context.Context, *Run) error {
		return func(_ context.Context, r *Run) error {
			c.add(id)
			if id == "grade" {
				kept = r.Context().Obj("metadata").Str("made")
			}
			r.Set(doc.Of("score", score), "verifications", "v-"+id)
			if score == doc.Float(0) && id == "grade" {
				return fault.New(fault.Unavailable, "the judge is down")
			}
			return nil
		}
	}
	r := newRig(t, deeds{
		"make": func(_ context.Context, r *Run) error {
			c.add("make")
			r.Set("it", "made")
			return r.AddSandbox(Sandbox{Name: "box", ID: "local-1", Mode: "vm", Type: "local"})
		},
		"grade": verdict("grade"), "late": verdict("late"), "after": func(context.Context, *Run) error { c.add("after"); return nil },
		"final": verdict("final"),
	})
	task := r.task(`[{"id":"make","type":"do"},
		{"id":"grade","type":"check","verifier_id":"v-grade","retry_config":{"retry_from_step_id":"make","max_retries":1}},
		{"id":"late","type":"check","verifier_id":"v-late","depends_on":["make"]},
		{"id":"after","type":"do","depends_on":["grade"]},
		{"id":"final","type":"check","verifier_id":"v-final","depends_on":["after"]}]`)
	first := r.run(task, Options{Instance: "t-one", Metadata: doc.Of("task_id", "t", "run_group_id", "g")})
	if first.Status != "failed" {
		t.Fatalf("the first run is %s", first.Status)
	}
	before := show(r.instance("t-one").Document)
	made := c.counts()["make"]

	score = doc.Float(1)
	w := &watcher{}
	res, err := r.engine.Verify(t.Context(), task, "t-one", Options{Instance: "t-two", Observer: w})
	if err != nil || res.Status != "completed" || res.Class != Passed {
		t.Fatalf("verified: %+v, %v", res, err)
	}
	r.sound(res)
	if diff := cmp.Diff([]string{"final depends on a step that the run never completed"}, res.LeftOut); diff != "" {
		t.Error(diff)
	}
	slices.SortFunc(res.Scores, func(a, b Score) int { return strings.Compare(a.Label, b.Label) })
	if diff := cmp.Diff([]Score{{"grade", 1}, {"late", 1}}, res.Scores); diff != "" {
		t.Error(diff)
	}
	if c.counts()["make"] != made || c.counts()["after"] != 0 || kept != "it" {
		t.Errorf("work was done again: %v, seen %q", c.counts(), kept)
	}
	if after := show(r.instance("t-one").Document); after != before {
		t.Error(cmp.Diff(before, after))
	}
	in := r.instance("t-two")
	if in.Context.Obj("metadata").Str("verifies") != "t-one" || in.Context.Obj("metadata").Str("run_group_id") == "g" || len(Sandboxes(in.Context)) != 1 {
		t.Errorf("the new record is %s", show(in.Document))
	}
	var done []string
	for _, e := range in.Completed {
		done = append(done, e.StepID+" "+e.Status+" "+string(e.Class))
	}
	slices.Sort(done[1:])
	if diff := cmp.Diff([]string{"make success passed", "grade success passed", "late success passed"}, done); diff != "" {
		t.Error(diff)
	}
	if len(metadata(res).Arr("failed_steps")) != 0 {
		t.Errorf("failures of the old run are left: %s", show(metadata(res)))
	}
	if text := strings.Join(w.lines, " "); strings.Contains(text, "make") || strings.Contains(text, "after") || strings.Contains(text, "final") {
		t.Errorf("heard %s", text)
	}

	// A verification that fails is not tried again, and the record that it leaves is not gone on with.
	score = doc.Float(0)
	bad, err := r.engine.Verify(t.Context(), task, "t-one", Options{Instance: "t-three"})
	if err == nil || bad.Status != "failed" || bad.Class != Infrastructure || c.counts()["make"] != made {
		t.Errorf("verified: %+v, %v", bad, err)
	}
	if _, err := r.engine.Resume(t.Context(), task, "t-three", Options{}); !fault.Is(err, fault.Conflict) || !strings.Contains(err.Error(), "task verify --id t-one") {
		t.Errorf("a verification resumed: %v", err)
	}
}

func TestVerifyRefuses(t *testing.T) {
	t.Parallel()
	r := newRig(t, deeds{"a": fail(fault.Internal, "boom")})
	task := r.task(`[{"id":"a","type":"do"},{"id":"v","type":"check","verifier_id":"v"}]`)
	r.run(task, Options{Instance: "t-failed"})
	other := *task
	other.Version = 9
	none := r.task(`[{"id":"a","type":"do"}]`)
	for name, c := range map[string]struct {
		task *Task
		id   string
		kind fault.Kind
		says string
	}{
		"no such run":           {task, "t-none", fault.NotFound, "not found"},
		"another version":       {&other, "t-failed", fault.Conflict, "not of t v9"},
		"no verifier":           {none, "t-failed", fault.Invalid, "no verifier"},
		"nothing to verify yet": {task, "t-failed", fault.Invalid, "v depends on a step that the run never completed"},
	} {
		t.Run(name, func(t *testing.T) {
			res, err := r.engine.Verify(t.Context(), c.task, c.id, Options{Instance: "t-new"})
			if res != nil || !fault.Is(err, c.kind) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v, %v", res, err)
			}
			if in, _ := NewInstances(r.docs).Find(t.Context(), "t-new"); in != nil {
				t.Error("something was recorded")
			}
		})
	}
}

// TestVerifyWithoutTheSandbox leaves out what needs a sandbox that lives no longer: it gets no verdict, and none of before.
func TestVerifyWithoutTheSandbox(t *testing.T) {
	t.Parallel()
	score := func(id string) func(context.Context, *Run) error {
		return func(_ context.Context, r *Run) error {
			r.Set(doc.Of("score", doc.Float(1)), "verifications", id)
			return nil
		}
	}
	r := newRig(t, deeds{
		"make": func(_ context.Context, r *Run) error {
			return r.AddSandbox(Sandbox{Name: "box", ID: "local-1", Mode: "vm", Type: "local"})
		},
		"reply": score("reply"), "files": score("files"),
	})
	task := r.task(`[{"id":"make","type":"do"},{"id":"reply","type":"check","verifier_id":"reply"},{"id":"files","type":"check","verifier_id":"files","sandbox_name":"box"}]`)
	r.run(task, Options{Instance: "t-one"})
	for name, gone := range map[string]bool{"t-lives": false, "t-lost": true} {
		res, err := r.engine.Verify(t.Context(), task, "t-one", Options{Instance: name, Keeper: &keeper{gone: map[string]bool{"local-1": gone}}})
		if err != nil {
			t.Fatal(err)
		}
		r.sound(res)
		left := metadata(res).Arr("verifiers_left_out")
		if want := map[bool]int{false: 2, true: 1}[gone]; len(res.Scores) != want || len(left) != 2-want || len(res.LeftOut) != 2-want {
			t.Errorf("%s: scores %v, left out %v", name, res.Scores, left)
		}
	}
}
