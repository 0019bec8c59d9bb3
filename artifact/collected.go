package artifact

import (
	"context"
	"errors"
	"fmt"
	"io"

	"agentenv/fault"
	"agentenv/store"
	"agentenv/store/object"
)

// Collect is one file that a run collected. Body is read to its end before the next item is asked for.
type Collect struct {
	Key         string // what the run calls it: a path as its author wrote it
	ObjectName  string // relative path in the object key; any text, made safe here
	ContentType string // "" = by the name's extension, as collected files are typed
	Size        int64  // -1 = unknown
	Body        io.Reader
}

// Collected is one stored file of a collection.
type Collected struct {
	Key    string
	Name   string // of the member in the universe: Key made relative and safe, each once
	URL    string
	Size   int64
	SHA256 string
}

// Collection is what PutCollected stored. Universe is nil when nothing was collected or the documents could not be written
// (then RecordErr says why; the bytes are stored all the same).
type Collection struct {
	Files     []Collected
	Universe  *Ref
	RecordErr error
}

// PutCollected stores the files that next gives until io.EOF, streaming each, then a file artifact for each and the universe id
// over them in one transaction. instance is the run they come from, for their descriptions. Two calls at one time never meet
// in one key. An error means that bytes could not be stored; files before it may stay, with nothing that refers to them. An
// error of next is returned as it is.
//
// keep (nil = every file) is asked once the bytes are stored and before any document is written: which of the files, by their
// places in the order of next, the collection is to hold. The bytes of the others stay, with nothing that refers to them. An error
// of keep is returned as it is, and no document is written.
func (s *Store) PutCollected(ctx context.Context, id, instance string, next func() (Collect, error), keep func() (func(i int) bool, error)) (*Collection, error) {
	ctx = scoped(ctx, id)
	if err := s.check(ctx, id); err != nil {
		return nil, err
	}
	prefix := fmt.Sprintf("%sartifacts/collected_artifacts/%s/%d-%s/", s.prefix, store.KeySegment(id), s.now().Unix(), RandomHex(4))
	var (
		items   []Collect
		types   []string
		nextErr error
		keys    = map[string]bool{}
		names   = map[string]bool{}
	)
	written, err := s.objects.PutAll(ctx, func() (object.Item, error) {
		c, err := next()
		if err != nil {
			if !errors.Is(err, io.EOF) {
				nextErr = err
			}
			return object.Item{}, err
		}
		typ := c.ContentType
		if typ == "" {
			typ = CollectedContentType(c.ObjectName)
		}
		it := object.Item{Key: prefix + unique(keys, SafeName(c.ObjectName)), ContentType: typ, Size: c.Size, Body: c.Body}
		c.Body = nil
		items, types = append(items, c), append(types, typ)
		return it, nil
	})
	if nextErr != nil {
		return nil, nextErr
	}
	if err != nil {
		return nil, fault.At(err, "store collected files of %s", id)
	}
	kept := func(int) bool { return true }
	if keep != nil {
		if kept, err = keep(); err != nil {
			return nil, err
		}
	}
	out := &Collection{}
	var ms []member
	if instance == "" {
		instance = id
	}
	for i, w := range written {
		if !kept(i) {
			continue
		}
		c := items[i]
		name := unique(names, SafeName(c.Key))
		out.Files = append(out.Files, Collected{Key: c.Key, Name: name, URL: w.URL, Size: w.Size, SHA256: w.SHA256})
		fid := MemberID(id, c.ObjectName)
		ms = append(ms, member{name, &File{head: head{id: fid}, Filename: base(SafeName(c.ObjectName)), ContentType: types[i], URL: w.URL,
			Description: fmt.Sprintf("Collected artifact '%s' from task instance %s", SafeName(c.ObjectName), instance)}})
	}
	if len(ms) == 0 {
		return out, nil
	}
	u, err := s.write(ctx, id, func(w *writer) (Artifact, error) { return w.universe(id, "", ms) })
	if err != nil {
		out.RecordErr = fault.At(err, "artifact %s", id)
		s.log.Warn("collected files are stored, their artifact is not", "artifact", id, "error", err.Error())
		return out, nil
	}
	out.Universe = &Ref{u.ID(), u.Version()}
	return out, nil
}
