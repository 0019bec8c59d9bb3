package store

import (
	"context"
	"io"
)

// ReaderUntil returns a reader of r that fails with the cause of ctx's end from the first Read after it on. A Read that waits is not
// woken. It is as safe for concurrent use as r.
func ReaderUntil(ctx context.Context, r io.Reader) io.Reader { return readerUntil{ctx, r} }

type readerUntil struct {
	ctx context.Context
	r   io.Reader
}

// Read implements io.Reader.
func (u readerUntil) Read(p []byte) (int, error) {
	if u.ctx.Err() != nil {
		return 0, context.Cause(u.ctx)
	}
	return u.r.Read(p)
}
