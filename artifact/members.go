package artifact

import (
	"context"
	"fmt"
	"io"
	"slices"

	"golang.org/x/sync/errgroup"

	"agentenv/fault"
	"agentenv/store/doc"
	"agentenv/store/document"
)

// statParallel is how many objects are asked about at once.
const statParallel = 8

// Members returns the file view of an artifact, the files that loading it stages, in their order: a file is itself, a universe its
// members, an environment universe <environment name>/<file name> for each environment, and an environment the tree its payload
// unpacks to (Payload). Skills and tools give their files. Sizes are -1 until Measure is asked; names are as stored, unchecked.
// Errors are Invalid for documents that name no members or two under one name, NotFound for members that are gone, Unsupported
// for types that hold no files.
func (s *Store) Members(ctx context.Context, a Artifact) ([]Member, error) {
	switch a := a.(type) {
	case *File:
		return []Member{s.memberOf(a.Filename, a)}, nil
	case *Universe:
		return s.universeMembers(ctx, a)
	case *Skill:
		return s.prefixMembers(ctx, a, a.URL)
	case *CLI:
		return s.prefixMembers(ctx, a, a.URL)
	case *Environment:
		return s.Payload(ctx, a)
	case *EnvironmentUniverse:
		v, err := s.Environments(ctx, a)
		if err != nil {
			return nil, err
		}
		var out []Member
		seen := map[string]bool{}
		for _, e := range v {
			if seen[e.Environment.Name] {
				return nil, fault.New(fault.Invalid, "artifact %s v%d holds two environments named %q", a.id, a.version, e.Environment.Name)
			}
			seen[e.Environment.Name] = true
			out = append(out, s.memberOf(e.Environment.Name+"/"+e.File.Filename, e.File))
		}
		return out, nil
	}
	return nil, fault.New(fault.Unsupported, "artifact %s v%d has the type %s, which is no set of files", a.ID(), a.Version(), a.Type())
}

func (s *Store) memberOf(name string, f *File) Member {
	return Member{Name: name, URL: f.URL, Size: -1, ContentType: f.ContentType, Open: s.opener(f.URL)}
}

func (s *Store) opener(url string) func(context.Context) (io.ReadCloser, error) {
	return func(ctx context.Context) (io.ReadCloser, error) { return s.objects.Open(ctx, url) }
}

func (s *Store) universeMembers(ctx context.Context, u *Universe) ([]Member, error) {
	refs := u.Refs
	if len(refs) == 0 {
		if len(u.IDs) == 0 {
			return nil, fault.New(fault.Invalid, "artifact %s v%d is malformed: it has neither file_artifact_refs nor file_artifact_ids", u.id, u.version)
		}
		refs = u.IDs
		s.log.Warn("the artifact pins no versions of its files, so their latest are read; publish it again", "artifact", u.id, "version", u.version)
	}
	files, err := s.files(ctx, u, refs)
	if err != nil {
		return nil, err
	}
	out := make([]Member, len(refs))
	for i, r := range refs {
		out[i] = s.memberOf(r.Name, files[i])
	}
	return out, nil
}

// files reads the file artifacts of refs in order, many with one question.
func (s *Store) files(ctx context.Context, owner Artifact, refs []NamedRef) ([]*File, error) {
	found := map[Ref]*File{}
	for chunk := range slices.Chunk(refs, 400) {
		var ids, versions []any
		seen := map[int64]bool{}
		latest := false
		for _, r := range chunk {
			ids = append(ids, r.Ref.ID)
			latest = latest || r.Ref.Version == 0
			if !seen[r.Ref.Version] {
				seen[r.Ref.Version] = true
				versions = append(versions, doc.Int(r.Ref.Version))
			}
		}
		f := document.Filter{{Path: "id", Op: document.In, Value: ids}}
		var docs []*doc.Object
		var err error
		if latest {
			docs, _, err = s.docs.LatestPerID(ctx, Documents, document.LatestQuery{Query: document.Query{Filter: f}})
		} else {
			docs, err = s.docs.Query(ctx, Documents, document.Query{Filter: f.And("version", document.In, versions)})
		}
		if err != nil {
			return nil, fault.At(err, "read the files of artifact %s", owner.ID())
		}
		for _, d := range docs {
			a, err := s.decode(d)
			if err != nil {
				return nil, err
			}
			file, ok := a.(*File)
			if !ok {
				return nil, fault.New(fault.Invalid, "artifact %s v%d names %s as a file, which is a %s", owner.ID(), owner.Version(), a.ID(), a.Type())
			}
			found[Ref{file.id, file.version}] = file
			if latest {
				found[Ref{ID: file.id}] = file
			}
		}
	}
	out := make([]*File, len(refs))
	for i, r := range refs {
		if out[i] = found[r.Ref]; out[i] == nil {
			return nil, fault.New(fault.NotFound, "artifact %s v%d: its file %q (%s v%d) is not in the store", owner.ID(), owner.Version(),
				r.Name, r.Ref.ID, r.Ref.Version)
		}
	}
	return out, nil
}

// prefixMembers lists the objects under the prefix that one version of a skill or tool recorded.
func (s *Store) prefixMembers(ctx context.Context, a Artifact, prefix string) ([]Member, error) {
	prefix = cleanPrefix(prefix)
	urls, err := s.objects.ListAt(ctx, prefix)
	if err == nil && len(urls) == 0 {
		err = fault.New(fault.NotFound, "no object is left under %s", prefix)
	}
	if err != nil {
		return nil, fault.At(err, "artifact %s v%d", a.ID(), a.Version())
	}
	out := make([]Member, len(urls))
	for i, u := range urls {
		out[i] = Member{Name: u[len(prefix):], URL: u, Size: -1, ContentType: ContentType(u), Open: s.opener(u)}
	}
	return out, nil
}

// EnvironmentFile is one environment of a universe with the file it wraps.
type EnvironmentFile struct {
	Environment *Environment
	File        *File
}

// Environments returns the environments of a universe, pinned where its document pins them.
func (s *Store) Environments(ctx context.Context, u *EnvironmentUniverse) ([]EnvironmentFile, error) {
	refs := u.Environments
	if len(refs) == 0 {
		if len(u.LegacyIDs) == 0 {
			return nil, fault.New(fault.Invalid, "artifact %s v%d is malformed: it has neither service_artifact_refs (environment_artifact_refs) "+
				"nor service_artifact_ids", u.id, u.version)
		}
		s.log.Warn("the artifact pins no versions of its environments, so their latest are read; publish it again", "artifact", u.id, "version", u.version)
		for _, id := range u.LegacyIDs {
			refs = append(refs, Ref{ID: id})
		}
	}
	out := make([]EnvironmentFile, len(refs))
	for i, r := range refs {
		e, err := GetAs[*Environment](ctx, s, r)
		if err != nil {
			return nil, fault.At(err, "artifact %s v%d", u.id, u.version)
		}
		f, err := s.EnvironmentFile(ctx, e)
		if err != nil {
			return nil, err
		}
		out[i] = EnvironmentFile{e, f}
	}
	return out, nil
}

// EnvironmentFile returns the file that an environment wraps.
func (s *Store) EnvironmentFile(ctx context.Context, e *Environment) (*File, error) {
	var ref Ref
	switch {
	case e.File != nil:
		ref = *e.File
	case e.LegacyFile != "":
		s.log.Warn("the environment pins no version of its file, so the latest is read; publish it again", "artifact", e.id, "version", e.version)
		ref = Ref{ID: e.LegacyFile}
	default:
		return nil, fault.New(fault.Invalid, "artifact %s v%d is malformed: it has neither file_artifact_ref nor file_artifact_id", e.id, e.version)
	}
	f, err := GetAs[*File](ctx, s, ref)
	return f, fault.At(err, "artifact %s v%d", e.id, e.version)
}

// MetadataFiles returns the metadata files of a universe by key, in order; none when it has none.
func (s *Store) MetadataFiles(ctx context.Context, u *EnvironmentUniverse) ([]Member, error) {
	refs := u.Metadata
	if refs == nil {
		refs = u.LegacyMetadata
	}
	if len(refs) == 0 {
		return nil, nil
	}
	files, err := s.files(ctx, u, refs)
	if err != nil {
		return nil, err
	}
	out := make([]Member, len(refs))
	for i, r := range refs {
		out[i] = s.memberOf(r.Name+"/"+files[i].Filename, files[i])
	}
	return out, nil
}

// Measure fills in the sizes and hashes that the object store knows of members that have none, several at once. A member whose
// object is gone is a NotFound error that names it.
func (s *Store) Measure(ctx context.Context, ms []Member) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(statParallel)
	for i := range ms {
		m := &ms[i]
		if m.Size >= 0 || m.URL == "" {
			continue
		}
		g.Go(func() error {
			info, err := s.objects.Stat(ctx, m.URL)
			if err == nil && info == nil {
				err = fault.New(fault.NotFound, "its object %s is gone", m.URL)
			}
			if err != nil {
				return fault.At(err, "file %s", fmt.Sprintf("%q", m.Name))
			}
			m.Size, m.SHA256 = info.Size, info.SHA256
			return nil
		})
	}
	return g.Wait()
}
