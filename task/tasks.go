package task

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"agentenv/fault"
	"agentenv/store"
	"agentenv/store/doc"
	"agentenv/store/document"
)

// Tasks stores tasks: immutable versions of an id, counted from 1. It is safe for concurrent use, also by several processes.
type Tasks struct {
	registry *Registry
	docs     document.Store
	indexes  *indexes
	log      *slog.Logger
	now      func() time.Time
}

// NewTasks returns the task store over a registry and a document store. A nil log discards; now is the clock (nil: time.Now).
func NewTasks(reg *Registry, docs document.Store, log *slog.Logger, now func() time.Time) *Tasks {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	if now == nil {
		now = time.Now
	}
	return &Tasks{registry: reg, docs: docs, indexes: &indexes{docs: docs}, log: log, now: now}
}

// putTries is how often a new version is tried when others take the number first.
const putTries = 5

// Put stores the task as the next version of its id and returns it with that version; t is not changed. With a Version
// set, that must be the next one, else the error is of kind Conflict. A task without steps or without an id is Invalid.
func (s *Tasks) Put(ctx context.Context, t *Task) (*Task, error) { return s.put(ctx, t, false) }

// Create is Put that also stores every step as the next version of its own id in the step store, and records these versions
// in the task; all of it is written, or nothing. A step that carries a version carries the next one of its id, else the error is
// of kind Conflict. The steps of an @local task have bare ids, which go to the configured store, in a transaction before the task's.
func (s *Tasks) Create(ctx context.Context, t *Task) (*Task, error) {
	if !store.IsLocal(t.ID) || len(t.Steps) == 0 {
		return s.put(ctx, t, true)
	}
	if err := s.docs.CheckID(t.ID); err != nil {
		return nil, err
	}
	versioned := *t
	versioned.Steps = slices.Clone(t.Steps)
	for _, local := range []bool{false, true} {
		first := slices.IndexFunc(t.Steps, func(step *Step) bool { return store.IsLocal(step.ID) == local })
		if first < 0 {
			continue
		}
		placed, docs, err := s.indexes.ensure(ctx, t.Steps[first].ID, collSteps)
		if err == nil {
			err = s.tried(t.ID, func() error {
				return docs.Transact(placed, func(tx document.Store) error {
					return s.writeSteps(placed, tx, t, versioned.Steps, preciseTime(s.now()), func(step *Step) bool { return store.IsLocal(step.ID) == local })
				})
			})
		}
		if err != nil {
			return nil, err
		}
	}
	return s.put(ctx, &versioned, false)
}

// tried runs fn again while others take the version it was about to write.
func (s *Tasks) tried(id string, fn func() error) (err error) {
	for range putTries {
		if err = fn(); !fault.Is(err, fault.Exists) {
			return err
		}
	}
	return fault.At(err, "task %s: others stored versions of it at the same moment, %d times", id, putTries)
}

func (s *Tasks) put(ctx context.Context, t *Task, withSteps bool) (*Task, error) {
	if t.ID == "" {
		return nil, fault.New(fault.Invalid, "a task needs an id to be stored")
	}
	if len(t.Steps) == 0 {
		return nil, fault.New(fault.Invalid, "task %s has no steps: it could never run", t.ID)
	}
	if err := s.docs.CheckID(t.ID); err != nil {
		return nil, err
	}
	ctx, docs, err := s.indexes.ensure(ctx, t.ID, collTasks, collSteps)
	if err != nil {
		return nil, err
	}
	var stored *Task
	err = s.tried(t.ID, func() error {
		err := docs.Transact(ctx, func(tx document.Store) (err error) {
			stored, err = s.write(ctx, tx, t, withSteps)
			return err
		})
		if fault.Is(err, fault.Exists) && t.Version > 0 {
			return versionConflict(t.ID, t.Version-1, t.Version)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return stored, nil
}

func versionConflict(id string, current, offered int64) error {
	return fault.New(fault.Conflict, "task %s in %s is at version %d or beyond, so the next one is not %d; read it again and redo the change", id, collTasks, current, offered).
		WithClass("ConcurrentModificationError")
}

func (s *Tasks) write(ctx context.Context, tx document.Store, t *Task, withSteps bool) (*Task, error) {
	latest, err := tx.LatestVersion(ctx, collTasks, t.ID)
	if err != nil {
		return nil, err
	}
	if t.Version > 0 && t.Version != latest+1 {
		return nil, fault.New(fault.Conflict, "task %s in %s is at version %d; the next one is %d, not %d", t.ID, collTasks, latest, latest+1, t.Version).
			WithClass("ConcurrentModificationError")
	}
	at := preciseTime(s.now())
	stored := *t
	if withSteps {
		stored.Steps = make([]*Step, len(t.Steps))
		if err := s.writeSteps(ctx, tx, t, stored.Steps, at, func(*Step) bool { return true }); err != nil {
			return nil, err
		}
	}
	stored.Version = latest + 1
	return &stored, tx.Insert(ctx, collTasks, stored.Document().Set("created_at_utc", at))
}

// writeSteps stores the chosen steps of a task and puts copies with their new versions in their places.
func (s *Tasks) writeSteps(ctx context.Context, tx document.Store, t *Task, places []*Step, at string, chosen func(*Step) bool) (err error) {
	for i, step := range t.Steps {
		if !chosen(step) {
			continue
		}
		copied := *step
		if copied.Version, err = s.writeStep(ctx, tx, &copied, at); err != nil {
			return fault.At(err, "task %s, step %q", t.ID, step.ID)
		}
		places[i] = &copied
	}
	return nil
}

func (s *Tasks) writeStep(ctx context.Context, tx document.Store, step *Step, at string) (int64, error) {
	latest, err := tx.LatestVersion(ctx, collSteps, step.ID)
	if err != nil {
		return 0, err
	}
	if step.Version > 0 && step.Version != latest+1 {
		return 0, fault.New(fault.Conflict, "it is at version %d in %s, so the next version is %d, not %d; leave the version out", latest, collSteps, latest+1, step.Version).
			WithClass("ConcurrentModificationError")
	}
	step.Version = latest + 1
	return step.Version, tx.Insert(ctx, collSteps, step.Document().Set("created_at_utc", at))
}

// Get returns a version of a task, the newest for version 0; a NotFound error when there is none. A step that cannot run as it is
// stored has its Problem; a task whose graph makes no sense is an Invalid error.
func (s *Tasks) Get(ctx context.Context, id string, version int64) (*Task, error) {
	d, err := s.Document(ctx, id, version)
	if err != nil {
		return nil, err
	}
	return s.registry.ParseTask(d, ParseOptions{Stored: true})
}

// Document returns a version of a task as it stands in the store, whoever wrote it and whatever it holds, the newest for version 0;
// a NotFound error when there is none. The caller may change it.
func (s *Tasks) Document(ctx context.Context, id string, version int64) (*doc.Object, error) {
	ctx = store.WithRunScope(ctx, id)
	f := document.By("id", id)
	name := "Task " + id
	if version > 0 {
		f = f.And("version", document.Eq, doc.Int(version))
		name += " version=" + string(doc.Int(version))
	}
	d, err := s.docs.FindOne(ctx, collTasks, f, document.Sort{Path: "version", Desc: true})
	if err != nil {
		return nil, err
	}
	if d == nil {
		return nil, fault.New(fault.NotFound, "%s not found", name)
	}
	return d, nil
}

// Latest returns the newest version of a task that is stored, 0 when there is none.
func (s *Tasks) Latest(ctx context.Context, id string) (int64, error) {
	return s.docs.LatestVersion(store.WithRunScope(ctx, id), collTasks, id)
}

// Versions returns the versions of a task, the newest first.
func (s *Tasks) Versions(ctx context.Context, id string) ([]int64, error) {
	docs, err := s.docs.Query(store.WithRunScope(ctx, id), collTasks, document.Query{Filter: document.By("id", id), Sort: []document.Sort{{Path: "version", Desc: true}}})
	if err != nil {
		return nil, err
	}
	var all []int64
	for _, d := range docs {
		if v, ok := d.Int("version"); ok {
			all = append(all, v)
		}
	}
	return all, nil
}

// List returns the newest version of each task as it stands in the store, sorted by id, and how many there are before the cut. A
// document of another type is left out, with a warning.
func (s *Tasks) List(ctx context.Context, limit, offset int) (page []*doc.Object, total int, err error) {
	docs, total, err := s.docs.LatestPerID(ctx, collTasks, document.LatestQuery{Query: document.Query{Sort: []document.Sort{{Path: "id"}}, Limit: limit, Offset: offset}})
	if err != nil {
		return nil, 0, err
	}
	for _, d := range docs {
		if typ := d.Value("type"); typ != "task" {
			s.log.Warn("a stored document is no task and is left out", "task", d.Str("id"), "type", typ)
			continue
		}
		page = append(page, d)
	}
	return page, total, nil
}
