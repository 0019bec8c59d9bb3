package artifact

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"path"
	"slices"
	"strings"

	"agentenv/fault"
	"agentenv/store/image"
)

// Limits of what is held of a saved image while it is read: its layers pass by.
const (
	maxSavedEntries  = 1 << 17
	maxSavedDocument = 4 << 20
	maxSavedText     = 64 << 20
)

// Saved says what the archive of a saved image holds.
type Saved struct {
	Images []SavedImage // in the archive's order
	Gzip   bool         // the archive is compressed
}

// SavedImage is one image of an archive.
type SavedImage struct {
	Names    []string // name:tag as the archive gives them; loading it makes the image known by these
	Platform string   // normalised; "" when the archive does not say, or holds the image for several
}

// ReadSaved reads a tar, gzipped or not, to its end and says which images it holds. It takes what `docker save` writes and an OCI
// layout; anything else, one that lacks a part it names, and one that was cut off are Invalid errors. Layers are not held.
func ReadSaved(r io.Reader) (*Saved, error) {
	b := bufio.NewReader(r)
	s := &Saved{}
	if magic, _ := b.Peek(2); bytes.Equal(magic, gzipMagic) {
		s.Gzip = true
		z, err := gzip.NewReader(b)
		if err != nil {
			return nil, unreadable(err)
		}
		b = bufio.NewReader(z)
	}
	l := &savedLayout{there: map[string]bool{}, docs: map[string]savedDocument{}}
	if err := l.read(tar.NewReader(b)); err != nil {
		return nil, err
	}
	// The checksum of the compression comes after the tar's own end.
	if _, err := io.Copy(io.Discard, b); err != nil {
		return nil, unreadable(err)
	}
	var err error
	s.Images, err = l.images()
	return s, err
}

var gzipMagic = []byte{0x1f, 0x8b}

func unreadable(err error) error {
	if kind := fault.KindOf(err); kind != fault.Internal {
		return fault.At(err, "read the saved image")
	}
	return fault.Wrap(fault.Invalid, err, "it is no saved image: the archive cannot be read to its end; write it with `docker save`")
}

// Find returns the image of that name (Invalid when there is none) and the name in full, or, for "", the one image and the one name
// that the archive holds (Invalid when it holds more or none).
func (s *Saved) Find(name string) (SavedImage, string, error) {
	var all []string
	var found SavedImage
	for _, i := range s.Images {
		for _, n := range i.Names {
			if all = append(all, n); name == "" || sameImage(n, name) {
				found = i
			}
		}
	}
	switch {
	case len(all) == 0:
		return found, "", fault.New(fault.Invalid, "the saved image has no name; save it by its name:tag, not by its id")
	case name == "" && len(all) > 1:
		return found, "", fault.New(fault.Invalid, "the archive names %s: say which one is meant", strings.Join(all, ", "))
	case name == "":
		return found, all[0], nil
	case found.Names == nil:
		return found, "", fault.New(fault.Invalid, "the archive names %s, not %s", strings.Join(all, ", "), name)
	}
	return found, name, nil
}

// sameImage reports whether two names are one to an engine, which fills in what a short one leaves out.
func sameImage(a, b string) bool {
	ra, err1 := image.ParseRef(a)
	rb, err2 := image.ParseRef(b)
	tag := func(r image.Reference) string {
		if r.Tag == "" && r.Digest == "" {
			return "latest"
		}
		return r.Tag
	}
	return err1 == nil && err2 == nil && ra.Host == rb.Host && ra.Path == rb.Path && tag(ra) == tag(rb) && ra.Digest == rb.Digest
}

// savedLayout gathers an archive's table of contents.
type savedLayout struct {
	there   map[string]bool
	docs    map[string]savedDocument
	saves   []dockerSave // of manifest.json
	isSave  bool
	isIndex bool
	text    int64 // bytes of names and documents
	steps   int   // taken through indexes
}

// dockerSave is one image in manifest.json.
type dockerSave struct {
	Config   string
	RepoTags []string
	Layers   []string
}

// savedDocument is an image's configuration, a manifest or an index, whichever a JSON entry turns out to be.
type savedDocument struct {
	OS           string            `json:"os"`
	Architecture string            `json:"architecture"`
	Variant      string            `json:"variant"`
	Config       json.RawMessage   `json:"config"`
	Layers       []savedDescriptor `json:"layers"`
	Manifests    []savedDescriptor `json:"manifests"`
}

type savedDescriptor struct {
	Digest      string            `json:"digest"`
	Annotations map[string]string `json:"annotations"`
}

func (l *savedLayout) read(t *tar.Reader) error {
	for {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return unreadable(err)
		}
		if len(l.there) == maxSavedEntries {
			return fault.New(fault.Invalid, "it is no saved image: the archive has more than %d entries", maxSavedEntries)
		}
		name := path.Clean(h.Name)
		if err := l.hold(len(name)); err != nil {
			return err
		}
		l.there[name] = true
		if h.Typeflag != tar.TypeReg || h.Size > maxSavedDocument {
			continue
		}
		if err := l.document(name, bufio.NewReader(t)); err != nil {
			return err
		}
	}
}

// document keeps an entry that is a JSON document; layers, which are tars, are none.
func (l *savedLayout) document(name string, r *bufio.Reader) error {
	if first, _ := r.Peek(1); len(first) == 0 || first[0] != '{' && first[0] != '[' {
		return nil
	}
	b, err := io.ReadAll(r)
	if err != nil {
		return unreadable(err)
	}
	if err := l.hold(len(b)); err != nil {
		return err
	}
	if name == "manifest.json" {
		if err := json.Unmarshal(b, &l.saves); err != nil {
			return fault.Wrap(fault.Invalid, err, "it is no saved image: its manifest.json cannot be read")
		}
		l.isSave = true
		return nil
	}
	var d savedDocument
	if err := json.Unmarshal(b, &d); err == nil {
		l.docs[name] = d
		l.isIndex = l.isIndex || name == "index.json"
	}
	return nil
}

func (l *savedLayout) hold(size int) error {
	if l.text += int64(size); l.text > maxSavedText {
		return fault.New(fault.Invalid, "it is no saved image: its names and documents are larger than %d MiB", maxSavedText>>20)
	}
	return nil
}

func (l *savedLayout) images() ([]SavedImage, error) {
	var out []SavedImage
	switch {
	case l.isSave:
		for _, s := range l.saves {
			for _, part := range append([]string{s.Config}, s.Layers...) {
				if err := l.need(path.Clean(part)); err != nil {
					return nil, err
				}
			}
			out = append(out, SavedImage{Names: s.RepoTags, Platform: l.docs[path.Clean(s.Config)].platform()})
		}
	case l.isIndex:
		for _, m := range l.docs["index.json"].Manifests {
			platforms, err := l.platforms(m.Digest)
			if err != nil {
				return nil, err
			}
			i := SavedImage{Names: m.names()}
			if len(platforms) == 1 {
				i.Platform = platforms[0]
			}
			out = append(out, i)
		}
	}
	if len(out) == 0 {
		return nil, fault.New(fault.Invalid, "it is no saved image: neither a manifest.json nor an index.json in it names one; write it with `docker save`")
	}
	return out, nil
}

func (l *savedLayout) need(part string) error {
	if !l.there[part] {
		return fault.New(fault.Invalid, "the saved image is not whole: it lacks %q; save it again", part)
	}
	return nil
}

// platforms returns those of a manifest, or of an index of manifests, after a look that all parts are there.
func (l *savedLayout) platforms(digest string) ([]string, error) {
	at := blobPath(digest)
	if err := l.need(at); err != nil {
		return nil, err
	}
	d, known := l.docs[at]
	var config savedDescriptor
	// An index may name itself, or another many times.
	l.steps++
	if !known || l.steps > maxSavedEntries || d.Manifests == nil && (json.Unmarshal(d.Config, &config) != nil || config.Digest == "") {
		return nil, fault.New(fault.Invalid, "it is no saved image: %q in it is neither a manifest nor an index", at)
	}
	if d.Manifests == nil {
		for _, part := range append([]savedDescriptor{config}, d.Layers...) {
			if err := l.need(blobPath(part.Digest)); err != nil {
				return nil, err
			}
		}
		return []string{l.docs[blobPath(config.Digest)].platform()}, nil
	}
	var all []string
	for _, m := range d.Manifests {
		// An index also names platforms that were not saved, and attestations, which have none.
		if !l.there[blobPath(m.Digest)] {
			continue
		}
		ps, err := l.platforms(m.Digest)
		if err != nil {
			return nil, err
		}
		for _, p := range ps {
			if p != "" && p != "unknown/unknown" && !slices.Contains(all, p) {
				all = append(all, p)
			}
		}
	}
	return all, nil
}

func blobPath(digest string) string { return "blobs/" + strings.Replace(digest, ":", "/", 1) }

// names returns what loading calls the image; a bare tag, as some writers leave, is no name.
func (d savedDescriptor) names() []string {
	for _, key := range []string{"io.containerd.image.name", "org.opencontainers.image.ref.name"} {
		if n := d.Annotations[key]; strings.ContainsAny(n, ":/") {
			return []string{n}
		}
	}
	return nil
}

func (d savedDocument) platform() string {
	if d.OS == "" || d.Architecture == "" {
		return ""
	}
	p := d.OS + "/" + d.Architecture
	if d.Variant != "" {
		p += "/" + d.Variant
	}
	return NormalizePlatform(p)
}
