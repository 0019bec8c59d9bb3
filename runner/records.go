package runner

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"slices"
	"sync"
	"time"

	"agentenv/fault"
	"agentenv/sandbox"
	"agentenv/store"
	"agentenv/store/doc"
	"agentenv/store/document"
	"agentenv/task"
)

const collRuns = "runs"

// The first two are the reference's. `cancel` is there only while a request to cancel waits, so its index stays tiny.
var runIndexes = []document.Index{
	{Fields: []string{"run_id"}, Unique: true}, {Fields: []string{"task_id", "created_at_utc"}},
	{Fields: []string{"instance_id"}}, {Fields: []string{"runner", "status", "created_at_utc"}}, {Fields: []string{"created_at_utc"}}, {Fields: []string{"cancel"}},
}

// openLimit bounds how many records that have not ended are read at once.
const openLimit = 100_000

// Records keeps the collection `runs`: every change of a record is one conditional update, so that of several processes one wins, and
// the first terminal status stays. It writes in the name of one process and is safe for concurrent use.
type Records struct {
	docs document.Store
	self sandbox.Process
	now  func() time.Time

	mu      sync.Mutex
	indexed map[bool]bool // by whether it is the store of @local tasks
}

// NewRecords returns the records of a store, for the process self; now is the clock (nil: time.Now).
func NewRecords(docs document.Store, self sandbox.Process, now func() time.Time) *Records {
	if now == nil {
		now = time.Now
	}
	return &Records{docs: docs, self: self, now: now, indexed: map[bool]bool{}}
}

// scope returns the store that holds the records of a task, and the scope to write in; the indexes are declared there.
func (s *Records) scope(ctx context.Context, taskID string) (context.Context, document.Store, error) {
	ctx = store.WithRunScope(ctx, taskID)
	docs := document.Placed(ctx, s.docs, taskID)
	local := store.InLocalRun(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.indexed[local] {
		return ctx, docs, nil
	}
	for _, ix := range runIndexes {
		if err := docs.EnsureIndex(ctx, collRuns, ix); err != nil {
			return ctx, nil, err
		}
	}
	s.indexed[local] = true
	return ctx, docs, nil
}

// ready declares the indexes for reads of both stores.
func (s *Records) ready(ctx context.Context) error {
	for _, id := range []string{"", store.LocalPrefix} {
		if _, _, err := s.scope(ctx, id); err != nil {
			return err
		}
	}
	return nil
}

func newRunID() string {
	var b [16]byte
	rand.Read(b[:]) // never fails
	return "local-" + hex.EncodeToString(b[:])
}

// IsRunID reports whether a text has the form of a run's id.
func IsRunID(id string) bool {
	const prefix = "local-"
	if len(id) != len(prefix)+32 || id[:len(prefix)] != prefix {
		return false
	}
	b, err := hex.DecodeString(id[len(prefix):])
	return err == nil && hex.EncodeToString(b) == id[len(prefix):]
}

// NewRecord returns the record of a request that is not stored yet. What it must not store of the request is left out, and Withheld says so.
func NewRecord(runnerType string, req Request) *Record {
	if group := req.Context.Obj("metadata").Str("run_group_id"); group != "" && req.Metadata.Str("run_group_id") == "" {
		req.Metadata = req.Metadata.Clone().Set("run_group_id", group) // by which records are found
	}
	return &Record{Runner: runnerType, TaskID: req.TaskID, TaskVersion: req.TaskVersion, Instance: req.Instance, Status: Queued,
		Overrides: overrides(req), Context: req.Context, Limits: req.Limits, Withheld: len(RawSecrets(req)) > 0}
}

// Add stores a new record, queued or running as its Status says, and fills in its id and times. mine makes this process its owner, so that
// no other takes it. When it fails, nothing is stored.
func (s *Records) Add(ctx context.Context, r *Record, mine bool) error {
	return s.AddAll(ctx, []*Record{r}, mine)
}

// addedAtOnce bounds how many records one commit stores: others wait for it.
const addedAtOnce = 2000

// AddAll is Add for many records, up to 2,000 by one commit. They are queued in the order given. When it fails, none of them is stored; a process
// that is killed meanwhile may leave those of earlier commits.
func (s *Records) AddAll(ctx context.Context, all []*Record, mine bool) error {
	at := s.now()
	bySide := map[bool][]*Record{}
	for i, r := range all {
		r.ID, r.Created = newRunID(), stamp(at.Add(time.Duration(i)*time.Microsecond)) // by which the queue is ordered
		if r.Status == Running {
			r.Started = r.Created
		}
		if mine {
			r.Owner = s.owner()
		}
		r.Document = r.document()
		bySide[store.IsLocal(r.TaskID)] = append(bySide[store.IsLocal(r.TaskID)], r)
	}
	var stored []*Record
	for _, side := range bySide {
		for records := range slices.Chunk(side, addedAtOnce) {
			if err := s.insert(ctx, records); err != nil {
				for _, r := range stored {
					err = errors.Join(err, s.drop(context.WithoutCancel(ctx), r))
				}
				return err
			}
			stored = append(stored, records...)
		}
	}
	return nil
}

// insert stores records of one store, all or none.
func (s *Records) insert(ctx context.Context, records []*Record) error {
	ctx, docs, err := s.scope(ctx, records[0].TaskID)
	if err != nil {
		return err
	}
	return docs.Transact(ctx, func(tx document.Store) error {
		for _, r := range records {
			if err := tx.Insert(ctx, collRuns, r.Document); err != nil {
				return fault.At(err, "the run of %s cannot be recorded", r.TaskID)
			}
		}
		return nil
	})
}

// drop takes a record away that was stored with others of which one could not be.
func (s *Records) drop(ctx context.Context, r *Record) error {
	ctx, docs, err := s.scope(ctx, r.TaskID)
	if err == nil {
		_, err = docs.Delete(ctx, collRuns, document.By("run_id", r.ID))
	}
	return err
}

// Get returns a record by the id of its run, nil when there is none.
func (s *Records) Get(ctx context.Context, run string) (*Record, error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	d, err := s.docs.FindOne(ctx, collRuns, document.By("run_id", run))
	return recordFrom(d), err
}

// newestFirst orders records; those of one moment by their ids.
var newestFirst = []document.Sort{{Path: "created_at_utc", Desc: true}, {Path: "run_id", Desc: true}}

// OfInstance returns the newest record of an instance, nil when there is none.
func (s *Records) OfInstance(ctx context.Context, instance string) (*Record, error) {
	found, err := s.OfInstances(ctx, []string{instance})
	return found[instance], err
}

// OfInstances returns the newest record of each instance that has one.
func (s *Records) OfInstances(ctx context.Context, instances []string) (map[string]*Record, error) {
	out := map[string]*Record{}
	if len(instances) == 0 {
		return out, nil
	}
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	ids := make([]any, len(instances))
	for i, id := range instances {
		ids[i] = id
	}
	docs, err := s.docs.Query(ctx, collRuns, document.Query{Filter: document.Filter{{Path: "instance_id", Op: document.In, Value: ids}}})
	if err != nil {
		return nil, err
	}
	document.SortDocs(docs, newestFirst)
	for _, d := range docs {
		if id := d.Str("instance_id"); out[id] == nil {
			out[id] = recordFrom(d)
		}
	}
	return out, nil
}

// Query selects records, the newest first. The zero value of a field means all.
type Query struct {
	Runner, TaskID string
	Instance       string
	Group          string // metadata.run_group_id that it was submitted with
	Status         []Status
	Class          task.Class
	Since, Until   time.Time // when it was recorded
	Limit          int
}

// List returns the records that match, of every runner, the newest first.
func (s *Records) List(ctx context.Context, q Query) ([]*Record, error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	var f document.Filter
	for path, v := range map[string]string{"runner": q.Runner, "task_id": q.TaskID, "instance_id": q.Instance, "overrides.metadata.run_group_id": q.Group, "outcome_class": string(q.Class)} {
		if v != "" {
			f = f.And(path, document.Eq, v)
		}
	}
	if len(q.Status) > 0 {
		f = f.And("status", document.In, statuses(q.Status))
	}
	if !q.Since.IsZero() {
		f = f.And("created_at_utc", document.Gte, stamp(q.Since))
	}
	if !q.Until.IsZero() {
		f = f.And("created_at_utc", document.Lte, stamp(q.Until))
	}
	return s.query(ctx, document.Query{Filter: f, Sort: newestFirst, Limit: q.Limit})
}

func (s *Records) query(ctx context.Context, q document.Query) ([]*Record, error) {
	docs, err := s.docs.Query(ctx, collRuns, q)
	if err != nil {
		return nil, err
	}
	all := make([]*Record, len(docs))
	for i, d := range docs {
		all[i] = recordFrom(d)
	}
	return all, nil
}

func statuses(list []Status) []any {
	out := make([]any, len(list))
	for i, s := range list {
		out[i] = string(s)
	}
	return out
}

// Waiting returns queued records of a runner that nobody owns, the oldest first.
func (s *Records) Waiting(ctx context.Context, runnerType string, limit int) ([]*Record, error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	return s.query(ctx, document.Query{Filter: document.By("runner", runnerType, "status", string(Queued)).And("owner", document.AbsentOrNull, nil),
		Sort: []document.Sort{{Path: "created_at_utc"}, {Path: "run_id"}}, Limit: limit})
}

// Orphans returns records of a runner that have not ended and that nobody runs: their owner is gone, or handed them back. The oldest come first.
func (s *Records) Orphans(ctx context.Context, runnerType string) ([]*Record, error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	var all []*Record
	for _, status := range []Status{Running, Queued} {
		found, err := s.query(ctx, document.Query{Filter: document.By("runner", runnerType, "status", string(status)),
			Sort: []document.Sort{{Path: "created_at_utc"}, {Path: "run_id"}}, Limit: openLimit})
		if err != nil {
			return nil, err
		}
		alive := map[string]bool{} // by owner: each process is looked at once
		for _, r := range found {
			who := doc.Canonical(r.Owner)
			if r.Owner == nil {
				who = ""
			}
			lives, asked := alive[who]
			if !asked {
				lives = s.Alive(r.Owner)
				alive[who] = lives
			}
			if !lives && (status == Running || r.Owner != nil) {
				all = append(all, r)
			}
		}
	}
	return all, nil
}

// CancelRequests returns the records whose owner is asked to cancel them.
func (s *Records) CancelRequests(ctx context.Context) ([]*Record, error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	return s.query(ctx, document.Query{Filter: document.Filter{{Path: "cancel", Op: document.Gte, Value: ""}}})
}
