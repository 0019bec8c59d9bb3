package artifact

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"

	"agentenv/fault"
	"agentenv/store"
)

// TarImage says what an image is that comes as a file.
type TarImage struct {
	Description string
	Name        string        // as the archive names it; "" = the one name it holds
	Platform    string        // "" = as the archive says
	Context     *BuildContext // what it was built from; nil = not known
	Tar         Source        // what `docker save` wrote, gzipped or not, or an OCI layout; its Name counts for nothing
}

// PutTar stores an image given as the archive that `docker save` writes, compressed on the way unless it is already. The bytes are
// checked as they pass: what is no saved image, is cut off, or does not hold Name is Invalid and stores nothing. A file that others
// still write must not be given.
func (s *Store) PutTar(ctx context.Context, id string, in TarImage) (*DockerImage, error) {
	ctx = scoped(ctx, id)
	version, err := s.NextVersion(ctx, id)
	if err != nil {
		return nil, err
	}
	prefix := s.attemptAt(TypeDockerImage, id, version)
	r, err := in.Tar.Open(ctx)
	if err != nil {
		return nil, fault.At(err, "artifact %s", id)
	}
	defer r.Close()
	img := &DockerImage{head: head{id: id}, Description: in.Description, Platform: NormalizePlatform(in.Platform)}
	if err := s.keepTar(ctx, img, tarKey(prefix, id, version), in.Name, r); err != nil {
		return nil, err
	}
	if err := s.keepContext(ctx, img, prefix, in.Context); err != nil {
		return nil, err
	}
	return put(ctx, s, img)
}

// StoredTar says what an image is whose objects are there already.
type StoredTar struct {
	Description  string
	Name         string // as the archive names it; "" = the one name it holds
	TarURL       string // a gzipped archive of `docker save`
	Platform     string // "" = as the archive says
	ContextURL   string // a build context tar.gz; "" = none
	Dockerfile   string // slash path in the context
	SourceDigest string // of the context; "" = not known
}

// PutTarAt stores an image over objects that are there already; no bytes move, but the archive is read through once, with PutTar's
// checks. Objects of another namespace's store, a Dockerfile without a context, and an archive that is not gzipped are Invalid; an
// object that is not there is NotFound.
func (s *Store) PutTarAt(ctx context.Context, id string, in StoredTar) (*DockerImage, error) {
	ctx = scoped(ctx, id)
	if err := s.check(ctx, id); err != nil {
		return nil, err
	}
	if in.TarURL == "" {
		return nil, fault.New(fault.Invalid, "artifact %s: a saved image needs the URL of its archive", id)
	}
	if in.ContextURL == "" && in.Dockerfile+in.SourceDigest != "" {
		return nil, fault.New(fault.Invalid, "artifact %s: a Dockerfile or a digest of sources was given without the build context it belongs to", id)
	}
	for _, url := range []string{in.TarURL, in.ContextURL} {
		if url == "" {
			continue
		}
		if _, err := s.there(ctx, id, url); err != nil {
			return nil, err
		}
	}
	r, err := s.objects.Open(ctx, in.TarURL)
	if err != nil {
		return nil, fault.At(err, "artifact %s", id)
	}
	defer r.Close()
	saved, err := ReadSaved(r)
	if err == nil && !saved.Gzip {
		err = fault.New(fault.Invalid, "it is not gzipped")
	}
	if err != nil {
		return nil, fault.At(err, "artifact %s: %s", id, in.TarURL)
	}
	held, name, err := saved.Find(in.Name)
	if err != nil {
		return nil, fault.At(err, "artifact %s: %s", id, in.TarURL)
	}
	img := &DockerImage{head: head{id: id}, Description: in.Description, Image: name, TarURL: in.TarURL, ContextURL: in.ContextURL,
		Dockerfile: in.Dockerfile, Platform: NormalizePlatform(in.Platform), SourceDigest: in.SourceDigest}
	if img.Platform == "" {
		img.Platform = held.Platform
	}
	return put(ctx, s, img)
}

func tarKey(prefix, id string, version int64) string {
	return fmt.Sprintf("%s%s-v%d.tar.gz", prefix, store.FSSafe(id), version)
}

// keepTar stores the archive that r gives and says in the image what it holds: its name, and its platform unless that is set.
func (s *Store) keepTar(ctx context.Context, img *DockerImage, key, name string, r io.Reader) error {
	v := vet(r, name)
	w, err := s.pour(ctx, key, func(w io.Writer) error { return compress(w, v) })
	v.end()
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return fault.At(err, "artifact %s", img.id)
	}
	img.TarURL, img.Image = w.URL, v.name
	if img.Platform == "" {
		img.Platform = v.held.Platform
	}
	return nil
}

// compress copies r, gzipped unless it is already.
func compress(w io.Writer, r io.Reader) error {
	b := bufio.NewReader(r)
	if magic, _ := b.Peek(len(gzipMagic)); bytes.Equal(magic, gzipMagic) {
		_, err := io.Copy(w, b)
		return err
	}
	z := gzip.NewWriter(w)
	if _, err := io.Copy(z, b); err != nil {
		return err
	}
	return z.Close()
}

// vetted passes the archive of a saved image on and reads it meanwhile: where it holds no image of the name wanted, reading ends in
// an error instead of io.EOF, so that whoever stores it stores nothing.
type vetted struct {
	src  io.Reader
	tee  *io.PipeWriter
	done chan struct{}

	held SavedImage
	name string
	err  error
	last error // what every further Read returns
}

func vet(src io.Reader, want string) *vetted {
	r, w := io.Pipe()
	v := &vetted{src: src, tee: w, done: make(chan struct{})}
	go func() {
		defer close(v.done)
		saved, err := ReadSaved(r)
		if err == nil {
			v.held, v.name, err = saved.Find(want)
		}
		v.err = err
		r.CloseWithError(err)
	}()
	return v
}

// Read implements io.Reader.
func (v *vetted) Read(p []byte) (int, error) {
	if v.last != nil {
		return 0, v.last
	}
	n, err := v.src.Read(p)
	if _, bad := v.tee.Write(p[:n]); bad != nil {
		v.last = bad
		return 0, bad
	}
	if err != nil {
		v.tee.CloseWithError(err)
		<-v.done
		if v.last = err; errors.Is(err, io.EOF) && v.err != nil {
			v.last = v.err
		}
	}
	return n, v.last
}

// end waits until nothing is read any more.
func (v *vetted) end() {
	v.tee.CloseWithError(io.ErrClosedPipe)
	<-v.done
}
