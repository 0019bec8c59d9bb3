package imagebuild

import (
	"context"
	"io"
	"net/http"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/distribution/reference"
	"github.com/docker/cli/cli/config/configfile"
	"github.com/moby/moby/api/pkg/authconfig"
	"github.com/moby/moby/api/types/registry"
	"github.com/moby/moby/client"

	"agentenv/fault"
	"agentenv/store/image"
)

// Held is the images that a Docker Engine holds: it names them, pushes them to registries and saves them. It fills
// artifact.ImageEngine. Safe for concurrent use.
type Held struct {
	Client *client.Client
	Logins *configfile.ConfigFile // the user's registry logins, for pushes that are given none; nil = none
}

// Inspect returns an image's id and platform (os/architecture, with the variant if it has one); NotFound when there is no such image.
func (h Held) Inspect(ctx context.Context, name string) (id, platform string, err error) {
	r, err := h.Client.ImageInspect(ctx, name)
	if err != nil {
		return "", "", explain(ctx, err, "image %s", name)
	}
	platform = r.Os + "/" + r.Architecture
	if r.Variant != "" {
		platform += "/" + r.Variant
	}
	return r.ID, platform, nil
}

// Tag gives an image a further name; one that another image had goes over. A malformed name is Invalid.
func (h Held) Tag(ctx context.Context, name, further string) error {
	if _, err := reference.ParseNormalizedNamed(further); err != nil {
		return fault.Wrap(fault.Invalid, err, "image %q is no valid image name", further)
	}
	_, err := h.Client.ImageTag(ctx, client.ImageTagOptions{Source: name, Target: further})
	return explain(ctx, err, "name the image %s %s", name, further)
}

// Untag takes a name off an image. A name that is not there is NotFound; the image's last one stays, a Conflict, since the image would
// go with it.
func (h Held) Untag(ctx context.Context, name string) error {
	r, err := h.Client.ImageInspect(ctx, name)
	if err == nil && len(r.RepoTags) < 2 {
		return fault.New(fault.Conflict, "the image %s has no other name; `docker rmi` removes it", name)
	}
	if err == nil {
		_, err = h.Client.ImageRemove(ctx, name, client.ImageRemoveOptions{})
	}
	return explain(ctx, err, "take the name %s off its image", name)
}

// Push uploads an image to the registry that its name spells out, with this login, or that of Logins when it is nil. The error is
// Invalid for a malformed name, NotFound for an image the engine does not hold, Denied for a login that the registry does not take,
// Unavailable when it cannot be reached.
func (h Held) Push(ctx context.Context, name string, login *image.Auth) error {
	named, err := reference.ParseNormalizedNamed(name)
	if err != nil {
		return fault.Wrap(fault.Invalid, err, "image %q is no valid image name", name)
	}
	auth, err := h.auth(reference.Domain(named), login)
	if err != nil {
		return err
	}
	r, err := h.Client.ImagePush(ctx, name, client.ImagePushOptions{RegistryAuth: auth})
	if err == nil {
		err = r.Wait(ctx)
	}
	switch {
	case err == nil || ctx.Err() != nil:
	case refused(err):
		return fault.Wrap(fault.Denied, err, "image %s cannot be pushed: the registry refuses it; run `docker login %s`", name, reference.Domain(named))
	case strings.Contains(err.Error(), "does not exist locally"):
		return fault.Wrap(fault.NotFound, err, "image %s cannot be pushed", name)
	}
	return explain(ctx, err, "image %s cannot be pushed", name)
}

func (h Held) auth(domain string, login *image.Auth) (string, error) {
	c := registry.AuthConfig{ServerAddress: domain}
	switch {
	case login != nil:
		c.Username, c.Password = login.Username, login.Password
	case h.Logins != nil:
		key := domain
		if domain == image.Hub {
			key = "https://index.docker.io/v1/"
		}
		own, err := h.Logins.GetAuthConfig(key)
		if err != nil {
			return "", fault.Wrap(fault.Denied, err, "the login for %s cannot be read from the Docker configuration; run `docker login %s` again", domain, domain)
		}
		c.Username, c.Password, c.IdentityToken, c.RegistryToken = own.Username, own.Password, own.IdentityToken, own.RegistryToken
	}
	return authconfig.Encode(c)
}

// Save streams the archive of an image, as `docker save` of its name writes it. The caller closes it; an ended ctx ends it too.
func (h Held) Save(ctx context.Context, name string) (io.ReadCloser, error) {
	r, err := h.Client.ImageSave(ctx, []string{name})
	if err != nil {
		return nil, explain(ctx, err, "image %s cannot be saved", name)
	}
	return r, nil
}

func refused(err error) bool {
	t := strings.ToLower(err.Error())
	for _, sign := range []string{"unauthorized", "denied", "authentication required", "no basic auth credentials", strings.ToLower(http.StatusText(http.StatusForbidden))} {
		if strings.Contains(t, sign) {
			return true
		}
	}
	return false
}

// explain gives an engine's error a kind. A ctx that ended is what is reported.
func explain(ctx context.Context, err error, format string, args ...any) error {
	kind := fault.Unavailable
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fault.At(context.Cause(ctx), format, args...)
	case errdefs.IsNotFound(err):
		kind = fault.NotFound
	case errdefs.IsInvalidArgument(err):
		kind = fault.Invalid
	case errdefs.IsConflict(err):
		kind = fault.Conflict
	}
	return fault.Wrap(kind, err, format, args...)
}
