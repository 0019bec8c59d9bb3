package image

import (
	"context"
	"strings"

	"agentenv/fault"
	"agentenv/store"
)

// Router is a Store over two: the configured registry and the local one, where the images of @local entities are. Refs on
// the local registry's host are local; in a local run repositories that start with local/ are, and no other can be made.
type Router struct{ configured, local Store }

var _ Store = (*Router)(nil)

// NewRouter returns a router; for one and the same host it returns configured alone.
func NewRouter(configured, local Store) Store {
	if configured.Host() == local.Host() {
		return configured
	}
	return &Router{configured: configured, local: local}
}

func isLocalRepository(repository string) bool { return strings.HasPrefix(repository, "local/") }

// Ref returns the reference of a repository: on the local registry for one that starts with local/.
func (r *Router) Ref(repository, tag string) string {
	if isLocalRepository(repository) {
		return r.local.Ref(repository, tag)
	}
	return r.configured.Ref(repository, tag)
}

// Owns reports whether ref is on either registry.
func (r *Router) Owns(ref string) bool { return r.configured.Owns(ref) || r.local.Owns(ref) }

// Auth returns the login of the registry that ref is on.
func (r *Router) Auth(ctx context.Context, ref string) (*Auth, error) {
	if r.local.Owns(ref) {
		return r.local.Auth(ctx, ref)
	}
	return r.configured.Auth(ctx, ref)
}

// EnsureRepository makes a repository usable. In a local run one that is not local is refused (Denied).
func (r *Router) EnsureRepository(ctx context.Context, repository string) error {
	switch {
	case isLocalRepository(repository):
		return r.local.EnsureRepository(ctx, repository)
	case store.InLocalRun(ctx):
		return fault.New(fault.Denied, "image repository %q: the run of %q is local and pushes only to the local registry", repository, store.RunScope(ctx))
	}
	return r.configured.EnsureRepository(ctx, repository)
}

// Host returns the configured registry's host.
func (r *Router) Host() string { return r.configured.Host() }

// OnThisMachine reports whether the images of a repository are kept in the local registry, which no other machine reaches.
func OnThisMachine(s Store, repository string) bool {
	if r, ok := s.(*Router); ok {
		s = r.configured
		if isLocalRepository(repository) {
			s = r.local
		}
	}
	_, local := s.(*Local)
	return local
}
