package artifact

import (
	"context"
	"fmt"
	"io"
	"path"
	"strings"

	"agentenv/fault"
	"agentenv/store"
	"agentenv/store/object"
)

// PutFile stores the bytes of src and a file artifact over them under its next version. description "" becomes the file name.
// Nothing is stored under the id when it fails; bytes written before that lie under a prefix that nothing refers to.
func (s *Store) PutFile(ctx context.Context, id, description string, src Source) (*File, error) {
	f := &File{head: head{id: id}, Description: description, Filename: base(src.Name)}
	if f.Description == "" {
		f.Description = f.Filename
	}
	if err := CheckRelative(src.Name); err != nil {
		return nil, fault.At(err, "artifact %s", id)
	}
	ctx = scoped(ctx, id)
	prefix, err := s.attempt(ctx, TypeFile, id)
	if err != nil {
		return nil, err
	}
	src.Name = f.Filename
	written, types, err := s.upload(ctx, prefix, []Source{src})
	if err != nil {
		return nil, fault.At(err, "artifact %s", id)
	}
	f.URL, f.ContentType = written[0].URL, types[0]
	return put(ctx, s, f)
}

// there looks at an object that an artifact of the id is to stand on: one of another namespace's store is Invalid, none NotFound.
func (s *Store) there(ctx context.Context, id, url string) (*object.Info, error) {
	if err := s.owned(id, url); err != nil {
		return nil, err
	}
	info, err := s.objects.Stat(ctx, url)
	if err == nil && info == nil {
		err = fault.New(fault.NotFound, "there is no object at %s", url)
	}
	return info, fault.At(err, "artifact %s", id)
}

// PutFileAt stores a file artifact over an object that is there already; no bytes move. The name is what follows the last slash
// of the URL; the type is the stored one, else by name.
func (s *Store) PutFileAt(ctx context.Context, id, description, url string) (*File, error) {
	if err := s.check(ctx, id); err != nil {
		return nil, err
	}
	if strings.HasSuffix(url, "/") {
		return nil, fault.New(fault.Invalid, "artifact %s: %s names a folder, not an object", id, url)
	}
	info, err := s.there(ctx, id, url)
	if err != nil {
		return nil, err
	}
	f := &File{head: head{id: id}, Description: description, Filename: base(url), ContentType: info.ContentType, URL: url}
	if f.Description == "" {
		f.Description = f.Filename
	}
	if f.ContentType == "" {
		f.ContentType = ContentType(f.Filename)
	}
	return put(scoped(ctx, id), s, f)
}

// PutUniverse stores files and the set of them: all bytes in one batch, then every document in one transaction. Names must be
// relative paths, each once (Invalid otherwise, before anything is written), and there must be at least one.
func (s *Store) PutUniverse(ctx context.Context, id string, files []Source) (*Universe, error) {
	if err := checkSources(id, files); err != nil {
		return nil, err
	}
	ctx = scoped(ctx, id)
	prefix, err := s.attempt(ctx, TypeUniverse, id)
	if err != nil {
		return nil, err
	}
	return s.bundle(ctx, id, prefix, files)
}

// PutUniverseUnder is PutUniverse below a URL prefix of the caller's choice instead of a fresh one; keys taken there are an
// Exists error.
func (s *Store) PutUniverseUnder(ctx context.Context, id, prefixURL string, files []Source) (*Universe, error) {
	if err := checkSources(id, files); err != nil {
		return nil, err
	}
	if err := s.check(ctx, id); err != nil {
		return nil, err
	}
	key, err := s.objects.Key(cleanPrefix(prefixURL))
	if err != nil {
		return nil, fault.At(err, "artifact %s", id)
	}
	return s.bundle(scoped(ctx, id), id, cleanPrefix(key), files)
}

func (s *Store) bundle(ctx context.Context, id, prefix string, files []Source) (*Universe, error) {
	written, types, err := s.upload(ctx, prefix, files)
	if err != nil {
		return nil, fault.At(err, "artifact %s", id)
	}
	u, err := s.write(ctx, id, func(w *writer) (Artifact, error) {
		return w.universe(id, prefixURL(written[0].URL, files[0].Name), members(id, files, written, types))
	})
	if err != nil {
		return nil, fault.At(err, "artifact %s", id)
	}
	return u.(*Universe), nil
}

// PutUniverseOf stores a set of files that are artifacts already, pinned at their versions. Names follow CheckRelative, each once.
func (s *Store) PutUniverseOf(ctx context.Context, id string, refs []NamedRef) (*Universe, error) {
	if err := s.check(ctx, id); err != nil {
		return nil, err
	}
	if len(refs) == 0 {
		return nil, fault.New(fault.Invalid, "artifact %s: a set of files needs at least one", id)
	}
	u := &Universe{head: head{id: id}, Refs: refs}
	seen := map[string]bool{}
	for _, r := range refs {
		if err := CheckRelative(r.Name); err != nil {
			return nil, fault.At(err, "artifact %s", id)
		}
		if seen[r.Name] {
			return nil, fault.New(fault.Invalid, "artifact %s: two files are named %q", id, r.Name)
		}
		if r.Ref.Version < 1 {
			return nil, fault.New(fault.Invalid, "artifact %s: %s was never stored, so it cannot be pinned", id, r.Ref.ID)
		}
		seen[r.Name] = true
		u.IDs = append(u.IDs, NamedRef{r.Name, Ref{ID: r.Ref.ID}})
	}
	return put(scoped(ctx, id), s, u)
}

// PutExisting stores the set of all objects that lie under a URL prefix; no bytes move. None is a NotFound error.
func (s *Store) PutExisting(ctx context.Context, id, prefixURL string) (*Universe, error) {
	ctx = scoped(ctx, id)
	files, err := s.existing(ctx, id, id, prefixURL)
	if err != nil {
		return nil, err
	}
	u, err := s.write(ctx, id, func(w *writer) (Artifact, error) { return w.universe(id, cleanPrefix(prefixURL), files) })
	if err != nil {
		return nil, err
	}
	return u.(*Universe), nil
}

// existing makes members of universe out of the objects under a prefix.
func (s *Store) existing(ctx context.Context, id, universe, prefixURL string) ([]member, error) {
	if err := s.check(ctx, id); err != nil {
		return nil, err
	}
	prefix := cleanPrefix(prefixURL)
	if err := s.owned(id, prefix); err != nil {
		return nil, err
	}
	urls, err := s.objects.ListAt(ctx, prefix)
	if err == nil && len(urls) == 0 {
		err = fault.New(fault.NotFound, "there is no object under %s", prefix)
	}
	if err != nil {
		return nil, fault.At(err, "artifact %s", id)
	}
	files := make([]member, len(urls))
	for i, u := range urls {
		name := strings.TrimPrefix(u, prefix)
		typ := ContentType(name)
		info, err := s.objects.Stat(ctx, u)
		if err != nil {
			return nil, fault.At(err, "artifact %s", id)
		}
		if info != nil && info.ContentType != "" {
			typ = info.ContentType
		}
		files[i] = newMember(universe, name, u, typ)
	}
	return files, nil
}

// put stores one artifact that stands alone.
func put[T Artifact](ctx context.Context, s *Store, a T) (T, error) {
	out, err := s.write(ctx, a.ID(), func(w *writer) (Artifact, error) { return a, w.add(a) })
	if err != nil {
		var none T
		return none, fault.At(err, "artifact %s", a.ID())
	}
	return out.(T), nil
}

// member is one file of a set that is about to be stored.
type member struct {
	name string
	file *File
}

func members(universe string, files []Source, written []object.Written, types []string) []member {
	out := make([]member, len(files))
	for i, src := range files {
		out[i] = newMember(universe, src.Name, written[i].URL, types[i])
		if src.Description != "" {
			out[i].file.Description = src.Description
		}
	}
	return out
}

func newMember(universe, name, url, contentType string) member {
	return member{name, &File{head: head{id: MemberID(universe, name)}, Filename: base(name), ContentType: contentType, URL: url,
		Description: fmt.Sprintf("Bundled file '%s' of FileArtifactUniverse '%s'", name, universe)}}
}

// universe adds the members and the set of them.
func (w *writer) universe(id, prefixURL string, ms []member) (*Universe, error) {
	ids := make([]string, len(ms))
	for i, m := range ms {
		ids[i] = m.file.id
	}
	if err := w.plan(ids); err != nil {
		return nil, err
	}
	u := &Universe{head: head{id: id}, Prefix: prefixURL}
	for _, m := range ms {
		if err := w.add(m.file); err != nil {
			return nil, err
		}
		u.Refs = append(u.Refs, NamedRef{m.name, Ref{m.file.id, m.file.version}})
		u.IDs = append(u.IDs, NamedRef{m.name, Ref{ID: m.file.id}})
	}
	return u, w.add(u)
}

// checkSources refuses an empty or unsafe list of files before anything is written.
func checkSources(id string, files []Source) error {
	if len(files) == 0 {
		return fault.New(fault.Invalid, "artifact %s: a set of files needs at least one", id)
	}
	seen := make(map[string]bool, len(files))
	for _, f := range files {
		if err := CheckRelative(f.Name); err != nil {
			return fault.At(err, "artifact %s", id)
		}
		if seen[f.Name] {
			return fault.New(fault.Invalid, "artifact %s: two files are named %q", id, f.Name)
		}
		seen[f.Name] = true
	}
	return nil
}

// upload streams the sources to prefix+name as one batch. It returns what was written and the content types, in order.
func (s *Store) upload(ctx context.Context, prefix string, files []Source) ([]object.Written, []string, error) {
	types := make([]string, len(files))
	var body io.ReadCloser
	closeLast := func() {
		if body != nil {
			body.Close()
			body = nil
		}
	}
	defer closeLast()
	i := -1
	written, err := s.objects.PutAll(ctx, func() (object.Item, error) {
		closeLast()
		if i++; i == len(files) {
			return object.Item{}, io.EOF
		}
		src := files[i]
		if types[i] = src.ContentType; types[i] == "" {
			types[i] = ContentType(src.Name)
		}
		var err error
		if body, err = src.Open(ctx); err != nil {
			return object.Item{}, fault.At(err, "read %s", src.Name)
		}
		return object.Item{Key: prefix + path.Clean(src.Name), ContentType: types[i], Size: src.Size, Body: body}, nil
	})
	if err == nil && len(written) != len(files) {
		err = fault.New(fault.Internal, "the object store took %d of %d files", len(written), len(files))
	}
	return written, types, err
}

// prefixURL takes the name off the URL of the object stored under it.
func prefixURL(url, name string) string { return strings.TrimSuffix(url, path.Clean(name)) }

func filesID(id string) string { return store.DerivedID(id, "files") }
