// Package image is the portable type of image stores: where container images are pushed to and pulled from.
package image

import "context"

// Auth is login material for one registry. String never shows the password.
type Auth struct{ Registry, Username, Password string }

// String returns the registry and the user name.
func (a Auth) String() string { return a.Username + "@" + a.Registry + " (password hidden)" }

// Store names one registry. Safe for concurrent use.
type Store interface {
	// Ref returns the reference an image of this repository and tag has in the store.
	Ref(repository, tag string) string
	// Owns reports whether ref names this store's registry.
	Owns(ref string) bool
	// Auth returns login material for ref, nil when ref is foreign or needs none.
	Auth(ctx context.Context, ref string) (*Auth, error)
	// EnsureRepository makes the repository usable, starting a local registry when that is what it takes.
	EnsureRepository(ctx context.Context, repository string) error
	// Host returns the normalised registry host.
	Host() string
}
