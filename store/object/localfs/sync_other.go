//go:build !linux

package localfs

import (
	"errors"
	"os"
)

// syncMany makes all staged objects durable.
func (b *batch) syncMany() error {
	for i := range b.objects {
		if err := syncFile(b.staged(i)); err != nil {
			return err
		}
	}
	return nil
}

func startFlush(*os.File, int64, int64) {}

func renameNew(string, string) error { return errors.ErrUnsupported }
