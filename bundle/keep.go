package bundle

import (
	"context"
	"fmt"
	"os"
	"sync"

	"agentenv/store/doc"
	"agentenv/task"
)

// Held is one run whose sandboxes stay up.
type Held struct {
	Name     string // in lines
	Instance string
	Kept     []task.KeptSandbox
	Context  *doc.Object // as it ended
	TornDown task.TeardownReport
}

// Holding keeps sandboxes up until somebody has had enough of them.
type Holding struct {
	Runs     []*Held
	Teardown task.Teardown
	Signals  <-chan os.Signal // nil: nothing is waited for
	Say      func(string)
	Note     func(string) // hears that the teardown begins
}

// Wait shows what stays up and where it can be reached, and waits for a signal.
func (h Holding) Wait() {
	h.Say("Kept up:")
	for _, r := range h.Runs {
		h.Say("  " + r.Name)
		for _, k := range r.Kept {
			line := "    " + k.ID + "  " + k.Provider
			if k.Record != "" {
				line += "  " + k.Record
			}
			h.Say(line)
			for _, e := range k.Endpoints {
				h.Say("      " + e[0] + "  " + e[1])
			}
		}
	}
	h.Say("")
	h.Say(fmt.Sprintf("Holding %s up; Ctrl-C tears them down.", count(h.sandboxes(), "sandbox")))
	if h.Signals != nil {
		<-h.Signals
	}
}

// End tears it all down, side by side, and notes in each run what became of it; a signal stops that. With halted it was stopped before it began:
// what is up is named all the same.
func (h Holding) End(ctx context.Context, halted bool) {
	ctx, halt := context.WithCancel(ctx)
	defer halt()
	if halted {
		halt()
	} else {
		h.Note(fmt.Sprintf("Tearing down %s (Ctrl-C again to stop now)", count(h.sandboxes(), "sandbox")))
	}
	done := make(chan struct{})
	var all, watch sync.WaitGroup
	watch.Go(func() {
		select {
		case <-done:
		case <-h.Signals:
			halt()
		}
	})
	for _, r := range h.Runs {
		all.Go(func() { r.TornDown = h.Teardown.Teardown(ctx, r.Instance, r.Context) })
	}
	all.Wait()
	close(done)
	watch.Wait()
}

func (h Holding) sandboxes() (n int) {
	for _, r := range h.Runs {
		n += len(r.Kept)
	}
	return n
}

// hold shows what stays up and waits for a signal, then tears it down. After a signal that came while tasks ran it tears down at once, after two
// of them nothing.
func (r *session) hold(sum *Summary, say func(string)) {
	h := Holding{Teardown: r.o.Teardown, Signals: r.o.Signals, Say: say, Note: r.o.Progress.Note}
	byRun := map[*Run]*Held{}
	for _, run := range sum.Runs {
		if len(run.keptUp) > 0 {
			byRun[run] = &Held{Name: run.Path, Instance: run.Instance, Kept: run.keptUp, Context: run.context}
			h.Runs = append(h.Runs, byRun[run])
		}
	}
	if sum.Signal == nil {
		say("")
		h.Wait()
	}
	h.End(context.WithoutCancel(r.teardown), r.halted)
	for _, run := range r.kept {
		run.TornDown = byRun[run].TornDown
		sum.Ended = append(sum.Ended, run.TornDown.Ended...)
		sum.Left = append(sum.Left, run.TornDown.Left...)
	}
}
