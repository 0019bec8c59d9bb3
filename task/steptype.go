package task

import (
	"context"

	"agentenv/store/doc"
)

// StepType is what a kind of step is: data and a few functions, collected in a Registry. The engine, bundles, the command
// line, the JSON Schema for editors and the docs all read this one table; none of them knows any kind by name.
type StepType struct {
	Name    string // the `type` in documents
	Summary string // one line for people
	Doc     string // more, in Markdown, for `steps show`
	Family  string // sandboxes, files, code, verify, agents, envs
	Fields  []Field
	Refs    []Ref

	FailsTask  bool // the default of fail_task_on_error
	Repeatable bool // running it again after a crash or a rollback does no harm outside the run
	IsVerifier bool // records metadata.verifications[verifier_id]
	Pending    bool // known by name and fields, not built in this version: a task with it is refused before anything is deployed

	// Parse makes the step's own fields runnable. fields holds exactly the fields of the table, checked against it (but for the
	// Loose ones of a stored step), with defaults filled in; the engine has taken the base fields out. stored is what a document keeps of it (nil: fields
	// as they are). Errors are Invalid and name the field.
	Parse func(id string, fields *doc.Object) (a Action, stored *doc.Object, err error)
	// Given refuses what a person may not write although Parse can make something of it; a stored step is not asked (nil func:
	// nothing). Errors are Invalid and name the field.
	Given func(fields *doc.Object) error
	// Check returns static problems of a parsed step (nil func: none). Preflight may read stores and must not need a sandbox.
	Check     func(s *Step) []string
	Preflight func(ctx context.Context, s *Step) []string
	// Among returns static problems of a parsed step that show in its task: all are its steps, before those that have ended when it begins
	// (nil func: none).
	Among func(s *Step, before, all []*Step) []string
	// Warn returns what in a step is allowed and probably a mistake (nil func: nothing); a step with warnings runs.
	Warn func(s *Step) []string
	// Unsupported says what of this step is not built in this version ("" = all of it is), so that a task that needs it is
	// refused before anything is deployed; nil func: nothing.
	Unsupported func(s *Step) string
	// Deploys says what the step starts, for the checks before a run; nil func: nothing.
	Deploys func(s *Step) []Deploy
}

// Action is a parsed step ready to run. It is immutable, keeps no state of a run, and may be executed more than once and by
// several runs at the same time.
type Action interface {
	// Execute does the step's work on its view of the run. A non-nil error is the step's failure; what it wrote to the view
	// before that is kept when the step is tolerated. It must return soon after ctx ends, with nothing of its work still going on.
	Execute(ctx context.Context, r *Run) error
}

// FieldKind is the JSON type a field takes.
type FieldKind string

// The kinds of fields. Null is taken by every field that is not required and means its default.
const (
	String     FieldKind = "string"
	Integer    FieldKind = "integer"
	NumberKind FieldKind = "number"
	Boolean    FieldKind = "boolean"
	ObjectKind FieldKind = "object"
	List       FieldKind = "list"
	Any        FieldKind = "any"
)

// Field describes one field of a step.
type Field struct {
	Name     string
	Kind     FieldKind
	Items    FieldKind // of a list's elements, or an object's values; "" or Any: anything
	Required bool
	Default  any      // a document value; stored when the field is absent
	Enum     []string // the strings allowed
	User     bool     // user scope: names something in one person's set-up
	Doc      string   // one line for people
	Input    bool     // a shorthand that is read and not stored under this name
	Loose    bool     // of a stored step Parse gets whatever stands here, also null, and makes of it what it can
}

// Ref declares that a field holds the id of another entity.
type Ref struct {
	Path         string // dotted keys, each optionally suffixed []: "artifacts[].id"
	Kind         string // env, agent, artifact, task
	VersionField string // sibling key with the pinned version
	Output       bool   // the step writes that id
	ArtifactType string // only this type
	EnvType      string
	Walk         string // a key whose nested lists and objects are searched for Path at any depth
}

// Deploy says that a step starts something on a sandbox provider.
type Deploy struct {
	What       string // "sandbox", "agent", "env"
	Provider   string // the step's own provider spec, "" = configured default
	Mode       string // "vm" or "container"
	Image      string // image reference or name in the bundle, container mode
	ImageField string // the field that holds it
}
