package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"agentenv/fault"
	"agentenv/sandbox"
	"agentenv/store/doc"
	"agentenv/task"
)

// odd is a provider whose sandboxes end as their ids say: fails-1 never, hangs-1 only with its context, any other at once.
type odd struct {
	sandbox.Provider
	mu     sync.Mutex
	called []string
}

func (o *odd) Name() string { return "odd" }
func (o *odd) Close() error { return nil }

func (o *odd) Terminate(ctx context.Context, id string) error {
	o.mu.Lock()
	o.called = append(o.called, id)
	o.mu.Unlock()
	switch {
	case strings.HasPrefix(id, "fails"):
		return fault.New(fault.Unavailable, "it does not let go of %s", id)
	case strings.HasPrefix(id, "hangs"):
		<-ctx.Done()
		return ctx.Err()
	}
	return nil
}

// TestTeardownOfOddSandboxes: one that fails and one that hangs are named with the reason, while the others end; what was torn down before is
// not looked at again.
func TestTeardownOfOddSandboxes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &odd{}
		m, err := sandbox.NewManager(sandbox.Config{Providers: []sandbox.Provider{p}, Default: "odd", Ledger: sandbox.OpenLedger(filepath.Join(t.TempDir(), "sandboxes.db"))})
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		recorded := func(torn ...any) *doc.Object {
			var list []any
			for _, id := range []string{"fails-1", "hangs-1", "fine-1", "fine-2", "before-1"} {
				list = append(list, doc.Of("sandbox_name", id, "sandbox_id", id, "sandbox_mode", "vm", "sandbox_type", "odd"))
			}
			return task.NewContext().Set("deployed_sandboxes", list).Set("metadata", doc.Of("torn_down_sandbox_ids", torn))
		}
		began := time.Now()
		report := teardown{sandboxes: m}.Teardown(t.Context(), "t-1", recorded("before-1"))
		if took := time.Since(began); took < 120*time.Second || took > 125*time.Second {
			t.Errorf("it took %s", took)
		}
		var got []string
		for _, s := range report.Ended {
			got = append(got, s.ID)
		}
		for _, s := range report.Left {
			got = append(got, s.ID+": "+s.Why)
		}
		if want := "fine-1, fine-2, fails-1: it does not let go of fails-1, hangs-1: timed out after 120s"; strings.Join(got, ", ") != want {
			t.Errorf("%s\nwant\n%s", strings.Join(got, ", "), want)
		}
		p.called = nil
		report = teardown{sandboxes: m}.Teardown(t.Context(), "t-1", recorded("before-1", "fine-1", "fine-2", "hangs-1", "fails-1"))
		if len(report.Ended)+len(report.Left) > 0 || len(p.called) > 0 {
			t.Errorf("torn down again: %+v, %v", report, p.called)
		}
		// A teardown that is stopped tries nothing, and names what is left.
		ctx, stop := context.WithCancel(t.Context())
		stop()
		if report = (teardown{sandboxes: m}).Teardown(ctx, "t-1", recorded()); len(report.Left) != 5 || len(p.called) > 0 || fmt.Sprint(report.Left[0].Why) != "the teardown was stopped" {
			t.Errorf("stopped: %+v, %v", report, p.called)
		}
	})
}

// forgetful is a provider that knows no pruned sandbox and cannot tell of others.
type forgetful struct{ sandbox.Provider }

func (forgetful) Name() string { return "forgetful" }
func (forgetful) Close() error { return nil }

func (forgetful) Attach(_ context.Context, id string) (sandbox.Machine, error) {
	if strings.HasPrefix(id, "pruned") {
		return nil, fault.New(fault.NotFound, "there is no sandbox %s", id)
	}
	return nil, fault.New(fault.Unavailable, "it does not answer")
}

// TestPrunedSandboxesAreNotUp describes what a run left: a sandbox that is gone although the record names it, and one that nobody can tell of.
func TestPrunedSandboxesAreNotUp(t *testing.T) {
	t.Parallel()
	m, err := sandbox.NewManager(sandbox.Config{Providers: []sandbox.Provider{forgetful{}}, Default: "forgetful", Ledger: sandbox.OpenLedger(filepath.Join(t.TempDir(), "sandboxes.db"))})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	var list []any
	for _, id := range []string{"pruned-1", "other-1"} {
		list = append(list, doc.Of("sandbox_name", id, "sandbox_id", id, "sandbox_mode", "vm", "sandbox_type", "forgetful"))
	}
	up := teardown{sandboxes: m}.Describe(t.Context(), "t-1", task.NewContext().Set("deployed_sandboxes", list))
	if len(up) != 1 || up[0].ID != "other-1" {
		t.Errorf("still up: %+v", up)
	}
}

// TestTeardownSavesFirst has what agents hold saved before their sandboxes end, by the context of the run.
func TestTeardownSavesFirst(t *testing.T) {
	t.Parallel()
	p := &odd{}
	m, err := sandbox.NewManager(sandbox.Config{Providers: []sandbox.Provider{p}, Default: "odd", Ledger: sandbox.OpenLedger(filepath.Join(t.TempDir(), "sandboxes.db"))})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	recorded := task.NewContext().Set("deployed_agents", []any{doc.Of("agent_name", "solver", "sandbox_id", "fine-1", "sandbox_type", "odd")})
	drain := func(_ context.Context, of *doc.Object, sandbox string) {
		p.mu.Lock()
		defer p.mu.Unlock()
		if of != recorded {
			t.Error("another context")
		}
		p.called = append(p.called, "save "+sandbox)
	}
	report := teardown{sandboxes: m, drain: drain}.Teardown(t.Context(), "t-1", recorded)
	if got := strings.Join(p.called, ", "); got != "save fine-1, fine-1" || len(report.Ended) != 1 {
		t.Errorf("%s, %+v", got, report)
	}
}
