// Package localfs is the object store in a folder tree: every object is a file at its own key. The layout and the write
// protocol are those that the reference shares, so both programs may use one folder at once.
package localfs

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"agentenv/fault"
	"agentenv/store/object"
)

const (
	metaDir = ".agentenv-meta"
	tempDir = ".agentenv-tmp"
	scheme  = "file://"

	defaultType = "application/octet-stream"
)

// Store is an object store in a folder. It implements object.Store. Opening one creates nothing; the first write does.
type Store struct {
	root  string // absolute and free of links
	sweep sync.Once
}

var _ object.Store = (*Store)(nil)

// New returns the store whose objects are below root. Nothing is created before the first write. The error is Invalid.
func New(root string) (*Store, error) {
	if root == "" {
		return nil, fault.New(fault.Invalid, "the local object store needs a root folder")
	}
	abs, err := filepath.Abs(root)
	if err == nil {
		abs, err = resolve(abs)
	}
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "object store root %s", root)
	}
	return &Store{root: abs}, nil
}

// Root returns the folder, absolute and with links resolved.
func (s *Store) Root() string { return s.root }

// Close is a no-op.
func (s *Store) Close() error { return nil }

// resolve follows the links of as much of p as exists; the rest stays as written.
func resolve(p string) (string, error) {
	out, err := filepath.EvalSymlinks(p)
	if err == nil || !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENOTDIR) {
		return out, err
	}
	if info, lerr := os.Lstat(p); lerr == nil && info.Mode()&fs.ModeSymlink != 0 {
		return "", fault.New(fault.Invalid, "%s is a link to nowhere", p)
	}
	dir, base := filepath.Split(p)
	if dir = filepath.Clean(dir); dir == p {
		return p, nil
	}
	dir, err = resolve(dir)
	return filepath.Join(dir, base), err
}

func badKey(key, why string) error {
	return fault.New(fault.Invalid, "object key %q %s", short(key), why)
}

func short(s string) string {
	if len(s) > 200 {
		return s[:200] + "…"
	}
	return s
}

// where returns the file of a key with the links of its folder resolved. folders caches resolved folders during one batch;
// it may be nil.
func (s *Store) where(key string, folders map[string]string) (string, error) {
	switch {
	case strings.HasPrefix(key, "/"):
		return "", badKey(key, "is absolute; keys are relative to the store")
	case strings.ContainsRune(key, 0):
		return "", badKey(key, "holds a NUL")
	case len(key) > unix.PathMax-512:
		return "", badKey(key, "is too long")
	}
	for part := range strings.SplitSeq(key, "/") {
		if len(part) > 255 {
			return "", badKey(key, "has a part longer than 255 bytes")
		}
	}
	p := filepath.Join(s.root, key)
	if !within(s.root, p) {
		return "", badKey(key, "leads out of the store")
	}
	if p == s.root {
		return p, nil
	}
	dir, base := filepath.Dir(p), filepath.Base(p)
	resolved, ok := folders[dir]
	if !ok {
		var err error
		if resolved, err = s.folder(dir); err != nil {
			return "", fault.Wrap(fault.Invalid, err, "object key %q", short(key))
		}
		if folders != nil {
			folders[dir] = resolved
		}
	}
	p = filepath.Join(resolved, base)
	return p, s.inside(key, p)
}

// folder resolves the links of a folder below the root.
func (s *Store) folder(dir string) (string, error) {
	if !hasLink(dir, len(s.root)) {
		return dir, nil
	}
	return resolve(dir)
}

// hasLink reports whether a part of the absolute and clean path p after the first from bytes is a link, or cannot be looked at.
// Links are rare, and this is much cheaper than following them.
func hasLink(p string, from int) bool {
	for at := from; at < len(p); {
		next := strings.IndexByte(p[at+1:], '/')
		if at += 1 + next; next < 0 {
			at = len(p)
		}
		var st unix.Stat_t
		switch err := unix.Lstat(p[:at], &st); {
		case err == unix.ENOENT || err == unix.ENOTDIR:
			return false // nothing is below it
		case err != nil || st.Mode&unix.S_IFMT == unix.S_IFLNK:
			return true
		}
	}
	return false
}

// inside refuses a resolved place that is not the store's to give.
func (s *Store) inside(key, p string) error {
	if !within(s.root, p) {
		return badKey(key, "leads out of the store through a link")
	}
	switch first, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(p, s.root), "/"), "/"); first {
	case ".gitignore", metaDir, tempDir:
		return badKey(key, "is reserved: "+first+" at the root belongs to the store itself")
	}
	return nil
}

// place returns the file of a key, all links resolved.
func (s *Store) place(key string) (string, error) {
	p, err := s.where(key, nil)
	if err != nil || p == s.root {
		return p, err
	}
	var st unix.Stat_t
	if unix.Lstat(p, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFLNK {
		return p, nil //nolint:nilerr // what cannot be looked at is no link
	}
	if p, err = resolve(p); err != nil {
		return "", fault.Wrap(fault.Invalid, err, "object key %q", short(key))
	}
	return p, s.inside(key, p)
}

func within(root, p string) bool {
	rest, ok := strings.CutPrefix(p, strings.TrimSuffix(root, "/"))
	return ok && (rest == "" || rest[0] == '/') || p == root
}

// file returns the place of an object for writing.
func (s *Store) file(key string) (string, error) {
	p, err := s.place(key)
	return p, s.object(key, p, err)
}

// target is file for a name that must be free: a link there is in the way and not followed.
func (s *Store) target(key string, folders map[string]string) (string, error) {
	p, err := s.where(key, folders)
	return p, s.object(key, p, err)
}

func (s *Store) object(key, p string, err error) error {
	if err == nil && (p == s.root || strings.HasSuffix(key, "/")) {
		return badKey(key, "names a folder, not an object")
	}
	return err
}

// at returns the place of a URL.
func (s *Store) at(url string) (string, error) {
	key, err := s.keyOf(url)
	if err != nil {
		return "", err
	}
	return s.place(key)
}

// URL returns the URL of a key.
func (s *Store) URL(key string) (string, error) {
	p, err := s.place(key)
	if err != nil {
		return "", err
	}
	if (strings.HasSuffix(key, "/") || key == "") && !strings.HasSuffix(p, "/") {
		p += "/"
	}
	return scheme + p, nil
}

// Key returns the key of a URL of this store; that of the root is ".".
func (s *Store) Key(url string) (string, error) {
	key, err := s.keyOf(url)
	if err != nil {
		return "", err
	}
	if _, err := s.place(key); err != nil {
		return "", err
	}
	return key, nil
}

// keyOf reads the key out of a URL; what lies at the key is not looked at.
func (s *Store) keyOf(url string) (string, error) {
	p, ok := strings.CutPrefix(url, scheme)
	if !ok || !strings.HasPrefix(p, "/") {
		return "", fault.New(fault.Invalid, "object URL %q is none of the store in %s", short(url), s.root)
	}
	clean := filepath.Clean(p)
	if !within(s.root, clean) {
		// The URL may go through a link to the root.
		r, err := clean, error(nil)
		if hasLink(clean, 0) {
			r, err = resolve(clean)
		}
		if err != nil || !within(s.root, r) {
			return "", fault.New(fault.Invalid, "object URL %q is none of the store in %s", short(url), s.root)
		}
		clean = r
	}
	key := strings.TrimPrefix(strings.TrimPrefix(clean, strings.TrimSuffix(s.root, "/")), "/")
	if key == "" {
		key = "."
	}
	if strings.HasSuffix(p, "/") {
		key += "/"
	}
	return key, nil
}

// Owns reports whether url is one of this store's.
func (s *Store) Owns(url string) bool {
	_, err := s.Key(url)
	return err == nil
}

func notFound(url string) error {
	return fault.Wrap(fault.NotFound, fs.ErrNotExist, "no object at %s", short(url))
}

// Open streams an object's bytes.
func (s *Store) Open(ctx context.Context, url string) (io.ReadCloser, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	p, err := s.at(url)
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(p, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
			return nil, notFound(url)
		}
		return nil, fault.Wrap(fault.KindOf(err), err, "object %s", short(url))
	}
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		f.Close()
		return nil, notFound(url)
	}
	return f, nil
}

// Stat describes the object at url, nil when there is none.
func (s *Store) Stat(ctx context.Context, url string) (*object.Info, error) {
	p, err := s.at(url)
	if err != nil {
		return nil, err
	}
	// A record that describes the file is that file's: no writer needs to be waited for.
	info, r, err := s.describe(p)
	if err == nil && info != nil && !r.describes(info) {
		var release func()
		if release, err = s.lockShared(ctx, p); err != nil {
			return nil, err
		}
		info, r, err = s.describe(p)
		release()
	}
	if err != nil {
		return nil, fault.Wrap(fault.KindOf(err), err, "object %s", short(url))
	}
	if info == nil {
		return nil, nil
	}
	out := &object.Info{Size: info.Size(), ModTime: info.ModTime()}
	if r.describes(info) {
		out.ContentType, out.SHA256 = r.ContentType, r.SHA256
	}
	return out, nil
}

// describe returns the regular file at p, nil when there is none, and its record.
func (s *Store) describe(p string) (fs.FileInfo, *record, error) {
	info, err := os.Lstat(p)
	switch {
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR):
		return nil, nil, nil
	case err != nil:
		return nil, nil, err
	case !info.Mode().IsRegular():
		return nil, nil, nil
	}
	return info, s.readRecord(p), nil
}

// List returns the keys that begin with prefix, sorted.
func (s *Store) List(ctx context.Context, prefix string) ([]string, error) {
	// The walk starts at the deepest folder that the prefix names.
	dir := ""
	if i := strings.LastIndexByte(prefix, '/'); i >= 0 {
		dir = prefix[:i]
	}
	if strings.HasPrefix(prefix, "/") || !fs.ValidPath(dir) && dir != "" {
		return nil, nil // no stored key begins so
	}
	start, err := s.place(dir)
	if err != nil || start != filepath.Join(s.root, dir) {
		return nil, nil //nolint:nilerr // through a link, or nowhere: not part of the tree
	}
	var keys []string
	err = filepath.WalkDir(start, func(p string, d fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
			return nil
		}
		if err != nil {
			return fault.Wrap(fault.KindOf(err), err, "listing the object store %s", s.root)
		}
		key := strings.TrimPrefix(strings.TrimPrefix(p, s.root), "/")
		switch {
		case key == metaDir || key == tempDir:
			return fs.SkipDir
		case d.IsDir():
			if !strings.HasPrefix(key+"/", prefix) && !strings.HasPrefix(prefix, key+"/") && key != "" {
				return fs.SkipDir
			}
		case key != ".gitignore" && d.Type().IsRegular() && strings.HasPrefix(key, prefix):
			keys = append(keys, key)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	slices.Sort(keys)
	return keys, nil
}

// ListAt returns the URLs of the objects below a URL.
func (s *Store) ListAt(ctx context.Context, urlPrefix string) ([]string, error) {
	key, err := s.Key(urlPrefix)
	if err != nil {
		return nil, err
	}
	prefix := strings.TrimSuffix(key, "/") + "/"
	if prefix == "./" {
		prefix = ""
	}
	keys, err := s.List(ctx, prefix)
	for i := range keys {
		keys[i] = scheme + filepath.Join(s.root, keys[i])
	}
	return keys, err
}
