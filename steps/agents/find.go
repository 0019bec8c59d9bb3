package agents

import (
	"strings"

	"agentenv/agent"
	"agentenv/store/doc"
	"agentenv/task"
)

// find returns the record of a deployed agent and where it answers. A name that this run has not deployed is Invalid, and lists those it has.
func (d Deps) find(r *task.Run, name string) (*doc.Object, agent.Endpoint, error) {
	record, err := r.Agent(name)
	if err != nil {
		return nil, agent.Endpoint{}, err
	}
	e, err := d.endpoint(record)
	return record, e, err
}

// key puts the configured prefix before an object's key.
func (d Deps) key(s string) string {
	if d.Prefix == "" {
		return s
	}
	return strings.TrimRight(d.Prefix, "/") + "/" + s
}
