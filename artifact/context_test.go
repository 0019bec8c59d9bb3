package artifact_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentenv/artifact"
	"agentenv/fault"
)

// write makes files below a folder: a name that ends in "/" is a folder, "->target" a link, "+x" before the body an executable.
func write(t testing.TB, dir string, files map[string]string) {
	t.Helper()
	for name, body := range files {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		mode := os.FileMode(0o644)
		if b, ok := strings.CutPrefix(body, "+x"); ok {
			body, mode = b, 0o755
		}
		switch target, link := strings.CutPrefix(body, "->"); {
		case strings.HasSuffix(name, "/"):
			err = os.MkdirAll(p, 0o755)
		case link:
			err = os.Symlink(target, p)
		default:
			err = errors.Join(os.WriteFile(p, []byte(body), mode), os.Chmod(p, mode))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

var sample = map[string]string{
	"Dockerfile": "FROM scratch\n", "app/main.py": "print(1)\n", "run.sh": "+x#!/bin/sh\n", "empty/": "", "link": "->app/main.py",
	"secret.txt": "s", ".dockerignore": "# c\nsecret.txt\nDockerfile\n", "__pycache__/y": "y", ".DS_Store": "d",
}

func TestContextKnownAnswer(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, sample)
	c := need[*artifact.BuildContext](t)(artifact.OpenContext(t.Context(), dir, ""))
	var names []string
	for _, e := range c.Entries() {
		names = append(names, e.Name)
	}
	if diff := cmp.Diff([]string{".dockerignore", "Dockerfile", "app", "app/main.py", "empty", "link", "run.sh"}, names); diff != "" {
		t.Error(diff)
	}
	const want = "sha256:4c176bc18d2153794ee5ce3a97287b39ccf7e28dc494a0ea6cc301d383bb2a93"
	if got := c.SourceDigest("linux/amd64"); got != want {
		t.Errorf("digest %s, want %s", got, want)
	}
	if got := artifact.BuildName("team/img", want); got != "local/team-img-c84d0dc593ae:4c176bc18d215379" {
		t.Errorf("build name %s", got)
	}
}

func TestContextArchive(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, sample)
	c := need[*artifact.BuildContext](t)(artifact.OpenContext(t.Context(), dir, ""))
	var one, two bytes.Buffer
	if err := errors.Join(c.Archive(t.Context(), &one), c.Archive(t.Context(), &two)); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(one.Bytes(), two.Bytes()) {
		t.Error("two archives of one context differ")
	}
	out := t.TempDir()
	if err := artifact.Extract(t.Context(), &one, out); err != nil {
		t.Fatal(err)
	}
	back := need[*artifact.BuildContext](t)(artifact.OpenContext(t.Context(), out, ""))
	if back.SourceDigest("") != c.SourceDigest("") {
		t.Error("what was unpacked is another context")
	}
	laid := t.TempDir()
	if err := c.WriteTo(t.Context(), laid); err != nil {
		t.Fatal(err)
	}
	if back := need[*artifact.BuildContext](t)(artifact.OpenContext(t.Context(), laid, "")); back.SourceDigest("") != c.SourceDigest("") {
		t.Error("what was laid out is another context")
	}
	write(t, dir, map[string]string{"app/main.py": "print(2)\n"})
	wantKind(t, c.WriteTo(t.Context(), t.TempDir()), fault.Conflict, "app/main.py")
	wantKind(t, c.Archive(t.Context(), io.Discard), fault.Conflict, "app/main.py", "changed")
}

func TestContextIgnoreRules(t *testing.T) {
	for name, c := range map[string]struct {
		files      map[string]string
		dockerfile string
		want       []string
	}{
		"own ignore file wins": {map[string]string{"a/Dockerfile": "x", "a/Dockerfile.dockerignore": "keep\n", ".dockerignore": "drop\n", "keep": "", "drop": ""},
			"a/Dockerfile", []string{".dockerignore", "a", "a/Dockerfile", "a/Dockerfile.dockerignore", "drop"}},
		"exception below an excluded folder": {map[string]string{"Dockerfile": "x", ".dockerignore": "logs\n!logs/keep\n", "logs/keep": "", "logs/drop": "", "logs/sub/x": ""},
			"", []string{".dockerignore", "Dockerfile", "logs", "logs/keep"}},
		"everything but": {map[string]string{"Dockerfile": "x", ".dockerignore": "*\n!src\n", "src/a": "", "other/b": "", "c": ""},
			"", []string{".dockerignore", "Dockerfile", "src", "src/a"}},
		"double star and byte order mark": {map[string]string{"Dockerfile": "x", ".dockerignore": "\xef\xbb\xbf**/*.o\n", "a.o": "", "d/e/b.o": "", "d/e/c": ""},
			"", []string{".dockerignore", "Dockerfile", "d", "d/e", "d/e/c"}},
		"linked Dockerfile": {map[string]string{"Dockerfile": "->docker/prod", "docker/prod": "FROM scratch", "docker/x": "", ".dockerignore": "docker\nDockerfile\n"},
			"", []string{".dockerignore", "Dockerfile", "docker", "docker/prod"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir, c.files)
			ctx := need[*artifact.BuildContext](t)(artifact.OpenContext(t.Context(), dir, c.dockerfile))
			var names []string
			for _, e := range ctx.Entries() {
				names = append(names, e.Name)
			}
			if diff := cmp.Diff(c.want, names); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestContextProblems(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"Dockerfile": "x", "caf\u00e9": "", "cafe\u0301": "", "bad\xff": ""})
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o644); err != nil {
		t.Fatal(err)
	}
	_, err := artifact.OpenContext(t.Context(), dir, "")
	wantKind(t, err, fault.Invalid, "pipe", "not UTF-8", "different spellings")
	_, err = artifact.OpenContext(t.Context(), t.TempDir(), "")
	wantKind(t, err, fault.Invalid, "Dockerfile")
	for _, bad := range []string{"../Dockerfile", "/Dockerfile"} {
		_, err = artifact.OpenContext(t.Context(), dir, bad)
		wantKind(t, err, fault.Invalid)
	}
	out := t.TempDir()
	write(t, out, map[string]string{"Dockerfile": "->../x"})
	_, err = artifact.OpenContext(t.Context(), out, "")
	wantKind(t, err, fault.Invalid, "outside")
}

// packed makes a tar of headers; a regular file has its name as its body.
func packed(t testing.TB, headers ...tar.Header) *bytes.Buffer {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range headers {
		h.Mode = 0o644
		if h.Typeflag == tar.TypeReg {
			h.Size = int64(len(h.Name))
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg {
			io.WriteString(w, h.Name)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &b
}

func TestExtractStaysInside(t *testing.T) {
	for name, h := range map[string][]tar.Header{
		"parent":            {{Typeflag: tar.TypeReg, Name: "../evil"}},
		"absolute":          {{Typeflag: tar.TypeReg, Name: "/evil"}},
		"hard link outside": {{Typeflag: tar.TypeLink, Name: "a", Linkname: "../../etc/passwd"}},
		"device":            {{Typeflag: tar.TypeChar, Name: "null"}},
		"through a link":    {{Typeflag: tar.TypeSymlink, Name: "d/up", Linkname: ".."}, {Typeflag: tar.TypeSymlink, Name: "l", Linkname: "d/up/.."}, {Typeflag: tar.TypeReg, Name: "l/evil"}},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			dir := filepath.Join(root, "in", "dest")
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			err := artifact.Extract(t.Context(), packed(t, h...), dir)
			if name != "through a link" && !fault.Is(err, fault.Invalid) {
				t.Errorf("got %v", err)
			}
			for _, p := range []string{filepath.Join(root, "evil"), filepath.Join(root, "in", "evil"), "/evil"} {
				if _, err := os.Lstat(p); err == nil {
					t.Errorf("%s was written", p)
				}
			}
		})
	}
	dir := t.TempDir()
	err := artifact.Extract(t.Context(), packed(t, tar.Header{Typeflag: tar.TypeSymlink, Name: "out", Linkname: "/etc"},
		tar.Header{Typeflag: tar.TypeSymlink, Name: "in", Linkname: "f"}, tar.Header{Typeflag: tar.TypeReg, Name: "f"}), dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(filepath.Join(dir, "out")); err == nil {
		t.Error("a link that leads outside was kept")
	}
	if got, _ := os.Readlink(filepath.Join(dir, "in")); got != "f" {
		t.Errorf("the inner link is %q", got)
	}
}

func FuzzExtract(f *testing.F) {
	var z bytes.Buffer
	g := gzip.NewWriter(&z)
	g.Write(packed(f, tar.Header{Typeflag: tar.TypeReg, Name: "a/b"}).Bytes())
	g.Close()
	f.Add(z.Bytes())
	f.Add(packed(f, tar.Header{Typeflag: tar.TypeSymlink, Name: "a", Linkname: ".."}, tar.Header{Typeflag: tar.TypeReg, Name: "a/b"}).Bytes())
	f.Add([]byte("no tar"))
	f.Fuzz(func(t *testing.T, in []byte) {
		root := t.TempDir()
		dir := filepath.Join(root, "dest")
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		artifact.Extract(t.Context(), bytes.NewReader(in), dir)
		entries, err := os.ReadDir(root)
		if err != nil || len(entries) != 1 {
			t.Fatalf("beside the folder there is %v, %v", entries, err)
		}
	})
}

func TestPutContext(t *testing.T) {
	s := newStage(t, nil)
	dir := t.TempDir()
	write(t, dir, sample)
	c := need[*artifact.BuildContext](t)(artifact.OpenContext(t.Context(), dir, ""))
	img := need[*artifact.DockerImage](t)(s.store.PutContext(t.Context(), "team/img", artifact.ContextImage{Description: "d", Platform: "linux/x86_64", Context: c}))
	if img.Image != "local/team-img-c84d0dc593ae:4c176bc18d215379" || img.Platform != "linux/amd64" || img.Dockerfile != "Dockerfile" {
		t.Errorf("stored %+v", img)
	}
	if !img.ContextOnly() || !img.Buildable() || img.LoadProblem(true, "linux/amd64") != "" || img.ByNameProblem(false) == "" {
		t.Error("what the image is was not understood")
	}
	r := need[io.ReadCloser](t)(s.store.OpenContext(t.Context(), img))
	defer r.Close()
	out := t.TempDir()
	if err := artifact.Extract(t.Context(), r, out); err != nil {
		t.Fatal(err)
	}
	if got := need[*artifact.BuildContext](t)(artifact.OpenContext(t.Context(), out, "")).SourceDigest("linux/amd64"); got != img.SourceDigest {
		t.Errorf("the stored context has the digest %s, the document says %s", got, img.SourceDigest)
	}
	_, err := s.store.OpenImage(t.Context(), img)
	wantKind(t, err, fault.NotFound, "built")
}

func TestLoadProblem(t *testing.T) {
	if img := (&artifact.DockerImage{Image: "ghcr.io/x/y:1"}); img.ContextOnly() || img.LoadProblem(false, "linux/arm64") != "" {
		t.Errorf("%+v: %s", img, img.LoadProblem(false, "linux/arm64"))
	}
	local := &artifact.DockerImage{Image: "localhost:5000/x:1"}
	if local.LoadProblem(true, "") != "" || !strings.Contains(local.LoadProblem(false, ""), "cannot reach") {
		t.Error("an image in this machine's registry can be had here only")
	}
}

func TestNormalizePlatform(t *testing.T) {
	for in, want := range map[string]string{"": "", " Linux/X86_64 ": "linux/amd64", "linux/aarch64/v8": "linux/arm64", "linux/arm/v7": "linux/arm/v7",
		"linux/i386": "linux/386"} {
		if got := artifact.NormalizePlatform(in); got != want {
			t.Errorf("%q gives %q, want %q", in, got, want)
		}
	}
}

func TestContentTypes(t *testing.T) {
	for name, want := range map[string]string{"a.sh": "text/x-sh", "x.SH": "text/x-sh", ".env": "application/octet-stream", "f.tar.gz": "application/x-tar",
		"f.tgz": "application/x-tar", "f.gz": "application/octet-stream", "d/f.json": "application/json", "Makefile": "application/octet-stream",
		"f.py": "text/x-python", "f.xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"} {
		if got := artifact.ContentType(name); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
	for name, want := range map[string]string{"a.sh": "text/x-shellscript", "a.SH": "application/octet-stream", "a.m4a": "audio/mp4", "a.py": "application/octet-stream"} {
		if got := artifact.CollectedContentType(name); got != want {
			t.Errorf("collected %s is %s, want %s", name, got, want)
		}
	}
}

func FuzzSafeName(f *testing.F) {
	for _, s := range []string{"", "/etc/x", "../..", "a\x00\xff", "./a//b/"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) {
		out := artifact.SafeName(in)
		if err := artifact.CheckRelative(strings.ReplaceAll(out, `\`, "_")); err != nil {
			t.Fatalf("%q became %q: %v", in, out, err)
		}
		if slices.Contains(strings.Split(out, "/"), "..") {
			t.Fatalf("%q became %q", in, out)
		}
	})
}

func TestContextOf(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"Dockerfile": "FROM scratch\nCOPY a /a\n", "a": "a\n", "deep/b": "b\n", ".dockerignore": "logs\nDockerfile\n!logs/keep\n", "x": "x\n",
		"artifact.toml": "type=\"docker_image\"\n"})
	at := func(name, file string) artifact.ContextFile {
		return artifact.ContextFile{Name: name, Path: filepath.Join(dir, file)}
	}
	c := need[*artifact.BuildContext](t)(artifact.ContextOf(t.Context(), "img", "", []artifact.ContextFile{at(".dockerignore", ".dockerignore"), at("Dockerfile", "Dockerfile"),
		at("a", "a"), at("artifact.toml", "artifact.toml"), at("dirlink/deep/b", "deep/b"), at("logs/drop", "x"), at("logs/keep", "x"), at("sub/deep/b", "deep/b")}))
	// The reference gives this digest to a bundle's image of these files.
	if got := c.SourceDigest(""); got != "sha256:317e1a4583d3a29207f2962e368799442bd3f4480f550e24efdbe12158cf4755" {
		t.Errorf("digest %s of %v", got, c.Entries())
	}
	_, err := artifact.ContextOf(t.Context(), "img", "", []artifact.ContextFile{at("a", "a")})
	wantKind(t, err, fault.Invalid, "no Dockerfile")
}
