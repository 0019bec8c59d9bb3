package task

import (
	"regexp"
	"slices"
	"strings"

	"agentenv/fault"
)

// Registry holds the step types by name. It is filled once by the program and read-only afterwards, so it is safe for
// concurrent use.
type Registry struct {
	types map[string]*StepType
	names []string
}

// NewRegistry returns a registry of the types; two of one name are an error of kind Exists, an inconsistent table (a Ref to
// a field that is not there, a default of another type) one of kind Invalid.
func NewRegistry(types ...*StepType) (*Registry, error) {
	r := &Registry{types: make(map[string]*StepType, len(types))}
	for _, t := range types {
		if t == nil || t.Name == "" {
			return nil, fault.New(fault.Invalid, "a step type has no name")
		}
		if _, taken := r.types[t.Name]; taken {
			return nil, fault.New(fault.Exists, "two step types are named %q", t.Name)
		}
		if err := checkTable(t); err != nil {
			return nil, err
		}
		r.types[t.Name] = t
		r.names = append(r.names, t.Name)
	}
	slices.Sort(r.names)
	return r, nil
}

// Get returns a type by name, nil when there is none.
func (r *Registry) Get(name string) *StepType { return r.types[name] }

// All returns the types sorted by name.
func (r *Registry) All() []*StepType {
	all := make([]*StepType, len(r.names))
	for i, n := range r.names {
		all[i] = r.types[n]
	}
	return all
}

// BaseFields returns the names of the fields that every step has.
func BaseFields() []string { return slices.Clone(baseFields) }

var retryFields = []string{"retry_from_step_id", "go_to_step_id", "max_retries", "delay_seconds"}

// RetryFields returns the names of the fields of a retry_config.
func RetryFields() []string { return slices.Clone(retryFields) }

var baseFields = []string{"id", "type", "version", "fail_task_on_error", "depends_on", "retry_config", "step_timeout_seconds"}

var kinds = []FieldKind{String, Integer, NumberKind, Boolean, ObjectKind, List, Any}

func checkTable(t *StepType) error {
	bad := func(format string, args ...any) error {
		return fault.At(fault.New(fault.Invalid, format, args...), "step type %q", t.Name)
	}
	if t.Parse == nil && !t.Pending {
		return bad("it has no Parse and is not marked Pending")
	}
	seen := map[string]bool{}
	for _, f := range t.Fields {
		switch {
		case f.Name == "":
			return bad("a field has no name")
		case slices.Contains(baseFields, f.Name):
			return bad("field %q is a base field of every step", f.Name)
		case seen[f.Name]:
			return bad("field %q is declared twice", f.Name)
		case !slices.Contains(kinds, f.Kind):
			return bad("field %q has the unknown kind %q", f.Name, f.Kind)
		case f.Items != "" && !slices.Contains(kinds, f.Items):
			return bad("field %q has items of the unknown kind %q", f.Name, f.Items)
		case f.Required && f.Default != nil:
			return bad("field %q is required and has a default", f.Name)
		case f.Required && f.User:
			return bad("field %q is of user scope, which is always optional, and required", f.Name)
		case f.Default != nil && f.problem(f.Default) != "":
			return bad("the default of field %q: %s", f.Name, f.problem(f.Default))
		}
		seen[f.Name] = true
	}
	for _, ref := range t.Refs {
		if err := checkRef(t, ref, seen); err != nil {
			return fault.At(err, "step type %q", t.Name)
		}
	}
	return nil
}

var refPath = regexp.MustCompile(`^[A-Za-z_]\w*(\[\])?(\.[A-Za-z_]\w*(\[\])?)*$`)

func checkRef(t *StepType, ref Ref, fields map[string]bool) error {
	bad := func(format string, args ...any) error {
		return fault.At(fault.New(fault.Invalid, format, args...), "reference %q", ref.Path)
	}
	if !refPath.MatchString(ref.Path) {
		return bad("a path is dotted keys, each optionally followed by []")
	}
	if !slices.Contains([]string{"env", "agent", "artifact", "task"}, ref.Kind) {
		return bad("kind %q is none of env, agent, artifact, task", ref.Kind)
	}
	if ref.VersionField != "" && strings.HasSuffix(ref.Path, "[]") {
		return bad("an id in a bare list cannot have a version field")
	}
	if ref.ArtifactType != "" && ref.Kind != "artifact" {
		return bad("an artifact type on kind %q", ref.Kind)
	}
	if ref.EnvType != "" && ref.Kind != "env" {
		return bad("an env type on kind %q", ref.Kind)
	}
	top := ref.Walk
	if top == "" {
		top, _, _ = strings.Cut(ref.Path, ".")
		top = strings.TrimSuffix(top, "[]")
	}
	if !fields[top] {
		return bad("step type %s has no field %q", t.Name, top)
	}
	if ref.VersionField != "" && ref.Walk == "" && !strings.Contains(ref.Path, ".") && !fields[ref.VersionField] {
		return bad("step type %s has no field %q for the version", t.Name, ref.VersionField)
	}
	return nil
}
