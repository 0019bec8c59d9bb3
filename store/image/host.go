package image

import (
	"strings"

	"agentenv/fault"
)

// Hub is the normalised host of Docker Hub.
const Hub = "docker.io"

// NormalizeHost returns a registry host in the one form that hosts are compared in: trimmed, lower case, the names of
// Docker Hub folded to Hub. An empty host, or one with a scheme or a path, is Invalid.
func NormalizeHost(host string) (string, error) {
	h := strings.ToLower(strings.TrimSpace(host))
	if h == "" || strings.Contains(h, "://") || strings.Contains(h, "/") {
		return "", fault.New(fault.Invalid, "registry host %q: a host name with an optional port is needed, without scheme and path", host)
	}
	if h == "index.docker.io" || h == "registry-1.docker.io" {
		return Hub, nil
	}
	return h, nil
}

// RefHost returns the normalised registry host of an image reference, "" for one that is empty or has a scheme. The first
// component is a host only before a "/", and only when it is localhost or holds a dot or a colon; otherwise it is Hub's.
func RefHost(ref string) string {
	if strings.TrimSpace(ref) == "" || strings.Contains(ref, "://") {
		return ""
	}
	first, _, more := strings.Cut(strings.TrimSpace(ref), "/")
	if !more || !strings.EqualFold(first, "localhost") && !strings.ContainsAny(first, ".:") {
		return Hub
	}
	h, err := NormalizeHost(first)
	if err != nil {
		return ""
	}
	return h
}

// IsLoopback reports whether a host, with or without a port, is this machine's own, which registries serve over plain HTTP.
func IsLoopback(host string) bool {
	h := strings.ToLower(strings.TrimSpace(host))
	switch {
	case strings.HasPrefix(h, "["):
		name, _, _ := strings.Cut(h, "]")
		return name == "[::1"
	case strings.Count(h, ":") == 1:
		h, _, _ = strings.Cut(h, ":")
	}
	return h == "localhost" || h == "::1" || h == "0.0.0.0" || h == "host.docker.internal" || strings.HasPrefix(h, "127.")
}

// Reference is the parts of an image reference.
type Reference struct {
	Name   string // host and repository as written
	Host   string // normalised
	Path   string // the repository in the registry ("library/alpine")
	Tag    string // "" when none is written
	Digest string // "sha256:…", "" when none is written
}

// ParseRef splits a reference. The error is Invalid: empty, with a scheme, no repository, or a digest that is not a full
// lower-case sha256, sha384 or sha512.
func ParseRef(ref string) (Reference, error) {
	r := Reference{Host: RefHost(ref)}
	if r.Host == "" {
		return r, fault.New(fault.Invalid, "image reference %q: name[:tag][@digest] is needed", ref)
	}
	rest := strings.TrimSpace(ref)
	rest, r.Digest, _ = strings.Cut(rest, "@")
	if strings.Contains(ref, "@") && !validDigest(r.Digest) {
		return r, fault.New(fault.Invalid, "image reference %q: the digest must be sha256:, sha384: or sha512: with all its lower-case hex digits", ref)
	}
	if i := strings.LastIndexByte(rest, ':'); i > strings.LastIndexByte(rest, '/') {
		rest, r.Tag = rest[:i], rest[i+1:]
		if r.Tag == "" || strings.ContainsAny(r.Tag, "?#% \t\r\n") {
			return r, fault.New(fault.Invalid, "image reference %q: malformed tag", ref)
		}
	}
	r.Name, r.Path = rest, rest
	if first, path, ok := strings.Cut(rest, "/"); ok && (strings.EqualFold(first, "localhost") || strings.ContainsAny(first, ".:")) {
		r.Path = path
	}
	if r.Host == Hub && !strings.Contains(r.Path, "/") {
		r.Path = "library/" + r.Path
	}
	if r.Path == "" || strings.HasPrefix(r.Path, "/") || strings.HasSuffix(r.Path, "/") || strings.Contains(r.Path, "..") || strings.ContainsAny(r.Path, "?#% \t\r\n") {
		return r, fault.New(fault.Invalid, "image reference %q: malformed repository", ref)
	}
	return r, nil
}

func validDigest(d string) bool {
	algo, hex, _ := strings.Cut(d, ":")
	if len(hex) != map[string]int{"sha256": 64, "sha384": 96, "sha512": 128}[algo] || hex == "" {
		return false
	}
	return strings.Trim(hex, "0123456789abcdef") == ""
}
