package local_test

import (
	"context"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"agentenv/fault"
	"agentenv/runner"
	"agentenv/runner/local"
	"agentenv/sandbox"
	"agentenv/store/doc"
	"agentenv/store/document/sqlite"
	"agentenv/task"
)

// deed is a step whose work is a function of the test.
type deed func(ctx context.Context, r *task.Run) error

func (d deed) Execute(ctx context.Context, r *task.Run) error { return d(ctx, r) }

// world is a state folder that several processes share.
type world struct {
	t    *testing.T
	path string
	reg  *task.Registry

	mu    sync.Mutex
	deeds map[string]deed // by step id
	ran   map[string]int  // how often each step began, by instance and step id
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, path: filepath.Join(t.TempDir(), "docs.db"), deeds: map[string]deed{}, ran: map[string]int{}}
	kind := func(name string, repeatable bool, work deed) *task.StepType {
		return &task.StepType{Name: name, FailsTask: true, Repeatable: repeatable, Parse: func(id string, _ *doc.Object) (task.Action, *doc.Object, error) {
			return deed(func(ctx context.Context, r *task.Run) error {
				w.mu.Lock()
				w.ran[r.Instance+" "+id]++
				d := w.deeds[id]
				w.mu.Unlock()
				if d == nil {
					d = work
				}
				return d(ctx, r)
			}), nil, nil
		}, Fields: []task.Field{{Name: "agent_names", Kind: task.List}, {Name: "verifier_ids", Kind: task.List}, {Name: "verifier_id", Kind: task.String}}}
	}
	nothing := func(context.Context, *task.Run) error { return nil }
	fail := func(context.Context, *task.Run) error { return fault.New(fault.Invalid, "verifier nope is not known") }
	var err error
	w.reg, err = task.NewRegistry(kind("teardown_sandboxes", true, nothing), kind("aggregate_verifiers", true, fail), kind("once", false, nothing), kind("long", true, forever))
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func forever(ctx context.Context, _ *task.Run) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

func (w *world) times(instance, step string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ran[instance+" "+step]
}

func (w *world) on(step string, d deed) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.deeds[step] = d
}

// process is one process that works on a world.
type process struct {
	t         *testing.T
	docs      *sqlite.Store
	records   *runner.Records
	tasks     *task.Tasks
	instances *task.Instances
	teardown  *teardown
	deps      local.Deps
}

// process opens the world as a process; self names it, the zero value is this one.
func (w *world) process(self sandbox.Process) *process {
	w.t.Helper()
	if self == (sandbox.Process{}) {
		self = sandbox.ThisProcess()
	}
	docs, err := sqlite.New(sqlite.Options{Path: w.path})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		if err := docs.Close(); err != nil {
			w.t.Error(err)
		}
	})
	p := &process{t: w.t, docs: docs, records: runner.NewRecords(docs, self, nil), tasks: task.NewTasks(w.reg, docs, nil, nil), instances: task.NewInstances(docs), teardown: &teardown{}}
	engine := task.NewEngine(w.reg, docs, nil, nil)
	engine.Owner = task.Owner{Self: doc.Of("host", self.Host, "boot", self.Boot, "pid", doc.Int(self.PID), "start", self.Start), Alive: p.records.RunsStill}
	p.deps = local.Deps{Engine: engine, Tasks: p.tasks, Instances: p.instances, Records: p.records, Teardown: p.teardown, Log: slog.New(slog.DiscardHandler)}
	return p
}

func (p *process) task(steps ...*doc.Object) string {
	p.t.Helper()
	return p.taskNamed("t", steps...)
}

func (p *process) taskNamed(id string, steps ...*doc.Object) string {
	p.t.Helper()
	list := make([]any, len(steps))
	for i, s := range steps {
		list[i] = s
	}
	v, err := p.tasks.Latest(p.t.Context(), id)
	if err == nil {
		err = p.docs.Insert(p.t.Context(), "tasks", doc.Of("id", id, "type", "task", "version", doc.Int(v+1), "steps", list))
	}
	if err != nil {
		p.t.Fatal(err)
	}
	return id
}

// start returns a started runner that is stopped with the test.
func (p *process) start(c local.Config) *local.Runner {
	p.t.Helper()
	r := local.New(p.deps, c)
	if err := r.Start(p.t.Context()); err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { p.stop(r) })
	return r
}

func (p *process) stop(r *local.Runner) {
	p.t.Helper()
	ctx, stop := context.WithTimeout(context.Background(), 30*time.Second)
	defer stop()
	if err := r.Stop(ctx); err != nil {
		p.t.Error(err)
	}
}

func (p *process) submit(r *local.Runner, req runner.Request) runner.Handle {
	p.t.Helper()
	h, err := r.Submit(p.t.Context(), req)
	if err != nil {
		p.t.Fatal(err)
	}
	return h
}

func (p *process) until(run string, want runner.Status) *runner.Record {
	p.t.Helper()
	var r *runner.Record
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		var err error
		if r, err = p.records.Get(p.t.Context(), run); err != nil || r == nil {
			p.t.Fatalf("%v, %v", r, err)
		}
		if r.Status == want {
			return r
		}
		if r.Status.Terminal() {
			break
		}
	}
	p.t.Fatalf("run %s is %s (%s), not %s", run, r.Status, r.Error, want)
	return nil
}

// wait waits for a moment that must come.
func (w *world) wait(what string, there func() bool) {
	w.t.Helper()
	for end := time.Now().Add(30 * time.Second); !there(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			w.t.Fatalf("it never came: %s", what)
		}
	}
}

// teardown notes which runs were torn down; hang, when set, keeps it from ending before its context does, and hold before it is closed.
type teardown struct {
	mu   sync.Mutex
	down []string
	hang bool
	hold chan struct{}
}

func (d *teardown) Teardown(ctx context.Context, instance string, recorded *doc.Object) task.TeardownReport {
	d.mu.Lock()
	d.down = append(d.down, instance)
	hang, hold := d.hang, d.hold
	d.mu.Unlock()
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
			hang = true
		}
	}
	if hang {
		<-ctx.Done()
		return task.TeardownReport{Left: []task.SandboxReport{{ID: "x", Why: "the teardown was stopped"}}}
	}
	var out task.TeardownReport
	for _, s := range task.Sandboxes(recorded) {
		out.Ended = append(out.Ended, task.SandboxReport{ID: s.ID})
	}
	return out
}

func (d *teardown) of(instance string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := 0
	for _, id := range d.down {
		if id == instance {
			n++
		}
	}
	return n
}

func (d *teardown) Describe(context.Context, string, *doc.Object) []task.KeptSandbox { return nil }
func (d *teardown) Alive(context.Context, task.Sandbox) (bool, error)                { return true, nil }
func (d *teardown) Adopt(context.Context, string) error                              { return nil }
func (d *teardown) Discard(context.Context, string, []string) error                  { return nil }

func long(id string) *doc.Object { return doc.Of("id", id, "type", "long") }
