package artifact

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"sort"
	"strings"
	"unicode/utf8"

	"github.com/moby/patternmatcher"
	"github.com/moby/patternmatcher/ignorefile"
	"golang.org/x/text/unicode/norm"

	"agentenv/fault"
)

// maxIgnoreFile limits how much of an ignore file is read.
const maxIgnoreFile = 1 << 20

// Leaving reports whether a name is something that file managers and interpreters leave behind, which never counts as content.
func Leaving(name string) bool {
	switch name {
	case ".DS_Store", "Thumbs.db", "desktop.ini", "__pycache__":
		return true
	}
	return false
}

// ContextEntry is one file, folder or link of a build context.
type ContextEntry struct {
	Name   string // slash path, NFC
	Mode   fs.FileMode
	Link   string // target of a link, "" for others
	SHA256 string // hex, of a file
	Size   int64
	disk   string
}

// BuildContext is what a container build would be sent, listed and hashed: the same for the same sources wherever they lie. It is
// immutable and safe for concurrent use.
type BuildContext struct {
	dir        string
	dockerfile string
	entries    []ContextEntry
}

// OpenContext lists the build context in a folder. dockerfile is its slash path in the folder, "" for "Dockerfile". What the ignore
// file excludes and leavings are left out; the Dockerfile, the ignore file and what they link to always stay. The error is Invalid
// and gives every problem at once: a special file, something unreadable, two names that are one in NFC, a missing Dockerfile.
func OpenContext(ctx context.Context, dir, dockerfile string) (*BuildContext, error) {
	if dockerfile == "" {
		dockerfile = "Dockerfile"
	}
	dockerfile = path.Clean(filepath.ToSlash(dockerfile))
	if err := CheckRelative(dockerfile); err != nil {
		return nil, fault.At(err, "build context %s: dockerfile", dir)
	}
	l := &lister{ctx: ctx, dir: dir, keep: map[string]bool{}, seen: map[string]string{}}
	if err := l.keepLinked(dockerfile); err != nil {
		return nil, fault.New(fault.Invalid, "build context %s: %s: %s", dir, dockerfile, err)
	}
	if err := l.ignores(dockerfile); err != nil {
		return nil, err
	}
	l.walk("", patternmatcher.MatchInfo{})
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if len(l.problems) > 0 {
		sort.Strings(l.problems)
		return nil, fault.New(fault.Invalid, "build context %s: %s", dir, strings.Join(l.problems, "; "))
	}
	sort.Slice(l.out, func(i, j int) bool { return l.out[i].Name < l.out[j].Name })
	return &BuildContext{dir: dir, dockerfile: dockerfile, entries: l.out}, nil
}

// Dockerfile returns the slash path of the Dockerfile in the context.
func (c *BuildContext) Dockerfile() string { return norm.NFC.String(c.dockerfile) }

// Entries returns what the context holds, sorted by name. The caller must not change it.
func (c *BuildContext) Entries() []ContextEntry { return c.entries }

// SourceDigest returns "sha256:<hex>" over the Dockerfile's path, the platform ("" = none) and every entry: the identity of a build.
func (c *BuildContext) SourceDigest(platform string) string {
	b := []byte(`{"scheme":1,"dockerfile":`)
	b = appendJSON(b, c.Dockerfile())
	b = append(b, `,"platform":`...)
	if platform == "" {
		b = append(b, "null"...)
	} else {
		b = appendJSON(b, platform)
	}
	b = append(b, `,"entries":[`...)
	h := sha256.New()
	for i, e := range c.entries {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, '[')
		b = appendJSON(b, e.Name)
		b = append(b, ',')
		b = appendJSON(b, fmt.Sprintf("%o", e.Mode.Perm()))
		b = append(b, ',')
		switch {
		case e.Mode.IsDir():
			b = append(b, "null"...)
		case e.Mode&fs.ModeSymlink != 0:
			b = appendJSON(b, "link:"+e.Link)
		default:
			b = appendJSON(b, e.SHA256)
		}
		b = append(b, ']')
		h.Write(b)
		b = b[:0]
	}
	h.Write(append(b, "]}"...))
	return "sha256:" + hex.EncodeToString(h.Sum(nil))
}

// appendJSON appends s as a JSON string in which only what must be is escaped.
func appendJSON(b []byte, s string) []byte {
	b = append(b, '"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b = append(b, '\\', byte(r))
		case r == '\n':
			b = append(b, '\\', 'n')
		case r == '\r':
			b = append(b, '\\', 'r')
		case r == '\t':
			b = append(b, '\\', 't')
		case r == '\b':
			b = append(b, '\\', 'b')
		case r == '\f':
			b = append(b, '\\', 'f')
		case r < 0x20:
			b = fmt.Appendf(b, `\u%04x`, r)
		default:
			b = utf8.AppendRune(b, r)
		}
	}
	return append(b, '"')
}

// lister walks one context.
type lister struct {
	ctx      context.Context
	dir      string
	patterns *patternmatcher.PatternMatcher
	keep     map[string]bool   // disk paths that no pattern drops
	seen     map[string]string // NFC name → disk path
	out      []ContextEntry
	problems []string
}

// keepLinked marks a file and what it links to inside the context as kept.
func (l *lister) keepLinked(name string) error {
	for hop := 0; ; hop++ {
		if hop == 40 {
			return fmt.Errorf("a loop of links")
		}
		info, err := os.Lstat(filepath.Join(l.dir, filepath.FromSlash(name)))
		if err != nil {
			return fault.Reason(err)
		}
		l.keep[name] = true
		if info.Mode()&fs.ModeSymlink == 0 {
			if !info.Mode().IsRegular() {
				return fmt.Errorf("it is no file")
			}
			return nil
		}
		target, err := os.Readlink(filepath.Join(l.dir, filepath.FromSlash(name)))
		if err != nil {
			return fault.Reason(err)
		}
		next := path.Join(path.Dir(name), filepath.ToSlash(target))
		if path.IsAbs(target) || next == ".." || strings.HasPrefix(next, "../") {
			return fmt.Errorf("it links to %s, which is outside the context", target)
		}
		name = next
	}
}

// ignores reads the ignore file that belongs to the Dockerfile.
func (l *lister) ignores(dockerfile string) error {
	for _, name := range []string{dockerfile + ".dockerignore", ".dockerignore"} {
		f, err := os.Open(filepath.Join(l.dir, filepath.FromSlash(name)))
		if os.IsNotExist(err) {
			continue
		}
		if err != nil {
			return fault.New(fault.Invalid, "build context %s: %s: %s", l.dir, name, fault.Reason(err))
		}
		defer f.Close()
		if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
			return fault.New(fault.Invalid, "build context %s: %s is no file", l.dir, name)
		}
		patterns, err := ignorefile.ReadAll(io.LimitReader(f, maxIgnoreFile))
		if err == nil {
			l.patterns, err = patternmatcher.New(patterns)
		}
		if err != nil {
			return fault.New(fault.Invalid, "build context %s: %s: %s", l.dir, name, err)
		}
		if err := l.keepLinked(name); err != nil {
			return fault.New(fault.Invalid, "build context %s: %s: %s", l.dir, name, err)
		}
		return nil
	}
	return nil
}

func (l *lister) problem(name string, format string, args ...any) {
	l.problems = append(l.problems, fmt.Sprintf("%q: %s", name, fmt.Sprintf(format, args...)))
}

// walk lists a folder and reports whether anything in it is kept.
func (l *lister) walk(folder string, parent patternmatcher.MatchInfo) bool {
	children, err := os.ReadDir(filepath.Join(l.dir, filepath.FromSlash(folder)))
	if err != nil {
		l.problem(folder, "%s", fault.Reason(err))
		return false
	}
	any := false
	for _, c := range children {
		if l.ctx.Err() != nil || Leaving(c.Name()) {
			continue
		}
		name := path.Join(folder, c.Name())
		dropped, info := false, patternmatcher.MatchInfo{}
		if l.patterns != nil {
			if dropped, info, err = l.patterns.MatchesUsingParentResults(name, parent); err != nil {
				l.problem(name, "%s", err)
				continue
			}
		}
		dropped = dropped && !l.keep[name]
		if c.IsDir() {
			if dropped && !l.patterns.Exclusions() && !l.keptBelow(name) {
				continue
			}
			if below := l.walk(name, info); below || !dropped {
				l.add(name, c)
				any = true
			}
			continue
		}
		if !dropped {
			l.add(name, c)
			any = true
		}
	}
	return any
}

func (l *lister) keptBelow(folder string) bool {
	for k := range l.keep {
		if strings.HasPrefix(k, folder+"/") {
			return true
		}
	}
	return false
}

func (l *lister) add(name string, d fs.DirEntry) {
	nfc := norm.NFC.String(name)
	if !utf8.ValidString(name) {
		l.problem(name, "the name is not UTF-8")
		return
	}
	if other, taken := l.seen[nfc]; taken {
		l.problem(nfc, "two entries have this name in different spellings (%q, %q)", other, name)
		return
	}
	l.seen[nfc] = name
	e := ContextEntry{Name: nfc, disk: filepath.Join(l.dir, filepath.FromSlash(name))}
	info, err := d.Info()
	if err != nil {
		l.problem(name, "%s", fault.Reason(err))
		return
	}
	switch {
	case info.IsDir():
		e.Mode = fs.ModeDir | 0o755
	case info.Mode()&fs.ModeSymlink != 0:
		e.Mode = fs.ModeSymlink | 0o777
		if e.Link, err = os.Readlink(e.disk); err != nil {
			l.problem(name, "%s", fault.Reason(err))
			return
		}
	case info.Mode().IsRegular():
		if e.Mode = 0o644; info.Mode()&0o100 != 0 {
			e.Mode = 0o755
		}
		if e.SHA256, e.Size, err = hashFile(e.disk, io.Discard); err != nil {
			l.problem(name, "%s", fault.Reason(err))
			return
		}
	default:
		l.problem(name, "it is neither a file, a folder nor a link")
		return
	}
	l.out = append(l.out, e)
}

// hashFile copies a file to w and returns the hash and length of what it copied.
func hashFile(name string, w io.Writer) (string, int64, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", 0, err
	}
	defer f.Close()
	h := sha256.New()
	n, err := io.Copy(io.MultiWriter(w, h), f)
	return hex.EncodeToString(h.Sum(nil)), n, err
}
