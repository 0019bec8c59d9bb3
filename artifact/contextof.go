package artifact

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"sort"

	"github.com/moby/patternmatcher"
	"github.com/moby/patternmatcher/ignorefile"

	"agentenv/fault"
)

// ContextFile is one regular file to be part of a build context.
type ContextFile struct {
	Name string // slash path in the context, NFC
	Path string // on this machine
}

// ContextOf is OpenContext for a list of regular files that may lie anywhere: the ignore file among them applies, and the folders are
// those that hold what is kept. label names the context in errors.
func ContextOf(ctx context.Context, label, dockerfile string, files []ContextFile) (*BuildContext, error) {
	at := map[string]string{}
	for _, f := range files {
		if err := CheckRelative(f.Name); err != nil {
			return nil, fault.At(err, "build context %s", label)
		}
		at[f.Name] = f.Path
	}
	if dockerfile == "" {
		dockerfile = "Dockerfile"
	}
	if at[dockerfile] == "" {
		return nil, fault.New(fault.Invalid, "build context %s: there is no %s", label, dockerfile)
	}
	patterns, ignore, err := ignoresAmong(at, dockerfile)
	if err != nil {
		return nil, fault.New(fault.Invalid, "build context %s: %s: %s", label, ignore, err)
	}
	c := &BuildContext{dir: label, dockerfile: dockerfile}
	folders := map[string]bool{}
	for _, f := range files {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if patterns != nil && f.Name != dockerfile && f.Name != ignore {
			dropped, err := patterns.MatchesOrParentMatches(f.Name)
			if err != nil {
				return nil, fault.New(fault.Invalid, "build context %s: %s: %s", label, ignore, err)
			}
			if dropped {
				continue
			}
		}
		e, err := fileEntry(f)
		if err != nil {
			return nil, fault.New(fault.Invalid, "build context %s: %q: %s", label, f.Name, fault.Reason(err))
		}
		c.entries = append(c.entries, e)
		for up := path.Dir(f.Name); up != "." && !folders[up]; up = path.Dir(up) {
			folders[up] = true
			c.entries = append(c.entries, ContextEntry{Name: up, Mode: fs.ModeDir | 0o755})
		}
	}
	sort.Slice(c.entries, func(i, j int) bool { return c.entries[i].Name < c.entries[j].Name })
	return c, nil
}

func fileEntry(f ContextFile) (ContextEntry, error) {
	e := ContextEntry{Name: f.Name, Mode: 0o644, disk: f.Path}
	info, err := os.Stat(f.Path)
	if err != nil {
		return e, err
	}
	if info.Mode()&0o100 != 0 {
		e.Mode = 0o755
	}
	e.SHA256, e.Size, err = hashFile(f.Path, io.Discard)
	return e, err
}

// ignoresAmong reads the ignore file that belongs to the Dockerfile; no patterns where there is none.
func ignoresAmong(at map[string]string, dockerfile string) (*patternmatcher.PatternMatcher, string, error) {
	for _, name := range []string{dockerfile + ".dockerignore", ".dockerignore"} {
		if at[name] == "" {
			continue
		}
		f, err := os.Open(at[name])
		if err != nil {
			return nil, name, err
		}
		defer f.Close()
		lines, err := ignorefile.ReadAll(io.LimitReader(f, maxIgnoreFile))
		if err != nil {
			return nil, name, err
		}
		m, err := patternmatcher.New(lines)
		return m, name, err
	}
	return nil, "", nil
}

// WriteTo lays the context out below an existing folder, exactly as it was listed. A file that changed since is a Conflict error.
func (c *BuildContext) WriteTo(ctx context.Context, dir string) error {
	r, w := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := c.Tar(ctx, w)
		w.CloseWithError(err)
		done <- err
	}()
	err := Extract(ctx, r, dir)
	r.CloseWithError(io.ErrClosedPipe)
	if packing := <-done; packing != nil && !errors.Is(packing, io.ErrClosedPipe) {
		return packing
	}
	return err
}
