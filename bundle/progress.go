package bundle

import (
	"fmt"
	"io"
	"sync"

	"agentenv/task"
)

// Progress hears how the runs of a bundle go on. Calls may come at the same time for different runs.
type Progress interface {
	StepStarted(path string, e task.Event)
	StepProgress(path string, e task.Event)
	StepEnded(path string, e task.Event)
	RunEnded(r *Run)
	Note(line string) // something for people that is no progress of a run
}

type silent struct{}

func (silent) StepStarted(string, task.Event)  {}
func (silent) StepProgress(string, task.Event) {}
func (silent) StepEnded(string, task.Event)    {}
func (silent) RunEnded(*Run)                   {}
func (silent) Note(string)                     {}

// Lines is the progress in plain lines, as scripts read it. When its output breaks, it says so once on the other writer and stays silent.
type Lines struct {
	out, notes io.Writer
	mu         sync.Mutex
	broken     bool
}

// NewLines writes progress to out and notes to notes.
func NewLines(out, notes io.Writer) *Lines { return &Lines{out: out, notes: notes} }

// Say writes one line of output.
func (l *Lines) Say(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.broken {
		return
	}
	if _, err := fmt.Fprintln(l.out, line); err != nil {
		l.broken = true
		fmt.Fprintf(l.notes, "progress stopped: %v\n", err)
	}
}

// Note writes one line beside the output.
func (l *Lines) Note(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	fmt.Fprintln(l.notes, line)
}

// StepStarted implements Progress.
func (l *Lines) StepStarted(path string, e task.Event) {
	l.Say(fmt.Sprintf("[%s] step %d/%d %s (%s)", path, e.Index+1, e.Total, printable(e.StepID), e.Type))
}

// StepProgress implements Progress; plain lines show none.
func (l *Lines) StepProgress(string, task.Event) {}

// StepEnded implements Progress. A failed step has no line here: the log says why.
func (l *Lines) StepEnded(path string, e task.Event) {
	if e.Err == nil {
		l.Say(fmt.Sprintf("[%s] step %d/%d %s done in %.1fs", path, e.Index+1, e.Total, printable(e.StepID), e.Seconds))
	}
}

// RunEnded implements Progress.
func (l *Lines) RunEnded(r *Run) {
	l.Say(fmt.Sprintf("[%s] %s in %.1fs", r.Label(), r.Outcome, r.Seconds))
}
