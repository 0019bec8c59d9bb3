package engine

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"iter"
	"path"
	"strings"

	"agentenv/fault"
	"agentenv/sandbox/helper/wire"
	"agentenv/sandbox/place"
)

// LookPath finds an executable on the PATH of the container; see place.Place.
func (c *Container) LookPath(ctx context.Context, names ...string) (string, error) {
	t, err := c.talk(ctx, "", "/", wire.Request{Mode: wire.ModeLook, Names: names})
	if withoutHelper(err) {
		return c.archiveLook(ctx, names)
	}
	if err != nil {
		return "", err
	}
	defer t.close()
	_, b, err := t.next(wire.Done)
	if err != nil {
		return "", t.explain(ctx, err, "look for %s in %s", strings.Join(names, " or "), c)
	}
	return string(b), nil
}

// PutTar unpacks a tar stream below dir as root; see place.Place.
func (c *Container) PutTar(ctx context.Context, dir string, tar io.Reader) error {
	_, err := c.PutTarPlaced(ctx, dir, tar)
	return err
}

// PutTarPlaced is PutTar, and returns every file as it was read back from the container afterwards.
func (c *Container) PutTarPlaced(ctx context.Context, dir string, tar io.Reader) ([]place.Placed, error) {
	if err := place.CheckPath(dir); err != nil {
		return nil, err
	}
	t, err := c.talk(ctx, place.Root, "/", wire.Request{Mode: wire.ModeUnpack, Dir: []byte(dir)})
	if withoutHelper(err) {
		return c.archivePut(ctx, dir, tar)
	}
	if err != nil {
		return nil, err
	}
	defer t.close()
	fed := make(chan error, 1)
	go func() {
		_, err := io.CopyBuffer(struct{ io.Writer }{dataWriter{t.out}}, struct{ io.Reader }{tar}, make([]byte, 256<<10))
		if err == nil {
			err = t.out.Send(wire.End, nil)
		} else {
			_ = t.conn.CloseWrite() // the helper sees a stream without its end
		}
		fed <- err
	}()
	var placed []place.Placed
	for {
		got, b, err := t.next(0)
		if err != nil {
			err = t.explain(ctx, err, "write below %s in %s", dir, c)
			t.conn.Close()
			if p, ok := tar.(*io.PipeReader); ok {
				p.CloseWithError(err)
			}
			if sent := <-fed; sent != nil && ctx.Err() == nil && !isNetwork(sent) {
				return nil, sent
			}
			return nil, err
		}
		if got == wire.Done {
			return placed, <-fed
		}
		e, err := wire.ParseEntry(b)
		if err != nil {
			return nil, err
		}
		placed = append(placed, place.Placed{Name: e.Name, Size: e.Size, SHA256: e.SHA256})
	}
}

func isNetwork(err error) bool {
	return fault.KindOf(err) == fault.Internal || errors.Is(err, io.ErrClosedPipe)
}

type dataWriter struct{ out *wire.Writer }

func (w dataWriter) Write(p []byte) (int, error) { return len(p), w.out.Send(wire.Data, p) }

// Stat describes one path; see place.Place.
func (c *Container) Stat(ctx context.Context, p string, follow bool) (place.Entry, error) {
	if err := place.CheckPath(p); err != nil {
		return place.Entry{}, err
	}
	var found place.Entry
	err := c.list(ctx, wire.Request{Mode: wire.ModeList, Roots: [][]byte{[]byte(p)}, Follow: follow}, func(e place.Entry) bool {
		found = e
		return true
	})
	if withoutHelper(err) {
		return c.archiveStat(ctx, p, follow)
	}
	if err == nil && found.Err != nil {
		err = fault.At(found.Err, "%s in %s", p, c)
	}
	return found, err
}

// Walk lists what is below root; see place.Place.
func (c *Container) Walk(ctx context.Context, root string, hash bool) iter.Seq2[place.Entry, error] {
	return func(yield func(place.Entry, error) bool) {
		if err := place.CheckPath(root); err != nil {
			yield(place.Entry{}, err)
			return
		}
		var rootErr error
		q := wire.Request{Mode: wire.ModeList, Roots: [][]byte{[]byte(root)}, Follow: true, Recurse: true, Hash: hash}
		err := c.list(ctx, q, func(e place.Entry) bool {
			if e.Name == "" {
				if e.Err != nil {
					rootErr = fault.At(e.Err, "%s in %s", root, c)
				} else if e.Kind != place.Dir {
					rootErr = fault.New(fault.Invalid, "%s in %s is no folder", root, c)
				}
				return rootErr == nil
			}
			return yield(e, nil)
		})
		if withoutHelper(err) {
			c.archiveWalk(ctx, root, hash, yield)
			return
		}
		if err == nil {
			err = rootErr
		}
		if err != nil && !errors.Is(err, errBroken) {
			yield(place.Entry{}, err)
		}
	}
}

var errBroken = errors.New("iteration ended")

func (c *Container) list(ctx context.Context, q wire.Request, each func(place.Entry) bool) error {
	t, err := c.talk(ctx, place.Root, "/", q)
	if err != nil {
		return err
	}
	defer t.close()
	for {
		got, b, err := t.next(0)
		if err != nil {
			return t.explain(ctx, err, "list %s in %s", q.Roots[0], c)
		}
		if got == wire.Listed {
			return nil
		}
		e, err := entry(b)
		if err != nil {
			return err
		}
		if !each(e) {
			return errBroken
		}
	}
}

func entry(b []byte) (place.Entry, error) {
	w, err := wire.ParseEntry(b)
	if err != nil {
		return place.Entry{}, err
	}
	return place.FromWire(w), nil
}

// Get streams what is at the roots; see place.Place. While the body of a big file is half read, the engine answers nothing
// else about this container.
func (c *Container) Get(ctx context.Context, req place.GetRequest) (place.Tree, error) {
	q := wire.Request{Mode: wire.ModePack, Follow: req.Follow, Recurse: true, Ask: req.Skip != nil, Big: bigFile}
	for _, r := range req.Roots {
		if err := place.CheckPath(r); err != nil {
			return nil, err
		}
		q.Roots = append(q.Roots, []byte(r))
	}
	t, err := c.talk(ctx, place.Root, "/", q)
	if withoutHelper(err) {
		return c.archiveGet(ctx, req), nil
	}
	if err != nil {
		return nil, err
	}
	g := &tree{ctx: ctx, t: t, c: c}
	if req.Skip != nil {
		if err := g.skip(req); err != nil {
			t.close()
			return nil, t.explain(ctx, err, "list files in %s", c)
		}
	}
	return g, nil
}

// tree reads the answer to a pack request.
type tree struct {
	ctx  context.Context
	t    *talk
	c    *Container
	body bool
	size int64 // of the body
	rest []byte

	big      *offered // the body, where it is fetched aside
	unwanted bool     // the body is not read further
	short    error    // fewer bytes were fetched aside than there had to be
	err      error    // of the body, kept for later reads
	end      error
}

func (g *tree) skip(req place.GetRequest) error {
	var skips [][]byte
	for {
		got, b, err := g.t.next(0)
		if err != nil {
			return err
		}
		if got == wire.Listed {
			break
		}
		w, err := wire.ParseEntry(b)
		if err != nil {
			return err
		}
		if w.Root < len(req.Roots) && req.Skip(req.Roots[w.Root], w.Name) {
			skips = append(skips, (&wire.Entry{Root: w.Root, Name: w.Name}).Append(nil))
		}
	}
	for _, s := range skips {
		if err := g.t.out.Put(wire.Skip, s); err != nil {
			return err
		}
	}
	return g.t.out.Send(wire.Go, nil)
}

// Next goes to the next entry; see place.Tree.
func (g *tree) Next() (place.Entry, error) {
	if g.body {
		g.unwanted = true
		_, _ = io.Copy(io.Discard, g)
	}
	g.rest, g.err, g.body, g.unwanted, g.short = nil, io.EOF, false, false, nil
	if g.end != nil {
		return place.Entry{}, g.end
	}
	got, b, err := g.t.next(0)
	if err != nil {
		g.end = g.t.explain(g.ctx, err, "read files in %s", g.c)
		return place.Entry{}, g.end
	}
	if got == wire.Done {
		g.end = io.EOF
		return place.Entry{}, io.EOF
	}
	e, err := entry(b)
	if err != nil {
		g.end = err
		return place.Entry{}, err
	}
	if e.Kind == place.File && e.Err == nil {
		g.body, g.size, g.err = true, e.Size, nil
	}
	return e, nil
}

// Read reads the body of the current entry.
func (g *tree) Read(p []byte) (int, error) {
	for len(g.rest) == 0 {
		if g.err != nil {
			return 0, g.err
		}
		if g.big != nil {
			if n, err := g.readBig(p); n > 0 || err != nil {
				return n, err
			}
			continue
		}
		got, b, err := g.t.next(0)
		if err == nil && got == wire.Aside {
			err = g.aside(wire.ParseOffer(b))
		}
		switch {
		case err != nil:
			g.err = g.t.explain(g.ctx, err, "read files in %s", g.c)
			g.end, g.body = g.err, false
		case got == wire.Body:
			g.rest = b
		case got == wire.BodyEnd:
			g.body = false
			if g.err = fromWire(wire.ParseFailure(b)); g.err == nil {
				g.err = g.short
			}
			if g.err == nil {
				g.err = io.EOF
			}
		}
	}
	n := copy(p, g.rest)
	g.rest = g.rest[n:]
	return n, nil
}

// Close ends the stream.
func (g *tree) Close() error {
	if g.end == nil {
		g.end = fs.ErrClosed
	}
	if g.big != nil {
		g.big.src.Close()
	}
	g.t.close()
	return nil
}

func clean(p string) string { return path.Clean("/" + p) }
