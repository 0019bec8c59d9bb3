package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"agentenv/fault"
	"agentenv/sandbox/place"
	"agentenv/telemetry"
)

// Time limits of the manager.
const (
	CreateLimit    = 180 * time.Second // one provider's creation, when another can take over
	TerminateLimit = 120 * time.Second // the end of one sandbox
)

// Manager is what steps and commands use: all providers behind one set of rules. Safe for concurrent use.
type Manager struct {
	order     []string
	providers map[string]Provider
	later     []string
	fallback  string
	tags      map[string]string
	ledger    *Ledger
	gate      *Gate
	log       *slog.Logger
	self      Process

	mu      sync.Mutex
	handles map[string]*handle
}

type handle struct {
	once     sync.Once
	machine  Machine
	err      error
	instance string // whose place in the gate the sandbox holds, "" when none
	counted  bool
}

// Config is what a Manager is made of.
type Config struct {
	Providers []Provider // in registry order
	Later     []string   // providers that documents may name and this version does not have
	Default   string     // provider spec used where a step gives none; "" = "local"
	// Attribution holds tags for every sandbox; a step's own win.
	Attribution map[string]string
	Ledger      *Ledger
	Gate        *Gate // nil = NewGate(0)
	Log         *slog.Logger
}

// NewManager returns a manager; two providers of one name are an Exists error.
func NewManager(c Config) (*Manager, error) {
	m := &Manager{providers: map[string]Provider{}, later: c.Later, fallback: cmp.Or(c.Default, "local"), tags: c.Attribution, ledger: c.Ledger, gate: c.Gate, log: c.Log,
		self: ThisProcess(), handles: map[string]*handle{}}
	if m.gate == nil {
		m.gate = NewGate(0)
	}
	if m.log == nil {
		m.log = slog.New(slog.DiscardHandler)
	}
	for _, p := range c.Providers {
		if _, dup := m.providers[p.Name()]; dup {
			return nil, fault.New(fault.Exists, "two sandbox providers are named %q", p.Name())
		}
		m.providers[p.Name()] = p
		m.order = append(m.order, p.Name())
	}
	return m, nil
}

// Known returns the provider names, sorted.
func (m *Manager) Known() []string { return slices.Sorted(slices.Values(m.order)) }

// Provider returns a provider by name; Invalid, listing the known ones, when there is none, Unsupported for one to come.
func (m *Manager) Provider(name string) (Provider, error) {
	if p := m.providers[name]; p != nil {
		return p, nil
	}
	if slices.Contains(m.later, name) {
		return nil, fault.New(fault.Unsupported, "the sandbox provider %q is not supported yet; use one of %s", name, strings.Join(m.Known(), ", "))
	}
	return nil, fault.New(fault.Invalid, "Unknown sandbox backend: %q (expected one of %s)", name, strings.Join(m.Known(), ", "))
}

// Resolve reads a provider spec: one name, or several separated by commas for a fallback chain; "" is the configured
// default. Errors are Invalid.
func (m *Manager) Resolve(spec string) ([]string, error) {
	if spec == "" {
		spec = m.fallback
	}
	var names []string
	for _, n := range strings.Split(spec, ",") {
		if n = strings.TrimSpace(n); n != "" {
			names = append(names, n)
		}
	}
	if len(names) == 0 {
		return nil, fault.New(fault.Invalid, "sandbox spec %q must include at least one backend", spec)
	}
	for _, n := range names {
		if _, err := m.Provider(n); err != nil {
			return nil, err
		}
	}
	return names, nil
}

// Validate checks what can be checked of a spec without touching a backend: mode, image, port, and whether any provider of
// the chain can take it. It returns the providers left, in order. Errors are Invalid.
func (m *Manager) Validate(providers string, s Spec) ([]Provider, error) {
	names, err := m.Resolve(providers)
	if err != nil {
		return nil, err
	}
	switch s.Mode {
	case VM:
	case Container:
		if s.Image == "" || s.Port == 0 {
			return nil, fault.New(fault.Invalid, "sandbox %q: container-mode sandbox requires `image` and `port`", s.Name)
		}
		if s.Port < 1 || s.Port > 65535 {
			return nil, fault.New(fault.Invalid, "sandbox %q: port %d is not between 1 and 65535", s.Name, s.Port)
		}
	default:
		return nil, fault.New(fault.Invalid, "sandbox %q: sandbox_mode must be one of container, vm, not %q", s.Name, s.Mode)
	}
	var left []Provider
	var refused []string
	for i, n := range names {
		p := m.providers[n]
		why := refusal(p, s)
		if why == "" {
			left = append(left, p)
			continue
		}
		refused = append(refused, why)
		level := slog.LevelInfo
		if i == 0 {
			level = slog.LevelWarn
		}
		if len(names) > 1 {
			m.log.Log(context.Background(), level, "sandbox_provider_skipped", "provider", n, "reason", why)
		}
	}
	if len(left) == 0 {
		err := fault.New(fault.Invalid, "sandbox %q: %s", s.Name, strings.Join(refused, "; nor: "))
		if s.Policy.Restrictive() {
			return nil, err.WithClass("NetworkPolicyUnsupportedError")
		}
		return nil, err
	}
	return left, nil
}

func refusal(p Provider, s Spec) string {
	c := p.Capabilities()
	if !slices.Contains(c.Modes, s.Mode) {
		return fmt.Sprintf("%s makes no %s-mode sandboxes (it makes: %s); use another `sandbox_type` or --sandbox", p.Name(), s.Mode, modes(c.Modes))
	}
	if s.Policy.Restrictive() && !c.Allowlist {
		return fmt.Sprintf("%s cannot enforce network policy mode '%s'", p.Name(), s.Policy.Mode)
	}
	if s.Docker != "" && !c.DockerBeside {
		return fmt.Sprintf("%s can give a container no Docker Engine of its own; use a provider with VMs, such as local", p.Name())
	}
	if s.Mode == VM && s.Image != "" && !c.CustomImageVM {
		return fmt.Sprintf("%s takes no `image` in vm mode; drop it, or use container mode", p.Name())
	}
	return ""
}

func modes(in []Mode) string {
	out := make([]string, len(in))
	for i, m := range in {
		out[i] = string(m)
	}
	return strings.Join(out, ", ")
}

// Deploy creates a sandbox on the first provider of the spec that can take it: its ledger row first, then the gate's turn,
// Prepare outside any creation deadline, Create. When ctx ends while a creation is in flight, what it makes is removed before
// Deploy returns. progress gets plain lines. The handle belongs to the manager.
func (m *Manager) Deploy(ctx context.Context, providers string, s Spec, progress func(string)) (_ Machine, err error) {
	ctx, span := telemetry.Start(ctx, "sandbox create", attribute.String("agentenv.sandbox.name", s.Name), attribute.String("agentenv.sandbox.mode", string(s.Mode)))
	defer func() { span.End(err) }()
	links, err := m.Validate(providers, s)
	if err != nil {
		return nil, err
	}
	tags := maps.Clone(m.tags)
	if tags == nil {
		tags = map[string]string{}
	}
	maps.Copy(tags, s.Attribution)
	s.Attribution = tags
	if err := m.gate.Enter(ctx, s.Owner.Instance); err != nil {
		return nil, fault.At(context.Cause(ctx), "sandbox %q: waiting for a free place among %d live sandboxes", s.Name, m.gate.Limit())
	}
	machine, err := m.deploy(ctx, links, s, progress)
	if err != nil {
		m.gate.Leave(s.Owner.Instance)
		return nil, err
	}
	m.mu.Lock()
	m.handles[machine.Info().ID] = done(machine, s.Owner.Instance)
	m.mu.Unlock()
	span.Set(attribute.String("agentenv.sandbox.id", machine.Info().ID))
	return machine, nil
}

func done(machine Machine, instance string) *handle {
	h := &handle{machine: machine, instance: instance, counted: true}
	h.once.Do(func() {})
	return h
}

func (m *Manager) deploy(ctx context.Context, links []Provider, s Spec, progress func(string)) (Machine, error) {
	var failures []string
	var last error
	for _, p := range links {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		machine, err := m.create(ctx, p, s, progress, len(links) > 1)
		if err == nil {
			if len(links) > 1 {
				m.log.Info("chain_provider_attempt", "provider", p.Name(), "status", "success", "sandbox_type", machine.Info().Type)
			}
			return machine, nil
		}
		if ctx.Err() != nil {
			return nil, err
		}
		last = err
		failures = append(failures, p.Name()+": "+err.Error())
		if len(links) > 1 {
			m.log.Warn("chain_provider_attempt", "provider", p.Name(), "status", "failed", "error", err)
		}
	}
	if len(links) == 1 {
		return nil, last
	}
	return nil, &fault.Error{Kind: fault.KindOf(last), Msg: fmt.Sprintf("sandbox %q: all %d providers failed: %s", s.Name, len(links), strings.Join(failures, "; "))}
}

func (m *Manager) create(ctx context.Context, p Provider, s Spec, progress func(string), chained bool) (Machine, error) {
	if err := p.Prepare(ctx, s, progress); err != nil {
		return nil, err
	}
	ttl := cmp.Or(s.TTL, 2*time.Hour)
	id := p.NewID()
	if s.EnvOf != nil && id != "" {
		more, err := s.EnvOf(id)
		if err != nil {
			return nil, err
		}
		s.Env = maps.Clone(s.Env)
		if s.Env == nil {
			s.Env = map[string]string{}
		}
		maps.Copy(s.Env, more)
	}
	row := id
	if row == "" {
		row = "pending-" + rand8()
	}
	now := time.Now().UTC()
	err := m.ledger.Add(ctx, Row{ID: row, Type: p.Name(), Name: s.Name, Mode: s.Mode, Owner: s.Owner, State: Creating,
		CreatedAt: now, ExpiresAt: now.Add(ttl), Process: m.self})
	if err != nil {
		return nil, err
	}
	cctx := ctx
	if chained {
		var cancel context.CancelFunc
		cctx, cancel = context.WithTimeoutCause(ctx, CreateLimit, fault.New(fault.Timeout, "sandbox %q: %s made none within %s", s.Name, p.Name(), CreateLimit))
		defer cancel()
	}
	var machine Machine
	err = m.gate.Create(cctx, func() (err error) { machine, err = p.Create(cctx, id, s); return })
	// What happened is written down also when the caller is being cancelled: that is when it matters.
	after, cancel := context.WithTimeout(context.WithoutCancel(ctx), TerminateLimit)
	defer cancel()
	if err == nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err == nil {
		if lerr := m.ledger.Created(after, row, machine.Info()); lerr == nil {
			return machine, nil
		} else {
			err = lerr
		}
	}
	if machine != nil {
		id = machine.Info().ID
		machine.Close()
	}
	if id != "" {
		if terr := p.Terminate(after, id); terr != nil {
			_ = m.ledger.Mark(after, row, Ending)
			return nil, fault.At(err, "sandbox %q (%s may still be up: %v; `agent-env sandbox prune` removes it)", s.Name, id, terr)
		}
	}
	if lerr := m.ledger.Mark(after, row, Gone); lerr != nil {
		m.log.Warn("ledger row of a sandbox that was not made stays", "sandbox", row, "error", lerr)
	}
	return nil, err
}

// Attach finds a recorded sandbox again. Handles are shared by all callers and closed by Close and Terminate. A gone sandbox
// is a NotFound error that says what to do.
func (m *Manager) Attach(ctx context.Context, rec Record) (Machine, error) {
	m.mu.Lock()
	h := m.handles[rec.ID]
	if h == nil {
		h = &handle{}
		m.handles[rec.ID] = h
	}
	m.mu.Unlock()
	h.once.Do(func() { h.machine, h.err = m.attach(ctx, rec) })
	if h.err != nil {
		m.mu.Lock()
		if m.handles[rec.ID] == h {
			delete(m.handles, rec.ID)
		}
		m.mu.Unlock()
	}
	return h.machine, h.err
}

func (m *Manager) attach(ctx context.Context, rec Record) (Machine, error) {
	p, err := m.of(rec)
	if err != nil {
		return nil, err
	}
	machine, err := p.Attach(ctx, rec.ID)
	if fault.Is(err, fault.NotFound) {
		return nil, fault.Wrap(fault.NotFound, err, "sandbox %q (%s) cannot be reached; it is likely past its time to live or was removed, so run the whole task again", rec.Name, rec.ID)
	}
	return machine, err
}

// Place attaches a recorded sandbox and returns where a step acts that names it, and optionally a container on it: Attach and
// PlaceOf in one, with the errors of both. Safe for concurrent use.
func (m *Manager) Place(ctx context.Context, rec Record, container string) (place.Place, error) {
	machine, err := m.Attach(ctx, rec)
	if err != nil {
		return nil, err
	}
	p, err := PlaceOf(ctx, rec, machine, container)
	if err != nil {
		return nil, err
	}
	return place.Traced(ctx, p), nil
}

// Confirm asks the provider anew, past the handle that callers share, whether a recorded sandbox and the place where its steps
// act are still there. One that is gone, or cannot be asked, is an Unavailable error: what failed in it meanwhile says nothing
// about the work in it, so a step asks before it takes a failure for the work's. Safe for concurrent use.
func (m *Manager) Confirm(ctx context.Context, rec Record) error {
	ended, err := m.ended(ctx, rec.ID)
	if ended {
		err = fault.New(fault.NotFound, "it was pruned")
	}
	var machine Machine
	if err == nil {
		machine, err = m.attach(ctx, rec)
	}
	if err == nil {
		defer machine.Close()
		_, err = PlaceOf(ctx, rec, machine, "")
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if fault.Is(err, fault.NotFound, fault.Unavailable) {
		return fault.Wrap(fault.Unavailable, err, "sandbox %q (%s) went away while a step used it", rec.Name, rec.ID)
	}
	return nil
}

func (m *Manager) of(rec Record) (Provider, error) {
	name := rec.Type
	if name == "" {
		names, err := m.Resolve("")
		if err != nil {
			return nil, err
		}
		name = names[0]
	}
	return m.Provider(name)
}

// Terminate ends a recorded sandbox within TerminateLimit and marks its ledger row; done twice it is done. A removal that fails is
// tried twice more. The id of a container beside a host (BesideID) ends that container alone.
func (m *Manager) Terminate(ctx context.Context, rec Record) error {
	p, err := m.of(rec)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, TerminateLimit, fault.New(fault.Timeout, "timed out after %ds", int(TerminateLimit.Seconds())))
	defer cancel()
	err = m.end(ctx, p, rec.ID)
	for _, pause := range []time.Duration{500 * time.Millisecond, 2 * time.Second} {
		if err == nil || ctx.Err() != nil {
			break
		}
		m.log.Warn("a sandbox could not be ended and is tried again", "sandbox", rec.ID, "error", err)
		select {
		case <-ctx.Done():
		case <-time.After(pause):
			err = m.end(ctx, p, rec.ID)
		}
	}
	if err != nil {
		m.mark(context.WithoutCancel(ctx), rec.ID, Ending)
		if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
			return context.Cause(ctx)
		}
		return err
	}
	m.mark(context.WithoutCancel(ctx), rec.ID, Gone)
	m.drop(rec.ID)
	return nil
}

func (m *Manager) mark(ctx context.Context, id string, s State) {
	if err := m.ledger.Mark(ctx, id, s); err != nil {
		m.log.Warn("sandbox ledger not updated", "sandbox", id, "state", s, "error", err)
	}
}

func (m *Manager) drop(id string) {
	m.mu.Lock()
	h := m.handles[id]
	delete(m.handles, id)
	m.mu.Unlock()
	if h == nil {
		return
	}
	if h.counted {
		m.gate.Leave(h.instance)
	}
	if h.machine != nil {
		h.machine.Close()
	}
}

// Alive reports whether a recorded sandbox can still run steps: it can be attached, and its container, if it has one, runs. An error
// means that the provider cannot tell.
func (m *Manager) Alive(ctx context.Context, rec Record) (bool, error) {
	if ended, err := m.ended(ctx, rec.ID); ended || err != nil {
		return false, err
	}
	machine, err := m.Attach(ctx, rec)
	if err == nil {
		_, err = PlaceOf(ctx, rec, machine, "")
	}
	if fault.Is(err, fault.NotFound) {
		return false, nil
	}
	if err != nil || rec.Mode != Container {
		return err == nil, err
	}
	p, err := m.of(rec)
	if err != nil {
		return false, err
	}
	all, err := p.List(ctx)
	own := machine.Info().ContainerName
	stopped := slices.ContainsFunc(all, func(f Found) bool {
		return f.SandboxID == rec.ID && f.Kind == "container" && (own == "" || f.Name == own) && f.State != "running"
	})
	return err == nil && !stopped, err
}

// ended reports whether a sandbox is being ended, or is gone, by the ledger.
func (m *Manager) ended(ctx context.Context, id string) (bool, error) {
	row, err := m.ledger.Get(ctx, id)
	return row != nil && (row.State == Ending || row.State == Gone), err
}

// Release leaves a sandbox to itself: it outlives this process, and prune removes it once its time to live is over.
func (m *Manager) Release(ctx context.Context, id string) error { return m.ledger.Release(ctx, id) }

// Adopt makes this process the owner of a run's sandboxes, so that prune leaves them alone while it lives. What is being pruned
// already stays the pruner's.
func (m *Manager) Adopt(ctx context.Context, instance string) error {
	return m.ledger.Adopt(ctx, instance, m.self)
}

// Of returns the ledger's rows of one run whose sandboxes are not known to be gone.
func (m *Manager) Of(ctx context.Context, instance string) ([]Row, error) {
	return m.ledger.Alive(ctx, instance)
}

// Close releases all handles and providers, not the sandboxes; a second call is a no-op.
func (m *Manager) Close() error {
	m.mu.Lock()
	handles := m.handles
	m.handles = map[string]*handle{}
	m.mu.Unlock()
	var errs []error
	for _, h := range handles {
		if h.machine != nil {
			errs = append(errs, h.machine.Close())
		}
	}
	for _, n := range m.order {
		errs = append(errs, m.providers[n].Close())
	}
	return errors.Join(append(errs, m.ledger.Close())...)
}
