package task

import (
	"context"
	"sync"
	"testing"

	"agentenv/fault"
	"agentenv/store/doc"
)

// TestAddAgent records agents under names of their own, also when two steps that run at the same time take one name.
func TestAddAgent(t *testing.T) {
	t.Parallel()
	run := NewRun("a", "do", nil, nil, nil)
	ann := doc.Of("agent_name", "ann", "api_url", "")
	if err := run.AddAgent(ann); err != nil {
		t.Fatal(err)
	}
	if err := run.AddAgent(doc.Of("agent_name", "ann", "api_url", "http://other")); !fault.Is(err, fault.Exists) {
		t.Errorf("a name twice: %v", err)
	}
	run.AddPromptResponse(doc.Of("prompt_id", "p", "response", "hi"))
	if len(run.Agents()) != 1 || len(run.PromptResponses()) != 1 || run.PromptResponses()[0].Str("response") != "hi" {
		t.Errorf("%v, %v", run.Agents(), run.PromptResponses())
	}
	var both sync.WaitGroup
	both.Add(2)
	add := func(url string) func(context.Context, *Run) error {
		return func(_ context.Context, r *Run) error {
			both.Done()
			both.Wait()
			return r.AddAgent(doc.Of("agent_name", "ann", "api_url", url))
		}
	}
	r := newRig(t, deeds{"a": add("1"), "b": add("2")})
	res := r.run(r.task(`[{"id":"a","type":"do"},{"id":"b","type":"do","depends_on":[]}]`), Options{})
	if len(res.Context.Arr("deployed_agents")) != 1 || !fault.Is(res.Err, fault.Exists) {
		t.Errorf("%v, %v", res.Err, res.Context.Arr("deployed_agents"))
	}
}

// TestWith has kinds of step that one engine knows and the one it was made from does not.
func TestWith(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	ran := false
	more := &StepType{Name: "more", FailsTask: true, Fields: []Field{{Name: "text", Kind: String}}, Parse: func(_ string, f *doc.Object) (Action, *doc.Object, error) {
		return action{func(_ context.Context, run *Run) error {
			ran = f.Str("text") == "hi ann" && run.StepType == "more"
			return nil
		}}, nil, nil
	}}
	with, err := r.engine.With(more)
	if err != nil {
		t.Fatal(err)
	}
	tk := &Task{ID: "t", Version: 1, Steps: []*Step{{ID: "a", Type: "more", Kind: more, Implicit: true, FailsTask: true, Fields: doc.Of("text", "hi <who>"), Action: action{}}}}
	res, err := with.Run(t.Context(), tk, Options{Metadata: doc.Of("seed", doc.Of("who", "ann"))})
	if err != nil || !ran || r.instance(res.Instance).Status != "completed" {
		t.Errorf("%+v, %v, ran %v", res, err, ran)
	}
	if _, err := r.engine.Run(t.Context(), tk, Options{Metadata: doc.Of("seed", doc.Of("who", "ann"))}); !fault.Is(err, fault.Invalid) {
		t.Errorf("the first engine knows the kind too: %v", err)
	}
	if _, err := r.engine.With(&StepType{Name: "do", Pending: true}); !fault.Is(err, fault.Exists) {
		t.Errorf("a kind twice: %v", err)
	}
}
