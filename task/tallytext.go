package task

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Text returns the lines about the tally, from "Results:" on: in total, and for each task that ran more than once. It is "" for fewer than
// two runs. label names a task in these lines; nil: by its id.
func (t Tally) Text(label func(taskID string) string) string {
	if t.Total.Runs < 2 {
		return ""
	}
	var b strings.Builder
	b.WriteString("Results:\n")
	t.Total.Count.write(&b, "  ", len(t.Tasks) == 1)
	if t.Total.CountedTasks > 1 {
		fmt.Fprintf(&b, "  over %d tasks: pass rate %s; mean score %s\n", t.Total.CountedTasks, t.Total.TaskPassRate, t.Total.TaskMeanScore)
		if len(t.Total.PassAtK) > 1 {
			fmt.Fprintf(&b, "  over %d tasks: %s\n", t.Total.CountedTasks, curve(t.Total.PassAtK))
		}
	}
	for _, one := range t.Tasks {
		if one.Runs < 2 || len(t.Tasks) == 1 {
			continue
		}
		name := one.TaskID
		if label != nil {
			name = label(one.TaskID)
		}
		fmt.Fprintf(&b, "  %s v%d:\n", name, one.Version)
		one.Count.write(&b, "    ", true)
	}
	return b.String()
}

// write writes the lines of one count. A curve is one of its own: the total of several tasks has its curve elsewhere.
func (c Count) write(b *strings.Builder, indent string, ownCurve bool) {
	line := func(format string, args ...any) { fmt.Fprintf(b, indent+format+"\n", args...) }
	counted := "runs"
	if c.Counted == 1 {
		counted = "run"
	}
	if c.PassRate == nil {
		line("no run counts")
	} else {
		line("%d of %d counted %s passed: pass rate %s", c.Passes, c.Counted, counted, c.PassRate)
	}
	line("runs: %s", c.classes())
	if c.PassRate != nil {
		if ownCurve && len(c.PassAtK) > 1 {
			line("%s", curve(c.PassAtK))
		}
		line("mean score %s", short(*c.MeanScore))
	}
	if t := c.Time; t != nil {
		line("time: %.1fs in all, mean %.1fs, p50 %.1fs, p95 %.1fs", t.Sum, t.Mean, t.P50, t.P95)
	}
	if u := c.Usage; u != nil {
		line("reported by agents in %d of %d runs: %s", c.UsageRuns, c.Runs, u)
	}
}

// classes says how many runs there are of each class, and which do not count.
func (c Count) classes() string {
	var counted, left []string
	for _, class := range Classes() {
		n := c.Classes[class]
		switch {
		case class == Passed && n > c.Unscored:
			counted = append(counted, fmt.Sprintf("%d completed", n-c.Unscored))
		case class == Passed || n == 0:
		case class.Counts():
			counted = append(counted, fmt.Sprintf("%d %s", n, class))
		default:
			left = append(left, fmt.Sprintf("%d %s", n, class))
		}
	}
	if c.Unscored > 0 {
		left = append(left, fmt.Sprintf("%d completed unscored", c.Unscored))
	}
	s := fmt.Sprintf("%d", c.Runs)
	if len(counted) > 0 {
		s += "; counted: " + strings.Join(counted, ", ")
	}
	if len(left) > 0 {
		s += "; left out: " + strings.Join(left, ", ")
	}
	return s
}

// String returns the value with its interval: "0.6 (95 % interval 0.231 to 0.882)".
func (e *Estimate) String() string {
	if e.Low == nil || e.High == nil {
		return short(e.Value)
	}
	return fmt.Sprintf("%s (95 %% interval %s to %s)", short(e.Value), short(*e.Low), short(*e.High))
}

// String lists what was reported.
func (u Usage) String() string {
	var parts []string
	for _, p := range []struct {
		n    int64
		what string
	}{{u.InputTokens, "input tokens"}, {u.OutputTokens, "output tokens"}, {u.TotalTokens, "tokens in all"}, {u.ToolCalls, "tool calls"}} {
		if p.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", p.n, p.what))
		}
	}
	if u.CostUSD > 0 {
		parts = append(parts, "$"+strconv.FormatFloat(u.CostUSD, 'f', 4, 64))
	}
	return strings.Join(parts, ", ")
}

// curve writes pass@k for the first few k, some round ones and the last.
func curve(values []float64) string {
	var parts []string
	for i, v := range values {
		k := i + 1
		if k <= 5 || k == len(values) || slices.Contains([]int{10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000}, k) {
			parts = append(parts, fmt.Sprintf("pass@%d %s", k, short(v)))
		}
	}
	return strings.Join(parts, ", ")
}

func short(f float64) string { return strconv.FormatFloat(f, 'g', 3, 64) }
