package agent

import (
	"context"
	"sync"
	"time"

	"agentenv/store"
	"agentenv/store/document"
)

// indexes declares the indexes of a collection of records once in each namespace. Safe for concurrent use.
type indexes struct {
	coll string
	list []document.Index

	mu   sync.Mutex
	done map[bool]bool // by whether it is the local namespace
}

// ensure returns the scope in which the records of an owner are written, with the collection's indexes declared there.
func (ix *indexes) ensure(ctx context.Context, docs document.Store, owner string) (context.Context, error) {
	ctx = store.WithRunScope(ctx, owner)
	local := store.InLocalRun(ctx)
	ix.mu.Lock()
	defer ix.mu.Unlock()
	if ix.done[local] {
		return ctx, nil
	}
	placed := document.Placed(ctx, docs, owner)
	for _, index := range ix.list {
		if err := placed.EnsureIndex(ctx, ix.coll, index); err != nil {
			return ctx, err
		}
	}
	if ix.done == nil {
		ix.done = map[bool]bool{}
	}
	ix.done[local] = true
	return ctx, nil
}

const minuteForm = "2006-01-02 15:04 UTC"

func preciseTime(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000000+00:00") }
