package agent

import (
	"fmt"

	"agentenv/store/doc"
)

// The kinds of results. Source: A2A 0.3, section 7.
const (
	resultTask     = "task"
	resultMessage  = "message"
	resultStatus   = "status-update"
	resultArtifact = "artifact-update"
)

// kindOf returns a result's kind; one that names none is told by its fields.
func kindOf(o *doc.Object) string {
	_, status := o.Get("status")
	_, task := o.Get("taskId")
	_, parts := o.Get("parts")
	_, artifact := o.Get("artifact")
	_, id := o.Get("id")
	switch kind := o.Str("kind"); {
	case kind != "":
		return kind
	case artifact:
		return resultArtifact
	case parts:
		return resultMessage
	case status && task:
		return resultStatus
	case id:
		return resultTask
	}
	return ""
}

// take reads one result: of a method, or one event of a stream. It reports whether the turn is over.
func (f *follower) take(method string, o *doc.Object) (over bool, err error) {
	switch kind := kindOf(o); kind {
	case resultMessage:
		f.state, f.final = Completed, o
		f.name(o.Str("taskId"), o.Str("contextId"))
		return true, nil
	case resultTask:
		if err := f.same(method, o.Str("id")); err != nil {
			return false, err
		}
		f.name(o.Str("id"), o.Str("contextId"))
		return f.whole(method, o)
	case resultStatus:
		if err := f.same(method, o.Str("taskId")); err != nil {
			return false, err
		}
		f.name(o.Str("taskId"), o.Str("contextId"))
		f.progress.merge(o.Obj("metadata"))
		f.status(o.Obj("status"))
	case resultArtifact:
		if err := f.same(method, o.Str("taskId")); err != nil {
			return false, err
		}
		f.name(o.Str("taskId"), o.Str("contextId"))
		f.missing = true
		return false, nil
	default:
		return false, &shapeError{fmt.Sprintf("%s was answered with a result that is neither a task nor a message", method)}
	}
	return f.over(), nil
}

// over reports whether the turn has ended and everything of its answer is there.
func (f *follower) over() bool {
	return ended(f.state) && (!f.missing || len(partsOf(f.final)) > 0)
}

// same refuses a result that is about another task, or about none.
func (f *follower) same(method, id string) error {
	switch {
	case id == "":
		return &shapeError{method + " was answered with a task that has no id"}
	case f.taskID != "" && id != f.taskID:
		return &shapeError{fmt.Sprintf("%s was answered with the task %q instead of %q", method, id, f.taskID)}
	}
	return nil
}

// name keeps the agent's ids, and tells whoever asked for the task's.
func (f *follower) name(task, conversation string) {
	if conversation != "" {
		f.contextID = conversation
	}
	if f.taskID == "" && task != "" {
		f.taskID = task
		if f.turn.OnTask != nil {
			f.turn.OnTask(task)
		}
	}
}

// whole reads a whole task.
func (f *follower) whole(method string, o *doc.Object) (bool, error) {
	status := o.Obj("status")
	if status.Str("state") == "" && method == "tasks/get" {
		return false, &shapeError{"tasks/get was answered with a task that has no status.state"}
	}
	f.missing, f.artifacts = false, o.Arr("artifacts")
	f.progress.merge(o.Obj("metadata"))
	for _, v := range o.Arr("history") {
		if m, ok := v.(*doc.Object); ok && (m.Str("taskId") == "" || m.Str("taskId") == f.taskID) {
			f.progress.add(m)
		}
	}
	f.status(status)
	return f.over(), nil
}

func (f *follower) status(s *doc.Object) {
	if state := s.Str("state"); state != "" {
		f.state = state
	}
	f.final = s.Obj("message")
	if f.final != nil {
		f.progress.add(f.final)
	}
}
