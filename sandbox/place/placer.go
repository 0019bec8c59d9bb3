package place

import (
	"context"
	"io"
)

// TarPlacer is a Place that reads back what it unpacked in the same go, which spares Put a second way.
type TarPlacer interface {
	// PutTarPlaced is PutTar and returns every file as it was found in the place afterwards, read anew.
	PutTarPlaced(ctx context.Context, dir string, tar io.Reader) ([]Placed, error)
}

// BigPlacer is a Place with a quicker way for a big file than a tar stream.
type BigPlacer interface {
	// PutBig writes one file of exactly size bytes to name below dir, with the rules of PutTar, and returns it as it was
	// found afterwards, read anew. ok is false, without an error, where the quicker way does not lead: nothing of open was
	// read then, and nothing is left.
	PutBig(ctx context.Context, dir string, name string, executable bool, size int64, open func(context.Context) (io.ReadCloser, error)) (placed Placed, ok bool, err error)
}
