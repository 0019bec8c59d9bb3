package bundle

import (
	"fmt"
	"math"
	"os"
	"sort"
	"strconv"
	"strings"
	"syscall"
	"time"

	"agentenv/fault"
	"agentenv/store/doc"
	"agentenv/task"
)

// Outcome is how one run of a bundle ended, as its lines say it.
type Outcome string

// The outcomes.
const (
	Passed      Outcome = "passed"
	ScoredBelow Outcome = "scored below 1"
	Unscored    Outcome = "unscored"
	Failed      Outcome = "failed"
	Cancelled   Outcome = "cancelled"
)

// Score is one verification's score.
type Score struct {
	Step  string  `json:"step"`
	Value float64 `json:"value"`
}

// Failure is one step that failed and was not recovered.
type Failure struct {
	Step  string `json:"step,omitempty"`
	Type  string `json:"type,omitempty"`
	Error string `json:"error"`
	Class string `json:"error_class"`
	Fatal bool   `json:"fatal"`
}

// Run is one task's run in a summary.
type Run struct {
	Path     string                `json:"task"`
	Number   int                   `json:"run,omitempty"` // of several runs of the task in this invocation, from 1; 0 = the only one
	TaskID   string                `json:"task_id"`
	Version  int64                 `json:"version"`
	Outcome  Outcome               `json:"outcome"`
	Class    task.Class            `json:"class"`
	Scores   []Score               `json:"scores"`
	Failures []Failure             `json:"failures"`
	Seconds  float64               `json:"seconds"`
	Instance string                `json:"instance,omitempty"` // "" when none was recorded
	Steps    map[string]task.Class `json:"steps"`              // how each step that ended did
	Models   map[string][]string   `json:"models,omitempty"`
	Started  bool                  `json:"started"`
	Repeat   string                `json:"repeat,omitempty"`       // the command that repeats it, quoted for a POSIX shell
	Context  string                `json:"context_file,omitempty"` // its final context, in the folder of the outputs
	Resumes  bool                  `json:"-"`                      // it can go on from where it ended
	TornDown task.TeardownReport   `json:"-"`

	of      *entry
	usage   task.Usage
	context *doc.Object
	keptUp  []task.KeptSandbox
}

// Label names the run in lines: the task's path, and its number when the task runs several times.
func (r *Run) Label() string {
	if r.Number == 0 {
		return r.Path
	}
	return fmt.Sprintf("%s run %d", r.Path, r.Number)
}

// Eval is one eval's count in a summary.
type Eval struct {
	Path      string   `json:"eval"`
	ID        string   `json:"eval_id"`
	Version   int64    `json:"version"`
	Tasks     []string `json:"tasks"`
	Runs      int      `json:"runs"` // of its tasks; the counts below are of these
	Passed    int      `json:"passed"`
	Failed    int      `json:"failed"`
	Cancelled int      `json:"cancelled"`
}

// Unnamed is a task that no eval names and that therefore did not run.
type Unnamed struct{ Path, Name string }

// Summary is what a run of a bundle came to.
type Summary struct {
	RunGroup string
	Runs     []*Run
	Evals    []Eval
	Unnamed  []Unnamed
	Ended    []task.SandboxReport
	Left     []task.SandboxReport
	Signal   os.Signal // that stopped the runs, nil = none
	Refused  error     // why the run that was to go on does not: it is as it was, and the rest of the summary says nothing

	keep func(say func(string))
}

// take fills a run in from what the engine returned.
func (r *Run) take(res *task.Result, err error, took time.Duration, stopped bool) {
	r.Seconds = took.Seconds()
	if res != nil {
		if res.Recorded || res.Instance != "" && err == nil {
			r.Instance = res.Instance
		}
		r.Class, r.Models, r.Steps, r.usage = res.Class, res.Models, res.Steps, task.UsageOf(res.Context)
		r.Resumes = r.Instance != "" && (res.Status == "failed" || res.Status == "cancelled")
		for _, s := range res.Scores {
			if math.IsNaN(s.Value) || math.IsInf(s.Value, 0) {
				s.Value = 0
			}
			r.Scores = append(r.Scores, Score{s.Label, s.Value})
		}
		for _, f := range res.Failures {
			if !f.Retried {
				r.Failures = append(r.Failures, Failure{f.StepID, f.StepType, f.Error, f.ErrorType, f.Fatal})
			}
		}
		if err == nil {
			err = res.Err
		}
	}
	cancelled := res != nil && (res.Status == "cancelled" || res.Class == task.Cancelled) || stopped && fault.Is(err, fault.Canceled)
	if err != nil && !cancelled && len(r.Failures) == 0 {
		r.Failures = append(r.Failures, Failure{Error: err.Error(), Class: fault.ClassOf(err), Fatal: true})
	}
	switch {
	case cancelled:
		r.Outcome, r.Failures = Cancelled, []Failure{}
	case len(r.Failures) > 0:
		r.Outcome = Failed
	case len(r.Scores) == 0:
		r.Outcome = Unscored
	default:
		r.Outcome = Passed
		for _, s := range r.Scores {
			if !(s.Value >= 1) {
				r.Outcome = ScoredBelow
			}
		}
	}
	if r.Class == "" {
		r.Class = task.ClassOf(err)
	}
	if r.Outcome == Failed && r.Class == task.Passed { // a failure that a resume carried over
		r.Class = task.Failed
	}
}

func evalOf(en *entry, members []*entry, runs []*Run) Eval {
	ev := Eval{Path: en.e.Path, ID: en.e.ID, Version: en.version}
	of := map[*entry][]*Run{}
	for _, r := range runs {
		of[r.of] = append(of[r.of], r)
	}
	for _, m := range members {
		if len(of[m]) > 0 {
			ev.Tasks = append(ev.Tasks, m.e.Path)
		}
		for _, r := range of[m] {
			ev.Runs++
			switch r.Outcome {
			case Passed:
				ev.Passed++
			case Failed:
				ev.Failed++
			case Cancelled:
				ev.Cancelled++
			}
		}
	}
	return ev
}

// add counts a run's sandboxes.
func (s *Summary) add(r *Run) {
	s.Ended = append(s.Ended, r.TornDown.Ended...)
	s.Left = append(s.Left, r.TornDown.Left...)
}

// Tally counts the runs. A run that never started is one of the cancelled.
func (s *Summary) Tally() task.Tally {
	rollouts := make([]task.Rollout, len(s.Runs))
	for i, r := range s.Runs {
		rollouts[i] = task.Rollout{TaskID: r.TaskID, Version: r.Version, Class: r.Class, Usage: r.usage}
		if r.Started {
			rollouts[i].Seconds = r.Seconds
		}
		for _, score := range r.Scores {
			rollouts[i].Scores = append(rollouts[i].Scores, task.Score{Label: score.Step, Value: score.Value})
		}
	}
	return task.NewTally(rollouts)
}

// Text returns the lines about tasks and evals, and about the results of several runs; "" when nothing ran.
func (s *Summary) Text() string {
	if len(s.Runs) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("\nTasks:\n")
	for _, r := range s.Runs {
		fmt.Fprintf(&b, "  %s\n", r.line())
		if m := r.models(); m != "" {
			fmt.Fprintf(&b, "    models: %s\n", m)
		}
		if r.Outcome == Failed && r.Repeat != "" {
			fmt.Fprintf(&b, "    repeat: %s\n", r.Repeat)
		}
	}
	if len(s.Evals) > 0 {
		b.WriteString("Evals:\n")
		for _, e := range s.Evals {
			fmt.Fprintf(&b, "  %s v%d: %d of %d passed", e.Path, e.Version, e.Passed, e.Runs)
			if e.Failed > 0 {
				fmt.Fprintf(&b, ", %d failed", e.Failed)
			}
			if e.Cancelled > 0 {
				fmt.Fprintf(&b, ", %d cancelled", e.Cancelled)
			}
			b.WriteByte('\n')
		}
	}
	for _, u := range s.Unnamed {
		fmt.Fprintf(&b, "%s isn't named by any eval, so it didn't run; run it with --task %s\n", u.Path, printable(u.Name))
	}
	paths := map[string]string{}
	for _, r := range s.Runs {
		paths[r.TaskID] = r.Path
	}
	b.WriteString(s.Tally().Text(func(id string) string { return paths[id] }))
	return b.String()
}

// Hold shows what --keep left up, waits for a signal and tears it down, and reports that it did. Without such sandboxes it does nothing.
func (s *Summary) Hold(say func(line string)) bool {
	if s.keep == nil {
		return false
	}
	s.keep(say)
	s.keep = nil
	return true
}

// TeardownText returns the lines about what was torn down and what is still up, "" when nothing was deployed.
func (s *Summary) TeardownText() string {
	var b strings.Builder
	if len(s.Ended)+len(s.Left) > 0 {
		b.WriteByte('\n')
	}
	if n := len(s.Ended); n > 0 {
		fmt.Fprintf(&b, "Tore down %s.\n", count(n, "sandbox"))
	}
	if n := len(s.Left); n > 0 {
		fmt.Fprintf(&b, "Still up, %s:\n", count(n, "sandbox"))
		for _, l := range s.Left {
			fmt.Fprintf(&b, "  %s  %s", l.ID, l.Provider)
			if l.Folder != "" {
				fmt.Fprintf(&b, "  %s", l.Folder)
			}
			if l.Why != "" {
				fmt.Fprintf(&b, "  (%s)", oneLine(l.Why))
			}
			b.WriteByte('\n')
		}
	}
	return b.String()
}

// ExitCode is 128 plus the signal that stopped the runs, else 1 when a run failed, else 0.
func (s *Summary) ExitCode() int {
	if sig, ok := s.Signal.(syscall.Signal); ok {
		return 128 + int(sig)
	}
	for _, r := range s.Runs {
		if r.Outcome == Failed || r.Outcome == Cancelled { // by `agent-env runs cancel`
			return 1
		}
	}
	return 0
}

// Document returns the summary as one JSON document.
func (s *Summary) Document() *doc.Object {
	o := doc.Of("format_version", doc.Int(1), "run_group_id", s.RunGroup, "exit_code", doc.Int(s.ExitCode()),
		"tasks", []any{}, "evals", doc.MustFrom(nonNil(s.Evals)))
	skipped := []any{}
	for _, u := range s.Unnamed {
		skipped = append(skipped, u.Path)
	}
	var signal any
	if s.Signal != nil {
		signal = SignalName(s.Signal)
	}
	// Lists are lists, also where there is nothing in them.
	for _, r := range s.Runs {
		r.Scores, r.Failures = nonNil(r.Scores), nonNil(r.Failures)
	}
	o.Set("tasks", doc.MustFrom(nonNil(s.Runs)))
	o.Set("tally", s.Tally().Document())
	return o.Set("not_run", skipped).Set("torn_down", doc.MustFrom(nonNil(s.Ended))).Set("still_up", doc.MustFrom(nonNil(s.Left))).Set("signal", signal)
}

func nonNil[T any](in []T) []T {
	if in == nil {
		return []T{}
	}
	return in
}

// line is the run's line of the summary.
func (r *Run) line() string {
	s := fmt.Sprintf("%s v%d: %s", r.Label(), r.Version, r.detail())
	if !r.Started {
		return s
	}
	s += fmt.Sprintf(", %.1fs, ", r.Seconds)
	if r.Instance == "" {
		return s + "no instance recorded"
	}
	return s + "instance " + r.Instance
}

// detail is the run's outcome, with what went wrong or the scores.
func (r *Run) detail() string {
	switch {
	case !r.Started:
		return "cancelled, didn't start"
	case r.Outcome == Failed && len(r.Failures) == 0:
		return string(Failed)
	case r.Outcome == Failed && r.Failures[0].Step == "":
		f := r.Failures[0]
		return "failed: " + f.Class + ": " + oneLine(f.Error)
	case r.Outcome == Failed:
		parts := make([]string, len(r.Failures))
		for i, f := range r.Failures {
			parts[i] = "step '" + printable(f.Step) + "': " + f.Class + ": " + oneLine(f.Error)
		}
		return "failed at " + strings.Join(parts, "; ")
	case len(r.Scores) == 0:
		return string(r.Outcome)
	}
	parts := make([]string, len(r.Scores))
	for i, sc := range r.Scores {
		parts[i] = printable(sc.Step) + ": " + shortFloat(sc.Value)
	}
	return string(r.Outcome) + " (" + strings.Join(parts, ", ") + ")"
}

// models lists the models by role.
func (r *Run) models() string {
	roles := make([]string, 0, len(r.Models))
	for role := range r.Models {
		roles = append(roles, role)
	}
	order := map[string]int{"solver": 1, "user simulator": 2, "judge": 3}
	sort.Slice(roles, func(i, j int) bool {
		a, b := order[roles[i]], order[roles[j]]
		if a == 0 || b == 0 || a == b {
			return roles[i] < roles[j]
		}
		return a < b
	})
	parts := make([]string, len(roles))
	for i, role := range roles {
		parts[i] = role + " " + strings.Join(r.Models[role], ", ")
	}
	return strings.Join(parts, "; ")
}

// shortFloat writes a number with six significant digits, as %g of C does.
func shortFloat(f float64) string {
	return strconv.FormatFloat(f, 'g', 6, 64)
}

func oneLine(s string) string {
	return printable(strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r == '\n' || r == '\r' }), " "))
}
