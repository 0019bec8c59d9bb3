package artifact

import (
	"context"
	"errors"
	"io"
	"strings"

	"agentenv/fault"
	"agentenv/store"
	"agentenv/store/image"
	"agentenv/store/object"
)

// ContextImage says what an image of a build context is.
type ContextImage struct {
	Description string
	Platform    string // "" = the sandbox's own
	Context     *BuildContext
}

// PutContext stores an image that is a build context alone; no engine is needed. Its name is BuildName of the sources. The archive is
// written while it is read, and a file that changes meanwhile is a Conflict that stores nothing under the id.
func (s *Store) PutContext(ctx context.Context, id string, in ContextImage) (*DockerImage, error) {
	ctx = scoped(ctx, id)
	prefix, err := s.attempt(ctx, TypeDockerImage, id)
	if err != nil {
		return nil, err
	}
	img := &DockerImage{head: head{id: id}, Description: in.Description, Platform: NormalizePlatform(in.Platform)}
	if err := s.keepContext(ctx, img, prefix, in.Context); err != nil {
		return nil, err
	}
	img.Image = BuildName(id, img.SourceDigest)
	return put(ctx, s, img)
}

// keepContext stores the sources of an image, whose platform is set, and says in the image which they are. nil = there are none.
func (s *Store) keepContext(ctx context.Context, img *DockerImage, prefix string, c *BuildContext) error {
	if c == nil {
		return nil
	}
	w, err := s.pour(ctx, prefix+"build-context.tar.gz", func(w io.Writer) error { return c.Archive(ctx, w) })
	if err != nil {
		return fault.At(err, "artifact %s", img.id)
	}
	img.ContextURL, img.Dockerfile, img.SourceDigest = w.URL, c.Dockerfile(), c.SourceDigest(img.Platform)
	return nil
}

// pour stores what fn writes as one object, while it is written. An error of fn stores nothing and is returned as it is.
func (s *Store) pour(ctx context.Context, key string, fn func(w io.Writer) error) (object.Written, error) {
	r, w := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := fn(w)
		w.CloseWithError(err)
		done <- err
	}()
	out, err := s.objects.Put(ctx, object.Item{Key: key, ContentType: "application/gzip", Size: -1, Body: r}, false)
	r.CloseWithError(io.ErrClosedPipe)
	if writing := <-done; writing != nil && !errors.Is(writing, io.ErrClosedPipe) {
		return object.Written{}, writing
	}
	return out, err
}

// RefImage says what an image in a registry is.
type RefImage struct {
	Description string
	Ref         string        // with its registry spelled out
	EarlierPin  string        // what Ref was pinned to before: kept when it is still a pin of Ref, so that nobody asks the registry
	Context     *BuildContext // what it was built from; nil = not known
	Digest      string        // of what Ref stands for, beside a Context; "" = not known
	Platform    string        // "" = the sandbox's own
}

// PutRef stores an image that lies in a registry. Without a build context it is stored under a digest: the one in Ref, that of
// EarlierPin, or what Options.Pin says now, whose errors store nothing. With one it keeps its tag, which a build of the sources gets
// too; Digest stands beside it. Invalid are a reference that spells out no registry or has a malformed digest, a Digest without a
// Context or other than Ref's own, and a registry of this machine for an id whose images belong in another. A tag without
// Options.Pin is Unsupported.
func (s *Store) PutRef(ctx context.Context, id string, in RefImage) (*DockerImage, error) {
	ctx = scoped(ctx, id)
	prefix, err := s.attempt(ctx, TypeDockerImage, id)
	if err != nil {
		return nil, err
	}
	if err := s.checkRef(id, in); err != nil {
		return nil, err
	}
	img := &DockerImage{head: head{id: id}, Description: in.Description, Image: in.Ref, ImageDigest: in.Digest, Platform: NormalizePlatform(in.Platform)}
	switch {
	case in.Context != nil:
		err = s.keepContext(ctx, img, prefix, in.Context)
	case strings.Contains(in.Ref, "@"):
	case in.EarlierPin != "" && image.PinnedFrom(in.EarlierPin, in.Ref):
		img.Image = in.EarlierPin
	case s.pin == nil:
		err = fault.New(fault.Unsupported, "artifact %s: the tag of %s cannot be resolved to a digest here; write the digest into the reference", id, in.Ref)
	default:
		img.Image, err = s.pin(ctx, in.Ref)
		err = fault.At(err, "artifact %s", id)
	}
	if err != nil {
		return nil, err
	}
	return put(ctx, s, img)
}

func (s *Store) checkRef(id string, in RefImage) error {
	registry := RegistryOf(in.Ref)
	if registry == "" {
		full := "docker.io/" + in.Ref
		if !strings.Contains(in.Ref, "/") {
			full = "docker.io/library/" + in.Ref
		}
		return fault.New(fault.Invalid, "artifact %s: the image %q must spell out its registry, as in %s", id, in.Ref, full)
	}
	ref, err := image.ParseRef(in.Ref)
	if err != nil {
		return fault.At(err, "artifact %s", id)
	}
	if image.IsLoopback(registry) && !store.IsLocal(id) && s.images != nil && !image.OnThisMachine(s.images, store.KeySegment(id)) {
		return fault.New(fault.Invalid, "artifact %s: the image %s is in a registry of this machine, while images of this id belong in %s: push it there",
			id, in.Ref, s.images.Host())
	}
	switch {
	case in.Digest == "":
		return nil
	case in.Context == nil:
		return fault.New(fault.Invalid, "artifact %s: a digest beside the image %s is for one with a build context; write it into the reference", id, in.Ref)
	case ref.Digest != "" && ref.Digest != in.Digest:
		return fault.New(fault.Invalid, "artifact %s: the image %s was given with another digest, %s", id, in.Ref, in.Digest)
	}
	_, err = image.ParseRef(ref.Name + "@" + in.Digest)
	return fault.At(err, "artifact %s", id)
}
