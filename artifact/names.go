package artifact

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path"
	"strings"
	"unicode/utf8"

	"agentenv/fault"
	"agentenv/store"
)

// hash16 is the suffix under which a member is stored: the first 16 hex digits of the SHA-256 of its name.
func hash16(name string) string {
	sum := sha256.Sum256([]byte(name))
	return hex.EncodeToString(sum[:8])
}

// MemberID returns the id of the file that a universe holds under name.
func MemberID(universe, name string) string { return store.DerivedID(universe, hash16(name)) }

// CheckRelative refuses a name that is no relative slash path: empty, absolute, "." or with a ".." part ("\" counts as a
// separator), with a NUL. The error is Invalid.
func CheckRelative(name string) error {
	why := ""
	slashed := strings.ReplaceAll(name, `\`, "/")
	switch {
	case name == "":
		why = "it is empty"
	case strings.ContainsRune(name, 0):
		why = "it holds a NUL"
	case strings.HasPrefix(slashed, "/") || len(slashed) > 1 && slashed[1] == ':' && strings.HasPrefix(slashed[2:], "/"):
		why = "it is absolute"
	case path.Clean(slashed) == ".":
		why = "it names no file"
	}
	for part := range strings.SplitSeq(slashed, "/") {
		if part == ".." {
			why = `it holds ".."`
		}
	}
	if why != "" {
		return fault.New(fault.Invalid, "%q is no file name below a folder: %s", name, why)
	}
	return nil
}

// SafeName turns any path into a relative slash path that stays below a folder: leading slashes, "." and ".." parts go,
// bytes that are no UTF-8 and NUL become %XX. It returns "file" where nothing is left.
func SafeName(p string) string {
	var b strings.Builder
	for i := 0; i < len(p); {
		r, n := utf8.DecodeRuneInString(p[i:])
		if r == utf8.RuneError && n == 1 || r == 0 {
			fmt.Fprintf(&b, "%%%02X", p[i])
		} else {
			b.WriteString(p[i : i+n])
		}
		i += n
	}
	clean := strings.TrimPrefix(path.Clean("/"+b.String()), "/")
	if clean == "" {
		return "file"
	}
	return clean
}

// unique returns name, or name with -2, -3, … before its extension when it is taken already, and takes it.
func unique(taken map[string]bool, name string) string {
	out := name
	ext := path.Ext(name)
	if strings.Contains(ext, "/") || ext == path.Base(name) {
		ext = ""
	}
	for n := 2; taken[out]; n++ {
		out = fmt.Sprintf("%s-%d%s", strings.TrimSuffix(name, ext), n, ext)
	}
	taken[out] = true
	return out
}

// base returns the part after the last slash.
func base(p string) string { return p[strings.LastIndexByte(p, '/')+1:] }
