package files

import (
	"context"
	"errors"
	"io"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"agentenv/artifact"
	"agentenv/fault"
	"agentenv/sandbox/place"
	"agentenv/store/doc"
	"agentenv/task"
)

// gathered is what one collection found.
type gathered struct {
	collection *artifact.Collection
	absent     []string // listed sources that are not there
	broken     []string // sources that are there and could not be collected whole
	leftOut    []any    // {path, reason}
	refused    []error  // of listed entries that name nothing that may be collected
	leftCount  int
}

func (g *gathered) leave(r *task.Run, at, reason string) {
	r.Log.Warn("left out: "+at, "reason", reason)
	if g.leftCount++; len(g.leftOut) < listedLeftOut {
		if !utf8.ValidString(at) {
			at = "/" + artifact.SafeName(at)
		}
		g.leftOut = append(g.leftOut, doc.Of("path", at, "reason", reason))
	}
}

// fail notes a source that could not be collected whole: it is left out and fails the step.
func (g *gathered) fail(r *task.Run, at, reason string) {
	g.broken = append(g.broken, at)
	g.leave(r, at, reason)
}

// enumerate collects every regular file below base_path. A folder that is not there is no failure; one that cannot be listed is.
func (a *collect) enumerate(ctx context.Context, r *task.Run, p place.Place, id string, g *gathered) error {
	e, err := p.Stat(ctx, a.base, true)
	switch {
	case fault.Is(err, fault.NotFound):
		r.Log.Warn("nothing collected: " + a.base + " is not there")
		return nil
	case err != nil:
		return fault.At(err, "list %s", a.base)
	case e.Kind != place.Dir:
		r.Log.Warn("nothing collected: " + a.base + " is a " + string(e.Kind) + ", not a folder")
		return nil
	}
	skip := func(_, name string) bool { return slices.Contains(a.exclude, path.Base(name)) }
	if err := a.gather(ctx, r, p, id, []item{{source: a.base}}, skip, g); err != nil {
		return err
	}
	if len(g.collection.Files) == 0 {
		r.Log.Warn("nothing collected: " + a.base + " holds no files")
	}
	return nil
}

// gather streams the items out of the place into the object store, and records those that are still there as they were read.
func (a *collect) gather(ctx context.Context, r *task.Run, p place.Place, id string, items []item, skip func(root, name string) bool, g *gathered) error {
	if len(items) == 0 {
		return nil
	}
	roots := make([]string, len(items))
	for i, it := range items {
		roots[i] = it.source
	}
	tree, err := p.Get(ctx, place.GetRequest{Roots: roots, Follow: true})
	if err != nil {
		return err
	}
	defer tree.Close()
	sizes := map[string]int64{}
	taken := map[string]string{} // what each key was collected from
	var moved int64
	var reading string
	var order []string // the path of each file that was stored
	report := paced(r, "collecting")
	again := &recheck{place: p, items: items, sizes: sizes}
	defer again.stop()
	next := func() (artifact.Collect, error) {
		for {
			e, err := tree.Next()
			if errors.Is(err, io.EOF) {
				again.start(ctx)
			}
			if err != nil {
				return artifact.Collect{}, err
			}
			it := items[e.Root]
			at := it.source
			if e.Name != "" {
				at = strings.TrimRight(it.source, "/") + "/" + e.Name
			}
			switch {
			case e.Err != nil && e.Name == "" && fault.Is(e.Err, fault.NotFound):
				r.Log.Warn("File not found: " + at)
				g.absent = append(g.absent, at)
				continue
			case e.Err != nil:
				g.fail(r, at, e.Err.Error())
				continue
			case e.Kind == place.Dir:
				continue
			case skip != nil && skip(it.source, e.Name):
				continue
			case e.Kind == place.Symlink:
				g.leave(r, at, "a symlink to "+place.Text([]byte(e.Link)))
				continue
			case e.Kind != place.File && e.Name == "":
				g.fail(r, at, "it is a "+string(e.Kind))
				continue
			case e.Kind != place.File:
				g.leave(r, at, "it is a "+string(e.Kind))
				continue
			}
			key, object := it.below(e.Name)
			if taken[key] == at {
				continue // two entries name one file
			}
			taken[key] = at
			sizes[at] = e.Size
			order = append(order, at)
			reading = at
			moved += e.Size
			report(moved, len(sizes))
			// A file that grows must not end the whole collection: recheck finds it.
			return artifact.Collect{Key: key, ObjectName: object, Size: e.Size, Body: io.LimitReader(tree, e.Size)}, nil
		}
	}
	keep := func() (func(int) bool, error) {
		reading = ""
		changed, err := again.wait()
		bad := map[string]bool{}
		for _, c := range changed {
			if !bad[c.at] { // two entries may hold one file
				g.fail(r, c.at, c.reason)
			}
			bad[c.at] = true
		}
		return func(i int) bool { return !bad[order[i]] }, err
	}
	got, err := a.deps.Artifacts.PutCollected(ctx, id, r.Instance, next, keep)
	if err != nil {
		if reading != "" && ctx.Err() == nil {
			return fault.At(err, "%s", reading)
		}
		return err
	}
	if err := tree.Close(); err != nil {
		return err
	}
	g.collection = got
	if got.RecordErr != nil {
		r.Log.Warn("collected files are stored, the artifact over them is not", "error", got.RecordErr)
	}
	r.Log.Info("collected", "files", len(got.Files), "bytes", moved, "from", p.String(), "artifact", id)
	return nil
}
