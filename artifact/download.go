package artifact

import (
	"context"
	"io"
	"os"
	"path"
	"path/filepath"

	"golang.org/x/sync/errgroup"

	"agentenv/fault"
	"agentenv/store"
)

// downloadParallel is how many files Download writes at once when the caller does not say.
const downloadParallel = 8

// Download writes members below a folder, which is made when it is not there, several at once, and calls done (which may be nil)
// after each, one call at a time in any order. Every name is checked first: when one is absolute, leads out of the folder, or two
// meet in one path, nothing is written and the Invalid error names it. Existing files are replaced; links already in the folder are never
// written through. parallel 0 = 8.
func Download(ctx context.Context, dir string, ms []Member, parallel int, done func(m Member, dest string, bytes int64)) error {
	if parallel <= 0 {
		parallel = downloadParallel
	}
	paths := map[string]string{}
	for _, m := range ms {
		if err := CheckRelative(m.Name); err != nil {
			return fault.At(err, "nothing was written below %s", dir)
		}
		p := path.Clean(m.Name)
		if other, taken := paths[p]; taken {
			return fault.New(fault.Invalid, "nothing was written below %s: %q and %q are one path", dir, other, m.Name)
		}
		paths[p] = m.Name
	}
	for p := range paths {
		for up := path.Dir(p); up != "."; up = path.Dir(up) {
			if other, taken := paths[up]; taken {
				return fault.New(fault.Invalid, "nothing was written below %s: %q is a file, and %q lies below it", dir, other, paths[p])
			}
		}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fault.Wrap(fault.KindOf(err), err, "make the folder %s", dir)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fault.Wrap(fault.KindOf(err), err, "open the folder %s", dir)
	}
	defer root.Close()
	var turn = make(chan struct{}, 1)
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	for _, m := range ms {
		g.Go(func() error {
			name := path.Clean(m.Name)
			n, err := downloadOne(ctx, root, name, m)
			if err != nil {
				return fault.At(err, "file %q to %s", m.Name, dir)
			}
			if done != nil {
				turn <- struct{}{}
				done(m, filepath.Join(dir, filepath.FromSlash(name)), n)
				<-turn
			}
			return nil
		})
	}
	return g.Wait()
}

func downloadOne(ctx context.Context, root *os.Root, name string, m Member) (int64, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	r, err := m.Open(ctx)
	if err != nil {
		return 0, err
	}
	defer r.Close()
	name = filepath.FromSlash(name)
	if err := root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return 0, err
	}
	tmp := filepath.Join(filepath.Dir(name), ".agentenv-"+RandomHex(8))
	f, err := root.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return 0, err
	}
	n, err := io.Copy(f, store.ReaderUntil(ctx, r))
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil && m.Size >= 0 && n != m.Size {
		err = fault.New(fault.Unavailable, "%d of %d bytes arrived", n, m.Size)
	}
	if err == nil {
		err = root.Rename(tmp, name)
	}
	if err != nil {
		root.Remove(tmp)
	}
	return n, err
}
