package task

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"agentenv/fault"
	"agentenv/store/doc"
	"agentenv/store/document"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(workerDir); dir != "" { // this process was started to run one step
		os.Exit(workOnce(dir))
	}
	goleak.VerifyTestMain(m)
}

func TestARunLeavesTheDocumentsOfTheReference(t *testing.T) {
	r := newRig(t, deeds{
		"box": func(_ context.Context, r *Run) error {
			return r.AddSandbox(Sandbox{Name: "box", ID: "local-1", Mode: "vm", Type: "local"})
		},
		"load": func(_ context.Context, r *Run) error {
			if _, err := r.Sandbox("box"); err != nil {
				return err
			}
			r.Append(doc.Of("id", "a", "version", doc.Int(1)), "loaded_file_artifact_universes")
			return nil
		},
		"verify": func(_ context.Context, r *Run) error {
			r.Set(doc.Of("score", doc.Float(1), "results", []any{doc.Of("ok", true)}), "verifications", "v")
			return nil
		},
	})
	res := r.run(r.task(`[{"id":"box","type":"do"},{"id":"load","type":"do"},{"id":"verify","type":"check","verifier_id":"v"}]`),
		Options{Metadata: doc.Of("run_group_id", "g", "task_id", "t")})
	if res.Status != "completed" || res.Class != Passed || !res.Recorded {
		t.Fatalf("ended %s, %s, recorded %v: %v", res.Status, res.Class, res.Recorded, res.Err)
	}
	if diff := cmp.Diff([]Score{{"verify", 1}}, res.Scores); diff != "" {
		t.Error(diff)
	}
	r.sound(res)
	in := r.instance(res.Instance)
	got := in.Document.Clone()
	for _, k := range []string{"created_at_utc", "completed_at_utc", "created_at_precise_utc", "ended_at_precise_utc"} {
		if got.Str(k) == "" {
			t.Errorf("%s is missing", k)
		}
		got.Delete(k)
	}
	want := parse(t, `{"instance_id": "`+res.Instance+`", "task_id": "t", "task_version": 2, "total_steps": 3, "rev": 3, "run_generation": 0,
		"context": {"deployed_envs": [], "deployed_agents": [], "deployed_sandboxes": [{"sandbox_name": "box", "sandbox_id": "local-1",
			"sandbox_mode": "vm", "sandbox_type": "local", "tunnel_urls": null, "vnc_url": null, "instance_id": null, "created_at_utc": null,
			"expires_at_utc": null, "network_policy": null}], "prompt_responses": [],
			"metadata": {"run_group_id": "g", "task_id": "t", "loaded_file_artifact_universes": [{"id": "a", "version": 1}],
				"verifications": {"v": {"score": 1.0, "results": [{"ok": true}]}}},
			"agent_model": null, "default_agent_model": null, "agent_artifact_id": null, "agent_harness": null, "instance_id": "`+res.Instance+`"},
		"completed_steps": [{"step_id": "box", "status": "success"}, {"step_id": "load", "status": "success"}, {"step_id": "verify", "status": "success"}],
		"status": "completed", "error": null, "current_step": 3, "rerecorded_steps": [], "attempt_epoch": 0, "journal_seq": 4,
		"outcome_class": "passed", "step_outcomes": {"box": "passed", "load": "passed", "verify": "passed"}}`)
	if !doc.Equal(got, want) {
		t.Errorf("the instance: %s", cmp.Diff(show(want), show(got)))
	}
	var rows []string
	for _, row := range r.rows(res.Instance) {
		rows = append(rows, fmt.Sprint(row.Seq, " ", row.StepID, " ", row.Status, " ", row.Generation))
	}
	if diff := cmp.Diff([]string{"1 __seed__ seed 0", "2 box success 0", "3 load success 0", "4 verify success 0"}, rows); diff != "" {
		t.Error(diff)
	}
	ops := parse(t, `{"sets": [{"path": "context.metadata.verifications.v.score", "value": 1.0}], "unsets": [],
		"add_to_sets": [{"path": "context.metadata.verifications.v.results", "items": [{"ok": true}]}]}`)
	last := r.rows(res.Instance)[3].Ops
	if last.Str("started_at") == "" {
		t.Error("the row does not say when its step started")
	}
	if last.Delete("started_at"); !doc.Equal(last, ops) {
		t.Errorf("ops of the verifier: %s", show(last))
	}
}

func TestFailures(t *testing.T) {
	boom := fault.New(fault.Internal, "boom")
	for _, c := range []struct {
		name, task    string
		deeds         deeds
		status        string
		class         Class
		err           string
		completed     []string
		failed        []string
		rev, seq, cur int64
	}{
		{"tolerated", `[{"id":"a","type":"do"},{"id":"b","type":"do","fail_task_on_error":false},{"id":"c","type":"do","depends_on":["b"]}]`,
			deeds{"b": func(_ context.Context, r *Run) error { r.Set(true, "wrote"); return boom }},
			"completed", Failed, "", []string{"a success", "b failure", "c success"}, []string{"b RuntimeError boom"}, 3, 4, 3},
		{"fatal", `[{"id":"a","type":"do"},{"id":"b","type":"do"},{"id":"c","type":"do"}]`,
			deeds{"b": func(_ context.Context, r *Run) error { r.Set(true, "wrote"); return boom }},
			"failed", Failed, "failed at step 'b': RuntimeError: boom", []string{"a success", "b failure"}, []string{"b RuntimeError boom"}, 2, 2, 1},
		{"invalid", `[{"id":"b","type":"do"}]`, deeds{"b": fail(fault.Invalid, "no such thing")},
			"failed", Configuration, "failed at step 'b': ValueError: no such thing", []string{"b failure"}, []string{"b ValueError no such thing"}, 1, 1, 0},
		{"engine away", `[{"id":"b","type":"do"}]`, deeds{"b": fail(fault.Unavailable, "no engine")},
			"failed", Infrastructure, "failed at step 'b': RuntimeError: no engine", []string{"b failure"}, []string{"b RuntimeError no engine"}, 1, 1, 0},
		{"panic", `[{"id":"b","type":"do"}]`, deeds{"b": func(context.Context, *Run) error { panic("oh") }},
			"failed", Failed, "failed at step 'b': RuntimeError: the step panicked: oh", []string{"b failure"}, []string{"b RuntimeError the step panicked: oh"}, 1, 1, 0},
		{"timeout", `[{"id":"b","type":"do","step_timeout_seconds":0.02}]`,
			deeds{"b": func(ctx context.Context, _ *Run) error { <-ctx.Done(); return errors.New("killed") }},
			"failed", TimedOut, "failed at step 'b': TimeoutError: the step did not end within its step_timeout_seconds of 0.02", []string{"b failure"},
			[]string{"b TimeoutError the step did not end within its step_timeout_seconds of 0.02"}, 1, 1, 0},
		{"what no document can hold", `[{"id":"b","type":"do"}]`,
			deeds{"b": func(_ context.Context, r *Run) error { r.Set(doc.Number("NaN"), "x"); return nil }},
			"failed", Configuration, "failed at step 'b': ValueError: context.metadata.x holds the number NaN, which cannot be stored", []string{"b failure"},
			[]string{"b ValueError context.metadata.x holds the number NaN, which cannot be stored"}, 1, 1, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, c.deeds)
			res := r.run(r.task(c.task), Options{})
			in := r.instance(res.Instance)
			if res.Status != c.status || in.Status != c.status || res.Class != c.class || in.Class != c.class {
				t.Errorf("ended %s/%s, %s/%s, want %s, %s", res.Status, in.Status, res.Class, in.Class, c.status, c.class)
			}
			if got := fmt.Sprint(res.Err); c.err != "" && got != c.err {
				t.Errorf("error %q, want %q", got, c.err)
			}
			if c.err != "" && !strings.HasSuffix(c.err, ": "+in.Error) {
				t.Errorf("the instance records the error %q, want the step's own text of %q", in.Error, c.err)
			}
			var completed, failed []string
			for _, s := range in.Completed {
				completed = append(completed, s.StepID+" "+s.Status)
			}
			for _, f := range res.Failures {
				failed = append(failed, f.StepID+" "+f.ErrorType+" "+f.Error)
			}
			if diff := cmp.Diff(c.completed, completed); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(c.failed, failed); diff != "" {
				t.Error(diff)
			}
			rev, _ := in.Document.Int("rev")
			seq, _ := in.Document.Int("journal_seq")
			if rev != c.rev || seq != c.seq || in.CurrentStep != int(c.cur) {
				t.Errorf("rev %d, journal_seq %d, current_step %d; want %d, %d, %d", rev, seq, in.CurrentStep, c.rev, c.seq, c.cur)
			}
			if c.deeds["b"] != nil && strings.Contains(c.name, "ta") { // the two that write before they fail
				if res.Context.Obj("metadata").Value("wrote") != true || in.Context.Obj("metadata").Value("wrote") != true {
					t.Error("what the step wrote before it failed is lost")
				}
			}
			entry := in.Context.Obj("metadata").Arr("failed_steps")[0].(*doc.Object)
			want := []string{"step_id", "step_type", "error", "error_type", "started_at_utc", "duration_seconds", "is_fatal"}
			if diff := cmp.Diff(want, entry.Keys()); diff != "" {
				t.Error(diff)
			}
			if heads, _ := r.docs.Count(context.Background(), collHeads, nil); heads != 0 {
				t.Error("the run's head is still there")
			}
		})
	}
}

func TestStepsDoNotSeeEachOther(t *testing.T) {
	both := make(chan struct{})
	var here atomic.Int32
	meet := func() {
		if here.Add(1) == 2 {
			close(both)
		}
		<-both
	}
	r := newRig(t, deeds{
		"a": func(_ context.Context, r *Run) error {
			r.Set(doc.Int(1), "shared", "a")
			meet()
			if _, there := r.Lookup("shared", "b"); there {
				return errors.New("a sees b")
			}
			r.Append("a", "list")
			return nil
		},
		"b": func(_ context.Context, r *Run) error {
			r.Set(doc.Int(2), "shared", "b")
			meet()
			if _, there := r.Lookup("shared", "a"); there {
				return errors.New("b sees a")
			}
			r.Append("b", "list")
			return nil
		},
		"c": func(_ context.Context, r *Run) error {
			if len(r.Metadata("list").([]any)) != 2 {
				return errors.New("c does not see both")
			}
			return nil
		},
	})
	res := r.run(r.task(`[{"id":"a","type":"do","depends_on":[]},{"id":"b","type":"do","depends_on":[]},{"id":"c","type":"do"}]`), Options{})
	if res.Err != nil {
		t.Fatal(res.Err)
	}
	r.sound(res)
	if got := res.Context.Obj("metadata").Obj("shared"); !doc.Equal(got, doc.Of("a", doc.Int(1), "b", doc.Int(2))) {
		t.Errorf("shared is %s", show(got))
	}
}

func TestANameTakenMeanwhileFailsTheLaterStep(t *testing.T) {
	var here atomic.Int32
	both := make(chan struct{})
	deploy := func(id string) func(context.Context, *Run) error {
		return func(_ context.Context, r *Run) error {
			if here.Add(1) == 2 {
				close(both)
			}
			<-both
			return r.AddSandbox(Sandbox{Name: "box", ID: id, Mode: "vm", Type: "local"})
		}
	}
	r := newRig(t, deeds{"a": deploy("one"), "b": deploy("two")})
	res := r.run(r.task(`[{"id":"a","type":"do","depends_on":[]},{"id":"b","type":"do","depends_on":[]}]`), Options{})
	if !fault.Is(res.Err, fault.Exists) || res.Status != "failed" {
		t.Fatalf("ended %s: %v", res.Status, res.Err)
	}
	kept, lost := Recorded(res.Context), res.Dropped
	if len(kept) != 1 || len(lost) != 1 || kept[0].ID == lost[0].ID {
		t.Errorf("kept %v, dropped %v; every sandbox must be in one of them", kept, lost)
	}
}

func TestCancellation(t *testing.T) {
	ctx, cancel := context.WithCancelCause(context.Background())
	stopped := false
	r := newRig(t, deeds{
		"b": func(ctx context.Context, r *Run) error {
			if err := r.AddSandbox(Sandbox{Name: "box", ID: "s1", Mode: "vm"}); err != nil {
				return err
			}
			cancel(errors.New("cancelled by Ctrl-C"))
			<-ctx.Done()
			time.Sleep(20 * time.Millisecond)
			stopped = true
			return errors.New("killed")
		},
		"c": func(context.Context, *Run) error { t.Error("a step ran after the cancel"); return nil },
	})
	res, err := r.engine.Run(ctx, r.task(`[{"id":"a","type":"do"},{"id":"b","type":"do"},{"id":"c","type":"do"}]`), Options{})
	if !fault.Is(err, fault.Canceled) || res.Status != "cancelled" || res.Class != Cancelled {
		t.Fatalf("ended %s, %s: %v", res.Status, res.Class, err)
	}
	if !stopped {
		t.Error("the run returned before its step did")
	}
	in := r.instance(res.Instance)
	if in.Status != "cancelled" || in.Error != "cancelled by Ctrl-C" || len(in.Completed) != 1 || len(Sandboxes(in.Context)) != 0 {
		t.Errorf("recorded %s %q, %d completed, context %s", in.Status, in.Error, len(in.Completed), show(in.Context))
	}
	if len(Recorded(res.Context)) != 1 {
		t.Error("the sandbox of the cancelled step is not known for teardown")
	}
	if len(res.Failures) != 0 {
		t.Errorf("a cancelled step counts as failed: %v", res.Failures)
	}
}

func TestAFailureSetBeforeTheCancelIsRecorded(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	r := newRig(t, deeds{
		"bad":  fail(fault.Internal, "boom"),
		"slow": func(ctx context.Context, _ *Run) error { <-ctx.Done(); return ctx.Err() },
	})
	w := &watcher{onEnd: func(e Event) {
		if e.StepID == "bad" {
			cancel()
		}
	}}
	res, _ := r.engine.Run(ctx, r.task(`[{"id":"slow","type":"do","depends_on":[]},{"id":"bad","type":"do","depends_on":[]}]`), Options{Observer: w})
	if in := r.instance(res.Instance); in.Status != "failed" || in.Error != "boom" {
		t.Errorf("recorded %s %q", in.Status, in.Error)
	}
}

func TestFailFastCancelsWhatRuns(t *testing.T) {
	r := newRig(t, deeds{
		"bad":  fail(fault.Internal, "boom"),
		"slow": func(ctx context.Context, _ *Run) error { <-ctx.Done(); return ctx.Err() },
	})
	res := r.run(r.task(`{"fail_fast": true, "steps": [{"id":"slow","type":"do","depends_on":[]},{"id":"bad","type":"do","depends_on":[]}]}`), Options{})
	if res.Status != "failed" || res.Steps["slow"] != Cancelled || res.Steps["bad"] != Failed {
		t.Errorf("ended %s, steps %v: %v", res.Status, res.Steps, res.Err)
	}
}

func TestWithoutFailFastWhatRunsIsLeftToFinish(t *testing.T) {
	failed := make(chan struct{})
	r := newRig(t, deeds{
		"bad":  fail(fault.Internal, "boom"),
		"slow": func(_ context.Context, r *Run) error { <-failed; r.Set(true, "finished"); return nil },
	})
	w := &watcher{onEnd: func(e Event) {
		if e.StepID == "bad" {
			close(failed)
		}
	}}
	res := r.run(r.task(`[{"id":"slow","type":"do","depends_on":[]},{"id":"bad","type":"do","depends_on":[]},{"id":"never","type":"do"}]`), Options{Observer: w})
	in := r.instance(res.Instance)
	if in.Context.Obj("metadata").Value("finished") != true || res.Steps["slow"] != Passed || res.Steps["never"] != "" {
		t.Errorf("steps %v, context %s", res.Steps, show(in.Context))
	}
}

func TestMaxParallelSteps(t *testing.T) {
	var running, most atomic.Int32
	work := func(context.Context, *Run) error {
		now := running.Add(1)
		for m := most.Load(); now > m && !most.CompareAndSwap(m, now); m = most.Load() {
		}
		time.Sleep(5 * time.Millisecond)
		running.Add(-1)
		return nil
	}
	d := deeds{}
	var steps []string
	for i := range 12 {
		id := fmt.Sprint("s", i)
		d[id] = work
		steps = append(steps, `{"id":"`+id+`","type":"do","depends_on":[]}`)
	}
	r := newRig(t, d)
	res := r.run(r.task(`{"max_parallel_steps": 3, "steps": [`+strings.Join(steps, ",")+`]}`), Options{})
	if res.Err != nil || most.Load() != 3 {
		t.Errorf("%d steps ran at once, want 3: %v", most.Load(), res.Err)
	}
}

func TestRanges(t *testing.T) {
	four := `[{"id":"a","type":"do"},{"id":"b","type":"do"},{"id":"c","type":"do"},{"id":"d","type":"do"}]`
	for _, c := range []struct {
		start, end int
		want       string
	}{
		{-1, 0, "start_step=-1 out of range [0, 4)"}, {4, 0, "start_step=4 out of range [0, 4)"},
		{2, 2, "end_step=2 out of range (2, 4]"}, {0, 5, "end_step=5 out of range (0, 4]"},
	} {
		r := newRig(t, nil)
		res, err := r.engine.Run(context.Background(), r.task(four), Options{StartStep: c.start, EndStep: c.end})
		if res != nil || err == nil || err.Error() != c.want {
			t.Errorf("%d:%d gives %v, want %q", c.start, c.end, err, c.want)
		}
		if n, _ := r.docs.Count(context.Background(), collInstances, nil); n != 0 {
			t.Error("a run that could not begin left an instance")
		}
	}
	r := newRig(t, nil)
	w := &watcher{}
	res := r.run(r.task(four), Options{StartStep: 1, EndStep: 3, Observer: w})
	if diff := cmp.Diff([]string{"start b", "end b", "start c", "end c"}, w.lines); diff != "" {
		t.Error(diff)
	}
	in := r.instance(res.Instance)
	if in.Status != "running" || in.Class != Passed || len(in.Completed) != 3 || in.CurrentStep != 3 || in.Document.Value("end_step") != doc.Int(3) {
		t.Errorf("a partial run is recorded as %s", show(in.Document))
	}
	r.sound(res)
}

func TestReregister(t *testing.T) {
	fresh := true
	r := newRig(t, deeds{"b": func(_ context.Context, r *Run) error {
		if fresh {
			return errors.New("boom")
		}
		return nil
	}})
	task := r.task(`[{"id":"a","type":"do"},{"id":"b","type":"do"}]`)
	first := r.run(task, Options{Instance: "mine"})
	created := r.instance("mine").Document.Value("created_at_precise_utc")
	fresh = false
	second := r.run(task, Options{Instance: "mine", StartStep: 1, Metadata: first.Context.Obj("metadata")})
	if second.Err != nil || len(second.Failures) != 0 {
		t.Fatalf("%v, %v", second.Err, second.Failures)
	}
	r.sound(second)
	d := r.instance("mine").Document
	generation, _ := d.Int("run_generation")
	epoch, _ := d.Int("attempt_epoch")
	seq, _ := d.Int("journal_seq")
	if generation != 1 || epoch != 1 || seq != 5 || d.Value("created_at_precise_utc") != created || d.Str("status") != "completed" || d.Value("error") != nil {
		t.Errorf("after the second run: %s", show(d))
	}
	if rows := r.rows("mine"); len(rows) != 3 {
		t.Errorf("the second generation has %d rows, want 3", len(rows))
	}
}

func TestARunThatWasTakenOverStops(t *testing.T) {
	docs := openDocs(t)
	var second *Result
	r2 := newRigOn(t, nil, docs)
	task := `[{"id":"a","type":"do"},{"id":"b","type":"do"}]`
	r1 := newRigOn(t, deeds{
		"a": func(context.Context, *Run) error {
			second = r2.run(r2.task(task), Options{Instance: "i"})
			return nil
		},
		"b": func(context.Context, *Run) error { t.Error("a run that was taken over went on"); return nil },
	}, docs)
	res := r1.run(r1.task(task), Options{Instance: "i"})
	var taken *Superseded
	if !errors.As(res.Err, &taken) || taken.Instance != "i" || taken.Step != "a" || res.Status != "failed" {
		t.Errorf("ended %s: %v", res.Status, res.Err)
	}
	in := r1.instance("i")
	if in.Status != "completed" || len(in.Completed) != 2 {
		t.Errorf("the new run's record was touched: %s", show(in.Document))
	}
	r2.sound(second)
}

func TestTheDocumentLagsAndReadersFoldIt(t *testing.T) {
	docs := openDocs(t)
	var r *rig
	r = newRigOn(t, deeds{
		"a": func(_ context.Context, run *Run) error { run.Set("yes", "a"); return nil },
		"b": func(_ context.Context, run *Run) error {
			raw, err := docs.FindOne(context.Background(), collInstances, document.By("instance_id", run.Instance))
			if err != nil {
				return err
			}
			if rev, _ := raw.Int("rev"); rev != 0 {
				return fmt.Errorf("the document was written after one step, rev %d", rev)
			}
			in := r.instance(run.Instance)
			if rev, _ := in.Document.Int("rev"); rev != 1 || in.Context.Obj("metadata").Str("a") != "yes" || len(in.Completed) != 1 || in.CurrentStep != 1 {
				return fmt.Errorf("read as %s", show(in.Document))
			}
			return nil
		},
	}, docs)
	if res := r.run(r.task(`[{"id":"a","type":"do"},{"id":"b","type":"do"}]`), Options{}); res.Err != nil {
		t.Fatal(res.Err)
	}
}

func TestTheDocumentNeverLagsBehindBy64Steps(t *testing.T) {
	docs := openDocs(t)
	d := deeds{}
	var steps []string
	for i := range 130 {
		id := fmt.Sprint("s", i)
		steps = append(steps, `{"id":"`+id+`","type":"do"}`)
		d[id] = func(_ context.Context, run *Run) error {
			raw, err := docs.FindOne(context.Background(), collInstances, document.By("instance_id", run.Instance))
			if lag := i - len(raw.Arr("completed_steps")); err != nil || lag > 64 || lag < 0 {
				return fmt.Errorf("%d steps behind: %v", lag, err)
			}
			return nil
		}
	}
	r := newRigOn(t, d, docs)
	res := r.run(r.task(`[`+strings.Join(steps, ",")+`]`), Options{})
	if res.Err != nil {
		t.Fatal(res.Err)
	}
	r.sound(res)
}

func TestSecretsStayInMemory(t *testing.T) {
	meta := parse(t, `{"user_overrides": {"litellm_api_key": "sk-raw", "judge_litellm_api_key": "secret:j", "a.b": {"usersim_api_key": "env:A?sk-raw"}},
		"list": [{"remote_tokens": {"x": "sk-raw"}, "keep": 1}]}`)
	r := newRig(t, deeds{
		"a": func(_ context.Context, r *Run) error {
			if r.Override("litellm_api_key") != "sk-raw" || r.Override("judge_litellm_api_key") != "secret:j" {
				return errors.New("a step does not see the key")
			}
			r.Set(doc.Of("cf_access_client_secret", "sk-raw", "host", "h"), "deep", "door")
			r.Set("sk-raw", "other", "usersim_api_key")
			return nil
		},
		"b": func(_ context.Context, r *Run) error {
			list := r.Metadata("list").([]any)[0].(*doc.Object)
			for what, v := range map[string]any{"override": r.Override("litellm_api_key"), "deep": r.Metadata("deep", "door", "cf_access_client_secret"),
				"alone": r.Metadata("other", "usersim_api_key"), "list": list.Obj("remote_tokens").Value("x")} {
				if v != "sk-raw" {
					return fmt.Errorf("%s is %v", what, v)
				}
			}
			r.Unset("deep", "door", "cf_access_client_secret")
			return nil
		},
		"c": func(_ context.Context, r *Run) error {
			if v, there := r.Lookup("deep", "door", "cf_access_client_secret"); there {
				return fmt.Errorf("a removed secret is back: %v", v)
			}
			return errors.New("boom")
		},
	})
	res := r.run(r.task(`[{"id":"a","type":"do"},{"id":"b","type":"do"},{"id":"c","type":"do"}]`), Options{Metadata: meta})
	if res.Err == nil || !strings.Contains(res.Err.Error(), "boom") {
		t.Fatal(res.Err)
	}
	for _, coll := range []string{collInstances, collJournal, collHeads} {
		all, err := r.docs.Query(context.Background(), coll, document.Query{})
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range all {
			if text := show(d); strings.Contains(text, "sk-raw") {
				t.Errorf("%s holds the secret: %s", coll, text)
			}
		}
	}
	in := r.instance(res.Instance)
	if in.Context.Obj("metadata").Obj("user_overrides").Str("judge_litellm_api_key") != "secret:j" {
		t.Error("a reference to a secret was not kept")
	}
}

func TestObserversMayFail(t *testing.T) {
	r := newRig(t, deeds{"a": func(_ context.Context, r *Run) error { r.Report(Progress{What: "loading"}); return nil }})
	w := &watcher{onEnd: func(Event) { panic("closed pipe") }}
	res := r.run(r.task(`[{"id":"a","type":"do"},{"id":"b","type":"do"}]`), Options{Observer: w})
	if res.Err != nil {
		t.Fatal(res.Err)
	}
	if diff := cmp.Diff([]string{"start a", "progress a loading", "end a"}, w.lines); diff != "" {
		t.Error(diff)
	}
}

func TestWhatIsNotSupportedYetIsRefusedBeforeAnything(t *testing.T) {
	r := newRig(t, nil)
	task := r.task(`[{"id":"a","type":"do","retry_config":{"go_to_step_id":"a"}},{"id":"b","type":"soon","who":"x"}]`)
	res, err := r.engine.Run(context.Background(), task, Options{})
	if res != nil || !fault.Is(err, fault.Unsupported) || strings.Contains(err.Error(), `"a"`) || !strings.Contains(err.Error(), "soon is not supported yet") {
		t.Errorf("got %v", err)
	}
	if got := show(task.StepDocuments()); !strings.Contains(got, `"retry_from_step_id": "a"`) || strings.Contains(got, "go_to") {
		t.Error(got)
	}
	if n, _ := r.docs.Count(context.Background(), collInstances, nil); n != 0 {
		t.Error("it left an instance")
	}
}

func TestAnUnrecordableRunGoesOnUnlessItsIDWasGiven(t *testing.T) {
	docs := openDocs(t)
	r := newRigOn(t, deeds{"a": func(_ context.Context, r *Run) error {
		if r.Instance != "" {
			return errors.New("an unrecorded run has an instance")
		}
		return nil
	}}, broken{docs})
	task := r.task(`[{"id":"a","type":"do"}]`)
	res := r.run(task, Options{})
	if res.Err != nil || res.Recorded || res.Instance != "" || res.Context.Value("instance_id") != nil {
		t.Errorf("%+v", res)
	}
	if res, err := r.engine.Run(context.Background(), task, Options{Instance: "i"}); res != nil || !fault.Is(err, fault.Unavailable) {
		t.Errorf("a run under a given id that cannot be recorded: %v", err)
	}
}

// broken is a store whose transactions fail.
type broken struct{ document.Store }

func (broken) Transact(context.Context, func(document.Store) error) error {
	return fault.New(fault.Unavailable, "the disk is full")
}

func TestARowThatCannotBeWrittenFailsTheRun(t *testing.T) {
	flaky := &flaky{Store: openDocs(t)}
	r := newRigOn(t, deeds{"a": func(context.Context, *Run) error { flaky.down.Store(1); return nil },
		"b": func(context.Context, *Run) error { t.Error("the run went on without its record"); return nil }}, flaky)
	res := r.run(r.task(`[{"id":"a","type":"do"},{"id":"b","type":"do"}]`), Options{})
	if res.Status != "failed" || res.Class != Infrastructure || !strings.Contains(res.Err.Error(), "could not be recorded") {
		t.Errorf("ended %s, %s: %v", res.Status, res.Class, res.Err)
	}
	if in := r.instance(res.Instance); in.Status != "failed" || len(in.Completed) != 0 {
		t.Errorf("recorded as %s", show(in.Document))
	}
}

// flaky fails as many transactions as down says.
type flaky struct {
	document.Store
	down atomic.Int32
}

func (f *flaky) Transact(ctx context.Context, fn func(document.Store) error) error {
	if f.down.Add(-1) >= 0 {
		return fault.New(fault.Unavailable, "the database is locked")
	}
	return f.Store.Transact(ctx, fn)
}

func TestTheEndOfARunIsTriedAgain(t *testing.T) {
	flaky := &flaky{Store: openDocs(t)}
	r := newRigOn(t, deeds{"a": func(context.Context, *Run) error { return errors.New("boom") }}, flaky)
	w := &watcher{onEnd: func(Event) { flaky.down.Store(1) }}
	res := r.run(r.task(`[{"id":"a","type":"do"}]`), Options{Observer: w})
	if in := r.instance(res.Instance); in.Status != "failed" || in.Error != "boom" {
		t.Errorf("recorded as %s %q", in.Status, in.Error)
	}
}

func TestManyRunsAtOnce(t *testing.T) {
	docs := openDocs(t)
	ctx := soon(t)
	done := make(chan error)
	for i := range 8 {
		go func() {
			d := deeds{}
			var steps []string
			for j := range 10 {
				id := fmt.Sprint("s", j)
				d[id] = func(_ context.Context, r *Run) error { r.Set(doc.Int(j), "out", r.StepID); return nil }
				steps = append(steps, `{"id":"`+id+`","type":"do","depends_on":[]}`)
			}
			r := newRigOn(t, d, docs)
			task := r.task(`[` + strings.Join(steps, ",") + `]`)
			res, err := r.engine.Run(ctx, task, Options{Instance: fmt.Sprint("i", i)})
			if err == nil {
				r.sound(res)
				if rev, _ := r.instance(res.Instance).Document.Int("rev"); rev != 10 {
					err = fmt.Errorf("rev is %d after 10 completions", rev)
				}
			}
			done <- err
		}()
	}
	for range 8 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	list, err := NewInstances(docs).List(ctx, ListQuery{TaskID: "t", Limit: 3})
	if err != nil || len(list) != 3 || !slices.IsSortedFunc(list, func(a, b *Instance) int {
		return strings.Compare(b.CreatedAt+b.ID, a.CreatedAt+a.ID)
	}) {
		t.Errorf("the newest three: %v, %v", list, err)
	}
}

func TestAnyErrorAfterTheCancelIsTheCancel(t *testing.T) {
	ctx, cancel := context.WithCancelCause(context.Background())
	r := newRig(t, deeds{"a": func(ctx context.Context, _ *Run) error {
		cancel(errors.New("out of time"))
		<-ctx.Done()
		return context.DeadlineExceeded
	}})
	res, _ := r.engine.Run(ctx, r.task(`[{"id":"a","type":"do","step_timeout_seconds":60}]`), Options{})
	if in := r.instance(res.Instance); in.Status != "cancelled" || in.Error != "out of time" || in.Class != Cancelled {
		t.Errorf("recorded %s %q, %s", in.Status, in.Error, in.Class)
	}
}

func TestARunThatIsCancelledBeforeItBeginsRunsNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	r := newRig(t, deeds{"a": func(context.Context, *Run) error { t.Error("it ran"); return nil }})
	w := &watcher{}
	if _, err := r.engine.Run(ctx, r.task(noops(1, "")), Options{}); err != nil {
		t.Fatal(err)
	}
	cancel()
	res, err := r.engine.Run(ctx, r.task(`[{"id":"a","type":"do"}]`), Options{Observer: w})
	if err == nil || len(w.lines) != 0 {
		t.Errorf("%+v, %v, heard %v", res, err, w.lines)
	}
}

func TestTheLogPrefixOfABatch(t *testing.T) {
	var b strings.Builder
	r := newRig(t, nil)
	log := slog.New(slog.NewTextHandler(&b, nil))
	r.run(r.task(noops(1, "")), Options{Log: log, Metadata: doc.Of("pass_at_k_execution_id", "k7")})
	if !strings.Contains(b.String(), `msg="[k7] Step s0 (do) completed in 0.0 s"`) {
		t.Error(b.String())
	}
}

func TestBatchUniverses(t *testing.T) {
	r := newRig(t, deeds{"a": func(_ context.Context, r *Run) error {
		r.Set(doc.Of("id", r.Metadata("universe"), "version", doc.Int(1)), "file_artifact_universe")
		return nil
	}})
	for i, u := range []string{"u2", "u1", "u2"} {
		r.run(r.task(`[{"id":"a","type":"do"}]`), Options{Instance: fmt.Sprint("i", i), Metadata: doc.Of("batch_id", "b", "universe", u)})
	}
	r.run(r.task(`[{"id":"a","type":"do"}]`), Options{Metadata: doc.Of("batch_id", "other", "universe", "u3")})
	got, err := NewInstances(r.docs).BatchUniverses(context.Background(), "b")
	if diff := cmp.Diff([]string{"u2", "u1"}, got); diff != "" || err != nil {
		t.Error(diff, err)
	}
}

func TestAFailedStepsSandboxIsKnownWhenItsNameWasTakenLater(t *testing.T) {
	failed := make(chan struct{})
	box := func(r *Run, id string) error { return r.AddSandbox(Sandbox{Name: "box", ID: id, Mode: "vm"}) }
	r := newRig(t, deeds{
		"bad": func(_ context.Context, r *Run) error { return errors.Join(box(r, "one"), errors.New("boom")) },
		"ok":  func(_ context.Context, r *Run) error { <-failed; return box(r, "two") },
	})
	w := &watcher{onEnd: func(e Event) {
		if e.StepID == "bad" {
			close(failed)
		}
	}}
	res := r.run(r.task(`[{"id":"bad","type":"do","depends_on":[]},{"id":"ok","type":"do","depends_on":[]}]`), Options{Observer: w})
	if kept := Recorded(res.Context); len(kept) != 1 || kept[0].ID != "two" || len(res.Dropped) != 1 || res.Dropped[0].ID != "one" {
		t.Errorf("kept %v, dropped %v", kept, res.Dropped)
	}
}

func TestStepsOfTypesToComeAreKeptWhole(t *testing.T) {
	r := newRig(t, nil)
	const text = `{"id": "b", "type": "soon", "version": null, "fail_task_on_error": true, "zeta": [1.0, {"x": null}], "who": "x"}`
	task := r.task("[" + text + "]")
	if got, err := doc.Marshal(task.Steps[0].Document()); err != nil || string(got) != text {
		t.Errorf("kept %s, %v", got, err)
	}
}
