package artifact

import (
	"context"
	"strconv"

	"agentenv/fault"
	"agentenv/store"
)

func quoted(s string) string { return strconv.Quote(s) }

// PutEnvironment stores a file under fileID and the environment id over it, both in one transaction. fileID "" is "<id>__file".
// description "" becomes the file's name.
func (s *Store) PutEnvironment(ctx context.Context, id, fileID, name, description string, src Source) (*Environment, error) {
	ctx = scoped(ctx, id)
	part, err := s.environment(ctx, id, fileID, name, description, src)
	if err != nil {
		return nil, err
	}
	_, err = s.write(ctx, id, func(w *writer) (Artifact, error) { return part.env, part.add(w) })
	if err != nil {
		return nil, fault.At(err, "artifact %s", id)
	}
	return part.env, nil
}

// environmentPart is an environment whose file is uploaded and whose documents are not yet written.
type environmentPart struct {
	file *File
	env  *Environment
}

func (p environmentPart) add(w *writer) error {
	if err := w.add(p.file); err != nil {
		return err
	}
	p.env.File = &Ref{p.file.id, p.file.version}
	return w.add(p.env)
}

func (s *Store) environment(ctx context.Context, id, fileID, name, description string, src Source) (environmentPart, error) {
	var none environmentPart
	if name == "" {
		return none, fault.New(fault.Invalid, "artifact %s: an environment needs the name of its server", id)
	}
	if fileID == "" {
		fileID = store.DerivedID(id, "file")
	}
	if err := s.check(ctx, id, fileID); err != nil {
		return none, err
	}
	f, err := s.stage(ctx, fileID, description, src)
	if err != nil {
		return none, fault.At(err, "artifact %s", id)
	}
	return environmentPart{f, &Environment{head: head{id: id}, Name: name}}, nil
}

// stage uploads one file for a document that is written later.
func (s *Store) stage(ctx context.Context, id, description string, src Source) (*File, error) {
	if err := CheckRelative(src.Name); err != nil {
		return nil, err
	}
	prefix, err := s.attempt(ctx, TypeFile, id)
	if err != nil {
		return nil, err
	}
	src.Name = base(src.Name)
	written, types, err := s.upload(ctx, prefix, []Source{src})
	if err != nil {
		return nil, err
	}
	if description == "" {
		description = src.Name
	}
	return &File{head: head{id: id}, Description: description, Filename: src.Name, ContentType: types[0], URL: written[0].URL}, nil
}

// PutEnvironmentOver stores an environment over a file artifact that is there already, pinned at the given version (0: the
// latest now). The error is NotFound or Invalid when there is no such file.
func (s *Store) PutEnvironmentOver(ctx context.Context, id, name string, file Ref) (*Environment, error) {
	ctx = scoped(ctx, id)
	if err := s.check(ctx, id); err != nil {
		return nil, err
	}
	if name == "" {
		return nil, fault.New(fault.Invalid, "artifact %s: an environment needs the name of its server", id)
	}
	f, err := GetAs[*File](ctx, s, file)
	if err != nil {
		return nil, fault.At(err, "artifact %s", id)
	}
	return put(ctx, s, &Environment{head: head{id: id}, Name: name, File: &Ref{f.id, f.version}})
}

// NewEnvironment is an environment to be stored together with the universe that holds it.
type NewEnvironment struct {
	ID, FileID, Name string
	Source           Source
}

// NewMetadata is a metadata file to be stored together with the universe that holds it.
type NewMetadata struct {
	ID, Key string // ID "" = "<universe>__metadata__<key>"
	Source  Source
}

// EnvironmentSet says what an environment universe holds: environments stored with it, then environments that are artifacts
// already (pinned; version 0: the latest now), and metadata files.
type EnvironmentSet struct {
	New      []NewEnvironment
	Existing []Ref
	Metadata []NewMetadata
}

// PutEnvironmentUniverse stores an environment universe with all that is new in it: bytes first, then every document in one
// transaction. Errors are Invalid, before anything is written: no environment at all, two of one name, one metadata key twice, a
// reference to another type.
func (s *Store) PutEnvironmentUniverse(ctx context.Context, id string, set EnvironmentSet) (*EnvironmentUniverse, error) {
	ctx = scoped(ctx, id)
	if err := s.check(ctx, id); err != nil {
		return nil, err
	}
	u := &EnvironmentUniverse{head: head{id: id}}
	names := map[string]bool{}
	var existing []Ref
	for _, e := range set.New {
		if names[e.Name] {
			return nil, fault.New(fault.Invalid, "artifact %s: two environments are named %q", id, e.Name)
		}
		names[e.Name] = true
	}
	for _, r := range set.Existing {
		e, err := GetAs[*Environment](ctx, s, r)
		if err != nil {
			return nil, fault.At(err, "artifact %s", id)
		}
		if names[e.Name] {
			return nil, fault.New(fault.Invalid, "artifact %s: two environments are named %q", id, e.Name)
		}
		names[e.Name] = true
		existing = append(existing, Ref{e.id, e.version})
	}
	if len(names) == 0 {
		return nil, fault.New(fault.Invalid, "artifact %s: an environment universe needs at least one environment", id)
	}
	keys := map[string]bool{}
	for _, m := range set.Metadata {
		if keys[m.Key] || m.Key == "" {
			return nil, fault.New(fault.Invalid, "artifact %s: the metadata key %q is empty or given twice", id, m.Key)
		}
		keys[m.Key] = true
	}
	var parts []environmentPart
	for _, e := range set.New {
		p, err := s.environment(ctx, e.ID, e.FileID, e.Name, "", e.Source)
		if err != nil {
			return nil, err
		}
		parts = append(parts, p)
	}
	var meta []*File
	for _, m := range set.Metadata {
		mid := m.ID
		if mid == "" {
			mid = store.DerivedID(store.DerivedID(id, "metadata"), m.Key)
		}
		f, err := s.stage(ctx, mid, "", m.Source)
		if err != nil {
			return nil, fault.At(err, "artifact %s", id)
		}
		meta = append(meta, f)
	}
	_, err := s.write(ctx, id, func(w *writer) (Artifact, error) {
		u.Environments, u.Metadata = nil, nil
		for _, p := range parts {
			if err := p.add(w); err != nil {
				return nil, err
			}
			u.Environments = append(u.Environments, Ref{p.env.id, p.env.version})
		}
		u.Environments = append(u.Environments, existing...)
		for i, f := range meta {
			if err := w.add(f); err != nil {
				return nil, err
			}
			u.Metadata = append(u.Metadata, NamedRef{set.Metadata[i].Key, Ref{f.id, f.version}})
		}
		return u, w.add(u)
	})
	if err != nil {
		return nil, fault.At(err, "artifact %s", id)
	}
	return u, nil
}
