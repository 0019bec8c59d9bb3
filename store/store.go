// Package store holds what all stores share: entity ids, the @local namespace, and the scope of a run.
package store

import "context"

// LocalPrefix opens the ids of the private per-user namespace.
const LocalPrefix = "@local/"

type scopeKey struct{}

// WithRunScope returns a context in which the run of the entity with this id is in progress. While the id is @local, every
// write goes to the local stores and one that would reach a configured store is refused; a run nested in a local run stays
// local whatever its own id.
func WithRunScope(ctx context.Context, ownerID string) context.Context {
	if InLocalRun(ctx) {
		return ctx
	}
	return context.WithValue(ctx, scopeKey{}, ownerID)
}

// RunScope returns the owner id of the run in progress, "" outside one.
func RunScope(ctx context.Context) string {
	id, _ := ctx.Value(scopeKey{}).(string)
	return id
}

// InLocalRun reports whether the run in progress is an @local one.
func InLocalRun(ctx context.Context) bool { return IsLocal(RunScope(ctx)) }
