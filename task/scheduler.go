package task

import (
	"slices"
)

// Scheduler decides which steps of one run start when. It holds what never changes (the graph, the range of the run, the
// limits) and is safe for concurrent use.
type Scheduler struct {
	total, start, end int
	needs             [][]int // explicit dependencies by step
	dependents        [][]int // by step, in task order
	implicit          []bool  // waits for every earlier step
	done              []bool  // steps that are completed from the beginning; nil: those before start
	limit             int
	failFast          bool
}

// State is where a run stands, as plain data that can be stored. Next returns a new one and never changes the old.
type State struct {
	Completed []bool   `json:"completed"` // by position; also the steps before the start
	Pending   []int    `json:"pending"`   // explicit dependencies still to complete
	Running   []int    `json:"running"`   // positions, in the order they were started
	Ready     []int    `json:"ready"`     // positions waiting to be started, first come first
	Frontier  int      `json:"frontier"`  // every step before this position is completed
	Rewinds   []Rewind `json:"rewinds"`   // failures that are being retried, one after the other
	Halted    bool     `json:"halted"`    // nothing is started any more
	Ended     bool     `json:"ended"`     // CommandEnd was given
}

// Rewind is a failed step with the steps that its retry runs again, the failed one among them.
type Rewind struct {
	Step    int   `json:"step"`
	Span    []int `json:"span"`    // in task order
	Stopped bool  `json:"stopped"` // what was running in the span has been told to stop
	Begun   bool  `json:"begun"`   // none of it is running any more: CommandRewind was given
}

// Rewinding reports whether a step is in the span of the retry under way: what it does is dropped.
func (st State) Rewinding(step int) bool {
	return len(st.Rewinds) > 0 && slices.Contains(st.Rewinds[0].Span, step)
}

// SignalKind says what happened to a run.
type SignalKind string

// The signals: the run began; a step ended well or may be treated so (a tolerated failure); a step failed for good, or its retry
// cannot be; a step failed and is retried; a step ended whose effects are dropped, since it is in the span of a retry; the first
// of the retries was prepared; the run is cancelled.
const (
	SignalBegin     SignalKind = "begin"
	SignalCompleted SignalKind = "completed"
	SignalFatal     SignalKind = "fatal"
	SignalRetry     SignalKind = "retry"
	SignalDropped   SignalKind = "dropped"
	SignalRewound   SignalKind = "rewound"
	SignalCancelled SignalKind = "cancelled"
)

// Signal is one thing that happened. Step is the position of the step that ended; From, of a retry, is that of the step that it
// goes back to.
type Signal struct {
	Kind SignalKind `json:"kind"`
	Step int        `json:"step"`
	From int        `json:"from,omitempty"`
}

// CommandKind says what to do next.
type CommandKind string

// The commands: start a step; cancel one step that is running; cancel all of them; get ready to undo what the span of the first retry
// did, and tell when that is undone; the run is over.
const (
	CommandStart  CommandKind = "start"
	CommandStop   CommandKind = "stop"
	CommandCancel CommandKind = "cancel"
	CommandRewind CommandKind = "rewind"
	CommandEnd    CommandKind = "end"
)

// Command is what whoever drives the scheduler does next. Step is the position of the step to start, to stop or to retry.
type Command struct {
	Kind CommandKind `json:"kind"`
	Step int         `json:"step"`
}

// NewScheduler plans the steps [start, end) of a task, whose graph is valid; steps before start count as completed, those
// from end on do not exist. Building it is linear in steps and edges.
func NewScheduler(t *Task, start, end int) *Scheduler {
	s := &Scheduler{total: len(t.Steps), start: start, end: end, limit: t.MaxParallelSteps, failFast: t.FailFast,
		needs: make([][]int, end), dependents: make([][]int, end), implicit: make([]bool, end)}
	at := make(map[string]int, end)
	for i, step := range t.Steps[:end] {
		at[step.ID] = i
		s.implicit[i] = step.Implicit
		for _, id := range step.DependsOn {
			j := at[id]
			s.needs[i] = append(s.needs[i], j)
			s.dependents[j] = append(s.dependents[j], i)
		}
	}
	return s
}

// Initial returns the state before SignalBegin.
func (s *Scheduler) Initial() State {
	st := State{Completed: make([]bool, s.end), Pending: make([]int, s.end)}
	for i := range s.start {
		st.Completed[i] = true
	}
	if s.done != nil {
		copy(st.Completed, s.done)
	}
	s.count(&st)
	return st
}

// count works out anew what every step waits for.
func (s *Scheduler) count(st *State) {
	for i, needs := range s.needs {
		st.Pending[i] = 0
		for _, j := range needs {
			if !st.Completed[j] {
				st.Pending[i]++
			}
		}
	}
	for st.Frontier = 0; st.Frontier < s.end && st.Completed[st.Frontier]; {
		st.Frontier++
	}
}

// spread says of each step whether from says so of it, or of a step that it depends on, directly or not.
func (s *Scheduler) spread(from func(i int) bool) []bool {
	in := make([]bool, s.end)
	some := false
	for i := range s.end {
		in[i] = from(i) || s.implicit[i] && some || slices.ContainsFunc(s.needs[i], func(j int) bool { return in[j] })
		some = some || in[i]
	}
	return in
}

// span returns a step and all that depend on it, directly or not, in task order.
func (s *Scheduler) span(from int) (out []int) {
	for i, in := range s.spread(func(i int) bool { return i == from }) {
		if in {
			out = append(out, i)
		}
	}
	return out
}

// Next returns the state after a signal and what is to be done, in order. It is a pure function: no clock, no I/O, no map order.
// A signal of a step that is not running changes nothing.
func (s *Scheduler) Next(st State, e Signal) (State, []Command) {
	st.Completed, st.Pending = slices.Clone(st.Completed), slices.Clone(st.Pending)
	st.Running, st.Ready, st.Rewinds = slices.Clone(st.Running), slices.Clone(st.Ready), slices.Clone(st.Rewinds)
	var out []Command
	switch e.Kind {
	case SignalBegin:
		s.ready(&st)
	case SignalCancelled:
		st.Halted = true
		if len(st.Running) > 0 {
			out = append(out, Command{Kind: CommandCancel})
		}
	case SignalRewound:
		if len(st.Rewinds) == 0 || !st.Rewinds[0].Begun {
			return st, nil
		}
		s.rewound(&st)
	default:
		i := slices.Index(st.Running, e.Step)
		failing := slices.IndexFunc(st.Rewinds, func(r Rewind) bool { return r.Step == e.Step })
		switch {
		case i >= 0:
			st.Running = slices.Delete(st.Running, i, i+1)
		case failing >= 0 && e.Kind == SignalFatal:
			st.Rewinds = slices.Delete(st.Rewinds, failing, failing+1)
		default:
			return st, nil
		}
		out = s.stepEnded(&st, e)
	}
	out = s.rewind(&st, out)
	return s.launch(st, out)
}

func (s *Scheduler) stepEnded(st *State, e Signal) (out []Command) {
	switch e.Kind {
	case SignalCompleted:
		s.complete(st, e.Step)
	case SignalRetry:
		st.Rewinds = append(st.Rewinds, Rewind{Step: e.Step, Span: s.span(e.From)})
	case SignalFatal:
		if s.failFast && !st.Halted && len(st.Running) > 0 {
			out = append(out, Command{Kind: CommandCancel})
		}
		st.Halted = true
	}
	return out
}

// rewind brings the first retry forward: what runs in its span is stopped, and once nothing does it begins.
func (s *Scheduler) rewind(st *State, out []Command) []Command {
	if st.Halted || len(st.Rewinds) == 0 {
		return out
	}
	first := &st.Rewinds[0]
	if !first.Stopped {
		first.Stopped = true
		for _, i := range st.Running {
			if st.Rewinding(i) {
				out = append(out, Command{Kind: CommandStop, Step: i})
			}
		}
	}
	if !first.Begun && !slices.ContainsFunc(st.Running, st.Rewinding) {
		first.Begun = true
		out = append(out, Command{Kind: CommandRewind, Step: first.Step})
	}
	return out
}

// rewound sets the span of the first retry back. A failure in it that waited for a retry of its own happens again, or not.
func (s *Scheduler) rewound(st *State) {
	done := st.Rewinds[0]
	for _, i := range done.Span {
		st.Completed[i] = false
	}
	st.Rewinds = slices.DeleteFunc(st.Rewinds, func(r Rewind) bool { return slices.Contains(done.Span, r.Step) })
	s.count(st)
	st.Ready = nil
	s.ready(st)
}

// ready queues all steps that can start, in task order.
func (s *Scheduler) ready(st *State) {
	for i := range s.end {
		waits := slices.ContainsFunc(st.Rewinds, func(r Rewind) bool { return r.Step == i })
		if !st.Completed[i] && !waits && !slices.Contains(st.Running, i) && s.free(st, i) {
			st.Ready = append(st.Ready, i)
		}
	}
}

func (s *Scheduler) free(st *State, i int) bool {
	if s.implicit[i] {
		return st.Frontier == i
	}
	return st.Pending[i] == 0
}

// complete marks a step and queues those that waited for it alone, in task order.
func (s *Scheduler) complete(st *State, step int) {
	st.Completed[step] = true
	var freed []int
	for _, d := range s.dependents[step] {
		if st.Pending[d]--; st.Pending[d] == 0 && !st.Completed[d] {
			freed = append(freed, d)
		}
	}
	before := st.Frontier
	for st.Frontier < s.end && st.Completed[st.Frontier] {
		st.Frontier++
	}
	if f := st.Frontier; f > before && f < s.end && s.implicit[f] {
		freed = append(freed, f)
	}
	slices.Sort(freed)
	st.Ready = append(st.Ready, freed...)
}

func (s *Scheduler) launch(st State, out []Command) (State, []Command) {
	for k := 0; k < len(st.Ready) && !st.Halted && (s.limit == 0 || len(st.Running) < s.limit); {
		i := st.Ready[k]
		if st.Rewinding(i) {
			k++
			continue
		}
		st.Ready = slices.Delete(st.Ready, k, k+1)
		st.Running = append(st.Running, i)
		out = append(out, Command{Kind: CommandStart, Step: i})
	}
	if len(st.Running) == 0 && !st.Ended && (st.Halted || len(st.Rewinds) == 0) {
		st.Ended = true
		out = append(out, Command{Kind: CommandEnd})
	}
	return st, out
}
