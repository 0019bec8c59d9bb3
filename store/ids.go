package store

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"sort"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"

	"agentenv/fault"
)

const (
	maxLocalID    = 4096 // bytes of an @local id
	maxAuthoredID = 4071 // bytes of an @local id that people write, leaving room for derived ones
	maxPlainID    = 200  // bytes of a bare id that stays as it is in keys
	maxSlug       = 48
)

// IsLocal reports whether id is in the @local namespace.
func IsLocal(id string) bool { return strings.HasPrefix(id, LocalPrefix) }

// DerivedID returns the id of an entity that belongs to base, `<base>__<suffix>`; it stays in base's namespace.
func DerivedID(base, suffix string) string { return base + "__" + suffix }

// CheckLocalID returns nil when id is a valid @local id, otherwise an error of kind Invalid that names the first rule it
// breaks: prefix, size, characters, path segments, spaces, combining marks.
func CheckLocalID(id string) error {
	if !IsLocal(id) {
		return fault.New(fault.Invalid, "id %q does not start with %q", id, LocalPrefix)
	}
	if len(id) > maxLocalID {
		return fault.New(fault.Invalid, "id %.40q… is %d bytes long; an @local id has at most %d", id, len(id), maxLocalID)
	}
	if bad := badRunes(id); len(bad) > 0 {
		return fault.New(fault.Invalid, "id %q holds characters an @local id cannot have: %s", id, strings.Join(bad, " "))
	}
	segments := strings.Split(strings.TrimPrefix(id, LocalPrefix), "/")
	for _, s := range segments {
		if s == "" || s == "." || s == ".." {
			return fault.New(fault.Invalid, "id %q has a path segment %q; segments are non-empty and neither . nor ..", id, s)
		}
	}
	for _, s := range segments {
		if strings.HasPrefix(s, " ") || strings.HasSuffix(s, " ") {
			return fault.New(fault.Invalid, "id %q has a segment %q that starts or ends with a space", id, s)
		}
	}
	for _, s := range segments {
		prev := rune(-1)
		for _, r := range s {
			if unicode.Is(unicode.M, r) && (prev < 0 || !unicode.In(prev, unicode.L, unicode.N, unicode.M)) {
				return fault.New(fault.Invalid, "id %q has a combining mark (U+%04X) that follows no letter or digit", id, r)
			}
			prev = r
		}
	}
	return nil
}

// CheckAuthoredID is CheckLocalID for ids that people write: they are shorter, so that derived ids fit too.
func CheckAuthoredID(id string) error {
	if IsLocal(id) && len(id) > maxAuthoredID {
		return fault.New(fault.Invalid, "id %.40q… is %d bytes long; an @local id may be written with at most %d", id, len(id), maxAuthoredID)
	}
	return CheckLocalID(id)
}

// CheckBareID refuses (Invalid) ids of any namespace, since those never go to a configured store.
func CheckBareID(id string) error {
	switch {
	case IsLocal(id):
		return fault.New(fault.Invalid, "id %q belongs to the private @local namespace, which this store does not hold", id)
	case strings.HasPrefix(id, "@"):
		ns, _, _ := strings.Cut(id, "/")
		return fault.New(fault.Invalid, "id %q is in the namespace %q, which is reserved; use a bare id or one that starts with %q", id, ns, LocalPrefix)
	}
	return nil
}

var encodedID = regexp.MustCompile(`^local(/|-([a-z0-9]+(-[a-z0-9]+)*-)?[0-9a-f]{12}(/|$))`)

// CheckUnencodedID is CheckBareID that also refuses bare ids which look like the encoding of an @local id, for stores that
// share a place with the @local ones.
func CheckUnencodedID(id string) error {
	if err := CheckBareID(id); err != nil {
		return err
	}
	if encodedID.MatchString(id) {
		return fault.New(fault.Invalid, "id %q looks like the stored form of an %s id and is reserved; choose another", id, LocalPrefix)
	}
	return nil
}

// KeySegment returns the part of an object key, and the repository in a registry, that stands for id: a bare id of at most
// 200 bytes as it is, a longer one and every @local id as a slug and a digest. The result is persisted and never changes.
func KeySegment(id string) string {
	switch {
	case IsLocal(id):
		return "local/" + encode(id)
	case len(id) > maxPlainID:
		return encode(id)
	}
	return id
}

// FSSafe returns id in the form used in file names: `local-<slug>-<digest>` for an @local id, a bare id as it is.
func FSSafe(id string) string {
	if IsLocal(id) {
		return "local-" + encode(id)
	}
	return id
}

// ImageRepository returns the repository under which images built for id are kept on this machine: `local/<slug>-<digest>`
// whatever the id. The repository in a registry is KeySegment.
func ImageRepository(id string) string { return "local/" + encode(id) }

func encode(id string) string {
	sum := sha256.Sum256([]byte(id))
	digest := hex.EncodeToString(sum[:])[:12]
	if s := slug(strings.TrimPrefix(id, LocalPrefix)); s != "" {
		return s + "-" + digest
	}
	return digest
}

func slug(s string) string {
	var plain strings.Builder
	for _, r := range norm.NFKD.String(s) {
		if norm.NFKD.PropertiesString(string(r)).CCC() == 0 {
			plain.WriteRune(r)
		}
	}
	var out strings.Builder
	for _, r := range cases.Fold().String(plain.String()) {
		switch {
		case r == '~':
		case r >= 'a' && r <= 'z' || r >= '0' && r <= '9':
			out.WriteRune(r)
		default:
			if !strings.HasSuffix(out.String(), "-") {
				out.WriteByte('-')
			}
		}
	}
	s = strings.Trim(out.String(), "-")
	if len(s) > maxSlug {
		s = s[:maxSlug]
	}
	return strings.TrimRight(s, "-")
}

func badRunes(id string) []string {
	found := map[string]bool{}
	for i, r := range id {
		if r == utf8.RuneError {
			if _, n := utf8.DecodeRuneInString(id[i:]); n == 1 {
				found[fmt.Sprintf(`\x%02x`, id[i])] = true
				continue
			}
		}
		ok := unicode.In(r, unicode.L, unicode.N, unicode.M) || strings.ContainsRune(" ._-~/@()+,&", r)
		if !ok || invisible(r) {
			found[strings.Trim(fmt.Sprintf("%+q", string(r)), `"`)] = true
		}
	}
	out := make([]string, 0, len(found))
	for s := range found {
		out = append(out, s)
	}
	sort.Strings(out)
	return out
}

// invisible marks render as nothing, so two ids that look alike could differ by them.
func invisible(r rune) bool {
	switch {
	case r == 0x034F, r >= 0x115F && r <= 0x1160, r >= 0x17B4 && r <= 0x17B5, r >= 0x180B && r <= 0x180D, r == 0x180F,
		r == 0x3164, r >= 0xFE00 && r <= 0xFE0F, r == 0xFFA0, r >= 0xE0100 && r <= 0xE01EF:
		return true
	}
	return false
}
