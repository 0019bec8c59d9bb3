package verify

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"agentenv/fault"
	"agentenv/store/doc"
	"agentenv/task"
)

func rowsOf(t *testing.T, text string) []*doc.Object {
	t.Helper()
	v, err := doc.Parse([]byte(text), doc.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var out []*doc.Object
	for _, r := range v.([]any) {
		out = append(out, r.(*doc.Object))
	}
	return out
}

func TestAggregate(t *testing.T) {
	for _, c := range []struct {
		how, rows string
		want      float64
	}{
		{AllPass, `[]`, 0}, {AnyPass, `[]`, 0}, {WeightedAverage, `[]`, 0},
		{AllPass, `[{"result":true},{"result":true}]`, 1}, {AllPass, `[{"result":true},{"result":1}]`, 0}, {AllPass, `[{"result":"true"}]`, 0},
		{AnyPass, `[{"result":false},{"result":true}]`, 1}, {AnyPass, `[{"result":1}]`, 0},
		{WeightedAverage, `[{"score":0,"weight":1},{"score":1,"weight":2},{"score":1,"weight":-1},{"score":1},{"score":0},{"score":0},{"score":1},{"score":0},{"score":0},{"score":0}]`, 0.4},
		{WeightedAverage, `[{"score":1,"weight":3},{"score":0},{"score":0,"weight":-1}]`, 0.5},
		{WeightedAverage, `[{"score":1,"weight":-1}]`, 0}, {WeightedAverage, `[{"score":1,"weight":0}]`, 0},
		{WeightedAverage, `[{"result":true},{"result":false}]`, 0.5}, {WeightedAverage, `[{"score":1,"weight":"2"},{"score":0}]`, 2.0 / 3},
		{WeightedAverage, `[{"score":5}]`, 1}, {WeightedAverage, `[{"score":0},{"score":0,"weight":-5}]`, 0},
		{WeightedAverage, `[{"score":NaN}]`, 0}, {WeightedAverage, `[{"score":1,"weight":Infinity},{"score":0}]`, 0.5},
		{WeightedAverage, `[{"score":1,"weight":1e308},{"score":1,"weight":1e308}]`, 0}, // infinite sums
	} {
		if got := Aggregate(c.how, rowsOf(t, c.rows)); math.IsNaN(got) || got < c.want-1e-12 || got > c.want+1e-12 {
			t.Errorf("%s of %s is %v, want %v", c.how, c.rows, got, c.want)
		}
	}
}

func parseStep(t *testing.T, text string) (*task.Step, error) {
	t.Helper()
	reg, err := task.NewRegistry(Types(Deps{})...)
	if err != nil {
		t.Fatal(err)
	}
	tk, err := reg.ParseText("t", []byte("["+text+"]"), task.ParseOptions{})
	if err != nil {
		return nil, err
	}
	return tk.Steps[0], nil
}

func TestVerifySandboxFields(t *testing.T) {
	s, err := parseStep(t, `{"id":"v","type":"verify_sandbox","sandbox_name":"box","criteria":[{"type":"x"}]}`)
	if err != nil {
		t.Fatal(err)
	}
	if s.Fields.Value("agent_name") != nil || s.Fields.Str("base_dir") != "/app" || len(s.Fields.Str("verifier_id")) != 32 || s.Fields.Str("score_aggregator") != AllPass {
		t.Errorf("stored: %s", doc.Canonical(s.Fields))
	}
	s, err = parseStep(t, `{"id":"v","type":"verify_sandbox","sandbox_name":"  "}`)
	if err != nil {
		t.Fatal(err)
	}
	if _, there := s.Fields.Get("sandbox_name"); there || s.Fields.Str("agent_name") != "default-agent" || s.Action.(*verifySandbox).agent != "default-agent" {
		t.Errorf("a blank sandbox_name is unset, the agent is kept: %s", doc.Canonical(s.Fields))
	}
	for text, want := range map[string]string{
		`{"id":"v","type":"verify_sandbox","sandbox_name":"box","agent_name":"solver"}`:        "not both",
		`{"id":"v","type":"verify_sandbox","sandbox_name":"box","criteria":["x"]}`:             "criteria",
		`{"id":"v","type":"verify_sandbox","sandbox_name":"box","score_aggregator":"most"}`:    "score_aggregator",
		`{"id":"v","type":"verify_sandbox","sandbox_name":"box","shell_timeout_seconds":0}`:    "greater than 0",
		`{"id":"v","type":"verify_sandbox","sandbox_name":"box","shell_timeout_seconds":"12"}`: "shell_timeout_seconds",
	} {
		if _, err := parseStep(t, text); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

func TestAggregateVerifiers(t *testing.T) {
	meta := rowsOf(t, `[{"verifications":{
		"a":{"score":1,"results":[{"score":1,"result":true,"weight":3},{"skipped":true}]},
		"b":{"score":0,"results":[{"score":0,"result":false},{"score":0,"result":false,"weight":-1}]},
		"none":{"score":1},"null":{"results":[{"score":1,"result":true,"weight":null}]}}}]`)[0]
	run := func(step string) (*task.Run, error) {
		s, err := parseStep(t, step)
		if err != nil {
			t.Fatal(err)
		}
		r := task.NewRun(s.ID, s.Type, task.NewContext().Set("metadata", meta), nil, nil)
		return r, s.Action.Execute(t.Context(), r)
	}
	for how, want := range map[string]string{WeightedAverage: "0.5", AllPass: "0.0", AnyPass: "1.0"} {
		r, err := run(`{"id":"g","type":"aggregate_verifiers","verifier_ids":["a","b"],"verifier_id":"g","score_aggregator":"` + how + `"}`)
		if err != nil {
			t.Fatal(err)
		}
		if got := doc.Canonical(r.Metadata("verifications", "g", "source_verifier_ids")); got != `["a","b"]` {
			t.Errorf("sources %s", got)
		}
		if got := r.Metadata("verifications", "g", "score"); got != doc.Number(want) {
			t.Errorf("%s: %v, want %s", how, got, want)
		}
	}
	if _, err := run(`{"id":"g","type":"aggregate_verifiers","verifier_ids":["null"],"score_aggregator":"weighted_average"}`); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "weight null") {
		t.Errorf("a weight that is null: %v", err)
	}
	if _, err := run(`{"id":"g","type":"aggregate_verifiers","verifier_ids":["a","x","y"]}`); err == nil || fault.ClassOf(err) != "RuntimeError" ||
		!strings.Contains(err.Error(), "['x', 'y']") || !strings.Contains(err.Error(), "['a', 'b', 'none', 'null']") {
		t.Errorf("missing verifiers: %v", err)
	}
}

func TestWarnings(t *testing.T) {
	s, err := parseStep(t, `{"id":"v","type":"verify_sandbox","sandbox_name":"b","criteria":[{"type":"nope"},{"type":"probe_file_exists"},
		{"type":"probe_file_contains","paths":["x"],"expected":"("},{"type":"bash_cmd_succeeds","bash_cmd":" "},{"type":"probe_dir_exists","paths":"x"},{"type":"bash_cmd_succeeds","bash_cmd":"true"}]}`)
	if err != nil {
		t.Fatal(err)
	}
	got := s.Kind.Warn(s)
	for i, want := range []string{"'nope'", "no paths", "invalid pattern", "no bash_cmd", "`paths` must be a list"} {
		if i >= len(got) || !strings.Contains(got[i], want) || !strings.Contains(got[i], fmt.Sprint("criterion ", i)) {
			t.Errorf("warning %d of %q, want %q", i, got, want)
		}
	}
	if len(got) != 5 {
		t.Errorf("warned of %q", got)
	}
	if s, _ := parseStep(t, `{"id":"v","type":"verify_sandbox","sandbox_name":"b"}`); len(s.Kind.Warn(s)) != 1 {
		t.Error("a verifier without criteria is worth a warning")
	}
}
