// Package deploy starts an agent in a sandbox, says where it answers, and finds it again from what a run recorded.
package deploy

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"strconv"
	"strings"
	"sync"
	"time"

	"agentenv/agent"
	"agentenv/artifact"
	"agentenv/fault"
	"agentenv/protocol/card"
	"agentenv/sandbox"
	"agentenv/store/doc"
)

// What an agent's sandbox is made of where a Request does not say.
const (
	Port            = 8000 // where the agent listens in its container
	DefaultTTL      = 7200 * time.Second
	DefaultCPU      = 1.0
	DefaultMemoryMB = 8192
	DefaultDiskGB   = 10.0
)

// DockerImage is the image of an agent's own Docker Engine where nothing else is configured.
const DockerImage = "docker:27-dind-rootless"

// BearerLabel marks an image whose agent asks for the bearer token in AGENTENV_A2A_TOKEN when that variable is set: its value is "bearer".
// Only such an agent gets a token, so that one that knows of none is left as it is.
const BearerLabel = "agentenv.a2a.auth"

// readiness is how long an agent may take from the start of its sandbox to its first card.
const readiness = 300 * time.Second

// Options are what a Deployer works with.
type Options struct {
	Sandboxes *sandbox.Manager
	Artifacts *artifact.Store
	Instances *agent.Instances
	Client    *agent.Client
	Images    Images
	Model     func() (Model, error) // the configured endpoint; asked at each deploy of an agent that takes credentials
	Provider  string                // provider spec where a request gives none
	Tokens    Tokens
	// DockerImage is what the Docker Engine of agents that ask for one is made of; "" = DockerImage.
	DockerImage string
	// Trust returns the certificates, as PEM, by which agents in containers of this machine believe the server of grants; nil = they need none.
	Trust func() ([]byte, error)
	Log   *slog.Logger     // nil = nothing is logged
	Now   func() time.Time // nil = time.Now
}

// Deployer deploys agents. It is safe for concurrent use.
type Deployer struct {
	o Options
	// variables are the secret ones that agents were given, by sandbox: []string.
	variables sync.Map
}

// New returns a Deployer.
func New(o Options) *Deployer {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Deployer{o: o}
}

// Request says which agent to start, and how. Zero values take the defaults.
type Request struct {
	Agent       *agent.Agent
	Name        string            // of the agent in its run, for messages
	Env         map[string]string // over the agent's default variables
	APIKey      string            // model key for this run; "" = Env's, else the configured one
	BaseURL     string            // model endpoint for this run, as this machine reaches it; "" = Env's, else the configured one
	CPU         float64           // cores
	MemoryMB    int
	DiskGB      float64 // never less than the agent's metadata asks for
	TTL         time.Duration
	Provider    string // provider spec
	Policy      *sandbox.NetworkPolicy
	On          *Site // the sandbox to run on, which stays when the agent ends; nil = one of its own
	Attribution map[string]string
	Owner       sandbox.Owner
	Docker      bool              // it gets a Docker Engine of its own, which DOCKER_HOST names
	NoToken     bool              // deploy it without a bearer token: who deploys it by hand would not know it
	Progress    func(line string) // may be nil
}

// Deployed is a live agent.
type Deployed struct {
	Endpoint   agent.Endpoint
	Card       *doc.Object // as served
	InstanceID string
	Info       sandbox.Info
	Policy     *doc.Object // of its sandbox; nil = it was there before and has none
	ends       string      // the id that ends the agent, and no more than it
}

// Deploy starts an agent and returns once it serves its card. An agent that takes model credentials (all do whose metadata does not say
// takes_credentials = false) and can be given none is Invalid, before a sandbox is made. An agent whose container ends meanwhile is
// Unavailable, with its last output, one that serves no card within 300 seconds Timeout. Whatever fails, and when ctx ends, its sandbox
// is gone again when Deploy returns, or its container from a sandbox that was there before; what could not be removed is named. A second call
// starts a second agent.
func (d *Deployer) Deploy(ctx context.Context, r Request) (*Deployed, error) {
	if r.Progress == nil {
		r.Progress = func(string) {}
	}
	provider := r.Provider
	if provider == "" {
		provider = d.o.Provider
	}
	if r.On != nil {
		provider = r.On.Type
		if err := r.On.takes(r.Policy); err != nil {
			return nil, err
		}
	}
	// What is wrong with the credentials is said before an image is built or pulled for nothing.
	env, err := environment(r, d.o.Model, d.here(provider))
	if err != nil {
		return nil, err
	}
	img, err := d.image(ctx, r)
	if err != nil {
		return nil, err
	}
	spec := sandbox.Spec{Name: r.Name, Mode: sandbox.Container, Image: img.Name, Port: Port, Env: maps.Clone(env), CPU: orDefault(r.CPU, DefaultCPU),
		MemoryMB: orDefault(r.MemoryMB, DefaultMemoryMB), DiskGB: max(orDefault(r.DiskGB, DefaultDiskGB), minDisk(r.Agent)), TTL: orDefault(r.TTL, DefaultTTL),
		Policy: r.Policy, Attribution: r.Attribution, Owner: r.Owner, ServesItsCommand: true}
	if r.Docker {
		spec.Docker = cmp.Or(d.o.DockerImage, DockerImage)
	}
	if err := d.trust(&spec, provider); err != nil {
		return nil, err
	}
	if strings.EqualFold(img.Labels[BearerLabel], "bearer") && !r.NoToken {
		spec.EnvOf = func(id string) (map[string]string, error) {
			token, err := d.o.Tokens.For(id)
			env[varToken] = token
			return map[string]string{varToken: token}, err
		}
	}
	m, ends, err := d.start(ctx, provider, spec, r)
	if err != nil {
		return nil, err
	}
	out, err := d.ready(ctx, r, m, env)
	if err != nil {
		return nil, d.undo(ctx, m.Info(), ends, r.Name, err)
	}
	out.ends = ends
	return out, nil
}

// start makes the agent's sandbox, or its container on the one that it is to run on, and says what ends it.
func (d *Deployer) start(ctx context.Context, provider string, spec sandbox.Spec, r Request) (m sandbox.Machine, ends string, err error) {
	if r.On != nil {
		m, err = d.beside(ctx, *r.On, spec, r.Progress)
		return m, sandbox.BesideID(r.On.ID), err
	}
	if m, err = d.o.Sandboxes.Deploy(ctx, provider, spec, r.Progress); err == nil {
		ends = m.Info().ID
	}
	return m, ends, err
}

func orDefault[T int | float64 | time.Duration](v, otherwise T) T {
	if v <= 0 {
		return otherwise
	}
	return v
}

// here reports whether the first provider of a spec makes its sandboxes on this machine; one that is not known is reported by the manager.
func (d *Deployer) here(spec string) bool {
	names, err := d.o.Sandboxes.Resolve(spec)
	if err != nil {
		return false
	}
	p, err := d.o.Sandboxes.Provider(names[0])
	return err == nil && p.Capabilities().OnThisMachine
}

func minDisk(a *agent.Agent) float64 {
	n, _ := a.Metadata.Value("min_disk_size_gb").(doc.Number)
	if !n.Finite() {
		return 0
	}
	return n.Float64()
}

func (d *Deployer) image(ctx context.Context, r Request) (Image, error) {
	ref := artifact.Ref{ID: r.Agent.Image.ID, Version: r.Agent.Image.Version}
	img, err := artifact.GetAs[*artifact.DockerImage](ctx, d.o.Artifacts, ref)
	if err != nil {
		return Image{}, fault.At(err, "the image of the agent %s", r.Agent.ID)
	}
	ready, err := d.o.Images.Ready(ctx, img, r.Progress)
	return ready, fault.At(err, "the image of the agent %s", r.Agent.ID)
}

// ready waits for the card and registers the instance.
func (d *Deployer) ready(ctx context.Context, r Request, m sandbox.Machine, env map[string]string) (*Deployed, error) {
	info := r.On.apply(m.Info())
	url := strings.TrimRight(info.TunnelURLs[strconv.Itoa(Port)], "/")
	if url == "" {
		// A container that ended at once publishes nothing any more.
		err := ended(ctx, m)
		if err == nil {
			err = fault.New(fault.Unavailable, "%s publishes no port %d, at which the agent listens", info.ID, Port)
		}
		return nil, withOutput(ctx, m, err, hider(env))
	}
	d.variables.Store(info.ID, secretValues(env))
	e := agent.Endpoint{URL: url, Token: env[varToken], Sandbox: info.ID, SandboxType: info.Type}
	found, err := d.await(ctx, m, e, hider(env))
	if err != nil {
		return nil, err
	}
	e.Card = found
	document, err := cardDocument(found)
	if err != nil {
		return nil, err
	}
	document = Hidden(document, d.Secrets(info.ID)).(*doc.Object)
	policy := Policy(info).Document()
	if r.On != nil && info.Policy == nil { // nobody gave it one
		policy = nil
	}
	now := d.o.Now().UTC()
	expires := now.Add(orDefault(r.TTL, DefaultTTL))
	if r.On != nil && !info.ExpiresAt.IsZero() {
		expires = info.ExpiresAt
	}
	in := agent.Instance{InstanceID: agent.NewInstanceID(r.Agent.ID), AgentID: r.Agent.ID, AgentVersion: r.Agent.Version, URL: url, SandboxID: info.ID,
		SandboxType: info.Type, Card: document, NetworkPolicy: policy, CreatedAt: now, ExpiresAt: expires}
	if err := d.o.Instances.Put(ctx, in); err != nil {
		return nil, err
	}
	return &Deployed{Endpoint: e, Card: document, InstanceID: in.InstanceID, Info: info, Policy: policy}, nil
}

// Policy returns the network policy a sandbox was made with, which is to allow all where nothing is known.
func Policy(info sandbox.Info) *sandbox.NetworkPolicy {
	if info.Policy != nil {
		return info.Policy
	}
	return &sandbox.NetworkPolicy{Mode: sandbox.AllowAll}
}

func cardDocument(c *card.Card) (*doc.Object, error) {
	v, err := doc.From(c.Document)
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "the agent's card cannot be kept")
	}
	return v.(*doc.Object), nil
}

// Close ends a deployed agent with the sandbox it was given, or its container on one that was there before, within the manager's limit and
// also when ctx has ended. A second call is a no-op.
func (d *Deployer) Close(ctx context.Context, a *Deployed) error {
	return d.end(ctx, a.Info, a.ends, a.Endpoint.Sandbox)
}

func (d *Deployer) end(ctx context.Context, info sandbox.Info, id, name string) error {
	clean, stop := context.WithTimeout(context.WithoutCancel(ctx), sandbox.TerminateLimit)
	defer stop()
	return d.o.Sandboxes.Terminate(clean, sandbox.Record{Name: name, ID: id, Type: info.Type, Mode: sandbox.Container})
}

// undo ends what was started for an agent that is not to be, and adds to err what stayed.
func (d *Deployer) undo(ctx context.Context, info sandbox.Info, id, name string, err error) error {
	if left := d.end(ctx, info, id, name); left != nil {
		return &fault.Error{Kind: fault.KindOf(err), Class: fault.ClassOf(err), Err: err, Msg: fmt.Sprintf("%s could not be removed (%v; `agent-env sandbox prune` does)", id, left)}
	}
	return err
}

// Endpoint returns where a recorded agent answers: an entry of a run's deployed_agents, also one that another program wrote. An entry
// without a URL is Invalid.
func (d *Deployer) Endpoint(record *doc.Object) (agent.Endpoint, error) {
	url := record.Str("a2a_url")
	if url == "" {
		url = record.Str("api_url")
	}
	e := agent.Endpoint{URL: strings.TrimRight(url, "/"), Sandbox: record.Str("sandbox_id"), SandboxType: record.Str("sandbox_type")}
	if e.URL == "" {
		return e, fault.New(fault.Invalid, "the agent %q was recorded without a URL", record.Str("agent_name")).WithClass("RuntimeError")
	}
	if o := record.Obj("a2a_card"); o != nil {
		text, err := doc.Compact(o)
		if err != nil {
			return e, err
		}
		if e.Card, err = card.Parse(text); err != nil {
			return e, fault.At(err, "the recorded card of the agent %q", record.Str("agent_name"))
		}
	}
	if e.Sandbox != "" && e.Card.Bearer() {
		var err error
		if e.Token, err = d.o.Tokens.For(e.Sandbox); err != nil {
			return e, err
		}
	}
	return e, nil
}
