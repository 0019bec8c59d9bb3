package task

import (
	"math"
	"slices"
)

// Rollout is one run as a Tally counts it.
type Rollout struct {
	TaskID  string
	Version int64
	Class   Class // how it ended; "" counts as Cancelled: it never started or has not ended
	Scores  []Score
	Seconds float64
	Usage   Usage // what the agents reported
}

// Tally is what a number of runs came to, in total and by task. It never holds NaN or an infinity, and its JSON form is what --json prints.
type Tally struct {
	Total Total    `json:"total"`
	Tasks []OfTask `json:"tasks"` // in the order in which they appeared first
}

// OfTask is the count of one version of one task.
type OfTask struct {
	TaskID  string `json:"task_id"`
	Version int64  `json:"version"`
	Count
}

// Total is the count of all runs, and the means over tasks, in which every task weighs the same however often it ran.
type Total struct {
	Count
	// CountedTasks is the number of tasks with at least one counted run; the means over tasks are over these.
	CountedTasks int `json:"counted_tasks"`
	// TaskPassRate is the mean over tasks of their pass rates. nil when no task has a counted run.
	TaskPassRate *Estimate `json:"task_pass_rate,omitempty"`
	// TaskMeanScore is the mean over tasks of their mean scores. nil when no task has a counted run.
	TaskMeanScore *Estimate `json:"task_mean_score,omitempty"`
}

// Count is a count of runs. The denominator of every rate is Counted: the runs that say something about the agent.
//
// A run counts when its class is passed, failed or timed_out; a run whose class is infrastructure, configuration, judge or cancelled says
// nothing about the agent and is excluded, and so is a completed run that nothing scored. So Runs = Counted + Excluded + Unscored.
type Count struct {
	Runs     int           `json:"runs"`
	Classes  map[Class]int `json:"classes"`  // runs by class; "passed" is every run that completed, whatever its score
	Counted  int           `json:"counted"`  // the denominator
	Excluded int           `json:"excluded"` // of the classes that do not count
	Unscored int           `json:"unscored"` // completed without a score
	// Passes is the number of counted runs that completed with at least one score and none below 1.
	Passes int `json:"passes"`
	// PassRate is Passes / Counted with its Wilson interval; nil when nothing counts.
	PassRate *Estimate `json:"pass_rate,omitempty"`
	// PassAtK holds pass@k at index k-1. Of a task: k = 1..Counted. Of the total: the mean over the counted tasks, as far as the task with
	// the fewest counted runs goes.
	PassAtK []float64 `json:"pass_at_k,omitempty"`
	// MeanScore is the mean over the counted runs of each run's own mean score; a counted run without a score (it failed before) is 0.
	// nil when nothing counts.
	MeanScore *float64 `json:"mean_score,omitempty"`
	// Time is about every run that started, counted or not; nil when none did.
	Time *Time `json:"time,omitempty"`
	// Usage is the sum of what agents reported, over the UsageRuns runs in which one did; nil when none did.
	Usage     *Usage `json:"usage,omitempty"`
	UsageRuns int    `json:"usage_runs,omitempty"`
}

// Estimate is a value with its 95 % confidence interval. Low and High are nil where there is too little to tell: a mean over tasks needs two
// tasks at least that differ.
type Estimate struct {
	Value float64  `json:"value"`
	Low   *float64 `json:"low,omitempty"`
	High  *float64 `json:"high,omitempty"`
}

// Time is how long runs took, in seconds. The percentiles are by nearest rank: a time that a run did take.
type Time struct {
	Sum  float64 `json:"sum_seconds"`
	Mean float64 `json:"mean_seconds"`
	P50  float64 `json:"p50_seconds"`
	P95  float64 `json:"p95_seconds"`
}

// NewTally counts runs. It is a pure function: the same rollouts in the same order give the same tally, and it keeps nothing of them.
// A score that is no finite number counts as 0, as does such a time.
func NewTally(rollouts []Rollout) Tally {
	type key struct {
		id      string
		version int64
	}
	groups := map[key][]Rollout{}
	var order []key
	for _, r := range rollouts {
		k := key{r.TaskID, r.Version}
		if groups[k] == nil {
			order = append(order, k)
		}
		groups[k] = append(groups[k], r)
	}
	t := Tally{Total: Total{Count: countOf(rollouts)}, Tasks: []OfTask{}}
	var rates, scores []float64
	var curves [][]float64
	for _, k := range order {
		c := countOf(groups[k])
		t.Tasks = append(t.Tasks, OfTask{TaskID: k.id, Version: k.version, Count: c})
		if c.Counted > 0 {
			rates, scores, curves = append(rates, c.PassRate.Value), append(scores, *c.MeanScore), append(curves, c.PassAtK)
		}
	}
	t.Total.CountedTasks, t.Total.PassAtK = len(rates), meanCurve(curves)
	if len(rates) > 0 {
		t.Total.TaskPassRate, t.Total.TaskMeanScore = meanOver(rates), meanOver(scores)
	}
	return t
}

// Classes returns every outcome class, those whose runs count in a denominator first.
func Classes() []Class {
	return []Class{Passed, Failed, TimedOut, Infrastructure, Configuration, Judge, Cancelled}
}

// Counts reports whether runs of a class say something about the agent, so that they belong to the denominator.
func (c Class) Counts() bool { return c == Passed || c == Failed || c == TimedOut }

// Passes reports whether the run completed with at least one score and none below 1.
func (r Rollout) Passes() bool {
	return r.Class == Passed && len(r.Scores) > 0 && !slices.ContainsFunc(r.Scores, func(s Score) bool { return finite(s.Value) < 1 })
}

func countOf(rollouts []Rollout) Count {
	c := Count{Runs: len(rollouts), Classes: map[Class]int{}}
	var scores, times []float64
	var usage Usage
	for _, r := range rollouts {
		if r.Class == "" {
			r.Class = Cancelled
		}
		c.Classes[r.Class]++
		if s := finite(r.Seconds); s > 0 {
			times = append(times, s)
		}
		if r.Usage != (Usage{}) {
			usage = usage.plus(r.Usage)
			c.UsageRuns++
		}
		switch {
		case !r.Class.Counts():
			c.Excluded++
			continue
		case r.Class == Passed && len(r.Scores) == 0:
			c.Unscored++
			continue
		}
		c.Counted++
		if r.Passes() {
			c.Passes++
		}
		scores = append(scores, r.score())
	}
	if c.UsageRuns > 0 {
		c.Usage = &usage
	}
	c.Time = timeOf(times)
	if c.Counted > 0 {
		low, high := wilson(c.Passes, c.Counted)
		c.PassRate = &Estimate{float64(c.Passes) / float64(c.Counted), &low, &high}
		m := mean(scores)
		c.MeanScore, c.PassAtK = &m, PassAtK(c.Counted, c.Passes)
	}
	return c
}

// score is the mean of what the run was scored, 0 when nothing scored it.
func (r Rollout) score() float64 {
	values := make([]float64, len(r.Scores))
	for i, s := range r.Scores {
		values[i] = finite(s.Value)
	}
	return mean(values)
}

// mean returns the mean of finite values, 0 of none; sums that overflow are taken of the values' shares.
func mean(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sum, shares, n := 0.0, 0.0, float64(len(values))
	for _, v := range values {
		sum += v
		shares += v / n
	}
	if finite(sum) != sum { //nolint:gocritic // NaN and infinities differ from what finite makes of them
		return min(max(shares, -math.MaxFloat64), math.MaxFloat64) // rounding may still carry it over
	}
	return sum / n
}

func finite(f float64) float64 {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return 0
	}
	return f
}

func timeOf(times []float64) *Time {
	if len(times) == 0 {
		return nil
	}
	slices.Sort(times)
	sum := 0.0
	for _, t := range times {
		sum += t
	}
	rank := func(p float64) float64 { return times[max(int(math.Ceil(p*float64(len(times)))), 1)-1] }
	return &Time{Sum: min(sum, math.MaxFloat64), Mean: mean(times), P50: rank(0.5), P95: rank(0.95)}
}
