package task

import (
	"context"
	"slices"
	"time"

	"agentenv/fault"
	"agentenv/store"
	"agentenv/store/doc"
	"agentenv/store/document"
)

// Instance is the record of one run.
type Instance struct {
	ID          string
	TaskID      string
	TaskVersion int64
	TotalSteps  int
	CurrentStep int
	Status      string // running, completed, failed or cancelled
	Class       Class  // how it ended; "" while it runs, and for runs recorded without one
	Error       string
	CreatedAt   string // minute precision
	CompletedAt string
	Completed   []Completion // in the order of their commits
	Owner       *doc.Object  // the process that runs it; nil when it has ended or nobody is named
	Context     *doc.Object  // without secrets
	Document    *doc.Object  // as stored, with the rows that it lacked folded in
}

// isRunOf refuses, with a Conflict, a task that is not the one of the run.
func (in *Instance) isRunOf(t *Task) error {
	if in.TaskID == t.ID && in.TaskVersion == t.Version {
		return nil
	}
	return fault.New(fault.Conflict, "Instance %s is a run of %s v%d, not of %s v%d", in.ID, in.TaskID, in.TaskVersion, t.ID, t.Version)
}

// Completion is a step that ended with a record of its own.
type Completion struct {
	StepID string
	Status string // success or failure
	Class  Class  // "" when the run was recorded without classes
}

// Row is one journal row.
type Row struct {
	StepID     string // a step's id, or __seed__, __scheduler__
	Seq        int64
	Generation int64
	Status     string
	StartedAt  string // "" for rows that no step has, and those of the reference
	RecordedAt string
	Ops        *doc.Object
}

// class is how the step of a row did.
func (r Row) class() Class {
	switch c := Class(r.Ops.Str("outcome_class")); {
	case r.Status == "success":
		return Passed
	case c != "":
		return c
	}
	return Failed
}

// Undone returns the attempts of steps that ended and were undone by a retry or a resume, as far as their times are kept: rows without
// effects, the oldest first.
func (in *Instance) Undone() []Row {
	var all []Row
	for _, o := range objects(in.Document, "undone_attempts") {
		all = append(all, Row{StepID: o.Str("step_id"), Status: o.Str("status"), StartedAt: o.Str("started_at"), RecordedAt: o.Str("recorded_at")})
	}
	return all
}

// Instances reads the records of runs, and closes those that nobody runs. It is safe for concurrent use.
type Instances struct {
	docs    document.Store
	indexes *indexes
}

// NewInstances returns the records of a document store.
func NewInstances(docs document.Store) *Instances {
	return &Instances{docs: docs, indexes: &indexes{docs: docs}}
}

// Get returns the record of a run, as of the last step that was committed; a NotFound error when there is none.
func (s *Instances) Get(ctx context.Context, id string) (*Instance, error) {
	in, err := s.Find(ctx, id)
	if err == nil && in == nil {
		return nil, fault.New(fault.NotFound, "TaskInstance '%s' not found", id)
	}
	return in, err
}

// Find is Get that returns nil when there is none.
func (s *Instances) Find(ctx context.Context, id string) (*Instance, error) {
	ctx = store.WithRunScope(ctx, id)
	d, err := s.docs.FindOne(ctx, collInstances, document.By("instance_id", id))
	if err != nil || d == nil {
		return nil, err
	}
	if d, err = s.foldIn(ctx, d); err != nil {
		return nil, err
	}
	return s.owned(ctx, instanceFrom(d))
}

// owned fills in who runs a run that goes on.
func (s *Instances) owned(ctx context.Context, in *Instance) (*Instance, error) {
	if in.Status != "running" {
		return in, nil
	}
	head, err := s.docs.FindOne(store.WithRunScope(ctx, in.ID), collHeads, document.By("instance_id", in.ID))
	in.Owner = head.Obj("owner")
	return in, err
}

// foldIn adds the rows that were committed after the document of a run in progress, or of one that died, was written.
func (s *Instances) foldIn(ctx context.Context, d *doc.Object) (*doc.Object, error) {
	if d.Str("status") != "running" {
		return d, nil
	}
	seq, _ := d.Int("journal_seq")
	generation, _ := d.Int("run_generation")
	rows, err := rowsOf(ctx, s.docs, document.By("instance_id", d.Str("instance_id"), "generation", doc.Int(generation)).And("seq", document.Gte, doc.Int(seq+1)))
	if err != nil || len(rows) == 0 {
		return d, err
	}
	context, entries := d.Obj("context"), d.Arr("completed_steps")
	if context == nil {
		context = NewContext()
	}
	rev, _ := d.Int("rev")
	outcomes := d.Obj("step_outcomes").Clone()
	for _, row := range rows {
		delta, err := decodeDelta(row.Ops)
		if err != nil {
			return nil, fault.At(err, "instance %s, step %q", d.Str("instance_id"), row.StepID)
		}
		context = delta.apply(context)
		seq = row.Seq
		if row.Status != "success" && row.Status != "failure" {
			continue
		}
		entries = append(entries[:len(entries):len(entries)], completedEntry(row.StepID, row.Status))
		outcomes.Set(row.StepID, string(row.class()))
		rev++
	}
	return d.Clone().Set("context", context).Set("completed_steps", entries).Set("current_step", doc.Int(len(entries))).
		Set("journal_seq", doc.Int(seq)).Set("rev", doc.Int(rev)).Set("step_outcomes", outcomes), nil
}

// Journal returns the rows of an instance's current generation in the order of their commits; none for an unknown instance.
func (s *Instances) Journal(ctx context.Context, id string) ([]Row, error) {
	ctx = store.WithRunScope(ctx, id)
	d, err := s.docs.FindOne(ctx, collInstances, document.By("instance_id", id))
	if err != nil || d == nil {
		return nil, err
	}
	generation, _ := d.Int("run_generation")
	return rowsOf(ctx, s.docs, document.By("instance_id", id, "generation", doc.Int(generation)))
}

// rowsOf returns rows in the order in which they are replayed: the seed, the scheduler's own, the steps' as they were committed.
func rowsOf(ctx context.Context, docs document.Store, f document.Filter) ([]Row, error) {
	found, err := docs.Query(ctx, collJournal, document.Query{Filter: f, Sort: []document.Sort{{Path: "seq"}}})
	if err != nil {
		return nil, err
	}
	rows := make([]Row, len(found))
	for i, d := range found {
		rows[i] = Row{StepID: d.Str("step_id"), Status: d.Str("status"), RecordedAt: d.Str("recorded_at"), Ops: d.Obj("ops")}
		rows[i].StartedAt = rows[i].Ops.Str("started_at")
		rows[i].Seq, _ = d.Int("seq")
		rows[i].Generation, _ = d.Int("generation")
	}
	rank := map[string]int{seedRow: -2, schedulerRow: -1}
	slices.SortStableFunc(rows, func(a, b Row) int { return rank[a.StepID] - rank[b.StepID] })
	return rows, nil
}

// Replay returns the context that rows amount to when applied in the order given; Journal returns them in that order.
func Replay(rows []Row) (*doc.Object, error) {
	c := NewContext()
	for _, row := range rows {
		d, err := decodeDelta(row.Ops)
		if err != nil {
			return nil, fault.At(err, "step %q", row.StepID)
		}
		c = d.apply(c)
	}
	return c, nil
}

// ListQuery selects runs, the newest first. The zero value of a field means all.
type ListQuery struct {
	TaskID        string
	Version       int64
	Status        string
	Class         Class
	Group         string    // metadata.run_group_id
	Since, Until  time.Time // when it began, to the minute
	Limit, Offset int
}

func (q ListQuery) filter() document.Filter {
	var f document.Filter
	for path, v := range map[string]string{"task_id": q.TaskID, "status": q.Status, "outcome_class": string(q.Class), "context.metadata.run_group_id": q.Group} {
		if v != "" {
			f = f.And(path, document.Eq, v)
		}
	}
	if q.Version > 0 {
		f = f.And("task_version", document.Eq, doc.Int(q.Version))
	}
	if !q.Since.IsZero() {
		f = f.And("created_at_utc", document.Gte, minuteTime(q.Since))
	}
	if !q.Until.IsZero() {
		f = f.And("created_at_utc", document.Lte, minuteTime(q.Until))
	}
	return f
}

// List returns runs, the newest first; pages never overlap. The context of a run in progress may lag by a second.
func (s *Instances) List(ctx context.Context, q ListQuery) ([]*Instance, error) {
	if q.TaskID != "" {
		var err error
		if ctx, _, err = s.indexes.ensure(ctx, q.TaskID, collInstances); err != nil {
			return nil, err
		}
	}
	sort := []document.Sort{{Path: "created_at_utc", Desc: true}, {Path: "instance_id", Desc: true}}
	if q.TaskID == "" { // many tasks begin within a minute
		sort = slices.Insert(sort, 1, document.Sort{Path: "created_at_precise_utc", Desc: true})
	}
	docs, err := s.docs.Query(ctx, collInstances, document.Query{Filter: q.filter(), Limit: q.Limit, Offset: q.Offset, Sort: sort})
	if err != nil {
		return nil, err
	}
	all := make([]*Instance, len(docs))
	for i, d := range docs {
		if all[i], err = s.owned(ctx, instanceFrom(d)); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// Count returns how many runs List would return without a limit.
func (s *Instances) Count(ctx context.Context, q ListQuery) (int, error) {
	return s.docs.Count(store.WithRunScope(ctx, q.TaskID), collInstances, q.filter())
}

// BatchUniverses returns the ids of the sets of files that the runs of a batch collected, in the order of the runs' creation,
// each once.
func (s *Instances) BatchUniverses(ctx context.Context, batch string) ([]string, error) {
	docs, err := s.docs.Query(ctx, collInstances, document.Query{Filter: document.By("context.metadata.batch_id", batch)})
	if err != nil {
		return nil, err
	}
	document.SortDocs(docs, []document.Sort{{Path: "created_at_utc"}, {Path: "instance_id"}})
	var ids []string
	for _, d := range docs {
		id := d.Obj("context").Obj("metadata").Obj("file_artifact_universe").Str("id")
		if id != "" && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

func instanceFrom(d *doc.Object) *Instance {
	in := &Instance{ID: d.Str("instance_id"), TaskID: d.Str("task_id"), Status: d.Str("status"), Class: Class(d.Str("outcome_class")),
		Error: d.Str("error"), CreatedAt: d.Str("created_at_utc"), CompletedAt: d.Str("completed_at_utc"), Context: d.Obj("context"), Document: d}
	in.TaskVersion, _ = d.Int("task_version")
	total, _ := d.Int("total_steps")
	current, _ := d.Int("current_step")
	in.TotalSteps, in.CurrentStep = int(total), int(current)
	classes := d.Obj("step_outcomes")
	for _, o := range objects(d, "completed_steps") {
		in.Completed = append(in.Completed, Completion{o.Str("step_id"), o.Str("status"), Class(classes.Str(o.Str("step_id")))})
	}
	return in
}
