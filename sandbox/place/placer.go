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
