//go:build integration

package artifact_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/moby/moby/client"

	"agentenv/artifact"
	"agentenv/fault"
	"agentenv/sandbox/engine"
	"agentenv/sandbox/imagebuild"
	"agentenv/store/doc"
	"agentenv/store/document"
	"agentenv/store/image"
	"agentenv/store/object/localfs"
)

// held is the engine of this machine with one image of the test's own, which goes with all its names at the end.
func held(t *testing.T) (imagebuild.Held, string) {
	t.Helper()
	e := need[*engine.Engine](t)(engine.Open(t.Context(), engine.Options{}))
	t.Cleanup(func() { e.Close() })
	h := imagebuild.Held{Client: e.Client(), Logins: e.Logins()}
	name := "agentenv-test/" + strings.ToLower(rand.Text()[:10]) + ":1"
	load(t, h, bytes.NewReader(savedAs(t, made(t, "linux/"+e.Arch()), name)))
	id, _, err := h.Inspect(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, stop := context.WithTimeout(context.Background(), 30*time.Second)
		defer stop()
		if _, err := h.Client.ImageRemove(ctx, id, client.ImageRemoveOptions{Force: true}); err != nil {
			t.Error(err)
		}
	})
	return h, name
}

func load(t *testing.T, h imagebuild.Held, r io.Reader) {
	t.Helper()
	res, err := h.Client.ImageLoad(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Close()
	if out := need[[]byte](t)(io.ReadAll(res)); bytes.Contains(out, []byte(`"error"`)) {
		t.Fatalf("%s", out)
	}
}

func TestLocalImageOfAnEngine(t *testing.T) {
	h, name := held(t)
	ctx := t.Context()
	images, host := registries(t, nil, nil)
	s := newStage(t, func(o *artifact.Options) { o.Images = images })
	img := need[*artifact.DockerImage](t)(s.store.PutLocal(ctx, h, "box", artifact.LocalImage{Image: name}))
	if img.Image != host+"/box:v1" || img.Platform == "" {
		t.Errorf("stored %+v", img)
	}
	pinned := need[string](t)(image.Pin(ctx, http.DefaultClient, img.Image, nil))
	if !image.PinnedFrom(pinned, img.Image) {
		t.Error("the registry serves", pinned)
	}
	id, _, err := h.Inspect(ctx, name)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Untag(ctx, img.Image); err != nil {
		t.Fatal(err)
	}
	r := need[io.ReadCloser](t)(s.store.OpenImage(ctx, img))
	defer r.Close()
	load(t, h, r)
	if again, _, err := h.Inspect(ctx, img.Image); again != id || err != nil {
		t.Errorf("loading the archive gave %s under the image's name, not %s: %v", again, id, err)
	}
	for what, c := range map[string]struct {
		err  error
		kind fault.Kind
	}{
		"inspect":   {second(h.Inspect(ctx, "agentenv-test/none:1")), fault.NotFound},
		"tag":       {h.Tag(ctx, name, "Up/Per"), fault.Invalid},
		"untag":     {h.Untag(ctx, "agentenv-test/none:1"), fault.NotFound},
		"push none": {h.Push(ctx, host+"/none:1", nil), fault.NotFound},
	} {
		if !fault.Is(c.err, c.kind) {
			t.Errorf("%s: %v (%s), want %s", what, c.err, fault.KindOf(c.err), c.kind)
		}
	}
	if err := h.Untag(ctx, img.Image); err != nil {
		t.Fatal(err)
	}
	if err := h.Untag(ctx, name); !fault.Is(err, fault.Conflict) {
		t.Error("the last name of an image was taken off:", err)
	}
	closed, _ := registries(t, &image.Auth{Username: "u", Password: "p"}, &image.Auth{Username: "u", Password: "other"})
	s = newStage(t, func(o *artifact.Options) { o.Images = closed })
	_, err = s.store.PutLocal(ctx, h, "box", artifact.LocalImage{Image: name})
	wantKind(t, err, fault.Denied, "docker login")
}

func second(_, _ string, err error) error { return err }

// TestImagesBesideReference writes images of each kind with both programs into one state folder. Their documents must be alike, and
// each must read what the other wrote.
func TestImagesBesideReference(t *testing.T) {
	h, name := held(t)
	ctx := t.Context()
	images, host := registries(t, nil, nil)
	s := newStage(t, nil)
	state := filepath.Join(s.dir, "agent-env")
	objects := need[*localfs.Store](t)(localfs.New(filepath.Join(state, "object_store")))
	docs := openRouter(t, filepath.Join(state, "document_store"))
	pin := func(ctx context.Context, ref string) (string, error) {
		return image.Pin(ctx, http.DefaultClient, ref, nil)
	}
	ours := need[*artifact.Store](t)(artifact.New(artifact.Options{Documents: docs, Objects: objects, Images: images, Pin: pin}))
	dir := filepath.Join(s.dir, "sources")
	write(t, dir, sample)
	write(t, s.dir, map[string]string{".agentenv/config.toml": "[stores.image]\nimpl = \"agent_env.store:LocalRegistryImageStore\"\nconfig = {registry_host = \"" + host + "\"}\n"})
	sources := need[*artifact.BuildContext](t)(artifact.OpenContext(ctx, dir, ""))

	python := func(lines ...string) string {
		t.Helper()
		program := os.Getenv("AGENT_ENV_REFERENCE")
		if program == "" {
			t.Fatal("AGENT_ENV_REFERENCE must name the reference's program; make test installs it")
		}
		text := "import asyncio, hashlib, inspect\nfrom agent_env.artifact import DockerImageArtifact as D\n" + strings.Join(lines, "\n")
		cmd := exec.CommandContext(ctx, filepath.Join(filepath.Dir(program), "python"), "-c", text)
		cmd.Dir, cmd.Env = s.dir, append(os.Environ(), "HOME="+s.dir, "XDG_STATE_HOME="+s.dir)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v: %s%s", err, out, &stderr)
		}
		return string(out)
	}
	first := need[*artifact.DockerImage](t)(ours.PutLocal(ctx, h, "team/local", artifact.LocalImage{Description: "d", Image: name, Context: sources}))
	digest := pinDigest(t, need[string](t)(pin(ctx, first.Image)))
	need[*artifact.DockerImage](t)(ours.PutTarAt(ctx, "tar", artifact.StoredTar{Description: "d", Name: first.Image, TarURL: first.TarURL, Platform: first.Platform}))
	need[*artifact.DockerImage](t)(ours.PutRef(ctx, "ref", artifact.RefImage{Description: "d", Ref: first.Image}))
	need[*artifact.DockerImage](t)(ours.PutRef(ctx, "sources", artifact.RefImage{Description: "d", Ref: first.Image, Digest: digest, Context: sources}))

	where := fmt.Sprintf("context_path=%q, dockerfile_path='Dockerfile'", dir)
	python(fmt.Sprintf("D.put('team/theirs', description='d', image_name=%q, build_context_path=%q, dockerfile_path='Dockerfile')", name, dir),
		fmt.Sprintf("D.put_tar('tar.theirs', description='d', image_name=%q, tar_gz_object_url=%q, platform=%q)", first.Image, first.TarURL, first.Platform),
		fmt.Sprintf("D.put_ref('ref.theirs', description='d', image_name=%q)", first.Image),
		fmt.Sprintf("D.put_ref('sources.theirs', description='d', image_name=%q, image_digest=%q, %s)", first.Image, digest, where))

	// What may differ: the ids and what follows from them, the random part of a write, and when it was.
	plain := strings.NewReplacer("team/theirs", "team/local", ".theirs", "", "theirs-v1", "local-v1")
	attempt := regexp.MustCompile(`/1-[0-9a-f]{8}/`)
	document := func(id string) string {
		d := need[*doc.Object](t)(docs.FindOne(ctx, artifact.Documents, document.By("id", id))).Clone()
		d.Delete("created_at_utc")
		return attempt.ReplaceAllString(plain.Replace(string(need[[]byte](t)(doc.MarshalIndent(d)))), "/1-x/")
	}
	for our, their := range map[string]string{"team/local": "team/theirs", "tar": "tar.theirs", "ref": "ref.theirs", "sources": "sources.theirs"} {
		if diff := cmp.Diff(document(their), document(our)); diff != "" {
			t.Errorf("%s is stored in another form: %s", our, diff)
		}
	}
	for _, id := range []string{"team/local", "tar"} {
		img := need[*artifact.DockerImage](t)(artifact.GetAs[*artifact.DockerImage](ctx, ours, artifact.Ref{ID: id}))
		r := need[io.ReadCloser](t)(ours.OpenImage(ctx, img))
		sum := sha256.New()
		io.Copy(sum, r)
		r.Close()
		got := python(fmt.Sprintf("r = D.get(%q).load()", id), "print(hashlib.sha256(r).hexdigest())")
		if strings.TrimSpace(got) != hex.EncodeToString(sum.Sum(nil)) {
			t.Errorf("the reference loads other bytes of %s", id)
		}
	}
	theirs := need[*artifact.DockerImage](t)(artifact.GetAs[*artifact.DockerImage](ctx, ours, artifact.Ref{ID: "team/theirs"}))
	r := need[io.ReadCloser](t)(ours.OpenImage(ctx, theirs))
	defer r.Close()
	if _, _, err := need[*artifact.Saved](t)(artifact.ReadSaved(r)).Find(theirs.Image); err != nil {
		t.Error(err)
	}
	if got := strings.Fields(python("for i in ('team/local', 'tar', 'ref', 'sources'):", "    d = D.get(i); print(d.load_problem(on_this_machine=True, platform=d.platform), d.buildable)")); cmp.Diff([]string{"None", "True", "None", "False", "None", "False", "None", "True"}, got) != "" {
		t.Errorf("the reference reads the images as %v", got)
	}
}

func pinDigest(t *testing.T, pinned string) string {
	return need[image.Reference](t)(image.ParseRef(pinned)).Digest
}
