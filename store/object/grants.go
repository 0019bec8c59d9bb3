package object

import (
	"context"
	"time"

	"agentenv/fault"
	"agentenv/protocol/transfer"
)

// Grants is what a store offers to those who have no access to it: permissions that name one object, or the objects below one URL, and end
// by themselves. A store that issues none has a nil Grants. A lifetime of 0 is the store's own. Errors of all methods: Invalid for a URL of
// another store, Unavailable for a lifetime that the store cannot give or when it cannot issue grants now. All methods are safe for
// concurrent use.
type Grants interface {
	// Reach reports whether what runs in a sandbox of this type can use the grants; for "", no known place, it is false.
	Reach(sandboxType string) bool
	// Lifetime is how long a grant lasts when nothing is asked.
	Lifetime() time.Duration
	// MaxSingleUpload is how many bytes one write takes at most; 0 = no limit.
	MaxSingleUpload() int64
	// Read returns a grant to read an object, whether or not it is there.
	Read(ctx context.Context, url string, lifetime time.Duration) (transfer.Grant, error)
	// Write returns a grant to write an object of a media type, of at most so many bytes, over one that is there.
	Write(ctx context.Context, url, mediaType string, maxBytes int64, lifetime time.Duration) (transfer.Grant, error)
	// Policy returns a permission to write objects below a URL that ends in a slash, each of at most so many bytes, and when it ends.
	Policy(ctx context.Context, prefixURL string, maxObjectBytes int64, lifetime time.Duration) (transfer.Policy, time.Time, error)
	// SignedGet and SignedPut return an https URL that anyone may read or write the object by; "" where the store signs none.
	SignedGet(ctx context.Context, url string, lifetime time.Duration) (string, error)
	SignedPut(ctx context.Context, url string, lifetime time.Duration) (string, error)
	// Hint says what to look at when a grant could not be reached, "" for nothing. It holds no grant.
	Hint() string
}

// Resuming are Grants whose permissions to write below a path outlive the process that gave them.
type Resuming interface {
	// Resume serves at the port of such a permission's URL, in a later process. Conflict when something else listens there; a second call is a no-op.
	Resume(ctx context.Context, port int) error
}

// Granting is one store and the grants it issues; nil = none.
type Granting struct {
	Store  Store
	Grants Grants
}

// GrantsFor returns the grants of the first store that owns the URL: nil when it issues none, or when no store owns it.
func GrantsFor(list []Granting, url string) Grants {
	for _, g := range list {
		if g.Store.Owns(url) {
			return g.Grants
		}
	}
	return nil
}

// ReadableURL returns an https URL by which what runs in a sandbox of the type reads the object with a plain GET: that of a grant without
// headers, else a signed one, "" where there is neither; g may be nil. It lasts for the lifetime, or the store's when that is longer. The
// error is Invalid for a URL of another store.
func ReadableURL(ctx context.Context, g Grants, url, sandboxType string, lifetime time.Duration) (string, error) {
	if g == nil {
		return "", nil
	}
	lifetime = max(lifetime, g.Lifetime())
	if g.Reach(sandboxType) {
		grant, err := g.Read(ctx, url, lifetime)
		switch {
		case err == nil && len(grant.Headers) == 0:
			return grant.URL, nil
		case err != nil && !fault.Is(err, fault.Unavailable):
			return "", err
		}
	}
	return g.SignedGet(ctx, url, lifetime)
}
