package episode_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"agentenv/episode"
	"agentenv/fault"
	"agentenv/steps/agents"
	"agentenv/steps/pending"
	"agentenv/store"
	"agentenv/store/doc"
	"agentenv/store/document"
	"agentenv/store/document/sqlite"
	"agentenv/task"
)

func TestMain(m *testing.M) { os.Exit(leakless(m)) }

func leakless(m *testing.M) int {
	if code := m.Run(); code != 0 {
		return code
	}
	if err := goleak.Find(); err != nil {
		println(err.Error())
		return 1
	}
	return 0
}

// deed is a step whose work is a function of the test.
type deed func(ctx context.Context, r *task.Run) error

func (d deed) Execute(ctx context.Context, r *task.Run) error { return d(ctx, r) }

// rig is what episodes of the tests run on: the kinds of step that are not built yet, beside small ones, whose work is found by the step's id.
type rig struct {
	t         *testing.T
	docs      document.Store
	reg       *task.Registry
	deps      episode.Deps
	deeds     map[string]deed
	teardown  *teardown
	tracker   *tracker
	instances *task.Instances
}

func newRig(t *testing.T) *rig {
	t.Helper()
	dir := t.TempDir()
	configured, err := sqlite.New(sqlite.Options{Path: filepath.Join(dir, "docs.db")})
	if err != nil {
		t.Fatal(err)
	}
	own, err := sqlite.New(sqlite.Options{Path: filepath.Join(dir, "local.db"), CheckID: store.CheckLocalID})
	if err != nil {
		t.Fatal(err)
	}
	docs := document.NewRouter(configured, own)
	t.Cleanup(func() {
		if err := docs.Close(); err != nil {
			t.Error(err)
		}
	})
	r := &rig{t: t, docs: docs, deeds: map[string]deed{}, teardown: &teardown{}, tracker: &tracker{}, instances: task.NewInstances(docs)}
	kind := func(name string) *task.StepType {
		k := &task.StepType{Name: name, FailsTask: true, IsVerifier: name == "check", Parse: func(id string, _ *doc.Object) (task.Action, *doc.Object, error) {
			if d := r.deeds[id]; d != nil {
				return d, nil, nil
			}
			return deed(func(context.Context, *task.Run) error { return nil }), nil, nil
		}}
		for _, f := range []string{"agent_name", "sandbox_name", "container_name", "env_id", "manifest_step_id", "verifier_id", "text"} {
			k.Fields = append(k.Fields, task.Field{Name: f, Kind: task.String})
		}
		return k
	}
	types := append(pending.Types(), agents.Types(agents.Deps{})...)
	for _, name := range []string{"do", "check", "load_artifact", "run_code", "verify_sandbox", "collect_artifacts"} {
		types = append(types, kind(name))
	}
	if r.reg, err = task.NewRegistry(types...); err != nil {
		t.Fatal(err)
	}
	r.deps = episode.Deps{Registry: r.reg, Engine: task.NewEngine(r.reg, docs, nil, nil), Teardown: r.teardown, Tracker: r.tracker}
	return r
}

func (r *rig) task(steps string) *task.Task {
	r.t.Helper()
	t, err := r.reg.ParseText("t", []byte("["+steps+"]"), task.ParseOptions{Strict: true})
	if err != nil {
		r.t.Fatal(err)
	}
	t.Version = 7
	return t
}

func (r *rig) plan(steps string, o episode.Options) *episode.Plan {
	r.t.Helper()
	p, err := episode.New(r.deps, r.task(steps), o)
	if err != nil {
		r.t.Fatal(err)
	}
	return p
}

// start begins an episode that ends with the test at the latest.
func (r *rig) start(steps string, o episode.Options) *episode.Episode {
	r.t.Helper()
	e, err := r.plan(steps, o).Start(r.t.Context(), "")
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		if err := e.Abandon(context.Background(), "the test is over"); err != nil {
			r.t.Error(err)
		}
	})
	return e
}

func (r *rig) turn(e *episode.Episode) *episode.Turn {
	r.t.Helper()
	t, err := e.NextTurn(r.soon())
	if err != nil || t == nil {
		r.t.Fatalf("no turn: %v", err)
	}
	return t
}

// soon is a context that bounds what a test waits for.
func (r *rig) soon() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	r.t.Cleanup(cancel)
	return ctx
}

func (r *rig) stored(e *episode.Episode) *task.Instance {
	r.t.Helper()
	in, err := r.instances.Get(context.Background(), e.ID)
	if err != nil {
		r.t.Fatal(err)
	}
	return in
}

const (
	deploy = `{"id":"agent","type":"deploy_agent","a2a_agent_id":"x"}`
	ask    = `{"id":"ask","type":"prompt_agent","prompt":"How many?","prompt_id":"p1"}`
	check  = `{"id":"check","type":"check","verifier_id":"v"}`
	talk   = deploy + "," + ask + "," + check
)

// graded has the step check give 1 to a reply that holds a text.
func (r *rig) graded(want string) {
	r.deeds["check"] = func(_ context.Context, run *task.Run) error {
		score := 0
		for _, p := range run.PromptResponses() {
			if strings.Contains(p.Str("response"), want) {
				score = 1
			}
		}
		run.Set(doc.Of("score", doc.Int(score)), "verifications", "v")
		return nil
	}
}

// teardown counts what it is asked to tear down.
type teardown struct {
	mu    sync.Mutex
	of    []string
	stuck chan struct{} // if there, a teardown waits for it, or for the end of its context
	left  []task.SandboxReport
}

func (d *teardown) Teardown(ctx context.Context, instance string, _ *doc.Object) task.TeardownReport {
	if d.stuck != nil {
		select {
		case <-d.stuck:
		case <-ctx.Done():
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.of = append(d.of, instance)
	return task.TeardownReport{Left: d.left}
}

func (d *teardown) times(instance string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := 0
	for _, i := range d.of {
		if i == instance {
			n++
		}
	}
	return n
}

func (d *teardown) Describe(context.Context, string, *doc.Object) []task.KeptSandbox { return nil }
func (d *teardown) Alive(context.Context, task.Sandbox) (bool, error)                { return true, nil }
func (d *teardown) Adopt(context.Context, string) error                              { return nil }
func (d *teardown) Discard(context.Context, string, []string) error                  { return nil }

// tracker keeps what it is told, and cancels runs as another process would.
type tracker struct {
	mu     sync.Mutex
	began  []task.Tracked
	ended  []string
	cancel context.CancelCauseFunc
	refuse error
}

func (k *tracker) Begin(ctx context.Context, r task.Tracked) (context.Context, func(*task.Result, error), error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.refuse != nil {
		return nil, nil, k.refuse
	}
	k.began = append(k.began, r)
	ctx, cancel := context.WithCancelCause(ctx)
	k.cancel = cancel
	return ctx, func(res *task.Result, err error) {
		cancel(nil)
		k.mu.Lock()
		defer k.mu.Unlock()
		status := "not begun"
		if res != nil {
			status = res.Status
		}
		k.ended = append(k.ended, status)
	}, nil
}

func (k *tracker) statuses() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.ended)
}

// tools is a toolbox of two tools; slow waits for go on.
type tools struct {
	goOn chan struct{}
	mu   sync.Mutex
	ran  []string
}

func (k *tools) List(context.Context) ([]episode.Tool, error) {
	return []episode.Tool{{Name: "add", Description: "Adds", InputSchema: doc.Of("type", "object")}, {Name: "slow"}}, nil
}

func (k *tools) Call(ctx context.Context, c episode.ToolCall) (episode.ToolResult, error) {
	k.mu.Lock()
	k.ran = append(k.ran, c.Name)
	k.mu.Unlock()
	if c.Name == "slow" {
		select {
		case <-k.goOn:
		case <-ctx.Done():
			return episode.ToolResult{}, context.Cause(ctx)
		}
	}
	return episode.ToolResult{Content: []any{doc.Of("type", "text", "text", "ok")}, IsError: c.Arguments.Bool("fail")}, nil
}

func wantKind(t *testing.T, err error, kind fault.Kind, text string) {
	t.Helper()
	if fault.KindOf(err) != kind || !strings.Contains(err.Error(), text) {
		t.Errorf("the error is %v (%s), want one of kind %s with %q", err, fault.KindOf(err), kind, text)
	}
}
