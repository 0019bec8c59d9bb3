// Package target finds what a step acts on: the sandbox or the agent that it names.
package target

import (
	"agentenv/fault"
	"agentenv/sandbox"
	"agentenv/task"
)

// Of returns the record of the sandbox that a step names or, where it names none, of where the agent works that it names. A name that this run
// has not deployed is Invalid, as is an agent that runs in no sandbox; records of both carry the class RuntimeError.
func Of(r *task.Run, sandboxName, agentName string) (sandbox.Record, error) {
	if sandboxName != "" {
		s, err := r.Sandbox(sandboxName)
		return sandbox.Record{Name: s.Name, ID: s.ID, Type: s.Type, Mode: sandbox.Mode(s.Mode)}, err
	}
	a, err := r.Agent(agentName)
	if err != nil {
		return sandbox.Record{}, err
	}
	rec := sandbox.AgentRecord(a)
	if rec.ID == "" {
		return rec, fault.New(fault.Invalid, "the agent %q runs in no sandbox of this program, so no step can act where it works", agentName).WithClass("RuntimeError")
	}
	return rec, nil
}
