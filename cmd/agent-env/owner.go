package main

import (
	"agentenv/sandbox"
	"agentenv/store/doc"
	"agentenv/task"
)

// owner names this process in the runs it takes up, and tells whether the process in another's name still lives.
func owner() task.Owner {
	p := sandbox.ThisProcess()
	return task.Owner{
		Self: doc.Of("host", p.Host, "boot", p.Boot, "pid", doc.Int(p.PID), "start", p.Start),
		Alive: func(o *doc.Object) bool {
			pid, _ := o.Int("pid")
			return sandbox.Process{Host: o.Str("host"), Boot: o.Str("boot"), PID: int(pid), Start: o.Str("start")}.Alive()
		},
	}
}
