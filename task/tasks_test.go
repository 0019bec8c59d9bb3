package task

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentenv/fault"
	"agentenv/store/doc"
	"agentenv/store/document"
	"agentenv/store/document/sqlite"
)

func TestTaskVersions(t *testing.T) {
	ctx := context.Background()
	r := newRig(t, nil)
	tasks := NewTasks(r.reg, r.docs, nil, nil)
	if v, err := tasks.Latest(ctx, "t"); v != 0 || err != nil {
		t.Errorf("latest of nothing: %d, %v", v, err)
	}
	for _, version := range []int64{0, 7} {
		_, err := tasks.Get(ctx, "t", version)
		want := map[int64]string{0: "Task t not found", 7: "Task t version=7 not found"}[version]
		if !fault.Is(err, fault.NotFound) || err.Error() != want {
			t.Errorf("get: %v, want %s", err, want)
		}
	}
	first := r.task(`[{"id":"a","type":"do","text":"one"}]`)
	first.Version = 0
	stored, err := tasks.Put(ctx, first)
	if err != nil || stored.Version != 1 || first.Version != 0 {
		t.Fatalf("put: %v, %+v", err, stored)
	}
	second := r.task(`{"max_parallel_steps": 4, "steps": [{"id":"a","type":"do","text":"two","depends_on":[]}]}`)
	second.Version = 2
	if stored, err = tasks.Put(ctx, second); err != nil || stored.Version != 2 {
		t.Fatalf("put of the next version: %v", err)
	}
	for _, offered := range []int64{2, 4} {
		second.Version = offered
		if _, err = tasks.Put(ctx, second); !fault.Is(err, fault.Conflict) {
			t.Errorf("put of version %d: %v", offered, err)
		}
	}
	for version, text := range map[int64]string{0: "two", 1: "one", 2: "two"} {
		got, err := tasks.Get(ctx, "t", version)
		if err != nil || got.Steps[0].Fields.Str("text") != text {
			t.Errorf("version %d: %v", version, err)
		}
	}
	if got, _ := tasks.Get(ctx, "t", 2); got.MaxParallelSteps != 4 {
		t.Error("max_parallel_steps is lost")
	}
	if got, err := tasks.Versions(ctx, "t"); err != nil || !cmp.Equal(got, []int64{2, 1}) {
		t.Errorf("versions %v, %v", got, err)
	}
}

func TestCreateStoresTheStepsOrNothing(t *testing.T) {
	ctx := context.Background()
	r := newRig(t, nil)
	tasks := NewTasks(r.reg, r.docs, nil, nil)
	first := r.task(`[{"id":"a","type":"do"},{"id":"b","type":"do"}]`)
	first.Version = 0
	if _, err := tasks.Create(ctx, first); err != nil {
		t.Fatal(err)
	}
	stored, err := tasks.Create(ctx, first)
	if err != nil || stored.Steps[1].Version != 2 || first.Steps[1].Version != 0 {
		t.Fatalf("the second create: %v", err)
	}
	steps, err := r.docs.Query(ctx, collSteps, document.Query{Filter: document.By("id", "b"), Sort: []document.Sort{{Path: "version"}}})
	if err != nil || len(steps) != 2 || steps[1].Str("created_at_utc") == "" || steps[1].Value("version") != doc.Int(2) {
		t.Errorf("steps %v, %v", steps, err)
	}
	first.Version = 9
	if _, err := tasks.Create(ctx, first); !fault.Is(err, fault.Conflict) {
		t.Errorf("create of a wrong version: %v", err)
	}
	if n, _ := r.docs.Count(ctx, collSteps, nil); n != 4 {
		t.Errorf("%d steps are stored after a create that failed, want 4", n)
	}
	ahead := r.task(`[{"id":"b","type":"do","version":9}]`)
	ahead.ID, ahead.Version = "ahead", 0
	if _, err := tasks.Create(ctx, ahead); !fault.Is(err, fault.Conflict) {
		t.Errorf("a step that carries another version than the next: %v", err)
	}
	empty := &Task{ID: "e"}
	if _, err := tasks.Create(ctx, empty); !fault.Is(err, fault.Invalid) {
		t.Errorf("a task without steps: %v", err)
	}
	if _, err := tasks.Put(ctx, &Task{ID: "@other/x", Steps: first.Steps}); !fault.Is(err, fault.Invalid) {
		t.Errorf("a reserved id: %v", err)
	}
}

func TestRacingPutsGetDifferentVersions(t *testing.T) {
	ctx := context.Background()
	r := newRig(t, nil)
	tasks := NewTasks(r.reg, r.docs, nil, nil)
	task := r.task(noops(1, ""))
	task.Version = 0
	got := make(chan int64)
	for range 10 {
		go func() {
			stored, err := tasks.Put(ctx, task)
			if err != nil {
				t.Error(err)
				got <- 0
				return
			}
			got <- stored.Version
		}()
	}
	seen := map[int64]bool{}
	for range 10 {
		seen[<-got] = true
	}
	if len(seen) != 10 || !seen[1] || !seen[10] {
		t.Errorf("versions %v", seen)
	}
}

func TestListLeavesOutWhatItCannotRead(t *testing.T) {
	ctx := context.Background()
	r := newRig(t, nil)
	tasks := NewTasks(r.reg, r.docs, slog.New(slog.DiscardHandler), nil)
	for _, id := range []string{"c", "a"} {
		task := r.task(noops(1, ""))
		task.ID, task.Version = id, 0
		if _, err := tasks.Put(ctx, task); err != nil {
			t.Fatal(err)
		}
	}
	strange := doc.Of("id", "b", "type", "workflow", "version", doc.Int(1))
	if err := r.docs.Insert(ctx, collTasks, strange); err != nil {
		t.Fatal(err)
	}
	page, total, err := tasks.List(ctx, 0, 0)
	if err != nil || total != 3 || len(page) != 2 || page[0].Str("id") != "a" {
		t.Errorf("%d of %d, %v", len(page), total, err)
	}
	if _, err := tasks.Get(ctx, "b", 0); err == nil || err.Error() != "task b: Unknown task type: workflow" {
		t.Errorf("a direct get: %v", err)
	}
}

// dying is a store of a process that dies after its last journal row: the instance document is never written again.
type dying struct{ document.Store }

func (d dying) Transact(ctx context.Context, fn func(document.Store) error) error {
	return d.Store.Transact(ctx, func(tx document.Store) error { return fn(dyingTx{tx}) })
}

type dyingTx struct{ document.Store }

func (d dyingTx) Update(ctx context.Context, coll string, f document.Filter, u document.Update, upsert bool) (int, error) {
	if coll == collInstances {
		return 0, errors.New("gone")
	}
	return d.Store.Update(ctx, coll, f, u, upsert)
}

func TestADeadRunIsReadWholeAndTakenOver(t *testing.T) {
	docs := openDocs(t)
	d := deeds{}
	for i := range 3 {
		d[fmt.Sprint("s", i)] = func(_ context.Context, r *Run) error { r.Append(r.StepID, "did"); return nil }
	}
	dead := newRigOn(t, d, dying{docs})
	task := dead.task(noops(3, ""))
	res, err := dead.engine.Run(context.Background(), task, Options{Instance: "i"})
	if err == nil || res.Status != "failed" || res.Class != Infrastructure {
		t.Fatalf("a run whose end could not be recorded ended %s, %s: %v", res.Status, res.Class, err)
	}
	r := newRigOn(t, d, docs)
	in := r.instance("i")
	if in.Status != "running" || len(in.Completed) != 3 || in.CurrentStep != 3 || len(in.Context.Obj("metadata").Arr("did")) != 3 {
		t.Errorf("read as %s", show(in.Document))
	}
	if seq, _ := in.Document.Int("journal_seq"); seq != 4 {
		t.Errorf("journal_seq %d", seq)
	}
	again := r.run(task, Options{Instance: "i"})
	r.sound(again)
	if seq, _ := r.instance("i").Document.Int("journal_seq"); seq != 8 {
		t.Errorf("journal_seq %d after the run was taken over; it must go on from 4", seq)
	}
}

func TestAnotherWriterOfTheDocument(t *testing.T) {
	ctx := context.Background()
	docs := openDocs(t)
	r := newRigOn(t, deeds{"a": func(_ context.Context, r *Run) error {
		// Another process appends to its ledger and writes the mark of cancellation.
		u := document.Update{Set: doc.Of("status", "cancelled", "error", "by another"), Inc: doc.Of("rev", doc.Int(1)),
			AddToSet: doc.Of("step_attempt_failures", []any{doc.Of("attempt", doc.Int(1))})}
		_, err := docs.Update(ctx, collInstances, document.By("instance_id", r.Instance), u, false)
		return err
	}}, docs)
	res := r.run(r.task(`[{"id":"a","type":"do"},{"id":"b","type":"do"}]`), Options{})
	d := r.instance(res.Instance).Document
	if d.Str("status") != "cancelled" || d.Str("error") != "by another" || len(d.Arr("step_attempt_failures")) != 1 || len(d.Arr("completed_steps")) != 2 {
		t.Errorf("recorded as %s", show(d))
	}
	if rev, _ := d.Int("rev"); rev != 3 {
		t.Errorf("rev %d, want 3", rev)
	}
}

func TestRecordedSandboxes(t *testing.T) {
	c := parse(t, `{"deployed_sandboxes": [{"sandbox_name": "box", "sandbox_id": "s1", "sandbox_type": "local"}],
		"deployed_envs": [{"env_id": "e", "sandbox_id": "s2", "sandbox_type": "docker", "sandbox_ids": {"modal": "s3", "web": {"db": "s4", "app": "s2"}}}, {"env_id": "f", "sandbox_id": null}],
		"deployed_agents": [{"agent_name": "a", "sandbox_id": "s1"}, {"agent_name": "b", "sandbox_id": "s5"}, {"agent_name": "human"}],
		"metadata": {"torn_down_sandbox_ids": ["s2"], "retry_resets": [{"rolled_back_sandboxes": {"deployed_sandboxes": [{"sandbox_id": "s6", "sandbox_type": "local"}, {"sandbox_id": "s5"}]}}, 7]}}`)
	var got []string
	for _, s := range Recorded(c) {
		got = append(got, fmt.Sprintf("%s %s %s %s %s", s.ID, s.Slot, s.Type, s.Name, s.Key))
	}
	want := []string{"s1 sandbox local box ", "s2 env docker e ", "s3 env docker e modal", "s4 env docker e web", "s5 agent  b ", "s6 sandbox local  "}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if gone := TornDownIDs(c); len(gone) != 1 || !gone["s2"] {
		t.Errorf("torn down %v", gone)
	}
}

func TestScoresAndModels(t *testing.T) {
	reg := testRegistry(t, nil)
	task, err := reg.ParseText("t", []byte(`[{"id":"look","type":"check","verifier_id":"v1"},{"id":"x","type":"do"}]`), ParseOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c := parse(t, `{"metadata": {"verifications": {"v1": {"score": 0.5}, "other": {"score": 1}, "none": {"score": null}, "text": {"score": "1"}, "bool": {"score": true}},
		"models": {"solver": {"a": "m2", "b": "m1", "c": "m2", "d": null}, "judge": {}}}}`)
	if diff := cmp.Diff([]Score{{"look", 0.5}, {"other", 1}}, Scores(task, c)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string][]string{"solver": {"m1", "m2"}}, Models(c)); diff != "" {
		t.Error(diff)
	}
}

func TestViewAccess(t *testing.T) {
	c := NewContext().Set("metadata", parse(t, `{"task_id": "t", "user_overrides": {"sandbox": "docker", "off": null, "step_params": {"s": {"urls": null}}}}`))
	var heard []Progress
	r := NewRun("s", "do", c, nil, func(p Progress) { heard = append(heard, p) })
	r.Instance = "i"
	if r.Override("sandbox") != "docker" || r.Override("off") != nil || r.Override("none") != nil {
		t.Error("overrides")
	}
	if v, ok := r.Param("urls"); v != nil || !ok {
		t.Error("a null parameter is there")
	}
	if _, ok := r.Param("none"); ok {
		t.Error("an absent parameter is there")
	}
	got := r.Attribution(parse(t, `{"attribution": {"team": "x", "run_id": "mine"}}`))
	if diff := cmp.Diff(map[string]string{"team": "x", "run_id": "mine", "pipeline_step": "t_s"}, got); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]string{"run_id": "i", "pipeline_step": "t_s"}, r.Attribution(nil)); diff != "" {
		t.Error(diff)
	}
	if _, err := r.Sandbox("box"); !fault.Is(err, fault.Invalid) || fault.ClassOf(err) != "RuntimeError" {
		t.Errorf("a sandbox that is not there: %v", err)
	}
	full := Sandbox{Name: "box", ID: "i", Mode: "container", Type: "docker", TunnelURLs: map[string]string{"80": "http://h"}, VNCURL: "v",
		InstanceID: "i", CreatedAt: "c", ExpiresAt: "e", NetworkPolicy: doc.Of("mode", "allow_all")}
	if err := r.AddSandbox(full); err != nil {
		t.Fatal(err)
	}
	if err := r.AddSandbox(full); !fault.Is(err, fault.Exists) {
		t.Errorf("a taken name: %v", err)
	}
	if back, err := r.Sandbox("box"); err != nil || show(back.Document()) != show(full.Document()) {
		t.Errorf("read back %+v, %v", back, err)
	}
	if len(c.Arr("deployed_sandboxes")) != 0 {
		t.Error("the snapshot changed")
	}
	r.Report(Progress{Bytes: 3})
	if len(heard) != 1 {
		t.Error("progress was not heard")
	}
}

func TestLocalTasksStayLocal(t *testing.T) {
	ctx := context.Background()
	open := func(name string) *sqlite.Store {
		s, err := sqlite.New(sqlite.Options{Path: filepath.Join(t.TempDir(), name), CheckID: func(string) error { return nil }})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	configured, local := open("configured.db"), open("local.db")
	docs := document.NewRouter(configured, local)
	defer func() {
		if err := docs.Close(); err != nil {
			t.Error(err)
		}
	}()
	nested := &Task{}
	var r *rig
	r = newRigOn(t, deeds{"@local/me/a": func(ctx context.Context, _ *Run) error {
		_, err := r.engine.Run(ctx, nested, Options{}) // a bare task inside a local run
		return err
	}}, docs)
	tasks := NewTasks(r.reg, docs, nil, nil)
	put := func(id, steps string) *Task {
		task, err := r.reg.ParseText(id, []byte(steps), ParseOptions{})
		if err == nil {
			task, err = tasks.Create(ctx, task)
		}
		if err != nil {
			t.Fatal(err)
		}
		return task
	}
	nested = put("bare", `[{"id":"b","type":"do"}]`)
	mine := put("@local/me/t", `[{"id":"@local/me/a","type":"do"}]`)
	if res := r.run(mine, Options{}); res.Err != nil || !res.Recorded {
		t.Fatalf("%+v", res)
	}
	count := func(s document.Store, coll string) int {
		n, err := s.Count(ctx, coll, nil)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	for _, coll := range []string{collInstances, collJournal} {
		if n := count(configured, coll); n != 0 {
			t.Errorf("a local run left %d documents in %s of the configured store", n, coll)
		}
	}
	if l, c := count(local, collTasks), count(configured, collTasks); l != 1 || c != 1 || count(local, collInstances) != 2 {
		t.Errorf("%d local and %d configured tasks, %d local instances", l, c, count(local, collInstances))
	}
	twice := put("@local/me/t", `[{"id":"@local/me/a","type":"do"},{"id":"b","type":"do"}]`)
	if twice.Version != 2 || twice.Steps[0].Version != 2 || twice.Steps[1].Version != 2 {
		t.Errorf("stored as version %d with steps of versions %d and %d", twice.Version, twice.Steps[0].Version, twice.Steps[1].Version)
	}
	if n := count(configured, collSteps); n != 2 {
		t.Errorf("%d bare steps are in the configured store, want 2", n)
	}
	if res := r.run(nested, Options{}); res.Err != nil || count(configured, collInstances) != 1 {
		t.Errorf("a bare run: %v, %d instances", res.Err, count(configured, collInstances))
	}
	if in, err := NewInstances(docs).List(ctx, ListQuery{TaskID: "@local/me/t"}); err != nil || len(in) != 1 {
		t.Errorf("local runs: %v, %v", in, err)
	}
}
