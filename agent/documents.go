package agent

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"agentenv/fault"
	"agentenv/store"
	"agentenv/store/doc"
	"agentenv/store/document"
)

// DocumentType is the type that the documents of agents carry.
const DocumentType = "a2a_agent"

const collAgents = "a2a_agents"

// ArtifactRef is a stored artifact at one version.
type ArtifactRef struct {
	ID      string
	Version int64
	Type    string // "" is written as docker_image
}

// NewAgent is an agent to store.
type NewAgent struct {
	ID         string
	Version    int64       // 0 = the next one
	Image      ArtifactRef // the docker_image artifact it runs from
	DefaultEnv *doc.Object // variables of its container, texts; nil = none
	Metadata   *doc.Object // default_model, min_disk_size_gb, takes_credentials and what else is known; nil = none
}

// Agent is a stored agent. All of it but the metadata never changes.
type Agent struct {
	ID         string
	Version    int64
	Image      ArtifactRef
	DefaultEnv *doc.Object // never nil
	Metadata   *doc.Object // never nil
	CreatedAt  string
	Document   *doc.Object // as stored, without created_at_utc
}

// Documents stores agents: versions of an id, counted from 1 (collection a2a_agents). It is safe for concurrent use, also by several
// processes.
type Documents struct {
	agents  document.Versioned
	now     func() time.Time
	log     *slog.Logger
	aliases func() *store.Aliases // nil = there are none
}

// NewDocuments returns the agents of a document store; now is the clock (nil: time.Now), log gets warnings (nil: nobody).
func NewDocuments(docs document.Store, now func() time.Time, log *slog.Logger) *Documents {
	if now == nil {
		now = time.Now
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	indexes := []document.Index{{Fields: []string{"type"}}}
	return &Documents{agents: document.Versioned{Store: docs, Collection: collAgents, Indexes: indexes}, now: now, log: log}
}

// Put stores an agent under the next version of its id and returns it. With a Version set that must be the next one, else the error is
// Conflict. An id that the store cannot take, no pinned image, and a variable that no container can have or that is no text are Invalid. Nothing is written on an error.
func (d *Documents) Put(ctx context.Context, n NewAgent) (*Agent, error) {
	if err := d.CheckID(n.ID); err != nil {
		return nil, err
	}
	if n.Image.ID == "" || n.Image.Version < 1 {
		return nil, fault.New(fault.Invalid, "agent %s: its image must be a stored artifact with a version", n.ID)
	}
	if n.Image.Type == "" {
		n.Image.Type = "docker_image"
	}
	for _, k := range n.DefaultEnv.Keys() {
		if why := VariableProblem(k); why != "" {
			return nil, fault.New(fault.Invalid, "agent %s: %s", n.ID, why)
		}
		if _, ok := n.DefaultEnv.Value(k).(string); !ok {
			return nil, fault.New(fault.Invalid, "agent %s: the variable %s must be text, not %s", n.ID, k, doc.TypeName(n.DefaultEnv.Value(k)))
		}
	}
	o := doc.Of("id", n.ID, "type", DocumentType, "version", doc.Int(n.Version), "docker_image_artifact",
		doc.Of("id", n.Image.ID, "version", doc.Int(n.Image.Version), "type", n.Image.Type),
		"default_env_vars", n.DefaultEnv.Clone(), "metadata", n.Metadata.Clone(), "created_at_utc", preciseTime(d.now()))
	stored, err := d.agents.Put(ctx, o)
	if err != nil {
		return nil, fault.At(err, "agent %s", n.ID)
	}
	return agentOf(stored)
}

// WithAliases returns the same agents, which Get and Find also find by short names. aliases is asked when the store has no agent of an id; it must be
// safe for concurrent use.
func (d *Documents) WithAliases(aliases func() *store.Aliases) *Documents {
	with := *d
	with.aliases = aliases
	return &with
}

// Get returns a version of an agent, the newest for version 0, by its id or, where the store has none of it, by an alias. The error is NotFound when
// there is none, also for an alias of what is not stored yet, Invalid for an alias with a version, one that is refused, and a malformed document, and
// Unsupported for a document of another type.
func (d *Documents) Get(ctx context.Context, id string, version int64) (*Agent, error) {
	found, _, err := d.Find(ctx, id, version)
	return found, err
}

// Find is Get that also says which alias led to the agent; the zero Alias is none.
func (d *Documents) Find(ctx context.Context, id string, version int64) (*Agent, store.Alias, error) {
	found, err := d.stored(ctx, id, version)
	if !fault.Is(err, fault.NotFound) || d.aliases == nil || strings.HasPrefix(id, "@") || strings.Contains(id, "/") {
		return found, store.Alias{}, err
	}
	if version > 0 {
		switch latest, unread := d.Latest(ctx, id); {
		case unread != nil:
			return nil, store.Alias{}, unread
		case latest > 0: // the store's own agent, which shadows an alias
			return nil, store.Alias{}, err
		}
	}
	known := d.aliases()
	alias, ok, refused := known.Find(id)
	switch near := known.Near(id); {
	case refused != nil:
		return nil, store.Alias{}, refused
	case !ok && len(near) > 0:
		return nil, store.Alias{}, fault.New(fault.NotFound, "there is no agent '%s' in the store; did you mean the alias '%s'? `agent-env a2a-agent list` lists the agents a task can name",
			id, strings.Join(near, "' or '")).WithClass("NotFoundError")
	case !ok:
		return nil, store.Alias{}, err
	case version > 0:
		return nil, store.Alias{}, alias.Unpinned()
	}
	found, err = d.stored(ctx, alias.ID, 0)
	if fault.Is(err, fault.NotFound) {
		err = alias.Unwritten()
	}
	return found, alias, err
}

// stored returns a version of an agent by its id.
func (d *Documents) stored(ctx context.Context, id string, version int64) (*Agent, error) {
	o, err := d.agents.Get(ctx, id, version)
	if err != nil {
		return nil, fault.At(err, "read agent %s", id)
	}
	if o == nil {
		which := id
		if version > 0 {
			which += fmt.Sprintf(" version=%d", version)
		}
		return nil, fault.New(fault.NotFound, "A2AAgent %s not found", which).WithClass("NotFoundError")
	}
	return agentOf(o)
}

// Latest returns the newest version of the agent of an id, 0 when the store has none; an alias is no id.
func (d *Documents) Latest(ctx context.Context, id string) (int64, error) {
	n, err := d.agents.Store.LatestVersion(ctx, collAgents, id)
	return n, fault.At(err, "read agent %s", id)
}

// List returns the newest version of each agent, the latest stored first, at most limit (0 = all). Documents of other types are
// left out with a warning.
func (d *Documents) List(ctx context.Context, limit int) ([]*Agent, error) {
	page, _, err := d.agents.Store.LatestPerID(ctx, collAgents, document.LatestQuery{Query: document.Query{Limit: limit,
		Sort: []document.Sort{{Path: "created_at_utc", Desc: true}, {Path: "id"}}}})
	if err != nil {
		return nil, fault.At(err, "list agents")
	}
	agents := make([]*Agent, 0, len(page))
	for _, o := range page {
		a, err := agentOf(o)
		if fault.Is(err, fault.Unsupported) {
			d.log.Warn("agent left out of the list", "error", err.Error())
			continue
		}
		if err != nil {
			return nil, err
		}
		agents = append(agents, a)
	}
	return agents, nil
}

// Count returns how many agents are stored, each counted once.
func (d *Documents) Count(ctx context.Context) (int, error) {
	n, err := d.agents.Store.CountDistinct(ctx, collAgents, nil, "id")
	return n, fault.At(err, "count agents")
}

// UpdateMetadata changes the metadata of one stored version: change gets a copy of it and may set keys, but no updated_at, which becomes the time
// of the change. expected is the updated_at that the caller has read ("" = there was none): when another one is stored, the error is Conflict and
// nothing is changed. A version that is not there is NotFound.
func (d *Documents) UpdateMetadata(ctx context.Context, id string, version int64, expected string, change func(*doc.Object)) error {
	a, err := d.stored(ctx, id, version)
	if err != nil {
		return err
	}
	fresh := a.Metadata.Clone()
	change(fresh)
	fresh.Set("updated_at", preciseTime(d.now()))
	f := document.By("id", id, "version", doc.Int(a.Version))
	if expected == "" {
		f = f.And("metadata.updated_at", document.AbsentOrNull, nil)
	} else {
		f = f.And("metadata.updated_at", document.Eq, expected)
	}
	n, err := d.agents.Store.Update(ctx, collAgents, f, document.Update{Set: doc.Of("metadata", fresh)}, false)
	if err == nil && n == 0 {
		err = fault.New(fault.Conflict, "agent %s v%d: its metadata was changed by somebody else meanwhile (at %s); read it again and redo the change",
			id, a.Version, a.Metadata.Str("updated_at")).WithClass("ConcurrentModificationError")
	}
	return err
}

// agentOf reads a stored document. Old ones hold two of the metadata at the top.
func agentOf(o *doc.Object) (*Agent, error) {
	id := o.Str("id")
	version, _ := o.Int("version")
	if typ := o.Str("type"); typ != DocumentType {
		return nil, fault.New(fault.Unsupported, "agent %s v%d has the type %q, which this program does not know", id, version, typ)
	}
	image := o.Obj("docker_image_artifact")
	imageVersion, ok := image.Int("version")
	if image.Str("id") == "" || !ok || imageVersion < 1 {
		return nil, fault.New(fault.Invalid, "agent %s v%d is malformed: docker_image_artifact is no reference {id, version ≥ 1}", id, version)
	}
	metadata := o.Obj("metadata").Clone()
	document := o.Clone()
	document.Delete("created_at_utc")
	for _, key := range []string{"min_disk_size_gb", "default_model"} {
		old, there := o.Get(key)
		if there && old != nil && metadata.Value(key) == nil {
			metadata.Set(key, old)
		}
		document.Delete(key)
	}
	document.Set("metadata", metadata)
	return &Agent{ID: id, Version: version, Image: ArtifactRef{ID: image.Str("id"), Version: imageVersion, Type: image.Str("type")},
		DefaultEnv: o.Obj("default_env_vars").Clone(), Metadata: metadata, CreatedAt: o.Str("created_at_utc"), Document: document}, nil
}
