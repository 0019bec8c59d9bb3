package artifact

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"io"
	"os"
	"path"
	"strings"

	"agentenv/fault"
	"agentenv/store/doc"
)

// Limits of what an environment's payload may hold.
const (
	maxPayloadJSON  = 256 << 20
	maxPayloadFiles = 1 << 20
	maxPayloadZip   = 64 << 30
	maxUnpacked     = 64 << 30
	// A zip that grows beyond plainSize may hold so many times its own size: what people pack does not come near, and a bomb goes beyond.
	plainSize = 1 << 30
	maxGrowth = 500
)

// Payload unpacks the file an environment wraps to the tree it stands for: of a zip, what lies below root/ and then the files of a
// top-level data.json whose paths are still free; of a JSON document, its files. Order is that of writing; a payload without
// files gives none. A zip is spooled to a temporary file that has no name and goes with the last reference to its members. Errors are
// Invalid and name the artifact and the path.
func (s *Store) Payload(ctx context.Context, e *Environment) ([]Member, error) {
	f, err := s.EnvironmentFile(ctx, e)
	if err != nil {
		return nil, err
	}
	ms, err := s.payload(ctx, f)
	return ms, fault.At(err, "unpack artifact %s v%d", e.id, e.version)
}

func (s *Store) payload(ctx context.Context, f *File) ([]Member, error) {
	body, err := s.objects.Open(ctx, f.URL)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	head := make([]byte, 4)
	n, err := io.ReadFull(body, head)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, fault.Wrap(fault.KindOf(err), err, "read %s", f.Filename)
	}
	r := io.MultiReader(bytes.NewReader(head[:n]), body)
	if isZip(head[:n]) {
		spool, size, err := spoolFile(r)
		if err != nil {
			return nil, err
		}
		return expandZip(spool, size)
	}
	text, err := io.ReadAll(io.LimitReader(r, maxPayloadJSON+1))
	if err != nil {
		return nil, fault.Wrap(fault.KindOf(err), err, "read %s", f.Filename)
	}
	if len(text) > maxPayloadJSON {
		return nil, fault.New(fault.Invalid, "%s is no zip, and as a JSON document it is larger than %d MiB", f.Filename, maxPayloadJSON>>20)
	}
	t := &tree{seen: map[string]bool{}}
	err = t.json(text)
	return t.out, err
}

func isZip(head []byte) bool {
	return bytes.HasPrefix(head, []byte("PK\x03\x04")) || bytes.HasPrefix(head, []byte("PK\x05\x06"))
}

// spoolFile copies r to a temporary file without a name.
func spoolFile(r io.Reader) (*os.File, int64, error) {
	tmp, err := os.CreateTemp("", "agentenv-payload-*")
	if err != nil {
		return nil, 0, fault.Wrap(fault.Unavailable, err, "make a temporary file for the payload")
	}
	os.Remove(tmp.Name())
	n, err := io.Copy(tmp, io.LimitReader(r, maxPayloadZip+1))
	if err == nil && n > maxPayloadZip {
		err = fault.New(fault.Invalid, "the zip is larger than %d GiB", maxPayloadZip>>30)
	}
	if err != nil {
		tmp.Close()
		return nil, 0, err
	}
	return tmp, n, nil
}

func expandZip(file io.ReaderAt, size int64) ([]Member, error) {
	z, err := zip.NewReader(file, size)
	if err != nil {
		return nil, fault.New(fault.Invalid, "it begins like a zip and is none: %s", err)
	}
	if err := checkGrowth(z, size); err != nil {
		return nil, err
	}
	t := &tree{seen: map[string]bool{}}
	var data *zip.File
	for _, m := range z.File {
		if m.Name == "data.json" {
			data = m
		}
		name, ok := strings.CutPrefix(m.Name, "root/")
		if !ok || strings.HasSuffix(m.Name, "/") {
			continue
		}
		if !m.Mode().IsRegular() {
			return nil, fault.New(fault.Invalid, "%q in the zip is no plain file", m.Name)
		}
		if err := t.add(name, int64(m.UncompressedSize64), func(context.Context) (io.ReadCloser, error) { return m.Open() }); err != nil {
			return nil, err
		}
	}
	if data != nil {
		if data.UncompressedSize64 > maxPayloadJSON {
			return nil, fault.New(fault.Invalid, "data.json in the zip is larger than %d MiB", maxPayloadJSON>>20)
		}
		r, err := data.Open()
		if err != nil {
			return nil, fault.New(fault.Invalid, "data.json in the zip: %s", err)
		}
		defer r.Close()
		text, err := io.ReadAll(io.LimitReader(r, maxPayloadJSON))
		if err != nil {
			return nil, fault.New(fault.Invalid, "data.json in the zip: %s", err)
		}
		if err := t.json(text); err != nil {
			return nil, err
		}
	}
	return t.out, nil
}

// checkGrowth refuses a zip that would fill the disks of whoever unpacks it.
func checkGrowth(z *zip.Reader, size int64) error {
	var total uint64
	for _, m := range z.File {
		if total += m.UncompressedSize64; m.UncompressedSize64 > maxUnpacked || total > maxUnpacked {
			return fault.New(fault.Invalid, "unpacked it would have more than %d GiB", maxUnpacked>>30)
		}
	}
	if total > plainSize && total > uint64(size)*maxGrowth {
		return fault.New(fault.Invalid, "its %d bytes would become %d unpacked, which is more than %d times as much: it is taken for a zip bomb", size, total, maxGrowth)
	}
	return nil
}

// tree gathers the files of a payload; the first file at a path stays.
type tree struct {
	out  []Member
	seen map[string]bool
}

func (t *tree) add(name string, size int64, open func(context.Context) (io.ReadCloser, error)) error {
	clean, err := payloadPath(name)
	if err != nil {
		return err
	}
	if t.seen[clean] {
		return nil
	}
	if len(t.out) == maxPayloadFiles {
		return fault.New(fault.Invalid, "it holds more than %d files", maxPayloadFiles)
	}
	t.seen[clean] = true
	t.out = append(t.out, Member{Name: clean, Size: size, ContentType: ContentType(clean), Open: open})
	return nil
}

func (t *tree) json(text []byte) error {
	o, err := doc.ParseObject(text, doc.Options{})
	if err != nil {
		return fault.New(fault.Invalid, "the payload is neither a zip nor a JSON object: %s", err)
	}
	v, _ := o.Get("files")
	list, ok := v.([]any)
	if !ok && v != nil {
		return fault.New(fault.Invalid, "files in the payload is %s and must be a list", doc.TypeName(v))
	}
	for i, v := range list {
		e, ok := v.(*doc.Object)
		if !ok {
			return fault.New(fault.Invalid, "files[%d] in the payload is %s and must be an object", i, doc.TypeName(v))
		}
		name := e.Str("path")
		if name == "" {
			continue
		}
		body := []byte(e.Str("content"))
		if e.Str("encoding") == "base64" {
			if body, err = base64.StdEncoding.DecodeString(strings.Map(dropSpace, e.Str("content"))); err != nil {
				return fault.New(fault.Invalid, "the content of %q in the payload is no base64: %s", name, err)
			}
		}
		err := t.add(name, int64(len(body)), func(context.Context) (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil })
		if err != nil {
			return err
		}
	}
	return nil
}

func dropSpace(r rune) rune {
	if r == '\n' || r == '\r' || r == ' ' || r == '\t' {
		return -1
	}
	return r
}

// payloadPath makes a payload's path relative; one that leads out is refused.
func payloadPath(name string) (string, error) {
	var parts []string
	for p := range strings.SplitSeq(strings.ReplaceAll(name, `\`, "/"), "/") {
		switch {
		case p == "" || p == ".":
		case p == ".." || strings.ContainsRune(p, 0):
			return "", fault.New(fault.Invalid, "the path %q in the payload leads out of its folder", name)
		default:
			parts = append(parts, p)
		}
	}
	if len(parts) == 0 {
		return "", fault.New(fault.Invalid, "the path %q in the payload names no file", name)
	}
	return path.Join(parts...), nil
}
