package object

import (
	"context"
	"io"

	"agentenv/fault"
	"agentenv/store"
)

// Router is a Store over two: the configured one and the local one of the @local namespace. In a local run
// (store.WithRunScope) keys name local objects and nothing is written to the configured store; outside one keys name
// configured objects. URLs go to the store that owns them.
type Router struct{ configured, local Store }

var _ Store = (*Router)(nil)

// NewRouter returns a router over two stores, which it closes. For one and the same place pass that store itself, not a
// router.
func NewRouter(configured, local Store) *Router { return &Router{configured: configured, local: local} }

// For returns the store of an entity's objects: an @local entity's are local, a bare one's configured. Writing a
// configured object in a local run is an error of kind Denied.
func (r *Router) For(ctx context.Context, id string) (Store, error) {
	switch {
	case store.IsLocal(id):
		return r.local, nil
	case store.InLocalRun(ctx):
		return nil, fault.New(fault.Denied, "object of %q: the run of %q is local and writes only to the local store", id, store.RunScope(ctx))
	}
	return r.configured, nil
}

// Placed returns the store of the objects of the entity id: what For of a Router says, any other store itself.
func Placed(ctx context.Context, s Store, id string) (Store, error) {
	if r, ok := s.(*Router); ok {
		return r.For(ctx, id)
	}
	return s, nil
}

// CheckURL refuses (Invalid) an object URL in the other namespace than the entity id that is to keep it.
func (r *Router) CheckURL(id, url string) error {
	if local := r.isLocal(url); local != store.IsLocal(id) {
		return fault.New(fault.Invalid, "entity %q and its object %s are in different namespaces: an @local entity keeps its objects in the local store, any other in the configured one", id, url)
	}
	return nil
}

func (r *Router) isLocal(url string) bool { return r.local.Owns(url) && !r.configured.Owns(url) }

func (r *Router) keys(ctx context.Context) Store {
	if store.InLocalRun(ctx) {
		return r.local
	}
	return r.configured
}

func (r *Router) owner(url string) Store {
	if r.isLocal(url) {
		return r.local
	}
	return r.configured
}

// Put writes one object: in a local run to the local store, otherwise to the configured one.
func (r *Router) Put(ctx context.Context, it Item, overwrite bool) (Written, error) {
	return r.keys(ctx).Put(ctx, it, overwrite)
}

// PutAll writes many objects like Put.
func (r *Router) PutAll(ctx context.Context, next func() (Item, error)) ([]Written, error) {
	return r.keys(ctx).PutAll(ctx, next)
}

// Open streams an object from the store that owns its URL.
func (r *Router) Open(ctx context.Context, url string) (io.ReadCloser, error) {
	return r.owner(url).Open(ctx, url)
}

// Stat describes an object of the store that owns its URL.
func (r *Router) Stat(ctx context.Context, url string) (*Info, error) {
	return r.owner(url).Stat(ctx, url)
}

// List lists keys of the store that keys name under ctx.
func (r *Router) List(ctx context.Context, prefix string) ([]string, error) {
	return r.keys(ctx).List(ctx, prefix)
}

// ListAt lists below a URL in the store that owns it.
func (r *Router) ListAt(ctx context.Context, urlPrefix string) ([]string, error) {
	return r.owner(urlPrefix).ListAt(ctx, urlPrefix)
}

// URL returns the URL of a key of the configured store. In a local run use Placed, whose URLs are the local ones.
func (r *Router) URL(key string) (string, error) { return r.configured.URL(key) }

// Key returns the key of a URL of either store.
func (r *Router) Key(url string) (string, error) { return r.owner(url).Key(url) }

// Owns reports whether url is one of either store's.
func (r *Router) Owns(url string) bool { return r.configured.Owns(url) || r.local.Owns(url) }

// Close closes both stores.
func (r *Router) Close() error {
	err := r.configured.Close()
	if lerr := r.local.Close(); err == nil {
		err = lerr
	}
	return err
}
