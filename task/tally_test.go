package task_test

import (
	"math"
	"math/big"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"agentenv/store/doc"
	"agentenv/task"
)

func rollout(id string, class task.Class, seconds float64, scores ...float64) task.Rollout {
	r := task.Rollout{TaskID: id, Version: 1, Class: class, Seconds: seconds}
	for _, s := range scores {
		r.Scores = append(r.Scores, task.Score{Label: "v", Value: s})
	}
	return r
}

func near(a, b float64) bool { return math.Abs(a-b) < 5e-5 }

// TestTallyCounts has one task with a run of every kind; the expected values were worked out by hand.
func TestTallyCounts(t *testing.T) {
	runs := []task.Rollout{
		rollout("a", task.Passed, 1, 1),
		rollout("a", task.Passed, 2, 1, 2),
		rollout("a", task.Passed, 3, 1, 0.5), // completed, scored below 1
		rollout("a", task.Failed, 4),
		rollout("a", task.TimedOut, 5, 1), // a score of a run that did not complete makes no pass
		rollout("a", task.Infrastructure, 6, 1),
		rollout("a", task.Configuration, 7),
		rollout("a", task.Judge, 8),
		rollout("a", task.Cancelled, 9),
		rollout("a", "", 0),           // never started
		rollout("a", task.Passed, 10), // completed, unscored
	}
	c := task.NewTally(runs).Total.Count
	if c.Runs != 11 || c.Counted != 5 || c.Excluded != 5 || c.Unscored != 1 || c.Passes != 2 {
		t.Errorf("%+v", c)
	}
	classes := map[task.Class]int{task.Passed: 4, task.Failed: 1, task.TimedOut: 1, task.Infrastructure: 1, task.Configuration: 1, task.Judge: 1, task.Cancelled: 2}
	if d := cmp.Diff(classes, c.Classes); d != "" {
		t.Error(d)
	}
	// Wilson for 2 of 5: 0.1176 to 0.7693.
	if c.PassRate.Value != 0.4 || !near(*c.PassRate.Low, 0.11762) || !near(*c.PassRate.High, 0.76928) {
		t.Errorf("%v", c.PassRate)
	}
	// 1 - C(3,k)/C(5,k): 1-3/5, 1-3/10, 1-1/10, then 1.
	for k, want := range []float64{0.4, 0.7, 0.9, 1, 1} {
		if !near(c.PassAtK[k], want) {
			t.Errorf("pass@%d = %v, want %v", k+1, c.PassAtK[k], want)
		}
	}
	// (1 + 1.5 + 0.75 + 0 + 1) / 5
	if !near(*c.MeanScore, 0.85) {
		t.Errorf("mean score %v", *c.MeanScore)
	}
	if d := cmp.Diff(&task.Time{Sum: 55, Mean: 5.5, P50: 5, P95: 10}, c.Time); d != "" {
		t.Error(d)
	}
}

func TestTallyOfNothing(t *testing.T) {
	for name, runs := range map[string][]task.Rollout{
		"no runs":          nil,
		"none that counts": {rollout("a", task.Infrastructure, 0), rollout("b", task.Cancelled, 0), rollout("b", task.Passed, 0)},
	} {
		got := task.NewTally(runs)
		c := got.Total
		if c.Counted != 0 || c.PassRate != nil || c.PassAtK != nil || c.MeanScore != nil || c.TaskPassRate != nil || c.TaskMeanScore != nil || c.Time != nil || c.Usage != nil {
			t.Errorf("%s: %+v", name, c)
		}
		if text := got.Text(nil); len(runs) > 0 && text != "Results:\n  no run counts\n  runs: 3; left out: 1 infrastructure, 1 cancelled, 1 completed unscored\n  b v1:\n    no run counts\n    runs: 2; left out: 1 cancelled, 1 completed unscored\n" || len(runs) == 0 && text != "" {
			t.Errorf("%s:\n%s", name, text)
		}
	}
}

// TestTallyOverTasks has three tasks with pass rates 1, 1/2 and 0; their mean is 0.5, its standard error 0.5/√3, and t with 2 degrees of
// freedom 4.3027: the interval reaches over both ends and is cut.
func TestTallyOverTasks(t *testing.T) {
	got := task.NewTally([]task.Rollout{
		rollout("a", task.Passed, 1, 1), rollout("b", task.Passed, 1, 1), rollout("b", task.Passed, 1, 0), rollout("c", task.Failed, 1),
		rollout("d", task.Infrastructure, 1), rollout("a", task.Passed, 1, 1),
	})
	total := got.Total
	if len(got.Tasks) != 4 || got.Tasks[0].Runs != 2 || got.Tasks[1].TaskID != "b" || total.CountedTasks != 3 || total.Counted != 5 || total.Passes != 3 {
		t.Errorf("%+v", got)
	}
	if r := total.TaskPassRate; !near(r.Value, 0.5) || *r.Low != 0 || *r.High != 1 {
		t.Errorf("%v", r)
	}
	if r := total.TaskMeanScore; !near(r.Value, 0.5) || *r.Low != 0 || *r.High != 1 {
		t.Errorf("%v", r)
	}
	// Scores of 10, 5 and 0 are no rates: nothing is cut.
	wide := task.NewTally([]task.Rollout{rollout("a", task.Passed, 1, 10), rollout("b", task.Passed, 1, 5), rollout("c", task.Passed, 1, 0)}).Total.TaskMeanScore
	if half := 4.302653 * 5 / math.Sqrt(3); !near(wide.Value, 5) || !near(*wide.Low, 5-half) || !near(*wide.High, 5+half) {
		t.Errorf("%v", wide)
	}
	if d := cmp.Diff([]float64{0.5}, total.PassAtK); d != "" { // c ran once
		t.Error(d)
	}
	alike := task.NewTally([]task.Rollout{rollout("a", task.Passed, 1, 1), rollout("b", task.Passed, 1, 1)}).Total
	if alike.TaskPassRate.Value != 1 || alike.TaskPassRate.Low != nil {
		t.Errorf("tasks that are all alike have the interval %v", alike.TaskPassRate)
	}
	// Two versions of a task are two.
	two := rollout("a", task.Passed, 1, 1)
	two.Version = 2
	if n := len(task.NewTally([]task.Rollout{rollout("a", task.Passed, 1, 1), two}).Tasks); n != 2 {
		t.Errorf("%d tasks", n)
	}
}

// TestWilson holds the interval against values of Newcombe, "Two-sided confidence intervals for the single proportion" (1998), table I.
func TestWilson(t *testing.T) {
	for _, c := range []struct {
		passes, n int
		low, high float64
	}{{81, 263, 0.2553, 0.3662}, {15, 148, 0.0624, 0.1605}, {0, 20, 0, 0.1611}, {1, 29, 0.0061, 0.1718}, {29, 29, 0.8830, 1}} {
		var runs []task.Rollout
		for i := range c.n {
			class := task.Failed
			if i < c.passes {
				class = task.Passed
			}
			runs = append(runs, rollout("a", class, 0, 1))
		}
		e := task.NewTally(runs).Total.PassRate
		if math.Abs(*e.Low-c.low) > 5.1e-5 || math.Abs(*e.High-c.high) > 5.1e-5 {
			t.Errorf("%d of %d: %v to %v, want %v to %v", c.passes, c.n, *e.Low, *e.High, c.low, c.high)
		}
	}
}

// TestStudent reads the quantile back from the width of an interval: values at 0 and 2 in turn have a known spread. The quantiles are those
// of printed tables.
func TestStudent(t *testing.T) {
	for tasks, want := range map[int]float64{2: 12.7062, 6: 2.5706, 12: 2.2010, 16: 2.1314, 22: 2.0796, 32: 2.0395, 62: 1.9996, 122: 1.9798} {
		var runs []task.Rollout
		for i := range tasks {
			runs = append(runs, rollout(strings.Repeat("x", i+1), task.Passed, 0, float64(i%2*2)))
		}
		e := task.NewTally(runs).Total.TaskMeanScore
		n := float64(tasks)
		se := math.Sqrt(n / (n - 1) / n)
		if got := (*e.High - e.Value) / se; math.Abs(got-want) > 1e-4 {
			t.Errorf("%d tasks: t = %v, want %v", tasks, got, want)
		}
	}
}

// TestPassAtK compares with the exact quotient of binomials.
func TestPassAtK(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 400).Draw(t, "n")
		c := rapid.IntRange(0, n).Draw(t, "c")
		got := task.PassAtK(n, c)
		if len(got) != n {
			t.Fatalf("%d values", len(got))
		}
		if math.Abs(got[0]-float64(c)/float64(n)) > 1e-15 {
			t.Errorf("pass@1 = %v of %d/%d", got[0], c, n)
		}
		k := rapid.IntRange(1, n).Draw(t, "k")
		none := new(big.Rat).SetFrac(new(big.Int).Binomial(int64(n-c), int64(k)), new(big.Int).Binomial(int64(n), int64(k)))
		if k > n-c {
			none.SetInt64(0)
		}
		exact, _ := new(big.Rat).Sub(big.NewRat(1, 1), none).Float64()
		if math.Abs(got[k-1]-exact) > 1e-12 {
			t.Errorf("pass@%d of %d/%d = %v, exactly %v", k, c, n, got[k-1], exact)
		}
		for i, v := range got {
			if !(v >= 0 && v <= 1) || i > 0 && v < got[i-1] {
				t.Errorf("pass@%d of %d/%d = %v after %v", i+1, c, n, v, got[max(i-1, 0)])
			}
		}
	})
	if len(task.PassAtK(0, 0)) != 0 || task.PassAtK(2, 5)[0] != 1 || task.PassAtK(2, -1)[1] != 0 {
		t.Error("what lies outside is not taken as lying at the edge")
	}
}

// TestTallyHolds draws runs with whatever numbers there are: the sums agree, nothing is NaN or infinite, and the document can be written.
func TestTallyHolds(t *testing.T) {
	odd := rapid.OneOf(rapid.Float64(), rapid.SampledFrom([]float64{0, 1, -1, math.NaN(), math.Inf(1), math.Inf(-1), math.MaxFloat64, -math.MaxFloat64, 5e-324}))
	classes := []task.Class{task.Passed, task.Passed, task.Passed, task.Failed, task.TimedOut, task.Infrastructure, task.Configuration, task.Judge, task.Cancelled, "", "unheard of"}
	one := rapid.Custom(func(t *rapid.T) task.Rollout {
		r := rollout(rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "task"), rapid.SampledFrom(classes).Draw(t, "class"), odd.Draw(t, "seconds"),
			rapid.SliceOfN(odd, 0, 3).Draw(t, "scores")...)
		r.Usage = task.Usage{InputTokens: rapid.Int64Min(0).Draw(t, "in"), CostUSD: max(odd.Filter(func(f float64) bool { return !math.IsNaN(f) && !math.IsInf(f, 0) }).Draw(t, "cost"), 0)}
		return r
	})
	rapid.Check(t, func(t *rapid.T) {
		runs := rapid.SliceOfN(one, 0, 12).Draw(t, "runs")
		got := task.NewTally(runs)
		sum := 0
		for _, c := range append([]task.OfTask{{Count: got.Total.Count}}, got.Tasks...) {
			if c.Runs != c.Counted+c.Excluded+c.Unscored || c.Passes > c.Counted {
				t.Errorf("%+v", c)
			}
			n := 0
			for _, of := range c.Classes {
				n += of
			}
			if n != c.Runs {
				t.Errorf("%d by class, %d runs", n, c.Runs)
			}
			if c.PassRate != nil && !(0 <= *c.PassRate.Low && *c.PassRate.Low <= c.PassRate.Value && c.PassRate.Value <= *c.PassRate.High && *c.PassRate.High <= 1) {
				t.Errorf("pass rate %v", c.PassRate)
			}
			sum += c.Runs
		}
		if sum != 2*len(runs) {
			t.Errorf("%d runs in total and tasks together, of %d", sum, len(runs))
		}
		text, err := doc.Marshal(got.Document())
		if err != nil || strings.Contains(string(text), "NaN") || strings.Contains(string(text), "Inf") {
			t.Errorf("%v: %s", err, text)
		}
		if strings.Contains(got.Text(nil), "NaN") || strings.Contains(got.Text(nil), "Inf") {
			t.Error(got.Text(nil))
		}
		if again := task.NewTally(runs); cmp.Diff(got, again) != "" {
			t.Error("the same runs give another tally")
		}
	})
}

func TestTallyText(t *testing.T) {
	a := rollout("t/a", task.Passed, 2, 1)
	a.Usage = task.Usage{InputTokens: 1200, OutputTokens: 34, TotalTokens: 1234, ToolCalls: 5, CostUSD: 0.0125}
	got := task.NewTally([]task.Rollout{a, rollout("t/a", task.Passed, 4, 0.5), rollout("t/a", task.Infrastructure, 1), rollout("t/b", task.TimedOut, 9)}).
		Text(func(id string) string { return "<" + id + ">" })
	want := `Results:
  1 of 3 counted runs passed: pass rate 0.333 (95 % interval 0.0615 to 0.792)
  runs: 4; counted: 2 completed, 1 timed_out; left out: 1 infrastructure
  mean score 0.5
  time: 16.0s in all, mean 4.0s, p50 2.0s, p95 9.0s
  reported by agents in 1 of 4 runs: 1200 input tokens, 34 output tokens, 1234 tokens in all, 5 tool calls, $0.0125
  over 2 tasks: pass rate 0.25 (95 % interval 0 to 1); mean score 0.375 (95 % interval 0 to 1)
  <t/a> v1:
    1 of 2 counted runs passed: pass rate 0.5 (95 % interval 0.0945 to 0.905)
    runs: 3; counted: 2 completed; left out: 1 infrastructure
    pass@1 0.5, pass@2 1
    mean score 0.75
    time: 7.0s in all, mean 2.3s, p50 2.0s, p95 4.0s
    reported by agents in 1 of 3 runs: 1200 input tokens, 34 output tokens, 1234 tokens in all, 5 tool calls, $0.0125
`
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if one := task.NewTally([]task.Rollout{a}).Text(nil); one != "" {
		t.Errorf("one run has the lines\n%s", one)
	}
}

func TestUsageOf(t *testing.T) {
	for name, c := range map[string]struct {
		context string
		want    task.Usage
	}{
		"nothing":        {`{}`, task.Usage{}},
		"of a reference": {`{"prompt_responses":[{"prompt_id":"p","response":"hi","tool_call_count":2},{"tool_call_count":null},{"tool_call_count":3}]}`, task.Usage{ToolCalls: 5}},
		"tokens and cost": {`{"prompt_responses":[{"tool_call_count":1,"usage":{"tool_call_count":9,"input_tokens":10,"output_tokens":5,"cost_usd":0.5}},{"usage":{"total_tokens":7}}]}`,
			task.Usage{ToolCalls: 1, InputTokens: 10, OutputTokens: 5, TotalTokens: 22, CostUSD: 0.5}},
		"nobody prompted":         {`{"metadata":{"usage":{"input_tokens":3}}}`, task.Usage{InputTokens: 3, TotalTokens: 3}},
		"prompts come first":      {`{"prompt_responses":[{"usage":{"input_tokens":1}}],"metadata":{"usage":{"input_tokens":3}}}`, task.Usage{InputTokens: 1, TotalTokens: 1}},
		"not what they should be": {`{"prompt_responses":[7,null,{"tool_call_count":true,"usage":{"input_tokens":-1,"output_tokens":"5","total_tokens":1.5,"cost_usd":-2}},{"usage":[]},{"usage":{"cost_usd":"1"}}]}`, task.Usage{}},
		"more than fits": {`{"prompt_responses":[{"usage":{"input_tokens":9223372036854775807}},{"usage":{"input_tokens":9223372036854775807}},{"usage":{"input_tokens":92233720368547758070}}]}`,
			task.Usage{InputTokens: math.MaxInt64, TotalTokens: math.MaxInt64}},
	} {
		o, err := doc.ParseObject([]byte(c.context), doc.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if got := task.UsageOf(o); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
	if got := task.UsageOf(nil); got != (task.Usage{}) {
		t.Errorf("no context: %+v", got)
	}
}

func TestRolloutOfStoredRuns(t *testing.T) {
	for _, c := range []struct {
		status, class, context string
		want                   task.Class
	}{
		{"completed", "", `{"metadata":{"verifications":{"v":{"score":1}}}}`, task.Passed},
		{"completed", "", `{"metadata":{"failed_steps":[{"step_id":"a","retried":true}]}}`, task.Passed},
		{"completed", "", `{"metadata":{"failed_steps":[{"step_id":"a"}]}}`, task.Failed},
		{"completed", "", `{"metadata":{"failed_steps":["malformed"]}}`, task.Failed},
		{"failed", "", `{}`, task.Failed},
		{"failed", "infrastructure", `{}`, task.Infrastructure},
		{"cancelled", "", `{}`, task.Cancelled},
		{"running", "", `{}`, ""},
	} {
		context, err := doc.ParseObject([]byte(c.context), doc.Options{})
		if err != nil {
			t.Fatal(err)
		}
		in := &task.Instance{TaskID: "t", TaskVersion: 3, Status: c.status, Class: task.Class(c.class), Context: context,
			Document: doc.Of("created_at_precise_utc", "2026-11-30T23:59:58.500000+00:00", "ended_at_precise_utc", "2026-12-01T00:00:01.000000+00:00")}
		if got := in.Rollout(nil); got.Class != c.want || got.Seconds != 2.5 || got.TaskID != "t" || got.Version != 3 {
			t.Errorf("%s %q: %+v, want %q", c.status, c.class, got, c.want)
		}
	}
	if got := (&task.Instance{Status: "completed", Document: doc.Of("created_at_utc", "2026-11-30 23:59 UTC")}).Rollout(nil); got.Seconds != 0 {
		t.Errorf("%v seconds out of minutes", got.Seconds)
	}
}
