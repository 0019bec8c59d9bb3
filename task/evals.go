package task

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"agentenv/fault"
	"agentenv/store"
	"agentenv/store/doc"
	"agentenv/store/document"
)

const collEvals = "evals"

// MaxEvalBytes bounds a file of eval entries.
const MaxEvalBytes = 16 << 20

// Eval is a stored list of tasks that are run together.
type Eval struct {
	ID      string
	Version int64
	Tasks   []EvalTask // in order, duplicates kept
}

// EvalTask is one entry of an eval.
type EvalTask struct {
	TaskID  string
	Version int64 // 0 = the latest when the eval runs
}

// String returns the entry for people: "t v2", "t (latest)".
func (e EvalTask) String() string {
	if e.Version == 0 {
		return e.TaskID + " (latest)"
	}
	return fmt.Sprintf("%s v%d", e.TaskID, e.Version)
}

// ParseEvalTasks reads a JSON array of {"task_id": …, "task_version": optional}. Invalid, with the position: an entry that is no such
// object, or has another key.
func ParseEvalTasks(text []byte, where string) ([]EvalTask, error) {
	v, err := doc.Parse(text, doc.Options{})
	if err != nil {
		return nil, fault.At(err, "%s", where)
	}
	list, ok := v.([]any)
	if !ok {
		return nil, fault.New(fault.Invalid, `%s must hold a JSON array of {"task_id": …, "task_version": optional}`, where)
	}
	return evalTasks(list, where)
}

func evalTasks(list []any, where string) ([]EvalTask, error) {
	entries := make([]EvalTask, len(list))
	for i, v := range list {
		e, err := evalTask(v)
		if err != nil {
			return nil, fault.At(err, "%s, entry %d", where, i)
		}
		entries[i] = e
	}
	return entries, nil
}

func evalTask(v any) (e EvalTask, err error) {
	o, ok := v.(*doc.Object)
	if !ok {
		return e, fault.New(fault.Invalid, `it must be an object {"task_id": …, "task_version": optional}, not %s`, short40(v))
	}
	for _, k := range o.Keys() {
		if k != "task_id" && k != "task_version" {
			return e, fault.New(fault.Invalid, "the key %q is not known; an entry has task_id and task_version", k)
		}
	}
	if e.TaskID, ok = o.Value("task_id").(string); !ok || e.TaskID == "" {
		return e, fault.New(fault.Invalid, "task_id is missing or no string")
	}
	if o.Value("task_version") == nil {
		return e, nil
	}
	if e.Version, ok = o.Int("task_version"); !ok || e.Version < 1 {
		return e, fault.New(fault.Invalid, "task_version must be an integer from 1 on, or null for the latest, not %s", short40(o.Value("task_version")))
	}
	return e, nil
}

func short40(v any) string {
	s := []rune(doc.Canonical(v))
	if len(s) > 40 {
		return string(s[:40]) + "…"
	}
	return string(s)
}

// Document returns the eval as stored, without the moment of its creation.
func (e *Eval) Document() *doc.Object {
	tasks := make([]any, len(e.Tasks))
	for i, t := range e.Tasks {
		tasks[i] = doc.Of("task_id", t.TaskID, "task_version", versionValue(t.Version))
	}
	return doc.Of("id", e.ID, "type", "eval", "version", versionValue(e.Version), "tasks", tasks)
}

// Evals stores evals: immutable versions of an id, counted from 1. It is safe for concurrent use, also by several processes.
type Evals struct {
	tasks   *Tasks
	docs    document.Store
	indexes *indexes
	log     *slog.Logger
	now     func() time.Time
}

// NewEvals returns the eval store over the store of the tasks that evals name.
func NewEvals(tasks *Tasks) *Evals {
	return &Evals{tasks: tasks, docs: tasks.docs, indexes: &indexes{docs: tasks.docs}, log: tasks.log, now: tasks.now}
}

// Create stores a list of tasks as the next version of an eval and returns it; that the tasks are there is for the caller to Check. An eval
// without an id or without tasks is Invalid.
func (s *Evals) Create(ctx context.Context, id string, entries []EvalTask) (*Eval, error) {
	return s.put(ctx, id, func(context.Context, document.Store) ([]EvalTask, error) { return entries, nil })
}

// Add merges a list of tasks into a version of an eval, the latest for 0, and stores the outcome as the next version: an entry takes the
// place of one with the same task and version; others follow in their order. It returns what was stored.
func (s *Evals) Add(ctx context.Context, id string, version int64, entries []EvalTask) (*Eval, error) {
	return s.put(ctx, id, func(ctx context.Context, docs document.Store) ([]EvalTask, error) {
		old, err := s.get(ctx, docs, id, version)
		if err != nil {
			return nil, err
		}
		merged := slices.Clone(old.Tasks)
		for _, e := range entries {
			if !slices.Contains(merged, e) { // entries that are equal have nothing to replace
				merged = append(merged, e)
			}
		}
		return merged, nil
	})
}

func (s *Evals) put(ctx context.Context, id string, tasks func(context.Context, document.Store) ([]EvalTask, error)) (*Eval, error) {
	if id == "" {
		return nil, fault.New(fault.Invalid, "an eval needs an id to be stored")
	}
	if err := s.docs.CheckID(id); err != nil {
		return nil, err
	}
	placed, docs, err := s.indexes.ensure(ctx, id, collEvals)
	if err != nil {
		return nil, err
	}
	var stored *Eval
	write := func(tx document.Store) error {
		entries, err := tasks(placed, tx)
		if err != nil {
			return err
		}
		if len(entries) == 0 {
			return fault.New(fault.Invalid, "eval %s has no tasks: there would be nothing to run", id)
		}
		latest, err := tx.LatestVersion(placed, collEvals, id)
		if err != nil {
			return err
		}
		stored = &Eval{ID: id, Version: latest + 1, Tasks: entries}
		return tx.Insert(placed, collEvals, stored.Document().Set("created_at_utc", preciseTime(s.now())))
	}
	for range putTries {
		if err = docs.Transact(placed, write); !fault.Is(err, fault.Exists) {
			break
		}
	}
	if err != nil {
		return nil, err
	}
	return stored, nil
}

// Get returns a version of an eval, the latest for version 0; a NotFound error when there is none.
func (s *Evals) Get(ctx context.Context, id string, version int64) (*Eval, error) {
	ctx = store.WithRunScope(ctx, id)
	return s.get(ctx, s.docs, id, version)
}

func (s *Evals) get(ctx context.Context, docs document.Store, id string, version int64) (*Eval, error) {
	f, name := document.By("id", id), "Eval "+id
	if version > 0 {
		f = f.And("version", document.Eq, doc.Int(version))
		name += " version=" + string(doc.Int(version))
	}
	d, err := docs.FindOne(ctx, collEvals, f, document.Sort{Path: "version", Desc: true})
	if err != nil {
		return nil, err
	}
	if d == nil {
		return nil, fault.New(fault.NotFound, "%s not found", name)
	}
	e := &Eval{ID: id}
	e.Version, _ = d.Int("version")
	e.Tasks, err = evalTasks(d.Arr("tasks"), name)
	return e, err
}

// Check reads the task of an entry, so that it is known to be there and can run as it is stored; a NotFound error when it is not there.
func (s *Evals) Check(ctx context.Context, e EvalTask) (*Task, error) {
	return s.tasks.Get(ctx, e.TaskID, e.Version)
}
