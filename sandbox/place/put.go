package place

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"path"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"agentenv/fault"
	"agentenv/store"
	"agentenv/telemetry"
)

// Put writes sources below dir in p and returns each file as it was read back there, in the order of sources. Files are
// owned by root with mode 0644, or 0755 when any execute bit is set, folders 0755, the time is now. Every name is checked
// before anything is written; a Body whose length is not Size, or whose sha256 is not SHA256, is an error, and so is a file
// that is not in the place afterwards with the size and sha256 of what was sent. progress (nil = none) is told the bytes
// sent so far. A second call replaces the files; two calls on one folder at once both land.
func Put(ctx context.Context, p Place, dir string, sources []Source, progress func(int64)) (found []Placed, err error) {
	if err := CheckPath(dir); err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	for _, s := range sources {
		if err := CheckName(s.Name); err != nil {
			return nil, err
		}
		if name := path.Clean(s.Name); seen[name] {
			return nil, fault.New(fault.Invalid, "the name %q is given twice", name)
		}
		seen[path.Clean(s.Name)] = true
		if s.Size < 0 || !s.Folder && s.Link == "" && s.Body == nil {
			return nil, fault.New(fault.Invalid, "the file %q has no content", s.Name)
		}
	}
	ctx, span := telemetry.Start(ctx, "put", attribute.String(attrPlace, p.String()), attribute.String("agentenv.path", dir), attribute.Int("agentenv.files", len(sources)))
	if t, ok := p.(*traced); ok {
		p = t.Place // which knows quicker ways
	}
	var total int64
	defer func() {
		span.Set(attribute.Int64("agentenv.bytes", total))
		span.End(err)
	}()
	moved := func(n int) {
		total += int64(n)
		if progress != nil {
			progress(total)
		}
	}
	placed, sent, rest, err := putBig(ctx, p, dir, sources, moved)
	if err == nil && (len(rest) > 0 || len(sources) == 0) {
		var now []Placed
		var more []Placed
		now, more, err = putStream(ctx, p, dir, rest, moved)
		placed, sent = append(placed, now...), append(sent, more...)
	}
	if err != nil {
		return nil, err
	}
	if err := verify(p, dir, sent, placed); err != nil {
		return nil, err
	}
	return inOrder(sources, sent), nil
}

const bigFile = 16 << 20 // what a way of its own pays off for

// putBig sends the big ones of sources by the place's own way for them, and returns those that remain to be sent.
func putBig(ctx context.Context, p Place, dir string, sources []Source, moved func(int)) (placed, sent []Placed, rest []Source, err error) {
	bp, can := p.(BigPlacer)
	for _, s := range sources {
		can = can && s.Link == "" // which may lie on the way to a file
	}
	if !can {
		return nil, nil, sources, nil
	}
	for _, s := range sources {
		if s.Folder || s.Size < bigFile {
			rest = append(rest, s)
			continue
		}
		sum := s.SHA256
		var side *sideHash
		open := func(ctx context.Context) (io.ReadCloser, error) {
			r, err := s.Body(ctx)
			if err != nil {
				return nil, fault.At(err, "read %s", s.Name)
			}
			side = newSideHash(r, s.Name, s.Size, sum == "", moved)
			return io.NopCloser(side), nil
		}
		f, ok, err := bp.PutBig(ctx, dir, path.Clean(s.Name), s.Mode&0o111 != 0, s.Size, open)
		if side != nil {
			if own := side.Close(); own != "" {
				sum = own
			}
			if side.bad != nil {
				err = side.bad
			}
		}
		if err != nil {
			return nil, nil, nil, err
		}
		if !ok {
			rest = append(rest, s)
			continue
		}
		if s.SHA256 != "" && f.SHA256 != sum {
			if err := recheck(ctx, s); err != nil {
				return nil, nil, nil, err
			}
		}
		placed = append(placed, f)
		sent = append(sent, Placed{Name: path.Clean(s.Name), Size: s.Size, SHA256: sum})
	}
	return placed, sent, rest, nil
}

// recheck returns an error when it is the source that does not have the content it announced.
func recheck(ctx context.Context, s Source) error {
	_, err := copyBody(ctx, io.Discard, s, make([]byte, sideBlock), func(int) {})
	return err
}

func inOrder(sources []Source, sent []Placed) []Placed {
	by := make(map[string]Placed, len(sent))
	for _, f := range sent {
		by[f.Name] = f
	}
	var out []Placed
	for _, s := range sources {
		if f, ok := by[path.Clean(s.Name)]; ok {
			out = append(out, f)
		}
	}
	return out
}

func putStream(ctx context.Context, p Place, dir string, sources []Source, moved func(int)) (placed, sent []Placed, err error) {
	pr, pw := io.Pipe()
	done := make(chan error, 1)
	go func() {
		var err error
		sent, err = pack(ctx, pw, sources, moved)
		pw.CloseWithError(err)
		done <- err
	}()
	tp, reads := p.(TarPlacer)
	if reads {
		placed, err = tp.PutTarPlaced(ctx, dir, pr)
	} else {
		err = p.PutTar(ctx, dir, pr)
	}
	pr.CloseWithError(io.ErrClosedPipe)
	if wrote := <-done; wrote != nil && !errors.Is(wrote, io.ErrClosedPipe) && (err == nil || errors.Is(err, wrote)) {
		err = wrote
	}
	if err == nil && !reads {
		placed, err = readBack(ctx, p, dir, sent)
	}
	return placed, sent, err
}

func pack(ctx context.Context, w io.Writer, sources []Source, moved func(int)) ([]Placed, error) {
	tw := tar.NewWriter(w)
	var out []Placed
	now := time.Now()
	buf := make([]byte, sideBlock)
	for _, s := range sources {
		h := &tar.Header{Name: path.Clean(s.Name), ModTime: now, Mode: 0o644, Format: tar.FormatPAX}
		switch {
		case s.Folder:
			h.Typeflag, h.Name, h.Mode = tar.TypeDir, h.Name+"/", 0o755
		case s.Link != "":
			h.Typeflag, h.Linkname = tar.TypeSymlink, s.Link
		default:
			h.Typeflag, h.Size = tar.TypeReg, s.Size
			if s.Mode&0o111 != 0 {
				h.Mode = 0o755
			}
		}
		if err := tw.WriteHeader(h); err != nil {
			return nil, err
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		sum, err := copyBody(ctx, tw, s, buf, moved)
		if err != nil {
			return nil, err
		}
		out = append(out, Placed{Name: h.Name, Size: s.Size, SHA256: sum})
	}
	return out, tw.Close()
}

// copyBody sends a source's content, which must be what was announced, and returns its sha256.
func copyBody(ctx context.Context, w io.Writer, s Source, buf []byte, moved func(int)) (string, error) {
	r, err := s.Body(ctx)
	if err != nil {
		return "", fault.At(err, "read %s", s.Name)
	}
	side := newSideHash(r, s.Name, s.Size, true, moved)
	_, err = io.CopyBuffer(struct{ io.Writer }{w}, store.ReaderUntil(ctx, side), buf)
	sum := side.Close()
	switch {
	case side.bad != nil:
		return "", side.bad
	case err != nil:
		return "", err
	case s.SHA256 != "" && s.SHA256 != sum:
		return "", fault.New(fault.Conflict, "%s: its content has the sha256 %s, but %s was expected", s.Name, sum, s.SHA256)
	}
	return sum, nil
}

func readBack(ctx context.Context, p Place, dir string, sent []Placed) ([]Placed, error) {
	req := GetRequest{}
	for _, s := range sent {
		req.Roots = append(req.Roots, path.Join(dir, s.Name))
	}
	if len(sent) == 0 {
		return nil, nil
	}
	t, err := p.Get(ctx, req)
	if err != nil {
		return nil, err
	}
	defer t.Close()
	var out []Placed
	for {
		e, err := t.Next()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		if e.Err != nil || e.Kind != File || e.Name != "" {
			continue // verify names it
		}
		h := sha256.New()
		n, err := io.Copy(h, t)
		if err != nil {
			return nil, fault.At(err, "read back %s", req.Roots[e.Root])
		}
		out = append(out, Placed{Name: sent[e.Root].Name, Size: n, SHA256: hex.EncodeToString(h.Sum(nil))})
	}
}

func verify(p Place, dir string, sent, placed []Placed) error {
	found := make(map[string]Placed, len(placed))
	for _, f := range placed {
		found[f.Name] = f
	}
	for _, s := range sent {
		f, ok := found[s.Name]
		at := path.Join(dir, s.Name)
		switch {
		case !ok:
			return fault.New(fault.Unavailable, "%s was written but is not in %s afterwards; does something there remove or hide it?", at, p)
		case f.Size != s.Size:
			return fault.New(fault.Unavailable, "%s has %d bytes in %s, but %d were written; does something there change it?", at, f.Size, p, s.Size)
		case f.SHA256 != s.SHA256:
			return fault.New(fault.Unavailable, "%s has another content in %s than was written; does something there change it?", at, p)
		}
	}
	return nil
}

// Bytes returns a Source of a file with this content.
func Bytes(name string, mode fs.FileMode, content []byte) Source {
	return Source{Name: name, Mode: mode, Size: int64(len(content)), Body: func(context.Context) (io.ReadCloser, error) {
		return io.NopCloser(&sliceReader{b: content}), nil
	}}
}

type sliceReader struct{ b []byte }

func (r *sliceReader) Read(p []byte) (int, error) {
	if len(r.b) == 0 {
		return 0, io.EOF
	}
	n := copy(p, r.b)
	r.b = r.b[n:]
	return n, nil
}

// Shell returns the name of the shell that scripts run with in p: "bash", else "sh"; NotFound when it has neither.
func Shell(ctx context.Context, p Place) (string, error) {
	for _, s := range []string{"bash", "sh"} {
		if _, err := p.LookPath(ctx, s); err == nil {
			return s, nil
		} else if !fault.Is(err, fault.NotFound) {
			return "", err
		}
	}
	return "", fault.New(fault.NotFound, "there is no shell in %s (neither bash nor sh)", p)
}
