// Package artifact keeps named, versioned, immutable records (a document, usually with bytes in the object store): files, sets
// of files, skills, command-line tools, container images and the seed data of environments.
package artifact

import (
	"context"
	"io"

	"agentenv/store/doc"
)

// Artifact is one stored version of an artifact of any type.
type Artifact interface {
	ID() string
	Version() int64
	Type() string
	// Document returns the stored form without created_at_utc.
	Document() *doc.Object
}

// Ref pins an artifact; Version 0 means the latest.
type Ref struct {
	ID      string
	Version int64
}

// Member is one file of an artifact's file view: what loading stages.
type Member struct {
	Name        string // relative slash path, unchecked for artifacts that others wrote
	URL         string // of the bytes, "" when Body gives them
	Size        int64  // -1 = not known without asking the object store
	SHA256      string // hex, "" = not known
	ContentType string
	Open        func(ctx context.Context) (io.ReadCloser, error)
}

// Source is one file to publish.
type Source struct {
	Name        string // relative slash path in the artifact
	Description string // of the member document; "" = the default of the operation
	ContentType string // "" = by name
	Size        int64  // -1 = unknown
	Open        func(ctx context.Context) (io.ReadCloser, error)
}
