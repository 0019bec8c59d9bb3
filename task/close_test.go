package task

import (
	"context"
	"strings"
	"testing"
	"time"

	"agentenv/fault"
	"agentenv/store/doc"
	"agentenv/store/document"
)

// killed leaves a run as a process does that dies in the middle: the first step is committed, the head is there.
func (r *rig) killedAfterFirst(t *Task) *Instance {
	r.tb.Helper()
	r.engine.Owner.Self = doc.Of("host", "here", "pid", doc.Int(7))
	res := r.run(t, Options{EndStep: 1})
	seq, _ := r.instance(res.Instance).Document.Int("journal_seq")
	if err := r.docs.Insert(context.Background(), collHeads, doc.Of("instance_id", res.Instance, "generation", doc.Int(0), "epoch", doc.Int(0), "seq", doc.Int(seq), "owner", r.engine.Owner.Self)); err != nil {
		r.tb.Fatal(err)
	}
	if _, err := r.docs.Update(context.Background(), collInstances, document.By("instance_id", res.Instance),
		document.Update{Unset: []string{"end_step", "outcome_class", "ended_at_precise_utc"}}, false); err != nil {
		r.tb.Fatal(err)
	}
	return r.instance(res.Instance)
}

func TestCancelOfAnInterruptedRun(t *testing.T) {
	r := newRig(t, deeds{"a": func(_ context.Context, run *Run) error { run.Set("yes", "done"); return nil }})
	two := r.task(`[{"id":"a","type":"do"},{"id":"b","type":"do"}]`)
	in := r.killedAfterFirst(two)
	all := NewInstances(r.docs)
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	if err := all.Cancel(t.Context(), in, "enough", at); err != nil {
		t.Fatal(err)
	}
	now := r.instance(in.ID)
	epoch, _ := now.Document.Int("attempt_epoch")
	if now.Status != "cancelled" || now.Error != "enough" || now.Class != Cancelled || now.CompletedAt != "2026-01-02 03:04 UTC" || len(now.Completed) != 1 || now.Owner != nil || epoch != 1 ||
		now.Context.Obj("metadata").Str("done") != "yes" {
		t.Errorf("%s", show(now.Document))
	}
	for name, in := range map[string]*Instance{"what was read before": in, "what is there now": now} {
		err := all.Cancel(t.Context(), in, "again", at)
		if name == "what is there now" && err != nil || name == "what was read before" && !fault.Is(err, fault.Conflict) {
			t.Errorf("cancelled again by %s: %v", name, err)
		}
	}
	if again := r.instance(in.ID); again.Error != "enough" {
		t.Errorf("%s", show(again.Document))
	}
	// It can be resumed.
	res, err := r.engine.Resume(t.Context(), two, in.ID, Options{})
	if err != nil || res.Status != "completed" {
		t.Errorf("%+v, %v", res, err)
	}
}

func TestClosingRefusesWhatGoesOn(t *testing.T) {
	two := `[{"id":"a","type":"do"},{"id":"b","type":"do"}]`
	for name, change := range map[string]func(r *rig, in *Instance){
		"a step was committed": func(r *rig, in *Instance) {
			r.change(collHeads, in.ID, doc.Of("seq", doc.Int(99)))
		},
		"another owner": func(r *rig, in *Instance) { r.change(collHeads, in.ID, doc.Of("owner.pid", doc.Int(8))) },
		"resumed":       func(r *rig, in *Instance) { r.change(collInstances, in.ID, doc.Of("attempt_epoch", doc.Int(5))) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, deeds{})
			in := r.killedAfterFirst(r.task(two))
			change(r, in)
			all := NewInstances(r.docs)
			for _, err := range []error{all.Cancel(t.Context(), in, "x", time.Now()), all.Remove(t.Context(), in)} {
				if !fault.Is(err, fault.Conflict) || !strings.Contains(err.Error(), in.ID) {
					t.Errorf("got %v", err)
				}
			}
			if now, err := all.Find(t.Context(), in.ID); err != nil || now == nil || now.Status != "running" {
				t.Errorf("%+v, %v", now, err)
			}
		})
	}
}

func (r *rig) change(coll, id string, set *doc.Object) {
	r.tb.Helper()
	if n, err := r.docs.Update(context.Background(), coll, document.By("instance_id", id), document.Update{Set: set}, false); n != 1 || err != nil {
		r.tb.Fatal(n, err)
	}
}

func TestRemove(t *testing.T) {
	r := newRig(t, deeds{})
	two := r.task(`[{"id":"a","type":"do"},{"id":"b","type":"do"}]`)
	gone, stays := r.run(two, Options{}), r.run(two, Options{})
	all := NewInstances(r.docs)
	in := r.instance(gone.Instance)
	if n, bytes, err := all.Size(t.Context(), in); n != 4 || bytes < 500 || err != nil {
		t.Errorf("%d documents, %d bytes, %v", n, bytes, err)
	}
	for range 2 {
		if err := all.Remove(t.Context(), in); err != nil {
			t.Fatal(err)
		}
	}
	for id, want := range map[string]int{gone.Instance: 0, stays.Instance: 4} {
		n := 0
		for _, coll := range []string{collInstances, collJournal, collHeads} {
			found, err := r.docs.Count(t.Context(), coll, document.By("instance_id", id))
			if err != nil {
				t.Fatal(err)
			}
			n += found
		}
		if n != want {
			t.Errorf("%s has %d documents, not %d", id, n, want)
		}
	}
}

func TestContextToBeginWith(t *testing.T) {
	given := `{"agent_model":"old","instance_id":"other","deployed_sandboxes":[{"sandbox_name":"box","sandbox_id":"s1"}],"prompt_responses":null,
		"metadata":{"x":"old","y":{"deep":1},"run_group_id":"g","user_overrides":{"litellm_api_key":"sk"},"failed_steps":[{"step_id":"a"},{"step_id":"z"}]}}`
	r := newRig(t, deeds{"b": func(_ context.Context, run *Run) error {
		if run.Context().Obj("metadata").Obj("user_overrides").Str("litellm_api_key") != "sk" {
			return fault.New(fault.Invalid, "the secret is not there")
		}
		return nil
	}})
	context := parse(t, given)
	before := show(context)
	two := r.task(`[{"id":"a","type":"do"},{"id":"b","type":"do"}]`)
	res := r.run(two, Options{Context: context, Metadata: doc.Of("x", "new"), StartStep: 1, AgentModel: "new"})
	r.sound(res)
	c := res.Context
	meta := c.Obj("metadata")
	if res.Status != "completed" || c.Str("agent_model") != "new" || c.Str("instance_id") != res.Instance || len(Sandboxes(c)) != 1 || meta.Str("x") != "new" || meta.Obj("y") == nil ||
		meta.Str("run_group_id") != "g" || len(meta.Arr("failed_steps")) != 2 || len(c.Arr("prompt_responses")) != 0 {
		t.Errorf("%+v\n%s", res.Err, show(c))
	}
	if show(context) != before {
		t.Error("the context that was given has changed")
	}
	if text := show(r.instance(res.Instance).Document); strings.Contains(text, `"sk"`) {
		t.Error("the secret is stored")
	}
	// A step that runs again has its old failure dropped.
	if res = r.run(two, Options{Context: context}); len(res.Context.Obj("metadata").Arr("failed_steps")) != 1 {
		t.Errorf("%s", show(res.Context))
	}
	for bad, word := range map[string]string{`{"metadata":[]}`: "metadata", `{"deployed_envs":{}}`: "deployed_envs", `{"deployed_agents":[1]}`: "entry 0"} {
		n, _ := r.docs.Count(t.Context(), collInstances, nil)
		if res, err := r.engine.Run(t.Context(), two, Options{Context: parse(t, bad)}); res != nil || !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), word) {
			t.Errorf("%s: %v, %v", bad, res, err)
		}
		if after, _ := r.docs.Count(t.Context(), collInstances, nil); after != n {
			t.Errorf("%s was recorded", bad)
		}
	}
}

// TestOwnerIsJudgedByItsInstance: who lives is asked with the instance, and an owner that changed since is not the one that was judged.
func TestOwnerIsJudgedByItsInstance(t *testing.T) {
	r := newRig(t, deeds{})
	two := r.task(`[{"id":"a","type":"do"},{"id":"b","type":"do"}]`)
	in := r.killedAfterFirst(two)
	asked := ""
	r.engine.Owner.Alive = func(_ context.Context, id string, owner *doc.Object) (bool, error) {
		asked = id + " " + doc.Canonical(owner)
		r.change(collHeads, id, doc.Of("owner.pid", doc.Int(8))) // another one took it up
		return false, nil
	}
	if res, err := r.engine.Resume(t.Context(), two, in.ID, Options{}); res != nil || !fault.Is(err, fault.Conflict) || !strings.Contains(err.Error(), "process 8") {
		t.Errorf("%v, %v", res, err)
	}
	if asked != in.ID+" "+doc.Canonical(in.Owner) {
		t.Errorf("asked for %s", asked)
	}
	r.engine.Owner.Alive = func(context.Context, string, *doc.Object) (bool, error) {
		return true, fault.New(fault.Unavailable, "cannot tell")
	}
	if _, err := r.engine.Resume(t.Context(), two, in.ID, Options{}); !fault.Is(err, fault.Unavailable) {
		t.Errorf("%v", err)
	}
	r.engine.Owner.Alive = nil
	if res, err := r.engine.Resume(t.Context(), two, in.ID, Options{}); err != nil || res.Status != "completed" {
		t.Errorf("%v, %v", res, err)
	}
}
