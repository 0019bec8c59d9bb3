package bundle

import (
	"context"
	"fmt"
	"sync"

	"agentenv/task"
)

// hold shows what stays up and waits for a signal, then tears it down; a second signal stops that. After a signal that came while tasks
// ran it tears down at once, after two of them nothing.
func (r *session) hold(sum *Summary, say func(string)) {
	n := 0
	for _, run := range r.kept {
		n += len(run.keptUp)
	}
	if sum.Signal == nil {
		r.list(sum, say)
		say("")
		say(fmt.Sprintf("Holding %s up; Ctrl-C tears them down.", count(n, "sandbox")))
		if r.o.Signals != nil {
			<-r.o.Signals
		}
	}
	down, halt := context.WithCancel(context.WithoutCancel(r.teardown))
	defer halt()
	if r.halted {
		halt() // what is left up is named all the same
	} else {
		r.o.Progress.Note(fmt.Sprintf("Tearing down %s (Ctrl-C again to stop now)", count(n, "sandbox")))
	}
	done := make(chan struct{})
	var all, watch sync.WaitGroup
	watch.Go(func() {
		select {
		case <-done:
		case <-r.o.Signals:
			halt()
		}
	})
	for _, run := range r.kept {
		all.Go(func() { run.TornDown = r.o.Teardown.Teardown(down, run.Instance, run.context) })
	}
	all.Wait()
	close(done)
	watch.Wait()
	for _, run := range r.kept {
		sum.Ended = append(sum.Ended, run.TornDown.Ended...)
		sum.Left = append(sum.Left, run.TornDown.Left...)
	}
}

// list shows what stays up and where it can be reached.
func (r *session) list(sum *Summary, say func(string)) {
	say("")
	say("Kept up:")
	for _, run := range sum.Runs {
		if len(run.keptUp) == 0 {
			continue
		}
		ListKept(run.Path, run.keptUp, say)
	}
}

// ListKept says what of one run stays up and where it can be reached, under a line that names the run.
func ListKept(name string, kept []task.KeptSandbox, say func(string)) {
	say("  " + name)
	for _, k := range kept {
		line := "    " + k.ID + "  " + k.Provider
		if k.Record != "" {
			line += "  " + k.Record
		}
		say(line)
		for _, e := range k.Endpoints {
			say("      " + e[0] + "  " + e[1])
		}
	}
}
