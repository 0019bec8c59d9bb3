package task

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentenv/fault"
	"agentenv/store/doc"
	"agentenv/store/document"
)

func TestEvals(t *testing.T) {
	ctx := context.Background()
	r := newRig(t, nil)
	tasks := NewTasks(r.reg, r.docs, nil, nil)
	for range 2 {
		one := r.task(`[{"id":"a","type":"do"}]`)
		one.Version = 0
		if _, err := tasks.Put(ctx, one); err != nil {
			t.Fatal(err)
		}
	}
	evals := NewEvals(tasks)
	for version, want := range map[int64]string{0: "Eval e not found", 3: "Eval e version=3 not found"} {
		if _, err := evals.Get(ctx, "e", version); !fault.Is(err, fault.NotFound) || err.Error() != want {
			t.Errorf("get of version %d: %v", version, err)
		}
	}
	if _, err := evals.Add(ctx, "e", 0, []EvalTask{{"t", 1}}); !fault.Is(err, fault.NotFound) {
		t.Errorf("adding to nothing: %v", err)
	}
	for id, entries := range map[string][]EvalTask{"": {{"t", 1}}, "e": nil, "@else/e": {{"t", 1}}} {
		if _, err := evals.Create(ctx, id, entries); err == nil {
			t.Errorf("%q was stored with %v", id, entries)
		}
	}
	first := []EvalTask{{"t", 1}, {"t", 0}, {"t", 1}}
	e, err := evals.Create(ctx, "e", first)
	if err != nil || e.Version != 1 || !cmp.Equal(e.Tasks, first) {
		t.Fatalf("create: %v, %+v", err, e)
	}
	// Another version of a task is another entry; one that is there keeps its place.
	merged := append(append([]EvalTask{}, first...), EvalTask{"t", 2}, EvalTask{"u", 0})
	e, err = evals.Add(ctx, "e", 0, []EvalTask{{"t", 2}, {"t", 1}, {"u", 0}, {"t", 2}})
	if err != nil || e.Version != 2 || !cmp.Equal(e.Tasks, merged) {
		t.Fatalf("add: %v, %+v", err, e)
	}
	if e, err = evals.Add(ctx, "e", 1, []EvalTask{{"t", 2}}); err != nil || e.Version != 3 || len(e.Tasks) != 4 {
		t.Fatalf("add to an earlier version: %v, %+v", err, e)
	}
	if e, err = evals.Get(ctx, "e", 2); err != nil || !cmp.Equal(e.Tasks, merged) {
		t.Errorf("get: %v, %+v", err, e)
	}
	d, err := r.docs.FindOne(ctx, "evals", document.By("id", "e", "version", doc.Int(1)))
	want := `{"id":"e","type":"eval","version":1,"tasks":[{"task_id":"t","task_version":1},{"task_id":"t","task_version":null},{"task_id":"t","task_version":1}]}`
	if at := d.Str("created_at_utc"); err != nil || len(at) != len("2026-01-01T00:00:00.000000+00:00") {
		t.Errorf("created at %q, %v", at, err)
	}
	d.Delete("created_at_utc")
	d.Delete("_id")
	if parsed, err := doc.Parse([]byte(want), doc.Options{}); err != nil || !doc.Equal(d, parsed) {
		t.Errorf("stored as %s\nwant %s", doc.Canonical(d), want)
	}
	if checked, err := evals.Check(ctx, EvalTask{"t", 0}); err != nil || checked.Version != 2 {
		t.Errorf("check: %v, %+v", err, checked)
	}
	if _, err := evals.Check(ctx, EvalTask{"t", 3}); !fault.Is(err, fault.NotFound) {
		t.Errorf("check of what is not there: %v", err)
	}
}

func TestEvalFiles(t *testing.T) {
	got, err := ParseEvalTasks([]byte(`[{"task_id":"a"},{"task_id":"b","task_version":null},{"task_version":3,"task_id":"c"}]`), "e.json")
	if want := []EvalTask{{"a", 0}, {"b", 0}, {"c", 3}}; err != nil || !cmp.Equal(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	for text, why := range map[string]string{
		`{"task_id":"a"}`:                               "e.json must hold a JSON array",
		`[`:                                             "e.json",
		`[{"task_id":"a"},{"task_version":1}]`:          "e.json, entry 1: task_id",
		`[{"task_id":""}]`:                              "e.json, entry 0: task_id",
		`[{"task_id":7}]`:                               "e.json, entry 0: task_id",
		`["a"]`:                                         "e.json, entry 0: it must be an object",
		`[{"task_id":"a","version":1}]`:                 `e.json, entry 0: the key "version"`,
		`[{"task_id":"a","task_version":0}]`:            "e.json, entry 0: task_version",
		`[{"task_id":"a","task_version":"1"}]`:          "e.json, entry 0: task_version",
		`[{"task_id":"a","task_version":true}]`:         "e.json, entry 0: task_version",
		`[{"task_id":"a","task_version":1.5}]`:          "e.json, entry 0: task_version",
		`[{"task_id":"a","task_version":1e30}]`:         "e.json, entry 0: task_version",
		`[{"task_id":"a","task_id":"b","other":1}]`:     "e.json",
		`[{"task_id":"` + "\\ud800" + `","x":"` + `"}]`: "e.json",
	} {
		if got, err := ParseEvalTasks([]byte(text), "e.json"); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
}

// FuzzEvalTasks holds: what is read has a task and no negative version in each entry, and reads the same from its stored form.
func FuzzEvalTasks(f *testing.F) {
	for _, s := range []string{`[]`, `[{"task_id":"a"}]`, `[{"task_id":"a","task_version":2}]`, `[{"task_id":"a","task_version":1.0}]`, `[null]`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		entries, err := ParseEvalTasks(text, "e.json")
		if err != nil {
			return
		}
		stored, err := doc.Marshal((&Eval{ID: "e", Tasks: entries}).Document().Value("tasks"))
		if err != nil {
			t.Fatal(err)
		}
		again, err := ParseEvalTasks(stored, "e.json")
		if err != nil || !cmp.Equal(entries, again) {
			t.Fatalf("%v was read, and %v again: %v", entries, again, err)
		}
		for _, e := range entries {
			if e.TaskID == "" || e.Version < 0 {
				t.Fatalf("entry %+v", e)
			}
		}
	})
}
