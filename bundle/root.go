package bundle

import (
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"agentenv/fault"
	"agentenv/store"
)

// IDRoot returns the canonical path of a folder and the id root that its entities get: @local/~/… inside the user's home,
// @local/… elsewhere. home is the HOME variable; when it is no usable folder the password database decides. Errors are
// NotFound for a folder that is not there and Invalid for a path that gives no id.
func IDRoot(dir, home string) (path, root string, err error) {
	if strings.ContainsRune(dir, 0) || !utf8.ValidString(dir) {
		return "", "", fault.New(fault.Invalid, "%s: the path holds bytes that are no text", printable(dir))
	}
	abs, err := filepath.Abs(dir)
	if err == nil {
		abs, err = filepath.EvalSymlinks(abs)
	}
	if err != nil {
		if os.IsNotExist(err) {
			return "", "", fault.New(fault.NotFound, "%s: no such folder", printable(dir))
		}
		return "", "", fault.New(fault.KindOf(err), "%s: %s", printable(dir), fault.Reason(err).Error())
	}
	info, err := os.Stat(abs)
	if err != nil || !info.IsDir() {
		return "", "", fault.New(fault.Invalid, "%s: not a folder", printable(dir))
	}
	if abs == string(filepath.Separator) {
		return "", "", fault.New(fault.Invalid, "the root of the filesystem cannot be a bundle")
	}
	rest := strings.TrimPrefix(filepath.ToSlash(abs), "/")
	parts := strings.Split(rest, "/")
	if h := homeFolder(home); h != "" {
		if abs == h {
			parts = []string{"~"}
		} else if below, ok := strings.CutPrefix(abs, h+string(filepath.Separator)); ok {
			parts = append([]string{"~"}, strings.Split(filepath.ToSlash(below), "/")...)
		} else if parts[0] == "~" {
			return "", "", fault.New(fault.Invalid, "%s: a folder named ~ at the root of the filesystem cannot hold bundles", printable(abs))
		}
	} else if parts[0] == "~" {
		return "", "", fault.New(fault.Invalid, "%s: a folder named ~ at the root of the filesystem cannot hold bundles", printable(abs))
	}
	for i, p := range parts {
		parts[i] = norm.NFC.String(p)
		if err := store.CheckLocalID(store.LocalPrefix + parts[i]); err != nil {
			return "", "", fault.New(fault.Invalid, "%s: the folder name %s cannot be part of an id (%s); rename it", printable(abs), shown(p), printable(err.Error()))
		}
	}
	return abs, store.LocalPrefix + strings.Join(parts, "/"), nil
}

// homeFolder returns the canonical home folder, "" when there is none.
func homeFolder(home string) string {
	usable := func(h string) string {
		if !filepath.IsAbs(h) {
			return ""
		}
		h, err := filepath.EvalSymlinks(h)
		if err != nil || h == "/" {
			return ""
		}
		if info, err := os.Stat(h); err != nil || !info.IsDir() {
			return ""
		}
		return h
	}
	if h := usable(home); h != "" {
		return h
	}
	if u, err := user.Current(); err == nil {
		return usable(u.HomeDir)
	}
	return ""
}
