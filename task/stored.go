package task

import (
	"context"
	"sync"
	"time"

	"agentenv/store"
	"agentenv/store/document"
)

// The collections of tasks and their runs. collHeads is ours: one small document for each run in progress, which carries the
// fence and the sequence of its journal, so that a step's commit never touches the instance document, however large.
const (
	collTasks     = "tasks"
	collSteps     = "task_steps"
	collInstances = "task_instances"
	collJournal   = "task_step_journal"
	collHeads     = "task_run_heads"
	collReviews   = "task_reviews"
)

var collIndexes = map[string][]document.Index{
	collTasks: {{Fields: []string{"id", "version"}, Unique: true}, {Fields: []string{"type"}}},
	collSteps: {{Fields: []string{"id", "version"}, Unique: true}, {Fields: []string{"type"}}},
	collInstances: {
		{Fields: []string{"instance_id"}, Unique: true}, {Fields: []string{"task_id"}},
		{Fields: []string{"task_id", "created_at_utc", "instance_id"}},
		{Fields: []string{"task_id", "task_version", "created_at_utc", "instance_id"}},
	},
	collJournal: {{Fields: []string{"instance_id", "step_id"}, Unique: true}, {Fields: []string{"instance_id", "seq"}}},
	collHeads:   {{Fields: []string{"instance_id"}, Unique: true}},
	collReviews: {{Fields: []string{"instance_id", "step_id"}, Unique: true}, {Fields: []string{"expires_at"}, Expires: true}},
}

// indexes declares the indexes of collections on first use, once for the private namespace and once for the rest.
type indexes struct {
	docs document.Store
	mu   sync.Mutex
	done map[string]bool
}

// ensure returns the store in which the records of an entity or a run live, with its indexes declared, and the scope in
// which to write there.
func (ix *indexes) ensure(ctx context.Context, id string, colls ...string) (context.Context, document.Store, error) {
	ctx = store.WithRunScope(ctx, id)
	docs := document.Placed(ctx, ix.docs, id)
	ix.mu.Lock()
	defer ix.mu.Unlock()
	if ix.done == nil {
		ix.done = map[string]bool{}
	}
	for _, coll := range colls {
		key := coll
		if store.InLocalRun(ctx) || store.IsLocal(id) {
			key = store.LocalPrefix + coll
		}
		if ix.done[key] {
			continue
		}
		for _, index := range collIndexes[coll] {
			if err := docs.EnsureIndex(ctx, coll, index); err != nil {
				return ctx, nil, err
			}
		}
		ix.done[key] = true
	}
	return ctx, docs, nil
}

func minuteTime(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 UTC") }

func preciseTime(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000000+00:00") }
