package sandbox_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"

	"agentenv/fault"
	"agentenv/sandbox"
)

// house is a backend whose machines expose port 8000 and run a container beside the host.
type house struct {
	*backend
	fails error  // of what is to be started beside
	after func() // once it is started
	lock  sync.Mutex
	now   map[string]bool // containers that run
	ended []string
}

func newHouse() *house {
	return &house{backend: newBackend("fake", sandbox.VM, sandbox.Container), now: map[string]bool{}}
}

type exposing struct{ sandbox.Machine }

func (e exposing) Info() sandbox.Info {
	i := e.Machine.Info()
	i.TunnelURLs = map[string]string{"8000": "http://127.0.0.1:1", "9": "http://127.0.0.1:2"}
	return i
}

func (h *house) Create(ctx context.Context, id string, s sandbox.Spec) (sandbox.Machine, error) {
	m, err := h.backend.Create(ctx, id, s)
	return exposing{m}, err
}

func (h *house) Attach(ctx context.Context, id string) (sandbox.Machine, error) {
	m, err := h.backend.Attach(ctx, id)
	return exposing{m}, err
}

func (h *house) RunBeside(_ context.Context, id string, _ sandbox.Spec) error {
	h.lock.Lock()
	defer h.lock.Unlock()
	if h.fails != nil {
		return h.fails
	}
	h.now[id] = true
	if h.after != nil {
		h.after()
	}
	return nil
}

func (h *house) EndBeside(_ context.Context, id string) error {
	h.lock.Lock()
	defer h.lock.Unlock()
	delete(h.now, id)
	h.ended = append(h.ended, id)
	return nil
}

// boxWith deploys a sandbox of a run, and says what a step that deploys an agent onto it asks for.
func boxWith(t *testing.T, m *sandbox.Manager) (sandbox.Record, sandbox.Spec) {
	t.Helper()
	made, err := m.Deploy(t.Context(), "", vm("run"), nil)
	if err != nil {
		t.Fatal(err)
	}
	return sandbox.Record{Name: "box", ID: made.Info().ID, Type: "fake", Mode: sandbox.VM},
		sandbox.Spec{Name: "solver", Image: "x", Port: 8000, Owner: sandbox.Owner{Instance: "run", Step: "agent"}}
}

func TestBesideAHost(t *testing.T) {
	t.Parallel()
	h := newHouse()
	m, ledger := newManager(t, 4, h)
	rec, s := boxWith(t, m)
	ctx := t.Context()
	if _, err := m.RunBeside(ctx, rec, s, nil); err != nil {
		t.Fatal(err)
	}
	id := sandbox.BesideID(rec.ID)
	row, err := ledger.Get(ctx, id)
	box, _ := ledger.Get(ctx, rec.ID)
	if err != nil || row == nil || row.State != sandbox.Live || row.Owner != s.Owner || row.Name != "solver" || !row.Process.Alive() || row.ExpiresAt.Sub(box.ExpiresAt).Abs().Seconds() > 5 {
		t.Fatalf("the row is %+v, %v", row, err)
	}
	if _, err := m.RunBeside(ctx, rec, s, nil); !fault.Is(err, fault.Exists) || !strings.Contains(err.Error(), `"solver"`) || !h.now[rec.ID] {
		t.Errorf("a second one: %v", err)
	}
	// It ends alone, twice if need be, and another may come.
	for range 2 {
		if err := m.Terminate(ctx, sandbox.Record{ID: id, Type: "fake"}); err != nil || h.up() != 1 || h.now[rec.ID] {
			t.Fatalf("%v: %d machines, %v", err, h.up(), h.now)
		}
	}
	if was, err := m.Beside(ctx, rec.ID); !was || err != nil {
		t.Errorf("that there was one is forgotten: %v", err)
	}
	if _, err := m.RunBeside(ctx, rec, s, nil); err != nil {
		t.Fatal(err)
	}
	// It ends with its sandbox.
	if err := m.Terminate(ctx, rec); err != nil || h.up() != 0 || h.now[rec.ID] {
		t.Errorf("%v: %d machines, %v", err, h.up(), h.now)
	}
	if rows, err := m.Of(ctx, "run"); len(rows) != 0 || err != nil {
		t.Errorf("left in the ledger: %v, %v", rows, err)
	}
}

func TestNotBesideAHost(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(h *house, r *sandbox.Record, s *sandbox.Spec, stop func(error))
		kind   fault.Kind
		wants  string
	}{
		"a container":     {func(_ *house, r *sandbox.Record, _ *sandbox.Spec, _ func(error)) { r.Mode = sandbox.Container }, fault.Invalid, "of the mode container"},
		"another port":    {func(_ *house, _ *sandbox.Record, s *sandbox.Spec, _ func(error)) { s.Port = 80 }, fault.Invalid, "exposes 8000, 9, and port 80 is needed"},
		"no such sandbox": {func(_ *house, r *sandbox.Record, _ *sandbox.Spec, _ func(error)) { r.ID = "fake-99" }, fault.NotFound, "cannot be reached"},
		"it does not start": {func(h *house, _ *sandbox.Record, _ *sandbox.Spec, _ func(error)) {
			h.fails = fault.New(fault.Conflict, "port 8000 is taken")
		}, fault.Conflict, "port 8000 is taken"},
		"cancelled": {func(h *house, _ *sandbox.Record, _ *sandbox.Spec, stop func(error)) {
			h.after = func() { stop(fault.New(fault.Canceled, "enough")) }
		}, fault.Canceled, "enough"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHouse()
			m, ledger := newManager(t, 4, h)
			rec, s := boxWith(t, m)
			ctx, stop := context.WithCancelCause(t.Context())
			defer stop(nil)
			was := rec
			c.change(h, &rec, &s, stop)
			if _, err := m.RunBeside(ctx, rec, s, nil); !fault.Is(err, c.kind) || !strings.Contains(err.Error(), c.wants) {
				t.Error(err)
			}
			if row, err := ledger.Get(t.Context(), sandbox.BesideID(was.ID)); err != nil || row != nil && row.State != sandbox.Gone || len(h.now) != 0 || h.up() != 1 {
				t.Errorf("left: %+v, %v, %v, %d machines", row, err, h.now, h.up())
			}
		})
	}
	plain := newBackend("plain", sandbox.VM)
	m, _ := newManager(t, 4, plain)
	if _, err := m.RunBeside(t.Context(), sandbox.Record{Name: "box", ID: "plain-1", Type: "plain", Mode: sandbox.VM}, sandbox.Spec{}, nil); !fault.Is(err, fault.Unsupported) {
		t.Errorf("a provider without: %v", err)
	}
	if err := m.Terminate(t.Context(), sandbox.Record{ID: "plain-1/agent", Type: "plain"}); !fault.Is(err, fault.Unsupported) {
		t.Errorf("a provider without: %v", err)
	}
}

// TestPruneBeside has what died be pruned: with its sandbox, or alone where the sandbox lives.
func TestPruneBeside(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		dead []string
		want []string
		up   int
	}{
		"both":          {[]string{"", "/agent"}, []string{""}, 0},
		"the container": {[]string{"/agent"}, []string{"/agent"}, 1},
		"the sandbox":   {[]string{""}, []string{""}, 0},
		"neither":       {nil, nil, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHouse()
			m, ledger := newManager(t, 4, h)
			rec, s := boxWith(t, m)
			if _, err := m.RunBeside(t.Context(), rec, s, nil); err != nil {
				t.Fatal(err)
			}
			gone := sandbox.ThisProcess()
			gone.Start = "never"
			for _, suffix := range c.dead {
				row, err := ledger.Get(t.Context(), rec.ID+suffix)
				if err != nil {
					t.Fatal(err)
				}
				row.Process = gone
				if err := ledger.Mark(t.Context(), row.ID, sandbox.Gone); err != nil {
					t.Fatal(err)
				}
				if err := ledger.Forget(t.Context(), row.ID); err != nil {
					t.Fatal(err)
				}
				if err := ledger.Add(t.Context(), *row); err != nil {
					t.Fatal(err)
				}
			}
			doomed, _, err := m.Prune(t.Context(), "mark")
			if err != nil {
				t.Fatal(err)
			}
			var ids []string
			for _, d := range doomed {
				ids = append(ids, strings.TrimPrefix(d.ID, rec.ID))
				if err := m.Remove(t.Context(), d); err != nil {
					t.Error(err)
				}
			}
			if !slices.Equal(ids, c.want) || h.up() != c.up || h.now[rec.ID] != (c.want == nil) {
				t.Errorf("pruned %q; %d machines, %v", ids, h.up(), h.now)
			}
		})
	}
}
