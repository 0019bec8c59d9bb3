package bundle

import (
	"context"
	"log/slog"
	"time"

	"agentenv/artifact"
	"agentenv/sandbox"
	"agentenv/store/document"
	"agentenv/task"
)

// Providers is what is asked of the sandbox providers; the manager of sandboxes is one.
type Providers interface {
	// Resolve checks a provider spec ("" = the configured default) and returns its names.
	Resolve(spec string) ([]string, error)
	Provider(name string) (sandbox.Provider, error)
}

// ImageBuild is one image to build on this machine's engine.
type ImageBuild struct {
	ID         string                 // of the artifact
	Name       string                 // name:tag the image gets
	Sources    string                 // digest of the sources, the value of the label dev.agentenv.sources
	Context    *artifact.BuildContext // lay it out with WriteTo
	Platform   string                 // "" = the engine's own
	Dockerfile string                 // slash path in the context
}

// ImageBuilder builds images on this machine's engine. It is safe for concurrent use.
type ImageBuilder interface {
	// Holds reports whether the engine has an image of this name whose sources label has this value.
	Holds(ctx context.Context, name, sources string) (bool, error)
	// Build builds the image and gives it its name and the sources label; progress gets a line at a time. A failed build is an Invalid
	// error that ends in the build's last output.
	Build(ctx context.Context, b ImageBuild, progress func(line string)) error
}

// Deps are what a Runner works with. Documents and Artifacts route @local ids to the per-user stores.
type Deps struct {
	Registry  *task.Registry
	Documents document.Store
	Artifacts *artifact.Store
	Providers Providers
	Images    ImageBuilder                                          // nil = no engine
	Pin       func(ctx context.Context, ref string) (string, error) // resolves a tag to name:tag@sha256:…; nil = cannot
	Installed *Installed                                            // bundles whose agents and artifacts others may name; nil = none
	// DefaultAgent returns the id or alias of the agent of steps that name none; nil = such steps are not looked at.
	DefaultAgent func() (string, error)
	StateRoot    string           // holds the locks
	Log          *slog.Logger     // nil = nothing is logged
	Now          func() time.Time // nil = time.Now
}

// Runner plans and writes bundles. It keeps no state and is safe for concurrent use.
type Runner struct{ Deps }

// NewRunner returns a Runner over d.
func NewRunner(d Deps) *Runner {
	if d.Log == nil {
		d.Log = slog.New(slog.DiscardHandler)
	}
	if d.Now == nil {
		d.Now = time.Now
	}
	return &Runner{d}
}
