package task

import "agentenv/store/doc"

// Limits stand in place of those of a task for one run: what is stored of the task stays as it is. The record of the run keeps them, so that
// whoever goes on with it is bound by them too. The zero value changes nothing.
type Limits struct {
	MaxParallelSteps int   // 0 = as the task has it
	FailFast         *bool // nil = as the task has it
}

// Document returns the limits in stored form; nil when they change nothing.
func (l Limits) Document() *doc.Object {
	d := &doc.Object{}
	if l.MaxParallelSteps > 0 {
		d.Set("max_parallel_steps", doc.Int(l.MaxParallelSteps))
	}
	if l.FailFast != nil {
		d.Set("fail_fast", *l.FailFast)
	}
	if d.Len() == 0 {
		return nil
	}
	return d
}

// LimitsFrom reads the stored form; what is no limit in it is passed over, and nil gives the zero value.
func LimitsFrom(d *doc.Object) Limits {
	var l Limits
	if n, ok := d.Int("max_parallel_steps"); ok && n > 0 {
		l.MaxParallelSteps = int(n)
	}
	if v, ok := d.Value("fail_fast").(bool); ok {
		l.FailFast = &v
	}
	return l
}

// upon returns l, and what it leaves open as older has it.
func (l Limits) upon(older Limits) Limits {
	if l.MaxParallelSteps == 0 {
		l.MaxParallelSteps = older.MaxParallelSteps
	}
	if l.FailFast == nil {
		l.FailFast = older.FailFast
	}
	return l
}

// over returns the task as the limits let it run.
func (l Limits) over(t *Task) *Task {
	limited := *t
	if l.MaxParallelSteps > 0 {
		limited.MaxParallelSteps = l.MaxParallelSteps
	}
	if l.FailFast != nil {
		limited.FailFast = *l.FailFast
	}
	return &limited
}
