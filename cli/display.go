package cli

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"agentenv/bundle"
	"agentenv/task"
)

// display shows how runs go on: plain lines, and on a terminal a live line for each running task below them (step, elapsed
// time, bytes moved). Safe for concurrent use.
type display struct {
	lines *bundle.Lines
	notes io.Writer

	mu    sync.Mutex
	bars  *mpb.Progress // nil: no live lines
	live  map[string]*liveLine
	ended bool
}

// liveLine is what one running task does now.
type liveLine struct {
	mu    sync.Mutex
	bar   *mpb.Bar
	steps []*liveStep // running, oldest first
	path  string
}

type liveStep struct {
	event task.Event
	since time.Time
	what  task.Progress
}

func (a *App) newDisplay(out io.Writer) *display {
	d := &display{notes: a.Stderr, live: map[string]*liveLine{}}
	if a.StdoutTerminal && out == a.Stdout && !a.verbose {
		d.bars = mpb.New(mpb.WithOutput(a.terminal()), mpb.WithRefreshRate(150*time.Millisecond))
		out = d.bars
		d.notes = d.bars
	}
	d.lines = bundle.NewLines(a.coloured(out), d.notes)
	return d
}

// terminal is standard output as the file that it is, which tells its size; a terminal loses no output unseen.
func (a *App) terminal() io.Writer {
	if o, ok := a.Stdout.(*output); ok {
		return o.w
	}
	return a.Stdout
}

// close ends the live lines; a second call is a no-op.
func (d *display) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.bars == nil || d.ended {
		return
	}
	d.ended = true
	for _, l := range d.live {
		l.bar.Abort(true)
	}
	d.bars.Wait()
}

// Note implements bundle.Progress.
func (d *display) Note(line string) {
	d.mu.Lock()
	ended := d.bars != nil && d.ended
	d.mu.Unlock()
	if ended {
		return
	}
	d.lines.Note(line)
}

// StepStarted implements bundle.Progress.
func (d *display) StepStarted(path string, e task.Event) {
	d.lines.StepStarted(path, e)
	if l := d.line(path, true); l != nil {
		l.mu.Lock()
		l.steps = append(l.steps, &liveStep{event: e, since: time.Now()})
		l.mu.Unlock()
	}
}

// StepProgress implements bundle.Progress.
func (d *display) StepProgress(path string, e task.Event) {
	if e.Progress.Note != "" {
		d.Note(fmt.Sprintf("[%s] %s: %s", path, e.StepID, e.Progress.Note))
	}
	if l := d.line(path, false); l != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, s := range l.steps {
			if s.event.StepID == e.StepID && e.Progress.What != "" {
				s.what = *e.Progress
			}
		}
	}
}

// StepEnded implements bundle.Progress.
func (d *display) StepEnded(path string, e task.Event) {
	d.lines.StepEnded(path, e)
	if l := d.line(path, false); l != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		for i, s := range l.steps {
			if s.event.StepID == e.StepID {
				l.steps = append(l.steps[:i], l.steps[i+1:]...)
				return
			}
		}
	}
}

// RunEnded implements bundle.Progress.
func (d *display) RunEnded(r *bundle.Run) {
	d.mu.Lock()
	if l := d.live[r.Label()]; l != nil {
		l.bar.Abort(true)
		delete(d.live, r.Label())
	}
	d.mu.Unlock()
	d.lines.RunEnded(r)
}

func (d *display) line(path string, create bool) *liveLine {
	d.mu.Lock()
	defer d.mu.Unlock()
	l := d.live[path]
	if l == nil && create && d.bars != nil && !d.ended {
		l = &liveLine{path: path}
		// No total: the line ends when the run does.
		l.bar = d.bars.New(0, mpb.NopStyle(), mpb.PrependDecorators(decor.Any(func(decor.Statistics) string { return l.text() })), mpb.BarRemoveOnComplete())
		d.live[path] = l
	}
	return l
}

// text is the line as it stands: the oldest running step, how long it has run, what it has moved, and how many others run.
func (l *liveLine) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.steps) == 0 {
		return fmt.Sprintf("  %s …", l.path)
	}
	s := l.steps[0]
	out := fmt.Sprintf("  %s  step %d/%d %s  %s", l.path, s.event.Index+1, s.event.Total, s.event.StepID, time.Since(s.since).Round(100*time.Millisecond))
	if s.what.What != "" {
		out += "  " + s.what.What
	}
	if s.what.Bytes > 0 {
		out += " " + size(s.what.Bytes)
	}
	if s.what.Total > 0 {
		out += " of " + size(s.what.Total)
	}
	if s.what.Files > 0 {
		out += fmt.Sprintf(" (%d)", s.what.Files)
	}
	if n := len(l.steps) - 1; n > 0 {
		out += fmt.Sprintf("  and %d more", n)
	}
	return out
}

func size(n int64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	f, i := float64(n), 0
	for f >= 1024 && i < len(units)-1 {
		f, i = f/1024, i+1
	}
	if i == 0 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", f, units[i])
}
