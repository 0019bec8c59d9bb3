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

// pickyRegistry has `picky`, which refuses a person's amount below 1 and takes anything from the store.
func pickyRegistry(t *testing.T) *Registry {
	t.Helper()
	reg, err := NewRegistry(&StepType{Name: "picky", FailsTask: true,
		Fields: []Field{{Name: "amount", Kind: Integer, Loose: true, Default: doc.Int(7)}},
		Given: func(f *doc.Object) error {
			if n, _ := f.Int("amount"); n < 1 {
				return fault.New(fault.Invalid, "amount must be greater than 0, not %d", n)
			}
			return nil
		},
		Parse: func(_ string, f *doc.Object) (Action, *doc.Object, error) {
			if f.Value("amount") == "none" {
				return nil, nil, fault.New(fault.Invalid, "amount says none")
			}
			return action{}, nil, nil
		}})
	if err != nil {
		t.Fatal(err)
	}
	return reg
}

func TestStoredFieldsAreReadForWhatTheyMeant(t *testing.T) {
	for _, c := range []struct{ typ, field, means, given string }{ // means: the field as read; given: what a file with it is told
		{"kinds", `"size":"4"`, `4`, "needs an integer"}, {"kinds", `"size":" 4 "`, `4`, "needs an integer"}, {"kinds", `"size":""`, `3`, "needs an integer"},
		{"kinds", `"size":[]`, `3`, "needs an integer"}, {"kinds", `"size":false`, `3`, "needs an integer"}, {"kinds", `"size":0`, `0`, ""},
		{"kinds", `"rate":"0.5"`, `0.5`, "needs a number"}, {"kinds", `"rate":"1e3"`, `1000`, "needs a number"},
		{"kinds", `"deep":"x"`, `true`, "needs a boolean"}, {"kinds", `"deep":0`, `false`, "needs a boolean"}, {"kinds", `"deep":{}`, `false`, "needs a boolean"},
		{"kinds", `"mode":""`, `null`, "needs one of"}, {"kinds", `"provider":5`, `"5"`, "needs a string"}, {"kinds", `"provider":{}`, `null`, "needs a string"},
		{"kinds", `"tags":[]`, `null`, "needs an object"}, {"kinds", `"metadata":""`, `{}`, "needs an object"},
		{"kinds", `"agents":["a",5]`, `["a","5"]`, "item 1 is number 5"}, {"kinds", `"artifacts":""`, `null`, "needs a list"},
		{"picky", `"amount":-1`, `-1`, "must be greater than 0"}, {"picky", `"amount":"x"`, `"x"`, "needs an integer"}, {"picky", `"amount":null`, `null`, ""},
	} {
		reg, head := testRegistry(t, nil), `"name":"n",`
		if c.typ == "picky" {
			reg, head = pickyRegistry(t), ""
		}
		name, _, _ := strings.Cut(strings.Trim(c.field, `"`), `"`)
		text := []byte(`[{"id":"s","type":"` + c.typ + `",` + head + c.field + `}]`)
		task, err := reg.ParseText("t", text, ParseOptions{Stored: true})
		if err != nil || task.Steps[0].Problem != nil || task.Steps[0].Action == nil {
			t.Errorf("stored %s: %v, %+v", c.field, err, task)
		} else if got := doc.Canonical(task.Steps[0].Fields.Value(name)); got != c.means {
			t.Errorf("stored %s is read as %s, want %s", c.field, got, c.means)
		}
		for _, o := range []ParseOptions{{}, {Strict: true}} {
			_, err = reg.ParseText("t", text, o)
			if c.given == "" && err != nil || c.given != "" && (!fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), c.given) || !strings.Contains(err.Error(), name)) {
				t.Errorf("a file with %s: %v, want %q", c.field, err, c.given)
			}
		}
	}
}

func TestStoredBaseFields(t *testing.T) {
	for field, fails := range map[string]bool{`"fail_task_on_error":"no"`: true, `"fail_task_on_error":1`: true, `"fail_task_on_error":0`: false, `"fail_task_on_error":null`: false,
		`"fail_task_on_error":[]`: false, `"version":"1"`: true, `"version":0`: true, `"depends_on":["a","a"]`: true, `"project_id":"x"`: true} {
		task, err := testRegistry(t, nil).ParseText("t", []byte(`[{"id":"a","type":"do"},{"id":"b","type":"do",`+field+`}]`), ParseOptions{Stored: true})
		if err != nil || task.Steps[1].FailsTask != fails || task.Steps[1].Problem != nil {
			t.Errorf("%s: %v", field, err)
		}
	}
}

func TestStoredFieldsThatCannotRun(t *testing.T) {
	for _, c := range []struct{ typ, field, want string }{
		{"kinds", `"size":"x"`, `field "size" needs an integer, not string "x"`}, {"kinds", `"size":1.5`, `field "size" needs an integer, not number 1.5`},
		{"kinds", `"name":null`, `field "name" is missing; it needs a string`}, {"kinds", `"name":[1]`, `field "name" needs a string, not array [1]`},
		{"kinds", `"mode":"pod"`, `field "mode" needs one of vm, container, not string "pod"`}, {"kinds", `"agents":["a",null]`, `field "agents" needs a list of string values, and item 1 is null`},
		{"picky", `"amount":"none"`, `amount says none`},
		{"soon", `"who":null`, `field "who" is missing; it needs a string`},
	} {
		reg := testRegistry(t, nil)
		if c.typ == "picky" {
			reg = pickyRegistry(t)
		}
		text := `{"id":"s","type":"` + c.typ + `","name":"n",` + c.field + `}`
		task, err := reg.ParseText("t", []byte("["+text+"]"), ParseOptions{Stored: true})
		if err != nil {
			t.Errorf("%s: %v", c.field, err)
			continue
		}
		s := task.Steps[0]
		if !fault.Is(s.Problem, fault.Invalid) || s.Problem.Error() != c.want || s.Action != nil {
			t.Errorf("%s: %v, want %s", c.field, s.Problem, c.want)
		}
		for _, key := range parse(t, text).Keys() {
			if got := s.Document().Value(key); !doc.Equal(got, parse(t, text).Value(key)) {
				t.Errorf("%s: of the document %s became %v", c.field, key, got)
			}
		}
	}
}

// TestAStoredTaskWithAProblem reads, checks and runs a task that another program stored.
func TestAStoredTaskWithAProblem(t *testing.T) {
	ctx := context.Background()
	ran := 0
	r := newRig(t, deeds{"a": func(context.Context, *Run) error { ran++; return nil }})
	stored := parse(t, `{"id":"t","type":"task","version":1,"steps":[{"id":"a","type":"do","version":1,"fail_task_on_error":true,"project_id":"p"},
		{"id":"b","type":"kinds","version":"1","fail_task_on_error":0,"depends_on":[{"task_step_id":"a"},{"task_step_id":"a"}],"name":"n","size":"<size>"}],"created_at_utc":"x","owner":7}`)
	if err := r.docs.Insert(ctx, collTasks, stored); err != nil {
		t.Fatal(err)
	}
	tasks := NewTasks(r.reg, r.docs, nil, nil)
	task, err := tasks.Get(ctx, "t", 1)
	if err != nil {
		t.Fatal(err)
	}
	const line = `step "b" (position 1, kinds): field "size" needs an integer, not string "<size>"`
	if diff := cmp.Diff([]string{line}, Preflight(ctx, task)); diff != "" {
		t.Error(diff)
	}
	res, err := r.engine.Run(ctx, task, Options{})
	if want := "task t: " + line + "; store it again with that mended"; res != nil || !fault.Is(err, fault.Invalid) || err.Error() != want || ran != 0 {
		t.Errorf("ran %d steps: %v, %v, want %s", ran, res, err, want)
	}
	if n, _ := r.docs.Count(ctx, collInstances, nil); n != 0 {
		t.Errorf("%d runs were recorded", n)
	}
	if res, err = r.engine.Run(ctx, task, Options{Metadata: parse(t, `{"seed":{"size":4}}`)}); err != nil || ran != 1 {
		t.Errorf("with a seed that mends it: %v, %v", res, err)
	}
	if got, err := tasks.Document(ctx, "t", 0); err != nil || show(got) != show(stored) {
		t.Errorf("the document as it is stored: %v\n%s", err, show(got))
	}
	if page, total, err := tasks.List(ctx, 0, 0); err != nil || total != 1 || len(page) != 1 || show(page[0]) != show(stored) {
		t.Errorf("listed: %v, %d, %v", page, total, err)
	}
	if all, err := r.docs.Query(ctx, collTasks, document.Query{}); err != nil || len(all) != 1 || show(all[0]) != show(stored) {
		t.Errorf("the store afterwards: %v, %v", all, err)
	}
	if _, err := tasks.Document(ctx, "none", 0); !fault.Is(err, fault.NotFound) {
		t.Errorf("a task that is not there: %v", err)
	}
}

func FuzzStoredTask(f *testing.F) {
	for _, s := range []string{`[{"id":"a","type":"kinds","name":5,"size":"4","deep":[]}]`, `[{"id":"b","type":"kinds","name":null,"agents":[null,1]}]`, `[{"id":"c","type":"soon","version":"x"}]`} {
		f.Add(s)
	}
	reg := testRegistry(f, nil)
	f.Fuzz(func(t *testing.T, text string) {
		stored, err := reg.ParseText("t", []byte(text), ParseOptions{Stored: true})
		if err != nil {
			return
		}
		for _, s := range stored.Steps {
			if s.Problem == nil && s.Action == nil && !s.Kind.Pending {
				t.Fatalf("step %q has neither an action nor a problem", s.ID)
			}
		}
		again, err := reg.ParseTask(stored.Document(), ParseOptions{Stored: true})
		if err != nil || !doc.Equal(again.Document(), stored.Document()) {
			t.Fatalf("read again it is another task: %v", err)
		}
	})
}
