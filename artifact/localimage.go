package artifact

import (
	"context"
	"fmt"
	"io"
	"time"

	"agentenv/fault"
	"agentenv/store"
	"agentenv/store/image"
)

// ImageEngine is a container engine that holds images, as PutLocal needs it. Safe for concurrent use.
type ImageEngine interface {
	// Inspect returns an image's id and its platform as os/architecture[/variant]; NotFound when the engine holds none of the name.
	Inspect(ctx context.Context, name string) (id, platform string, err error)
	// Tag gives an image a further name, Untag takes a name off again.
	Tag(ctx context.Context, name, further string) error
	Untag(ctx context.Context, name string) error
	// Push uploads an image to the registry in its name, with that login; nil = the engine's own for it, if any.
	Push(ctx context.Context, name string, login *image.Auth) error
	// Save streams the archive of an image, which names it by name. The caller closes it.
	Save(ctx context.Context, name string) (io.ReadCloser, error)
}

// LocalImage says which image of an engine to store.
type LocalImage struct {
	Description string
	Image       string        // a name or id that the engine knows
	Platform    string        // "" = as the engine says
	Context     *BuildContext // what it was built from; nil = not known
	SaveWait    time.Duration // how long the engine may give nothing while it saves; 0 = DefaultSaveWait
}

// DefaultSaveWait is how long an engine may give nothing while it saves an image.
const DefaultSaveWait = 900 * time.Second

const untagWait = 10 * time.Second

// PutLocal stores an image that an engine of this machine holds: its archive and, with Options.Images, a push to that registry, as
// `<repository of the id>:v<version>`. That, or without a registry `local/…:v<version>`, becomes the image's name, which the engine
// keeps. The archive streams through. Errors store nothing under the id and take the engine's new name off again; what was pushed by
// then is pushed over by the next call. They are NotFound for an image that the engine does not hold, Timeout for an engine that
// stalls, Denied and Unavailable of the registry, and Conflict when another writer stores the same id meanwhile. Then the registry may
// serve the image of either under the one name; the archive is always the image's own.
func (s *Store) PutLocal(ctx context.Context, engine ImageEngine, id string, in LocalImage) (_ *DockerImage, err error) {
	ctx = scoped(ctx, id)
	version, err := s.NextVersion(ctx, id)
	if err != nil {
		return nil, err
	}
	prefix := s.attemptAt(TypeDockerImage, id, version)
	img := &DockerImage{head: head{id: id}, Description: in.Description, Platform: NormalizePlatform(in.Platform)}
	held, platform, err := engine.Inspect(ctx, in.Image)
	if err != nil {
		return nil, fault.At(err, "artifact %s", id)
	}
	if img.Platform == "" {
		img.Platform = NormalizePlatform(platform)
	}
	if err := s.keepContext(ctx, img, prefix, in.Context); err != nil {
		return nil, err
	}
	name := s.localName(id, version)
	if _, _, missing := engine.Inspect(ctx, name); fault.Is(missing, fault.NotFound) {
		defer func() {
			if err != nil {
				s.untag(ctx, engine, name, held)
			}
		}()
	}
	if err := engine.Tag(ctx, in.Image, name); err != nil {
		return nil, fault.At(err, "artifact %s", id)
	}
	if err := s.push(ctx, engine, id, name); err != nil {
		return nil, fault.At(err, "artifact %s", id)
	}
	r, err := engine.Save(ctx, name)
	if err != nil {
		return nil, fault.At(err, "artifact %s", id)
	}
	wait := in.SaveWait
	if wait == 0 {
		wait = DefaultSaveWait
	}
	defer r.Close()
	if err := s.keepTar(ctx, img, tarKey(prefix, id, version), name, &patient{src: r, wait: wait}); err != nil {
		return nil, err
	}
	now, _, err := engine.Inspect(ctx, name)
	if err != nil {
		return nil, fault.At(err, "artifact %s", id)
	}
	if now != held {
		return nil, fault.New(fault.Conflict, "artifact %s: the name %s was given to another image while it was saved; store the image again", id, name)
	}
	return s.putAs(ctx, img, version)
}

// untag takes off the name of an image that was not stored, unless it is another image's by now. ctx may have ended.
func (s *Store) untag(ctx context.Context, engine ImageEngine, name, held string) {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), untagWait)
	defer stop()
	now, _, err := engine.Inspect(ctx, name)
	if err == nil && now == held {
		err = engine.Untag(ctx, name)
	}
	if err != nil && !fault.Is(err, fault.NotFound) {
		s.log.Warn("the engine keeps the name of an image that was not stored", "name", name, "error", err.Error())
	}
}

// localName is the name under which version of an image is kept.
func (s *Store) localName(id string, version int64) string {
	tag := fmt.Sprintf("v%d", version)
	if s.images == nil {
		return store.ImageRepository(id) + ":" + tag
	}
	return s.images.Ref(store.KeySegment(id), tag)
}

func (s *Store) push(ctx context.Context, engine ImageEngine, id, name string) error {
	if s.images == nil {
		return nil
	}
	if err := s.images.EnsureRepository(ctx, store.KeySegment(id)); err != nil {
		return err
	}
	login, err := s.images.Auth(ctx, name)
	if err != nil {
		return err
	}
	return engine.Push(ctx, name, login)
}

// putAs stores an image whose name says its version: under another one its name would be that of somebody else's image.
func (s *Store) putAs(ctx context.Context, img *DockerImage, version int64) (*DockerImage, error) {
	_, err := s.write(ctx, img.id, func(w *writer) (Artifact, error) {
		if err := w.add(img); err != nil || img.version == version {
			return img, err
		}
		return nil, fault.New(fault.Conflict, "another writer stored version %d meanwhile; store the image again", version)
	})
	if err != nil {
		return nil, fault.At(err, "artifact %s", img.id)
	}
	return img, nil
}

// patient is a reader that gives up on a source that gives nothing for long.
type patient struct {
	src  io.ReadCloser
	wait time.Duration
}

// Read implements io.Reader.
func (p *patient) Read(b []byte) (int, error) {
	alarm := time.AfterFunc(p.wait, func() { p.src.Close() })
	n, err := p.src.Read(b)
	if !alarm.Stop() && err != nil {
		return 0, fault.New(fault.Timeout, "the engine gave nothing of the saved image for %s", p.wait)
	}
	return n, err
}
