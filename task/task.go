// Package task turns a stored task (an ordered list of typed steps with dependency edges) into a run: it checks the graph,
// runs the steps as the graph allows, gives every step its own view of the shared context, writes each step's effect as one
// journal row, and ends with a status, an outcome class, a context and scores. It knows no step kind and no provider.
package task

import (
	"time"

	"agentenv/store/doc"
)

// Task is a task document. Steps keep their authored order, which is meaningful. It is not changed by runs and may be run
// several times, also at once.
type Task struct {
	ID               string
	Version          int64 // 0 = not stored yet
	Steps            []*Step
	MaxParallelSteps int  // 0 = no limit (ours)
	FailFast         bool // a fatal failure cancels the steps in flight (ours)
	stored           bool // read with ParseOptions.Stored
}

// Step is one parsed step. It is immutable.
type Step struct {
	ID, Type  string
	Version   int64 // 0 = null
	DependsOn []string
	Implicit  bool // depends_on was absent: the step depends on every earlier one
	FailsTask bool // fail_task_on_error
	Retry     *Retry
	Timeout   time.Duration // step_timeout_seconds (ours); 0 = none
	Fields    *doc.Object   // the type's own fields in stored form; as they stand in the store when there is a Problem
	Action    Action        // nil when Kind.Pending, and when there is a Problem
	Problem   error         // why this step of a stored task cannot run: an Invalid error that names the field; nil: nothing
	Kind      *StepType
}

// Retry is retry_config.
type Retry struct {
	From  string
	Max   int
	Delay time.Duration // ours
}

// Document returns the task's stored form: id, type, version (null when not stored yet), the steps, and our own fields when
// they are set.
func (t *Task) Document() *doc.Object {
	d := doc.Of("id", t.ID, "type", "task", "version", versionValue(t.Version), "steps", t.StepDocuments())
	if t.MaxParallelSteps > 0 {
		d.Set("max_parallel_steps", doc.Int(t.MaxParallelSteps))
	}
	if t.FailFast {
		d.Set("fail_fast", true)
	}
	return d
}

// StepDocuments returns the steps in stored form, which is also what a bundle's task file holds.
func (t *Task) StepDocuments() []any {
	steps := make([]any, len(t.Steps))
	for i, s := range t.Steps {
		steps[i] = s.Document()
	}
	return steps
}

// Document returns the step's stored form: the base fields, then the type's own in the order of its table.
func (s *Step) Document() *doc.Object {
	d := doc.Of("id", s.ID, "type", s.Type, "version", versionValue(s.Version), "fail_task_on_error", s.FailsTask)
	if !s.Implicit {
		edges := make([]any, len(s.DependsOn))
		for i, id := range s.DependsOn {
			edges[i] = doc.Of("task_step_id", id)
		}
		d.Set("depends_on", edges)
	}
	if s.Retry != nil {
		r := doc.Of("retry_from_step_id", s.Retry.From, "max_retries", doc.Int(s.Retry.Max))
		if s.Retry.Delay > 0 {
			r.Set("delay_seconds", secondsValue(s.Retry.Delay))
		}
		d.Set("retry_config", r)
	}
	if s.Timeout > 0 {
		d.Set("step_timeout_seconds", secondsValue(s.Timeout))
	}
	for _, k := range s.Fields.Keys() {
		d.Set(k, s.Fields.Value(k))
	}
	return d
}

func versionValue(v int64) any {
	if v == 0 {
		return nil
	}
	return doc.Int(v)
}

func secondsValue(d time.Duration) doc.Number {
	if d%time.Second == 0 {
		return doc.Int(int64(d / time.Second))
	}
	return doc.Float(d.Seconds())
}
