package artifact_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"agentenv/artifact"
	"agentenv/fault"
	"agentenv/store"
	"agentenv/store/image"
)

// shelf is an engine that holds images in memory.
type shelf struct {
	t      testing.TB
	mu     sync.Mutex
	images map[string]v1.Image
	logins []*image.Auth
	save   func(name string, whole []byte) io.ReadCloser // nil = all of it
}

func (s *shelf) get(n string) (v1.Image, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := s.images[n]; i != nil {
		return i, nil
	}
	return nil, fault.New(fault.NotFound, "no such image: %s", n)
}

func (s *shelf) Inspect(_ context.Context, n string) (string, string, error) {
	i, err := s.get(n)
	if err != nil {
		return "", "", err
	}
	c := need[*v1.ConfigFile](s.t)(i.ConfigFile())
	return need[v1.Hash](s.t)(i.ConfigName()).String(), c.OS + "/" + c.Architecture + "/" + c.Variant, nil
}

func (s *shelf) Tag(_ context.Context, n, further string) error {
	i, err := s.get(n)
	if err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.images[further] = i
	}
	return err
}

func (s *shelf) Untag(ctx context.Context, n string) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.images, n)
	return nil
}

func (s *shelf) Push(ctx context.Context, n string, login *image.Auth) error {
	i, err := s.get(n)
	if err != nil {
		return err
	}
	s.logins = append(s.logins, login)
	auth := authn.Anonymous
	if login != nil {
		auth = &authn.Basic{Username: login.Username, Password: login.Password}
	}
	if err := remote.Write(need[name.Reference](s.t)(name.ParseReference(n)), i, remote.WithAuth(auth), remote.WithContext(ctx)); err != nil {
		return fault.Wrap(fault.Denied, err, "push %s", n)
	}
	return nil
}

func (s *shelf) Save(_ context.Context, n string) (io.ReadCloser, error) {
	i, err := s.get(n)
	if err != nil {
		return nil, err
	}
	whole := savedAs(s.t, i, n)
	if s.save != nil {
		return s.save(n, whole), nil
	}
	return io.NopCloser(bytes.NewReader(whole)), nil
}

type logins struct{ auth *image.Auth }

func (l logins) For(context.Context, string) (*image.Auth, error) { return l.auth, nil }

// registries are an image store of a registry in this process that wants that login (nil = none), and its host.
func registries(t testing.TB, wants, gives *image.Auth) (image.Store, string) {
	t.Helper()
	inner := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if u, p, _ := r.BasicAuth(); wants != nil && r.URL.Path != "/v2/" && (u != wants.Username || p != wants.Password) {
			http.Error(w, "denied", http.StatusForbidden)
			return
		}
		inner.ServeHTTP(w, r)
	}))
	t.Cleanup(srv.Close)
	host := strings.Replace(strings.TrimPrefix(srv.URL, "http://"), "127.0.0.1", "localhost", 1)
	return need[*image.Local](t)(image.NewLocal(need[*image.Registry](t)(image.NewRegistry(host, "", logins{gives})), nil)), host
}

func TestPutLocal(t *testing.T) {
	images, host := registries(t, &image.Auth{Username: "u", Password: "p"}, &image.Auth{Username: "u", Password: "p"})
	dir := t.TempDir()
	write(t, dir, sample)
	sources := need[*artifact.BuildContext](t)(artifact.OpenContext(t.Context(), dir, ""))
	for what, c := range map[string]struct {
		id       string
		images   image.Store
		in       artifact.LocalImage
		platform string
		name     string
		key      string
	}{
		"pushed":        {"team/img", images, artifact.LocalImage{}, "linux/arm64", host + "/team/img:v1", "team/img-v1.tar.gz"},
		"@local":        {"@local/~/img", images, artifact.LocalImage{}, "linux/arm64", host + "/" + store.KeySegment("@local/~/img") + ":v1", store.FSSafe("@local/~/img") + "-v1.tar.gz"},
		"only saved":    {"team/img", nil, artifact.LocalImage{}, "linux/arm64", store.ImageRepository("team/img") + ":v1", "team/img-v1.tar.gz"},
		"own platform":  {"team/img", images, artifact.LocalImage{Platform: "linux/x86_64"}, "linux/amd64", host + "/team/img:v1", "team/img-v1.tar.gz"},
		"with sources":  {"team/img", images, artifact.LocalImage{Context: sources}, "linux/arm64", host + "/team/img:v1", "team/img-v1.tar.gz"},
		"named already": {"team/img", nil, artifact.LocalImage{Image: store.ImageRepository("team/img") + ":v1"}, "linux/arm64", store.ImageRepository("team/img") + ":v1", "team/img-v1.tar.gz"},
	} {
		t.Run(what, func(t *testing.T) {
			s := newStage(t, func(o *artifact.Options) { o.Images = c.images })
			held := made(t, "linux/arm64/v8")
			if c.in.Image == "" {
				c.in.Image = "box:dev"
			}
			e := &shelf{t: t, images: map[string]v1.Image{c.in.Image: held}}
			img := need[*artifact.DockerImage](t)(s.store.PutLocal(t.Context(), e, c.id, c.in))
			if img.Image != c.name || img.Platform != c.platform || img.ImageDigest != "" || !strings.HasSuffix(img.TarURL, "/"+c.key) || img.Version() != 1 {
				t.Errorf("stored %+v", img)
			}
			if c.in.Context != nil && img.SourceDigest != sources.SourceDigest(c.platform) {
				t.Errorf("stored the sources as %s", img.SourceDigest)
			}
			if e.images[c.name] == nil {
				t.Error("the engine does not know the image by its name")
			}
			r := need[io.ReadCloser](t)(s.store.OpenImage(t.Context(), img))
			defer r.Close()
			if _, _, err := need[*artifact.Saved](t)(artifact.ReadSaved(r)).Find(c.name); err != nil {
				t.Error(err)
			}
			if c.images != nil {
				got := need[v1.Image](t)(remote.Image(need[name.Reference](t)(name.ParseReference(c.name)), remote.WithAuth(&authn.Basic{Username: "u", Password: "p"})))
				if need[v1.Hash](t)(got.Digest()) != need[v1.Hash](t)(held.Digest()) {
					t.Error("another image was pushed")
				}
			}
			again := need[*artifact.DockerImage](t)(s.store.PutLocal(t.Context(), e, c.id, c.in))
			if again.Version() != 2 || again.Image != strings.TrimSuffix(c.name, "1")+"2" {
				t.Errorf("the second write stored %+v", again)
			}
		})
	}
}

func TestPutLocalFails(t *testing.T) {
	good, _ := registries(t, nil, nil)
	closed, _ := registries(t, &image.Auth{Username: "u", Password: "p"}, &image.Auth{Username: "u", Password: "other"})
	elsewhere := image.NewRouter(need[*image.Registry](t)(image.NewRegistry("ghcr.io", "", nil)), good)
	for what, c := range map[string]struct {
		ctx    func(context.Context) context.Context
		images image.Store
		in     artifact.LocalImage
		save   func(s *stage, e *shelf) func(string, []byte) io.ReadCloser
		kind   fault.Kind
		says   string
		docs   int
		names  int // of the engine at the end; 0 = the one it had before
	}{
		"no such image": {images: good, in: artifact.LocalImage{Image: "none:1"}, kind: fault.NotFound, says: "none:1"},
		"login refused": {images: closed, kind: fault.Denied, says: "push"},
		"a local run":   {ctx: func(ctx context.Context) context.Context { return store.WithRunScope(ctx, "@local/~/t") }, images: elsewhere, kind: fault.Denied, says: "@local"},
		"saving cut off": {images: good, save: func(*stage, *shelf) func(string, []byte) io.ReadCloser {
			return func(_ string, b []byte) io.ReadCloser { return io.NopCloser(bytes.NewReader(b[:3000])) }
		}, kind: fault.Invalid, says: "to its end"},
		"saving stalls": {images: good, in: artifact.LocalImage{SaveWait: 20 * time.Millisecond}, save: func(*stage, *shelf) func(string, []byte) io.ReadCloser {
			return func(_ string, b []byte) io.ReadCloser {
				r, w := io.Pipe()
				go w.Write(b[:1000])
				return r
			}
		}, kind: fault.Timeout, says: "gave nothing"},
		"another writer": {images: good, save: func(s *stage, e *shelf) func(string, []byte) io.ReadCloser {
			return func(_ string, b []byte) io.ReadCloser {
				need[*artifact.File](e.t)(s.store.PutFile(e.t.Context(), "img", "", src("a", "a")))
				return io.NopCloser(bytes.NewReader(b))
			}
		}, kind: fault.Conflict, says: "another writer", docs: 1},
		"renamed meanwhile": {images: good, save: func(_ *stage, e *shelf) func(string, []byte) io.ReadCloser {
			return func(n string, b []byte) io.ReadCloser {
				e.mu.Lock()
				defer e.mu.Unlock()
				e.images[n] = made(e.t, "linux/amd64")
				return io.NopCloser(bytes.NewReader(b))
			}
		}, kind: fault.Conflict, says: "another image", names: 2},
	} {
		t.Run(what, func(t *testing.T) {
			s := newStage(t, func(o *artifact.Options) { o.Images = c.images })
			e := &shelf{t: t, images: map[string]v1.Image{"box:dev": made(t, "linux/amd64")}}
			if c.save != nil {
				e.save = c.save(s, e)
			}
			if c.in.Image == "" {
				c.in.Image = "box:dev"
			}
			ctx := t.Context()
			if c.ctx != nil {
				ctx = c.ctx(ctx)
			}
			_, err := s.store.PutLocal(ctx, e, "img", c.in)
			wantKind(t, err, c.kind, c.says, "artifact img")
			if _, documents := s.stored(t); documents != c.docs {
				t.Error("a failed write stored a document")
			}
			if names := slices.Collect(maps.Keys(e.images)); len(names) != max(c.names, 1) {
				t.Errorf("the engine was left with %v", names)
			}
		})
	}
	t.Run("canceled", func(t *testing.T) {
		s := newStage(t, nil)
		ctx, cancel := context.WithCancel(t.Context())
		e := &shelf{t: t, images: map[string]v1.Image{"box:dev": made(t, "linux/amd64")}}
		e.save = func(_ string, b []byte) io.ReadCloser {
			r, w := io.Pipe()
			go func() {
				w.Write(b[:1000])
				cancel()
				w.CloseWithError(errors.New("the engine's connection was closed"))
			}()
			return r
		}
		_, err := s.store.PutLocal(ctx, e, "img", artifact.LocalImage{Image: "box:dev"})
		wantKind(t, err, fault.Canceled)
		if objects, documents := s.stored(t); len(objects)+documents > 0 || len(e.images) != 1 {
			t.Errorf("a canceled write left %v, %d documents and %v", objects, documents, e.images)
		}
	})
}

func TestPutRef(t *testing.T) {
	digest, other := "sha256:"+strings.Repeat("ab", 32), "sha256:"+strings.Repeat("cd", 32)
	local, host := registries(t, nil, nil)
	cloud := need[*image.Registry](t)(image.NewRegistry("ghcr.io", "", nil))
	onLoopback := need[*image.Registry](t)(image.NewRegistry(host, "", nil))
	pin := func(_ context.Context, ref string) (string, error) {
		if strings.Contains(ref, "gone") {
			return "", fault.New(fault.NotFound, "no such image: %s", ref)
		}
		return ref + "@" + digest, nil
	}
	dir := t.TempDir()
	write(t, dir, sample)
	sources := need[*artifact.BuildContext](t)(artifact.OpenContext(t.Context(), dir, ""))
	for what, c := range map[string]struct {
		id     string
		images image.Store
		in     artifact.RefImage
		unpin  bool
		name   string
		kind   fault.Kind
		says   string
	}{
		"pinned now":             {in: artifact.RefImage{Ref: "ghcr.io/x/y:1"}, name: "ghcr.io/x/y:1@" + digest},
		"pinned already":         {in: artifact.RefImage{Ref: "ghcr.io/x/y:1@" + other}, unpin: true, name: "ghcr.io/x/y:1@" + other},
		"pinned earlier":         {in: artifact.RefImage{Ref: "ghcr.io/x/y:1", EarlierPin: "ghcr.io/x/y:1@" + other}, name: "ghcr.io/x/y:1@" + other},
		"another's pin":          {in: artifact.RefImage{Ref: "ghcr.io/x/y:1", EarlierPin: "ghcr.io/x/z:1@" + other}, name: "ghcr.io/x/y:1@" + digest},
		"gone":                   {in: artifact.RefImage{Ref: "ghcr.io/x/gone:1"}, kind: fault.NotFound, says: "no such image"},
		"nobody to ask":          {in: artifact.RefImage{Ref: "ghcr.io/x/y:1"}, unpin: true, kind: fault.Unsupported, says: "write the digest"},
		"no registry":            {in: artifact.RefImage{Ref: "busybox:1"}, kind: fault.Invalid, says: "docker.io/library/busybox:1"},
		"no registry, but owner": {in: artifact.RefImage{Ref: "team/busybox"}, kind: fault.Invalid, says: "docker.io/team/busybox"},
		"malformed digest":       {in: artifact.RefImage{Ref: "ghcr.io/x/y:1@sha256:0"}, kind: fault.Invalid, says: "lower-case hex"},
		"this machine's":         {images: local, in: artifact.RefImage{Ref: host + "/x:1"}, name: host + "/x:1@" + digest},
		"this machine's, @local": {id: "@local/~/i", images: image.NewRouter(cloud, local), in: artifact.RefImage{Ref: host + "/x:1"}, name: host + "/x:1@" + digest},
		"this machine's, shared": {images: image.NewRouter(cloud, local), in: artifact.RefImage{Ref: host + "/x:1"}, kind: fault.Invalid, says: "belong in ghcr.io"},
		"this machine's by an address, shared": {images: cloud, in: artifact.RefImage{Ref: "127.0.0.1:5000/x:1@" + digest, Context: sources},
			kind: fault.Invalid, says: "registry of this machine"},
		"no local registry":    {images: onLoopback, in: artifact.RefImage{Ref: host + "/x:1"}, kind: fault.Invalid, says: "registry of this machine"},
		"with sources":         {in: artifact.RefImage{Ref: "ghcr.io/x/y:1", Digest: digest, Context: sources}, unpin: true, name: "ghcr.io/x/y:1"},
		"sources, no digest":   {in: artifact.RefImage{Ref: "ghcr.io/x/y:1", Context: sources}, name: "ghcr.io/x/y:1"},
		"digest of nothing":    {in: artifact.RefImage{Ref: "ghcr.io/x/y:1", Digest: digest}, kind: fault.Invalid, says: "into the reference"},
		"two digests":          {in: artifact.RefImage{Ref: "ghcr.io/x/y:1@" + digest, Digest: other, Context: sources}, kind: fault.Invalid, says: "another digest"},
		"malformed digest too": {in: artifact.RefImage{Ref: "ghcr.io/x/y:1", Digest: "sha256:AB", Context: sources}, kind: fault.Invalid, says: "lower-case hex"},
	} {
		t.Run(what, func(t *testing.T) {
			s := newStage(t, func(o *artifact.Options) {
				if o.Images = c.images; !c.unpin {
					o.Pin = pin
				}
			})
			if c.id == "" {
				c.id = "i"
			}
			img, err := s.store.PutRef(t.Context(), c.id, c.in)
			if c.kind != "" {
				wantKind(t, err, c.kind, c.says)
				if objects, documents := s.stored(t); len(objects)+documents > 0 {
					t.Errorf("a refused image left %v and %d documents", objects, documents)
				}
				return
			}
			if err != nil || img.Image != c.name || img.ImageDigest != c.in.Digest || img.Platform != "" || img.ContextOnly() {
				t.Fatalf("stored %+v, %v", img, err)
			}
			if c.in.Context == nil {
				return
			}
			if img.SourceDigest != sources.SourceDigest("") || !img.Buildable() {
				t.Errorf("stored %+v", img)
			}
			need[io.ReadCloser](t)(s.store.OpenContext(t.Context(), img)).Close()
		})
	}
}
