package artifact

import (
	"context"
	"io"
	"strings"

	"agentenv/fault"
	"agentenv/store"
	"agentenv/store/image"
)

// DefaultPlatform is the platform that images are built for when a writer names none.
const DefaultPlatform = "linux/amd64"

// NormalizePlatform returns a platform in its stored form: lower case, amd64, arm64 and 386 by these names, a variant only for
// 32-bit arm. "" stays "".
func NormalizePlatform(p string) string {
	p = strings.ToLower(strings.TrimSpace(p))
	if p == "" {
		return ""
	}
	parts := strings.Split(p, "/")
	if len(parts) > 1 {
		switch parts[1] {
		case "x86_64", "x86-64":
			parts[1] = "amd64"
		case "aarch64":
			parts[1] = "arm64"
		case "i386":
			parts[1] = "386"
		}
		if len(parts) > 2 && parts[1] != "arm" {
			parts = parts[:2]
		}
	}
	return strings.Join(parts, "/")
}

// RegistryOf returns the registry that an image reference spells out, "" when it spells none.
func RegistryOf(ref string) string {
	first, _, ok := strings.Cut(ref, "/")
	if !ok || strings.Contains(ref, "://") {
		return ""
	}
	if strings.EqualFold(first, "localhost") || strings.ContainsAny(first, ".:") {
		return first
	}
	return ""
}

// BuildName returns the image name of a build of these sources for the artifact id: equal sources give equal names.
func BuildName(id, sourceDigest string) string {
	tag := strings.TrimPrefix(sourceDigest, "sha256:")
	return store.ImageRepository(id) + ":" + tag[:min(16, len(tag))]
}

// ContextOnly reports whether the image is nothing but a build context so far: it must be built before it can run.
func (d *DockerImage) ContextOnly() bool {
	return d.ContextURL != "" && d.TarURL == "" && RegistryOf(d.Image) == ""
}

// Buildable reports whether the image can be built from what is stored.
func (d *DockerImage) Buildable() bool { return d.ContextURL != "" && d.Dockerfile != "" }

// UnderBuildTag reports whether the image is a saved tar whose name belongs to no registry.
func (d *DockerImage) UnderBuildTag() bool { return d.TarURL != "" && RegistryOf(d.Image) == "" }

// RebuiltFor reports whether a sandbox of this platform builds the image anew instead of loading its tar.
func (d *DockerImage) RebuiltFor(platform string) bool {
	p := NormalizePlatform(platform)
	return d.TarURL != "" && d.Buildable() && p != "" && d.Platform != "" && p != d.Platform
}

// LoadProblem returns why a machine of this platform ("" = unknown) cannot get the image, "" when it can. here says that it is the
// machine this program runs on.
func (d *DockerImage) LoadProblem(here bool, platform string) string {
	who := "image " + refText(d.head)
	platform = NormalizePlatform(platform)
	mismatch := ""
	if platform != "" && d.Platform != "" && platform != d.Platform && !d.RebuiltFor(platform) {
		mismatch = who + " is made for " + d.Platform + ", and the machine is " + platform + ": build it for that platform"
	}
	switch {
	case d.ContextOnly() && !d.Buildable():
		return who + " holds a build context that names no Dockerfile: put it again with one"
	case d.TarURL != "" || d.ContextOnly():
		return mismatch
	case RegistryOf(d.Image) != "":
		if !here && image.IsLoopback(RegistryOf(d.Image)) {
			return who + " is in the registry of this machine (" + d.Image + "), which a sandbox elsewhere cannot reach: push it to a shared registry"
		}
		return mismatch
	}
	return who + " has no tar.gz and names no registry: put it again with its bytes or with the registry's full name"
}

// ByNameProblem returns why a provider that takes images only by name cannot run the image, "" when it can.
func (d *DockerImage) ByNameProblem(here bool) string {
	who := "image " + refText(d.head)
	switch {
	case d.ContextOnly() && !here:
		return who + " is a build context and must be built first: push the build to a registry and put that reference"
	case d.UnderBuildTag() && !here:
		return who + " has only the name of its build (" + d.Image + "), which cannot be pulled: push it to a registry"
	case !here && image.IsLoopback(RegistryOf(d.Image)):
		return who + " is in the registry of this machine (" + d.Image + "), which a sandbox elsewhere cannot reach: push it to a shared registry"
	}
	return ""
}

// OpenContext streams the build context (a tar.gz) of an image; NotFound when it holds none.
func (s *Store) OpenContext(ctx context.Context, d *DockerImage) (io.ReadCloser, error) {
	if d.ContextURL == "" {
		return nil, fault.New(fault.NotFound, "image %s holds no build context", refText(d.head))
	}
	return s.objects.Open(ctx, d.ContextURL)
}

// OpenImage streams the saved image (a gzipped `docker save`); NotFound, saying how the image is had instead, when it holds none.
func (s *Store) OpenImage(ctx context.Context, d *DockerImage) (io.ReadCloser, error) {
	if d.TarURL == "" {
		how := "it is pulled as " + d.Image
		if d.ContextOnly() {
			how = "it is built from its build context"
		}
		return nil, fault.New(fault.NotFound, "image %s holds no saved tar: %s", refText(d.head), how)
	}
	return s.objects.Open(ctx, d.TarURL)
}
