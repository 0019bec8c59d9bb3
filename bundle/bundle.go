// Package bundle turns a folder of tasks, artifacts, skills, agents and evals into stored entities, runs its tasks and sums up how they
// ended. Parsing reads the folder alone; planning resolves names and reads the stores; materializing writes what changed, by a
// ledger that remembers what every version was made of.
package bundle

import (
	"agentenv/store/doc"
)

// The stores that entities go to.
const (
	StoreEnv      = "env"
	StoreAgent    = "agent"
	StoreArtifact = "artifact"
	StoreTask     = "task"
	StoreEval     = "eval"
)

// kind is one of the folders of a bundle.
type kind struct {
	dir    string // folder name
	store  string
	typ    string // default type, "" = inferred
	config string // name of the config file in an entity's folder, "" = none
	suffix string // of entities that are files, "" = entities are folders
}

// kinds in the order of everything that lists entities.
var kinds = []kind{
	{dir: "envs", store: StoreEnv, typ: "mcp_server", config: "env.toml"},
	{dir: "agents", store: StoreAgent, typ: "a2a_agent", config: "agent.toml"},
	{dir: "artifacts", store: StoreArtifact, config: "artifact.toml"},
	{dir: "skills", store: StoreArtifact, typ: "skill"},
	{dir: "tasks", store: StoreTask, typ: "task", suffix: ".json"},
	{dir: "evals", store: StoreEval, typ: "eval", suffix: ".toml"},
}

// Entity is one env, agent, artifact, skill, task or eval of a bundle, as parsed.
type Entity struct {
	Store string // where it goes: env, agent, artifact, task or eval
	Name  string // the folder's or file's name without suffix, NFC
	ID    string
	Type  string
	Path  string // slash path in the bundle for messages: "artifacts/x", "tasks/t.json"

	b      *Bundle
	kind   *kind
	disk   string      // where it is on this machine
	config *doc.Object // its TOML, nil when there is none
	steps  []any       // of a task
	extra  *doc.Object // of a task in object form: the fields beside its steps
	tasks  []any       // of an eval: names or ids as written
}

// image reports whether the entity is an image built from a Dockerfile.
func (e *Entity) dockerfile() bool {
	return e.Store == StoreArtifact && e.Type == "docker_image" && e.config.Value("ref") == nil
}

// Label is how lines about a write name the entity: its path, and for an image what it is made from.
func (e *Entity) Label() string {
	if e.Store == StoreArtifact && e.Type == "docker_image" {
		if ref := e.config.Str("ref"); ref != "" {
			return e.Path + " (" + ref + " image)"
		}
		return e.Path + " (Dockerfile image)"
	}
	return e.Path
}

// Bundle is a parsed folder. It is immutable and safe for concurrent use.
type Bundle struct {
	Dir         string // the folder, links resolved
	Root        string // id root: "@local/~/demo"
	Description string // first line of the README, "" = none
	Entities    []*Entity
	Ignored     []string // entries that mean nothing, relative to the folder

	aliases []alias // that aliases.toml gives
	shown   string  // the folder as the user gave it
}

// Of returns the entities of one store in bundle order.
func (b *Bundle) Of(store string) []*Entity {
	var out []*Entity
	for _, e := range b.Entities {
		if e.Store == store {
			out = append(out, e)
		}
	}
	return out
}

// document returns a task in stored form with these steps.
func (e *Entity) document(steps []any) *doc.Object {
	d := doc.Of("id", e.ID, "type", "task", "version", nil, "steps", steps)
	for _, k := range e.extra.Keys() {
		d.Set(k, e.extra.Value(k))
	}
	return d
}
