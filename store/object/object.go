// Package object is the portable type of object stores: bytes under a logical key, addressed by an opaque object URL that
// documents keep. objecttest holds the conformance suite that every driver passes.
package object

import (
	"context"
	"io"
	"time"
)

// Info describes a stored object.
type Info struct {
	Size        int64
	ContentType string // "" when unknown
	ModTime     time.Time
	SHA256      string // hex, "" when the store does not know it
}

// Item is one object to write. Body is read once, to its end; Size is what it must hold (-1: unknown), a different length
// is an error and stores nothing.
type Item struct {
	Key         string
	ContentType string // "" = application/octet-stream
	Size        int64
	Body        io.Reader
}

// Written says what a write stored.
type Written struct {
	URL    string
	Size   int64
	SHA256 string // hex, computed while writing
}

// Store is one object store. All methods are safe for concurrent use. Writes are durable and atomic when they return: a
// reader sees the whole object or none. Errors carry a fault kind: NotFound for a missing object, Exists for a key that is
// taken, Invalid for a key or URL that is not this store's, Denied, Unavailable.
type Store interface {
	// Put writes one object. Keys are write-once: a taken key is an Exists error unless overwrite.
	Put(ctx context.Context, it Item, overwrite bool) (Written, error)
	// PutAll writes many objects with one durable commit at the end; next returns io.EOF after the last. On an error
	// objects already committed may stay (their keys are unique attempts, so nothing refers to them).
	PutAll(ctx context.Context, next func() (Item, error)) ([]Written, error)
	// Open streams an object's bytes.
	Open(ctx context.Context, url string) (io.ReadCloser, error)
	// Stat returns nil without an error when there is no object at url.
	Stat(ctx context.Context, url string) (*Info, error)
	// List returns the keys that begin with prefix, ListAt the URLs below a URL that ends in "/"; sorted.
	List(ctx context.Context, prefix string) ([]string, error)
	ListAt(ctx context.Context, urlPrefix string) ([]string, error)
	// URL returns the URL of a key (whether or not an object is there); a key ending in "/" gives a prefix URL. Key is
	// its inverse; a URL of another store is an Invalid error.
	URL(key string) (string, error)
	Key(url string) (string, error)
	// Owns reports whether url is one of this store's.
	Owns(url string) bool
	Close() error
}
