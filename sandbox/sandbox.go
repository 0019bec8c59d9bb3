// Package sandbox makes, finds again and ends the machines that work runs on. Provider is what a backend implements;
// Manager is the portable type that steps and commands use: it keeps the ledger, the cap on live sandboxes, fallback
// chains and the rules that hold on every backend. PlaceOf is the one function that decides where a step acts.
package sandbox

import (
	"context"
	"time"

	"agentenv/sandbox/place"
)

// Mode is what was asked for and recorded: a bare machine, or a container of an image.
type Mode string

// The modes.
const (
	VM        Mode = "vm"
	Container Mode = "container"
)

// Spec says what to create. Zero values take the defaults of the fields' comments.
type Spec struct {
	Name         string // the task's name for it, for messages
	Mode         Mode
	Image        string            // container mode: required
	Port         int               // container mode: the container port to publish; required
	Env          map[string]string // container mode
	ExposedPorts []int             // vm mode
	CPU          float64           // cores; 0 = 1.0
	MemoryMB     int               // 0 = 8192
	DiskGB       float64           // 0 = 10
	TTL          time.Duration     // 0 = 2 h
	Policy       *NetworkPolicy    // nil = allow all
	Attribution  map[string]string // tags for the backend
	Owner        Owner
	// ServesItsCommand says that the container is there for its command alone, as an agent's is: it ends when that does, and where the
	// engine lets it, it reaches this machine as host.docker.internal.
	ServesItsCommand bool
	// Files are put into the container before it starts, by absolute path, for everybody to read: no place for a secret. nil = none.
	Files map[string][]byte
	// Docker is the image of a Docker Engine of the container's own, which it reaches at DockerHost and which ends with it; "" = none.
	Docker string
	// EnvOf gives further variables that hang on the sandbox's id, once that is known; nil = none. It is not called by a backend that
	// gives ids itself.
	EnvOf func(id string) (map[string]string, error)
}

// DockerHost is where a container reaches the Docker Engine of its own that Spec.Docker asks for.
const DockerHost = "tcp://agent-dind:2375"

// Owner says for which run a sandbox is made.
type Owner struct {
	Instance string // run instance id
	Task     string
	Step     string
}

// Info is what is known about a live sandbox.
type Info struct {
	ID            string            // accepted by Attach and Terminate of the same provider in any process
	Type          string            // provider name
	Mode          Mode              // as the live handle reports it; VM-backed providers report every reattached sandbox as vm
	TunnelURLs    map[string]string // container port → URL, no trailing slash; nil when there are none
	VNCURL        string
	Policy        *NetworkPolicy // as applied; nil = unknown
	ContainerName string         // the container beside the host, "" where the sandbox is the container or there is none
	WorkDir       string         // the folder on this machine that belongs to it, "" when there is none
	ExpiresAt     time.Time      // zero = unknown
}

// Machine is a live handle. Safe for concurrent use.
type Machine interface {
	Info() Info
	// Host returns the machine's own filesystem and processes, nil where the sandbox is itself a container.
	Host() place.Place
	// Container returns a container on or as this machine: "" is the sandbox's own, another name the scoped name of one
	// beside the host. The error is NotFound when there is no such container. A stopped container is found.
	Container(ctx context.Context, name string) (place.Place, error)
	// ScopedName returns the name a container, network or image called name in a task has on this host.
	ScopedName(name string) string
	// Close releases the handle, not the sandbox; a second call is a no-op.
	Close() error
}

// Capabilities says what a provider can do.
type Capabilities struct {
	Modes         []Mode
	OnThisMachine bool
	IsContainer   bool // container mode gives a sandbox that is the container (no host)
	Allowlist     bool // can enforce NetworkPolicy mode allowlist
	CustomImageVM bool // vm mode takes an image
	DockerBeside  bool // a container can have a Docker Engine of its own (Spec.Docker)
}

// Provider is one backend. All methods are safe for concurrent use.
type Provider interface {
	// Name is the registry name, recorded as sandbox_type.
	Name() string
	Capabilities() Capabilities
	// NewID returns an id for a sandbox about to be created, so that the ledger can name it before it exists; "" where the
	// backend chooses.
	NewID() string
	// Prepare does what may take long before a creation (pulling an image); progress gets one line at a time.
	Prepare(ctx context.Context, s Spec, progress func(string)) error
	// Create makes the sandbox with the id NewID gave. When it fails or ctx ends, nothing of it is left; what could not be
	// removed is named in the error.
	Create(ctx context.Context, id string, s Spec) (Machine, error)
	// Attach finds a sandbox again by id, in any process; NotFound when it is gone.
	Attach(ctx context.Context, id string) (Machine, error)
	// Terminate ends a sandbox and all it started and removes what is ours of it; one that is gone is done (nil).
	Terminate(ctx context.Context, id string) error
	// List returns everything on the backend that carries our mark, all pages, running or not.
	List(ctx context.Context) ([]Found, error)
	// Remove removes one thing List found; a thing that is gone is done.
	Remove(ctx context.Context, f Found) error
	// Check says what this provider lacks on this machine, in words with remedies; empty = ready.
	Check(ctx context.Context) []Lack
	Close() error
}

// Found is one thing of ours that a backend holds.
type Found struct {
	Provider  string
	Kind      string // "container", "volume", "network", "image", "folder", "machine"
	Ref       string // the backend's own id
	Name      string
	SandboxID string // "" for shared things such as the helper volume
	Instance  string // the run it was made for
	State     string // running, exited, created, …
	ExpiresAt time.Time
	CreatedAt time.Time
	StateRoot string // mark of the state folder whose ledger knows it
}

// Lack is something missing and what to do about it.
type Lack struct{ What, Remedy string }
