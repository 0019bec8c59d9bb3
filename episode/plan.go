// Package episode runs a task in which one or more agents are played from outside: the caller answers their prompts in place of a
// model. Everything else of the task runs as it always does, and leaves the same records.
package episode

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	"math"
	"slices"
	"strings"
	"time"

	"agentenv/fault"
	"agentenv/store/doc"
	"agentenv/task"
)

// Deps are what episodes run on. All but the optional ones must be there.
type Deps struct {
	Registry *task.Registry
	Engine   *task.Engine
	Teardown task.Teardown
	Tracker  task.Tracker // optional: keeps a record of each run
	// Tools returns what an outside agent has to work with in a turn, of which r is the view; optional: nothing.
	Tools func(r *task.Run, agent string) Toolbox
	Log   *slog.Logger // nil discards
}

// Options say how a task is played.
type Options struct {
	TrainerAgents []string      // the agents that are played from outside; nil: the task's only prompted agent
	Seed          *doc.Object   // put into the steps as metadata.seed of a run is
	TurnTimeout   time.Duration // replaces the timeout_seconds of every outside prompt, rounded up to seconds; 0: each keeps its own
}

// Plan is a task that can be played. It is immutable and safe for concurrent use; it may be started any number of times, also at once.
type Plan struct {
	deps    Deps
	task    *task.Task // as given: without its seed
	options Options
	casting casting
	prompts []Prompt
}

// Prompt is what an outside agent is asked in one turn.
type Prompt struct {
	StepID, AgentName string
	Text              string
	SystemPrompt      string // "" = none
}

// New makes a plan of a task, or says everything that stands against it: an Invalid error of the form
// `task '<id>' can't run as an episode: <r1>; <r2>…`, or one of kind Unsupported when steps beside the outside agents cannot run in this
// version. Nothing is deployed or recorded, and t is not changed.
func New(d Deps, t *task.Task, o Options) (*Plan, error) {
	if d.Log == nil {
		d.Log = slog.New(slog.DiscardHandler)
	}
	seeded, err := d.Registry.Substitute(t, o.Seed)
	if err != nil {
		return nil, err
	}
	p := &Plan{deps: d, task: t, options: o}
	var against []string
	p.casting, against = castingOf(seeded, o)
	against = append(against, refusals(seeded, p.casting)...)
	for _, i := range p.casting.prompts {
		s := seeded.Steps[i]
		ask, err := parsePrompt(p.casting.prompt(seeded, i))
		if err != nil {
			against = append(against, "step '"+s.ID+"': "+err.Error())
			continue
		}
		p.prompts = append(p.prompts, ask.Prompt)
	}
	if o.TurnTimeout < 0 {
		against = append(against, "turn_timeout must not be negative")
	}
	if len(against) > 0 {
		return nil, fault.New(fault.Invalid, "task '%s' can't run as an episode: %s", t.ID, strings.Join(against, "; "))
	}
	played := p.played(internalTypes(nil))
	for i, s := range played.Steps {
		if s.Problem != nil {
			return nil, fault.At(s.Problem, "task %s, step %q (position %d)", t.ID, s.ID, i)
		}
	}
	if missing := task.Supported(played); len(missing) > 0 {
		return nil, fault.New(fault.Unsupported, "task '%s' can't run as an episode yet: %s", t.ID, strings.Join(missing, "; "))
	}
	return p, nil
}

// Prompts returns what the outside agents will be asked, in the order of the steps and with the seed put in.
func (p *Plan) Prompts() []Prompt { return slices.Clone(p.prompts) }

// TrainerAgents returns the agents that are played from outside.
func (p *Plan) TrainerAgents() []string { return slices.Clone(p.casting.agents) }

// Task returns the task that is played, as it was given.
func (p *Plan) Task() *task.Task { return p.task }

// Seeded returns the plan of the same task with another seed; errors are those of New.
func (p *Plan) Seeded(seed *doc.Object) (*Plan, error) {
	o := p.options
	o.Seed = seed
	return New(p.deps, p.task, o)
}

// played returns the copy of the task that runs: the same steps in the same places, but for those of the outside agents, which hold
// the steps they stand for.
func (p *Plan) played(types []*task.StepType) *task.Task {
	played := *p.task
	played.Steps = slices.Clone(p.task.Steps)
	stand := func(i int, kind *task.StepType, original *doc.Object) {
		s := *p.task.Steps[i]
		fields := doc.Of("original", original)
		s.Type, s.Kind, s.Fields = kind.Name, kind, fields
		s.Action, _, s.Problem = kind.Parse(s.ID, fields)
		played.Steps[i] = &s
	}
	for _, i := range p.casting.deploys {
		stand(i, types[0], p.task.Steps[i].Document())
	}
	for _, i := range p.casting.prompts {
		original := p.casting.prompt(p.task, i)
		if p.options.TurnTimeout > 0 {
			original.Set("timeout_seconds", doc.Int(int64(math.Ceil(p.options.TurnTimeout.Seconds()))))
		}
		stand(i, types[1], original)
	}
	return &played
}

// Start begins an episode and returns at once; sandbox names the provider of everything that the run deploys, "" leaves that to
// the task. The end of ctx does not end the episode. An error means that nothing has begun; what stands against the run later, also before its first
// step, comes from NextTurn and Result. The caller must see the episode to its end: play it until NextTurn gives no turn, or Abandon it.
func (p *Plan) Start(ctx context.Context, sandbox string) (*Episode, error) {
	e := newEpisode(p)
	types := internalTypes(e)
	engine, err := p.deps.Engine.With(types...)
	if err != nil {
		return nil, err
	}
	meta := doc.Of("task_id", p.task.ID, "episode", doc.Of("id", e.ID, "trainer_agents", doc.MustFrom(p.casting.agents)))
	if p.options.Seed.Len() > 0 {
		meta.Set("seed", p.options.Seed)
	}
	if sandbox != "" {
		meta.Set("user_overrides", doc.Of("env_sandbox", sandbox, "agent_sandbox", sandbox, "sandbox", sandbox))
	}
	if err := e.begin(ctx, engine, p.played(types), meta); err != nil {
		return nil, err
	}
	return e, nil
}

func randomHex() string {
	var b [16]byte
	rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}
