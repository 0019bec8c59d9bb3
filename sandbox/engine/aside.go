package engine

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path"
	"time"

	"github.com/moby/moby/client"

	"agentenv/fault"
	"agentenv/sandbox/helper/wire"
	"agentenv/sandbox/place"
	"agentenv/store"
)

// This file moves the content of big files past the helper, which is quicker than an exec's streams: directly where the engine
// runs on this machine, else through the engine's archive API. The helper says where that sees what the processes in the
// container see, gives the file its name, and checks what is there.

var _ place.BigPlacer = (*Container)(nil)

const bigFile = 16 << 20

// PutBig writes one big file; see place.BigPlacer. Only files on the container's root filesystem take this way.
func (c *Container) PutBig(ctx context.Context, dir, name string, executable bool, size int64, open func(context.Context) (io.ReadCloser, error)) (place.Placed, bool, error) {
	q := wire.Request{Mode: wire.ModeAside, Dir: []byte(dir), Name: []byte(name), Perm: 0o644}
	if executable {
		q.Perm = 0o755
	}
	failed := func(err error) (place.Placed, bool, error) { return place.Placed{}, false, err }
	t, err := c.talk(ctx, place.Root, "/", q)
	if withoutHelper(err) {
		return failed(nil)
	}
	if err != nil {
		return failed(err)
	}
	defer t.close()
	at := path.Join(dir, name)
	_, b, err := t.next(wire.Aside)
	if err != nil {
		return failed(t.explain(ctx, err, "write %s in %s", at, c))
	}
	offer := wire.ParseOffer(b)
	if offer.Path == "" {
		return failed(nil)
	}
	body, err := open(ctx)
	if err != nil {
		return failed(err)
	}
	defer body.Close()
	if f := c.openDirect(ctx, offer, os.O_WRONLY); f != nil {
		err = writeTo(f, store.ReaderUntil(ctx, body))
	} else {
		err = c.upload(ctx, offer.Path, size, body)
	}
	if err != nil {
		return failed(wrap(ctx, err, "write %s in %s", at, c))
	}
	var e wire.Entry
	if err = t.out.Send(wire.Go, nil); err == nil {
		if _, b, err = t.next(wire.Item); err == nil {
			e, err = wire.ParseEntry(b)
		}
	}
	if err != nil {
		return failed(t.explain(ctx, err, "write %s in %s", at, c))
	}
	return place.Placed{Name: e.Name, Size: e.Size, SHA256: e.SHA256}, true, nil
}

func writeTo(f *os.File, body io.Reader) error {
	_, err := io.CopyBuffer(struct{ io.Writer }{f}, body, make([]byte, 1<<20))
	if e := f.Close(); err == nil {
		err = e
	}
	return err
}

// upload writes one file through the archive API.
func (c *Container) upload(ctx context.Context, p string, size int64, body io.Reader) error {
	stream, err := oneFile(path.Base(p), size, body)
	if err == nil {
		_, err = c.e.cli.CopyToContainer(ctx, c.info.ID, client.CopyToContainerOptions{DestinationPath: path.Dir(p), Content: stream})
	}
	return err
}

// oneFile returns the tar stream of one file of root's.
func oneFile(name string, size int64, body io.Reader) (io.Reader, error) {
	var head bytes.Buffer
	err := tar.NewWriter(&head).WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o600, Size: size, ModTime: time.Now()})
	const block = 512
	end := make([]byte, (block-size%block)%block+2*block)
	return io.MultiReader(&head, body, bytes.NewReader(end)), err
}

// offered is the content of a file that the helper offers to be fetched aside.
type offered struct {
	src  io.Closer
	body io.Reader
	left int64
}

// fetch opens what the helper offers; nil where neither way gives exactly that.
func (c *Container) fetch(ctx context.Context, o wire.Offer, size int64) *offered {
	if f := c.openDirect(ctx, o, os.O_RDONLY); f != nil {
		return &offered{src: f, body: store.ReaderUntil(ctx, io.LimitReader(f, size)), left: size}
	}
	r, err := c.e.cli.CopyFromContainer(ctx, c.info.ID, client.CopyFromContainerOptions{SourcePath: o.Path})
	if err != nil {
		return nil
	}
	tr := tar.NewReader(r.Content)
	h, err := tr.Next()
	if err != nil || h.Typeflag != tar.TypeReg || h.Size != size {
		r.Content.Close()
		return nil
	}
	return &offered{src: r.Content, body: tr, left: size}
}

// aside answers the helper's offer of the body of the current entry: Go when it was fetched or is not wanted, Skip when the
// helper shall send it.
func (g *tree) aside(o wire.Offer) error {
	if !g.unwanted {
		if g.big = g.c.fetch(g.ctx, o, g.size); g.big != nil {
			return nil
		}
		return g.t.out.Send(wire.Skip, nil)
	}
	return g.t.out.Send(wire.Go, nil)
}

// readBig reads from what is fetched aside.
func (g *tree) readBig(p []byte) (int, error) {
	n, err := 0, io.EOF
	if !g.unwanted {
		n, err = g.big.body.Read(p)
		g.big.left -= int64(n)
	}
	if err == nil {
		return n, nil
	}
	if errors.Is(err, io.EOF) && !g.unwanted && g.big.left > 0 {
		g.short = fault.New(fault.Conflict, "shrank from %d to %d bytes while it was read", g.size, g.size-g.big.left)
	}
	g.big.src.Close()
	g.big = nil
	if errors.Is(err, io.EOF) { // whether the file stayed the same meanwhile, the helper tells
		err = g.t.out.Send(wire.Go, nil)
	}
	if err != nil {
		g.err = fault.Wrap(fault.Unavailable, oneLine(err), "read files in %s", g.c)
		if g.ctx.Err() != nil {
			g.err = fault.At(context.Cause(g.ctx), "read files in %s", g.c)
		}
		g.end, g.body = g.err, false
		return n, g.err
	}
	return n, nil
}
