package engine

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"strings"

	"github.com/moby/moby/client"

	"agentenv/fault"
	"agentenv/sandbox/place"
)

func (c *Container) archiveWalk(ctx context.Context, root string, hash bool, yield func(place.Entry, error) bool) {
	g := c.archiveGet(ctx, place.GetRequest{Roots: []string{root}, Follow: true})
	defer g.Close()
	for {
		e, err := g.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err == nil && e.Name == "" {
			switch {
			case e.Err != nil:
				err = e.Err
			case e.Kind != place.Dir:
				err = fault.New(fault.Invalid, "%s in %s is no folder", root, c)
			default:
				continue
			}
		}
		if err != nil {
			yield(place.Entry{}, err)
			return
		}
		if hash && e.Kind == place.File && e.Err == nil {
			h := sha256.New()
			if _, err := io.Copy(h, g); err != nil {
				e.Err = err
			} else {
				e.SHA256 = hex.EncodeToString(h.Sum(nil))
			}
		}
		if !yield(e, nil) {
			return
		}
	}
}

func (c *Container) archiveGet(ctx context.Context, req place.GetRequest) place.Tree {
	return &archive{ctx: ctx, c: c, req: req, root: -1}
}

// archive reads one archive a root.
type archive struct {
	ctx  context.Context
	c    *Container
	req  place.GetRequest
	root int
	src  io.ReadCloser
	tr   *tar.Reader
	top  string
	left int64
	skip string
	fail error
	done bool
}

// Next goes to the next entry; see place.Tree.
func (a *archive) Next() (place.Entry, error) {
	a.left, a.fail = 0, io.EOF
	for {
		if a.done {
			return place.Entry{}, io.EOF
		}
		if a.tr == nil {
			if a.root++; a.root >= len(a.req.Roots) {
				a.done = true
				continue
			}
			if e, err := a.open(); err != nil || e.Err != nil {
				return e, err
			}
		}
		h, err := a.tr.Next()
		if err == io.EOF {
			a.src.Close()
			a.tr, a.src = nil, nil
			continue
		}
		if err != nil {
			a.done = true
			return place.Entry{}, wrap(a.ctx, err, "read %s in %s", a.req.Roots[a.root], a.c)
		}
		name := strings.TrimSuffix(h.Name, "/")
		if a.top == "" {
			a.top = name
		}
		name = strings.TrimPrefix(strings.TrimPrefix(name, a.top), "/")
		if a.skip != "" && strings.HasPrefix(name, a.skip+"/") {
			continue
		}
		if a.req.Skip != nil && a.req.Skip(a.req.Roots[a.root], name) {
			if h.Typeflag == tar.TypeDir {
				a.skip = name
				if name == "" {
					a.src.Close()
					a.tr, a.src = nil, nil
				}
			}
			continue
		}
		return a.entry(h, name), nil
	}
}

func (a *archive) open() (place.Entry, error) {
	a.top, a.skip = "", ""
	p, _, err := a.c.lookup(a.ctx, a.req.Roots[a.root], a.req.Follow)
	if err == nil {
		var r client.CopyFromContainerResult
		r, err = a.c.e.cli.CopyFromContainer(a.ctx, a.c.info.ID, client.CopyFromContainerOptions{SourcePath: p})
		if err == nil {
			a.src, a.tr = r.Content, tar.NewReader(r.Content)
			return place.Entry{}, nil
		}
		err = wrap(a.ctx, err, "read %s in %s", p, a.c)
	}
	if a.ctx.Err() != nil {
		a.done = true
		return place.Entry{}, err
	}
	return place.Entry{Root: a.root, Err: err}, nil
}

func (a *archive) entry(h *tar.Header, name string) place.Entry {
	m := h.FileInfo().Mode()
	e := place.Entry{Root: a.root, Name: name, Mode: m &^ fs.ModeType, UID: h.Uid, GID: h.Gid}
	switch h.Typeflag {
	case tar.TypeReg:
		e.Kind, e.Size = place.File, h.Size
		a.left, a.fail = h.Size, nil
	case tar.TypeDir:
		e.Kind = place.Dir
	case tar.TypeSymlink:
		e.Kind, e.Link = place.Symlink, h.Linkname
	case tar.TypeLink: // a second name of a file that the stream brought already
		e.Kind = place.File
		e.Err = fault.New(fault.Unsupported, "is a second name of the file %s; a stopped container gives such a file once", h.Linkname)
	default:
		e.Kind = place.Other
	}
	return e
}

// Read reads the body of the current entry.
func (a *archive) Read(p []byte) (int, error) {
	if a.fail != nil {
		return 0, a.fail
	}
	n, err := a.tr.Read(p)
	a.left -= int64(n)
	if errors.Is(err, io.EOF) && a.left > 0 {
		err = io.ErrUnexpectedEOF
	}
	if err != nil && !errors.Is(err, io.EOF) {
		err = wrap(a.ctx, err, "read %s in %s", a.req.Roots[a.root], a.c)
	}
	a.fail = err
	return n, err
}

// Close ends the stream.
func (a *archive) Close() error {
	a.done = true
	if a.src != nil {
		a.src.Close()
	}
	return nil
}
