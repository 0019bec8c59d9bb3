package bundle

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"sort"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"agentenv/artifact"
	"agentenv/fault"
	"agentenv/store/doc"
)

// maxWalkFiles limits how many files one entity's folder may hold.
const maxWalkFiles = 1 << 20

// file is one regular file of an entity.
type file struct {
	name string // slash path in the folder, NFC
	disk string
	size int64
	mode os.FileMode
}

// source makes the file one to publish.
func (f file) source() artifact.Source {
	return artifact.Source{Name: f.name, Size: f.size, Open: func(context.Context) (io.ReadCloser, error) { return os.Open(f.disk) }}
}

func sources(files []file) []artifact.Source {
	out := make([]artifact.Source, len(files))
	for i, f := range files {
		out[i] = f.source()
	}
	return out
}

// walk lists every regular file below an entity's folder, sorted by name; links are followed as long as they stay in the bundle.
// Leavings never count, and the entity's own config file only in a build context (withConfig). What cannot be is reported to p.
func (b *Bundle) walk(e *Entity, withConfig bool, p *problems) []file {
	w := &walker{b: b, e: e, p: p, seen: map[string]bool{}}
	if !withConfig {
		w.skip = e.kind.config
	}
	real, err := filepath.EvalSymlinks(e.disk)
	if err != nil {
		p.add(e.Path, fault.Reason(err).Error())
		return nil
	}
	if !b.holds(real) {
		p.add(e.Path, outside(real))
		return nil
	}
	w.folder("", real, []string{real})
	sort.Slice(w.out, func(i, j int) bool { return w.out[i].name < w.out[j].name })
	return w.out
}

func outside(target string) string {
	return "links to " + printable(target) + ", outside the bundle; copy what it points to into the bundle, or put it in a store and refer to it by id"
}

// holds reports whether a canonical path lies in the bundle.
func (b *Bundle) holds(real string) bool {
	return real == b.Dir || strings.HasPrefix(real, b.Dir+string(filepath.Separator))
}

type walker struct {
	b    *Bundle
	e    *Entity
	p    *problems
	skip string
	seen map[string]bool
	out  []file
}

// folder lists one folder; chain holds the canonical paths of the folders that lead to it.
func (w *walker) folder(name, real string, chain []string) {
	entries, err := os.ReadDir(real)
	if err != nil {
		w.p.add(path.Join(w.e.Path, printable(name)), fault.Reason(err).Error())
		return
	}
	for _, c := range entries {
		if artifact.Leaving(c.Name()) || name == "" && c.Name() == w.skip {
			continue
		}
		if len(w.out) >= maxWalkFiles {
			w.p.add(w.e.Path, fmt.Sprintf("more than %d files", maxWalkFiles))
			return
		}
		child := path.Join(name, norm.NFC.String(c.Name()))
		where := w.e.Path + "/" + printable(child)
		if !utf8.ValidString(c.Name()) {
			w.p.add(where, "the name is not UTF-8; rename it")
			continue
		}
		if w.seen[child] {
			w.p.add(where, "two entries have this name in different Unicode forms")
			continue
		}
		w.seen[child] = true
		disk := filepath.Join(real, c.Name())
		info, why := statEntry(disk)
		if why != "" {
			w.p.add(where, why)
			continue
		}
		target := disk
		if c.Type()&os.ModeSymlink != 0 {
			if target, err = filepath.EvalSymlinks(disk); err != nil {
				w.p.add(where, fault.Reason(err).Error())
				continue
			}
			if !w.b.holds(target) {
				w.p.add(where, outside(linkText(disk, target)))
				continue
			}
		}
		if !info.IsDir() {
			w.out = append(w.out, file{child, target, info.Size(), info.Mode()})
			continue
		}
		loops := false
		for _, up := range chain {
			loops = loops || up == target
		}
		if loops {
			w.p.add(where, "links to a folder that holds it")
			continue
		}
		w.folder(child, target, append(chain[:len(chain):len(chain)], target))
	}
}

// linkText is what a link says where that is a full path, else where it leads.
func linkText(disk, target string) string {
	if t, err := os.Readlink(disk); err == nil && filepath.IsAbs(t) {
		return t
	}
	return target
}

// hashes returns the files' digests as the ledger keeps them; with modes the permission bits other than 0644 are part of it.
func hashes(ctx context.Context, files []file, modes bool) (*doc.Object, error) {
	o := &doc.Object{}
	var largest int64
	for _, f := range files {
		largest = max(largest, f.size)
	}
	buf := make([]byte, min(largest+1, 256<<10)) // a bundle has many folders of one small file
	for _, f := range files {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		h := sha256.New()
		r, err := os.Open(f.disk)
		if err != nil {
			return nil, fmt.Errorf("%s: %s", printable(f.name), fault.Reason(err).Error())
		}
		_, err = io.CopyBuffer(h, struct{ io.Reader }{r}, buf)
		r.Close()
		if err != nil {
			return nil, fmt.Errorf("%s: %s", printable(f.name), fault.Reason(err).Error())
		}
		d := "sha256:" + hex.EncodeToString(h.Sum(nil))
		if perm := f.mode.Perm(); modes && perm != 0o644 {
			d += fmt.Sprintf("+%o", perm)
		}
		o.Set(f.name, d)
	}
	return o, nil
}
