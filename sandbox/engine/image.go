package engine

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/distribution/reference"
	"github.com/moby/moby/api/types/registry"
	"github.com/moby/moby/client"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"go.opentelemetry.io/otel/attribute"

	"agentenv/fault"
	"agentenv/telemetry"
)

// Image is what the engine knows about one image.
type Image struct {
	ID         string
	Tags       []string
	Digests    []string // repository@sha256:…
	Labels     map[string]string
	User       string
	Entrypoint []string
	Cmd        []string
	Platform   string // os/arch
	Size       int64
}

// Image inspects an image by name, id or digest; one the engine does not hold is a NotFound error.
func (e *Engine) Image(ctx context.Context, ref string) (*Image, error) {
	r, err := e.cli.ImageInspect(ctx, ref)
	if err != nil {
		return nil, wrap(ctx, err, "image %s", ref)
	}
	i := &Image{ID: r.ID, Tags: r.RepoTags, Digests: r.RepoDigests, Platform: r.Os + "/" + r.Architecture, Size: r.Size}
	if c := r.Config; c != nil {
		i.Labels, i.User, i.Entrypoint, i.Cmd = c.Labels, c.User, c.Entrypoint, c.Cmd
	}
	return i, nil
}

// Tag gives the image ref another name; doing it twice is no error.
func (e *Engine) Tag(ctx context.Context, ref, name string) error {
	_, err := e.cli.ImageTag(ctx, client.ImageTagOptions{Source: ref, Target: name})
	return wrap(ctx, err, "tag image %s as %s", ref, name)
}

// Ensure makes sure that the engine holds an image: one that is present is not pulled again. See Pull for the rest.
func (e *Engine) Ensure(ctx context.Context, ref string, progress func(string)) (*Image, error) {
	i, err := e.Image(ctx, ref)
	if !fault.Is(err, fault.NotFound) {
		return i, err
	}
	if err := e.Pull(ctx, ref, progress); err != nil {
		return nil, err
	}
	return e.Image(ctx, ref)
}

const (
	retryPause   = 5 * time.Second
	firstPause   = 10 * time.Second
	secondPause  = 30 * time.Second
	amd64        = "amd64"
	progressEach = time.Second
)

// Pull pulls an image with the registry login of the user's Docker configuration; progress (nil = none) gets a line at most
// once a second. A failed pull is repeated once after 5 s, unless the registry's answer is clear; an image without a
// manifest for the engine's platform is pulled for linux/amd64; a registry that limits the rate is asked again after 10 s
// and then 30 s. A reference that cannot be one is Invalid, an image that is not there or needs a login NotFound or Denied,
// all with what to do.
func (e *Engine) Pull(ctx context.Context, ref string, progress func(string)) (err error) {
	ctx, span := telemetry.Start(ctx, "image pull", attribute.String("agentenv.image", ref))
	defer func() { span.End(err) }()
	named, err := reference.ParseNormalizedNamed(ref)
	if err != nil {
		return fault.Wrap(fault.Invalid, oneLine(err), "image %q is no valid image name", ref)
	}
	named = reference.TagNameOnly(named)
	auth, err := e.auth(reference.Domain(named))
	if err != nil {
		return fault.At(err, "image %s cannot be pulled", ref)
	}
	for _, pause := range []time.Duration{firstPause, secondPause, 0} {
		err = e.pullTwice(ctx, named, auth, nil, progress)
		if err != nil && strings.Contains(err.Error(), "no matching manifest") {
			err = e.pullTwice(ctx, named, auth, []ocispec.Platform{{OS: "linux", Architecture: amd64}}, progress)
		}
		if err == nil || !limited(err) || pause == 0 || sleep(ctx, pause) != nil {
			break
		}
	}
	if err == nil {
		return nil
	}
	switch {
	case ctx.Err() != nil:
	case refused(err):
		return fault.Wrap(fault.Denied, oneLine(err), "image %s cannot be pulled: it does not exist or needs a login; check the name, or run `docker login %s`", ref, reference.Domain(named))
	case absent(err):
		return fault.Wrap(fault.NotFound, oneLine(err), "image %s cannot be pulled: %s does not hold it; check its name and tag", ref, reference.Domain(named))
	case limited(err):
		return fault.Wrap(fault.Unavailable, oneLine(err), "image %s cannot be pulled: %s limits the rate; wait, or run `docker login`", ref, reference.Domain(named))
	}
	return wrap(ctx, err, "image %s cannot be pulled; check the name and the way to %s", ref, reference.Domain(named))
}

func refused(err error) bool {
	t := strings.ToLower(err.Error())
	return strings.Contains(t, "unauthorized") || strings.Contains(t, "access denied") || strings.Contains(t, "authentication required") ||
		strings.Contains(t, "no basic auth credentials")
}

func absent(err error) bool {
	t := err.Error()
	return errdefs.IsNotFound(err) || strings.Contains(t, "manifest unknown") || strings.Contains(t, "not found")
}

func limited(err error) bool {
	t := strings.ToLower(err.Error())
	return strings.Contains(t, "toomanyrequests") || strings.Contains(t, "429 too many requests")
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (e *Engine) pullTwice(ctx context.Context, ref reference.Named, auth string, p []ocispec.Platform, progress func(string)) error {
	err := e.pull(ctx, ref, auth, p, progress)
	if err == nil || strings.Contains(err.Error(), "no matching manifest") || refused(err) || absent(err) || sleep(ctx, retryPause) != nil {
		return err
	}
	return e.pull(ctx, ref, auth, p, progress)
}

func (e *Engine) pull(ctx context.Context, ref reference.Named, auth string, p []ocispec.Platform, progress func(string)) error {
	r, err := e.cli.ImagePull(ctx, ref.String(), client.ImagePullOptions{RegistryAuth: auth, Platforms: p})
	if err != nil {
		return err
	}
	defer r.Close()
	layers := map[string][2]int64{}
	var last time.Time
	for m, err := range r.JSONMessages(ctx) {
		if err != nil {
			return err
		}
		if m.Error != nil {
			return m.Error
		}
		if m.Progress != nil && m.Status == "Downloading" {
			layers[m.ID] = [2]int64{m.Progress.Current, m.Progress.Total}
		}
		if progress != nil && time.Since(last) >= progressEach {
			last = time.Now()
			var got, all int64
			for _, l := range layers {
				got, all = got+l[0], all+l[1]
			}
			progress(fmt.Sprintf("pulling %s: %.1f of %.1f MB", reference.FamiliarString(ref), float64(got)/1e6, float64(all)/1e6))
		}
	}
	return nil
}

// auth returns the login for a registry, from the configuration or its credential helper; none gives "".
func (e *Engine) auth(domain string) (string, error) {
	key := domain
	if domain == "docker.io" {
		key = "https://index.docker.io/v1/"
	}
	c, err := e.conf.GetAuthConfig(key)
	if err != nil {
		return "", fault.Wrap(fault.Denied, oneLine(err), "the login for %s cannot be read from the Docker configuration; run `docker login %s` again", domain, domain)
	}
	if c.Username == "" && c.Password == "" && c.IdentityToken == "" && c.RegistryToken == "" {
		return "", nil
	}
	b, err := json.Marshal(registry.AuthConfig{Username: c.Username, Password: c.Password, Auth: c.Auth,
		ServerAddress: c.ServerAddress, IdentityToken: c.IdentityToken, RegistryToken: c.RegistryToken})
	if err != nil {
		return "", err
	}
	return base64.URLEncoding.EncodeToString(b), nil
}

func commandOf(i *Image) []string {
	return append(append([]string{}, i.Entrypoint...), i.Cmd...)
}
