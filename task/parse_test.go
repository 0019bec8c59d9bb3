package task

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"agentenv/fault"
	"agentenv/store/doc"
)

func TestTasksRoundTrip(t *testing.T) {
	reg := testRegistry(t, nil)
	stored := `{"id": "t", "type": "task", "version": 3, "steps": [
		{"id": "a", "type": "do", "version": 1, "fail_task_on_error": true, "text": null, "metadata": {}},
		{"id": "b", "type": "do", "version": null, "fail_task_on_error": false, "depends_on": [{"task_step_id": "a"}],
		 "retry_config": {"retry_from_step_id": "a", "max_retries": 2, "delay_seconds": 1.5}, "step_timeout_seconds": 10, "text": "x", "metadata": {"k": 1}},
		{"id": "c", "type": "soon", "version": null, "fail_task_on_error": true, "depends_on": [], "who": "me"},
		{"id": "d", "type": "kinds", "version": null, "fail_task_on_error": false, "name": "n", "size": 3, "rate": 0.5, "deep": null, "mode": "vm",
		 "tags": {"a": "b"}, "artifacts": null, "agents": null, "env_id": null, "env_version": null, "when": null, "provider": null, "metadata": {}}],
		"max_parallel_steps": 2, "fail_fast": true}`
	task, err := reg.ParseTask(parse(t, stored), ParseOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(show(parse(t, stored)), show(task.Document())); diff != "" {
		t.Error(diff)
	}
	if b := task.Steps[1]; b.Retry.Max != 2 || b.Retry.Delay != 1500*time.Millisecond || b.Timeout != 10*time.Second || b.Implicit || !task.Steps[0].Implicit {
		t.Errorf("step b is %+v, retry %+v", b, b.Retry)
	}
}

func TestShortFormsAndUnknownKeys(t *testing.T) {
	reg := testRegistry(t, nil)
	short := `[{"id":"a","type":"do","project_id":"old"},{"id":"b","type":"do","depends_on":["a",{"task_step_id":"a"}],"retry_config":{"go_to_step_id":"a"}},
		{"id":"c","type":"kinds","name":"n","short":"s","size":4.0,"metadata":null}]`
	task, err := reg.ParseText("t", []byte(short), ParseOptions{})
	if err != nil {
		t.Fatal(err)
	}
	text := show(task.StepDocuments())
	for _, gone := range []string{"project_id", "go_to_step_id", "short"} {
		if strings.Contains(text, gone) {
			t.Errorf("%s was written again: %s", gone, text)
		}
	}
	b := task.Steps[1].Document()
	if !doc.Equal(b.Value("depends_on"), []any{doc.Of("task_step_id", "a")}) || !doc.Equal(b.Value("retry_config"), doc.Of("retry_from_step_id", "a", "max_retries", doc.Int(1))) {
		t.Errorf("step b: %s", show(b))
	}
	if m := task.Steps[2].Fields.Obj("metadata"); m == nil {
		t.Error("null is not the default of metadata")
	}
	if _, err := reg.ParseText("t", []byte(short), ParseOptions{Strict: true, Where: "task.json"}); err == nil ||
		!strings.Contains(err.Error(), `task.json: step "a" (position 0): field "project_id" is not known`) {
		t.Errorf("strict: %v", err)
	}
}

func TestBadTasks(t *testing.T) {
	step := func(more string) string { return `[{"id":"s","type":"kinds","name":"n",` + more + `}]` }
	two := func(more string) string {
		return `[{"id":"a","type":"do"},{"id":"b","type":"do",` + more + `},{"id":"c","type":"do"}]`
	}
	for _, c := range []struct{ name, text, want string }{
		{"broken JSON", `[{"id":`, "f.json:"},
		{"no list", `"x"`, `f.json: a task is a list of steps, not string "x"`},
		{"steps no list", `{"steps": {}}`, `field "steps" needs a list of steps, not object {}`},
		{"other document", `{"type": "eval", "steps": []}`, "f.json: Unknown task type: eval"},
		{"unknown task key", `{"steps": [], "x": 1}`, `field "x" is not known`},
		{"parallel", `{"steps": [], "max_parallel_steps": -1}`, `field "max_parallel_steps" needs an integer from 0`},
		{"fail fast", `{"steps": [], "fail_fast": 1}`, `field "fail_fast" needs a boolean, not number 1`},
		{"step no object", `[7]`, "f.json: step at position 0: a step is an object, not number 7"},
		{"no id", `[{"type":"do"}]`, `f.json: step at position 0: field "id" is missing; it needs a string`},
		{"no type", `[{"id":"a"}]`, `f.json: step "a" (position 0): field "type" is missing`},
		{"id a number", `[{"id":1,"type":"do"}]`, `field "id" needs a string that is not empty, not number 1`},
		{"unknown type", `[{"id":"a","type":"nope"}]`, "Unknown task step type: nope"},
		{"version", `[{"id":"a","type":"do","version":0}]`, `field "version" needs a positive integer or null, not number 0`},
		{"required", `[{"id":"s","type":"kinds"}]`, `field "name" is missing; it needs a string`},
		{"required null", `[{"id":"s","type":"kinds","name":null}]`, `field "name" is missing`},
		{"string", `[{"id":"s","type":"kinds","name":1}]`, `field "name" needs a string, not number 1`},
		{"integer", step(`"size":1.5`), `field "size" needs an integer, not number 1.5`},
		{"integer true", step(`"size":true`), `field "size" needs an integer, not boolean true`},
		{"number", step(`"rate":"1"`), `field "rate" needs a number, not string "1"`},
		{"boolean", step(`"deep":0`), `field "deep" needs a boolean, not number 0`},
		{"enum", step(`"mode":"pod"`), `field "mode" needs one of vm, container, not string "pod"`},
		{"object values", step(`"tags":{"a":1}`), `field "tags" needs an object of string values, and "a" is number 1`},
		{"list items", step(`"agents":["a",null]`), `field "agents" needs a list of string values, and item 1 is null`},
		{"depends_on a string", two(`"depends_on":"a"`), `depends_on is a list of step ids, not string "a"`},
		{"depends_on an object", two(`"depends_on":{}`), `depends_on is a list of step ids, not object {}`},
		{"depends_on a number", two(`"depends_on":[7]`), `an entry is a step id or {"task_step_id": <id>}`},
		{"depends_on a wrong key", two(`"depends_on":[{"id":"a"}]`), `an entry is a step id or {"task_step_id": <id>}`},
		{"forward", two(`"depends_on":["c"]`), `step "b" (position 1) depends on "c", which doesn't come before it; forward references are not allowed`},
		{"itself", two(`"depends_on":["b"]`), `depends on "b", which doesn't come before it`},
		{"misspelt", two(`"depends_on":["aa"]`), `depends on "aa", which names no step in this task; the steps before it are a`},
		{"duplicate", `[{"id":"a","type":"do"},{"id":"a","type":"do"}]`, `step "a" at position 1 has the id of the step at position 0; ids are unique in a task`},
		{"retry of a bool", two(`"retry_config":{"retry_from_step_id":"a","max_retries":true}`), `"max_retries" needs an integer from 0, not boolean true`},
		{"retry of a float", two(`"retry_config":{"retry_from_step_id":"a","max_retries":1.0}`), `"max_retries" needs an integer from 0, not number 1.0`},
		{"retry negative", two(`"retry_config":{"retry_from_step_id":"a","max_retries":-1}`), `"max_retries" needs an integer from 0, not number -1`},
		{"retry without a step", two(`"retry_config":{}`), `"retry_from_step_id" is missing`},
		{"retry from a stranger", two(`"depends_on":[],"retry_config":{"retry_from_step_id":"a"}`), `step "b" (position 1) retries from "a", which is neither itself nor a step it depends on; those are none`},
		{"retry from later", two(`"retry_config":{"retry_from_step_id":"c"}`), `retries from "c", which is neither itself nor a step it depends on; those are a`},
		{"timeout", two(`"step_timeout_seconds":-1`), `field "step_timeout_seconds" needs a number of seconds from 0`},
		{"fail_task_on_error", two(`"fail_task_on_error":"no"`), `field "fail_task_on_error" needs a boolean, not string "no"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := testRegistry(t, nil).ParseText("t", []byte(c.text), ParseOptions{Strict: true, Where: "f.json"})
			if !fault.Is(err, fault.Invalid) {
				t.Fatalf("error %v of kind %q", err, fault.KindOf(err))
			}
			if !strings.HasPrefix(err.Error(), "f.json") || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("error %q, want %q", err, c.want)
			}
		})
	}
}

func TestRetryTargets(t *testing.T) {
	reg := testRegistry(t, nil)
	diamond := `[{"id":"a","type":"do"},{"id":"l","type":"do","depends_on":["a"]},{"id":"r","type":"do","depends_on":["a"]},
		{"id":"e","type":"do","depends_on":["l"],"retry_config":{"retry_from_step_id":"%s"}}]`
	for target, ok := range map[string]bool{"a": true, "l": true, "e": true, "r": false} {
		_, err := reg.ParseText("t", fmt.Appendf(nil, diamond, target), ParseOptions{})
		if (err == nil) != ok {
			t.Errorf("retry from %s: %v", target, err)
		}
	}
	mixed := `[{"id":"a","type":"do"},{"id":"b","type":"do","depends_on":[]},{"id":"c","type":"do"},
		{"id":"d","type":"do","depends_on":["c"],"retry_config":{"retry_from_step_id":"b"}}]`
	if _, err := reg.ParseText("t", []byte(mixed), ParseOptions{}); err != nil {
		t.Errorf("through a step that waits for all: %v", err)
	}
}

func TestManyImplicitStepsParseInLinearTime(t *testing.T) {
	reg := testRegistry(t, nil)
	text := []byte(noops(MaxSteps, `,"retry_config":{"retry_from_step_id":"s0"}`))
	began := time.Now()
	task, err := reg.ParseText("t", text, ParseOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s := NewScheduler(task, 0, MaxSteps)
	s.Next(s.Initial(), Signal{Kind: SignalBegin})
	t.Logf("%d steps: %v", MaxSteps, time.Since(began))
	if _, err := reg.ParseText("t", []byte(noops(MaxSteps+1, "")), ParseOptions{}); err == nil || !strings.Contains(err.Error(), "the most is") {
		t.Errorf("one step too many: %v", err)
	}
}

func TestRegistryRefusesBadTables(t *testing.T) {
	parse := func(string, *doc.Object) (Action, *doc.Object, error) { return action{}, nil, nil }
	f := func(f Field) *StepType { return &StepType{Name: "x", Parse: parse, Fields: []Field{f}} }
	ref := func(r Ref) *StepType {
		return &StepType{Name: "x", Parse: parse, Fields: []Field{{Name: "id_", Kind: String}, {Name: "ids", Kind: List}}, Refs: []Ref{r}}
	}
	for _, c := range []struct {
		name string
		t    *StepType
	}{
		{"no name", &StepType{Parse: parse}}, {"no Parse", &StepType{Name: "x"}},
		{"a base field", f(Field{Name: "depends_on", Kind: List})}, {"an unknown kind", f(Field{Name: "a", Kind: "text"})},
		{"a default of another kind", f(Field{Name: "a", Kind: String, Default: doc.Int(1)})},
		{"a default outside the enum", f(Field{Name: "a", Kind: String, Enum: []string{"b"}, Default: "c"})},
		{"required with a default", f(Field{Name: "a", Kind: String, Required: true, Default: "x"})},
		{"required of user scope", f(Field{Name: "a", Kind: String, Required: true, User: true})},
		{"a reference to no field", ref(Ref{Path: "none", Kind: "env"})}, {"a bad path", ref(Ref{Path: "a..b", Kind: "env"})},
		{"a bad kind", ref(Ref{Path: "id_", Kind: "thing"})}, {"a version of a bare list", ref(Ref{Path: "ids[]", Kind: "env", VersionField: "v"})},
		{"a version field that is not there", ref(Ref{Path: "id_", Kind: "env", VersionField: "v"})},
		{"an artifact type of an env", ref(Ref{Path: "id_", Kind: "env", ArtifactType: "file"})},
	} {
		if _, err := NewRegistry(c.t); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	ok := &StepType{Name: "x", Parse: parse}
	if _, err := NewRegistry(ok, ok); !fault.Is(err, fault.Exists) {
		t.Errorf("twice one name: %v", err)
	}
	if all := testRegistry(t, nil).All(); len(all) != 4 || all[0].Name != "check" || all[3].Name != "soon" {
		t.Errorf("All is not sorted: %v", all)
	}
}

func TestSeed(t *testing.T) {
	reg := testRegistry(t, nil)
	task, err := reg.ParseText("t", []byte(`[{"id":"<n>","type":"do","text":"<v>|<n>|<no>|<b>|<f>|<l>","metadata":{"<n>":["<v>", 1]}},
		{"id":"end","type":"do","depends_on":["<n>"]}]`), ParseOptions{})
	if err != nil {
		t.Fatal(err)
	}
	before := show(task.Document())
	got, err := reg.Substitute(task, parse(t, `{"n": "name", "v": "<n>", "b": true, "f": 1.50, "l": ["it's", null, {"k": 2}]}`))
	if err != nil {
		t.Fatal(err)
	}
	a := got.Steps[0]
	if want := `<n>|name|<no>|True|1.5|["it's", None, {'k': 2}]`; a.ID != "name" || a.Fields.Str("text") != want {
		t.Errorf("step %q, text %q, want %q", a.ID, a.Fields.Str("text"), want)
	}
	if m := a.Fields.Obj("metadata"); !doc.Equal(m, parse(t, `{"<n>": ["<n>", 1]}`)) {
		t.Errorf("metadata %s", show(m))
	}
	if got.Steps[1].DependsOn[0] != "name" {
		t.Errorf("depends_on %v", got.Steps[1].DependsOn)
	}
	if show(task.Document()) != before {
		t.Error("the task was changed")
	}
	if _, err := reg.Substitute(task, parse(t, `{"n": "end"}`)); !fault.Is(err, fault.Invalid) {
		t.Errorf("a seed that breaks the task: %v", err)
	}
	if same, _ := reg.Substitute(task, nil); same != task {
		t.Error("without a seed the task is another")
	}
}

func TestReferences(t *testing.T) {
	k := testRegistry(t, nil).Get("kinds")
	step := parse(t, `{"env_id": "e", "env_version": 2, "artifacts": [{"id": "x"}, {"id": "y", "version": 1}, {"other": 1}], "agents": ["g", null],
		"when": {"of": [{"env": "w1"}, {"of": [{"env": "w2", "and": {"env": "w3"}}]}]}}`)
	var got []string
	for _, f := range k.FindRefs(step) {
		got = append(got, fmt.Sprintf("%s %s=%s@%d", f.Ref.Kind, f.Path, f.ID, f.Version))
	}
	want := []string{"env env_id=e@2", "artifact artifacts[0].id=x@0", "artifact artifacts[1].id=y@1", "agent agents[0]=g@0",
		"env when.of[0].env=w1@0", "env when.of[1].of[0].env=w2@0", "env when.of[1].of[0].and.env=w3@0"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	before := show(step)
	out, err := k.RewriteRefs(step, func(f FoundRef) (string, int64, error) {
		if f.Ref.VersionField != "" {
			return "@local/" + f.ID, 7, nil
		}
		return "@local/" + f.ID, 0, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if show(step) != before {
		t.Error("the document was changed")
	}
	if !doc.Equal(out, parse(t, `{"env_id": "@local/e", "env_version": 7, "artifacts": [{"id": "@local/x", "version": 7}, {"id": "@local/y", "version": 7}, {"other": 1}],
		"agents": ["@local/g", null], "when": {"of": [{"env": "@local/w1"}, {"of": [{"env": "@local/w2", "and": {"env": "@local/w3"}}]}]}}`)) {
		t.Errorf("rewritten: %s", show(out))
	}
	if _, err := k.RewriteRefs(step, func(f FoundRef) (string, int64, error) { return f.ID, 1, nil }); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "agents[0]") {
		t.Errorf("pinning in a bare list: %v", err)
	}
	clean, dropped := k.WithoutUserScope(parse(t, `{"name": "n", "provider": "mine", "metadata": {"attribution": {"team": "x"}, "k": 1}}`))
	if !doc.Equal(clean, parse(t, `{"name": "n", "metadata": {"k": 1}}`)) || !cmp.Equal(dropped, []string{"provider", "metadata.attribution"}) {
		t.Errorf("dropped %v, left %s", dropped, show(clean))
	}
	if _, dropped := k.WithoutUserScope(parse(t, `{"provider": "", "metadata": {"attribution": {}}}`)); dropped != nil {
		t.Errorf("dropped what was empty: %v", dropped)
	}
}

func TestSchema(t *testing.T) {
	s := SchemaOf(testRegistry(t, nil))
	if s.Str("$schema") != "https://json-schema.org/draft/2020-12/schema" {
		t.Error(s.Str("$schema"))
	}
	kinds := s.Obj("$defs").Obj("kinds")
	want := parse(t, `{"type": ["integer", "null"], "default": 3}`)
	if got := kinds.Obj("properties").Obj("size"); !doc.Equal(got, want) {
		t.Errorf("size: %s", show(got))
	}
	if !doc.Equal(kinds.Value("required"), []any{"id", "type", "name"}) || kinds.Value("additionalProperties") != false {
		t.Errorf("kinds: %s", show(kinds))
	}
	if !doc.Equal(kinds.Obj("properties").Obj("mode").Value("enum"), []any{"vm", "container", nil}) {
		t.Errorf("mode: %s", show(kinds.Obj("properties").Obj("mode")))
	}
}

func FuzzParseText(f *testing.F) {
	for _, s := range []string{`[]`, `[{"id":"a","type":"do"}]`, `{"steps":[{"id":"b","type":"kinds","name":"n","tags":{"a":"b"}}],"fail_fast":true}`,
		`[{"id":"a","type":"do","depends_on":[],"retry_config":{"go_to_step_id":"a"},"step_timeout_seconds":1.5}]`, "[{\"id\":\"\\ud800\",\"type\":\"soon\",\"who\":\"x\"}]"} {
		f.Add(s)
	}
	reg := testRegistry(f, nil)
	f.Fuzz(func(t *testing.T, text string) {
		task, err := reg.ParseText("t", []byte(text), ParseOptions{})
		if err != nil {
			if !fault.Is(err, fault.Invalid) {
				t.Fatalf("%v is of kind %q", err, fault.KindOf(err))
			}
			return
		}
		again, err := reg.ParseTask(task.Document(), ParseOptions{Strict: true})
		if err != nil {
			t.Fatalf("its stored form is refused: %v", err)
		}
		if !doc.Equal(again.Document(), task.Document()) {
			t.Fatalf("its stored form reads as another task")
		}
	})
}

func FuzzReplay(f *testing.F) {
	for _, s := range []string{`{"sets":[{"path":"context.metadata.a","value":1}],"unsets":["context.metadata.b"],"add_to_sets":[{"path":"context.deployed_envs","items":[{"instance_id":"x"}]}]}`,
		`{"edits":[{"path":"context.deployed_sandboxes","id":"box","op":"put","value":{}},{"path":"context.metadata.l","id":"z","op":"remove"}]}`, `{"sets":[{"path":"x"}]}`, `{"sets":[1]}`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		ops, err := doc.ParseObject([]byte(text), doc.Options{})
		if err != nil {
			return
		}
		if _, err := Replay([]Row{{Ops: ops}}); err != nil && !fault.Is(err, fault.Invalid) {
			t.Fatalf("%v is of kind %q", err, fault.KindOf(err))
		}
	})
}
