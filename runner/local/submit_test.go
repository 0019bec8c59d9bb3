package local_test

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"agentenv/fault"
	"agentenv/runner"
	"agentenv/runner/local"
	"agentenv/runner/runnertest"
	"agentenv/sandbox"
	"agentenv/store/doc"
	"agentenv/store/document"
)

// commits counts the transactions of a store, and ends the n-th insert of one with an error.
type commits struct {
	document.Store
	n      atomic.Int64
	failAt int64 // 0 = never
	insert atomic.Int64
}

func (c *commits) Transact(ctx context.Context, fn func(document.Store) error) error {
	c.n.Add(1)
	return c.Store.Transact(ctx, func(tx document.Store) error { return fn(&inTransaction{tx, c}) })
}

type inTransaction struct {
	document.Store
	c *commits
}

func (i *inTransaction) Insert(ctx context.Context, coll string, d *doc.Object) error {
	if i.c.insert.Add(1) == i.c.failAt {
		return fault.New(fault.Unavailable, "the disk is full")
	}
	return i.Store.Insert(ctx, coll, d)
}

// TestManyRunsAreOneCommit submits 300 runs: one transaction, in the order given, all or none.
func TestManyRunsAreOneCommit(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.process(sandbox.Process{})
	id := p.task(runnertest.Nothing("a"))
	requests := make([]runner.Request, 300)
	for i := range requests {
		requests[i] = runner.Request{TaskID: id, Metadata: doc.Of("n", doc.Int(i))}
	}
	for _, c := range []struct {
		name   string
		failAt int64
		last   runner.Request
		why    string
		stored int
	}{
		{"a full disk", 200, requests[299], "the disk is full", 0},
		{"no such task", 0, runner.Request{TaskID: "ghost"}, "request 300 of 300: Task ghost not found", 0},
		{"a secret itself", 0, runner.Request{TaskID: id, Metadata: doc.Of("litellm_api_key", "sk-raw")}, "request 300 of 300: metadata.litellm_api_key", 0},
		{"all", 0, requests[299], "", 300},
	} {
		counted := &commits{Store: p.docs, failAt: c.failAt}
		deps := p.deps
		deps.Records = runner.NewRecords(counted, sandbox.ThisProcess(), nil)
		r := local.New(deps, local.Config{})
		handles, err := r.SubmitAll(t.Context(), append(slices.Clone(requests[:299]), c.last))
		if c.why == "" && (err != nil || counted.n.Load() != 1) || c.why != "" && (err == nil || !strings.Contains(err.Error(), c.why)) {
			t.Errorf("%s: %v, %d commits", c.name, err, counted.n.Load())
		}
		waiting, err := p.records.Waiting(t.Context(), runner.LocalType, 0)
		if err != nil || len(waiting) != c.stored || len(handles) != c.stored {
			t.Fatalf("%s: %d wait, %d handles, %v", c.name, len(waiting), len(handles), err)
		}
		for i, rec := range waiting {
			if n, _ := rec.Overrides.Obj("metadata").Int("n"); int(n) != i || rec.ID != handles[i].Run || rec.Instance != handles[i].Instance {
				t.Fatalf("the %d-th is %+v", i, rec)
			}
		}
	}
}
