package bundle

import (
	"slices"
	"strings"

	"agentenv/store/doc"
	"agentenv/task"
)

// Warnings returns what in a bundle's tasks is passed over and may be a mistake, a line each: fields that their kind of step does
// not have, and what a kind of step warns of itself. A bundle with warnings runs.
func Warnings(reg *task.Registry, b *Bundle) []string {
	var out []string
	for _, e := range b.Of(StoreTask) {
		out = append(out, warningsOf(reg, e)...)
	}
	return out
}

// Warnings returns those of the tasks that are to run.
func (p *Plan) Warnings() []string {
	var out []string
	for _, en := range p.tasks {
		out = append(out, warningsOf(p.p.Registry, en.e)...)
	}
	return out
}

func warningsOf(reg *task.Registry, e *Entity) (out []string) {
	if t, err := reg.ParseTask(e.document(e.steps), task.ParseOptions{Where: e.Path}); err == nil {
		for i, s := range t.Steps {
			if s.Kind.Warn == nil {
				continue
			}
			for _, w := range s.Kind.Warn(s) {
				out = append(out, stepWhere(e, e.steps[i].(*doc.Object))+": "+w)
			}
		}
	}
	for _, v := range e.steps {
		s, _ := v.(*doc.Object)
		typ := reg.Get(s.Str("type"))
		if typ == nil || typ.Pending {
			continue
		}
		for _, key := range s.Obj("retry_config").Keys() {
			if !slices.Contains(task.RetryFields(), key) {
				out = append(out, stepWhere(e, s)+": retry_config: the field "+shown(key)+" is not known and is passed over; there are "+strings.Join(task.RetryFields(), ", "))
			}
		}
		for _, key := range s.Keys() {
			known := slices.Contains(task.BaseFields(), key) || slices.ContainsFunc(typ.Fields, func(f task.Field) bool { return f.Name == key })
			if !known {
				out = append(out, stepWhere(e, s)+": the field "+shown(key)+" is not known and is passed over; see agent-env steps show "+typ.Name)
			}
		}
	}
	return out
}
