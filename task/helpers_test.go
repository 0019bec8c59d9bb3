package task

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"agentenv/fault"
	"agentenv/store/doc"
	"agentenv/store/document"
	"agentenv/store/document/sqlite"
)

// action is a step whose work is a Go function of the test, found by the step's id.
type action struct {
	do func(context.Context, *Run) error
}

func (a action) Execute(ctx context.Context, r *Run) error {
	if a.do == nil {
		return nil
	}
	return a.do(ctx, r)
}

type deeds map[string]func(context.Context, *Run) error

// testRegistry has `do` (runs the deed of its id), `check` (a verifier), `soon` (pending) and `store` (fields of every kind).
func testRegistry(tb testing.TB, d deeds) *Registry {
	tb.Helper()
	parse := func(id string, f *doc.Object) (Action, *doc.Object, error) { return action{d[id]}, nil, nil }
	reg, err := NewRegistry(
		&StepType{Name: "do", Summary: "Runs a deed.", FailsTask: true, Repeatable: true, Parse: parse, Fields: []Field{
			{Name: "text", Kind: String}, {Name: "metadata", Kind: ObjectKind, Default: &doc.Object{}}}},
		&StepType{Name: "check", FailsTask: true, IsVerifier: true, Parse: parse, Fields: []Field{{Name: "verifier_id", Kind: String}, {Name: "sandbox_name", Kind: String}}},
		&StepType{Name: "soon", FailsTask: true, Pending: true, Fields: []Field{{Name: "who", Kind: String, Required: true}}},
		&StepType{Name: "kinds", FailsTask: false, Parse: parse,
			Refs: []Ref{{Path: "env_id", Kind: "env", VersionField: "env_version"}, {Path: "artifacts[].id", Kind: "artifact", VersionField: "version"},
				{Path: "agents[]", Kind: "agent"}, {Path: "env", Kind: "env", Walk: "when"}},
			Fields: []Field{
				{Name: "name", Kind: String, Required: true}, {Name: "size", Kind: Integer, Default: doc.Int(3)}, {Name: "rate", Kind: NumberKind},
				{Name: "deep", Kind: Boolean}, {Name: "mode", Kind: String, Enum: []string{"vm", "container"}},
				{Name: "tags", Kind: ObjectKind, Items: String}, {Name: "artifacts", Kind: List}, {Name: "agents", Kind: List, Items: String},
				{Name: "env_id", Kind: String}, {Name: "env_version", Kind: Integer}, {Name: "when", Kind: Any},
				{Name: "provider", Kind: String, User: true}, {Name: "short", Kind: String, Input: true}, {Name: "metadata", Kind: ObjectKind, Default: &doc.Object{}}}},
	)
	if err != nil {
		tb.Fatal(err)
	}
	return reg
}

func openDocs(tb testing.TB) *sqlite.Store {
	tb.Helper()
	s, err := sqlite.New(sqlite.Options{Path: filepath.Join(tb.TempDir(), "docs.db")})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Error(err)
		}
	})
	return s
}

// rig is an engine over the deeds of a test, with the database it writes to.
type rig struct {
	tb     testing.TB
	docs   document.Store
	reg    *Registry
	engine *Engine
}

func newRig(tb testing.TB, d deeds) *rig {
	tb.Helper()
	return newRigOn(tb, d, openDocs(tb))
}

func newRigOn(tb testing.TB, d deeds, docs document.Store) *rig {
	reg := testRegistry(tb, d)
	return &rig{tb: tb, docs: docs, reg: reg, engine: NewEngine(reg, docs, slog.New(slog.DiscardHandler), nil)}
}

func (r *rig) task(text string) *Task {
	r.tb.Helper()
	t, err := r.reg.ParseText("t", []byte(text), ParseOptions{Strict: true})
	if err != nil {
		r.tb.Fatal(err)
	}
	t.Version = 2
	return t
}

func (r *rig) run(t *Task, o Options) *Result {
	r.tb.Helper()
	res, err := r.engine.Run(context.Background(), t, o)
	if res == nil {
		r.tb.Fatal(err)
	}
	if !errors.Is(err, res.Err) || (err == nil) != (res.Err == nil) {
		r.tb.Fatalf("Run returned the error %v, its result holds %v", err, res.Err)
	}
	return res
}

func (r *rig) instance(id string) *Instance {
	r.tb.Helper()
	in, err := NewInstances(r.docs).Get(context.Background(), id)
	if err != nil {
		r.tb.Fatal(err)
	}
	return in
}

func (r *rig) rows(id string) []Row {
	r.tb.Helper()
	rows, err := NewInstances(r.docs).Journal(context.Background(), id)
	if err != nil {
		r.tb.Fatal(err)
	}
	return rows
}

// sound checks that the live context, the stored one and the replay of the rows are one.
func (r *rig) sound(res *Result) {
	r.tb.Helper()
	stored, err := r.docs.FindOne(context.Background(), collInstances, document.By("instance_id", res.Instance))
	if err != nil {
		r.tb.Fatal(err)
	}
	replayed, err := Replay(r.rows(res.Instance))
	if err != nil {
		r.tb.Fatal(err)
	}
	live := Redact(res.Context)
	if !doc.Equal(live, stored.Value("context")) {
		r.tb.Errorf("live and stored contexts differ:\n%s\n%s", show(live), show(stored.Value("context")))
	}
	if !doc.Equal(replayed, stored.Value("context")) {
		r.tb.Errorf("replayed and stored contexts differ:\n%s\n%s", show(replayed), show(stored.Value("context")))
	}
	if heads, _ := r.docs.Count(context.Background(), collHeads, document.By("instance_id", res.Instance)); heads != 0 {
		r.tb.Errorf("the head of an ended run is still there")
	}
}

func show(v any) string {
	text, err := doc.MarshalIndent(v)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

func parse(tb testing.TB, text string) *doc.Object {
	tb.Helper()
	o, err := doc.ParseObject([]byte(text), doc.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	return o
}

func fail(kind fault.Kind, text string) func(context.Context, *Run) error {
	return func(context.Context, *Run) error { return fault.New(kind, "%s", text) }
}

// watcher keeps what an observer hears, as lines.
type watcher struct {
	mu    sync.Mutex
	lines []string
	onEnd func(Event)
}

func (w *watcher) add(s string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lines = append(w.lines, s)
}

func (w *watcher) StepStarted(e Event)  { w.add("start " + e.StepID) }
func (w *watcher) StepProgress(e Event) { w.add("progress " + e.StepID + " " + e.Progress.What) }
func (w *watcher) StepEnded(e Event) {
	w.add("end " + e.StepID)
	if w.onEnd != nil {
		w.onEnd(e)
	}
}

func soon(tb testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	tb.Cleanup(cancel)
	return ctx
}

// keeper knows which sandboxes are gone, and notes what it is told.
type keeper struct {
	mu      sync.Mutex
	gone    map[string]bool
	late    string // lost while the run is taken over
	adopted []string
	dropped []string
	discard func(instance string, steps []string) error // may be nil
}

func (k *keeper) Alive(_ context.Context, s Sandbox) (bool, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return !k.gone[s.ID], nil
}

func (k *keeper) Adopt(_ context.Context, instance string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.adopted = append(k.adopted, instance)
	if k.late != "" {
		k.gone = map[string]bool{k.late: true}
	}
	return nil
}

func (k *keeper) Discard(_ context.Context, instance string, steps []string) error {
	k.mu.Lock()
	k.dropped = append(k.dropped, steps...)
	k.mu.Unlock()
	if k.discard == nil {
		return nil
	}
	return k.discard(instance, steps)
}
