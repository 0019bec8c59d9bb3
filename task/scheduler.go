package task

import (
	"slices"
)

// Scheduler decides which steps of one run start when. It holds what never changes (the graph, the range of the run, the
// limits) and is safe for concurrent use.
type Scheduler struct {
	total, start, end int
	pending           []int   // how many explicit dependencies a step has, those before start not counted
	dependents        [][]int // by step, in task order
	implicit          []bool  // waits for every earlier step
	limit             int
	failFast          bool
}

// State is where a run stands, as plain data that can be stored. Next returns a new one and never changes the old.
type State struct {
	Completed []bool `json:"completed"` // by position; also the steps before the start
	Pending   []int  `json:"pending"`   // explicit dependencies still to complete
	Running   []int  `json:"running"`   // positions, in the order they were started
	Ready     []int  `json:"ready"`     // positions waiting to be started, first come first
	Frontier  int    `json:"frontier"`  // every step before this position is completed
	Halted    bool   `json:"halted"`    // nothing is started any more
	Ended     bool   `json:"ended"`     // CommandEnd was given
}

// SignalKind says what happened to a run.
type SignalKind string

// The signals: the run began; a step ended well or may be treated so (a tolerated failure); a step failed for good; the run is
// cancelled.
const (
	SignalBegin     SignalKind = "begin"
	SignalCompleted SignalKind = "completed"
	SignalFatal     SignalKind = "fatal"
	SignalCancelled SignalKind = "cancelled"
)

// Signal is one thing that happened. Step is the position of the step that ended.
type Signal struct {
	Kind SignalKind `json:"kind"`
	Step int        `json:"step"`
}

// CommandKind says what to do next.
type CommandKind string

// The commands: start a step; cancel the steps that are running; the run is over.
const (
	CommandStart  CommandKind = "start"
	CommandCancel CommandKind = "cancel"
	CommandEnd    CommandKind = "end"
)

// Command is what whoever drives the scheduler does next. Step is the position of the step to start.
type Command struct {
	Kind CommandKind `json:"kind"`
	Step int         `json:"step"`
}

// NewScheduler plans the steps [start, end) of a task, whose graph is valid; steps before start count as completed, those
// from end on do not exist. Building it is linear in steps and edges.
func NewScheduler(t *Task, start, end int) *Scheduler {
	s := &Scheduler{total: len(t.Steps), start: start, end: end, limit: t.MaxParallelSteps, failFast: t.FailFast,
		pending: make([]int, end), dependents: make([][]int, end), implicit: make([]bool, end)}
	at := make(map[string]int, end)
	for i, step := range t.Steps[:end] {
		at[step.ID] = i
		s.implicit[i] = step.Implicit
		for _, id := range step.DependsOn {
			if j := at[id]; j >= start {
				s.pending[i]++
				s.dependents[j] = append(s.dependents[j], i)
			}
		}
	}
	return s
}

// Initial returns the state before SignalBegin.
func (s *Scheduler) Initial() State {
	st := State{Completed: make([]bool, s.end), Pending: slices.Clone(s.pending), Frontier: s.start}
	for i := range s.start {
		st.Completed[i] = true
	}
	return st
}

// Next returns the state after a signal and what is to be done, in order. It is a pure function: no clock, no I/O, no map order.
// A signal of a step that is not running changes nothing.
func (s *Scheduler) Next(st State, e Signal) (State, []Command) {
	st.Completed, st.Pending = slices.Clone(st.Completed), slices.Clone(st.Pending)
	st.Running, st.Ready = slices.Clone(st.Running), slices.Clone(st.Ready)
	var out []Command
	switch e.Kind {
	case SignalBegin:
		for i := s.start; i < s.end; i++ {
			if s.free(&st, i) {
				st.Ready = append(st.Ready, i)
			}
		}
	case SignalCancelled:
		st.Halted = true
		if len(st.Running) > 0 {
			out = append(out, Command{Kind: CommandCancel})
		}
	case SignalCompleted, SignalFatal:
		i := slices.Index(st.Running, e.Step)
		if i < 0 {
			return st, nil
		}
		st.Running = slices.Delete(st.Running, i, i+1)
		if e.Kind == SignalCompleted {
			s.complete(&st, e.Step)
		} else {
			if s.failFast && !st.Halted && len(st.Running) > 0 {
				out = append(out, Command{Kind: CommandCancel})
			}
			st.Halted = true
		}
	}
	return s.launch(st, out)
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
		if st.Pending[d]--; st.Pending[d] == 0 {
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
	for !st.Halted && len(st.Ready) > 0 && (s.limit == 0 || len(st.Running) < s.limit) {
		i := st.Ready[0]
		st.Ready = st.Ready[1:]
		st.Running = append(st.Running, i)
		out = append(out, Command{Kind: CommandStart, Step: i})
	}
	if len(st.Running) == 0 && !st.Ended {
		st.Ended = true
		out = append(out, Command{Kind: CommandEnd})
	}
	return st, out
}
