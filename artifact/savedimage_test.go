package artifact_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"agentenv/artifact"
	"agentenv/fault"
	"agentenv/store/document"
)

// made returns an image for a platform.
func made(t testing.TB, platform string) v1.Image {
	t.Helper()
	p := need[*v1.Platform](t)(v1.ParsePlatform(platform))
	img := need[v1.Image](t)(random.Image(3000, 2))
	conf := need[*v1.ConfigFile](t)(img.ConfigFile()).DeepCopy()
	conf.OS, conf.Architecture, conf.Variant = p.OS, p.Architecture, p.Variant
	return need[v1.Image](t)(mutate.ConfigFile(img, conf))
}

// savedAs is what `docker save` of these names writes.
func savedAs(t testing.TB, img v1.Image, names ...string) []byte {
	t.Helper()
	all := map[name.Reference]v1.Image{}
	for _, n := range names {
		all[need[name.Reference](t)(name.ParseReference(n))] = img
	}
	var b bytes.Buffer
	if err := tarball.MultiRefWrite(all, &b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// ociArchive is the tar of an OCI layout of one image, or of an index of several.
func ociArchive(t testing.TB, annotations map[string]string, imgs ...v1.Image) []byte {
	t.Helper()
	dir := t.TempDir()
	p := need[layout.Path](t)(layout.Write(dir, empty.Index))
	var err error
	if len(imgs) == 1 {
		err = p.AppendImage(imgs[0], layout.WithAnnotations(annotations))
	} else {
		inner := v1.ImageIndex(empty.Index)
		for _, i := range imgs {
			inner = mutate.AppendManifests(inner, mutate.IndexAddendum{Add: i})
		}
		err = p.AppendIndex(inner, layout.WithAnnotations(annotations))
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err = errors.Join(err, w.AddFS(os.DirFS(dir)), w.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func gzipped(b []byte) []byte {
	var z bytes.Buffer
	w := gzip.NewWriter(&z)
	w.Write(b)
	w.Close()
	return z.Bytes()
}

// without copies a tar but for the entries that drop picks.
func without(t testing.TB, b []byte, drop func(*tar.Header) bool) []byte {
	t.Helper()
	var out bytes.Buffer
	r, w := tar.NewReader(bytes.NewReader(b)), tar.NewWriter(&out)
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil && !drop(h) {
			if err = w.WriteHeader(h); err == nil {
				_, err = io.Copy(w, r)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	w.Close()
	return out.Bytes()
}

func TestReadSaved(t *testing.T) {
	arm, amd := made(t, "linux/arm/v7"), made(t, "linux/amd64")
	named := map[string]string{"io.containerd.image.name": "docker.io/library/box:1", "org.opencontainers.image.ref.name": "1"}
	one := func(platform string, names ...string) []artifact.SavedImage {
		return []artifact.SavedImage{{Names: names, Platform: platform}}
	}
	for what, c := range map[string]struct {
		tar  []byte
		want artifact.Saved
	}{
		"docker save":    {savedAs(t, arm, "box:1"), artifact.Saved{Images: one("linux/arm/v7", "box:1")}},
		"gzipped":        {gzipped(savedAs(t, amd, "ghcr.io/x/box:1")), artifact.Saved{Images: one("linux/amd64", "ghcr.io/x/box:1"), Gzip: true}},
		"OCI layout":     {ociArchive(t, named, amd), artifact.Saved{Images: one("linux/amd64", "docker.io/library/box:1")}},
		"bare tag":       {ociArchive(t, map[string]string{"org.opencontainers.image.ref.name": "latest"}, amd), artifact.Saved{Images: one("linux/amd64")}},
		"several":        {ociArchive(t, named, amd, arm), artifact.Saved{Images: one("", "docker.io/library/box:1")}},
		"one of several": {without(t, ociArchive(t, named, amd, arm), blobOf(t, arm)), artifact.Saved{Images: one("linux/amd64", "docker.io/library/box:1")}},
	} {
		t.Run(what, func(t *testing.T) {
			got := need[*artifact.Saved](t)(artifact.ReadSaved(bytes.NewReader(c.tar)))
			if diff := cmp.Diff(c.want, *got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// blobOf picks the entry of an image's manifest.
func blobOf(t testing.TB, img v1.Image) func(*tar.Header) bool {
	d := need[v1.Hash](t)(img.Digest())
	return func(h *tar.Header) bool { return strings.HasSuffix(h.Name, d.Hex) }
}

func bytesOf(b []byte) artifact.Source {
	return artifact.Source{Size: int64(len(b)), Open: func(context.Context) (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b)), nil }}
}

// stored are the objects and the artifact documents that are there.
func (s *stage) stored(t testing.TB) (objects []string, documents int) {
	t.Helper()
	objects = need[[]string](t)(s.objects.List(t.Context(), ""))
	return objects, need[int](t)(s.docs.Count(t.Context(), artifact.Documents, document.Filter{}))
}

func TestPutTar(t *testing.T) {
	arm := made(t, "linux/arm64/v8")
	plain := savedAs(t, arm, "local/box:1")
	packedAlready := gzipped(plain)
	for what, c := range map[string]struct {
		in         artifact.TarImage
		name, plat string
		verbatim   bool
	}{
		"tar":            {artifact.TarImage{Tar: bytesOf(plain)}, "local/box:1", "linux/arm64", false},
		"tar.gz":         {artifact.TarImage{Tar: bytesOf(packedAlready)}, "local/box:1", "linux/arm64", true},
		"named in full":  {artifact.TarImage{Tar: bytesOf(plain), Name: "docker.io/local/box:1"}, "docker.io/local/box:1", "linux/arm64", false},
		"own platform":   {artifact.TarImage{Tar: bytesOf(plain), Platform: "linux/x86_64"}, "local/box:1", "linux/amd64", false},
		"one of several": {artifact.TarImage{Tar: bytesOf(savedAs(t, arm, "a", "b:2")), Name: "a"}, "a", "linux/arm64", false},
		"OCI layout": {artifact.TarImage{Tar: bytesOf(ociArchive(t, map[string]string{"org.opencontainers.image.ref.name": "ghcr.io/x:1"}, arm))},
			"ghcr.io/x:1", "linux/arm64", false},
	} {
		t.Run(what, func(t *testing.T) {
			s := newStage(t, nil)
			img := need[*artifact.DockerImage](t)(s.store.PutTar(t.Context(), "@local/~/box", c.in))
			if img.Image != c.name || img.Platform != c.plat || img.Version() != 1 || !strings.HasSuffix(img.TarURL, "-v1.tar.gz") {
				t.Errorf("stored %+v", img)
			}
			r := need[io.ReadCloser](t)(s.store.OpenImage(t.Context(), img))
			defer r.Close()
			b := need[[]byte](t)(io.ReadAll(r))
			if c.verbatim && !bytes.Equal(b, packedAlready) {
				t.Error("an archive that is compressed already must be stored as it is")
			}
			saved := need[*artifact.Saved](t)(artifact.ReadSaved(bytes.NewReader(b)))
			if _, _, err := saved.Find(c.name); err != nil || !saved.Gzip {
				t.Error("what is stored is another archive:", saved, err)
			}
		})
	}
}

func TestPutTarWithSources(t *testing.T) {
	s := newStage(t, nil)
	dir := t.TempDir()
	write(t, dir, sample)
	c := need[*artifact.BuildContext](t)(artifact.OpenContext(t.Context(), dir, ""))
	img := need[*artifact.DockerImage](t)(s.store.PutTar(t.Context(), "box", artifact.TarImage{Tar: bytesOf(savedAs(t, made(t, "linux/arm64"), "box:1")), Context: c}))
	if img.SourceDigest != c.SourceDigest("linux/arm64") || !img.Buildable() || !img.RebuiltFor("linux/amd64") || !img.UnderBuildTag() {
		t.Errorf("stored %+v", img)
	}
	need[io.ReadCloser](t)(s.store.OpenContext(t.Context(), img)).Close()
}

func TestPutTarRefuses(t *testing.T) {
	amd := made(t, "linux/amd64")
	whole := savedAs(t, amd, "box:1")
	packed := gzipped(whole)
	layer := func(h *tar.Header) bool { return strings.HasSuffix(h.Name, ".tar.gz") }
	broken := errors.New("the disk broke")
	for what, c := range map[string]struct {
		tar  artifact.Source
		name string
		kind fault.Kind
		says string
	}{
		"no tar":             {bytesOf(bytes.Repeat([]byte("text "), 1000)), "", fault.Invalid, "no saved image"},
		"empty":              {bytesOf(nil), "", fault.Invalid, "no saved image"},
		"another tar":        {bytesOf(without(t, whole, func(h *tar.Header) bool { return h.Name == "manifest.json" })), "", fault.Invalid, "docker save"},
		"a layer is missing": {bytesOf(without(t, whole, layer)), "", fault.Invalid, "not whole"},
		"cut off":            {bytesOf(whole[:len(whole)/2]), "", fault.Invalid, "to its end"},
		"cut off, gzipped":   {bytesOf(packed[:len(packed)-4]), "", fault.Invalid, "to its end"},
		"another name":       {bytesOf(whole), "box:2", fault.Invalid, "box:1, not box:2"},
		"two names":          {bytesOf(savedAs(t, amd, "a:1", "b:1")), "", fault.Invalid, "which one"},
		"no name":            {bytesOf(ociArchive(t, nil, amd)), "", fault.Invalid, "has no name"},
		"unreadable": {artifact.Source{Open: func(context.Context) (io.ReadCloser, error) {
			return io.NopCloser(io.MultiReader(bytes.NewReader(whole[:2000]), brokenReader{broken})), nil
		}}, "", fault.Internal, broken.Error()},
		"not there": {artifact.Source{Open: func(context.Context) (io.ReadCloser, error) {
			return nil, fault.New(fault.NotFound, "no such file")
		}}, "", fault.NotFound, "no such file"},
	} {
		t.Run(what, func(t *testing.T) {
			s := newStage(t, nil)
			_, err := s.store.PutTar(t.Context(), "box", artifact.TarImage{Tar: c.tar, Name: c.name})
			wantKind(t, err, c.kind, c.says, "artifact box")
			if objects, documents := s.stored(t); len(objects)+documents > 0 {
				t.Errorf("a failed write left %v and %d documents", objects, documents)
			}
		})
	}
	t.Run("reserved id", func(t *testing.T) {
		s := newStage(t, nil)
		_, err := s.store.PutTar(t.Context(), "@else/x", artifact.TarImage{Tar: artifact.Source{Open: func(context.Context) (io.ReadCloser, error) {
			t.Error("the file was opened for an id that cannot be")
			return nil, broken
		}}})
		wantKind(t, err, fault.Invalid)
	})
}

type brokenReader struct{ err error }

func (b brokenReader) Read([]byte) (int, error) { return 0, b.err }

// TestPutTarStreams stores an image far larger than what may be held of it.
func TestPutTarStreams(t *testing.T) {
	const layer, most = 256 << 20, 48 << 20
	s := newStage(t, nil)
	var peak uint64
	src := artifact.Source{Size: -1, Open: func(context.Context) (io.ReadCloser, error) {
		r, w := io.Pipe()
		go func() {
			tw := tar.NewWriter(w)
			tw.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "l/layer.tar", Size: layer})
			zeros := make([]byte, 1<<20)
			for i := range layer >> 20 {
				tw.Write(zeros)
				if i%16 == 0 {
					var m runtime.MemStats
					runtime.ReadMemStats(&m)
					peak = max(peak, m.HeapInuse)
				}
			}
			for n, text := range map[string]string{"c.json": "{}", "manifest.json": `[{"Config":"c.json","RepoTags":["big:1"],"Layers":["l/layer.tar"]}]`} {
				tw.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: n, Size: int64(len(text))})
				io.WriteString(tw, text)
			}
			w.CloseWithError(tw.Close())
		}()
		return r, nil
	}}
	var before runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	img := need[*artifact.DockerImage](t)(s.store.PutTar(t.Context(), "big", artifact.TarImage{Tar: src}))
	if img.Image != "big:1" || img.Platform != "" {
		t.Errorf("stored %+v", img)
	}
	if peak > before.HeapInuse+most {
		t.Errorf("storing %d MiB took %d MiB of memory", layer>>20, (peak-before.HeapInuse)>>20)
	}
}

func TestPutTarAt(t *testing.T) {
	s := newStage(t, nil)
	ctx := t.Context()
	upload := func(name string, b []byte) string {
		return need[*artifact.File](t)(s.store.PutFile(ctx, name, "", artifact.Source{Name: name, Size: int64(len(b)), Open: bytesOf(b).Open})).URL
	}
	tarURL, plainURL, text := upload("i.tar.gz", gzipped(savedAs(t, made(t, "linux/amd64"), "box:1"))), upload("i.tar", savedAs(t, made(t, "linux/amd64"), "box:1")), upload("t", []byte("text"))
	own := need[*artifact.DockerImage](t)(s.store.PutTar(ctx, "@local/~/box", artifact.TarImage{Tar: bytesOf(savedAs(t, made(t, "linux/amd64"), "box:1"))})).TarURL
	_, before := s.stored(t)
	for what, c := range map[string]struct {
		id   string
		in   artifact.StoredTar
		kind fault.Kind
		says string
	}{
		"no URL":                {"i", artifact.StoredTar{Name: "box:1"}, fault.Invalid, "needs the URL"},
		"nothing there":         {"i", artifact.StoredTar{TarURL: tarURL + "x"}, fault.NotFound, "no object"},
		"no image":              {"i", artifact.StoredTar{TarURL: text}, fault.Invalid, "no saved image"},
		"not gzipped":           {"i", artifact.StoredTar{TarURL: plainURL}, fault.Invalid, "not gzipped"},
		"another name":          {"i", artifact.StoredTar{TarURL: tarURL, Name: "box:2"}, fault.Invalid, "not box:2"},
		"another store":         {"i", artifact.StoredTar{TarURL: "s3://b/k"}, fault.Invalid, "no object store of ours"},
		"another namespace":     {"i", artifact.StoredTar{TarURL: own}, fault.Invalid, "another namespace"},
		"and the other way":     {"@local/~/i", artifact.StoredTar{TarURL: tarURL}, fault.Invalid, "another namespace"},
		"context elsewhere":     {"i", artifact.StoredTar{TarURL: tarURL, ContextURL: own, Dockerfile: "Dockerfile"}, fault.Invalid, "another namespace"},
		"Dockerfile of nothing": {"i", artifact.StoredTar{TarURL: tarURL, Dockerfile: "Dockerfile"}, fault.Invalid, "without the build context"},
	} {
		t.Run(what, func(t *testing.T) {
			_, err := s.store.PutTarAt(ctx, c.id, c.in)
			wantKind(t, err, c.kind, c.says)
		})
	}
	if _, after := s.stored(t); after != before {
		t.Error("a refused image was stored")
	}
	img := need[*artifact.DockerImage](t)(s.store.PutTarAt(ctx, "i", artifact.StoredTar{TarURL: tarURL, ContextURL: text, Dockerfile: "d/Dockerfile", SourceDigest: "sha256:1"}))
	if img.Image != "box:1" || img.TarURL != tarURL || img.Platform != "linux/amd64" || !img.Buildable() || img.SourceDigest != "sha256:1" {
		t.Errorf("stored %+v", img)
	}
}

func FuzzReadSaved(f *testing.F) {
	f.Add(savedAs(f, made(f, "linux/amd64"), "box:1"))
	f.Add(gzipped(savedAs(f, made(f, "linux/amd64"), "box:1")))
	f.Add(ociArchive(f, map[string]string{"io.containerd.image.name": "box:1"}, made(f, "linux/amd64"), made(f, "linux/arm64")))
	f.Fuzz(func(t *testing.T, in []byte) {
		saved, err := artifact.ReadSaved(bytes.NewReader(in))
		if err == nil && len(saved.Images) == 0 {
			t.Fatal("an archive without an image passed")
		}
		if err == nil {
			saved.Find("")
		} else if !fault.Is(err, fault.Invalid) {
			t.Fatal(err)
		}
	})
}
