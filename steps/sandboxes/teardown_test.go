package sandboxes

import (
	"context"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"agentenv/sandbox"
	"agentenv/store/doc"
	"agentenv/task"
)

// ending is a provider that notes what it ends.
type ending struct {
	sandbox.Provider
	mu    sync.Mutex
	notes []string
}

func (e *ending) note(s string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.notes = append(e.notes, s)
}

func (e *ending) Name() string { return "ending" }
func (e *ending) Close() error { return nil }

func (e *ending) Terminate(_ context.Context, id string) error {
	e.note("end " + id)
	return nil
}

// TestTeardownSavesFirst has what an agent holds saved before its sandbox ends, and only then.
func TestTeardownSavesFirst(t *testing.T) {
	t.Parallel()
	p := &ending{}
	m, err := sandbox.NewManager(sandbox.Config{Providers: []sandbox.Provider{p}, Default: "ending", Ledger: sandbox.OpenLedger(filepath.Join(t.TempDir(), "ledger.db"))})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	drain := func(_ context.Context, recorded *doc.Object, id string) {
		p.note("save " + id + " of " + recorded.Obj("metadata").Str("mark"))
	}
	reg, err := task.NewRegistry(Types(Deps{Sandboxes: m, Drain: drain})...)
	if err != nil {
		t.Fatal(err)
	}
	tk, err := reg.ParseText("t", []byte(`[{"id":"down","type":"teardown_sandboxes","agent_names":["solver"]}]`), task.ParseOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var agents []any
	for _, name := range []string{"solver", "other"} {
		agents = append(agents, doc.Of("agent_name", name, "sandbox_id", name+"-1", "sandbox_type", "ending"))
	}
	at := task.NewContext().Set("deployed_agents", agents).Set("metadata", doc.Of("mark", "this"))
	r := task.NewRun("down", tk.Steps[0].Type, at, nil, nil)
	if err := tk.Steps[0].Action.Execute(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(p.notes, ", "); got != "save solver-1 of this, end solver-1" || doc.Canonical(r.Metadata("torn_down_sandbox_ids")) != `["solver-1"]` {
		t.Errorf("%s, %v", got, r.Metadata("torn_down_sandbox_ids"))
	}
}
