package task

import (
	"math"
	"time"

	"agentenv/fault"
	"agentenv/store/doc"
)

// ParseOptions says how task documents are read.
type ParseOptions struct {
	Where  string // the file or store the document comes from, in front of every error; "" = the task's id
	Strict bool   // an unknown field is an error (files given by people); otherwise it is passed over
	// Stored says that the document comes from the store, where other writers put fields they never checked. They are read for
	// what they meant, and a step that cannot be read so is no error: it has a Problem.
	Stored bool
}

// MaxSteps is how many steps a task may have, and MaxTaskBytes how large a task file may be.
const (
	MaxSteps     = 10_000
	MaxTaskBytes = 64 << 20
)

// ParseText reads a task file: a JSON array of steps, or an object with the array under "steps" and our task-wide fields
// beside it. The id of an object form is used when id is "". Every error is Invalid and names the file, the step's position
// and id, the field, what is there and what is needed.
func (r *Registry) ParseText(id string, text []byte, o ParseOptions) (*Task, error) {
	where := o.where(id)
	if len(text) > MaxTaskBytes {
		return nil, fault.New(fault.Invalid, "%s: the file has %d bytes, the most a task may have is %d", where, len(text), MaxTaskBytes)
	}
	v, err := doc.Parse(text, doc.Options{Strict: o.Strict})
	if err != nil {
		return nil, fault.At(err, "%s", where)
	}
	switch v := v.(type) {
	case []any:
		return r.ParseSteps(id, v, o)
	case *doc.Object:
		d := v.Clone()
		if id != "" {
			d.Set("id", id)
		}
		if _, ok := d.Get("type"); !ok {
			d.Set("type", "task")
		}
		if _, ok := d.Get("steps"); !ok {
			return nil, fault.New(fault.Invalid, "%s: the object has no steps; a task is a list of steps, `[{…}, …]`, or an object that has the list under \"steps\"", where)
		}
		return r.ParseTask(d, o)
	}
	return nil, fault.New(fault.Invalid, "%s: a task is a list of steps, not %s", where, Brief(v))
}

// ParseSteps makes a task of a list of step documents.
func (r *Registry) ParseSteps(id string, steps []any, o ParseOptions) (*Task, error) {
	return r.ParseTask(doc.Of("id", id, "type", "task", "version", nil, "steps", steps), o)
}

// ParseTask reads a task document in stored form. Errors are Invalid; an unknown type of document or step says so. With o.Stored a
// step whose own fields cannot be read is no error, and has a Problem.
func (r *Registry) ParseTask(d *doc.Object, o ParseOptions) (*Task, error) {
	t := &Task{ID: d.Str("id"), stored: o.Stored}
	where := o.where(t.ID)
	if err := r.taskFields(t, d, o.Strict); err != nil {
		return nil, fault.At(err, "%s", where)
	}
	steps := d.Arr("steps")
	if len(steps) > MaxSteps {
		return nil, fault.New(fault.Invalid, "%s: the task has %d steps, the most is %d", where, len(steps), MaxSteps)
	}
	t.Steps = make([]*Step, len(steps))
	for i, v := range steps {
		s, err := r.parseStep(v, o)
		if err != nil {
			return nil, fault.At(err, "%s: %s", where, stepName(i, v))
		}
		t.Steps[i] = s
	}
	if err := checkGraph(t.Steps); err != nil {
		return nil, fault.At(err, "%s", where)
	}
	return t, nil
}

func (o ParseOptions) where(id string) string {
	switch {
	case o.Where != "":
		return o.Where
	case id != "":
		return "task " + id
	}
	return "task"
}

func (r *Registry) taskFields(t *Task, d *doc.Object, strict bool) error {
	if k, _ := d.Get("type"); k != "task" {
		if s, ok := k.(string); ok {
			return fault.New(fault.Invalid, "Unknown task type: %s", s)
		}
		return fault.New(fault.Invalid, "field \"type\" needs \"task\", not %s", Brief(k))
	}
	if v := d.Value("id"); v != nil && !isKind(v, String) {
		return fault.New(fault.Invalid, "field \"id\" needs a string, not %s", Brief(v))
	}
	if v := d.Value("steps"); v != nil && !isKind(v, List) {
		return fault.New(fault.Invalid, "field \"steps\" needs a list of steps, not %s", Brief(v))
	}
	version, err := versionOf(d)
	if err != nil {
		return err
	}
	t.Version = version
	if v := d.Value("max_parallel_steps"); v != nil {
		n, ok := wholeNumber(v)
		if !ok || n < 0 || n > math.MaxInt32 {
			return fault.New(fault.Invalid, "field \"max_parallel_steps\" needs an integer from 0 (no limit), not %s", Brief(v))
		}
		t.MaxParallelSteps = int(n)
	}
	if v := d.Value("fail_fast"); v != nil {
		b, ok := v.(bool)
		if !ok {
			return fault.New(fault.Invalid, "field \"fail_fast\" needs a boolean, not %s", Brief(v))
		}
		t.FailFast = b
	}
	if strict {
		for _, k := range d.Keys() {
			switch k {
			case "id", "type", "version", "steps", "max_parallel_steps", "fail_fast", "created_at_utc":
			default:
				return fault.New(fault.Invalid, "field %q is not known; a task takes steps, max_parallel_steps and fail_fast", k)
			}
		}
	}
	return nil
}

func versionOf(d *doc.Object) (int64, error) {
	v := d.Value("version")
	if v == nil {
		return 0, nil
	}
	n, ok := wholeNumber(v)
	if !ok || n < 1 {
		return 0, fault.New(fault.Invalid, "field \"version\" needs a positive integer or null, not %s", Brief(v))
	}
	return n, nil
}

func (r *Registry) parseStep(v any, o ParseOptions) (*Step, error) {
	d, ok := v.(*doc.Object)
	if !ok {
		return nil, fault.New(fault.Invalid, "a step is an object, not %s", Brief(v))
	}
	s := &Step{}
	var err error
	if s.ID, err = requiredName(d, "id"); err != nil {
		return nil, err
	}
	if s.Type, err = requiredName(d, "type"); err != nil {
		return nil, err
	}
	if s.Kind = r.Get(s.Type); s.Kind == nil {
		return nil, fault.New(fault.Invalid, "Unknown task step type: %s (`agent-env steps list` shows those there are)", s.Type)
	}
	if err := s.readBase(d, o.Stored); err != nil {
		return nil, err
	}
	if err = s.readOwn(d, o); err != nil && o.Stored {
		s.Problem, s.Action, s.Fields, err = err, nil, verbatim(d), nil
	}
	return s, err
}

// readOwn fills in what the step's type knows about.
func (s *Step) readOwn(d *doc.Object, o ParseOptions) error {
	if s.ID == seedRow || s.ID == schedulerRow {
		return fault.New(fault.Invalid, "field \"id\" must not be %q, which names a row of the journal", s.ID)
	}
	if s.Kind.Pending {
		s.Fields = verbatim(d)
		return s.Kind.checkGiven(d)
	}
	fields, err := s.Kind.ownFields(d, o)
	if err != nil {
		return err
	}
	if s.Kind.Given != nil && !o.Stored {
		if err := s.Kind.Given(fields); err != nil {
			return err
		}
	}
	var stored *doc.Object
	if s.Kind.Parse != nil {
		if s.Action, stored, err = s.Kind.Parse(s.ID, fields); err != nil {
			return err
		}
	}
	if s.Fields = stored; stored == nil {
		s.Fields = s.Kind.withoutInputs(fields)
	}
	return nil
}

func (k *StepType) withoutInputs(fields *doc.Object) *doc.Object {
	kept := &doc.Object{}
	for _, f := range k.Fields {
		if v, ok := fields.Get(f.Name); ok && !f.Input {
			kept.Set(f.Name, v)
		}
	}
	return kept
}

func requiredName(d *doc.Object, key string) (string, error) {
	v, ok := d.Get(key)
	if !ok || v == nil {
		return "", fault.New(fault.Invalid, "field %q is missing; it needs a string", key)
	}
	s, ok := v.(string)
	if !ok || s == "" {
		return "", fault.New(fault.Invalid, "field %q needs a string that is not empty, not %s", key, Brief(v))
	}
	return s, nil
}

// readBase fills in the fields that every step has.
func (s *Step) readBase(d *doc.Object, stored bool) error {
	var err error
	if s.Version, err = versionOf(d); err != nil && !stored {
		return err
	}
	s.FailsTask = s.Kind.FailsTask
	if v, given := d.Get("fail_task_on_error"); given && stored {
		s.FailsTask = Truthy(v)
	} else if v != nil {
		b, ok := v.(bool)
		if !ok {
			return fault.New(fault.Invalid, "field \"fail_task_on_error\" needs a boolean, not %s", Brief(v))
		}
		s.FailsTask = b
	}
	if s.DependsOn, s.Implicit, err = parseEdges(d.Value("depends_on")); err != nil {
		return err
	}
	if s.Retry, err = parseRetry(d.Value("retry_config")); err != nil {
		return err
	}
	s.Timeout, err = parseSeconds("step_timeout_seconds", d.Value("step_timeout_seconds"))
	return err
}

func parseEdges(v any) (ids []string, implicit bool, err error) {
	if v == nil {
		return nil, true, nil
	}
	list, ok := v.([]any)
	if !ok {
		return nil, false, fault.New(fault.Invalid, "depends_on is a list of step ids, not %s", Brief(v))
	}
	seen := map[string]bool{}
	for _, e := range list {
		id, ok := e.(string)
		if o, isObj := e.(*doc.Object); isObj {
			id, ok = o.Value("task_step_id").(string)
		}
		if !ok {
			return nil, false, fault.New(fault.Invalid, "depends_on holds %s; an entry is a step id or {\"task_step_id\": <id>}", Brief(e))
		}
		if !seen[id] {
			seen[id] = true
			ids = append(ids, id)
		}
	}
	return ids, false, nil
}

func parseRetry(v any) (*Retry, error) {
	if v == nil {
		return nil, nil
	}
	d, ok := v.(*doc.Object)
	if !ok {
		return nil, fault.New(fault.Invalid, "field \"retry_config\" needs an object, not %s", Brief(v))
	}
	from := d.Value("retry_from_step_id")
	if from == nil {
		from = d.Value("go_to_step_id")
	}
	if from == nil {
		return nil, fault.New(fault.Invalid, "retry_config: field \"retry_from_step_id\" is missing; it needs a step id")
	}
	r := &Retry{Max: 1}
	if r.From, ok = from.(string); !ok || r.From == "" {
		return nil, fault.New(fault.Invalid, "retry_config: field \"retry_from_step_id\" needs a step id, not %s", Brief(from))
	}
	if m, given := d.Get("max_retries"); given {
		n, isNumber := m.(doc.Number)
		i, isInt := n.Int64()
		if !isNumber || !isInt || i < 0 || i > math.MaxInt32 {
			return nil, fault.New(fault.Invalid, "retry_config: field \"max_retries\" needs an integer from 0, not %s", Brief(m))
		}
		r.Max = int(i)
	}
	var err error
	r.Delay, err = parseSeconds("delay_seconds", d.Value("delay_seconds"))
	return r, fault.At(err, "retry_config")
}

func parseSeconds(name string, v any) (time.Duration, error) {
	if v == nil {
		return 0, nil
	}
	n, ok := v.(doc.Number)
	if !ok || !n.Finite() || n.Float64() < 0 || n.Float64() > math.MaxInt64/1e9 {
		return 0, fault.New(fault.Invalid, "field %q needs a number of seconds from 0 (none) to %.0f, not %s", name, math.Floor(math.MaxInt64/1e9), Brief(v))
	}
	return time.Duration(n.Float64() * float64(time.Second)), nil
}
