package task

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	"math/big"
	"slices"
	"strings"
	"time"

	"agentenv/fault"
	"agentenv/store"
	"agentenv/store/doc"
	"agentenv/store/document"
)

// Engine runs tasks and records their runs. It is safe for concurrent use; each run is independent.
type Engine struct {
	registry *Registry
	docs     document.Store
	indexes  *indexes
	log      *slog.Logger
	now      func() time.Time

	// Owner is put into the head of every run that the engine takes up; set it before use. The zero value: nobody.
	Owner Owner
	// Steps runs the steps of every run by reference, in this process or in others; nil: this process runs them, each on a view in its memory.
	// Set it before use. A run that holds secrets themselves is then refused.
	Steps StepRunner
}

// NewEngine returns an engine over a registry and a document store. A nil log discards; now is the clock (nil: time.Now).
func NewEngine(reg *Registry, docs document.Store, log *slog.Logger, now func() time.Time) *Engine {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	if now == nil {
		now = time.Now
	}
	return &Engine{registry: reg, docs: docs, indexes: &indexes{docs: docs}, log: log, now: now}
}

var _ Runs = (*Engine)(nil)

// With returns an engine that knows these step types beside its own, for steps that belong to one run and stand in no document; e is not
// changed, and both write to the same records. The new one runs all steps itself. A type that e knows already is an error of kind Exists.
func (e *Engine) With(types ...*StepType) (*Engine, error) {
	reg, err := NewRegistry(slices.Concat(e.registry.All(), types)...)
	if err != nil {
		return nil, err
	}
	with := *e
	with.registry, with.Steps = reg, nil // no other process knows them
	return &with, nil
}

// Run runs a task to its end and returns how it went; the error is that of the result. When the run cannot begin (a range out
// of bounds, a stored step with a Problem, a step that is not supported yet, a seed that breaks the task, an instance id that cannot be recorded) the
// result is nil, and nothing was recorded. When ctx ends, every step in flight is cancelled and awaited, and the run is
// recorded as cancelled with the text of context.Cause(ctx) as its reason; the error is then of kind Canceled.
// What the run deployed is still up when Run returns.
func (e *Engine) Run(ctx context.Context, t *Task, o Options) (*Result, error) {
	ctx = store.WithRunScope(ctx, t.ID)
	initial, err := initialContext(o)
	if err != nil {
		return nil, err
	}
	meta := initial.Obj("metadata")
	if meta.Str("run_group_id") == "" {
		meta.Set("run_group_id", randomHex())
	}
	seeded, err := e.runnable(t, meta.Obj("seed"))
	if err != nil {
		return nil, err
	}
	seeded = o.Limits.over(seeded)
	start, end, err := runRange(seeded, o)
	if err != nil {
		return nil, err
	}
	dropOldFailures(meta, seeded.Steps[start:end])
	if o.AgentModel != "" {
		initial.Set("agent_model", o.AgentModel)
	}
	if o.AgentArtifactID != "" {
		initial.Set("agent_artifact_id", o.AgentArtifactID)
	}
	x := &execution{engine: e, task: seeded, limits: o.Limits, start: start, end: end, log: e.runLog(o, meta), began: e.now(), keeper: o.Keeper, classes: map[string]Class{}}
	x.watch = &watch{observer: o.Observer, log: x.log}
	for _, s := range seeded.Steps[:start] {
		x.carried = append(x.carried, Completion{StepID: s.ID, Status: "success"})
	}
	if err := x.register(ctx, o.Instance, initial); err != nil {
		return nil, err
	}
	res := x.run(ctx)
	return res, res.Err
}

// runnable returns the task with its seed put in, or why it cannot run.
func (e *Engine) runnable(t *Task, seed *doc.Object) (*Task, error) {
	seeded, err := e.registry.Substitute(t, seed)
	if err != nil {
		return nil, err
	}
	if err := readable(seeded); err != nil {
		return nil, err
	}
	if missing := Supported(seeded); len(missing) > 0 {
		return nil, fault.New(fault.Unsupported, "%s", strings.Join(missing, "; "))
	}
	return seeded, nil
}

func (e *Engine) runLog(o Options, meta *doc.Object) *slog.Logger {
	log := e.log
	if o.Log != nil {
		log = o.Log
	}
	if id := meta.Str("pass_at_k_execution_id"); id != "" {
		log = slog.New(prefixed{log.Handler(), "[" + id + "] "})
	}
	return log
}

// prefixed puts a text in front of every message.
type prefixed struct {
	slog.Handler
	prefix string
}

// Handle passes the record on with the prefix.
func (p prefixed) Handle(ctx context.Context, r slog.Record) error {
	r.Message = p.prefix + r.Message
	return p.Handler.Handle(ctx, r)
}

// WithAttrs keeps the prefix.
func (p prefixed) WithAttrs(a []slog.Attr) slog.Handler {
	return prefixed{p.Handler.WithAttrs(a), p.prefix}
}

// WithGroup keeps the prefix.
func (p prefixed) WithGroup(g string) slog.Handler {
	return prefixed{p.Handler.WithGroup(g), p.prefix}
}

func runRange(t *Task, o Options) (start, end int, err error) {
	n := len(t.Steps)
	if n == 0 {
		return 0, 0, fault.New(fault.Invalid, "task %s has no steps: there is nothing to run", t.ID)
	}
	if o.StartStep < 0 || o.StartStep >= n {
		return 0, 0, fault.New(fault.Invalid, "start_step=%d out of range [0, %d)", o.StartStep, n)
	}
	if o.EndStep == 0 {
		return o.StartStep, n, nil
	}
	if o.EndStep <= o.StartStep || o.EndStep > n {
		return 0, 0, fault.New(fault.Invalid, "end_step=%d out of range (%d, %d]", o.EndStep, o.StartStep, n)
	}
	return o.StartStep, o.EndStep, nil
}

// dropOldFailures removes what an earlier run recorded about the steps that run now.
func dropOldFailures(meta *doc.Object, steps []*Step) {
	list := meta.Arr("failed_steps")
	if list == nil {
		return
	}
	again := make(map[any]bool, len(steps))
	for _, s := range steps {
		again[s.ID] = true
	}
	kept := []any{}
	for _, v := range list {
		o, isObj := v.(*doc.Object)
		if id, isStr := o.Value("step_id").(string); isObj && isStr && again[id] {
			continue
		}
		kept = append(kept, v)
	}
	meta.Set("failed_steps", kept)
}

// NewInstanceID returns a fresh id for a run of a task: <task id>-<8 of a-z0-9>.
func NewInstanceID(taskID string) string {
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789"
	var b [8]byte
	for i := range b {
		n, _ := rand.Int(rand.Reader, big.NewInt(int64(len(letters)))) // crypto/rand ends the program rather than fail
		b[i] = letters[n.Int64()]
	}
	return taskID + "-" + string(b[:])
}

func randomHex() string {
	var b [16]byte
	rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}
