//go:build !linux

package localfs

import (
	"os"
	"path/filepath"
)

// syncAll writes the folders of a batch, and the files in them, to the disk.
func syncAll(_ string, dirs map[string]bool) error {
	for d := range dirs {
		entries, err := os.ReadDir(d)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if !e.Type().IsRegular() {
				continue
			}
			f, err := os.Open(filepath.Join(d, e.Name()))
			if err != nil {
				return err
			}
			err = f.Sync()
			f.Close()
			if err != nil {
				return err
			}
		}
		if err := syncDir(d); err != nil {
			return err
		}
	}
	return nil
}
